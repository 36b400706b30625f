/* Tapetum: vision models, run natively. The whole public C API.
 *
 *     tap_engine *engine = NULL;
 *     tap_model *model = NULL;
 *     tap_session *session = NULL;
 *     tap_keypoints *points = NULL;
 *     tap_keypoints_view view = {.size = sizeof view};
 *     tap_error err;
 *     if (tap_engine_open(&engine, NULL, &err) ||
 *         tap_model_load(&model, engine, "model.safetensors", NULL, &err) ||
 *         tap_session_create(&session, model, &err) || tap_keypoints_create(&points, &err) ||
 *         tap_superpoint_file(session, "photo.jpg", NULL, points, &err))
 *         fprintf(stderr, "%s\n", err.message);
 *     else
 *         tap_keypoints_get(points, &view); // view.count points, view.xy, view.scores, ...
 *     tap_keypoints_free(points), tap_session_free(session);
 *     tap_model_release(model), tap_engine_release(engine);
 *
 * Objects   An engine holds threads and a backend. A model is loaded into an engine, immutable and
 *           reference-counted. A session holds the scratch memory of one run at a time. A session
 *           keeps its model alive and a model its engine, so they may be let go in any order.
 * Threads   Engines and models may be used by any number of threads at once. Sessions, result
 *           handles and pictures belong to one thread at a time; sessions of one model run in
 *           parallel. Results are bit-identical for any number of threads and from run to run.
 * fork      A child may use and let go what its parent opened; it starts threads of its own at its
 *           first call. A session or result that another thread was using at the time is lost.
 * Errors    A function that can fail returns tap_status and fills *err, which may be NULL. The
 *           library never prints, never exits, and never aborts on bad input.
 * Structs   Options and views begin with their own size, so that later versions can append
 *           fields. Set it with the _init function or as above; NULL options mean the defaults.
 * Strings   UTF-8 where we write them; paths are bytes, passed to the system as they are. */
#ifndef TAPETUM_H
#define TAPETUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TAP_VERSION_MAJOR 0
#define TAP_VERSION_MINOR 1
#define TAP_VERSION_PATCH 0

#if defined(__GNUC__)
#define TAP_API __attribute__((visibility("default")))
#else
#define TAP_API
#endif

/* ---- status and errors ------------------------------------------------------------------- */

/* Codes say what the caller can do about it; the message says what happened. */
typedef enum tap_status {
    TAP_OK = 0,              /* all outputs hold valid data */
    TAP_ERR_ARGUMENT = 1,    /* the call is wrong: the message names the parameter */
    TAP_ERR_FORMAT = 2,      /* a file's or picture's bytes are wrong */
    TAP_ERR_LIMIT = 3,       /* well formed, but larger than a stated limit */
    TAP_ERR_UNSUPPORTED = 4, /* well formed, but not something this build or model does */
    TAP_ERR_NOT_FOUND = 5,   /* no such file */
    TAP_ERR_IO = 6,          /* the system refused to read or write */
    TAP_ERR_MEMORY = 7,      /* out of memory */
    TAP_ERR_DEVICE = 8,      /* the backend's hardware failed */
    TAP_ERR_CANCELLED = 9,   /* asked to stop */
    TAP_ERR_INTERNAL = 10    /* our own fault; please report it */
} tap_status;

/* Owned by the caller. On failure: what was wrong, where (file, field, offset), what to do. */
typedef struct tap_error {
    tap_status status;
    char message[512];
} tap_error;

/* The code's name, "TAP_ERR_FORMAT"; "TAP_ERR_UNKNOWN" for any other number. Static. */
TAP_API const char *tap_status_name(tap_status status);

/* "0.1.0", of the library at run time; compare with TAP_VERSION_* of the header. Static. */
TAP_API const char *tap_version(void);

/* One line: version, compiler, libraries linked, options. Static. */
TAP_API const char *tap_build_info(void);

/* Frees memory that a function here returned by pointer (its comment says so). NULL is fine. */
TAP_API void tap_free(void *memory);

/* ---- engine ------------------------------------------------------------------------------ */

typedef struct tap_engine tap_engine;
typedef struct tap_model tap_model;
typedef struct tap_session tap_session;

typedef enum tap_log_level { TAP_LOG_DEBUG, TAP_LOG_INFO, TAP_LOG_WARNING } tap_log_level;

