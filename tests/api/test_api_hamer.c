/* HaMeR through the public functions: what must hold whatever the weights are. The reference data's
 * numbers are test_api_hamer_golden.c's. */
#include "hands_scene.h"

static struct hands_scene scene;

static tap_hamer_options options_of(const tap_hand_box *boxes, size_t n)
{
    tap_hamer_options options;
    tap_hamer_options_init(&options);
    options.boxes = boxes;
    options.n_boxes = n;
    return options;
}

static void find(tap_hands *hands, const tap_image *image, const tap_hamer_options *options)
{
    tap_error err;
    assert_ok(tap_hamer_pixels(scene.session, image, options, hands, &err), err);
}

static void two_boxes_are_two_single_calls(void **state)
{
    (void)state;
    const tap_hand_box boxes[] = {{20, 30, 90, 100, true}, {-30, -20, 60, 50, false}};
    tap_hamer_options both = options_of(boxes, 2);
    find(scene.hands, &scene.image, &both);
    tap_hands_view view = hands_view(scene.hands);
    assert_int_equal(view.count, 2);
    assert_int_equal(view.image_width, SCENE_WIDTH);
    assert_int_equal(view.image_height, SCENE_HEIGHT);
    assert_true(view.box_given);
    for (size_t i = 0; i < 2; i++) {
        tap_hamer_options one = options_of(&boxes[i], 1);
        find(scene.others, &scene.image, &one);
        tap_hand_view a = hand_view(scene.hands, i), b = hand_view(scene.others, 0);
        assert_same_hand(&a, &b);
        assert_memory_equal(&a.box, &boxes[i], sizeof(float[4]));
    }
    tap_hand_view past = {.size = sizeof past};
    assert_int_equal(tap_hands_at(scene.hands, 2, &past), TAP_ERR_ARGUMENT);
}

/* A left hand's numbers follow from its mirror image's. */
static void a_left_hand_is_a_mirrored_right_one(void **state)
{
    (void)state;
    const tap_hand_box left = {20, 30, 90, 100, false};
    const tap_hand_box right = {SCENE_WIDTH - 1 - 90, 30, SCENE_WIDTH - 1 - 20, 100, true};
    tap_hamer_options options = options_of(&left, 1);
    find(scene.hands, &scene.image, &options);
    options.boxes = &right;
    find(scene.others, &scene.mirror_image, &options);
    tap_hand_view l = hand_view(scene.hands, 0), r = hand_view(scene.others, 0);
    assert_memory_equal(l.rotmats, r.rotmats, 144 * sizeof(float));
    assert_memory_equal(l.betas, r.betas, 10 * sizeof(float));
    assert_memory_equal(l.cam, r.cam, 3 * sizeof(float));
    assert_memory_equal(l.cam_t, r.cam_t, 3 * sizeof(float));
    for (size_t i = 0; i < 144; i++) {
        bool flips = (i % 9 / 3 == 0) != (i % 3 == 0); /* M R M with M = diag(-1, 1, 1) */
        assert_true(l.rotmats_image[i] == (flips ? -r.rotmats[i] : r.rotmats[i]));
    }
    /* The frame's middle is not its own mirror image's pixel: W - 1 - x against W / 2. */
    double shift = 2 * (double)(l.center_x - (SCENE_WIDTH - 1 - r.center_x));
    assert_true(fabs(shift) < 1e-9);
    assert_true(fabs((double)l.cam_t_full[1] - (double)r.cam_t_full[1]) < 1e-6);
    assert_true(l.cam_t_full[2] == r.cam_t_full[2]);
}

