/* Jobs: from a request that has been read to its answer. Two threads: one decodes pictures, one
 * step ahead, so that at most three requests' pixels are in memory; one owns engine, models and
 * sessions, and runs the networks, one request at a time. Between them and the HTTP threads a
 * bounded queue. Private to the server. */
#ifndef TAP_SERVER_JOBS_H
#define TAP_SERVER_JOBS_H

#include "log.h"
#include "metrics.h"
#include "request.h"
#include "server.h"

typedef struct tap_jobs tap_jobs;

typedef struct tap_answer {
    unsigned code;
    char *body; /* from malloc */
    size_t size;
    const char *type; /* Content-Type; NULL: application/json */
    bool retry;       /* send Retry-After */
} tap_answer;

typedef struct tap_job {
    /* The request. pictures lie in memory that the owner keeps until done is called. */
    tap_wish wish; /* its kind is one that is served */
    tap_slice pictures[2];
    size_t n_pictures; /* 1: /predict; 2: /match */
    bool npz;          /* the answer as application/x-npz */
    int socket;        /* to see whether the client is still there */
    double parse_ms;
    /* Called once, by any thread, when answer is filled in. The job may be gone right after. */
    void (*done)(struct tap_job *job);
    /* The answer. code 499: the client had left. */
    tap_answer answer;
    double queue_ms;
    /* Owned by jobs.c. */
    tap_picture *decoded[2];
    double decode_ms, since_ms;
    struct tap_job *next;
} tap_job;

typedef enum tap_state {
    TAP_STATE_STARTING,
    TAP_STATE_READY,
    TAP_STATE_DRAINING,
    TAP_STATE_FAILED /* a model could not be loaded */
} tap_state;

/* What is served, for /info; strings live as long as the jobs. models[i] is options->models[i]. */
typedef struct tap_served {
    bool loaded;
    tap_engine_info engine;
    struct {
        tap_model_info info;
        double warmup_ms;
    } models[TAP_SERVER_MODELS];
    double ready_ms; /* from start to ready */
} tap_served;

/* The place of a kind among the served models; n_models: it is not served. */
size_t tap_server_find(const tap_server_options *options, tap_server_kind kind);

/* Starts the two threads; the models are loaded by the second. wake: an eventfd that is written to
 * when the state or the number of jobs falls to where a drain can go on. */
tap_status tap_jobs_start(tap_jobs **jobs, const tap_server_options *options, const tap_log *log,
                          tap_metrics *metrics, int wake, tap_error *err);

typedef enum tap_submit {
    TAP_SUBMITTED,
    TAP_SUBMIT_STARTING,
    TAP_SUBMIT_FULL,
    TAP_SUBMIT_DRAINING
} tap_submit;

/* Queues the job, or says why not; the job is then not touched. */
tap_submit tap_jobs_submit(tap_jobs *jobs, tap_job *job);

tap_state tap_jobs_state(tap_jobs *jobs);
/* Waiting, and waiting or running. */
void tap_jobs_count(tap_jobs *jobs, size_t *waiting, size_t *in_flight);
void tap_jobs_served(tap_jobs *jobs, tap_served *served);
/* The error of TAP_STATE_FAILED. */
void tap_jobs_error(tap_jobs *jobs, tap_error *err);

/* No more jobs; those waiting get 503, those running go on. */
void tap_jobs_drain(tap_jobs *jobs);
/* True when nothing runs and the threads are about to end. */
bool tap_jobs_idle(tap_jobs *jobs);
/* After a drain, when idle: ends the threads and frees everything. */
void tap_jobs_free(tap_jobs *jobs);

/* The code for a failure, and its words: "InternalError: ..." for 500. */
unsigned tap_answer_code(tap_status status);
/* Fills the answer with {"detail": words}. Without memory the body is NULL and size 0. */
void tap_answer_fail(tap_answer *answer, unsigned code, const char *words);
void tap_answer_error(tap_answer *answer, const tap_error *err);

#endif
