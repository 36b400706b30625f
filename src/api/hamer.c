/* HaMeR from pixels to hands. */
#include "api.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_FILE_BYTES = 1 << 30,
    CROP_PIXELS = TAP_HAMER_HEIGHT * TAP_HAMER_WIDTH,
    CROP_VALUES = CROP_PIXELS * 3,
    REGRESSED = TAP_HAND_ROTATIONS * 9 + TAP_HAND_BETAS + 3
};

/* ---- options ------------------------------------------------------------------------------- */

void tap_hamer_options_init(tap_hamer_options *options)
{
    *options = (tap_hamer_options){.size = sizeof *options,
                                   .is_right = true,
                                   .rescale_factor = 2,
                                   .exif = TAP_EXIF_APPLY,
                                   .max_pixels = 64000000};
}

static bool is_unset(const tap_hand_camera *camera)
{
    return camera->fx == 0 && camera->fy == 0 && camera->cx == 0 && camera->cy == 0;
}

static tap_status check_options(const tap_hamer_options *options, tap_error *err)
{
    if (options->policy != TAP_HAND_SERVED && options->policy != TAP_HAND_DEMO)
        return tap_fail(err, TAP_ERR_ARGUMENT, "policy %d: no such kind", (int)options->policy);
    if (options->exif != TAP_EXIF_IGNORE && options->exif != TAP_EXIF_APPLY)
        return tap_fail(err, TAP_ERR_ARGUMENT, "exif %d: no such kind", (int)options->exif);
    if (!(options->rescale_factor > 0) || !isfinite(options->rescale_factor))
        return tap_fail(err, TAP_ERR_ARGUMENT, "rescale_factor %g: must be a positive number",
                        (double)options->rescale_factor);
    if (options->boxes == NULL && options->n_boxes > 0)
        return tap_fail(err, TAP_ERR_ARGUMENT, "boxes: is NULL, with n_boxes %zu",
                        options->n_boxes);
    if (options->n_boxes > TAP_HANDS_MAX)
        return tap_fail(err, TAP_ERR_LIMIT, "%zu boxes: at most %d in one call", options->n_boxes,
                        TAP_HANDS_MAX);
    if (options->ready && options->boxes != NULL)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "boxes: the picture is said to be the network's input, which has none");
    if (options->ready && !is_unset(&options->camera))
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "camera: the picture is said to be the network's input, whose camera is "
                        "the network's");
    return is_unset(&options->camera) ? TAP_OK : tap_hand_camera_check(&options->camera, err);
}

static tap_status read_options(tap_hamer_options *own, const tap_session *session,
                               const tap_hamer_options *options, tap_error *err)
{
    tap_hamer_options_init(own);
    TAP_TRY(tap_session_check(session, TAP_KIND_HAMER, err));
    if (!tap_options_read(own, sizeof *own, options))
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "tap_hamer_options: size is not set; use tap_hamer_options_init");
    return check_options(own, err);
}

/* ---- from a box to the network's input ----------------------------------------------------- */

/* A box that shows nothing of the picture is a mistake, though the network would answer. */
static tap_status check_inside(const tap_hand_box *box, size_t number, const tap_image *image,
                               tap_error *err)
{
    if (box->x2 > -0.5f && box->y2 > -0.5f && (double)box->x1 < image->width - 0.5 &&
        (double)box->y1 < image->height - 0.5)
        return TAP_OK;
    return tap_fail(err, TAP_ERR_ARGUMENT,
                    "box %zu [%g, %g, %g, %g]: lies wholly outside the picture, which is %ux%u",
                    number, (double)box->x1, (double)box->y1, (double)box->x2, (double)box->y2,
                    image->width, image->height);
}

static tap_status find_region(tap_hand *hand, size_t i, const tap_image *image,
                              const tap_hamer_options *options, tap_error *err)
{
    if (options->boxes == NULL) {
        tap_hand_region *region = &hand->region;
        *region = tap_hand_region_center(image->width, image->height);
        double half = region->side / 2;
        hand->box = (tap_hand_box){
            (float)(region->center_x - half), (float)(region->center_y - half),
            (float)(region->center_x + half), (float)(region->center_y + half), options->is_right};
    } else {
        const tap_hand_box *box = &options->boxes[i];
        const float corners[4] = {box->x1, box->y1, box->x2, box->y2};
        hand->box = *box;
        TAP_TRY(tap_hand_region_of(&hand->region, corners, i + 1, (double)options->rescale_factor,
                                   options->policy, err));
        TAP_TRY(check_inside(box, i + 1, image, err));
    }
    hand->is_right = hand->box.is_right;
    return TAP_OK;
}

