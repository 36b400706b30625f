/* The whole chain on the CPU backend against reference data of independent programs: the tolerances
 * are those of the reference data's README, "Tolerances". */
#include "models/network.h"

#include <math.h>

#define SET          "golden/superpoint/"
#define REAL_WEIGHTS "weights/superpoint/model.safetensors"

/* The pictures of the real weights' set; JPEG decoders differ, so those come as decoded inputs. */
static const struct picture {
    const char *name, *stem, *file;
} pictures[] = {{"china.jpg", "china_jpg", "netin_china_jpg.png"},
                {"coffee.png", "coffee_png", "coffee.png"},
                {"rocket.jpg", "rocket_jpg", "netin_rocket_jpg.png"},
                {"gray.png", "gray_png", "gray.png"},
                {"gray.jpg", "gray_jpg", "netin_gray_jpg.png"},
                {"rgba.png", "rgba_png", "rgba.png"},
                {"progressive.jpg", "progressive_jpg", "netin_progressive_jpg.png"},
                {"exif6.jpg", "exif6_jpg", "netin_exif6_jpg.png"},
                {"palette.png", "palette_png", "palette.png"},
                {"rgb16.png", "rgb16_png", "rgb16.png"},
                {"gray16.png", "gray16_png", "gray16.png"},
                {"tiny.png", "tiny_png", "tiny.png"},
                {"one.png", "one_png", "one.png"},
                {"wide.png", "wide_png", "wide.png"},
                {"tall.png", "tall_png", "tall.png"}};

enum { N_PICTURES = sizeof pictures / sizeof *pictures, N_PHOTOS = 3 };

static struct array load_shared(const char *format, const char *a, const char *b)
{
    char name[256], path[512];
    snprintf(name, sizeof name, format, a, b);
    return load_npy(shared_path(path, sizeof path, name));
}

static json_object *load_shared_json(const char *name)
{
    char path[512];
    return load_json(shared_path(path, sizeof path, name));
}

static void open_shared(struct network *network, const char *name, bool with_layers)
{
    char path[512];
    network_open(network, shared_path(path, sizeof path, name), with_layers);
}

/* The synthetic weights come from our own generator, which has a test of its own. */
static void open_synthetic(struct network *network, bool with_layers)
{
    char path[] = "/tmp/tapetum_golden_XXXXXX";
    tap_error err;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_ok(tap_synth_superpoint(path, &err), err);
    network_open(network, path, with_layers);
    unlink(path);
}

static void show(struct network *network, const struct picture *picture, json_object *expected)
{
    static uint8_t plane[N_PIXELS];
    char name[128], path[512], hex[65];
    snprintf(name, sizeof name, SET "inputs/%s", picture->file);
    load_plane(plane, shared_path(path, sizeof path, name));
    sha256_hex(hex, plane, N_PIXELS);
    assert_string_equal(hex, json_object_get_string(json_at(expected, "netin_sha256")));
    network_set_input(network, plane);
    network_run(network);
}

/* ---- layers -------------------------------------------------------------------------------- */

struct statistics {
    double min, max, mean, std, l2;
};

static struct statistics measure(const float *values, size_t n)
{
    struct statistics s = {.min = INFINITY, .max = -INFINITY};
    double sum = 0, squares = 0, deviations = 0;
    for (size_t i = 0; i < n; i++) {
        double value = (double)values[i];
        s.min = fmin(s.min, value);
        s.max = fmax(s.max, value);
        sum += value;
        squares += value * value;
    }
    s.mean = sum / (double)n;
    s.l2 = sqrt(squares);
    for (size_t i = 0; i < n; i++)
        deviations += ((double)values[i] - s.mean) * ((double)values[i] - s.mean);
    s.std = sqrt(deviations / (double)n);
    return s;
}

static void assert_near(const char *layer, const char *what, double found, double wanted,
                        double tolerance)
{
    if (!(fabs(found - wanted) <= tolerance))
        fail_msg("%s: %s is %.9g, expected %.9g +- %.2g", layer, what, found, wanted, tolerance);
}

