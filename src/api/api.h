/* api: the public functions, and the only room that sees every engine room: it hands models a
 * backend. This header is private to it. */
#ifndef TAP_API_H
#define TAP_API_H

#include "cache.h"
#include "core/core.h"
#include "image/image.h"
#include "models/models.h"
#include "net/net.h"

#include <stdatomic.h>

struct tap_engine {
    _Atomic size_t references;
    tap_pool *pool;
    const tap_backend *backend;
    tap_backend_state *state;
    tap_backend_info info;
    tap_log_callback log;
    void *log_user;
    char threads_reason[64];
};

typedef enum tap_kind { TAP_KIND_SUPERPOINT, TAP_KIND_HAMER } tap_kind;

struct tap_model {
    _Atomic size_t references;
    tap_engine *engine;
    tap_kind kind;
    tap_superpoint *superpoint; /* by kind; the other is NULL */
    tap_hamer *hamer;
    tap_weights *weights; /* HaMeR's, which borrows its tensors */
    tap_cache *cache;     /* that holds HaMeR's packed weights; NULL: they are the program's own */
    tap_mano *mano;       /* NULL without */
    char *mano_path;
    /* SuperPoint: compiled at the default size with all outputs; every session's program shares its
     * packed weights. HaMeR: the program itself, of one crop. */
    tap_program *base;
    size_t packed_bytes;
    const char *precision;
    double gate_correlation, load_ms;
    char *path;
    const char *format;
};

/* Memory that grows to the largest need seen and then stays. */
typedef struct tap_growing {
    void *data;
    size_t capacity;
} tap_growing;

/* Room for count * size bytes; what was there is lost when it grows. what is for the message. */
tap_status tap_growing_reserve(tap_growing *growing, size_t count, size_t size, const char *what,
                               tap_error *err);

typedef struct tap_compiled {
    tap_program *program;
    size_t width, height, scratch_bytes;
} tap_compiled;

struct tap_session {
    tap_model *model;
    tap_growing scratch, input; /* of the network */
    struct {
        tap_compiled compiled[2]; /* without and with the descriptor head */
        tap_growing plane, resized, resize_scratch, scores, map, select_scratch;
    } points;
    struct {
        tap_growing crop_scratch;
        size_t scratch_bytes;
    } hands;
};

/* TAP_ERR_UNSUPPORTED: the session's model is of another kind. */
tap_status tap_session_check(const tap_session *session, tap_kind kind, tap_error *err);

/* Opens a model's file and tells by its tensors, or by the kind that is wanted (NULL: any), what it
 * is. hands: a HaMeR. */
tap_status tap_model_open(tap_weights **weights, bool *hands, const char *path, const char *wanted,
                          tap_error *err);

/* A SuperPoint's tensors, checked as at load. */
tap_status tap_model_check_points(const tap_weights *weights, tap_error *err);

/* The least correlation of the packed network's outputs with the reference executor's, on an input
 * that is the same at every start, into the model. With a cache, the reference's outputs are taken
 * from there, or put there. TAP_ERR_INTERNAL: below what we ship as good. */
tap_status tap_gate_check(tap_model *model, tap_error *err);

struct tap_picture {
    tap_pixels pixels;
};

struct tap_keypoints {
    size_t capacity, descriptor_capacity; /* points; floats */
    float *xy, *scores, *descriptors;
    tap_keypoints_view view;
};

/* One hand of a result. Mirrored back where tapetum.h says so. */
typedef struct tap_hand {
    tap_hand_box box;
    bool is_right;
    tap_hand_region region;
    float rotmats[TAP_HAND_ROTATIONS * 9], rotmats_image[TAP_HAND_ROTATIONS * 9];
    float axis_angle[TAP_HAND_ROTATIONS * 3];
    float betas[TAP_HAND_BETAS], cam[3], cam_t[3];
    float translation[3]; /* before the view's camera: cam_t_full, or the crop's */
    float vertices[TAP_HAND_VERTICES * 3], joints[TAP_HAND_JOINTS * 3];
    float keypoints[TAP_HAND_JOINTS * 2], keypoints_crop[TAP_HAND_JOINTS * 2];
} tap_hand;

struct tap_hands {
    tap_hand *hands;
    size_t capacity;
    bool in_frame; /* there is a frame with a camera, not a crop alone */
    /* MANO's triangles and those that close the wrist; of right hands, of left ones. */
    uint32_t faces[2][TAP_HAND_FACES + TAP_HAND_WRIST][3];
    tap_hands_view view;
};

/* Memory for n hands and MANO's triangles; sets mano_available. mano may be NULL. */
tap_status tap_hands_reserve(tap_hands *hands, size_t n, const tap_mano *mano, tap_error *err);

/* rotmats in the picture's frame, as matrices and as axis and angle. */
void tap_hand_orient(tap_hand *hand);

/* A caller's options over the defaults that *own already holds: as many bytes as both know. The
 * caller's first field is its size. False if that can't be a size. */
bool tap_options_read(void *own, size_t own_size, const void *options);

/* Sends one line to the engine's log callback, if it has one. */
__attribute__((format(printf, 3, 4))) void
tap_engine_log(const tap_engine *engine, tap_log_level level, const char *format, ...);

tap_engine *tap_engine_retain(tap_engine *engine);

#endif