/* Called from the thread that made the call being logged. The message lives until it returns. */
typedef void (*tap_log_callback)(void *user, tap_log_level level, const char *message);

typedef struct tap_engine_options {
    size_t size;
    const char *backend;  /* "cpu" (default) */
    const char *isa;      /* NULL: $TAPETUM_CPU, else the best this CPU can run; or
                             "scalar", "avx2", "avx512", "neon". One it can't run is an error. */
    uint32_t n_threads;   /* 0: the CPUs this process may use (affinity and cgroup quota); <= 256 */
    tap_log_callback log; /* NULL: silent */
    void *log_user;
} tap_engine_options;

typedef struct tap_engine_info {
    size_t size;
    const char *backend;    /* "cpu" */
    const char *isa;        /* "avx2" */
    const char *isa_reason; /* why this one: "best of this CPU", "asked for by option", ... */
    const char *kernels;    /* text, one line an operation: which kernel runs it */
    uint32_t n_threads;
    const char *threads_reason; /* "2 CPUs allowed", "cgroup quota 1.5 CPUs", "asked for" */
} tap_engine_info;

TAP_API void tap_engine_options_init(tap_engine_options *options);

/* Starts the threads and opens the backend. *engine is set to NULL on failure.
 * Errors  TAP_ERR_ARGUMENT (an unknown backend or isa), TAP_ERR_UNSUPPORTED (an isa this CPU
 *         cannot run), TAP_ERR_MEMORY. */
TAP_API tap_status tap_engine_open(tap_engine **engine, const tap_engine_options *options,
                                   tap_error *err);

/* Drops the caller's reference; models of the engine keep it alive. NULL is fine. */
TAP_API void tap_engine_release(tap_engine *engine);

/* Strings live as long as the engine. */
TAP_API tap_status tap_engine_describe(const tap_engine *engine, tap_engine_info *info);

/* ---- models ------------------------------------------------------------------------------ */

/* Called now and then during a long load or conversion, from the thread that asked for it; done
 * and total in bytes. what: "packing", "checking", "writing". Returns true to go on; false ends the
 * call with TAP_ERR_CANCELLED (a conversion that is writing already is finished). */
typedef bool (*tap_progress_callback)(void *user, const char *what, uint64_t done, uint64_t total);

typedef struct tap_model_options {
    size_t size;
    bool skip_gate;        /* true: don't compare the packed network with the reference at load */
    const char *kind;      /* NULL: by content; else "superpoint" or "hamer", another is an error */
    const char *precision; /* NULL: "f32"; HaMeR also "f16" (weights stored so) and "int8" */
    const char *mano;      /* HaMeR: the user's MANO_RIGHT.pkl or .npz, docs/hamer.md; NULL: looked
                              for, in $TAPETUM_MANO and the caches; "": none */
    const char *cache;     /* HaMeR: folder for packed weights, which later loads map; NULL:
                              $TAPETUM_CACHE, else ~/.cache/tapetum; "": none is read or written */
    tap_progress_callback progress; /* NULL: none */
    void *progress_user;
} tap_model_options;

typedef struct tap_model_info {
    size_t size;
    const char *kind;    /* "superpoint", "hamer" */
    const char *path;    /* the weights file that was read */
    const char *format;  /* "safetensors", "pytorch zip", "pytorch legacy" */
    const char *licence; /* what the weights' licence asks of the user; print it */
    uint64_t n_parameters;
    bool has_descriptors;    /* false: a detector without a descriptor head */
    uint32_t descriptor_dim; /* 256; 0 without */
    double gate_correlation; /* least Pearson correlation with the reference; NAN if skipped */
    double load_ms;
    size_t packed_bytes;      /* memory of the packed weights */
    const char *precision;    /* "f32", "f16", "int8" */
    bool cached;              /* the packed weights were mapped from the cache */
    bool mano_available;      /* HaMeR: there is a MANO file, so answers have a mesh */
    const char *mano_path;    /* NULL without */
    const char *mano_licence; /* what MANO's licence asks of the user; print it; NULL without */
} tap_model_info;

TAP_API void tap_model_options_init(tap_model_options *options);