static void without_a_box_the_middle_is_taken(void **state)
{
    (void)state;
    tap_hamer_options options = options_of(NULL, 0);
    find(scene.hands, &scene.image, &options);
    tap_hands_view view = hands_view(scene.hands);
    assert_int_equal(view.count, 1);
    assert_false(view.box_given);
    tap_hand_view hand = hand_view(scene.hands, 0);
    assert_true(hand.center_x == SCENE_WIDTH / 2.0 && hand.center_y == SCENE_HEIGHT / 2.0);
    assert_true(hand.side == SCENE_HEIGHT);
    /* The same square as a box of its own gives the same. */
    const tap_hand_box box = {20, 0, 140, 120, true};
    tap_hamer_options given = options_of(&box, 1);
    given.rescale_factor = 1;
    find(scene.others, &scene.image, &given);
    tap_hand_view other = hand_view(scene.others, 0);
    assert_same_hand(&hand, &other);
    options.is_right = false;
    find(scene.hands, &scene.image, &options);
    assert_false(hand_view(scene.hands, 0).is_right);
}

static void no_boxes_are_no_hands(void **state)
{
    (void)state;
    const tap_hand_box box = {20, 30, 90, 100, true};
    tap_hamer_options options = options_of(&box, 1);
    find(scene.hands, &scene.image, &options);
    options.n_boxes = 0;
    find(scene.hands, &scene.image, &options);
    assert_int_equal(hands_view(scene.hands).count, 0);
    assert_true(hands_view(scene.hands).box_given);
}

/* docs/hamer.md's formula, by itself. */
static void check_translation(const tap_hamer_options *options, double f, double cx, double cy)
{
    find(scene.hands, &scene.image, options);
    tap_hand_view hand = hand_view(scene.hands, 0);
    double k = hand.side * (double)hand.cam[0] + 1e-9;
    double wanted[3] = {2 * (hand.center_x - cx) / k + (double)hand.cam[1],
                        2 * (hand.center_y - cy) / k + (double)hand.cam[2], 2 * f / k};
    for (size_t i = 0; i < 3; i++)
        assert_true(fabs(hand.cam_t_full[i] - wanted[i]) <= 1e-5 * fmax(1, fabs(wanted[i])));
}

static void the_users_camera_is_used(void **state)
{
    (void)state;
    const tap_hand_box box = {20, 30, 90, 100, true};
    tap_hamer_options options = options_of(&box, 1);
    check_translation(&options, 5000.0 / 256 * SCENE_WIDTH, SCENE_WIDTH / 2.0, SCENE_HEIGHT / 2.0);
    tap_hands_view view = hands_view(scene.hands);
    assert_true(view.camera.fx == 5000.0 / 256 * SCENE_WIDTH && view.camera.fy == view.camera.fx);
    options.camera = (tap_hand_camera){600, 600, 100, 20};
    check_translation(&options, 600, 100, 20);
    view = hands_view(scene.hands);
    assert_memory_equal(&view.camera, &options.camera, sizeof view.camera);
    options.camera.fy = 150;
    /* The offset in pixels is divided by its own focal length, times the depth. */
    find(scene.hands, &scene.image, &options);
    tap_hand_view hand = hand_view(scene.hands, 0);
    assert_true(fabs((double)hand.cam_t_full[2] -
                     2 * 300 / (hand.side * (double)hand.cam[0] + 1e-9)) < 1e-3);
}

