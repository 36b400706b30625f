/* HaMeR's memory: a call allocates nothing once it is warm, mesh included, and every single
 * allocation may fail. */
#include "counting.h"
#include "hands_scene.h"

#include "../models/mano_file.h"

static const tap_hand_box boxes[] = {{20, 30, 90, 100, true}, {-30, -20, 60, 50, false}};
static char mano[64], weights[64];

static tap_hamer_options two_hands(void)
{
    tap_hamer_options options;
    tap_hamer_options_init(&options);
    options.boxes = boxes;
    options.n_boxes = 2;
    return options;
}

static void a_warm_call_allocates_nothing(void **state)
{
    (void)state;
    struct hands_scene scene;
    tap_error err;
    tap_hamer_options options = two_hands();
    open_hands(&scene, 2, mano);
    assert_ok(tap_hamer_pixels(scene.session, &scene.image, &options, scene.hands, &err), err);
    assert_non_null(hand_view(scene.hands, 0).vertices);
    size_t before = n_allocations;
    assert_true(before > 10); /* the counting itself works */
    for (size_t i = 0; i < 3; i++)
        assert_ok(tap_hamer_pixels(scene.session, &scene.image, &options, scene.hands, &err), err);
    assert_int_equal(n_allocations - before, 0);
    options.n_boxes = 1; /* for one hand the network is compiled again, once */
    assert_ok(tap_hamer_pixels(scene.session, &scene.image, &options, scene.hands, &err), err);
    before = n_allocations;
    for (size_t i = 0; i < 3; i++)
        assert_ok(tap_hamer_pixels(scene.session, &scene.image, &options, scene.hands, &err), err);
    assert_int_equal(n_allocations - before, 0);
    close_hands(&scene);
}

/* Everything from opening an engine to a picture of the mesh. */
static tap_status whole_life(tap_error *err)
{
    static uint8_t pixels[48 * 64 * 3];
    const tap_image image = {pixels, 64, 48, 0, TAP_PIXELS_RGB};
    tap_engine *engine = NULL;
    tap_model *model = NULL;
    tap_session *session = NULL;
    tap_hands *hands = NULL;
    tap_picture *picture = NULL;
    tap_hamer_options options = two_hands();
    tap_model_options load;
    tap_model_options_init(&load);
    load.skip_gate = true;
    load.mano = mano;
    tap_status status = tap_engine_open(&engine, NULL, err);
    if (status == TAP_OK)
        status = tap_model_load(&model, engine, weights, &load, err);
    if (status == TAP_OK)
        status = tap_session_create(&session, model, err);
    if (status == TAP_OK)
        status = tap_hands_create(&hands, err);
    if (status == TAP_OK)
        status = tap_hamer_pixels(session, &image, &options, hands, err);
    if (status == TAP_OK)
        status = tap_picture_copy(&picture, &image, err);
    if (status == TAP_OK)
        status = tap_draw_hands(picture, hands, TAP_DRAW_BEST, err);
    tap_picture_free(picture);
    tap_hands_free(hands);
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
    size_t total = n_allocations, survived = 0;
    assert_true(total > 50);
    size_t step = 1 + total / 400; /* of thousands, some hundred */
    for (size_t k = 1; k <= total; k += step) {
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
    printf("%zu allocations, every %zu. failed once\n", total, step);
    assert_true(survived < total / step / 10 + 1);
}

static int set_up(void **state)
{
    (void)state;
    tap_error err;
    struct mano_file file = make_mano(MANO_ORIGINAL, MANO_SOUND);
    snprintf(mano, sizeof mano, "/tmp/tap-test-memory-%ld.pkl", (long)getpid());
    snprintf(weights, sizeof weights, "/tmp/tap-test-memory-%ld.safetensors", (long)getpid());
    FILE *to = fopen(mano, "wb");
    assert_non_null(to);
    assert_int_equal(fwrite(file.bytes, 1, file.size, to), file.size);
    assert_int_equal(fclose(to), 0);
    free(file.bytes);
    assert_ok(tap_synth_write("hamer-tiny", weights, &err), err);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(mano) | unlink(weights);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_warm_call_allocates_nothing),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
