#include "serving.h"

#include "core/core.h"

#include <stdio.h>
#include <stdlib.h>

enum { PROGRESS_MS = 2000 };

size_t tap_server_find(const tap_server_options *options, tap_server_kind kind)
{
    size_t i = 0;
    while (i < options->n_models && options->models[i].kind != kind)
        i++;
    return i;
}

/* ---- pictures -------------------------------------------------------------------------------- */

/* The network's input for this picture is within the server's limit. */
static tap_status check_input(const tap_server_options *options, const tap_job *job,
                              const tap_image *image, tap_error *err)
{
    uint64_t pixels = (uint64_t)image->width * image->height;
    if (job->wish.kind == TAP_SERVER_HAMER)
        return tap_wish_check_picture(&job->wish, image->width, image->height, err);
    if (job->wish.superpoint.native && pixels > options->max_input_pixels)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "size: the picture's native size, %ux%u, is more than this server's %llu "
                        "pixels; give a size",
                        image->width, image->height, (unsigned long long)options->max_input_pixels);
    return TAP_OK;
}

tap_status tap_serving_decode(const tap_server_options *server, tap_job *job, tap_error *err)
{
    tap_decode_options options;
    tap_decode_options_init(&options);
    options.exif = job->wish.kind == TAP_SERVER_HAMER ? job->wish.hands.options.exif
                                                      : job->wish.superpoint.exif;
    options.max_pixels = server->max_pixels;
    for (size_t i = 0; i < job->n_pictures; i++) {
        tap_error own = {0};
        const char *which = job->n_pictures == 1 ? "" : i == 0 ? "image_a: " : "image_b: ";
        const tap_slice *bytes = &job->pictures[i];
        tap_status status =
            tap_picture_decode(&job->decoded[i], bytes->data, bytes->size, &options, &own);
        if (status == TAP_ERR_MEMORY)
            return tap_fail(err, status, "%s%s", which, own.message);
        if (status != TAP_OK)
            return tap_fail(err, status, "bad image: %s%s", which, own.message);
        tap_image view = tap_picture_view(job->decoded[i]);
        TAP_TRY(check_input(server, job, &view, err));
    }
    return TAP_OK;
}

void tap_serving_drop_pictures(tap_job *job)
{
    for (size_t i = 0; i < job->n_pictures; i++) {
        tap_picture_free(job->decoded[i]);
        job->decoded[i] = NULL;
    }
}

/* ---- running --------------------------------------------------------------------------------- */

tap_status tap_serving_run(tap_serving *serving, tap_job *job, tap_error *err)
{
    size_t model = tap_server_find(serving->options, job->wish.kind);
    if (model == serving->options->n_models)
        return tap_fail(err, TAP_ERR_INTERNAL, "a request for a model that is not served");
    return job->wish.kind == TAP_SERVER_HAMER ? tap_serving_hands_run(serving, model, job, err)
                                              : tap_serving_points_run(serving, model, job, err);
}

tap_status tap_serving_renew(tap_serving *serving, tap_error *err)
{
    /* HaMeR's network has one size, and its crops and answers are bounded. */
    size_t model = tap_server_find(serving->options, TAP_SERVER_SUPERPOINT);
    return model < serving->options->n_models ? tap_serving_points_renew(serving, model, err)
                                              : TAP_OK;
}

/* ---- starting -------------------------------------------------------------------------------- */

static void log_engine(void *user, tap_log_level level, const char *message)
{
    tap_log_line(user, level, "%s", message);
}

static tap_status open_engine(tap_serving *serving, tap_error *err)
{
    const tap_server_options *options = serving->options;
    tap_engine_info *info = &serving->served.engine;
    tap_engine_options engine;
    tap_engine_options_init(&engine);
    engine.backend = options->backend;
    engine.isa = options->isa;
    engine.n_threads = options->n_threads;
    engine.log = log_engine;
    engine.log_user = (void *)serving->log;
    info->size = sizeof *info;
    tap_log_line(serving->log, TAP_LOG_INFO, "Opening device %u", options->device_id);
    tap_status status = tap_engine_open(&serving->engine, &engine, err);
    if (status == TAP_ERR_UNSUPPORTED) /* an option asks for what this machine lacks */
        return err->status = TAP_ERR_ARGUMENT;
    TAP_TRY(status);
    TAP_TRY(tap_engine_describe(serving->engine, info));
    tap_log_line(serving->log, TAP_LOG_INFO, "Device %u is open: %s %s (%s), %u threads (%s)",
                 options->device_id, info->backend, info->isa, info->isa_reason, info->n_threads,
                 info->threads_reason);
    return TAP_OK;
}