/* The crop as a picture of its own, and as numbers. */
static void a_ready_crop_is_taken_as_it_is(void **state)
{
    (void)state;
    enum { SIDE = 256, WIDTH = 192, N = SIDE * SIDE * 3 };
    static const double mean[] = {0.485, 0.456, 0.406}, deviation[] = {0.229, 0.224, 0.225};
    static uint8_t pixels[N], mirrored[N];
    static float planes[3 * SIDE * SIDE];
    tap_error err;
    for (size_t y = 0; y < SIDE; y++)
        for (size_t x = 0; x < SIDE; x++)
            for (size_t c = 0; c < 3; c++) {
                uint8_t level = (uint8_t)(x * (c + 1) + y * 3 + (x / 16 * 31 ^ y / 16 * 17));
                pixels[(y * SIDE + x) * 3 + c] = level;
                mirrored[(y * SIDE + SIDE - 1 - x) * 3 + c] = level;
                planes[(c * SIDE + y) * SIDE + x] =
                    (float)((level - 255 * mean[c]) / (255 * deviation[c]));
            }
    tap_hamer_options options;
    tap_hamer_options_init(&options);
    options.ready = true;
    tap_image square = {pixels, SIDE, SIDE, 0, TAP_PIXELS_RGB};
    find(scene.hands, &square, &options);
    tap_hand_view whole = hand_view(scene.hands, 0);
    assert_null(whole.cam_t_full);
    assert_false(hands_view(scene.hands).box_given);
    tap_image narrow = {pixels + 32 * 3, WIDTH, SIDE, SIDE * 3, TAP_PIXELS_RGB};
    find(scene.others, &narrow, &options);
    tap_hand_view middle = hand_view(scene.others, 0);
    assert_memory_equal(whole.rotmats, middle.rotmats, 144 * sizeof(float));
    assert_memory_equal(whole.cam, middle.cam, 3 * sizeof(float));
    /* A left hand's crop is mirrored for the network. */
    tap_image left = {mirrored, SIDE, SIDE, 0, TAP_PIXELS_RGB};
    options.is_right = false;
    find(scene.others, &left, &options);
    middle = hand_view(scene.others, 0);
    assert_memory_equal(whole.rotmats, middle.rotmats, 144 * sizeof(float));
    assert_ok(tap_hamer_crops(scene.session, planes, 1, SIDE, scene.others, &err), err);
    middle = hand_view(scene.others, 0);
    for (size_t i = 0; i < 144; i++)
        assert_true(fabsf(whole.rotmats[i] - middle.rotmats[i]) <= 1e-6f);
    assert_memory_equal(middle.cam_t, whole.cam_t, 2 * sizeof(float));
    tap_image wrong = {pixels, 200, SIDE, SIDE * 3, TAP_PIXELS_RGB};
    assert_int_equal(tap_hamer_pixels(scene.session, &wrong, &options, scene.others, &err),
                     TAP_ERR_ARGUMENT);
    assert_int_equal(hands_view(scene.others).count, 0);
}

/* An encoded picture and its pixels give the same; the orientation is applied unless told not to.
 */
static void every_way_in_is_the_same(void **state)
{
    (void)state;
    tap_error err;
    tap_picture *picture;
    char path[64];
    const tap_hand_box box = {20, 30, 90, 100, true};
    tap_hamer_options options = options_of(&box, 1);
    snprintf(path, sizeof path, "/tmp/tap-test-hands-%ld.png", (long)getpid());
    assert_ok(tap_picture_copy(&picture, &scene.image, &err), err);
    assert_ok(tap_picture_write(picture, path, &err), err);
    tap_picture_free(picture);
    find(scene.hands, &scene.image, &options);
    assert_ok(tap_hamer_file(scene.session, path, &options, scene.others, &err), err);
    assert_int_equal(unlink(path), 0);
    tap_hand_view a = hand_view(scene.hands, 0), b = hand_view(scene.others, 0);
    assert_same_hand(&a, &b);
    tap_hands_view view = hands_view(scene.others);
    assert_int_equal(view.exif_orientation, 1);
    assert_true(view.total_ms >= view.decode_ms + view.preprocess_ms + view.network_ms);
    assert_int_equal(tap_hamer_file(scene.session, "/no/such", &options, scene.others, &err),
                     TAP_ERR_NOT_FOUND);
    assert_int_equal(hands_view(scene.others).count, 0);
}