/* Loads a model's weights and packs them for the engine's backend.
 * path    a folder (config.json, model.safetensors), a .safetensors file, or a PyTorch
 *         .pth/.pt/.ckpt (zip or the legacy format). The content decides, not the name. SuperPoint:
 *         tensors by Hugging Face's names or Magic Leap's. HaMeR: the authors' checkpoint, or a
 *         .safetensors of the same names. Nothing in a file is ever executed. HaMeR's file is
 *         mapped: it must not be changed while the model lives.
 * Errors  TAP_ERR_NOT_FOUND, TAP_ERR_IO; TAP_ERR_FORMAT (the message names file and tensor: an LFS
 *         pointer, an HTML page, a truncated file, missing, extra, misshapen or NaN tensors);
 *         TAP_ERR_UNSUPPORTED (another kind of model); TAP_ERR_LIMIT; TAP_ERR_INTERNAL (the
 *         warm-up gate failed: the message has the correlation); TAP_ERR_CANCELLED (progress said
 *         so). */
TAP_API tap_status tap_model_load(tap_model **model, tap_engine *engine, const char *path,
                                  const tap_model_options *options, tap_error *err);

/* One more reference, for another owner. Returns model. */
TAP_API tap_model *tap_model_retain(tap_model *model);

/* Drops one reference. NULL is fine. */
TAP_API void tap_model_release(tap_model *model);

/* Strings live as long as the model. */
TAP_API tap_status tap_model_describe(const tap_model *model, tap_model_info *info);

/* The network as text, a line an operation: name, kind, shapes, million multiply-adds, at the
 * given input size (multiples of 8; HaMeR has one size, 192 x 256, and 0 x 0 stands for it). *text
 * is freed by the caller with tap_free. */
TAP_API tap_status tap_model_plan(const tap_model *model, uint32_t width, uint32_t height,
                                  char **text, tap_error *err);

/* Writes synthetic weights, a pure function of the tensors' names (docs/formats.md), so that
 * everything can be tried, tested and timed without licensed files. kind: "superpoint", "hamer"
 * (2.7 GB) or "hamer-tiny" (the same network 600 times smaller). The file appears whole or not at
 * all. */
TAP_API tap_status tap_synth_write(const char *kind, const char *path, tap_error *err);

/* Writes a model's needed tensors alone, as a clean .safetensors: no optimizer, no licensed extras.
 * from      as tap_model_load's path; to: the file, whole or not at all.
 * dtype     NULL or "f32"; "f16": rounded to nearest even.
 * Errors    those of tap_model_load; TAP_ERR_ARGUMENT (a dtype; f16 cannot hold a value, which is
 *           named); TAP_ERR_IO; TAP_ERR_CANCELLED (progress said so). */
TAP_API tap_status tap_model_convert(const char *from, const char *to, const char *dtype,
                                     tap_progress_callback progress, void *progress_user,
                                     tap_error *err);

/* Scratch memory for one run at a time; grows to the largest input seen, then allocates nothing. */
TAP_API tap_status tap_session_create(tap_session **session, tap_model *model, tap_error *err);

/* NULL is fine. */
TAP_API void tap_session_free(tap_session *session);

/* ---- pictures ---------------------------------------------------------------------------- */

typedef enum tap_pixel_format {
    TAP_PIXELS_GRAY = 1,
    TAP_PIXELS_RGB = 3,
    TAP_PIXELS_RGBA = 4, /* alpha is dropped, not composited */
    TAP_PIXELS_BGR = 5,
    TAP_PIXELS_BGRA = 6
} tap_pixel_format;

/* Borrowed 8-bit pixels. Rows lie stride_bytes apart, which may be negative (bottom-up) or 0 for
 * width * bytes per pixel; data points at the first row's first pixel. */
typedef struct tap_image {
    const uint8_t *data;
    uint32_t width, height;
    ptrdiff_t stride_bytes;
    tap_pixel_format format;
} tap_image;

typedef enum tap_exif {
    TAP_EXIF_IGNORE = 0, /* pixels as stored (the contract's default) */
    TAP_EXIF_APPLY = 1   /* turned upright first; points are in the upright picture */
} tap_exif;

typedef struct tap_decode_options {
    size_t size;
    tap_exif exif;
    uint64_t max_pixels; /* 64,000,000; checked before memory is taken */
} tap_decode_options;

typedef struct tap_picture tap_picture;

