/* SuperPoint's jobs: /predict with one picture, /match with two. */
#include "answer.h"
#include "serving.h"

#include "core/core.h"

#include <stdlib.h>

enum {
    DEFAULT_PIXELS = 640 * 480,
    KEEP_PIXELS = 4 * DEFAULT_PIXELS, /* a session that ran more is renewed: its memory goes back */
    KEEP_POINTS = 8192                /* so is a result that held more */
};

/* One picture through the network; views[i] is complete, its times included. */
static tap_status detect(tap_serving *serving, size_t model, tap_job *job, size_t i, tap_error *err)
{
    tap_superpoint_options options = job->wish.superpoint;
    tap_keypoints_view *view = &serving->views[i];
    size_t max_bytes = serving->options->max_answer_bytes;
    size_t most =
        tap_answer_max_points(max_bytes, options.descriptors,
                              serving->served.models[model].info.descriptor_dim, job->npz);
    /* One more than fits is enough to know that the answer would not. */
    if (options.max_keypoints < 0 || (size_t)options.max_keypoints > most)
        options.max_keypoints = (int32_t)(most + 1);
    tap_image image = tap_picture_view(job->decoded[i]);
    TAP_TRY(tap_superpoint_pixels(serving->sessions[model], &image, &options, serving->keypoints[i],
                                  err));
    view->size = sizeof *view;
    if (tap_keypoints_get(serving->keypoints[i], view) != TAP_OK)
        return tap_fail(err, TAP_ERR_INTERNAL, "the result cannot be read");
    if (view->count > most)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "max_keypoints: the answer would have over %zu points and %zu bytes; ask "
                        "for fewer, raise keypoint_threshold, or leave out the descriptors",
                        most, max_bytes);
    view->exif_orientation = tap_picture_orientation(job->decoded[i]);
    view->exif_applied = options.exif == TAP_EXIF_APPLY && view->exif_orientation != 1;
    /* Reading the request and decoding happened elsewhere, for all pictures at once. */
    view->decode_ms = i == 0 ? job->parse_ms + job->decode_ms : 0;
    view->total_ms += view->decode_ms;
    tap_metrics_stage(serving->metrics, TAP_STAGE_PREPROCESS, view->preprocess_ms);
    tap_metrics_stage(serving->metrics, TAP_STAGE_FORWARD, view->forward_ms);
    tap_metrics_stage(serving->metrics, TAP_STAGE_POSTPROCESS, view->postprocess_ms);
    tap_metrics_keypoints(serving->metrics, view->count);
    return TAP_OK;
}

static tap_status answer_points(tap_serving *serving, tap_job *job, tap_error *err)
{
    const tap_keypoints_view *view = &serving->views[0];
    uint8_t *npz = NULL;
    size_t n_npz = 0;
    tap_answer *answer = &job->answer;
    unsigned fields = job->npz ? TAP_NPZ_KEYPOINTS | TAP_NPZ_SCORES : 0;
    if (view->descriptor_dim > 0)
        fields |= TAP_NPZ_DESCRIPTORS | TAP_NPZ_HALF;
    if (fields != 0)
        TAP_TRY(tap_keypoints_npz(serving->keypoints[0], fields, &npz, &n_npz, err));
    if (job->npz) {
        *answer = (tap_answer){.code = 200,
                               .body = (char *)npz, /* tap_free is free */
                               .size = n_npz,
                               .type = "application/x-npz"};
        return TAP_OK;
    }
    tap_text text = {0};
    tap_status status = tap_answer_points(&text, NULL, view, &job->wish.superpoint, npz, n_npz,
                                          &serving->served.engine, err);
    tap_free(npz);
    if (status == TAP_OK)
        status = tap_text_take(&text, &answer->body, &answer->size, err);
    tap_text_free(&text);
    answer->code = 200;
    return status;
}