static void wrong_calls_are_told_so(void **state)
{
    (void)state;
    static const struct {
        tap_hand_box box;
        const char *says;
    } boxes[] = {{{NAN, 0, 50, 50, true}, "box"},       {{0, 0, INFINITY, 50, true}, "box"},
                 {{50, 0, 20, 50, true}, "box"},        {{20, 50, 50, 20, true}, "box"},
                 {{20, 20, 20, 50, true}, "box"},       {{0, 0, 0.1f, 0.1f, true}, "pixel"},
                 {{200, 10, 260, 60, true}, "160x120"}, {{10, 200, 60, 260, true}, "160x120"},
                 {{-60, 10, -10, 60, true}, "outside"}, {{10, -60, 60, -10, true}, "outside"}};
    tap_error err;
    for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++) {
        tap_hamer_options options = options_of(&boxes[i].box, 1);
        assert_int_equal(tap_hamer_pixels(scene.session, &scene.image, &options, scene.hands, &err),
                         TAP_ERR_ARGUMENT);
        assert_non_null(strstr(err.message, boxes[i].says));
        assert_int_equal(hands_view(scene.hands).count, 0);
    }
    static tap_hand_box many[TAP_HANDS_MAX + 1];
    for (size_t i = 0; i <= TAP_HANDS_MAX; i++)
        many[i] = (tap_hand_box){0, 0, 50, 50, true};
    tap_hamer_options options = options_of(many, TAP_HANDS_MAX + 1);
    assert_int_equal(tap_hamer_pixels(scene.session, &scene.image, &options, scene.hands, &err),
                     TAP_ERR_LIMIT);
    struct {
        tap_hamer_options options;
        const char *says;
    } wrong[] = {{options_of(many, 1), "rescale_factor"},
                 {options_of(many, 1), "rescale_factor"},
                 {options_of(many, 1), "policy"},
                 {options_of(many, 1), "exif"},
                 {options_of(NULL, 1), "boxes"},
                 {options_of(many, 1), "fx"},
                 {options_of(many, 1), "cy"},
                 {options_of(many, 1), "boxes"},
                 {options_of(many, 1), "size"}};
    wrong[0].options.rescale_factor = 0;
    wrong[1].options.rescale_factor = INFINITY;
    wrong[2].options.policy = (tap_hand_policy)7;
    wrong[3].options.exif = (tap_exif)7;
    wrong[5].options.camera = (tap_hand_camera){-1, 1, 0, 0};
    wrong[6].options.camera = (tap_hand_camera){1, 1, 0, (double)NAN};
    wrong[7].options.ready = true;
    wrong[8].options.size = 0;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(
            tap_hamer_pixels(scene.session, &scene.image, &wrong[i].options, scene.hands, &err),
            TAP_ERR_ARGUMENT);
        assert_non_null(strstr(err.message, wrong[i].says));
    }
    float crop[3] = {0};
    assert_int_equal(tap_hamer_crops(scene.session, crop, 1, 200, scene.hands, &err),
                     TAP_ERR_ARGUMENT);
    assert_int_equal(tap_hamer_crops(scene.session, NULL, 1, 192, scene.hands, &err),
                     TAP_ERR_ARGUMENT);
    assert_ok(tap_hamer_crops(scene.session, NULL, 0, 192, scene.hands, &err), err);
    assert_int_equal(hands_view(scene.hands).count, 0);
}

static void a_session_serves_its_own_kind(void **state)
{
    (void)state;
    tap_error err;
    tap_keypoints *points;
    assert_ok(tap_keypoints_create(&points, &err), err);
    assert_int_equal(tap_superpoint_pixels(scene.session, &scene.image, NULL, points, &err),
                     TAP_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "HaMeR"));
    tap_keypoints_free(points);
}

