/* A made-up scene and synthetic weights, for tests of the public functions that need no files of
 * others: what comes out is noise, but the same noise whatever the path it took. */
#ifndef TAP_TESTS_SCENE_H
#define TAP_TESTS_SCENE_H

#include "check.h"

#include "tapetum.h"

/* Bright and dark rectangles on a gradient: corners, edges and flat parts. */
static inline void fill_scene(uint8_t *gray, uint32_t width, uint32_t height)
{
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++) {
            uint32_t tile = (x / 23 * 7 + y / 17 * 13) % 11;
            gray[y * width + x] = (uint8_t)(tile * 20 + (x + y) % 32);
        }
}

/* Synthetic weights in a temporary file; released by remove_weights. */
static inline const char *make_weights(char path[64])
{
    tap_error err;
    snprintf(path, 64, "/tmp/tap-test-weights-%ld.safetensors", (long)getpid());
    assert_ok(tap_synth_write("superpoint", path, &err), err);
    return path;
}

static inline tap_model *load_model(tap_engine **engine, uint32_t n_threads, const char *path)
{
    tap_error err;
    tap_model *model;
    tap_engine_options options;
    tap_model_options model_options;
    tap_engine_options_init(&options);
    tap_model_options_init(&model_options);
    options.n_threads = n_threads;
    model_options.skip_gate = true; /* one test loads with it */
    assert_ok(tap_engine_open(engine, &options, &err), err);
    assert_ok(tap_model_load(&model, *engine, path, &model_options, &err), err);
    return model;
}

static inline tap_keypoints_view view_of(const tap_keypoints *points)
{
    tap_keypoints_view view = {.size = sizeof view};
    assert_int_equal(tap_keypoints_get(points, &view), TAP_OK);
    return view;
}

/* Equal to the last bit: points, scores and descriptors. */
static inline void assert_same_result(const tap_keypoints *one, const tap_keypoints *other)
{
    tap_keypoints_view a = view_of(one), b = view_of(other);
    assert_int_equal(a.count, b.count);
    assert_int_equal(a.descriptor_dim, b.descriptor_dim);
    assert_memory_equal(a.xy, b.xy, a.count * 2 * sizeof(float));
    assert_memory_equal(a.scores, b.scores, a.count * sizeof(float));
    if (a.descriptor_dim > 0)
        assert_memory_equal(a.descriptors, b.descriptors,
                            a.count * a.descriptor_dim * sizeof(float));
}

#endif
