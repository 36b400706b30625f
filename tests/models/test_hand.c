/* What stands around HaMeR's network, against upstream's own numbers (golden/hamer/README.md) and
 * the one published answer of the model's server. */
#include "models/arrays.h"

#include "models/hand.h"

#include <math.h>

enum { N_HANDS = 4, N_JOINTS = 21 };

/* golden/hamer/cases.json. served 0: not given there. */
static const struct box_case {
    uint32_t width, height;
    float box[4];
    double factor, center_x, center_y, demo, served;
    bool is_right;
} cases[] = {
    {600, 450, {218, 38, 378, 200}, 2, 298, 119, 1280.0 / 3, 324, true},
    {600, 450, {318, 240, 540, 452}, 2, 429, 346, 592, 444, false},
    {848, 565, {257, 157, 381, 345}, 2, 319, 251, 376, 376, true},
    {1024, 683, {300, 190, 640, 560}, 2.5, 470, 375, 1133.3333333333333, 925, false},
    {600, 450, {-80, -60, 60, 90}, 2, -10, 15, 373.3333333333333, 0, false},
    {600, 450, {700, 500, 900, 700}, 1, 800, 600, 266.6666666666667, 0, true},
};

static tap_hand_region region_of(size_t i, tap_hand_policy policy)
{
    tap_hand_region region;
    tap_error err;
    assert_ok(tap_hand_region_of(&region, cases[i].box, 1, cases[i].factor, policy, &err), err);
    return region;
}

static void test_boxes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tap_hand_region demo = region_of(i, TAP_HAND_DEMO), served = region_of(i, TAP_HAND_SERVED);
        assert_true(demo.center_x == cases[i].center_x && demo.center_y == cases[i].center_y);
        assert_true(fabs(demo.side - cases[i].demo) < 1e-9);
        assert_true(cases[i].served == 0 || served.side == cases[i].served);
    }
    tap_hand_region middle = tap_hand_region_center(601, 450);
    assert_true(middle.center_x == 300.5 && middle.center_y == 225 && middle.side == 450);
}

static void test_wrong_boxes(void **state)
{
    (void)state;
    static const struct {
        float box[4];
        double factor;
        const char *says;
    } wrong[] = {
        {{10, 10, 10, 20}, 2, "box 7 [10, 10, 10, 20]: x2 must be greater than x1"},
        {{10, 10, 5, 20}, 2, "x2 must be greater than x1"},
        {{10, 20, 15, 20}, 2, "y2 must be greater than y1"},
        {{10, 20, 15, -20}, 2, "box 7"},
        {{NAN, 20, 15, 30}, 2, "box 7: x1 is nan"},
        {{10, 20, INFINITY, 30}, 2, "box 7: x2 is inf"},
        {{10, -INFINITY, 15, 30}, 2, "box 7: y1 is -inf"},
        {{10, 20, 15, NAN}, 2, "box 7: y2 is nan"},
        {{10, 20, 15, 30}, 0, "rescale_factor is 0"},
        {{10, 20, 15, 30}, -2, "rescale_factor is -2"},
        {{10, 20, 15, 30}, NAN, "rescale_factor is nan"},
        {{10, 20, 15, 30}, INFINITY, "rescale_factor is inf"},
        {{10, 20, 15, 30}, 1e308, "box 7"},
        {{10, 20, 10.25f, 20.25f}, 1, "box 7 [10, 20, 10.25, 20.25]"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tap_hand_region region;
        tap_error err;
        assert_fails(
            tap_hand_region_of(&region, wrong[i].box, 7, wrong[i].factor, TAP_HAND_SERVED, &err),
            TAP_ERR_ARGUMENT, err, wrong[i].says);
    }
}

static void assert_near(const float *ours, const float *wanted, size_t n, double tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)ours[i] - (double)wanted[i]) <= tolerance))
            fail_msg("number %zu is %.9g, not %.9g", i, (double)ours[i], (double)wanted[i]);
}