TAP_API void tap_decode_options_init(tap_decode_options *options);

/* Decodes JPEG, PNG or WebP (by content) as PIL's convert("RGB") does; grey stays one channel.
 * Errors  TAP_ERR_FORMAT ("truncated", "not a picture we know"), TAP_ERR_LIMIT (pixels, scans,
 *         chunks), TAP_ERR_UNSUPPORTED, TAP_ERR_MEMORY. docs/formats.md has every convention. */
TAP_API tap_status tap_picture_decode(tap_picture **picture, const void *bytes, size_t n_bytes,
                                      const tap_decode_options *options, tap_error *err);

/* A copy of borrowed pixels, as RGB. */
TAP_API tap_status tap_picture_copy(tap_picture **picture, const tap_image *image, tap_error *err);

/* NULL is fine. */
TAP_API void tap_picture_free(tap_picture *picture);

/* Borrowed view of the picture's pixels (GRAY or RGB), valid until it is freed. */
TAP_API tap_image tap_picture_view(const tap_picture *picture);

/* The EXIF orientation found in the file, 1..8 (1 where there is none or it is damaged). */
TAP_API int tap_picture_orientation(const tap_picture *picture);

typedef enum tap_encoding { TAP_ENCODING_PNG = 0, TAP_ENCODING_JPEG = 1 } tap_encoding;

/* The picture as a PNG or a JPEG (quality 92) in memory. *bytes is freed by the caller with
 * tap_free. Errors: TAP_ERR_ARGUMENT (another encoding), TAP_ERR_MEMORY. */
TAP_API tap_status tap_picture_encode(const tap_picture *picture, tap_encoding encoding,
                                      uint8_t **bytes, size_t *n_bytes, tap_error *err);

/* Writes a PNG (path ends in .png) or a JPEG (.jpg, .jpeg; quality 92). Written beside, synced and
 * renamed: the old file stays whole if anything fails. Errors: TAP_ERR_IO, TAP_ERR_ARGUMENT. */
TAP_API tap_status tap_picture_write(const tap_picture *picture, const char *path, tap_error *err);

/* ---- SuperPoint -------------------------------------------------------------------------- */

typedef enum tap_nms {
    TAP_NMS_SINGLE = 0,   /* one pass: a pixel stays if it equals its window's maximum */
    TAP_NMS_ITERATIVE = 1 /* Hugging Face's: then two rounds more in what is left */
} tap_nms;

typedef enum tap_gray {
    TAP_GRAY_FIRST = 0, /* the first channel of RGB: red (the contract's default) */
    TAP_GRAY_LUMA = 1   /* 0.299 R + 0.587 G + 0.114 B, rounded as PIL's convert("L") */
} tap_gray;

typedef enum tap_coordinates {
    TAP_COORDINATES_RATIO = 0,  /* X = x * W / w: the contract's default */
    TAP_COORDINATES_CENTRES = 1 /* X = (x + 0.5) * W / w - 0.5: pixel centres stay centres */
} tap_coordinates;

typedef struct tap_superpoint_options {
    size_t size;
    uint32_t width, height;   /* network input: 640 x 480; multiples of 8, 8..8192 */
    bool native;              /* true: the picture's own size cut down to multiples of 8 (pixels
                                 right and below are left out), width and height are ignored */
    int32_t max_keypoints;    /* 1024; -1: all */
    float keypoint_threshold; /* 0.005; in [0, 1], kept if score > threshold */
    uint32_t nms_radius;      /* 4; 0..32 network pixels; 0: none */
    uint32_t border;          /* 4; points nearer to the edge are dropped */
    bool descriptors;         /* true */
    tap_nms nms;
    tap_gray gray;
    tap_coordinates coordinates;
    tap_exif exif;       /* for encoded pictures */
    uint64_t max_pixels; /* 64,000,000; for encoded pictures */
} tap_superpoint_options;

/* A result; reused from call to call its memory grows to the largest answer and stays. */
typedef struct tap_keypoints tap_keypoints;