static tap_status cut(tap_session *session, const tap_hand *hand, const tap_image *image,
                      const tap_hamer_options *options, tap_error *err)
{
    size_t bytes;
    const tap_hand_region *region = &hand->region;
    tap_crop crop = {.center_x = region->center_x,
                     .center_y = region->center_y,
                     .side = region->side,
                     .mirror = !hand->is_right,
                     .whole_levels = options->policy == TAP_HAND_SERVED};
    if (!tap_crop_scratch_bytes(image, &crop, &bytes))
        return tap_fail(err, TAP_ERR_LIMIT, "the crop: the picture is too large");
    TAP_TRY(tap_growing_reserve(&session->hands.crop_scratch, bytes, 1, "the crop", err));
    tap_crop_input(session->input.data, image, &crop, session->hands.crop_scratch.data);
    return TAP_OK;
}

static void mirror_input(float *input)
{
    for (size_t y = 0; y < TAP_HAMER_HEIGHT; y++, input += 3 * TAP_HAMER_WIDTH)
        for (size_t left = 0, right = TAP_HAMER_WIDTH - 1; left < right; left++, right--)
            for (size_t c = 0; c < 3; c++) {
                float value = input[3 * left + c];
                input[3 * left + c] = input[3 * right + c];
                input[3 * right + c] = value;
            }
}

/* ---- the network, and what follows from its numbers ---------------------------------------- */

static tap_status reserve_network(tap_session *session, tap_error *err)
{
    const tap_backend *backend = session->model->engine->backend;
    if (session->hands.scratch_bytes == 0) {
        tap_program_info info;
        backend->inspect(session->model->base, &info);
        session->hands.scratch_bytes = info.scratch_bytes;
    }
    TAP_TRY(tap_growing_reserve(&session->scratch, session->hands.scratch_bytes, 1, "the network",
                                err));
    return tap_growing_reserve(&session->input, CROP_VALUES, sizeof(float), "network input", err);
}

/* The pose as rotations, the shape, the camera. */
static void take_outputs(tap_hand *hand, const float outputs[TAP_HAMER_OUTPUTS])
{
    const float *betas = outputs + TAP_HAMER_POSE, *cam = betas + TAP_HAMER_BETAS;
    for (size_t i = 0; i < TAP_HAND_ROTATIONS; i++)
        tap_hand_rotation_6d(hand->rotmats + 9 * i, outputs + 6 * i);
    memcpy(hand->betas, betas, sizeof hand->betas);
    memcpy(hand->cam, cam, sizeof hand->cam);
}

static tap_status run_network(tap_session *session, tap_hand *hand, tap_error *err)
{
    const tap_model *model = session->model;
    const tap_backend *backend = model->engine->backend;
    float outputs[TAP_HAMER_OUTPUTS] = {0};
    const float *inputs[] = {session->input.data};
    float *to[] = {outputs};
    TAP_TRY(backend->run(model->base, session->scratch.data, inputs, to, NULL, err));
    for (size_t i = 0; i < TAP_HAMER_OUTPUTS; i++)
        if (!isfinite(outputs[i]))
            return tap_fail(err, TAP_ERR_INTERNAL,
                            "%s: the network's output is not finite; its weights overflow",
                            model->path);
    take_outputs(hand, outputs);
    return TAP_OK;
}

/* Rotations in the picture's frame, the hand's place, and with MANO its shape. */
static void finish_hand(tap_hand *hand, const tap_hands *hands, const tap_mano *mano)
{
    const tap_hand_camera *camera = &hands->view.camera;
    tap_hand_orient(hand);
    tap_hand_crop_translation(hand->cam_t, hand->cam);
    if (hands->in_frame) {
        tap_hand_translation(hand->translation, hand->cam, &hand->region, camera, hand->is_right);
    } else {
        memcpy(hand->translation, hand->cam_t, sizeof hand->cam_t);
        if (!hand->is_right)
            hand->translation[0] = -hand->translation[0];
    }
    if (mano == NULL)
        return;
    tap_mano_pose(mano, hand->vertices, hand->joints, hand->rotmats, hand->betas);
    tap_hand_project_crop(hand->keypoints_crop, hand->joints, TAP_HAND_JOINTS, hand->cam_t);
    if (!hand->is_right) {
        tap_hand_mirror_points(hand->vertices, TAP_HAND_VERTICES);
        tap_hand_mirror_points(hand->joints, TAP_HAND_JOINTS);
    }
    tap_hand_project(hand->keypoints, hand->joints, TAP_HAND_JOINTS, hand->translation, camera);
}