/* A large model's first load takes a while; who reads the log sees that it goes on. */
struct progress {
    const tap_log *log;
    double shown_ms;
};

static bool log_progress(void *user, const char *what, uint64_t done, uint64_t total)
{
    struct progress *progress = user;
    double now = tap_clock_ms();
    if (now - progress->shown_ms < PROGRESS_MS || total == 0)
        return true;
    progress->shown_ms = now;
    tap_log_line(progress->log, TAP_LOG_INFO, "Loading weights: %s, %.0f %%", what,
                 100.0 * (double)done / (double)total);
    return true;
}

static tap_status load_model(tap_serving *serving, size_t i, tap_error *err)
{
    const tap_server_model *model = &serving->options->models[i];
    tap_model_info *info = &serving->served.models[i].info;
    struct progress progress = {.log = serving->log, .shown_ms = tap_clock_ms()};
    tap_model_options options;
    tap_model_options_init(&options);
    options.kind = model->kind == TAP_SERVER_HAMER ? "hamer" : "superpoint";
    options.precision = model->precision;
    options.mano = model->mano;
    options.cache = model->cache;
    options.progress = log_progress;
    options.progress_user = &progress;
    info->size = sizeof *info;
    tap_log_line(serving->log, TAP_LOG_INFO, "Loading weights from %s", model->weights);
    TAP_TRY(tap_model_load(&serving->models[i], serving->engine, model->weights, &options, err));
    TAP_TRY(tap_model_describe(serving->models[i], info));
    tap_log_line(serving->log, TAP_LOG_INFO, "Weights loaded in %.0f ms; licence: %s",
                 info->load_ms, info->licence);
    if (info->mano_available)
        tap_log_line(serving->log, TAP_LOG_INFO, "MANO loaded from %s; licence: %s",
                     info->mano_path, info->mano_licence);
    else if (model->kind == TAP_SERVER_HAMER)
        tap_log_line(serving->log, TAP_LOG_INFO,
                     "No MANO file: answers have no mesh and no joints (docs/hamer.md)");
    return tap_session_create(&serving->sessions[i], serving->models[i], err);
}

static tap_status start_model(tap_serving *serving, size_t i, tap_error *err)
{
    double start = tap_clock_ms();
    if (serving->options->models[i].kind == TAP_SERVER_HAMER)
        TAP_TRY(tap_serving_hands_start(serving, i, err));
    else
        TAP_TRY(tap_serving_points_start(serving, i, err));
    serving->served.models[i].warmup_ms = tap_clock_ms() - start;
    return TAP_OK;
}

tap_status tap_serving_load(tap_serving *serving, tap_error *err)
{
    size_t n = serving->options->n_models;
    double warmup_ms = 0;
    TAP_TRY(open_engine(serving, err));
    for (size_t i = 0; i < n; i++) {
        if (serving->stopped(serving->context))
            return tap_fail(err, TAP_ERR_CANCELLED, "stopped while starting");
        TAP_TRY(load_model(serving, i, err));
    }
    tap_log_line(serving->log, TAP_LOG_INFO, "Warming up");
    for (size_t i = 0; i < n; i++) {
        TAP_TRY(start_model(serving, i, err));
        warmup_ms += serving->served.models[i].warmup_ms;
    }
    tap_log_line(serving->log, TAP_LOG_INFO, "Warmup complete in %.0f ms", warmup_ms);
    serving->served.loaded = true;
    return TAP_OK;
}

void tap_serving_unload(tap_serving *serving)
{
    for (size_t i = 0; i < 2; i++)
        tap_keypoints_free(serving->keypoints[i]);
    tap_hands_free(serving->hands);
    for (size_t i = 0; i < TAP_SERVER_MODELS; i++) {
        tap_session_free(serving->sessions[i]);
        tap_model_release(serving->models[i]);
    }
    tap_engine_release(serving->engine);
}