/* The reference numbers elements in (channels, height, width) order. */
static void check_layer(const char *name, const float *values, tap_shape shape, json_object *wanted)
{
    size_t cells = shape.height * shape.width;
    struct statistics s = measure(values, cells * shape.channels);
    double mean = json_number(wanted, "mean"), std = json_number(wanted, "std");
    double l2 = json_number(wanted, "l2"), min = json_number(wanted, "min");
    double max = json_number(wanted, "max"), value_tolerance = 2e-4 * fmax(fabs(min), fabs(max));
    assert_near(name, "mean", s.mean, mean, 1e-4 * fabs(mean));
    assert_near(name, "std", s.std, std, 1e-4 * std);
    assert_near(name, "l2", s.l2, l2, 1e-4 * l2);
    assert_near(name, "min", s.min, min, value_tolerance);
    assert_near(name, "max", s.max, max, value_tolerance);
    json_object *index = json_at(wanted, "index"), *value = json_at(wanted, "value");
    assert_int_equal(json_object_array_length(index), 16);
    for (size_t i = 0; i < 16; i++) {
        size_t at = (size_t)json_object_get_int64(json_object_array_get_idx(index, i));
        double expected = json_object_get_double(json_object_array_get_idx(value, i));
        float found = values[at % cells * shape.channels + at / cells];
        assert_near(name, "a value", (double)found, expected, value_tolerance);
    }
}

/* The reference's name for what an operation of the plan gives. */
static void layer_key(char *key, size_t size, const tap_op *op)
{
    if (op->kind == TAP_OP_CELL_SOFTMAX)
        snprintf(key, size, "score_map");
    else if (op->kind == TAP_OP_L2_NORM)
        snprintf(key, size, "descriptor_map");
    else if (op->pool)
        snprintf(key, size, "%.*s.pool", (int)strlen("encoder.conv_blocks.0"), op->name);
    else
        snprintf(key, size, "%s%s", op->name, op->relu ? "+relu" : "");
}

static void check_layers(struct network *network, json_object *layers)
{
    for (size_t i = 0; i < network->plan->n_outputs; i++)
        for (size_t k = 0; k < network->plan->n_ops; k++) {
            const tap_op *op = &network->plan->ops[k];
            char key[TAP_PLAN_NAME + 16];
            if (op->output != network->plan->outputs[i])
                continue;
            layer_key(key, sizeof key, op);
            check_layer(key, network->outputs[i], network->plan->shapes[op->output],
                        json_at(layers, key));
        }
}

static void check_layers_of_set(struct network *network, json_object *set)
{
    size_t checked = 0, n_pictures = pictures_to_see(N_PICTURES);
    for (size_t i = 0; i < n_pictures; i++) {
        json_object *expected, *layers;
        if (!json_object_object_get_ex(set, pictures[i].name, &expected) ||
            !json_object_object_get_ex(expected, "layers", &layers))
            continue;
        show(network, &pictures[i], expected);
        check_layers(network, layers);
        checked++;
    }
    assert_true(checked >= 1);
}

static void real_layers_have_the_reference_fingerprints(void **state)
{
    (void)state;
    struct network network;
    json_object *set = load_shared_json(SET "real/expected.json");
    open_shared(&network, REAL_WEIGHTS, true);
    assert_int_equal(network.plan->n_outputs, 14);
    check_layers_of_set(&network, set);
    network_close(&network);
    json_object_put(set);
}

static void synthetic_layers_have_the_reference_fingerprints(void **state)
{
    (void)state;
    struct network network;
    json_object *set = load_shared_json(SET "synthetic/expected.json");
    open_synthetic(&network, true);
    check_layers_of_set(&network, set);
    network_close(&network);
    json_object_put(set);
}

/* ---- points -------------------------------------------------------------------------------- */

static bool is_at(const tap_point *point, const float *row)
{
    return (float)point->x == row[0] && (float)point->y == row[1];
}

/* Scores that are closer than this may change places: single precision moves them by 1.2e-6 here
 * (the README's fp32 against fp64), Winograd's transforms by as much again. */
static const float near_tie = 3e-6f;

/* wanted's row for the point, or NULL. */
static const float *find_row(const struct array *wanted, const tap_point *point)
{
    for (size_t i = 0; i < wanted->shape[0]; i++)
        if (is_at(point, wanted->values + 3 * i))
            return wanted->values + 3 * i;
    return NULL;
}

/* All of them, at the same pixels, in the same order but for near ties; at the cut of a limit a
 * near tie may bring in another point. */
