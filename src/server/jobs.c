#include "jobs.h"
#include "answer.h"

#include "core/core.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    DEFAULT_PIXELS = 640 * 480,
    KEEP_PIXELS = 4 * DEFAULT_PIXELS, /* a session that ran more is renewed: its memory goes back */
    KEEP_POINTS = 8192,               /* so is a result that held more */
    CLIENT_GONE = 499
};

static const char shutting_down[] = "shutting down; ask another server";

struct tap_jobs {
    const tap_server_options *options;
    const tap_log *log;
    tap_metrics *metrics;
    int wake;
    double start_ms;
    pthread_t decoder, runner;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    tap_state state;
    tap_job *first, *last; /* waiting, in order of arrival */
    tap_job *ready;        /* decoded, next to run */
    size_t n_waiting;      /* in the list, being decoded, or ready */
    size_t n_in_flight;    /* n_waiting and the one running */
    bool runner_done;
    tap_error error;
    tap_served served;

    /* The runner's own. */
    tap_engine *engine;
    tap_model *model;
    tap_session *session;
    tap_keypoints *keypoints[2];
};

/* ---- answers to failures --------------------------------------------------------------------- */

unsigned tap_answer_code(tap_status status)
{
    switch (status) {
    case TAP_ERR_ARGUMENT:
    case TAP_ERR_FORMAT:
    case TAP_ERR_LIMIT:
    case TAP_ERR_UNSUPPORTED:
        return 400;
    case TAP_ERR_CANCELLED:
        return 503;
    default:
        return 500;
    }
}

void tap_answer_fail(tap_answer *answer, unsigned code, const char *words)
{
    tap_text text = {0};
    tap_answer_detail(&text, words);
    *answer = (tap_answer){.code = code, .retry = code == 503};
    if (tap_text_take(&text, &answer->body, &answer->size, NULL) != TAP_OK)
        answer->body = NULL;
}

void tap_answer_error(tap_answer *answer, const tap_error *err)
{
    char words[sizeof err->message + 32];
    unsigned code = tap_answer_code(err->status);
    const char *kind = err->status == TAP_ERR_MEMORY   ? "MemoryError"
                       : err->status == TAP_ERR_DEVICE ? "DeviceError"
                       : err->status == TAP_ERR_IO     ? "OSError"
                                                       : "InternalError";
    if (code == 500)
        snprintf(words, sizeof words, "%s: %s", kind, err->message);
    else
        snprintf(words, sizeof words, "%s", err->message);
    tap_answer_fail(answer, code, words);
}

/* ---- the queue ------------------------------------------------------------------------------- */

static void signal_wake(const tap_jobs *jobs)
{
    uint64_t one = 1;
    ssize_t written = write(jobs->wake, &one, sizeof one);
    (void)written; /* full means that the reader has not seen an earlier one: it will */
}

/* The client has closed its connection, or its sending half: then too nobody waits, as HTTP servers
 * commonly read it (docs/server.md). */
