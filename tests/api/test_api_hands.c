/* A result of HaMeR's made of values from elsewhere, calls that are asked to stop, pictures as
 * bytes, and all of it in a child of fork(). */
#include "../models/mano_file.h"
#include "hands_scene.h"

#include <sys/wait.h>

static char mano[64];

static int write_mano(void **state)
{
    (void)state;
    struct mano_file made = make_mano(MANO_ORIGINAL, MANO_SOUND);
    snprintf(mano, sizeof mano, "/tmp/tap-test-hands-%ld.pkl", (long)getpid());
    FILE *file = fopen(mano, "wb");
    bool written = file != NULL && fwrite(made.bytes, 1, made.size, file) == made.size;
    if (file != NULL)
        written = fclose(file) == 0 && written;
    free(made.bytes);
    return written ? 0 : 1;
}

static int remove_mano(void **state)
{
    (void)state;
    return unlink(mano);
}

static const tap_hand_box both[2] = {{30, 20, 90, 90, true}, {60, 30, 130, 110, false}};

static void find_both(struct hands_scene *scene, tap_hands *hands)
{
    tap_error err;
    tap_hamer_options options;
    tap_hamer_options_init(&options);
    options.boxes = both;
    options.n_boxes = 2;
    assert_ok(tap_hamer_pixels(scene->session, &scene->image, &options, hands, &err), err);
}

static uint8_t *draw(struct hands_scene *scene, const tap_hands *hands, tap_hand_drawing how)
{
    tap_error err;
    tap_picture *picture;
    assert_ok(tap_picture_copy(&picture, &scene->image, &err), err);
    assert_ok(tap_draw_hands(picture, hands, how, &err), err);
    size_t n = sizeof scene->rgb;
    uint8_t *pixels = malloc(n);
    assert_non_null(pixels);
    memcpy(pixels, tap_picture_view(picture).data, n);
    tap_picture_free(picture);
    return pixels;
}

static void assembled_hands_are_the_same(void **state)
{
    (void)state;
    struct hands_scene scene;
    tap_error err;
    for (size_t with = 0; with < 2; with++) {
        open_hands(&scene, 2, with ? mano : "");
        find_both(&scene, scene.hands);
        tap_hands_view view = hands_view(scene.hands);
        tap_hand_view given[2] = {hand_view(scene.hands, 0), hand_view(scene.hands, 1)};
        assert_ok(tap_hands_assemble(scene.others, &view, given, &err), err);
        assert_int_equal(hands_view(scene.others).count, 2);
        for (size_t i = 0; i < 2; i++) {
            tap_hand_view other = hand_view(scene.others, i);
            assert_same_hand(&given[i], &other);
            assert_true(given[i].side == other.side && given[i].box.x2 == other.box.x2);
            for (size_t k = 0; with && k < 2 * TAP_HAND_JOINTS; k++)
                assert_float_equal(other.keypoints_crop[k], given[i].keypoints_crop[k], 1e-6);
            if (with)
                assert_memory_equal(other.faces, given[i].faces, TAP_HAND_FACES * 12);
        }
        for (int how = TAP_DRAW_BEST; how <= TAP_DRAW_BOX; how++) {
            if (!with && how != TAP_DRAW_BOX && how != TAP_DRAW_BEST)
                continue;
            uint8_t *a = draw(&scene, scene.hands, how), *b = draw(&scene, scene.others, how);
            assert_memory_equal(a, b, sizeof scene.rgb);
            assert_true(memcmp(a, scene.rgb, sizeof scene.rgb) != 0);
            free(a);
            free(b);
        }
        /* One of them alone: the left one, whose triangles are the only ones given. */
        view.count = 1;
        assert_ok(tap_hands_assemble(scene.others, &view, &given[1], &err), err);
        tap_hand_view alone = hand_view(scene.others, 0);
        assert_same_hand(&given[1], &alone);
        close_hands(&scene);
    }
}