/* ---- the calls ----------------------------------------------------------------------------- */

/* The camera of a crop alone, in the pixels of a picture of it: the network's focal length around
 * the middle of 256 columns, of which a picture may show the middle 192. */
static tap_hand_camera crop_camera(uint32_t width, bool is_right)
{
    double middle = (double)TAP_CROP_SIDE / 2 - (TAP_CROP_SIDE - (double)width) / 2;
    return (tap_hand_camera){5000, 5000, is_right ? middle : width - 1 - middle,
                             (double)TAP_CROP_SIDE / 2};
}

static tap_status find_hand(tap_session *session, const tap_image *image, size_t i,
                            const tap_hamer_options *options, tap_hands *hands, tap_error *err)
{
    tap_hand *hand = &hands->hands[i];
    tap_hands_view *view = &hands->view;
    double start = tap_clock_ms();
    if (options->ready) {
        *hand = (tap_hand){.is_right = options->is_right, .box.is_right = options->is_right};
        hand->box.x2 = (float)image->width;
        hand->box.y2 = (float)image->height;
        TAP_TRY(tap_crop_ready(session->input.data, image, err));
        if (!hand->is_right)
            mirror_input(session->input.data);
    } else {
        TAP_TRY(cut(session, hand, image, options, err));
    }
    double prepared = tap_clock_ms();
    TAP_TRY(run_network(session, hand, err));
    double ran = tap_clock_ms();
    finish_hand(hand, hands, session->model->mano);
    view->preprocess_ms += prepared - start;
    view->network_ms += ran - prepared;
    view->mano_ms += tap_clock_ms() - ran;
    return TAP_OK;
}

static tap_status find_hands(tap_session *session, const tap_image *image,
                             const tap_hamer_options *options, tap_hands *hands, tap_error *err)
{
    tap_hands_view *view = &hands->view;
    double start = tap_clock_ms();
    size_t n = options->boxes == NULL ? 1 : options->n_boxes;
    view->image_width = image->width;
    view->image_height = image->height;
    view->box_given = options->boxes != NULL;
    view->policy = options->policy;
    view->rescale_factor = options->rescale_factor;
    view->camera = options->camera;
    if (options->ready)
        view->camera = crop_camera(image->width, options->is_right);
    else if (is_unset(&view->camera))
        view->camera = tap_hand_camera_assumed(image->width, image->height);
    hands->in_frame = !options->ready;
    TAP_TRY(tap_hands_reserve(hands, n, session->model->mano, err));
    TAP_TRY(reserve_network(session, err));
    for (size_t i = 0; i < n && hands->in_frame; i++)
        TAP_TRY(find_region(&hands->hands[i], i, image, options, err));
    for (size_t i = 0; i < n; i++) {
        if (options->proceed != NULL && !options->proceed(options->proceed_user))
            return tap_fail(err, TAP_ERR_CANCELLED, "stopped before hand %zu of %zu, as was asked",
                            i + 1, n);
        TAP_TRY(find_hand(session, image, i, options, hands, err));
    }
    view->count = n;
    view->total_ms = view->decode_ms + tap_clock_ms() - start;
    return TAP_OK;
}

/* Whatever failed, the result is empty, never the previous picture's. */
static tap_status finish(tap_status status, tap_hands *hands)
{
    if (status != TAP_OK)
        hands->view = (tap_hands_view){.size = sizeof hands->view};
    return status;
}

tap_status tap_hamer_pixels(tap_session *session, const tap_image *image,
                            const tap_hamer_options *options, tap_hands *hands, tap_error *err)
{
    tap_hamer_options own;
    size_t bytes_per_pixel;
    ptrdiff_t stride;
    hands->view = (tap_hands_view){.size = sizeof hands->view, .exif_orientation = 1};
    tap_status status = read_options(&own, session, options, err);
    if (status == TAP_OK)
        status = tap_image_check(image, &bytes_per_pixel, &stride, err);
    if (status == TAP_OK)
        status = find_hands(session, image, &own, hands, err);
    return finish(status, hands);
}