static void assert_same_points(const tap_point *points, size_t n, const struct array *wanted,
                               bool limited)
{
    assert_int_equal(n, wanted->shape[0]);
    for (size_t i = 0; i < n; i++) {
        const float *row = wanted->values + 3 * i, *found = find_row(wanted, &points[i]);
        float last = wanted->values[3 * n - 1];
        bool at_cut = found == NULL && limited && fabsf(points[i].score - last) <= near_tie;
        bool right = at_cut || (found != NULL && fabsf(found[2] - row[2]) <= near_tie &&
                                fabsf(points[i].score - found[2]) <= 1e-4f);
        if (!right)
            fail_msg("point %zu is (%u, %u) %g, expected (%g, %g) %g", i, points[i].x, points[i].y,
                     (double)points[i].score, (double)row[0], (double)row[1], (double)row[2]);
    }
}

static const tap_point *find_point(const tap_point *points, size_t n, const float *row)
{
    for (size_t i = 0; i < n; i++)
        if (is_at(&points[i], row))
            return &points[i];
    return NULL;
}

/* A point that ours lacks is excused if ours has one beside it, or if it barely passed. */
static bool is_excused(const tap_point *points, size_t n, const float *row, float threshold,
                       float last)
{
    for (size_t i = 0; i < n; i++)
        if (fabsf((float)points[i].x - row[0]) <= 1 && fabsf((float)points[i].y - row[1]) <= 1)
            return true;
    return fabsf(row[2] - threshold) <= 2e-4f || fabsf(row[2] - last) <= 2e-4f;
}

/* At least 99.5 % at the exact pixel, the rest excused, and the sorted scores within 1e-4. rows
 * [n_wanted][3]. */
static void assert_similar_points(const tap_point *points, size_t n, const float *rows,
                                  size_t n_wanted, float threshold)
{
    size_t exact = 0;
    assert_true(n_wanted > 0);
    for (size_t i = 0; i < n_wanted; i++) {
        const float *row = rows + 3 * i;
        if (find_point(points, n, row) != NULL)
            exact++;
        else if (!is_excused(points, n, row, threshold, rows[3 * n_wanted - 1]))
            fail_msg("point (%g, %g) %g is missing", (double)row[0], (double)row[1],
                     (double)row[2]);
        if (i < n && !(fabsf(points[i].score - row[2]) <= 1e-4f))
            fail_msg("score %zu is %g, expected %g", i, (double)points[i].score, (double)row[2]);
    }
    if (exact * 1000 < n_wanted * 995)
        fail_msg("%zu of %zu points at the exact pixel", exact, n_wanted);
}

static double cosine(const float *a, const float *b, size_t n)
{
    double dot = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < n; i++) {
        dot += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return dot / sqrt(aa * bb);
}

/* wanted [rows][dim] belongs to the first points of kp. A half's rounding alone costs a cosine of
 * 1 - 1e-7, far less than what is allowed. */
static void assert_descriptors(struct network *network, const struct array *kp, size_t columns,
                               const struct array *wanted)
{
    size_t n = wanted->shape[0], dim = network->dim;
    if (n == 0)
        return;
    assert_int_equal(wanted->shape[1], dim);
    tap_point *points = malloc(n * sizeof *points);
    assert_non_null(points);
    for (size_t i = 0; i < n; i++)
        points[i] = (tap_point){(uint32_t)kp->values[columns * i],
                                (uint32_t)kp->values[columns * i + 1], 0};
    float *rows = network_descriptors(network, points, n);
    for (size_t i = 0; i < n; i++) {
        double c = cosine(rows + i * dim, wanted->values + i * dim, dim);
        if (!(c >= 0.99999))
            fail_msg("descriptor %zu has a cosine of %.7f", i, c);
    }
    free(rows);
    free(points);
}

static tap_superpoint_options variant_options(json_object *variant)
{
    tap_superpoint_options options = network_defaults;
    options.nms_radius = (uint32_t)json_number(variant, "nms_radius");
    options.keypoint_threshold = (float)json_number(variant, "keypoint_threshold");
    options.max_keypoints = (int32_t)json_number(variant, "max_keypoints");
    return options;
}

static void check_real_picture(struct network *network, const struct picture *picture,
                               json_object *expected)
{
    json_object *variants = json_at(expected, "variants");
    show(network, picture, expected);
    json_object_object_foreach(variants, name, variant)
    {
        size_t n;
        struct array kp;
        char key[64];
        tap_superpoint_options options = variant_options(variant);
        const tap_point *points = network_points(network, &options, &n);
        snprintf(key, sizeof key, "%s.%s", picture->stem, name);
        kp = load_shared(SET "real/%s.kp.npy%s", key, "");
        assert_int_equal(kp.shape[0], (size_t)json_number(variant, "num_keypoints"));
        assert_same_points(points, n, &kp, n == (size_t)options.max_keypoints);
        if (strcmp(name, "r4") == 0) {
            struct array desc = load_shared(SET "real/%s.desc.npy%s", picture->stem, "");
            assert_descriptors(network, &kp, 3, &desc);
            free_array(&desc);
        }
        free_array(&kp);
    }
}

