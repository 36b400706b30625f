/* HaMeR from a JPEG and a box to pixels, against the authors' code: network `tiny` of synthetic
 * weights, a made-up MANO file of the real one's structure. Tolerances: the reference data's
 * README, "Suggested bounds". */
#include "hands_scene.h"

#include "models/arrays.h"

enum { N_CASES = 4 };

/* golden/hamer/cases.json's. */
static const struct {
    const char *picture;
    tap_hand_box box;
    float rescale_factor;
} cases[N_CASES] = {{"test2.jpg", {218, 38, 378, 200, true}, 2},
                    {"test2.jpg", {318, 240, 540, 452, false}, 2},
                    {"test1.jpg", {257, 157, 381, 345, true}, 2},
                    {"test3.jpg", {300, 190, 640, 560, false}, 2.5f}};

static struct hands_scene scene;

static const char *golden(char *path, size_t size, const char *name)
{
    char below[128];
    snprintf(below, sizeof below, "golden/hamer/%s", name);
    return shared_path(path, size, below);
}

/* Opened by the first test, since only a test can be skipped. */
static void open_scene(void)
{
    char path[300];
    const char *mano = golden(path, sizeof path, "MANO_RIGHT_synthetic.pkl");
    if (scene.engine == NULL)
        open_hands(&scene, 2, mano);
}

struct wanted {
    const char *name;
    size_t n;
    double tolerance;
    bool mirrored; /* the file has the right hand's; x is the left one's with the other sign */
};

static const float *part(const tap_hand_view *hand, size_t i)
{
    const float *const parts[] = {hand->rotmats, hand->betas,          hand->cam,
                                  hand->cam_t,   hand->cam_t_full,     hand->vertices,
                                  hand->joints,  hand->keypoints_crop, hand->keypoints_2d};
    return parts[i];
}

static void check_case(size_t which, const tap_hand_view *hand, const char *set)
{
    static const struct wanted parts[] = {{"rotmats", 144, 1e-5, false},
                                          {"betas", 10, 1e-5, false},
                                          {"cam", 3, 1e-5, false},
                                          {"cam_t", 3, 1e-4, false},
                                          {"cam_t_full", 3, 1e-4, false},
                                          {"vertices", 3 * TAP_HAND_VERTICES, 1e-6, true},
                                          {"joints", 3 * TAP_HAND_JOINTS, 1e-6, true},
                                          {"kp2d_crop", 2 * TAP_HAND_JOINTS, 1e-5, false},
                                          {"kp2d_full_persp", 2 * TAP_HAND_JOINTS, 5e-3, false}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const struct wanted *wanted = &parts[i];
        char name[64], path[300];
        snprintf(name, sizeof name, "%s_%s.npy", set, wanted->name);
        struct array array = load_npy(golden(path, sizeof path, name));
        assert_int_equal(array.n, N_CASES * wanted->n);
        const float *theirs = array.values + which * wanted->n, *ours = part(hand, i);
        double most = 0;
        for (size_t j = 0; j < wanted->n; j++) {
            bool flips = wanted->mirrored && !hand->is_right && j % 3 == 0;
            double value = flips ? -(double)ours[j] : (double)ours[j];
            double difference = fabs(value - (double)theirs[j]);
            most = difference > most || isnan(difference) ? difference : most;
        }
        if (!(most <= wanted->tolerance))
            fail_msg("%s, case %zu: %.3e is more than %.1e", name, which, most, wanted->tolerance);
        free_array(&array);
    }
}

static void run_cases(tap_hand_policy policy, const char *set)
{
    for (size_t i = 0; i < N_CASES; i++) {
        char path[300];
        tap_error err;
        tap_hamer_options options;
        tap_hamer_options_init(&options);
        options.boxes = &cases[i].box;
        options.n_boxes = 1;
        options.rescale_factor = cases[i].rescale_factor;
        options.policy = policy;
        assert_ok(tap_hamer_file(scene.session, golden(path, sizeof path, cases[i].picture),
                                 &options, scene.hands, &err),
                  err);
        tap_hand_view hand = hand_view(scene.hands, 0);
        check_case(i, &hand, set);
    }
}

static void served_boxes_give_the_authors_numbers(void **state)
{
    (void)state;
    open_scene();
    run_cases(TAP_HAND_SERVED, "e2e_served_tiny");
}

static void demo_boxes_give_the_authors_numbers(void **state)
{
    (void)state;
    open_scene();
    run_cases(TAP_HAND_DEMO, "e2e_tiny");
}

