#include "answer.h"
#include "serving.h"

#include "core/core.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CLIENT_GONE = 499 };

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

    tap_serving serving; /* the runner's own */
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

/* Hands the job back. waiting: it had not begun to run. */
static void finish(tap_jobs *jobs, tap_job *job, bool waiting)
{
    tap_serving_drop_pictures(job);
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
        tap_status status = tap_serving_decode(jobs->options, job, &err);
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

static void run_job(tap_jobs *jobs, tap_job *job)
{
    tap_error err = {0};
    if (client_gone(job)) {
        drop(jobs, job, false);
        return;
    }
    job->queue_ms += tap_clock_ms() - job->since_ms;
    tap_metrics_stage(jobs->metrics, TAP_STAGE_PARSE, job->parse_ms);
    tap_metrics_stage(jobs->metrics, TAP_STAGE_QUEUE, job->queue_ms);
    tap_status status = tap_serving_run(&jobs->serving, job, &err);
    if (status != TAP_OK) {
        tap_answer_error(&job->answer, &err);
        if (job->answer.code == 500)
            tap_log_line(jobs->log, TAP_LOG_WARNING, "a request failed: %s", err.message);
    }
    finish(jobs, job, false);
    if (tap_serving_renew(&jobs->serving, &err) != TAP_OK)
        tap_log_line(jobs->log, TAP_LOG_WARNING, "%s", err.message);
}

/* ---- starting -------------------------------------------------------------------------------- */

static bool stopped(void *jobs)
{
    return tap_jobs_state(jobs) == TAP_STATE_DRAINING;
}

/* Loads, and makes the outcome known. */
static bool become_ready(tap_jobs *jobs)
{
    tap_error err = {0};
    tap_status status = tap_serving_load(&jobs->serving, &err);
    jobs->serving.served.ready_ms = tap_clock_ms() - jobs->start_ms;
    pthread_mutex_lock(&jobs->mutex);
    if (status == TAP_OK)
        jobs->served = jobs->serving.served;
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
    jobs->serving = (tap_serving){
        .options = options, .log = log, .metrics = metrics, .stopped = stopped, .context = jobs};
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
    tap_serving_unload(&jobs->serving);
    pthread_cond_destroy(&jobs->changed);
    pthread_mutex_destroy(&jobs->mutex);
    free(jobs);
}
