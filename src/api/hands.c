/* A result of HaMeR: its memory, its views, its pictures and mesh files. */
#include "api.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

tap_status tap_hands_create(tap_hands **hands, tap_error *err)
{
    *hands = calloc(1, sizeof **hands);
    if (*hands == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a result");
    return TAP_OK;
}

void tap_hands_free(tap_hands *hands)
{
    if (hands == NULL)
        return;
    free(hands->hands);
    free(hands);
}

tap_status tap_hands_reserve(tap_hands *hands, size_t n, const tap_mano *mano, tap_error *err)
{
    hands->view.mano_available = mano != NULL;
    if (mano != NULL)
        for (size_t left = 0; left < 2; left++) {
            memcpy(hands->faces[left], tap_mano_faces(mano), sizeof(uint32_t[TAP_HAND_FACES][3]));
            memcpy(hands->faces[left] + TAP_HAND_FACES, tap_hand_wrist, sizeof tap_hand_wrist);
            if (left == 1)
                tap_hand_mirror_faces(&hands->faces[1][0][0], TAP_HAND_FACES + TAP_HAND_WRIST);
        }
    if (n <= hands->capacity)
        return TAP_OK;
    free(hands->hands);
    hands->hands = tap_alloc(n, sizeof *hands->hands);
    hands->capacity = hands->hands == NULL ? 0 : n;
    if (hands->hands == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for %zu hands", n);
    return TAP_OK;
}

void tap_hand_orient(tap_hand *hand)
{
    memcpy(hand->rotmats_image, hand->rotmats, sizeof hand->rotmats);
    for (size_t i = 0; i < TAP_HAND_ROTATIONS; i++) {
        if (!hand->is_right)
            tap_hand_mirror_rotation(hand->rotmats_image + 9 * i);
        tap_hand_axis_angle(hand->axis_angle + 3 * i, hand->rotmats_image + 9 * i);
    }
}

tap_status tap_hands_get(const tap_hands *hands, tap_hands_view *view)
{
    size_t size = view->size;
    if (size < sizeof size || size > sizeof *view)
        return TAP_ERR_ARGUMENT;
    memcpy(view, &hands->view, size);
    view->size = size;
    return TAP_OK;
}

tap_status tap_hands_at(const tap_hands *hands, size_t i, tap_hand_view *view)
{
    size_t size = view->size;
    if (size < sizeof size || size > sizeof *view || i >= hands->view.count)
        return TAP_ERR_ARGUMENT;
    const tap_hand *hand = &hands->hands[i];
    tap_hand_view own = {.size = sizeof own,
                         .box = hand->box,
                         .is_right = hand->is_right,
                         .center_x = hand->region.center_x,
                         .center_y = hand->region.center_y,
                         .side = hand->region.side,
                         .rotmats = hand->rotmats,
                         .rotmats_image = hand->rotmats_image,
                         .axis_angle = hand->axis_angle,
                         .betas = hand->betas,
                         .cam = hand->cam,
                         .cam_t = hand->cam_t,
                         .cam_t_full = hands->in_frame ? hand->translation : NULL};
    if (hands->view.mano_available) {
        own.vertices = hand->vertices;
        own.joints = hand->joints;
        own.keypoints_2d = hands->in_frame ? hand->keypoints : NULL;
        own.keypoints_crop = hand->keypoints_crop;
        own.faces = &hands->faces[!hand->is_right][0][0];
    }
    memcpy(view, &own, size);
    view->size = size;
    return TAP_OK;
}

/* ---- values from elsewhere ------------------------------------------------------------------ */

static tap_status take_values(float *to, const float *from, size_t n, const char *name, size_t i,
                              tap_error *err)
{
    if (from == NULL)
        return tap_fail(err, TAP_ERR_ARGUMENT, "hand %zu: %s: is NULL", i, name);
    for (size_t k = 0; k < n; k++)
        if (!isfinite(from[k]))
            return tap_fail(err, TAP_ERR_ARGUMENT, "hand %zu: %s: value %zu is not finite", i, name,
                            k);
    memcpy(to, from, n * sizeof *to);
    return TAP_OK;
}

/* A result has MANO's triangles once a side, given by any hand of that side. */
static tap_status take_faces(tap_hands *hands, const tap_hand_view *given, size_t i, tap_error *err)
{
    bool left = !given->is_right;
    const size_t n = (size_t)TAP_HAND_FACES * 3;
    if (given->faces == NULL)
        return tap_fail(err, TAP_ERR_ARGUMENT, "hand %zu: faces: is NULL", i);
    for (size_t k = 0; k < n; k++)
        if (given->faces[k] >= TAP_HAND_VERTICES)
            return tap_fail(err, TAP_ERR_ARGUMENT,
                            "hand %zu: faces: face %zu names vertex %u, of %d there are", i, k / 3,
                            given->faces[k], TAP_HAND_VERTICES);
    memcpy(hands->faces[left], given->faces, n * sizeof *given->faces);
    memcpy(hands->faces[left] + TAP_HAND_FACES, tap_hand_wrist, sizeof tap_hand_wrist);
    if (left)
        tap_hand_mirror_faces(&hands->faces[1][TAP_HAND_FACES][0], TAP_HAND_WRIST);
    return TAP_OK;
}

static tap_status take_hand(tap_hands *hands, const tap_hand_view *given, size_t i, tap_error *err)
{
    tap_hand *hand = &hands->hands[i];
    *hand = (tap_hand){.box = given->box,
                       .is_right = given->is_right,
                       .region = {given->center_x, given->center_y, given->side}};
    TAP_TRY(take_values(hand->rotmats, given->rotmats, TAP_HAND_ROTATIONS * 9, "rotmats", i, err));
    TAP_TRY(take_values(hand->betas, given->betas, TAP_HAND_BETAS, "betas", i, err));
    TAP_TRY(take_values(hand->cam, given->cam, 3, "cam", i, err));
    TAP_TRY(take_values(hand->translation, given->cam_t_full, 3, "cam_t_full", i, err));
    tap_hand_orient(hand);
    tap_hand_crop_translation(hand->cam_t, hand->cam);
    if (!hands->view.mano_available)
        return TAP_OK;
    TAP_TRY(
        take_values(hand->vertices, given->vertices, TAP_HAND_VERTICES * 3, "vertices", i, err));
    TAP_TRY(take_values(hand->joints, given->joints, TAP_HAND_JOINTS * 3, "joints", i, err));
    TAP_TRY(take_faces(hands, given, i, err));
    tap_hand_project(hand->keypoints, hand->joints, TAP_HAND_JOINTS, hand->translation,
                     &hands->view.camera);
    float joints[TAP_HAND_JOINTS * 3];
    memcpy(joints, hand->joints, sizeof joints);
    if (!hand->is_right)
        tap_hand_mirror_points(joints, TAP_HAND_JOINTS);
    tap_hand_project_crop(hand->keypoints_crop, joints, TAP_HAND_JOINTS, hand->cam_t);
    return TAP_OK;
}

static tap_status assemble(tap_hands *hands, const tap_hands_view *view, const tap_hand_view *given,
                           tap_error *err)
{
    if (view->size != sizeof *view)
        return tap_fail(err, TAP_ERR_ARGUMENT, "tap_hands_view: size is not set");
    if (view->count > TAP_HANDS_MAX)
        return tap_fail(err, TAP_ERR_LIMIT, "%zu hands: at most %d", view->count, TAP_HANDS_MAX);
    if (given == NULL && view->count > 0)
        return tap_fail(err, TAP_ERR_ARGUMENT, "given: is NULL, with count %zu", view->count);
    TAP_TRY(tap_hand_camera_check(&view->camera, err));
    TAP_TRY(tap_hands_reserve(hands, view->count, NULL, err));
    hands->view = *view;
    hands->in_frame = true;
    for (size_t i = 0; i < view->count; i++) {
        if (given[i].size != sizeof *given)
            return tap_fail(err, TAP_ERR_ARGUMENT, "hand %zu: size is not set", i);
        TAP_TRY(take_hand(hands, &given[i], i, err));
    }
    return TAP_OK;
}

tap_status tap_hands_assemble(tap_hands *hands, const tap_hands_view *view,
                              const tap_hand_view *given, tap_error *err)
{
    tap_status status = assemble(hands, view, given, err);
    if (status != TAP_OK)
        hands->view = (tap_hands_view){.size = sizeof hands->view};
    return status;
}

/* ---- meshes -------------------------------------------------------------------------------- */

/* The hands' meshes, closed at the wrist, from malloc; they borrow. */
static tap_status make_meshes(tap_mesh **meshes, const tap_hands *hands, tap_error *err)
{
    size_t n = hands->view.count;
    *meshes = NULL;
    if (!hands->view.mano_available)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "mesh: the result has none, for want of a MANO file: give MANO_RIGHT.pkl "
                        "when the model is loaded");
    *meshes = tap_alloc(n, sizeof **meshes);
    if (*meshes == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for %zu meshes", n);
    for (size_t i = 0; i < n; i++) {
        const tap_hand *hand = &hands->hands[i];
        (*meshes)[i] = (tap_mesh){.vertices = hand->vertices,
                                  .n_vertices = TAP_HAND_VERTICES,
                                  .faces = &hands->faces[!hand->is_right][0][0],
                                  .n_faces = TAP_HAND_FACES + TAP_HAND_WRIST,
                                  .color = tap_mesh_color};
        memcpy((*meshes)[i].translation, hand->translation, sizeof hand->translation);
    }
    return TAP_OK;
}

static tap_status draw_meshes(tap_pixels *pixels, const tap_hands *hands, tap_error *err)
{
    tap_mesh *meshes;
    const tap_hand_camera *camera = &hands->view.camera;
    tap_lens lens = {camera->fx, camera->fy, camera->cx, camera->cy};
    TAP_TRY(make_meshes(&meshes, hands, err));
    tap_status status = tap_draw_meshes(pixels, meshes, hands->view.count, &lens, err);
    free(meshes);
    return status;
}

static void draw_box(tap_pixels *pixels, const tap_hand *hand)
{
    const tap_hand_box *box = &hand->box;
    const float corners[4] = {box->x1, box->y1, box->x2, box->y2};
    tap_draw_hand_box(pixels, corners, hand->rotmats_image);
}

tap_status tap_draw_hands(tap_picture *picture, const tap_hands *hands, tap_hand_drawing drawing,
                          tap_error *err)
{
    bool mano = hands->view.mano_available;
    if (drawing == TAP_DRAW_BEST)
        drawing = mano ? TAP_DRAW_MESH : TAP_DRAW_BOX;
    if (drawing != TAP_DRAW_MESH && drawing != TAP_DRAW_SKELETON && drawing != TAP_DRAW_BOX)
        return tap_fail(err, TAP_ERR_ARGUMENT, "drawing %d: no such kind", (int)drawing);
    if (drawing == TAP_DRAW_SKELETON && !mano)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "skeleton: the result has no joints, for want of a MANO file");
    TAP_TRY(tap_pixels_make_rgb(&picture->pixels, err));
    if (drawing == TAP_DRAW_MESH)
        return draw_meshes(&picture->pixels, hands, err);
    for (size_t i = 0; i < hands->view.count; i++)
        if (drawing == TAP_DRAW_SKELETON)
            tap_draw_skeleton(&picture->pixels, hands->hands[i].keypoints);
        else
            draw_box(&picture->pixels, &hands->hands[i]);
    return TAP_OK;
}

tap_status tap_draw_hands_side(tap_picture **picture, const tap_hands *hands, uint32_t width,
                               uint32_t height, tap_error *err)
{
    tap_mesh *meshes;
    *picture = NULL;
    TAP_TRY(make_meshes(&meshes, hands, err));
    tap_status status = TAP_OK;
    *picture = calloc(1, sizeof **picture);
    if (*picture == NULL)
        status = tap_fail(err, TAP_ERR_MEMORY, "out of memory for a picture");
    else
        status =
            tap_mesh_side_view(&(*picture)->pixels, width, height, meshes, hands->view.count, err);
    free(meshes);
    if (status != TAP_OK) {
        free(*picture);
        *picture = NULL;
    }
    return status;
}

tap_status tap_hands_write_mesh(const tap_hands *hands, const char *path, tap_error *err)
{
    tap_mesh *meshes;
    TAP_TRY(make_meshes(&meshes, hands, err));
    tap_status status = tap_mesh_write(path, meshes, hands->view.count, err);
    free(meshes);
    return status;
}
