/* What the runner owns: an engine, the models, a session for each, and how a job goes through them.
 * Private to the server. */
#ifndef TAP_SERVER_SERVING_H
#define TAP_SERVER_SERVING_H

#include "jobs.h"

typedef struct tap_serving {
    const tap_server_options *options;
    const tap_log *log;
    tap_metrics *metrics;
    bool (*stopped)(void *context); /* the server is to end, loaded or not */
    void *context;

    tap_served served;
    tap_engine *engine;
    tap_model *models[TAP_SERVER_MODELS];
    tap_session *sessions[TAP_SERVER_MODELS];

    /* SuperPoint's, serving_points.c: results, and what the last job took. */
    tap_keypoints *keypoints[2];
    tap_keypoints_view views[2];
    /* HaMeR's, serving_hands.c. */
    tap_hands *hands;
} tap_serving;

/* Opens, loads and warms up. Whatever it returns, tap_serving_unload is to follow some day. */
tap_status tap_serving_load(tap_serving *serving, tap_error *err);
void tap_serving_unload(tap_serving *serving);

/* The job's pictures, by another thread than the runner's. */
tap_status tap_serving_decode(const tap_server_options *options, tap_job *job, tap_error *err);
void tap_serving_drop_pictures(tap_job *job);

/* From pictures to job->answer. */
tap_status tap_serving_run(tap_serving *serving, tap_job *job, tap_error *err);

/* After a job: gives back the memory of an unusually large one. */
tap_status tap_serving_renew(tap_serving *serving, tap_error *err);

/* ---- a model's own part; model: its place among the served ------------------------------------
 */

tap_status tap_serving_points_start(tap_serving *serving, size_t model, tap_error *err);
tap_status tap_serving_points_run(tap_serving *serving, size_t model, tap_job *job, tap_error *err);
tap_status tap_serving_points_renew(tap_serving *serving, size_t model, tap_error *err);

tap_status tap_serving_hands_start(tap_serving *serving, size_t model, tap_error *err);
tap_status tap_serving_hands_run(tap_serving *serving, size_t model, tap_job *job, tap_error *err);

#endif