static void real_weights_give_the_reference_points_in_order(void **state)
{
    (void)state;
    struct network network;
    json_object *set = load_shared_json(SET "real/expected.json");
    size_t n_pictures = pictures_to_see(N_PICTURES);
    open_shared(&network, REAL_WEIGHTS, false);
    for (size_t i = 0; i < n_pictures; i++)
        check_real_picture(&network, &pictures[i], json_at(set, pictures[i].name));
    network_close(&network);
    json_object_put(set);
}

/* Hugging Face's flavour: iterative, only the top and left border, row by row. */
static void the_iterative_flavour_is_hugging_faces(void **state)
{
    (void)state;
    struct network network;
    json_object *set = load_shared_json(SET "real/expected.json");
    size_t n_photos = pictures_to_see(N_PHOTOS);
    open_shared(&network, REAL_WEIGHTS, false);
    for (size_t i = 0; i < n_photos; i++) {
        size_t n, n_inside = 0;
        show(&network, &pictures[i], json_at(set, pictures[i].name));
        tap_superpoint_options options = network_defaults;
        options.nms = TAP_NMS_ITERATIVE;
        options.border = 0;
        options.max_keypoints = -1;
        const tap_point *points = network_points(&network, &options, &n);
        struct array kp = load_shared(SET "real/%s.hf.kp.npy%s", pictures[i].stem, "");
        for (size_t k = 0; k < n; k++)
            n_inside += points[k].x >= 4 && points[k].y >= 4;
        assert_int_equal(n_inside, kp.shape[0]);
        for (size_t k = 0; k < kp.shape[0]; k++) {
            const tap_point *point = find_point(points, n, kp.values + 3 * k);
            if (point == NULL || !(fabsf(point->score - kp.values[3 * k + 2]) <= 1e-4f))
                fail_msg("%s: point (%g, %g) is missing", pictures[i].name,
                         (double)kp.values[3 * k], (double)kp.values[3 * k + 1]);
        }
        free_array(&kp);
    }
    network_close(&network);
    json_object_put(set);
}

static void the_real_score_map_is_the_references(void **state)
{
    (void)state;
    struct network network;
    json_object *set = load_shared_json(SET "real/expected.json");
    struct array wanted = load_shared(SET "real/china_jpg.score_map.f16.npy%s%s", "", "");
    open_shared(&network, REAL_WEIGHTS, false);
    show(&network, &pictures[0], json_at(set, "china.jpg"));
    assert_int_equal(wanted.n, N_PIXELS);
    for (size_t i = 0; i < N_PIXELS; i++) /* the reference was rounded to halves */
        assert_near("score map", "a score", (double)network_scores(&network)[i],
                    (double)wanted.values[i], 1e-4 + ldexp((double)wanted.values[i], -11));
    network_close(&network);
    free_array(&wanted);
    json_object_put(set);
}

static void synthetic_weights_give_the_reference_points(void **state)
{
    (void)state;
    struct network network;
    json_object *set = load_shared_json(SET "synthetic/expected.json");
    size_t n_photos = pictures_to_see(N_PHOTOS);
    open_synthetic(&network, false);
    for (size_t i = 0; i < n_photos; i++) {
        json_object *expected = json_at(set, pictures[i].name);
        json_object *variants = json_at(expected, "variants");
        show(&network, &pictures[i], expected);
        json_object_object_foreach(variants, name, variant)
        {
            char key[64];
            size_t n;
            tap_superpoint_options options = variant_options(variant);
            const tap_point *points = network_points(&network, &options, &n);
            snprintf(key, sizeof key, "%s.%s", pictures[i].stem, name);
            struct array kp = load_shared(SET "synthetic/%s.kp.npy%s", key, "");
            assert_similar_points(points, n, kp.values, kp.shape[0], options.keypoint_threshold);
            if (strcmp(name, "r4") == 0) {
                struct array desc =
                    load_shared(SET "synthetic/%s.desc.npy%s", pictures[i].stem, "");
                assert_descriptors(&network, &kp, 3, &desc);
                free_array(&desc);
            }
            free_array(&kp);
        }
    }
    network_close(&network);
    json_object_put(set);
}