typedef struct tap_keypoints_view {
    size_t size;
    size_t count;
    const float *xy;          /* [count][2], x right, y down, in the original picture's pixels */
    const float *scores;      /* [count], descending; ties by y, then x */
    const float *descriptors; /* [count][descriptor_dim], unit length; NULL if not asked for */
    uint32_t descriptor_dim;  /* 256; 0 if not asked for */
    uint32_t original_width, original_height; /* of the picture (upright, if that was applied) */
    uint32_t input_width, input_height;       /* of the network */
    double scale_x, scale_y;                  /* original over input */
    int exif_orientation;                     /* 1..8, as found */
    bool exif_applied;
    double decode_ms, preprocess_ms, forward_ms, postprocess_ms, total_ms;
} tap_keypoints_view;

TAP_API void tap_superpoint_options_init(tap_superpoint_options *options);

TAP_API tap_status tap_keypoints_create(tap_keypoints **keypoints, tap_error *err);
TAP_API void tap_keypoints_free(tap_keypoints *keypoints);

/* Borrowed view, valid until keypoints is used for another call or freed. Set view->size first. */
TAP_API tap_status tap_keypoints_get(const tap_keypoints *keypoints, tap_keypoints_view *view);

/* Finds keypoints in a file ("-": standard input), in an encoded picture, in pixels.
 * keypoints is overwritten; after a failure it is empty.
 * Errors  TAP_ERR_ARGUMENT (an option out of range: the message names it), those of
 *         tap_picture_decode, TAP_ERR_UNSUPPORTED (descriptors asked of a detector without that
 *         head), TAP_ERR_LIMIT (native size over 8192), TAP_ERR_MEMORY.
 * Source  DeTone, Malisiewicz, Rabinovich, "SuperPoint", CVPR workshops 2018, arXiv:1712.07629;
 *         post-processing as docs/superpoint.md states it. */
TAP_API tap_status tap_superpoint_file(tap_session *session, const char *path,
                                       const tap_superpoint_options *options,
                                       tap_keypoints *keypoints, tap_error *err);
TAP_API tap_status tap_superpoint_encoded(tap_session *session, const void *bytes, size_t n_bytes,
                                          const tap_superpoint_options *options,
                                          tap_keypoints *keypoints, tap_error *err);
TAP_API tap_status tap_superpoint_pixels(tap_session *session, const tap_image *image,
                                         const tap_superpoint_options *options,
                                         tap_keypoints *keypoints, tap_error *err);

/* Which arrays tap_keypoints_npz writes; combine with |. */
enum {
    TAP_NPZ_KEYPOINTS = 1,   /* "keypoints" (N, 2) float32 */
    TAP_NPZ_SCORES = 2,      /* "scores" (N,) float32 */
    TAP_NPZ_DESCRIPTORS = 4, /* "descriptors" (N, 256) float32 */
    TAP_NPZ_HALF = 8         /* descriptors as float16, rounded to nearest even */
};

/* A NumPy .npz of the result in memory. *bytes is freed by the caller with tap_free.
 * Errors  TAP_ERR_ARGUMENT (descriptors asked for that the result lacks), TAP_ERR_MEMORY.
 * Source  numpy.lib.format, version 1.0; stored zip members, data aligned to 64 bytes. */
TAP_API tap_status tap_keypoints_npz(const tap_keypoints *keypoints, unsigned fields,
                                     uint8_t **bytes, size_t *n_bytes, tap_error *err);

/* The same, to a file: written beside, synced, renamed. */
TAP_API tap_status tap_keypoints_write_npz(const tap_keypoints *keypoints, unsigned fields,
                                           const char *path, tap_error *err);

/* ---- HaMeR: hands --------------------------------------------------------------------------
 * Frames    the camera looks along +z, x goes right, y down; metres. Pixel centres are whole
 *           numbers.
 * Left hands  are mirrored before the network, which knows right ones only. rotmats, betas and cam
 *           are the network's own, as the contract has them; all else is mirrored back.
 * Source    Pavlakos et al., "Reconstructing Hands in 3D with Transformers", CVPR 2024,
 *           arXiv:2312.05251; Romero, Tzionas, Black, "Embodied Hands", 2017 (MANO). */

enum {
    TAP_HAND_ROTATIONS = 16, /* the wrist, then index, middle, little, ring, thumb, 3 each */
    TAP_HAND_BETAS = 10,
    TAP_HAND_JOINTS = 21, /* OpenPose's order: wrist, thumb, index, middle, ring, little, 4 each */
    TAP_HAND_VERTICES = 778,
    TAP_HAND_FACES = 1538,
    TAP_HANDS_MAX = 256 /* hands in one call */
};

