/* Memory: a call allocates nothing once it is warm, and every single allocation may fail. The
 * linker sends our allocations to counting.c (see CMakeLists.txt). */
#include "counting.h"
#include "scene.h"

static char weights[64];
static uint8_t gray[64 * 48];
static const tap_image image = {gray, 64, 48, 0, TAP_PIXELS_GRAY};

static void a_warm_call_allocates_nothing(void **state)
{
    (void)state;
    tap_engine *engine;
    tap_session *session;
    tap_keypoints *points;
    tap_error err;
    tap_superpoint_options options;
    tap_superpoint_options_init(&options);
    options.width = 96; /* resizing takes part */
    options.height = 72;
    tap_model *model = load_model(&engine, 2, weights);
    assert_ok(tap_session_create(&session, model, &err), err);
    assert_ok(tap_keypoints_create(&points, &err), err);
    assert_ok(tap_superpoint_pixels(session, &image, &options, points, &err), err);
    size_t before = n_allocations;
    assert_true(before > 10); /* the counting itself works */
    for (size_t i = 0; i < 3; i++)
        assert_ok(tap_superpoint_pixels(session, &image, &options, points, &err), err);
    assert_int_equal(n_allocations - before, 0);
    tap_keypoints_free(points);
    tap_session_free(session);
    tap_model_release(model);
    tap_engine_release(engine);
}

/* Everything from opening an engine to an NPZ in memory. */
static tap_status whole_life(tap_error *err)
{
    tap_engine *engine = NULL;
    tap_model *model = NULL;
    tap_session *session = NULL;
    tap_keypoints *points = NULL;
    tap_picture *picture = NULL, *both = NULL;
    uint8_t *npz = NULL;
    size_t n_npz, n_matches;
    tap_match_pair match[100];
    tap_superpoint_options options;
    tap_model_options load = {.size = sizeof load, .skip_gate = true};
    tap_keypoints_view view = {.size = sizeof view};
    tap_superpoint_options_init(&options);
    options.width = 64;
    options.height = 40;
    options.max_keypoints = 100;
    tap_status status = tap_engine_open(&engine, NULL, err);
    if (status == TAP_OK)
        status = tap_model_load(&model, engine, weights, &load, err);
    if (status == TAP_OK)
        status = tap_session_create(&session, model, err);
    if (status == TAP_OK)
        status = tap_keypoints_create(&points, err);
    if (status == TAP_OK)
        status = tap_superpoint_pixels(session, &image, &options, points, err);
    if (status == TAP_OK)
        status = tap_keypoints_npz(points, 15, &npz, &n_npz, err);
    if (status == TAP_OK)
        status = tap_picture_copy(&picture, &image, err);
    if (status == TAP_OK) {
        tap_keypoints_get(points, &view);
        status = tap_match(engine, view.descriptors, view.count, view.descriptors, view.count, 256,
                           NULL, match, &n_matches, err);
    }
    if (status == TAP_OK)
        status = tap_draw_matches(&both, picture, &view, picture, &view, match, n_matches, err);
    tap_free(npz);
    tap_picture_free(picture);
    tap_picture_free(both);
    tap_keypoints_free(points);
    tap_session_free(session);
    tap_model_release(model);
    tap_engine_release(engine);
    return status;
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    tap_error err;
    n_allocations = 0;
    fail_at = 0;
    assert_ok(whole_life(&err), err);
    size_t total = n_allocations;
    assert_true(total > 20 && total < 5000);
    size_t survived = 0;
    for (size_t k = 1; k <= total; k++) {
        n_allocations = 0;
        fail_at = k;
        tap_status status = whole_life(&err);
        fail_at = 0;
        if (status == TAP_OK)
            survived++; /* an allocation that we can do without */
        else if (status != TAP_ERR_MEMORY)
            fail_msg("allocation %zu of %zu: %s: %s", k, total, tap_status_name(status),
                     err.message);
    }
    assert_true(survived < total / 10);
}

static int set_up(void **state)
{
    (void)state;
    make_weights(weights);
    fill_scene(gray, 64, 48);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(weights);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_warm_call_allocates_nothing),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