/* The model card's documented answer. All is printed to six decimals: half a unit of s is 8e-7 m of
 * depth, half a unit of the depth 5e-7; as float32 the two depths are off by another 2.4e-7 each.
 */
static void test_published_answer(void **state)
{
    (void)state;
    const float box[4] = {20, 170, 295, 260}, cam[3] = {4.691406f, -0.051758f, 0.003906f};
    const float wanted[3] = {-0.059121f, -0.027873f, 7.751116f};
    tap_hand_region region;
    tap_error err;
    float ours[3];
    assert_ok(tap_hand_region_of(&region, box, 1, 2, TAP_HAND_SERVED, &err), err);
    tap_hand_camera camera = tap_hand_camera_assumed(334, 512);
    tap_hand_translation(ours, cam, &region, &camera, true);
    assert_near(ours, wanted, 3, 1.8e-6);
}

static struct array load(const char *prefix, const char *what)
{
    char path[300], below[200];
    snprintf(below, sizeof below, "golden/hamer/e2e_%s_%s.npy", prefix, what);
    return load_npy(shared_path(path, sizeof path, below));
}

/* From the network's camera and joints to every camera and every 2-D point. Tolerances: float32
 * noise, times three (tiny) and as suggested there. */
static void check_end_to_end(const char *prefix, tap_hand_policy policy)
{
    struct array cam = load(prefix, "cam"), joints = load(prefix, "joints");
    struct array cam_t = load(prefix, "cam_t"), cam_t_full = load(prefix, "cam_t_full");
    struct array crop = load(prefix, "kp2d_crop"), affine = load(prefix, "kp2d_full_affine");
    struct array perspective = load(prefix, "kp2d_full_persp");
    for (size_t i = 0; i < N_HANDS; i++) {
        tap_hand_region region = region_of(i, policy);
        tap_hand_camera camera = tap_hand_camera_assumed(cases[i].width, cases[i].height);
        float t[3], xy[N_JOINTS * 2], frame_xy[N_JOINTS * 2];
        float *points = joints.values + i * N_JOINTS * 3;
        tap_hand_crop_translation(t, cam.values + 3 * i);
        assert_near(t, cam_t.values + 3 * i, 3, 6.3e-5);
        tap_hand_project_crop(xy, points, N_JOINTS, t);
        assert_near(xy, crop.values + i * N_JOINTS * 2, N_JOINTS * 2, 1.4e-6);
        tap_hand_affine(frame_xy, xy, N_JOINTS, &region, cases[i].is_right);
        assert_near(frame_xy, affine.values + i * N_JOINTS * 2, N_JOINTS * 2, 1.6e-3);
        tap_hand_translation(t, cam.values + 3 * i, &region, &camera, cases[i].is_right);
        assert_near(t, cam_t_full.values + 3 * i, 3, 6.3e-5);
        if (!cases[i].is_right)
            tap_hand_mirror_points(points, N_JOINTS);
        tap_hand_project(xy, points, N_JOINTS, t, &camera);
        assert_near(xy, perspective.values + i * N_JOINTS * 2, N_JOINTS * 2, 1.6e-3);
    }
    struct array *all[] = {&cam, &joints, &cam_t, &cam_t_full, &crop, &affine, &perspective};
    for (size_t i = 0; i < 7; i++)
        free_array(all[i]);
}

static void test_end_to_end(void **state)
{
    (void)state;
    check_end_to_end("tiny", TAP_HAND_DEMO);
    check_end_to_end("full", TAP_HAND_DEMO);
    check_end_to_end("served_tiny", TAP_HAND_SERVED);
}

/* With the user's own camera: a point at the hand's origin falls on the pixel that the network's
 * camera says, and a small step there is as long, in pixels, as it says. */