static bool client_gone(const tap_job *job)
{
    struct pollfd fd = {.fd = job->socket, .events = POLLRDHUP};
    return job->socket >= 0 && poll(&fd, 1, 0) > 0 &&
           (fd.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

static void free_pictures(tap_job *job)
{
    for (size_t i = 0; i < job->n_pictures; i++) {
        tap_picture_free(job->decoded[i]);
        job->decoded[i] = NULL;
    }
}

/* Hands the job back. waiting: it had not begun to run. */
static void finish(tap_jobs *jobs, tap_job *job, bool waiting)
{
    free_pictures(job);
    /* The job counts as in flight until its owner has the answer, so that a drain waits for it. */
    job->done(job);
    pthread_mutex_lock(&jobs->mutex);
    jobs->n_waiting -= waiting;
    jobs->n_in_flight--;
    bool idle = jobs->n_in_flight == 0;
    pthread_mutex_unlock(&jobs->mutex);
    if (idle)
        signal_wake(jobs);
}

static void drop(tap_jobs *jobs, tap_job *job, bool waiting)
{
    tap_metrics_dropped(jobs->metrics);
    tap_answer_fail(&job->answer, CLIENT_GONE, "the client has left");
    finish(jobs, job, waiting);
}

tap_submit tap_jobs_submit(tap_jobs *jobs, tap_job *job)
{
    tap_submit result = TAP_SUBMITTED;
    pthread_mutex_lock(&jobs->mutex);
    if (jobs->state == TAP_STATE_STARTING || jobs->state == TAP_STATE_FAILED)
        result = TAP_SUBMIT_STARTING;
    else if (jobs->state == TAP_STATE_DRAINING)
        result = TAP_SUBMIT_DRAINING;
    else if (jobs->n_waiting >= jobs->options->queue_length)
        result = TAP_SUBMIT_FULL;
    if (result == TAP_SUBMITTED) {
        job->next = NULL;
        job->since_ms = tap_clock_ms();
        if (jobs->last != NULL)
            jobs->last->next = job;
        else
            jobs->first = job;
        jobs->last = job;
        jobs->n_waiting++;
        jobs->n_in_flight++;
        pthread_cond_broadcast(&jobs->changed);
    }
    pthread_mutex_unlock(&jobs->mutex);
    if (result == TAP_SUBMIT_FULL)
        tap_metrics_rejected(jobs->metrics);
    return result;
}

/* The next of the list, once the place for a decoded one is free; NULL when draining. */
static tap_job *take_waiting(tap_jobs *jobs)
{
    pthread_mutex_lock(&jobs->mutex);
    while (jobs->state != TAP_STATE_DRAINING && (jobs->first == NULL || jobs->ready != NULL))
        pthread_cond_wait(&jobs->changed, &jobs->mutex);
    tap_job *job = jobs->state == TAP_STATE_DRAINING ? NULL : jobs->first;
    if (job != NULL) {
        jobs->first = job->next;
        if (jobs->first == NULL)
            jobs->last = NULL;
    }
    pthread_mutex_unlock(&jobs->mutex);
    return job;
}

static tap_job *take_ready(tap_jobs *jobs)
{
    pthread_mutex_lock(&jobs->mutex);
    while (jobs->state != TAP_STATE_DRAINING && jobs->ready == NULL)
        pthread_cond_wait(&jobs->changed, &jobs->mutex);
    tap_job *job = jobs->ready;
    jobs->ready = NULL;
    jobs->n_waiting -= job != NULL;
    pthread_cond_broadcast(&jobs->changed);
    pthread_mutex_unlock(&jobs->mutex);
    return job;
}

/* ---- decoding -------------------------------------------------------------------------------- */

/* The network's input for this picture is within the server's limit. */
static tap_status check_input(const tap_jobs *jobs, const tap_job *job, const tap_image *image,
                              tap_error *err)
{
    uint64_t pixels = (uint64_t)image->width * image->height;
    if (job->wish.superpoint.native && pixels > jobs->options->max_input_pixels)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "size: the picture's native size, %ux%u, is more than this server's %llu "
                        "pixels; give a size",
                        image->width, image->height,
                        (unsigned long long)jobs->options->max_input_pixels);
    return TAP_OK;
}

static tap_status decode(tap_jobs *jobs, tap_job *job, tap_error *err)
{
    tap_decode_options options;
    tap_decode_options_init(&options);
    options.exif = job->wish.superpoint.exif;
    options.max_pixels = jobs->options->max_pixels;
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
        TAP_TRY(check_input(jobs, job, &view, err));
    }
    return TAP_OK;
}

/* To the runner; false when draining, since the runner may have ended. */
static bool hand_over(tap_jobs *jobs, tap_job *job)
{
    pthread_mutex_lock(&jobs->mutex);
    bool goes_on = jobs->state != TAP_STATE_DRAINING;
    if (goes_on)
        jobs->ready = job;
    pthread_cond_broadcast(&jobs->changed);
    pthread_mutex_unlock(&jobs->mutex);
    return goes_on;
}

