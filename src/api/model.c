#include "api.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_WIDTH = 640,
    DEFAULT_HEIGHT = 480,
    CACHE_FROM_BYTES = 1 << 26 /* smaller files are packed sooner than a cache is looked up */
};

static const char points_licence[] =
    "The published SuperPoint weights (magic-leap-community/superpoint) are licensed by Magic Leap "
    "for academic or non-profit, non-commercial research only. Other weights carry their own "
    "licence.";

static const char hands_licence[] =
    "HaMeR's code is under the MIT licence; the published weights were trained with MANO, which is "
    "for non-commercial scientific research only. Other weights carry their own licence.";

static const char mano_licence[] =
    "MANO is licensed by the Max Planck Society for non-commercial scientific research only, and "
    "must not be passed on: mano.is.tue.mpg.de/license.html.";

void tap_model_options_init(tap_model_options *options)
{
    *options = (tap_model_options){.size = sizeof *options};
}

/* config.json beside the weights, where there is one. */
static tap_status open_config(tap_config **config, const char *weights_file, tap_error *err)
{
    *config = NULL;
    const char *slash = strrchr(weights_file, '/');
    int folder = slash == NULL ? 0 : (int)(slash - weights_file) + 1;
    char *path = NULL;
    if (asprintf(&path, "%.*sconfig.json", folder, weights_file) < 0)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for a path", weights_file);
    tap_error ignored;
    tap_status status = tap_config_open(config, path, &ignored);
    free(path);
    if (status == TAP_OK || status == TAP_ERR_NOT_FOUND)
        return TAP_OK;
    return tap_fail(err, status, "%s", ignored.message);
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool is_hamer(const tap_weights *weights)
{
    for (size_t i = 0; i < tap_weights_count(weights); i++) {
        const char *name = tap_weights_at(weights, i)->name;
        if (strncmp(name, "backbone.", 9) == 0 || strncmp(name, "mano_head.", 10) == 0)
            return true;
    }
    return false;
}

static tap_status read_points(tap_model *model, tap_weights *weights, tap_error *err)
{
    tap_config *config = NULL;
    TAP_TRY(open_config(&config, tap_weights_file(weights), err));
    tap_status status = tap_superpoint_create(&model->superpoint, weights, config, err);
    tap_config_free(config);
    return status;
}

/* A file that training wrote is opened more leniently, so one of an unknown kind is opened twice.
 */
tap_status tap_model_open(tap_weights **weights, bool *hands, const char *path, const char *wanted,
                          tap_error *err)
{
    *hands = false;
    if (wanted != NULL && strcmp(wanted, "superpoint") == 0)
        return tap_weights_open(weights, path, err);
    TAP_TRY(tap_weights_open_checkpoint(weights, path, err));
    *hands = wanted != NULL || is_hamer(*weights);
    if (*hands)
        return TAP_OK;
    tap_weights_close(*weights);
    return tap_weights_open(weights, path, err);
}

tap_status tap_model_check_points(const tap_weights *weights, tap_error *err)
{
    tap_config *config = NULL;
    tap_superpoint *model = NULL;
    TAP_TRY(open_config(&config, tap_weights_file(weights), err));
    tap_status status = tap_superpoint_create(&model, weights, config, err);
    tap_config_free(config);
    tap_superpoint_free(model);
    return status;
}

/* HaMeR's weights: in the cache, or to be read and packed. */
static tap_status read_hands(tap_model *model, const tap_weights *weights,
                             const tap_model_options *options, tap_error *err)
{
    char layout[64];
    const tap_engine *engine = model->engine;
    TAP_TRY(engine->backend->layout(engine->state, model->precision, layout, sizeof layout, err));
    if (options->cache != NULL || tap_weights_bytes(weights) >= CACHE_FROM_BYTES)
        TAP_TRY(tap_cache_open(&model->cache, options->cache, weights, layout, err));
    TAP_TRY(tap_hamer_create(&model->hamer, weights, err));
    return model->cache != NULL && tap_cache_found(model->cache)
               ? TAP_OK
               : tap_hamer_read(model->hamer, err);
}

static tap_status read_network(tap_model *model, const char *path, const tap_model_options *options,
                               tap_error *err)
{
    tap_weights *weights = NULL;
    bool hands;
    TAP_TRY(tap_model_open(&weights, &hands, path, options->kind, err));
    model->kind = hands ? TAP_KIND_HAMER : TAP_KIND_SUPERPOINT;
    if (model->kind != TAP_KIND_HAMER && strcmp(model->precision, "f32") != 0) {
        tap_weights_close(weights);
        return tap_fail(err, TAP_ERR_UNSUPPORTED, "precision '%s': SuperPoint has f32 only",
                        model->precision);
    }
    model->path = strdup(tap_weights_file(weights));
    model->format = tap_weights_format(weights);
    tap_status status = TAP_OK;
    if (model->path == NULL)
        status = tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for its name", path);
    else if (model->kind == TAP_KIND_HAMER)
        status = read_hands(model, weights, options, err);
    else
        status = read_points(model, weights, err);
    if (model->hamer != NULL)
        model->weights = weights;
    else
        tap_weights_close(weights);
    return status;
}

/* The user's MANO file, where there is one. */
static tap_status read_mano(tap_model *model, const char *option, tap_error *err)
{
    if (model->kind != TAP_KIND_HAMER)
        return TAP_OK;
    TAP_TRY(tap_mano_find(&model->mano_path, option, err));
    if (model->mano_path == NULL)
        return TAP_OK;
    return tap_mano_load(&model->mano, model->mano_path, err);
}

static bool tell_packing(void *user, uint64_t done, uint64_t total)
{
    const tap_model_options *options = user;
    return options->progress(options->progress_user, "packing", done, total);
}

static tap_status pack_network(tap_model *model, tap_model_options *options, tap_error *err)
{
    tap_plan *plan = NULL;
    tap_pack_store store;
    tap_compile_options compile = {.precision = model->precision,
                                   .progress = options->progress == NULL ? NULL : tell_packing,
                                   .progress_user = options};
    if (model->cache != NULL) {
        store = tap_cache_store(model->cache);
        compile.store = &store;
    }
    const tap_backend *backend = model->engine->backend;
    if (model->kind == TAP_KIND_HAMER)
        TAP_TRY(tap_hamer_plan(model->hamer, 1, &plan, err));
    else
        TAP_TRY(tap_superpoint_plan(model->superpoint, DEFAULT_WIDTH, DEFAULT_HEIGHT,
                                    tap_superpoint_descriptor_dim(model->superpoint) > 0, &plan,
                                    err));
    tap_status status = backend->compile(model->engine->state, plan, &compile, &model->base, err);
    if (status != TAP_OK && model->cache != NULL && tap_cache_found(model->cache)) {
        /* What lies in the cache is of another program: pack afresh. */
        tap_cache_drop(model->cache);
        status = tap_hamer_read(model->hamer, err);
        if (status == TAP_OK)
            status = backend->compile(model->engine->state, plan, &compile, &model->base, err);
    }
    tap_plan_free(plan);
    if (status == TAP_OK) {
        tap_program_info info;
        backend->inspect(model->base, &info);
        model->packed_bytes = info.packed_bytes;
    }
    return status;
}

static uint64_t n_parameters(const tap_model *model)
{
    return model->kind == TAP_KIND_HAMER ? tap_hamer_parameters(model->hamer)
                                         : tap_superpoint_parameters(model->superpoint);
}

static const char *kind_name(const tap_model *model)
{
    return model->kind == TAP_KIND_HAMER ? "hamer" : "superpoint";
}

static tap_status choose_precision(tap_model *model, const char *wanted, tap_error *err)
{
    static const char *const precisions[] = {"f32", "f16", "int8"};
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++)
        if (strcmp(wanted == NULL ? "f32" : wanted, precisions[i]) == 0) {
            model->precision = precisions[i];
            return TAP_OK;
        }
    return tap_fail(err, TAP_ERR_ARGUMENT, "precision '%s': is not one of f32, f16, int8", wanted);
}