static void wrong_values_are_told_so(void **state)
{
    (void)state;
    struct hands_scene scene;
    tap_error err;
    open_hands(&scene, 1, mano);
    find_both(&scene, scene.hands);
    const tap_hands_view view = hands_view(scene.hands);
    const tap_hand_view sound = hand_view(scene.hands, 0);
    float bad[TAP_HAND_VERTICES * 3] = {0};
    uint32_t *faces = calloc((size_t)TAP_HAND_FACES * 3, sizeof *faces);
    assert_non_null(faces);
    faces[4] = TAP_HAND_VERTICES;
    bad[7] = NAN;

    struct {
        tap_hands_view view;
        tap_hand_view hand;
        tap_status status;
        const char *says;
    } cases[12];
    for (size_t i = 0; i < 12; i++) {
        cases[i].view = view;
        cases[i].view.count = 1;
        cases[i].hand = sound;
        cases[i].status = TAP_ERR_ARGUMENT;
    }
    cases[0].view.size = 0, cases[0].says = "tap_hands_view: size";
    cases[1].hand.size = 0, cases[1].says = "hand 0: size";
    cases[2].view.count = TAP_HANDS_MAX + 1, cases[2].says = "257 hands";
    cases[2].status = TAP_ERR_LIMIT;
    cases[3].view.camera.fx = 0, cases[3].says = "fx";
    cases[4].hand.rotmats = NULL, cases[4].says = "hand 0: rotmats: is NULL";
    cases[5].hand.betas = bad, cases[5].says = "betas: value 7 is not finite";
    cases[6].hand.cam_t_full = NULL, cases[6].says = "cam_t_full";
    cases[7].hand.vertices = bad, cases[7].says = "vertices: value 7";
    cases[8].hand.joints = NULL, cases[8].says = "joints";
    cases[9].hand.faces = NULL, cases[9].says = "faces: is NULL";
    cases[10].hand.faces = faces, cases[10].says = "face 1 names vertex 778";
    cases[11].hand.cam = NULL, cases[11].says = "cam";
    for (size_t i = 0; i < 12; i++) {
        assert_fails(tap_hands_assemble(scene.others, &cases[i].view, &cases[i].hand, &err),
                     cases[i].status, err, cases[i].says);
        assert_int_equal(hands_view(scene.others).count, 0);
    }
    assert_fails(tap_hands_assemble(scene.others, &view, NULL, &err), TAP_ERR_ARGUMENT, err,
                 "NULL");
    free(faces);
    close_hands(&scene);
}

static bool once(void *user)
{
    int *left = user;
    return (*left)-- > 0;
}

static bool never(void *user, const char *what, uint64_t done, uint64_t total)
{
    (void)what;
    *(bool *)user = done > 0 && done <= total;
    return false;
}

static void a_call_stops_when_asked(void **state)
{
    (void)state;
    struct hands_scene scene;
    tap_error err;
    tap_hamer_options options;
    int left = 1;
    open_hands(&scene, 1, mano);
    tap_hamer_options_init(&options);
    options.boxes = both;
    options.n_boxes = 2;
    options.proceed = once;
    options.proceed_user = &left;
    assert_fails(tap_hamer_pixels(scene.session, &scene.image, &options, scene.hands, &err),
                 TAP_ERR_CANCELLED, err, "before hand 2 of 2");
    assert_int_equal(hands_view(scene.hands).count, 0);
    left = 2;
    assert_ok(tap_hamer_pixels(scene.session, &scene.image, &options, scene.hands, &err), err);
    close_hands(&scene);
}