static void *decoder_main(void *argument)
{
    tap_jobs *jobs = argument;
    for (tap_job *job; (job = take_waiting(jobs)) != NULL;) {
        double start = tap_clock_ms();
        tap_error err = {0};
        job->queue_ms = start - job->since_ms;
        if (client_gone(job)) {
            drop(jobs, job, true);
            continue;
        }
        tap_status status = decode(jobs, job, &err);
        job->since_ms = tap_clock_ms();
        job->decode_ms = job->since_ms - start;
        tap_metrics_stage(jobs->metrics, TAP_STAGE_DECODE, job->decode_ms);
        if (status != TAP_OK) {
            tap_answer_error(&job->answer, &err);
            finish(jobs, job, true);
            continue;
        }
        if (!hand_over(jobs, job)) {
            tap_answer_fail(&job->answer, 503, shutting_down);
            finish(jobs, job, true);
        }
    }
    return NULL;
}

/* ---- running --------------------------------------------------------------------------------- */

/* One picture through the network; views[i] is complete, its times included. */
static tap_status detect(tap_jobs *jobs, tap_job *job, size_t i, tap_keypoints_view *view,
                         tap_error *err)
{
    tap_superpoint_options options = job->wish.superpoint;
    size_t most = tap_answer_max_points(jobs->options->max_answer_bytes, options.descriptors,
                                        jobs->served.model.descriptor_dim, job->npz);
    /* One more than fits is enough to know that the answer would not. */
    if (options.max_keypoints < 0 || (size_t)options.max_keypoints > most)
        options.max_keypoints = (int32_t)(most + 1);
    tap_image image = tap_picture_view(job->decoded[i]);
    TAP_TRY(tap_superpoint_pixels(jobs->session, &image, &options, jobs->keypoints[i], err));
    *view = (tap_keypoints_view){.size = sizeof *view};
    if (tap_keypoints_get(jobs->keypoints[i], view) != TAP_OK)
        return tap_fail(err, TAP_ERR_INTERNAL, "the result cannot be read");
    if (view->count > most)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "max_keypoints: the answer would have over %zu points and %zu bytes; ask "
                        "for fewer, raise keypoint_threshold, or leave out the descriptors",
                        most, jobs->options->max_answer_bytes);
    view->exif_orientation = tap_picture_orientation(job->decoded[i]);
    view->exif_applied = options.exif == TAP_EXIF_APPLY && view->exif_orientation != 1;
    /* Reading the request and decoding happened elsewhere, for all pictures at once. */
    view->decode_ms = i == 0 ? job->parse_ms + job->decode_ms : 0;
    view->total_ms += view->decode_ms;
    tap_metrics_stage(jobs->metrics, TAP_STAGE_PREPROCESS, view->preprocess_ms);
    tap_metrics_stage(jobs->metrics, TAP_STAGE_FORWARD, view->forward_ms);
    tap_metrics_stage(jobs->metrics, TAP_STAGE_POSTPROCESS, view->postprocess_ms);
    tap_metrics_keypoints(jobs->metrics, view->count);
    return TAP_OK;
}

static tap_status answer_points(tap_jobs *jobs, tap_job *job, const tap_keypoints_view *view,
                                tap_error *err)
{
    uint8_t *npz = NULL;
    size_t n_npz = 0;
    tap_answer *answer = &job->answer;
    unsigned fields = job->npz ? TAP_NPZ_KEYPOINTS | TAP_NPZ_SCORES : 0;
    if (view->descriptor_dim > 0)
        fields |= TAP_NPZ_DESCRIPTORS | TAP_NPZ_HALF;
    if (fields != 0)
        TAP_TRY(tap_keypoints_npz(jobs->keypoints[0], fields, &npz, &n_npz, err));
    if (job->npz) {
        *answer = (tap_answer){.code = 200,
                               .body = (char *)npz, /* tap_free is free */
                               .size = n_npz,
                               .type = "application/x-npz"};
        return TAP_OK;
    }
    tap_text text = {0};
    tap_status status = tap_answer_points(&text, NULL, view, &job->wish.superpoint, npz, n_npz,
                                          &jobs->served.engine, err);
    tap_free(npz);
    if (status == TAP_OK)
        status = tap_text_take(&text, &answer->body, &answer->size, err);
    tap_text_free(&text);
    answer->code = 200;
    return status;
}