/* How a box gives the side of the square that the network sees. */
typedef enum tap_hand_policy {
    TAP_HAND_SERVED = 0, /* its longer side times the factor: what the model's server does */
    TAP_HAND_DEMO = 1 /* widened or heightened to 192:256 first, as upstream's demo.py: a third more
                         for a box that is wider than tall */
} tap_hand_policy;

/* Corners in the frame's pixels; may reach beyond the frame. */
typedef struct tap_hand_box {
    float x1, y1, x2, y2;
    bool is_right;
} tap_hand_box;

/* Pixels: x = fx X / Z + cx. */
typedef struct tap_hand_camera {
    double fx, fy, cx, cy;
} tap_hand_camera;

/* Asked between the hands of one call, from its thread; false ends it with TAP_ERR_CANCELLED. */
typedef bool (*tap_proceed_callback)(void *user);

typedef struct tap_hamer_options {
    size_t size;
    const tap_hand_box *boxes; /* [n_boxes]; borrowed for the call */
    size_t n_boxes;            /* with boxes NULL: one hand in the square at the frame's middle;
                                  its camera is not to be trusted. With boxes, 0 gives no hands. */
    bool is_right;             /* true; without boxes: which hand it is */
    float rescale_factor;      /* 2.0; > 0 */
    tap_hand_policy policy;
    bool ready;             /* true: the picture is the network's input, 192 x 256, or 256 x 256
                               whose sides are left out; boxes must be NULL */
    tap_hand_camera camera; /* all 0: focal length 5000 / 256 times the longer side, around the
                               middle, which is what HaMeR assumes */
    tap_exif exif;          /* TAP_EXIF_APPLY, as upstream; for encoded pictures */
    uint64_t max_pixels;    /* 64,000,000; for encoded pictures */
    tap_proceed_callback proceed; /* asked before each hand; NULL: all are found */
    void *proceed_user;
} tap_hamer_options;

/* A result; reused from call to call its memory grows to the largest answer and stays. */
typedef struct tap_hands tap_hands;

typedef struct tap_hands_view {
    size_t size;
    size_t count;
    uint32_t image_width, image_height; /* of the picture (upright, if that was applied); 0 for
                                           tap_hamer_crops */
    bool box_given;                     /* false: the square in the middle, or ready */
    bool mano_available;
    tap_hand_policy policy;
    float rescale_factor;
    tap_hand_camera camera; /* the one that was used: cam_t_full and keypoints_2d go with it */
    int exif_orientation;   /* 1..8, as found */
    bool exif_applied;
    double decode_ms, preprocess_ms, network_ms, mano_ms, total_ms;
} tap_hands_view;

/* Row-major; pointers are valid until the result is used for another call or freed. */
typedef struct tap_hand_view {
    size_t size;
    tap_hand_box box; /* as given; without: the square's corners */
    bool is_right;
    double center_x, center_y,
        side;                    /* the square in the frame's pixels, not mirrored; 0 if ready */
    const float *rotmats;        /* [16][3][3]; 0 is the whole hand's, then MANO's 15 joints */
    const float *rotmats_image;  /* the same in the picture's frame: of the left hand itself */
    const float *axis_angle;     /* [16][3] of rotmats_image: axis times angle, 0..pi. For
                                    other MANO layers: with a flat mean hand. */
    const float *betas;          /* [10] */
    const float *cam;            /* [3]: s, tx, ty before the crop */
    const float *cam_t;          /* [3] before the crop's camera (focal length 5000), metres;
                                    not mirrored back: upstream's pred_cam_t */
    const float *cam_t_full;     /* [3] before the frame's camera; NULL if ready */
    const float *vertices;       /* [778][3]; these and those below: NULL without MANO */
    const float *joints;         /* [21][3] */
    const float *keypoints_2d;   /* [21][2] joints + cam_t_full in pixels; NULL if ready */
    const float *keypoints_crop; /* [21][2] -0.5..0.5 of the crop, not mirrored back:
                                    upstream's pred_keypoints_2d */
    const uint32_t *faces;       /* [1538][3], clockwise seen from outside with y down */
} tap_hand_view;

TAP_API void tap_hamer_options_init(tap_hamer_options *options);