/* ---- the first set, made by other code ----------------------------------------------------- */

static void show_first_photo(struct network *network)
{
    struct array photo = load_shared(SET "photo_640x480_rgb_u8.npy%s%s", "", "");
    assert_int_equal(photo.n, N_PIXELS * 3);
    for (size_t i = 0; i < N_PIXELS; i++)
        network->input[i] = photo.values[3 * i] / 255.0f;
    network_run(network);
    free_array(&photo);
}

static void check_first_points(struct network *network, const char *name,
                               const tap_superpoint_options *options)
{
    char key[128], path[512];
    size_t n;
    snprintf(key, sizeof key, SET "%s.npz", name);
    shared_path(path, sizeof path, key);
    struct array xy = load_npz(path, "keypoints"), scores = load_npz(path, "scores");
    float *rows = malloc(scores.n * 3 * sizeof *rows);
    assert_non_null(rows);
    for (size_t i = 0; i < scores.n; i++) {
        rows[3 * i] = xy.values[2 * i];
        rows[3 * i + 1] = xy.values[2 * i + 1];
        rows[3 * i + 2] = scores.values[i];
    }
    const tap_point *points = network_points(network, options, &n);
    assert_similar_points(points, n, rows, scores.n, options->keypoint_threshold);
    if (network->dim > 0) {
        struct array descriptors = load_npz(path, "descriptors");
        assert_descriptors(network, &xy, 2, &descriptors);
        free_array(&descriptors);
    }
    free(rows);
    free_array(&xy);
    free_array(&scores);
}

static void the_first_set_agrees(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t radius;
        float threshold;
        int32_t limit;
        tap_nms nms;
    } cases[] = {{"single_r4_k1024", 4, 0.005f, 1024, TAP_NMS_SINGLE},
                 {"single_r4_all", 4, 0.005f, -1, TAP_NMS_SINGLE},
                 {"iter_r4_k1024", 4, 0.005f, 1024, TAP_NMS_ITERATIVE},
                 {"single_r3_k500", 3, 0.005f, 500, TAP_NMS_SINGLE},
                 {"none_k2000", 0, 0.02f, 2000, TAP_NMS_SINGLE}};
    struct network network;
    struct array softmax = load_shared(SET "scores_softmax.npy%s%s", "", "");
    struct array map = load_shared(SET "descriptor_map_f16.npy%s%s", "", "");
    open_synthetic(&network, false);
    show_first_photo(&network);
    for (size_t i = 0; i < softmax.n - 4800; i++) { /* (65, 60, 80), the last channel is dropped */
        size_t c = i / 4800, y = i % 4800 / 80 * 8 + c / 8, x = i % 80 * 8 + c % 8;
        assert_near("scores", "a score", (double)network_scores(&network)[y * WIDTH + x],
                    (double)softmax.values[i], 1e-4);
    }
    for (size_t i = 0; i < map.n; i++) /* (256, 60, 80), rounded to halves */
        assert_near("descriptor map", "a value",
                    (double)network_map(&network)[i % 4800 * 256 + i / 4800], (double)map.values[i],
                    1e-4 + ldexp(fabs((double)map.values[i]), -11));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tap_superpoint_options options = network_defaults;
        options.nms_radius = cases[i].radius;
        options.keypoint_threshold = cases[i].threshold;
        options.max_keypoints = cases[i].limit;
        options.nms = cases[i].nms;
        check_first_points(&network, cases[i].name, &options);
    }
    network_close(&network);
    free_array(&softmax);
    free_array(&map);
}

static void the_detector_alone_agrees(void **state)
{
    (void)state;
    struct network network;
    open_shared(&network, "weights/superpoint/magicpoint-detector.safetensors", false);
    assert_int_equal(network.dim, 0);
    show_first_photo(&network);
    tap_superpoint_options options = network_defaults;
    options.keypoint_threshold = 0.015f;
    check_first_points(&network, "magicpoint_single_r4_t015", &options);
    network_close(&network);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_layers_have_the_reference_fingerprints),
        cmocka_unit_test(synthetic_layers_have_the_reference_fingerprints),
        cmocka_unit_test(real_weights_give_the_reference_points_in_order),
        cmocka_unit_test(the_iterative_flavour_is_hugging_faces),
        cmocka_unit_test(the_real_score_map_is_the_references),
        cmocka_unit_test(synthetic_weights_give_the_reference_points),
        cmocka_unit_test(the_first_set_agrees),
        cmocka_unit_test(the_detector_alone_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
