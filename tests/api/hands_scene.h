/* A model of synthetic weights, tiny, and pictures, for tests of HaMeR's public functions. */
#ifndef TAP_TESTS_HANDS_SCENE_H
#define TAP_TESTS_HANDS_SCENE_H

#include "scene.h"

#include <math.h>
#include <stdlib.h>

enum { SCENE_WIDTH = 160, SCENE_HEIGHT = 120 };

struct hands_scene {
    tap_engine *engine;
    tap_model *model;
    tap_session *session;
    tap_hands *hands, *others;
    uint8_t rgb[SCENE_HEIGHT * SCENE_WIDTH * 3], mirrored[SCENE_HEIGHT * SCENE_WIDTH * 3];
    tap_image image, mirror_image;
};

/* "tiny" synthetic weights; mano: "" for none, or a file. */
static inline void open_hands(struct hands_scene *scene, uint32_t n_threads, const char *mano)
{
    char path[64];
    tap_error err;
    tap_engine_options options;
    tap_model_options model_options;
    snprintf(path, sizeof path, "/tmp/tap-test-hands-%ld.safetensors", (long)getpid());
    assert_ok(tap_synth_write("hamer-tiny", path, &err), err);
    tap_engine_options_init(&options);
    options.n_threads = n_threads;
    tap_model_options_init(&model_options);
    model_options.skip_gate = true; /* one test loads with it */
    model_options.mano = mano;
    assert_ok(tap_engine_open(&scene->engine, &options, &err), err);
    tap_status status = tap_model_load(&scene->model, scene->engine, path, &model_options, &err);
    assert_int_equal(unlink(path), 0);
    assert_ok(status, err);
    assert_ok(tap_session_create(&scene->session, scene->model, &err), err);
    assert_ok(tap_hands_create(&scene->hands, &err), err);
    assert_ok(tap_hands_create(&scene->others, &err), err);
    uint8_t gray[SCENE_HEIGHT * SCENE_WIDTH];
    fill_scene(gray, SCENE_WIDTH, SCENE_HEIGHT);
    for (size_t y = 0; y < SCENE_HEIGHT; y++)
        for (size_t x = 0; x < SCENE_WIDTH; x++) {
            uint8_t level = gray[y * SCENE_WIDTH + x];
            uint8_t pixel[3] = {level, (uint8_t)(255 - level), (uint8_t)(level / 2 + y)};
            memcpy(scene->rgb + (y * SCENE_WIDTH + x) * 3, pixel, 3);
            memcpy(scene->mirrored + (y * SCENE_WIDTH + SCENE_WIDTH - 1 - x) * 3, pixel, 3);
        }
    scene->image = (tap_image){scene->rgb, SCENE_WIDTH, SCENE_HEIGHT, 0, TAP_PIXELS_RGB};
    scene->mirror_image = scene->image;
    scene->mirror_image.data = scene->mirrored;
}

static inline void close_hands(struct hands_scene *scene)
{
    tap_hands_free(scene->hands);
    tap_hands_free(scene->others);
    tap_session_free(scene->session);
    tap_model_release(scene->model);
    tap_engine_release(scene->engine);
}

static inline tap_hands_view hands_view(const tap_hands *hands)
{
    tap_hands_view view = {.size = sizeof view};
    assert_int_equal(tap_hands_get(hands, &view), TAP_OK);
    return view;
}

static inline tap_hand_view hand_view(const tap_hands *hands, size_t i)
{
    tap_hand_view view = {.size = sizeof view};
    assert_int_equal(tap_hands_at(hands, i, &view), TAP_OK);
    return view;
}

/* Equal to the last bit, mesh too where there is one. */
static inline void assert_same_hand(const tap_hand_view *a, const tap_hand_view *b)
{
    assert_int_equal(a->is_right, b->is_right);
    assert_memory_equal(a->rotmats, b->rotmats, 144 * sizeof(float));
    assert_memory_equal(a->rotmats_image, b->rotmats_image, 144 * sizeof(float));
    assert_memory_equal(a->axis_angle, b->axis_angle, 48 * sizeof(float));
    assert_memory_equal(a->betas, b->betas, 10 * sizeof(float));
    assert_memory_equal(a->cam, b->cam, 3 * sizeof(float));
    assert_memory_equal(a->cam_t, b->cam_t, 3 * sizeof(float));
    assert_memory_equal(a->cam_t_full, b->cam_t_full, 3 * sizeof(float));
    assert_true((a->vertices == NULL) == (b->vertices == NULL));
    if (a->vertices == NULL)
        return;
    assert_memory_equal(a->vertices, b->vertices, 3 * TAP_HAND_VERTICES * sizeof(float));
    assert_memory_equal(a->joints, b->joints, 3 * TAP_HAND_JOINTS * sizeof(float));
    assert_memory_equal(a->keypoints_2d, b->keypoints_2d, 2 * TAP_HAND_JOINTS * sizeof(float));
}

#endif
