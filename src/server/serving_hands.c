/* HaMeR's jobs: /predict, one picture and its boxes. */
#include "answer.h"
#include "serving.h"

#include "core/core.h"

/* The result's view, with what happened before the runner had the job. */
static tap_status complete(tap_serving *serving, const tap_job *job, tap_hands_view *view,
                           tap_error *err)
{
    *view = (tap_hands_view){.size = sizeof *view};
    if (tap_hands_get(serving->hands, view) != TAP_OK)
        return tap_fail(err, TAP_ERR_INTERNAL, "the result cannot be read");
    view->exif_orientation = tap_picture_orientation(job->decoded[0]);
    view->exif_applied =
        job->wish.hands.options.exif == TAP_EXIF_APPLY && view->exif_orientation != 1;
    view->decode_ms = job->parse_ms + job->decode_ms;
    view->total_ms += view->decode_ms;
    tap_metrics_stage(serving->metrics, TAP_STAGE_PREPROCESS, view->preprocess_ms);
    tap_metrics_stage(serving->metrics, TAP_STAGE_FORWARD, view->network_ms);
    tap_metrics_stage(serving->metrics, TAP_STAGE_POSTPROCESS, view->mano_ms);
    tap_metrics_hands(serving->metrics, view->count);
    return TAP_OK;
}

tap_status tap_serving_hands_run(tap_serving *serving, size_t model, tap_job *job, tap_error *err)
{
    tap_hamer_options options = tap_wish_hands(&job->wish);
    tap_image image = tap_picture_view(job->decoded[0]);
    tap_hands_view view;
    tap_text text = {0};
    TAP_TRY(tap_hamer_pixels(serving->sessions[model], &image, &options, serving->hands, err));
    TAP_TRY(complete(serving, job, &view, err));
    tap_serving_drop_pictures(job);
    double start = tap_clock_ms();
    tap_status status =
        tap_answer_hands(&text, NULL, serving->hands, &view, &job->wish.hands.answer, err);
    if (status == TAP_OK)
        status = tap_text_take(&text, &job->answer.body, &job->answer.size, err);
    tap_text_free(&text);
    job->answer.code = 200;
    tap_metrics_stage(serving->metrics, TAP_STAGE_ENCODE, tap_clock_ms() - start);
    return status;
}

tap_status tap_serving_hands_start(tap_serving *serving, size_t model, tap_error *err)
{
    static const uint8_t gray[1];
    static const tap_image image = {gray, 1, 1, 0, TAP_PIXELS_GRAY};
    static const tap_hand_box none[1];
    tap_hamer_options options;
    if (serving->stopped(serving->context))
        return tap_fail(err, TAP_ERR_CANCELLED, "stopped while starting");
    TAP_TRY(tap_hands_create(&serving->hands, err));
    tap_hamer_options_init(&options);
    options.boxes = none; /* n_boxes is 0 */
    /* Loading has run every weight through the gate. What is left is the session's memory; a run of
     * the whole network would take as long as all else of a start from the cache. */
    return tap_hamer_pixels(serving->sessions[model], &image, &options, serving->hands, err);
}