TAP_API tap_status tap_hands_create(tap_hands **hands, tap_error *err);
TAP_API void tap_hands_free(tap_hands *hands); /* NULL is fine */

/* Borrowed views. Set view->size first. TAP_ERR_ARGUMENT: no such hand, or size is not set. */
TAP_API tap_status tap_hands_get(const tap_hands *hands, tap_hands_view *view);
TAP_API tap_status tap_hands_at(const tap_hands *hands, size_t i, tap_hand_view *view);

/* Makes a result of values that came from elsewhere, one hand out of a result or a server's answer,
 * so that it can be drawn and its mesh written. Everything is copied; hands is overwritten, after a
 * failure it is empty, and it must not own what is given.
 * view   count, image_width, image_height, camera, mano_available and what else is known.
 * given  [view->count]. rotmats, betas, cam and cam_t_full are needed, with mano_available
 * vertices, joints and faces too; the rest is taken over or worked out from them. Errors
 * TAP_ERR_ARGUMENT (a size that is not set, an array that is NULL or not finite, a face of a vertex
 * that there isn't), TAP_ERR_LIMIT (more than TAP_HANDS_MAX), TAP_ERR_MEMORY. */
TAP_API tap_status tap_hands_assemble(tap_hands *hands, const tap_hands_view *view,
                                      const tap_hand_view *given, tap_error *err);

/* Hands in a file ("-": standard input), in an encoded picture, in pixels; one a box, in their
 * order, each the same to the bit as in a call of its own. The picture is decoded once. hands is
 * overwritten; after a failure it is empty.
 * Errors  TAP_ERR_ARGUMENT (an option; a box that is not finite, empty, reversed, or wholly outside
 *         the picture: the message has its number), those of tap_picture_decode, TAP_ERR_LIMIT
 *         (more than TAP_HANDS_MAX boxes), TAP_ERR_INTERNAL (the network's output is not finite),
 *         TAP_ERR_CANCELLED (proceed said so), TAP_ERR_MEMORY. */
TAP_API tap_status tap_hamer_file(tap_session *session, const char *path,
                                  const tap_hamer_options *options, tap_hands *hands,
                                  tap_error *err);
TAP_API tap_status tap_hamer_encoded(tap_session *session, const void *bytes, size_t n_bytes,
                                     const tap_hamer_options *options, tap_hands *hands,
                                     tap_error *err);
TAP_API tap_status tap_hamer_pixels(tap_session *session, const tap_image *image,
                                    const tap_hamer_options *options, tap_hands *hands,
                                    tap_error *err);

/* The network on crops of the caller's own, upstream's HAMER.forward.
 * crops   [n][3][256][width], RGB, normalised: (p / 255 - mean) / std with mean 0.485, 0.456,
 *         0.406 and std 0.229, 0.224, 0.225. width 192, or 256 of which the middle 192 are seen.
 *         Left hands are mirrored already, and their results are not mirrored back.
 * Errors  TAP_ERR_ARGUMENT (a width, a value that is not finite), the rest as above. */
TAP_API tap_status tap_hamer_crops(tap_session *session, const float *crops, size_t n,
                                   uint32_t width, tap_hands *hands, tap_error *err);

typedef enum tap_hand_drawing {
    TAP_DRAW_BEST = 0,     /* the mesh; without MANO the box */
    TAP_DRAW_MESH = 1,     /* shaded, over the picture */
    TAP_DRAW_SKELETON = 2, /* the 21 joints, a colour a finger */
    TAP_DRAW_BOX = 3       /* the box and the hand's axes: red, green, blue are x, y, z */
} tap_hand_drawing;

/* Draws the hands onto the picture they were found in (made RGB if grey).
 * Errors  TAP_ERR_ARGUMENT (a mesh or joints of a result without MANO), TAP_ERR_MEMORY. */
TAP_API tap_status tap_draw_hands(tap_picture *picture, const tap_hands *hands,
                                  tap_hand_drawing drawing, tap_error *err);

/* A new picture: the meshes from their side, white around. */
TAP_API tap_status tap_draw_hands_side(tap_picture **picture, const tap_hands *hands,
                                       uint32_t width, uint32_t height, tap_error *err);