tap_status tap_hamer_encoded(tap_session *session, const void *bytes, size_t n_bytes,
                             const tap_hamer_options *options, tap_hands *hands, tap_error *err)
{
    tap_hamer_options own;
    tap_pixels pixels = {0};
    hands->view = (tap_hands_view){.size = sizeof hands->view};
    tap_status status = read_options(&own, session, options, err);
    double start = tap_clock_ms();
    if (status == TAP_OK)
        status = tap_pixels_decode(&pixels, bytes, n_bytes, own.exif, own.max_pixels, err);
    if (status == TAP_OK) {
        hands->view.decode_ms = tap_clock_ms() - start;
        hands->view.exif_orientation = pixels.exif_orientation;
        hands->view.exif_applied = pixels.exif_applied;
        tap_image image = {.data = pixels.data,
                           .width = pixels.width,
                           .height = pixels.height,
                           .format = pixels.channels == 1 ? TAP_PIXELS_GRAY : TAP_PIXELS_RGB};
        status = find_hands(session, &image, &own, hands, err);
    }
    tap_pixels_free(&pixels);
    return finish(status, hands);
}

tap_status tap_hamer_file(tap_session *session, const char *path, const tap_hamer_options *options,
                          tap_hands *hands, tap_error *err)
{
    tap_bytes bytes;
    tap_status status = tap_bytes_read(&bytes, path, MAX_FILE_BYTES, err);
    if (status != TAP_OK)
        return finish(status, hands);
    status = tap_hamer_encoded(session, bytes.data, bytes.size, options, hands, err);
    tap_bytes_release(&bytes);
    if (status != TAP_OK && status != TAP_ERR_ARGUMENT && err != NULL) {
        tap_error inner = *err;
        tap_fail(err, status, "%s: %s", path, inner.message);
    }
    return status;
}

/* ---- crops of the caller's own ------------------------------------------------------------- */

static tap_status check_crops(const float *crops, size_t n, uint32_t width, tap_error *err)
{
    if (width != TAP_HAMER_WIDTH && width != TAP_CROP_SIDE)
        return tap_fail(err, TAP_ERR_ARGUMENT, "width %u: must be %d or %d", width, TAP_HAMER_WIDTH,
                        TAP_CROP_SIDE);
    if (n > TAP_HANDS_MAX)
        return tap_fail(err, TAP_ERR_LIMIT, "%zu crops: at most %d in one call", n, TAP_HANDS_MAX);
    if (crops == NULL && n > 0)
        return tap_fail(err, TAP_ERR_ARGUMENT, "crops: is NULL, with n %zu", n);
    size_t n_crop = (size_t)3 * TAP_HAMER_HEIGHT * width;
    for (size_t i = 0; i < n * n_crop; i++)
        if (!isfinite(crops[i]))
            return tap_fail(err, TAP_ERR_ARGUMENT,
                            "crops: crop %zu holds a value that is not finite", i / n_crop);
    return TAP_OK;
}

/* [3][256][width] to the network's [256][192][3]. */
static void take_crop(float *input, const float *crop, uint32_t width)
{
    size_t plane = (size_t)TAP_HAMER_HEIGHT * width, left = (width - TAP_HAMER_WIDTH) / 2;
    for (size_t y = 0; y < TAP_HAMER_HEIGHT; y++)
        for (size_t x = 0; x < TAP_HAMER_WIDTH; x++)
            for (size_t c = 0; c < 3; c++)
                *input++ = crop[c * plane + y * width + left + x];
}

static tap_status run_crops(tap_session *session, const float *crops, size_t n, uint32_t width,
                            tap_hands *hands, tap_error *err)
{
    tap_hands_view *view = &hands->view;
    double start = tap_clock_ms();
    TAP_TRY(check_crops(crops, n, width, err));
    view->camera = crop_camera(width, true);
    hands->in_frame = false;
    TAP_TRY(tap_hands_reserve(hands, n, session->model->mano, err));
    TAP_TRY(reserve_network(session, err));
    for (size_t i = 0; i < n; i++) {
        tap_hand *hand = &hands->hands[i];
        *hand = (tap_hand){.is_right = true, .box.is_right = true};
        take_crop(session->input.data, crops + i * 3 * TAP_HAMER_HEIGHT * width, width);
        double before = tap_clock_ms();
        TAP_TRY(run_network(session, hand, err));
        double ran = tap_clock_ms();
        finish_hand(hand, hands, session->model->mano);
        view->network_ms += ran - before;
        view->mano_ms += tap_clock_ms() - ran;
    }
    view->count = n;
    view->total_ms = tap_clock_ms() - start;
    view->preprocess_ms = view->total_ms - view->network_ms - view->mano_ms;
    return TAP_OK;
}