static void test_own_camera(void **state)
{
    (void)state;
    static const tap_hand_camera cameras[] = {{900, 900, 310, 220}, {800, 1250, 100, 400}};
    const float cam[3] = {1.1f, 0.3f, -0.2f};
    const tap_hand_region region = {298, 119, 324};
    for (size_t i = 0; i < 2; i++)
        for (int right = 0; right < 2; right++) {
            const float points[3][3] = {{0, 0, 0}, {0.001f, 0, 0}, {0, 0.001f, 0}};
            float t[3], xy[3][2];
            tap_hand_translation(t, cam, &region, &cameras[i], right);
            tap_hand_project(xy[0], points[0], 3, t, &cameras[i]);
            double per_metre = 324 * 1.1 / 2, tx = right ? 0.3 : -0.3;
            assert_true(fabs(xy[0][0] - (298 + per_metre * tx)) < 1e-3);
            assert_true(fabs(xy[0][1] - (119 - per_metre * 0.2)) < 1e-3);
            double dx = (xy[1][0] - xy[0][0]) * 1000.0, dy = (xy[2][1] - xy[0][1]) * 1000.0;
            assert_true(fabs(sqrt(dx * dy) - per_metre) < 0.1);
        }
    tap_error err;
    assert_ok(tap_hand_camera_check(&cameras[0], &err), err);
    assert_fails(tap_hand_camera_check(&(tap_hand_camera){0, 1, 0, 0}, &err), TAP_ERR_ARGUMENT, err,
                 "fx is 0");
    assert_fails(tap_hand_camera_check(&(tap_hand_camera){1, NAN, 0, 0}, &err), TAP_ERR_ARGUMENT,
                 err, "fy is nan");
    assert_fails(tap_hand_camera_check(&(tap_hand_camera){1, 1, INFINITY, 0}, &err),
                 TAP_ERR_ARGUMENT, err, "cx is inf");
}

/* Whatever the network says, the answer has numbers. */
static void test_no_division_by_zero(void **state)
{
    (void)state;
    static const float scales[] = {0, -1e-9f, -1, 1e-30f, -1e-9f / 256};
    const tap_hand_region region = {10, 10, 1};
    tap_hand_camera camera = tap_hand_camera_assumed(100, 100);
    for (size_t i = 0; i < 5; i++) {
        float cam[3] = {scales[i], 0, 0}, t[3], crop_t[3], xy[2];
        tap_hand_translation(t, cam, &region, &camera, true);
        tap_hand_crop_translation(crop_t, cam);
        for (int k = 0; k < 3; k++)
            assert_true(isfinite(t[k]) && isfinite(crop_t[k]));
        const float behind[3] = {0, 0, -t[2]};
        tap_hand_project(xy, behind, 1, t, &camera);
        assert_true(isfinite(xy[0]) && isfinite(xy[1]));
    }
}

static void multiply(double out[9], const double a[9], const double b[9])
{
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            out[3 * i + j] = 0;
            for (int k = 0; k < 3; k++)
                out[3 * i + j] += a[3 * i + k] * b[3 * k + j];
        }
}

/* exp of the cross-product matrix, by its series on a 1024th of it, squared ten times: not the
 * formula by which anyone would go back. */
static void rotate(float rotation[9], const double v[3])
{
    double k[9] = {0, -v[2], v[1], v[2], 0, -v[0], -v[1], v[0], 0};
    double sum[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1}, term[9], next[9];
    memcpy(term, sum, sizeof term);
    for (int n = 1; n < 9; n++) {
        multiply(next, term, k);
        for (int i = 0; i < 9; i++) {
            term[i] = next[i] / (1024.0 * n);
            sum[i] += term[i];
        }
    }
    for (int n = 0; n < 10; n++) {
        multiply(next, sum, sum);
        memcpy(sum, next, sizeof sum);
    }
    for (int i = 0; i < 9; i++)
        rotation[i] = (float)sum[i];
}