/* The meshes, where the camera sees them, closed at the wrist, to .obj, .ply or .glb, as path ends.
 * The file appears whole or not at all.
 * Errors  TAP_ERR_ARGUMENT (another ending, a result without MANO or hands), TAP_ERR_IO. */
TAP_API tap_status tap_hands_write_mesh(const tap_hands *hands, const char *path, tap_error *err);

/* How near the packed network is to its reference, on crops. */
typedef struct tap_check {
    size_t size;
    size_t n_crops;
    double correlation; /* the least of the crops': Pearson's, of rotmats, betas and cam (157) */
    double max_error, mean_error; /* of those values */
    double reference_ms;          /* spent on the reference */
} tap_check;

/* Compares on crops as in tap_hamer_crops.
 * reference  [n][157] saved before, rotmats, betas, cam; NULL: our reference executor, on one
 *            thread and in double: about a minute a crop of the full network.
 * values     NULL, or [n][157]: receives the reference, to be saved. */
TAP_API tap_status tap_hamer_check(tap_session *session, const float *crops, size_t n,
                                   uint32_t width, const float *reference, float *values,
                                   tap_check *check, tap_error *err);

/* Errors of predicted joints or vertices, as the field reports them. */
typedef struct tap_hand_errors {
    size_t size;
    size_t n_hands;
    double mpjpe_mm;    /* mean distance after joint 0 is put on joint 0 */
    double pa_mpjpe_mm; /* after the best similarity transform (Procrustes) */
} tap_hand_errors;

/* predicted, truth: [n_hands][n_points][3] in metres, finite.
 * Errors  TAP_ERR_ARGUMENT (no hands, under 3 points, a value that is not finite). */
TAP_API tap_status tap_hand_evaluate(const float *predicted, const float *truth, size_t n_hands,
                                     size_t n_points, tap_hand_errors *errors, tap_error *err);

/* Numbers out of a file, for the two functions above: a .npy array, one of a .npz by name, or JSON
 * (nested lists of one shape; name: the key, where the top is an object, or a number, where it is a
 * list of several such). name may be NULL: the only one, or the first.
 * *values, [shape...] in C order, is freed with tap_free. rank at most 8. */
TAP_API tap_status tap_array_read(const char *path, const char *name, float **values,
                                  size_t shape[8], size_t *rank, tap_error *err);

/* ---- matching ---------------------------------------------------------------------------- */

typedef struct tap_match_options {
    size_t size;
    float min_similarity; /* -1: off; else keep dot product >= this, in [-1, 1] */
    float ratio;          /* 0: off; else Lowe's test, in (0, 1]: keep a row of A if its distance to
                             the best of B < ratio * its distance to the second best, where
                             distance = sqrt(2 - 2 * dot product) */
} tap_match_options;

typedef struct tap_match_pair {
    uint32_t a, b; /* rows in the two results */
    float similarity;
} tap_match_pair;

TAP_API void tap_match_options_init(tap_match_options *options);

/* Mutual nearest neighbours by dot product: pairs (i, j) such that j is the best of B for i and i
 * the best of A for j; a tie goes to the lower row. In order of a.
 * a, b     [n_a][dim], [n_b][dim] float32 rows, unit length, finite. Borrowed.
 * matches  room for min(n_a, n_b) pairs. *n_matches: how many were written.
 * Errors   TAP_ERR_ARGUMENT, TAP_ERR_MEMORY. */
TAP_API tap_status tap_match(tap_engine *engine, const float *a, size_t n_a, const float *b,
                             size_t n_b, size_t dim, const tap_match_options *options,
                             tap_match_pair *matches, size_t *n_matches, tap_error *err);

/* ---- drawing ----------------------------------------------------------------------------- */

/* Draws points onto the picture (made RGB if grey): best last, coloured and sized by score. */
TAP_API tap_status tap_draw_keypoints(tap_picture *picture, const tap_keypoints_view *view,
                                      tap_error *err);

/* A new picture: a and b side by side, lines between matched points coloured by similarity. */
TAP_API tap_status tap_draw_matches(tap_picture **out, const tap_picture *a,
                                    const tap_keypoints_view *view_a, const tap_picture *b,
                                    const tap_keypoints_view *view_b, const tap_match_pair *matches,
                                    size_t n_matches, tap_error *err);

#ifdef __cplusplus
}
#endif

#endif