static tap_status answer_match(tap_jobs *jobs, tap_job *job, const tap_keypoints_view views[2],
                               tap_error *err)
{
    const tap_keypoints_view *a = &views[0], *b = &views[1];
    size_t n_pairs = 0, room = a->count < b->count ? a->count : b->count;
    tap_match_pair *pairs = tap_alloc(room, sizeof *pairs);
    if (pairs == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for %zu matches", room);
    double start = tap_clock_ms();
    tap_status status = tap_match(jobs->engine, a->descriptors, a->count, b->descriptors, b->count,
                                  a->descriptor_dim, &job->wish.match, pairs, &n_pairs, err);
    double match_ms = tap_clock_ms() - start;
    tap_text text = {0};
    if (status == TAP_OK)
        status = tap_answer_match(&text, views, &job->wish.superpoint, &job->wish.match, pairs,
                                  n_pairs, match_ms, &jobs->served.engine, err);
    if (status == TAP_OK)
        status = tap_text_take(&text, &job->answer.body, &job->answer.size, err);
    tap_text_free(&text);
    free(pairs);
    job->answer.code = 200;
    return status;
}

static tap_status run(tap_jobs *jobs, tap_job *job, tap_keypoints_view views[2], tap_error *err)
{
    for (size_t i = 0; i < job->n_pictures; i++)
        TAP_TRY(detect(jobs, job, i, &views[i], err));
    free_pictures(job);
    double start = tap_clock_ms();
    tap_status status = job->n_pictures == 1 ? answer_points(jobs, job, &views[0], err)
                                             : answer_match(jobs, job, views, err);
    tap_metrics_stage(jobs->metrics, TAP_STAGE_ENCODE, tap_clock_ms() - start);
    return status;
}

/* Gives back the memory of an unusually large request. */
static tap_status renew(tap_jobs *jobs, const tap_keypoints_view views[2], tap_error *err)
{
    uint64_t pixels = 0;
    for (size_t i = 0; i < 2; i++) {
        uint64_t own = (uint64_t)views[i].input_width * views[i].input_height;
        pixels = own > pixels ? own : pixels;
        if (views[i].count > KEEP_POINTS) {
            tap_keypoints_free(jobs->keypoints[i]);
            jobs->keypoints[i] = NULL;
            TAP_TRY(tap_keypoints_create(&jobs->keypoints[i], err));
        }
    }
    if (pixels > KEEP_PIXELS) {
        tap_session_free(jobs->session);
        jobs->session = NULL;
        TAP_TRY(tap_session_create(&jobs->session, jobs->model, err));
    }
    return TAP_OK;
}

static void run_job(tap_jobs *jobs, tap_job *job)
{
    tap_error err = {0};
    tap_keypoints_view views[2] = {{0}};
    if (client_gone(job)) {
        drop(jobs, job, false);
        return;
    }
    job->queue_ms += tap_clock_ms() - job->since_ms;
    tap_metrics_stage(jobs->metrics, TAP_STAGE_PARSE, job->parse_ms);
    tap_metrics_stage(jobs->metrics, TAP_STAGE_QUEUE, job->queue_ms);
    tap_status status = run(jobs, job, views, &err);
    if (status != TAP_OK) {
        tap_answer_error(&job->answer, &err);
        if (job->answer.code == 500)
            tap_log_line(jobs->log, TAP_LOG_WARNING, "a request failed: %s", err.message);
    }
    finish(jobs, job, false);
    if (renew(jobs, views, &err) != TAP_OK)
        tap_log_line(jobs->log, TAP_LOG_WARNING, "%s", err.message);
}

/* ---- starting -------------------------------------------------------------------------------- */

static void log_engine(void *user, tap_log_level level, const char *message)
{
    tap_log_line(user, level, "%s", message);
}

/* A zero picture through the network. */
static tap_status warm_up(tap_jobs *jobs, uint32_t width, uint32_t height, bool descriptors,
                          tap_error *err)
{
    if (tap_jobs_state(jobs) == TAP_STATE_DRAINING)
        return tap_fail(err, TAP_ERR_CANCELLED, "stopped while starting");
    tap_superpoint_options options;
    tap_superpoint_options_init(&options);
    options.width = width;
    options.height = height;
    options.descriptors = descriptors;
    uint8_t *zeros = calloc(height, width);
    if (zeros == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for the warm-up");
    tap_image image = {.data = zeros, .width = width, .height = height, .format = TAP_PIXELS_GRAY};
    tap_status status =
        tap_superpoint_pixels(jobs->session, &image, &options, jobs->keypoints[0], err);
    free(zeros);
    return status;
}

static tap_status load(tap_jobs *jobs, tap_served *served, tap_error *err)
{
    const tap_server_options *options = jobs->options;
    tap_engine_options engine;
    tap_engine_options_init(&engine);
    engine.backend = options->backend;
    engine.isa = options->isa;
    engine.n_threads = options->n_threads;
    engine.log = log_engine;
    engine.log_user = (void *)jobs->log;
    served->engine.size = sizeof served->engine;
    served->model.size = sizeof served->model;
    tap_log_line(jobs->log, TAP_LOG_INFO, "Opening device %u", options->device_id);
    TAP_TRY(tap_engine_open(&jobs->engine, &engine, err));
    TAP_TRY(tap_engine_describe(jobs->engine, &served->engine));
    tap_log_line(jobs->log, TAP_LOG_INFO, "Device %u is open: %s %s (%s), %u threads (%s)",
                 options->device_id, served->engine.backend, served->engine.isa,
                 served->engine.isa_reason, served->engine.n_threads,
                 served->engine.threads_reason);
    tap_log_line(jobs->log, TAP_LOG_INFO, "Loading weights from %s", options->weights);
    TAP_TRY(tap_model_load(&jobs->model, jobs->engine, options->weights, NULL, err));
    TAP_TRY(tap_model_describe(jobs->model, &served->model));
    tap_log_line(jobs->log, TAP_LOG_INFO, "Weights loaded in %.0f ms; licence: %s",
                 served->model.load_ms, served->model.licence);
    TAP_TRY(tap_session_create(&jobs->session, jobs->model, err));
    for (size_t i = 0; i < 2; i++)
        TAP_TRY(tap_keypoints_create(&jobs->keypoints[i], err));
    tap_log_line(jobs->log, TAP_LOG_INFO, "Warming up");
    double start = tap_clock_ms();
    /* Two runs, as the contract has it. The first is small, because it only has to wake threads
     * and fault code in, and start to ready should take under 0.3 s; the second, at the default
     * size, leaves the session's memory and program as the first request wants them. */
    TAP_TRY(warm_up(jobs, 64, 64, served->model.has_descriptors, err));
    TAP_TRY(warm_up(jobs, 640, 480, served->model.has_descriptors, err));
    served->warmup_ms = tap_clock_ms() - start;
    served->ready_ms = tap_clock_ms() - jobs->start_ms;
    served->loaded = true;
    tap_log_line(jobs->log, TAP_LOG_INFO, "Warmup complete in %.0f ms", served->warmup_ms);
    return TAP_OK;
}

static void unload(tap_jobs *jobs)
{
    for (size_t i = 0; i < 2; i++)
        tap_keypoints_free(jobs->keypoints[i]);
    tap_session_free(jobs->session);
    tap_model_release(jobs->model);
    tap_engine_release(jobs->engine);
}

/* Loads, and makes the outcome known. */
static bool become_ready(tap_jobs *jobs)
{
    tap_served served = {0};
    tap_error err = {0};
    tap_status status = load(jobs, &served, &err);
    pthread_mutex_lock(&jobs->mutex);
    if (status == TAP_OK)
        jobs->served = served;
    else
        jobs->error = err;
    if (jobs->state == TAP_STATE_STARTING)
        jobs->state = status == TAP_OK ? TAP_STATE_READY : TAP_STATE_FAILED;
    bool ready = jobs->state == TAP_STATE_READY;
    pthread_mutex_unlock(&jobs->mutex);
    if (ready)
        tap_log_line(jobs->log, TAP_LOG_INFO, "Application startup complete");
    signal_wake(jobs);
    return status == TAP_OK;
}

static void *runner_main(void *argument)
{
    tap_jobs *jobs = argument;
    if (become_ready(jobs))
        for (tap_job *job; (job = take_ready(jobs)) != NULL;)
            run_job(jobs, job);
    pthread_mutex_lock(&jobs->mutex);
    jobs->runner_done = true;
    pthread_mutex_unlock(&jobs->mutex);
    signal_wake(jobs);
    return NULL;
}

tap_status tap_jobs_start(tap_jobs **out, const tap_server_options *options, const tap_log *log,
                          tap_metrics *metrics, int wake, tap_error *err)
{
    tap_jobs *jobs = *out = calloc(1, sizeof *jobs);
    if (jobs == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for the server");
    jobs->options = options;
    jobs->log = log;
    jobs->metrics = metrics;
    jobs->wake = wake;
    jobs->start_ms = tap_clock_ms();
    pthread_mutex_init(&jobs->mutex, NULL);
    pthread_cond_init(&jobs->changed, NULL);
    int error = pthread_create(&jobs->decoder, NULL, decoder_main, jobs);
    if (error == 0 && (error = pthread_create(&jobs->runner, NULL, runner_main, jobs)) != 0) {
        tap_jobs_drain(jobs);
        pthread_join(jobs->decoder, NULL);
    }
    if (error == 0)
        return TAP_OK;
    pthread_cond_destroy(&jobs->changed);
    pthread_mutex_destroy(&jobs->mutex);
    free(jobs);
    *out = NULL;
    return tap_fail_errno(err, "server", "starting a thread", error);
}

/* ---- state and end --------------------------------------------------------------------------- */

tap_state tap_jobs_state(tap_jobs *jobs)
{
    pthread_mutex_lock(&jobs->mutex);
    tap_state state = jobs->state;
    pthread_mutex_unlock(&jobs->mutex);
    return state;
}

void tap_jobs_count(tap_jobs *jobs, size_t *waiting, size_t *in_flight)
{
    pthread_mutex_lock(&jobs->mutex);
    *waiting = jobs->n_waiting;
    *in_flight = jobs->n_in_flight;
    pthread_mutex_unlock(&jobs->mutex);
}

void tap_jobs_served(tap_jobs *jobs, tap_served *served)
{
    pthread_mutex_lock(&jobs->mutex);
    *served = jobs->served;
    pthread_mutex_unlock(&jobs->mutex);
}

void tap_jobs_error(tap_jobs *jobs, tap_error *err)
{
    pthread_mutex_lock(&jobs->mutex);
    if (err != NULL)
        *err = jobs->error;
    pthread_mutex_unlock(&jobs->mutex);
}

void tap_jobs_drain(tap_jobs *jobs)
{
    pthread_mutex_lock(&jobs->mutex);
    jobs->state = TAP_STATE_DRAINING;
    tap_job *job = jobs->first;
    jobs->first = jobs->last = NULL;
    pthread_cond_broadcast(&jobs->changed);
    pthread_mutex_unlock(&jobs->mutex);
    while (job != NULL) {
        tap_job *next = job->next;
        tap_answer_fail(&job->answer, 503, shutting_down);
        finish(jobs, job, true);
        job = next;
    }
}

bool tap_jobs_idle(tap_jobs *jobs)
{
    pthread_mutex_lock(&jobs->mutex);
    bool idle = jobs->n_in_flight == 0 && jobs->runner_done;
    pthread_mutex_unlock(&jobs->mutex);
    return idle;
}

void tap_jobs_free(tap_jobs *jobs)
{
    pthread_join(jobs->decoder, NULL);
    pthread_join(jobs->runner, NULL);
    unload(jobs);
    pthread_cond_destroy(&jobs->changed);
    pthread_mutex_destroy(&jobs->mutex);
    free(jobs);
}
