/* Engine opened, model loaded, and the options of the verbs that do so. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const tap_cli_precisions[] = {"f32", "f16", "int8", NULL};

static const char *const nms[] = {"single", "iterative", NULL};
static const char *const gray[] = {"first", "luma", NULL};
static const char *const exif[] = {"ignore", "apply", NULL};
static const char *const coordinates[] = {"ratio", "centres", NULL};

_Static_assert(TAP_NMS_ITERATIVE == 1 && TAP_GRAY_LUMA == 1 && TAP_EXIF_APPLY == 1 &&
                   TAP_COORDINATES_CENTRES == 1,
               "choices are the enums' members in order");
_Static_assert(sizeof(tap_nms) == sizeof(unsigned), "options.c writes an enum as unsigned");

#define FIELD(name) offsetof(tap_cli_model_settings, name)

const tap_option tap_cli_model_options[] = {
    {"threads", 't', "N", "1 to 256; 0, the default: one for each CPU allowed", TAP_OPTION_U32,
     FIELD(n_threads), 0, 256, NULL},
    {"isa", 0, "NAME",
     "scalar, avx2, avx512, avx512vnni, amx or neon; else\n$TAPETUM_CPU, else the best",
     TAP_OPTION_TEXT, FIELD(isa), 0, 0, NULL},
    {"quiet", 'q', NULL, "no word about weights and licence, no progress bar", TAP_OPTION_ON,
     FIELD(quiet), 0, 0, NULL},
    {.name = NULL}};

const tap_option tap_cli_superpoint_weights[] = {
    {"weights", 'w', "PATH",
     "folder, .safetensors, .pth, .pt or .ckpt; else $SP_WEIGHTS_DIR,\n"
     "else what `tapetum fetch superpoint` brought",
     TAP_OPTION_TEXT, FIELD(weights), 0, 0, NULL},
    {.name = NULL}};

const tap_option tap_cli_hamer_weights[] = {
    {"weights", 'w', "PATH",
     "hamer.ckpt, its folder, or .safetensors; else\n"
     "$HAMER_WEIGHTS_DIR, else what `tapetum fetch hamer` brought",
     TAP_OPTION_TEXT, FIELD(weights), 0, 0, NULL},
    {"precision", 0, "HOW", "f32 (default), f16 (stored) or int8", TAP_OPTION_CHOICE,
     FIELD(precision), 0, 0, tap_cli_precisions},
    {.name = NULL}};

const tap_option tap_cli_mano_options[] = {
    {"mano", 0, "FILE",
     "MANO_RIGHT.pkl or .npz, for a mesh; `none`; else $TAPETUM_MANO,\n"
     "else the caches' (docs/hamer.md)",
     TAP_OPTION_TEXT, FIELD(mano), 0, 0, NULL},
    {.name = NULL}};

#undef FIELD
#define FIELD(name) offsetof(tap_cli_points_settings, name)

const tap_option tap_cli_points_options[] = {
    {"size", 's', "WxH",
     "the network's input, multiples of 8 (640x480); or `native`: the\n"
     "picture's own size, cut down to multiples of 8",
     TAP_OPTION_TEXT, FIELD(input_size), 0, 0, NULL},
    {"max-keypoints", 'k', "N", "the best N points (1024); -1: all", TAP_OPTION_I32,
     FIELD(options.max_keypoints), -1, INT32_MAX, NULL},
    {"threshold", 0, "S", "points that score more than S, 0 to 1 (0.005)", TAP_OPTION_F32,
     FIELD(options.keypoint_threshold), 0, 1, NULL},
    {"nms-radius", 0, "R", "no two points within R network pixels, 0 to 32 (4)", TAP_OPTION_U32,
     FIELD(options.nms_radius), 0, 32, NULL},
    {"nms", 0, "HOW", "single (default): one pass; iterative: as Hugging Face's", TAP_OPTION_CHOICE,
     FIELD(options.nms), 0, 0, nms},
    {"gray", 0, "HOW", "what of a colour picture: first (default: red) or luma", TAP_OPTION_CHOICE,
     FIELD(options.gray), 0, 0, gray},
    {"exif", 0, "HOW", "ignore (default): pixels as stored; apply: upright first",
     TAP_OPTION_CHOICE, FIELD(options.exif), 0, 0, exif},
    {"coordinates", 0, "HOW", "ratio (default): x * W / w; centres: of pixels", TAP_OPTION_CHOICE,
     FIELD(options.coordinates), 0, 0, coordinates},
    {"max-pixels", 0, "N", "refuse larger pictures (64000000)", TAP_OPTION_U64,
     FIELD(options.max_pixels), 1, 4294967295.0, NULL},
    {.name = NULL}};

bool tap_cli_show_progress(void *user, const char *what, uint64_t done, uint64_t total)
{
    tap_progress *progress = user;
    progress->total = total;
    tap_progress_show(progress, done, what);
    return true;
}

static tap_status load(tap_cli_model *model, const tap_cli_kind *kind,
                       const tap_cli_model_settings *settings, tap_error *err)
{
    char *path;
    tap_progress progress;
    tap_model_options options;
    tap_model_options_init(&options);
    options.kind = kind->name;
    options.skip_gate = settings->skip_gate;
    options.progress = tap_cli_show_progress;
    options.progress_user = &progress;
    if (kind == &tap_cli_hamer) {
        options.precision = tap_cli_precisions[settings->precision];
        options.mano = settings->mano;
        if (settings->mano != NULL && strcmp(settings->mano, "none") == 0)
            options.mano = "";
    }
    TAP_TRY(tap_cli_find_weights(&path, kind, settings->weights, err));
    tap_progress_begin(&progress, 0, !settings->quiet);
    tap_status status = tap_model_load(&model->model, model->engine, path, &options, err);
    tap_progress_clear(&progress);
    free(path);
    TAP_TRY(status);
    return tap_session_create(&model->session, model->model, err);
}

static void say_what_was_loaded(const tap_cli_model *model, const tap_cli_kind *kind,
                                const tap_cli_model_settings *settings)
{
    tap_model_info info = {.size = sizeof info};
    if (settings->quiet || tap_model_describe(model->model, &info) != TAP_OK)
        return;
    bool hamer = kind == &tap_cli_hamer;
    const char *remark = !hamer && !info.has_descriptors ? "; a detector, no descriptors" : "";
    fprintf(stderr, "weights: %s (%s%s). %s\n", info.path, info.format, remark, info.licence);
    if (info.mano_available)
        fprintf(stderr, "MANO: %s. %s\n", info.mano_path, info.mano_licence);
    else if (hamer && settings->mano == NULL)
        fprintf(stderr, "MANO: none found, so hands have no mesh and no joints: give --mano "
                        "MANO_RIGHT.pkl, or see docs/hamer.md\n");
}

int tap_cli_open(tap_cli_model *model, const tap_cli_kind *kind,
                 const tap_cli_model_settings *settings)
{
    tap_error err;
    tap_engine_options options;
    *model = (tap_cli_model){0};
    tap_engine_options_init(&options);
    options.isa = settings->isa;
    options.n_threads = settings->n_threads;
    tap_status opened = tap_engine_open(&model->engine, &options, &err);
    if (opened != TAP_OK) {
        tap_cli_complain("%s", err.message);
        return opened == TAP_ERR_ARGUMENT || opened == TAP_ERR_UNSUPPORTED ? TAP_EXIT_USAGE
                                                                           : TAP_EXIT_FAILED;
    }
    if (load(model, kind, settings, &err) != TAP_OK) {
        tap_cli_complain("%s", err.message);
        tap_cli_close(model);
        return TAP_EXIT_WEIGHTS;
    }
    say_what_was_loaded(model, kind, settings);
    return -1;
}

void tap_cli_close(tap_cli_model *model)
{
    tap_session_free(model->session);
    tap_model_release(model->model);
    tap_engine_release(model->engine);
    *model = (tap_cli_model){0};
}

void tap_cli_points_init(tap_cli_points_settings *settings)
{
    *settings = (tap_cli_points_settings){0};
    tap_superpoint_options_init(&settings->options);
}

/* A side in pixels, up to the character stop; *rest is that character. */
static bool read_side(const char *text, char stop, uint32_t *side, const char **rest)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 5 || text[digits] != stop)
        return false;
    *side = (uint32_t)strtoul(text, NULL, 10);
    *rest = text + digits;
    return *side >= 8 && *side <= 8192 && *side % 8 == 0;
}

tap_status tap_cli_read_size(const char *text, uint32_t *width, uint32_t *height, bool *native,
                             tap_error *err)
{
    const char *rest;
    *native = strcmp(text, "native") == 0;
    if (*native || (read_side(text, 'x', width, &rest) && read_side(rest + 1, '\0', height, &rest)))
        return TAP_OK;
    return tap_fail(err, TAP_ERR_ARGUMENT,
                    "--size: '%s' is no WIDTHxHEIGHT of multiples of 8 from 8 to 8192, nor "
                    "'native'",
                    text);
}

tap_status tap_cli_points_finish(tap_cli_points_settings *settings, tap_error *err)
{
    tap_superpoint_options *options = &settings->options;
    if (settings->input_size == NULL)
        return TAP_OK;
    return tap_cli_read_size(settings->input_size, &options->width, &options->height,
                             &options->native, err);
}