static tap_status answer_match(tap_serving *serving, tap_job *job, tap_error *err)
{
    const tap_keypoints_view *a = &serving->views[0], *b = &serving->views[1];
    size_t n_pairs = 0, room = a->count < b->count ? a->count : b->count;
    tap_match_pair *pairs = tap_alloc(room, sizeof *pairs);
    if (pairs == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for %zu matches", room);
    double start = tap_clock_ms();
    tap_status status =
        tap_match(serving->engine, a->descriptors, a->count, b->descriptors, b->count,
                  a->descriptor_dim, &job->wish.match, pairs, &n_pairs, err);
    double match_ms = tap_clock_ms() - start;
    tap_text text = {0};
    if (status == TAP_OK)
        status = tap_answer_match(&text, serving->views, &job->wish.superpoint, &job->wish.match,
                                  pairs, n_pairs, match_ms, &serving->served.engine, err);
    if (status == TAP_OK)
        status = tap_text_take(&text, &job->answer.body, &job->answer.size, err);
    tap_text_free(&text);
    free(pairs);
    job->answer.code = 200;
    return status;
}

tap_status tap_serving_points_run(tap_serving *serving, size_t model, tap_job *job, tap_error *err)
{
    for (size_t i = 0; i < job->n_pictures; i++)
        TAP_TRY(detect(serving, model, job, i, err));
    tap_serving_drop_pictures(job);
    double start = tap_clock_ms();
    tap_status status =
        job->n_pictures == 1 ? answer_points(serving, job, err) : answer_match(serving, job, err);
    tap_metrics_stage(serving->metrics, TAP_STAGE_ENCODE, tap_clock_ms() - start);
    return status;
}

tap_status tap_serving_points_renew(tap_serving *serving, size_t model, tap_error *err)
{
    uint64_t pixels = 0;
    for (size_t i = 0; i < 2; i++) {
        tap_keypoints_view *view = &serving->views[i];
        uint64_t own = (uint64_t)view->input_width * view->input_height;
        bool many = view->count > KEEP_POINTS;
        pixels = own > pixels ? own : pixels;
        *view = (tap_keypoints_view){0};
        if (many) {
            tap_keypoints_free(serving->keypoints[i]);
            serving->keypoints[i] = NULL;
            TAP_TRY(tap_keypoints_create(&serving->keypoints[i], err));
        }
    }
    if (pixels > KEEP_PIXELS) {
        tap_session_free(serving->sessions[model]);
        serving->sessions[model] = NULL;
        TAP_TRY(tap_session_create(&serving->sessions[model], serving->models[model], err));
    }
    return TAP_OK;
}

/* A zero picture through the network. */
static tap_status warm_up(tap_serving *serving, size_t model, uint32_t width, uint32_t height,
                          tap_error *err)
{
    if (serving->stopped(serving->context))
        return tap_fail(err, TAP_ERR_CANCELLED, "stopped while starting");
    tap_superpoint_options options;
    tap_superpoint_options_init(&options);
    options.width = width;
    options.height = height;
    options.descriptors = serving->served.models[model].info.has_descriptors;
    uint8_t *zeros = calloc(height, width);
    if (zeros == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for the warm-up");
    tap_image image = {.data = zeros, .width = width, .height = height, .format = TAP_PIXELS_GRAY};
    tap_status status = tap_superpoint_pixels(serving->sessions[model], &image, &options,
                                              serving->keypoints[0], err);
    free(zeros);
    return status;
}

tap_status tap_serving_points_start(tap_serving *serving, size_t model, tap_error *err)
{
    for (size_t i = 0; i < 2; i++)
        TAP_TRY(tap_keypoints_create(&serving->keypoints[i], err));
    /* Two runs, as the contract has it. The first is small, because it only has to wake threads
     * and fault code in, and start to ready should take under 0.3 s; the second, at the default
     * size, leaves the session's memory and program as the first request wants them. */
    TAP_TRY(warm_up(serving, model, 64, 64, err));
    return warm_up(serving, model, 640, 480, err);
}