static tap_status read_options(tap_model_options *own, const tap_model_options *options,
                               const char *path, tap_error *err)
{
    tap_model_options_init(own);
    if (!tap_options_read(own, sizeof *own, options))
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "tap_model_options: size is not set; use tap_model_options_init");
    if (path == NULL || path[0] == '\0')
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "path: is empty; name a model's folder or weights file");
    if (own->kind != NULL && strcmp(own->kind, "superpoint") != 0 &&
        strcmp(own->kind, "hamer") != 0)
        return tap_fail(err, TAP_ERR_ARGUMENT, "kind '%s': is not one of superpoint, hamer",
                        own->kind);
    return TAP_OK;
}

tap_status tap_model_load(tap_model **out, tap_engine *engine, const char *path,
                          const tap_model_options *options, tap_error *err)
{
    tap_model_options own;
    *out = NULL;
    TAP_TRY(read_options(&own, options, path, err));
    tap_model *model = calloc(1, sizeof *model);
    if (model == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a model");
    double start = tap_clock_ms();
    atomic_init(&model->references, 1);
    model->engine = tap_engine_retain(engine);
    model->gate_correlation = NAN;
    tap_status status = choose_precision(model, own.precision, err);
    if (status == TAP_OK)
        status = read_network(model, path, &own, err);
    if (status == TAP_OK)
        status = read_mano(model, own.mano, err);
    if (status == TAP_OK)
        status = pack_network(model, &own, err);
    if (status == TAP_OK && !own.skip_gate)
        status = tap_gate_check(model, err);
    if (status != TAP_OK) {
        tap_model_release(model);
        return status;
    }
    if (model->hamer != NULL)
        tap_hamer_forget(model->hamer);
    model->load_ms = tap_clock_ms() - start;
    tap_engine_log(engine, TAP_LOG_INFO, "%s: %s, %llu parameters, gate %.6f, %.0f ms", model->path,
                   kind_name(model), (unsigned long long)n_parameters(model),
                   model->gate_correlation, model->load_ms);
    *out = model;
    return TAP_OK;
}

tap_model *tap_model_retain(tap_model *model)
{
    atomic_fetch_add_explicit(&model->references, 1, memory_order_relaxed);
    return model;
}

void tap_model_release(tap_model *model)
{
    if (model == NULL ||
        atomic_fetch_sub_explicit(&model->references, 1, memory_order_acq_rel) != 1)
        return;
    if (model->base != NULL)
        model->engine->backend->free_program(model->base);
    tap_superpoint_free(model->superpoint);
    tap_hamer_free(model->hamer);
    tap_cache_free(model->cache);
    tap_weights_close(model->weights);
    tap_mano_free(model->mano);
    tap_engine_release(model->engine);
    free(model->mano_path);
    free(model->path);
    free(model);
}

tap_status tap_model_describe(const tap_model *model, tap_model_info *info)
{
    bool hands = model->kind == TAP_KIND_HAMER, mano = model->mano != NULL;
    size_t dim = hands ? 0 : tap_superpoint_descriptor_dim(model->superpoint);
    tap_model_info own = {.size = sizeof own,
                          .kind = kind_name(model),
                          .path = model->path,
                          .format = model->format,
                          .licence = hands ? hands_licence : points_licence,
                          .n_parameters = n_parameters(model),
                          .has_descriptors = dim > 0,
                          .descriptor_dim = (uint32_t)dim,
                          .gate_correlation = model->gate_correlation,
                          .load_ms = model->load_ms,
                          .packed_bytes = model->packed_bytes,
                          .precision = model->precision,
                          .cached = tap_cache_hit(model->cache),
                          .mano_available = mano,
                          .mano_path = mano ? model->mano_path : NULL,
                          .mano_licence = mano ? mano_licence : NULL};
    size_t size = info->size;
    if (size < sizeof size || size > sizeof own)
        return TAP_ERR_ARGUMENT;
    memcpy(info, &own, size);
    info->size = size;
    return TAP_OK;
}

tap_status tap_model_plan(const tap_model *model, uint32_t width, uint32_t height, char **text,
                          tap_error *err)
{
    tap_plan *plan = NULL;
    bool hands = model->kind == TAP_KIND_HAMER;
    *text = NULL;
    if (hands && (width != 0 || height != 0) &&
        (width != TAP_HAMER_WIDTH || height != TAP_HAMER_HEIGHT))
        return tap_fail(err, TAP_ERR_ARGUMENT, "size %ux%u: HaMeR's network has one size, %dx%d",
                        width, height, TAP_HAMER_WIDTH, TAP_HAMER_HEIGHT);
    if (hands)
        TAP_TRY(tap_hamer_plan(model->hamer, 1, &plan, err));
    else
        TAP_TRY(tap_superpoint_plan(model->superpoint, width, height,
                                    tap_superpoint_descriptor_dim(model->superpoint) > 0, &plan,
                                    err));
    tap_status status = tap_plan_print(plan, text, err);
    tap_plan_free(plan);
    return status;
}

tap_status tap_synth_write(const char *kind, const char *path, tap_error *err)
{
    if (kind != NULL && strcmp(kind, "superpoint") == 0)
        return tap_synth_superpoint(path, err);
    if (kind != NULL && strcmp(kind, "hamer") == 0)
        return tap_synth_hamer(path, &tap_hamer_full, err);
    if (kind != NULL && strcmp(kind, "hamer-tiny") == 0)
        return tap_synth_hamer(path, &tap_hamer_tiny, err);
    return tap_fail(err, TAP_ERR_ARGUMENT,
                    "kind '%s': synthetic weights are known for \"superpoint\", \"hamer\" and "
                    "\"hamer-tiny\"",
                    kind == NULL ? "" : kind);
}