static void test_axis_angle(void **state)
{
    (void)state;
    static const double angles[] = {0,   1e-6, 1e-3,   0.5,       1.5707963267948966,
                                    2.5, 3.1,  3.1414, 3.14159265};
    uint64_t seed = 3;
    for (size_t a = 0; a < sizeof angles / sizeof *angles; a++)
        for (int n = 0; n < 200; n++) {
            double axis[3], v[3], length = 0;
            for (int i = 0; i < 3; i++) {
                axis[i] = n < 3 ? n == i : random_unit(&seed) - 0.5;
                length += axis[i] * axis[i];
            }
            for (int i = 0; i < 3; i++)
                v[i] = axis[i] / sqrt(length) * angles[a];
            float rotation[9], again[9], ours[3];
            rotate(rotation, v);
            tap_hand_axis_angle(ours, rotation);
            double back[3] = {ours[0], ours[1], ours[2]};
            rotate(again, back);
            assert_near(again, rotation, 9, 1e-6);
            if (angles[a] < 3.14)
                for (int i = 0; i < 3; i++)
                    assert_true(fabs(back[i] - v[i]) < 5e-6);
        }
}

/* A mirrored rotation turns a mirrored point to the mirror image, and its axis-angle is (x, -y,
 * -z); a triangle's normal is mirrored like any vector. */
static void test_mirror(void **state)
{
    (void)state;
    const double v[3] = {0.7, -1.1, 0.4};
    float rotation[9], mirrored[9], axis[3];
    rotate(rotation, v);
    memcpy(mirrored, rotation, sizeof mirrored);
    tap_hand_mirror_rotation(mirrored);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            assert_true(mirrored[3 * i + j] ==
                        rotation[3 * i + j] * ((i == 0) == (j == 0) ? 1.0f : -1.0f));
    tap_hand_axis_angle(axis, mirrored);
    assert_near(axis, (float[3]){0.7f, 1.1f, -0.4f}, 3, 2e-6);
    float points[2][3] = {{1, 2, 3}, {-4, 5, 6}};
    tap_hand_mirror_points(points[0], 2);
    assert_near(points[0], (float[6]){-1, 2, 3, 4, 5, 6}, 6, 0);
    uint32_t faces[2][3] = {{0, 1, 2}, {5, 4, 3}};
    tap_hand_mirror_faces(faces[0], 2);
    const uint32_t wanted[6] = {0, 2, 1, 5, 3, 4};
    assert_memory_equal(faces, wanted, sizeof wanted);
}

/* The lid's edges: inside it each has its opposite; without one, they are the rim of the hole. */
static void test_wrist(void **state)
{
    (void)state;
    static const uint32_t rim[16] = {92, 38, 122, 118, 117, 119, 120, 108,
                                     79, 78, 121, 214, 215, 279, 239, 234};
    size_t n_open = 0;
    for (size_t i = 0; i < 3 * TAP_HAND_WRIST; i++) {
        uint32_t from = tap_hand_wrist[i / 3][i % 3], to = tap_hand_wrist[i / 3][(i + 1) % 3];
        size_t same = 0, opposite = 0, on_rim = 0;
        for (size_t j = 0; j < 3 * TAP_HAND_WRIST; j++) {
            uint32_t a = tap_hand_wrist[j / 3][j % 3], b = tap_hand_wrist[j / 3][(j + 1) % 3];
            same += a == from && b == to;
            opposite += a == to && b == from;
        }
        for (size_t k = 0; k < 16; k++)
            on_rim += rim[k] == from && rim[(k + 1) % 16] == to;
        assert_int_equal(same, 1);
        assert_int_equal(opposite + on_rim, 1);
        n_open += on_rim;
    }
    assert_int_equal(n_open, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_boxes),
        cmocka_unit_test(test_wrong_boxes),
        cmocka_unit_test(test_published_answer),
        cmocka_unit_test(test_end_to_end),
        cmocka_unit_test(test_own_camera),
        cmocka_unit_test(test_no_division_by_zero),
        cmocka_unit_test(test_axis_angle),
        cmocka_unit_test(test_mirror),
        cmocka_unit_test(test_wrist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