static void a_load_stops_when_asked(void **state)
{
    (void)state;
    char path[64], to[64];
    bool called = false;
    tap_error err;
    tap_engine *engine;
    tap_model *model;
    tap_model_options options;
    tap_model_options_init(&options);
    options.progress = never;
    options.progress_user = &called;
    options.cache = options.mano = "";
    snprintf(path, sizeof path, "/tmp/tap-test-stop-%ld.safetensors", (long)getpid());
    snprintf(to, sizeof to, "/tmp/tap-test-stop-%ld-2.safetensors", (long)getpid());
    assert_ok(tap_synth_write("hamer-tiny", path, &err), err);
    assert_ok(tap_engine_open(&engine, NULL, &err), err);
    assert_fails(tap_model_load(&model, engine, path, &options, &err), TAP_ERR_CANCELLED, err,
                 "asked");
    assert_null(model);
    assert_true(called);
    assert_fails(tap_model_convert(path, to, NULL, never, &called, &err), TAP_ERR_CANCELLED, err,
                 "asked");
    assert_int_equal(access(to, F_OK), -1);
    tap_engine_release(engine);
    assert_int_equal(unlink(path), 0);
}

static void a_picture_becomes_bytes(void **state)
{
    (void)state;
    static const uint8_t starts[2][4] = {{0x89, 'P', 'N', 'G'}, {0xff, 0xd8, 0xff, 0xe0}};
    uint8_t gray[48 * 32];
    tap_image image = {gray, 48, 32, 0, TAP_PIXELS_GRAY};
    tap_picture *picture, *again;
    tap_error err;
    fill_scene(gray, 48, 32);
    assert_ok(tap_picture_copy(&picture, &image, &err), err);
    for (int encoding = TAP_ENCODING_PNG; encoding <= TAP_ENCODING_JPEG; encoding++) {
        uint8_t *bytes;
        size_t n;
        assert_ok(tap_picture_encode(picture, encoding, &bytes, &n, &err), err);
        assert_memory_equal(bytes, starts[encoding], 4);
        assert_ok(tap_picture_decode(&again, bytes, n, NULL, &err), err);
        tap_image a = tap_picture_view(picture), b = tap_picture_view(again);
        assert_true(a.width == b.width && a.height == b.height && a.format == b.format);
        if (encoding == TAP_ENCODING_PNG)
            assert_memory_equal(a.data, b.data, (size_t)48 * 32 * 3);
        tap_picture_free(again);
        tap_free(bytes);
    }
    uint8_t *none;
    size_t n;
    assert_fails(tap_picture_encode(picture, 2, &none, &n, &err), TAP_ERR_ARGUMENT, err, "2");
    assert_null(none);
    tap_picture_free(picture);
}

/* A child finds the same hands with its parent's model, on threads of its own, and so does the
 * parent afterwards. */
static void a_child_goes_on(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* whose run-time ends a child that starts threads */
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
    skip();
#endif
#endif
    struct hands_scene scene;
    open_hands(&scene, 3, mano);
    find_both(&scene, scene.hands);
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            int same = 1;
            if (round < 2) { /* the third lets go without a call */
                tap_hamer_options options;
                tap_hamer_options_init(&options);
                options.boxes = both;
                options.n_boxes = 2;
                same =
                    tap_hamer_pixels(scene.session, &scene.image, &options, scene.others, NULL) ==
                        TAP_OK &&
                    memcmp(hand_view(scene.hands, 1).vertices, hand_view(scene.others, 1).vertices,
                           sizeof(float[TAP_HAND_VERTICES * 3])) == 0;
            }
            close_hands(&scene);
            _exit(same ? 0 : 1);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    find_both(&scene, scene.others);
    tap_hand_view a = hand_view(scene.hands, 1), b = hand_view(scene.others, 1);
    assert_same_hand(&a, &b);
    close_hands(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(assembled_hands_are_the_same), cmocka_unit_test(wrong_values_are_told_so),
        cmocka_unit_test(a_call_stops_when_asked),      cmocka_unit_test(a_load_stops_when_asked),
        cmocka_unit_test(a_picture_becomes_bytes),      cmocka_unit_test(a_child_goes_on),
    };
    return cmocka_run_group_tests(tests, write_mano, remove_mano);
}
