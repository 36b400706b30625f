#include "scene.h"

static char weights[64];

static void defaults_open_and_describe_themselves(void **state)
{
    (void)state;
    tap_engine *engine;
    tap_error err;
    tap_engine_info info = {.size = sizeof info};
    assert_ok(tap_engine_open(&engine, NULL, &err), err);
    assert_int_equal(tap_engine_describe(engine, &info), TAP_OK);
    assert_string_equal(info.backend, "cpu");
    assert_true(info.n_threads >= 1 && info.isa[0] != '\0' && info.isa_reason[0] != '\0');
    assert_true(info.threads_reason[0] != '\0' && strstr(info.kernels, "\n") != NULL);
    info.size = 3;
    assert_int_equal(tap_engine_describe(engine, &info), TAP_ERR_ARGUMENT);
    tap_engine_release(engine);
    tap_engine_release(NULL);
}

static void wrong_options_are_named(void **state)
{
    (void)state;
    tap_engine *engine = (tap_engine *)1;
    tap_error err;
    tap_engine_options options;
    tap_engine_options_init(&options);
    options.backend = "gpu";
    assert_fails(tap_engine_open(&engine, &options, &err), TAP_ERR_ARGUMENT, err, "'gpu'");
    assert_null(engine);
    tap_engine_options_init(&options);
    options.isa = "sse9";
    assert_fails(tap_engine_open(&engine, &options, &err), TAP_ERR_ARGUMENT, err, "sse9");
    tap_engine_options_init(&options);
    options.n_threads = 257;
    assert_fails(tap_engine_open(&engine, &options, &err), TAP_ERR_ARGUMENT, err, "257");
    memset(&options, 0, sizeof options);
    assert_fails(tap_engine_open(&engine, &options, &err), TAP_ERR_ARGUMENT, err, "init");
}

/* A newer or an older caller's struct: what both know is read. */
static void options_of_another_size_work(void **state)
{
    (void)state;
    tap_error err;
    tap_engine *engine;
    tap_engine_info info = {.size = sizeof info};
    struct {
        tap_engine_options known;
        char future[64];
    } newer = {.known = {.size = sizeof newer, .n_threads = 3}};
    assert_ok(tap_engine_open(&engine, &newer.known, &err), err);
    assert_int_equal(tap_engine_describe(engine, &info), TAP_OK);
    assert_int_equal(info.n_threads, 3);
    assert_string_equal(info.threads_reason, "asked for");
    tap_engine_release(engine);
    tap_engine_options older = {.size = offsetof(tap_engine_options, n_threads), .n_threads = 999};
    assert_ok(tap_engine_open(&engine, &older, &err), err);
    tap_engine_release(engine);
}

static void versions_agree(void **state)
{
    (void)state;
    char header[32];
    snprintf(header, sizeof header, "%d.%d.%d", TAP_VERSION_MAJOR, TAP_VERSION_MINOR,
             TAP_VERSION_PATCH);
    assert_string_equal(tap_version(), header);
    assert_non_null(strstr(tap_build_info(), header));
}

static void log_line(void *user, tap_log_level level, const char *message)
{
    if (level == TAP_LOG_INFO)
        snprintf(user, 512, "%s", message);
}

static void models_pass_the_gate_and_describe_themselves(void **state)
{
    (void)state;
    char logged[512] = "";
    tap_error err;
    tap_engine *engine;
    tap_model *model;
    tap_engine_options options;
    tap_engine_options_init(&options);
    options.log = log_line;
    options.log_user = logged;
    assert_ok(tap_engine_open(&engine, &options, &err), err);
    assert_ok(tap_model_load(&model, engine, weights, NULL, &err), err);
    assert_non_null(strstr(logged, "superpoint, 1300865 parameters"));
    tap_model_info info = {.size = sizeof info};
    assert_int_equal(tap_model_describe(model, &info), TAP_OK);
    assert_string_equal(info.kind, "superpoint");
    assert_string_equal(info.format, "safetensors");
    assert_string_equal(info.path, weights);
    assert_non_null(strstr(info.licence, "non-commercial"));
    assert_int_equal(info.n_parameters, 1300865);
    assert_true(info.has_descriptors && info.descriptor_dim == 256);
    assert_true(info.gate_correlation >= 0.9999 && info.gate_correlation <= 1);
    assert_true(info.packed_bytes > 1300865);
    char *text;
    assert_ok(tap_model_plan(model, 640, 480, &text, &err), err);
    assert_non_null(strstr(text, "encoder.conv_blocks.0.conv_b"));
    assert_non_null(
        strstr(text, "14 operations, 26051.8 MMAC")); /* sum of docs/superpoint.md's table */
    tap_free(text);
    assert_fails(tap_model_plan(model, 639, 480, &text, &err), TAP_ERR_ARGUMENT, err, "639");
    tap_model_release(model);
    tap_engine_release(engine);
}

static void objects_may_be_let_go_in_any_order(void **state)
{
    (void)state;
    tap_engine *engine;
    tap_error err;
    tap_session *session;
    tap_keypoints *points;
    uint8_t gray[64 * 64];
    fill_scene(gray, 64, 64);
    tap_model *model = load_model(&engine, 1, weights);
    assert_ptr_equal(tap_model_retain(model), model);
    assert_ok(tap_session_create(&session, model, &err), err);
    assert_ok(tap_keypoints_create(&points, &err), err);
    tap_engine_release(engine);
    tap_model_release(model);
    tap_model_release(model);
    tap_image image = {gray, 64, 64, 0, TAP_PIXELS_GRAY};
    tap_superpoint_options options;
    tap_superpoint_options_init(&options);
    options.native = true;
    assert_ok(tap_superpoint_pixels(session, &image, &options, points, &err), err);
    tap_session_free(session);
    assert_true(view_of(points).count > 0);
    tap_keypoints_free(points);
}

static void wrong_models_are_named(void **state)
{
    (void)state;
    tap_engine *engine;
    tap_model *model = (tap_model *)1;
    tap_error err;
    assert_ok(tap_engine_open(&engine, NULL, &err), err);
    assert_fails(tap_model_load(&model, engine, "/nowhere/x.pth", NULL, &err), TAP_ERR_NOT_FOUND,
                 err, "/nowhere/x.pth");
    assert_null(model);
    assert_fails(tap_model_load(&model, engine, "", NULL, &err), TAP_ERR_ARGUMENT, err, "empty");
    assert_fails(tap_synth_write("yolo", "/tmp/x", &err), TAP_ERR_ARGUMENT, err, "'yolo'");
    tap_engine_release(engine);
}

static int set_up(void **state)
{
    (void)state;
    make_weights(weights);
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
        cmocka_unit_test(defaults_open_and_describe_themselves),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(options_of_another_size_work),
        cmocka_unit_test(versions_agree),
        cmocka_unit_test(models_pass_the_gate_and_describe_themselves),
        cmocka_unit_test(objects_may_be_let_go_in_any_order),
        cmocka_unit_test(wrong_models_are_named),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