static void without_mano_there_is_no_mesh(void **state)
{
    (void)state;
    tap_error err;
    tap_picture *picture, *side;
    const tap_hand_box box = {20, 30, 90, 100, true};
    tap_hamer_options options = options_of(&box, 1);
    find(scene.hands, &scene.image, &options);
    assert_false(hands_view(scene.hands).mano_available);
    tap_hand_view hand = hand_view(scene.hands, 0);
    assert_true(hand.vertices == NULL && hand.joints == NULL && hand.keypoints_2d == NULL &&
                hand.faces == NULL);
    assert_int_equal(tap_hands_write_mesh(scene.hands, "/tmp/none.obj", &err), TAP_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "MANO"));
    assert_int_equal(tap_draw_hands_side(&side, scene.hands, 64, 64, &err), TAP_ERR_ARGUMENT);
    assert_null(side);
    assert_ok(tap_picture_copy(&picture, &scene.image, &err), err);
    assert_int_equal(tap_draw_hands(picture, scene.hands, TAP_DRAW_MESH, &err), TAP_ERR_ARGUMENT);
    assert_int_equal(tap_draw_hands(picture, scene.hands, TAP_DRAW_SKELETON, &err),
                     TAP_ERR_ARGUMENT);
    assert_memory_equal(tap_picture_view(picture).data, scene.rgb, sizeof scene.rgb);
    assert_ok(tap_draw_hands(picture, scene.hands, TAP_DRAW_BEST, &err), err);
    assert_memory_not_equal(tap_picture_view(picture).data, scene.rgb, sizeof scene.rgb);
    tap_picture_free(picture);
}

static void the_check_agrees_with_the_reference(void **state)
{
    (void)state;
    enum { N = 2, VALUES = 3 * 256 * 192 };
    static float crops[N * VALUES];
    float values[N * 157];
    tap_error err;
    tap_check check = {.size = sizeof check};
    for (size_t i = 0; i < N * VALUES; i++)
        crops[i] = (float)((i * 2654435761u >> 8) % 1000) / 250 - 2;
    assert_ok(tap_hamer_check(scene.session, crops, N, 192, NULL, values, &check, &err), err);
    assert_int_equal(check.n_crops, N);
    assert_true(check.correlation > 0.9999999 && check.max_error < 1e-5);
    assert_true(check.mean_error > 0 && check.mean_error < check.max_error);
    /* Against numbers that are off, it says by how much. */
    values[157 + 30] += 0.5f;
    assert_ok(tap_hamer_check(scene.session, crops, N, 192, values, NULL, &check, &err), err);
    assert_true(fabs(check.max_error - 0.5) < 1e-4 && check.correlation < 0.9999);
    assert_int_equal(tap_hamer_check(scene.session, crops, 0, 192, NULL, NULL, &check, &err),
                     TAP_ERR_ARGUMENT);
}

static void the_model_describes_itself(void **state)
{
    (void)state;
    char *text;
    tap_error err;
    tap_model_info info = {.size = sizeof info};
    assert_int_equal(tap_model_describe(scene.model, &info), TAP_OK);
    assert_string_equal(info.kind, "hamer");
    assert_string_equal(info.precision, "f32");
    assert_false(info.mano_available);
    assert_false(info.has_descriptors);
    assert_ok(tap_model_plan(scene.model, 0, 0, &text, &err), err);
    assert_non_null(strstr(text, "backbone.blocks.1.mlp.fc2"));
    tap_free(text);
    assert_int_equal(tap_model_plan(scene.model, 640, 480, &text, &err), TAP_ERR_ARGUMENT);
}

static int open_scene(void **state)
{
    (void)state;
    open_hands(&scene, 2, "");
    return 0;
}

static int close_scene(void **state)
{
    (void)state;
    close_hands(&scene);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_boxes_are_two_single_calls),
        cmocka_unit_test(a_left_hand_is_a_mirrored_right_one),
        cmocka_unit_test(without_a_box_the_middle_is_taken),
        cmocka_unit_test(no_boxes_are_no_hands),
        cmocka_unit_test(the_users_camera_is_used),
        cmocka_unit_test(a_ready_crop_is_taken_as_it_is),
        cmocka_unit_test(every_way_in_is_the_same),
        cmocka_unit_test(wrong_calls_are_told_so),
        cmocka_unit_test(a_session_serves_its_own_kind),
        cmocka_unit_test(without_mano_there_is_no_mesh),
        cmocka_unit_test(the_check_agrees_with_the_reference),
        cmocka_unit_test(the_model_describes_itself),
    };
    return cmocka_run_group_tests(tests, open_scene, close_scene);
}
