/* Hands as JSON: the accelerator's contract, with our own fields after its. */
#include "answer.h"

#include "core/core.h"

#include <math.h>

/* A float32 in JSON and its comma: "-1.23456789e-10,"; a vertex's number, "777,"; with a share of
 * the brackets. And a hand's names, times and whole numbers. */
enum { FLOAT_BYTES = 18, INDEX_BYTES = 6, HAND_BYTES = 1024, AROUND_BYTES = 64 };

static size_t count_floats(bool mano_available, const tap_hands_answer *answer)
{
    size_t n = TAP_HAND_ROTATIONS * 9 + TAP_HAND_BETAS + 3 + 3 + 4;
    if (answer->image_rotations)
        n += TAP_HAND_ROTATIONS * (9 + 3);
    if (mano_available)
        n += TAP_HAND_JOINTS * (3 + 2);
    if (mano_available && answer->return_vertices)
        n += TAP_HAND_VERTICES * 3;
    return n;
}

size_t tap_answer_hands_bytes(size_t n, bool mano_available, const tap_hands_answer *answer)
{
    size_t hand = HAND_BYTES + FLOAT_BYTES * count_floats(mano_available, answer);
    if (mano_available && answer->return_faces)
        hand += (size_t)INDEX_BYTES * TAP_HAND_FACES * 3;
    return AROUND_BYTES + n * hand;
}

/* ---- arrays ---------------------------------------------------------------------------------- */

static void write_row(tap_text *text, const float *values, size_t n)
{
    tap_text_add(text, "[", 1);
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            tap_text_add(text, ",", 1);
        tap_text_f32(text, values[i]);
    }
    tap_text_add(text, "]", 1);
}

static void write_rows(tap_text *text, const float *values, size_t n, size_t width)
{
    tap_text_add(text, "[", 1);
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            tap_text_add(text, ",", 1);
        write_row(text, values + i * width, width);
    }
    tap_text_add(text, "]", 1);
}

static void write_matrices(tap_text *text, const char *name, const float *values)
{
    tap_text_name(text, name);
    tap_text_add(text, "[", 1);
    for (size_t i = 0; i < TAP_HAND_ROTATIONS; i++) {
        if (i > 0)
            tap_text_add(text, ",", 1);
        write_rows(text, values + 9 * i, 3, 3);
    }
    tap_text_add(text, "]", 1);
}

static void write_faces(tap_text *text, const uint32_t *faces)
{
    tap_text_name(text, "faces");
    tap_text_add(text, "[", 1);
    for (size_t i = 0; i < TAP_HAND_FACES; i++)
        tap_text_printf(text, "%s[%u,%u,%u]", i > 0 ? "," : "", faces[3 * i], faces[3 * i + 1],
                        faces[3 * i + 2]);
    tap_text_add(text, "]", 1);
}

/* "name":[a,b], two numbers of the camera as they were given. */
static void write_pair(tap_text *text, const char *name, double a, double b)
{
    tap_text_name(text, name);
    tap_text_add(text, "[", 1);
    tap_text_f64(text, a);
    tap_text_add(text, ",", 1);
    tap_text_f64(text, b);
    tap_text_add(text, "]", 1);
}

/* ---- a hand ---------------------------------------------------------------------------------- */