tap_status tap_hamer_crops(tap_session *session, const float *crops, size_t n, uint32_t width,
                           tap_hands *hands, tap_error *err)
{
    hands->view = (tap_hands_view){.size = sizeof hands->view, .exif_orientation = 1};
    tap_status status = tap_session_check(session, TAP_KIND_HAMER, err);
    if (status == TAP_OK)
        status = run_crops(session, crops, n, width, hands, err);
    return finish(status, hands);
}

/* ---- against the reference ----------------------------------------------------------------- */

static void put_regressed(float to[REGRESSED], const tap_hand *hand)
{
    memcpy(to, hand->rotmats, sizeof hand->rotmats);
    memcpy(to + TAP_HAND_ROTATIONS * 9, hand->betas, sizeof hand->betas);
    memcpy(to + TAP_HAND_ROTATIONS * 9 + TAP_HAND_BETAS, hand->cam, sizeof hand->cam);
}

/* The reference's numbers for the crop in session->input. */
static tap_status run_reference(const tap_session *session, const tap_plan *plan,
                                float to[REGRESSED], tap_error *err)
{
    float outputs[TAP_HAMER_OUTPUTS] = {0};
    const float *inputs[] = {session->input.data};
    float *out[] = {outputs};
    TAP_TRY(tap_reference_run(plan, inputs, out, err));
    tap_hand hand;
    take_outputs(&hand, outputs);
    put_regressed(to, &hand);
    return TAP_OK;
}

static tap_status check_crop(tap_session *session, const tap_plan *plan, const float *saved,
                             float *values, tap_check *check, tap_error *err)
{
    float ours[REGRESSED], reference[REGRESSED];
    tap_hand hand;
    double start = tap_clock_ms();
    if (saved != NULL)
        memcpy(reference, saved, sizeof reference);
    else
        TAP_TRY(run_reference(session, plan, reference, err));
    check->reference_ms += tap_clock_ms() - start;
    TAP_TRY(run_network(session, &hand, err));
    put_regressed(ours, &hand);
    double correlation = tap_correlation(ours, reference, REGRESSED);
    if (!(correlation >= check->correlation)) /* NaN is the worst */
        check->correlation = correlation;
    for (size_t i = 0; i < REGRESSED; i++) {
        double error = fabs((double)ours[i] - (double)reference[i]);
        check->max_error = fmax(check->max_error, error);
        check->mean_error += error;
    }
    if (values != NULL)
        memcpy(values, reference, sizeof reference);
    return TAP_OK;
}

tap_status tap_hamer_check(tap_session *session, const float *crops, size_t n, uint32_t width,
                           const float *reference, float *values, tap_check *check, tap_error *err)
{
    tap_plan *plan = NULL;
    tap_check own = {.size = sizeof own, .n_crops = n, .correlation = 1};
    size_t size = check->size;
    if (size < sizeof size || size > sizeof own)
        return tap_fail(err, TAP_ERR_ARGUMENT, "tap_check: size is not set");
    TAP_TRY(tap_session_check(session, TAP_KIND_HAMER, err));
    if (n == 0)
        return tap_fail(err, TAP_ERR_ARGUMENT, "n: there is no crop to check on");
    TAP_TRY(check_crops(crops, n, width, err));
    TAP_TRY(reserve_network(session, err));
    tap_hamer *hamer = NULL;
    tap_status status = TAP_OK;
    if (reference == NULL) {
        /* A copy of its own: other sessions may use the model, which has forgotten its values. */
        status = tap_hamer_create(&hamer, session->model->weights, err);
        if (status == TAP_OK)
            status = tap_hamer_read(hamer, err);
        if (status == TAP_OK)
            status = tap_hamer_plan(hamer, 1, &plan, err);
    }
    for (size_t i = 0; status == TAP_OK && i < n; i++) {
        take_crop(session->input.data, crops + i * 3 * TAP_HAMER_HEIGHT * width, width);
        status = check_crop(session, plan, reference == NULL ? NULL : reference + i * REGRESSED,
                            values == NULL ? NULL : values + i * REGRESSED, &own, err);
    }
    tap_plan_free(plan);
    tap_hamer_free(hamer);
    if (status != TAP_OK)
        return status;
    own.mean_error /= (double)(n * REGRESSED);
    memcpy(check, &own, size);
    check->size = size;
    return TAP_OK;
}
