/* Weights found, engine opened, model loaded: what the verbs that run SuperPoint share. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char default_repo[] = "magic-leap-community/superpoint";
static const char default_revision[] = "734450e9ffe229074f5998494ddc615475cdb20a";

const char *const tap_cli_weights_files[2] = {"config.json", "model.safetensors"};

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
    {"weights", 'w', "PATH",
     "folder, .safetensors, .pth, .pt or .ckpt; else $SP_WEIGHTS_DIR,\n"
     "else what `tapetum fetch superpoint` brought",
     TAP_OPTION_TEXT, FIELD(weights), 0, 0, NULL},
    {"threads", 't', "N", "1 to 256; 0, the default: one for each CPU allowed", TAP_OPTION_U32,
     FIELD(n_threads), 0, 256, NULL},
    {"isa", 0, "NAME", "scalar, avx2, avx512 or neon; else $TAPETUM_CPU, else the best",
     TAP_OPTION_TEXT, FIELD(isa), 0, 0, NULL},
    {"quiet", 'q', NULL, "no word about weights and licence, no progress bar", TAP_OPTION_ON,
     FIELD(quiet), 0, 0, NULL},
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

static const char *environment(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : otherwise;
}

tap_hub_repo tap_cli_repo(void)
{
    const char *id = environment("HF_MODEL", default_repo);
    /* Another repository has no such commit. */
    const char *otherwise = strcmp(id, default_repo) == 0 ? default_revision : "main";
    return (tap_hub_repo){.id = id, .revision = environment("TT_WEIGHTS_REVISION", otherwise)};
}

tap_status tap_cli_find_weights(char **path, const char *given, tap_error *err)
{
    const char *chosen = given != NULL ? given : environment("SP_WEIGHTS_DIR", NULL);
    tap_hub_repo repo = tap_cli_repo();
    *path = NULL;
    if (chosen != NULL) {
        *path = strdup(chosen);
        return *path != NULL ? TAP_OK : tap_fail(err, TAP_ERR_MEMORY, "out of memory for a path");
    }
    tap_error reason;
    tap_status status = tap_hub_find(path, NULL, &repo, tap_cli_weights_files, 2, &reason);
    if (status == TAP_ERR_NOT_FOUND)
        return tap_fail(err, status,
                        "weights: neither --weights nor $SP_WEIGHTS_DIR is given, and the cache "
                        "has none of %s: type 'tapetum fetch superpoint' once (academic or "
                        "non-profit, non-commercial research only), or give --weights PATH",
                        repo.id);
    return status == TAP_OK ? TAP_OK : tap_fail(err, status, "weights: %s", reason.message);
}

int tap_cli_open(tap_cli_model *model, const tap_cli_model_settings *settings)
{
    tap_error err;
    char *path;
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
    tap_status status = tap_cli_find_weights(&path, settings->weights, &err);
    if (status == TAP_OK)
        status = tap_model_load(&model->model, model->engine, path, NULL, &err);
    if (status == TAP_OK)
        status = tap_session_create(&model->session, model->model, &err);
    free(path);
    if (status != TAP_OK) {
        tap_cli_complain("%s", err.message);
        tap_cli_close(model);
        return TAP_EXIT_WEIGHTS;
    }
    tap_model_info info = {.size = sizeof info};
    if (!settings->quiet && tap_model_describe(model->model, &info) == TAP_OK)
        fprintf(stderr, "weights: %s (%s%s). %s\n", info.path, info.format,
                info.has_descriptors ? "" : "; a detector, no descriptors", info.licence);
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