/* A number of the network that is no number would make the whole answer unreadable. */
static tap_status check_hand(const tap_hand_view *hand, size_t number, tap_error *err)
{
    const struct {
        const float *values;
        size_t n;
        const char *what;
    } parts[] = {{hand->rotmats, TAP_HAND_ROTATIONS * 9, "rotation"},
                 {hand->rotmats_image, TAP_HAND_ROTATIONS * 9, "rotation"},
                 {hand->axis_angle, TAP_HAND_ROTATIONS * 3, "rotation"},
                 {hand->betas, TAP_HAND_BETAS, "shape"},
                 {hand->cam, 3, "camera"},
                 {hand->cam_t_full, 3, "place"},
                 {hand->vertices, TAP_HAND_VERTICES * 3, "mesh"},
                 {hand->joints, TAP_HAND_JOINTS * 3, "skeleton"},
                 {hand->keypoints_2d, TAP_HAND_JOINTS * 2, "projection"}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        for (size_t k = 0; parts[i].values != NULL && k < parts[i].n; k++)
            if (!isfinite(parts[i].values[k]))
                return tap_fail(err, TAP_ERR_INTERNAL,
                                "the %s of hand %zu is not finite; the weights or the machine are "
                                "at fault, or the camera that was given",
                                parts[i].what, number);
    return TAP_OK;
}

static void write_timing(tap_text *text, const tap_hands_view *view)
{
    tap_text_name(text, "timing_ms");
    tap_text_printf(text, "{\"preprocess\":%.3f,\"device\":%.3f,\"mano\":%.3f,\"total\":%.3f}",
                    view->decode_ms + view->preprocess_ms, view->network_ms, view->mano_ms,
                    view->total_ms);
}

/* How the hand came about: what it takes to ask the same again, and to project its joints. */
static void write_conditions(tap_text *text, const tap_hands_view *view, const tap_hand_view *hand)
{
    const tap_hand_camera *camera = &view->camera;
    tap_text_field(text, "bbox_source",
                   view->box_given            ? "given"
                   : hand->cam_t_full != NULL ? "center"
                                              : "crop");
    tap_text_name(text, "rescale_factor");
    tap_text_f32(text, view->rescale_factor);
    tap_text_field(text, "crop", view->policy == TAP_HAND_DEMO ? "demo" : "served");
    write_pair(text, "focal_length", camera->fx, camera->fy);
    write_pair(text, "principal_point", camera->cx, camera->cy);
    tap_text_field_u64(text, "exif_orientation", (uint64_t)view->exif_orientation);
    tap_text_field_bool(text, "exif_applied", view->exif_applied);
}

static void write_hand(tap_text *text, const tap_hands_view *view, const tap_hand_view *hand,
                       const tap_hands_answer *answer)
{
    const float box[4] = {hand->box.x1, hand->box.y1, hand->box.x2, hand->box.y2};
    tap_text_name(text, "image_size");
    tap_text_printf(text, "[%u,%u]", view->image_width, view->image_height);
    tap_text_name(text, "bbox");
    write_row(text, box, 4);
    tap_text_field_bool(text, "is_right", hand->is_right);
    write_matrices(text, "rotmats", hand->rotmats);
    tap_text_name(text, "betas");
    write_row(text, hand->betas, TAP_HAND_BETAS);
    tap_text_name(text, "cam");
    write_row(text, hand->cam, 3);
    if (hand->cam_t_full != NULL) {
        tap_text_name(text, "cam_t_full");
        write_row(text, hand->cam_t_full, 3);
    }
    tap_text_field_bool(text, "mano_available", view->mano_available);
    /* The accelerator's server says here whether it replays a recorded run. */
    tap_text_field_bool(text, "trace_active", false);
    write_timing(text, view);
    if (hand->joints != NULL) {
        tap_text_name(text, "joints");
        write_rows(text, hand->joints, TAP_HAND_JOINTS, 3);
    }
    if (hand->vertices != NULL && answer->return_vertices) {
        tap_text_name(text, "vertices");
        write_rows(text, hand->vertices, TAP_HAND_VERTICES, 3);
    }
    if (hand->keypoints_2d != NULL) {
        tap_text_name(text, "keypoints_2d");
        write_rows(text, hand->keypoints_2d, TAP_HAND_JOINTS, 2);
    }
    if (hand->faces != NULL && answer->return_faces)
        write_faces(text, hand->faces);
    if (answer->image_rotations) {
        write_matrices(text, "rotmats_image", hand->rotmats_image);
        tap_text_name(text, "axis_angle");
        write_rows(text, hand->axis_angle, TAP_HAND_ROTATIONS, 3);
    }
    write_conditions(text, view, hand);
}

/* ---- all of them ----------------------------------------------------------------------------- */

tap_status tap_answer_hands(tap_text *text, const char *file, const tap_hands *hands,
                            const tap_hands_view *view, const tap_hands_answer *answer,
                            tap_error *err)
{
    bool list = answer->list || view->count != 1;
    tap_text_add(text, "{", 1);
    if (file != NULL)
        tap_text_field(text, "file", file);
    if (list) {
        tap_text_name(text, "hands");
        tap_text_add(text, "[", 1);
    }
    for (size_t i = 0; i < view->count; i++) {
        tap_hand_view hand = {.size = sizeof hand};
        if (tap_hands_at(hands, i, &hand) != TAP_OK)
            return tap_fail(err, TAP_ERR_INTERNAL, "hand %zu cannot be read", i);
        TAP_TRY(check_hand(&hand, i, err));
        if (list)
            tap_text_puts(text, i > 0 ? ",{" : "{");
        write_hand(text, view, &hand, answer);
        if (list)
            tap_text_add(text, "}", 1);
    }
    tap_text_puts(text, list ? "]}" : "}");
    return TAP_OK;
}

tap_status tap_answer_hamer(char **text, size_t *n_text, const char *file, const tap_hands *hands,
                            const tap_hands_answer *answer, tap_error *err)
{
    static const tap_hands_answer defaults = {.return_vertices = true};
    tap_hands_view view = {.size = sizeof view};
    tap_text out = {0};
    if (tap_hands_get(hands, &view) != TAP_OK)
        return tap_fail(err, TAP_ERR_INTERNAL, "the result cannot be read");
    tap_status status =
        tap_answer_hands(&out, file, hands, &view, answer != NULL ? answer : &defaults, err);
    if (status == TAP_OK)
        return tap_text_take(&out, text, n_text, err);
    tap_text_free(&out);
    return status;
}