/* "Projecting the answer's joints with the answer's camera gives its keypoints_2d". */
static void joints_project_onto_their_keypoints(void **state)
{
    (void)state;
    open_scene();
    static const tap_hand_camera cameras[] = {{0}, {600, 600, 77, 301}, {900, 500, 300, 200}};
    for (size_t i = 0; i < N_CASES * 3; i++) {
        char path[300];
        tap_error err;
        tap_hamer_options options;
        tap_hamer_options_init(&options);
        options.boxes = &cases[i / 3].box;
        options.n_boxes = 1;
        options.camera = cameras[i % 3];
        assert_ok(tap_hamer_file(scene.session, golden(path, sizeof path, cases[i / 3].picture),
                                 &options, scene.hands, &err),
                  err);
        tap_hands_view view = hands_view(scene.hands);
        tap_hand_view hand = hand_view(scene.hands, 0);
        for (size_t j = 0; j < TAP_HAND_JOINTS; j++) {
            double at[3];
            for (size_t k = 0; k < 3; k++)
                at[k] = (double)hand.joints[3 * j + k] + (double)hand.cam_t_full[k];
            double x = view.camera.fx * at[0] / at[2] + view.camera.cx;
            double y = view.camera.fy * at[1] / at[2] + view.camera.cy;
            assert_true(fabs(x - (double)hand.keypoints_2d[2 * j]) < 1e-3);
            assert_true(fabs(y - (double)hand.keypoints_2d[2 * j + 1]) < 1e-3);
        }
    }
}

/* The whole is the sum of its parts: pictures of all kinds are drawn, mesh files are written. */
static void pictures_and_meshes_come_out(void **state)
{
    (void)state;
    open_scene();
    static const char *const endings[] = {"obj", "ply", "glb"};
    char path[300];
    tap_error err;
    size_t size;
    tap_hamer_options options;
    tap_hamer_options_init(&options);
    const tap_hand_box boxes[] = {cases[0].box, cases[1].box};
    options.boxes = boxes;
    options.n_boxes = 2;
    unsigned char *bytes = load_bytes(golden(path, sizeof path, "test2.jpg"), &size);
    assert_ok(tap_hamer_encoded(scene.session, bytes, size, &options, scene.hands, &err), err);
    for (int drawing = TAP_DRAW_BEST; drawing <= TAP_DRAW_BOX; drawing++) {
        tap_picture *before, *after;
        assert_ok(tap_picture_decode(&before, bytes, size, NULL, &err), err);
        assert_ok(tap_picture_decode(&after, bytes, size, NULL, &err), err);
        assert_ok(tap_draw_hands(after, scene.hands, (tap_hand_drawing)drawing, &err), err);
        tap_image a = tap_picture_view(before), b = tap_picture_view(after);
        assert_memory_not_equal(a.data, b.data, (size_t)a.width * a.height * 3);
        tap_picture_free(before);
        tap_picture_free(after);
    }
    tap_picture *side;
    assert_ok(tap_draw_hands_side(&side, scene.hands, 320, 240, &err), err);
    assert_int_equal(tap_picture_view(side).width, 320);
    tap_picture_free(side);
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "/tmp/tap-test-mesh-%ld.%s", (long)getpid(), endings[i]);
        assert_ok(tap_hands_write_mesh(scene.hands, path, &err), err);
        free(load_bytes(path, &size));
        assert_true(size > 2 * TAP_HAND_VERTICES * 3 * sizeof(float));
        assert_int_equal(unlink(path), 0);
    }
    /* Each triangle of a left hand is turned the other way. */
    tap_hand_view right = hand_view(scene.hands, 0), left = hand_view(scene.hands, 1);
    for (size_t i = 0; i < TAP_HAND_FACES; i++) {
        assert_int_equal(right.faces[3 * i], left.faces[3 * i]);
        assert_int_equal(right.faces[3 * i + 1], left.faces[3 * i + 2]);
        assert_int_equal(right.faces[3 * i + 2], left.faces[3 * i + 1]);
    }
    free(bytes);
}

static int close_scene(void **state)
{
    (void)state;
    if (scene.engine != NULL)
        close_hands(&scene);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(served_boxes_give_the_authors_numbers),
        cmocka_unit_test(demo_boxes_give_the_authors_numbers),
        cmocka_unit_test(joints_project_onto_their_keypoints),
        cmocka_unit_test(pictures_and_meshes_come_out),
    };
    return cmocka_run_group_tests(tests, NULL, close_scene);
}
