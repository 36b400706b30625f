/* From score map to keypoints: equal to the reference arrays, and to the definition. */
#include "models/arrays.h"

#include "models/models.h"

static const tap_superpoint_options defaults = {.size = sizeof defaults,
                                                .max_keypoints = 1024,
                                                .keypoint_threshold = 0.005f,
                                                .nms_radius = 4,
                                                .border = 4};

/* ---- calling it ---------------------------------------------------------------------------- */

/* The points, with guards around the scratch memory and a check that the map is left alone. */
struct selection {
    size_t n;
    const tap_point *points;
    unsigned char *memory;
};

enum { GUARD = TAP_ALIGN };

static struct selection select_points(const float *scores, size_t width, size_t height,
                                      const tap_superpoint_options *options)
{
    struct selection selection;
    size_t bytes, n = width * height;
    assert_true(tap_points_scratch_bytes(width, height, &bytes));
    selection.memory = tap_alloc(bytes + 2 * GUARD, 1);
    float *copy = malloc(n * sizeof *copy);
    assert_non_null(selection.memory);
    assert_non_null(copy);
    memset(selection.memory, 0xa5, bytes + 2 * GUARD);
    memcpy(copy, scores, n * sizeof *copy);
    tap_points_select(&selection.points, &selection.n, copy, width, height, options,
                      selection.memory + GUARD);
    assert_memory_equal(copy, scores, n * sizeof *copy);
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(selection.memory[i], 0xa5);
        assert_int_equal(selection.memory[GUARD + bytes + i], 0xa5);
    }
    free(copy);
    return selection;
}

static void assert_points(const struct selection *selection, const tap_point *wanted, size_t n)
{
    assert_int_equal(selection->n, n);
    for (size_t i = 0; i < n; i++)
        if (selection->points[i].x != wanted[i].x || selection->points[i].y != wanted[i].y ||
            selection->points[i].score != wanted[i].score)
            fail_msg("point %zu is (%u, %u) %g, expected (%u, %u) %g", i, selection->points[i].x,
                     selection->points[i].y, (double)selection->points[i].score, wanted[i].x,
                     wanted[i].y, (double)wanted[i].score);
}

static tap_point *load_points(const char *path, size_t *n)
{
    struct array array = load_npy(path);
    *n = array.shape[0];
    tap_point *points = malloc((*n + 1) * sizeof *points);
    assert_non_null(points);
    for (size_t i = 0; i < *n; i++)
        points[i] = (tap_point){(uint32_t)array.values[3 * i], (uint32_t)array.values[3 * i + 1],
                                array.values[3 * i + 2]};
    free_array(&array);
    return points;
}

/* ---- the reference arrays ------------------------------------------------------------------ */

static void check_variant(const char *name, json_object *variant, const struct array *map)
{
    char path[128];
    size_t n;
    tap_superpoint_options options = defaults;
    options.nms_radius = (uint32_t)json_number(variant, "nms_radius");
    options.keypoint_threshold = (float)json_number(variant, "keypoint_threshold");
    options.border = (uint32_t)json_number(variant, "border");
    options.max_keypoints = (int32_t)json_number(variant, "max_keypoints");
    snprintf(path, sizeof path, GOLDEN "post/%s.kp.npy", name);
    tap_point *wanted = load_points(path, &n);
    assert_int_equal(n, json_number(variant, "num_keypoints"));
    struct selection selection = select_points(map->values, map->shape[1], map->shape[0], &options);
    assert_points(&selection, wanted, n);
    free(selection.memory);
    free(wanted);
}

static void reference_points_are_equal(void **state)
{
    (void)state;
    struct array map = load_npy(GOLDEN "post/score_map.npy");
    json_object *expected = load_json(GOLDEN "post/expected.json");
    size_t checked = 0;
    json_object_object_foreach(expected, name, variant)
    {
        if (strncmp(name, "hf_", 3) == 0)
            continue;
        check_variant(name, variant, &map);
        checked++;
    }
    assert_int_equal(checked, 12);
    json_object_put(expected);
    free_array(&map);
}

/* What is left of a selection under Hugging Face's border rule, in its order. */
static size_t as_hugging_face(tap_point *to, const struct selection *selection, size_t width,
                              size_t height)
{
    float *kept = calloc(width * height, sizeof *kept);
    size_t n = 0;
    assert_non_null(kept);
    for (size_t i = 0; i < selection->n; i++)
        kept[selection->points[i].y * width + selection->points[i].x] = selection->points[i].score;
    for (uint32_t y = 4; y < height; y++)
        for (uint32_t x = 4; x < width; x++)
            if (kept[y * width + x] > 0)
                to[n++] = (tap_point){x, y, kept[y * width + x]};
    free(kept);
    return n;
}

static void iterative_reference_points_are_equal(void **state)
{
    (void)state;
    struct array map = load_npy(GOLDEN "post/score_map.npy");
    size_t width = map.shape[1], height = map.shape[0];
    tap_point *rows = malloc(width * height * sizeof *rows);
    assert_non_null(rows);
    for (uint32_t radius = 3; radius <= 4; radius++) {
        char path[64];
        size_t n, n_wanted;
        tap_superpoint_options options = defaults;
        options.nms = TAP_NMS_ITERATIVE;
        options.nms_radius = radius;
        options.border = 0;
        options.max_keypoints = -1;
        snprintf(path, sizeof path, GOLDEN "post/hf_r%u.kp.npy", radius);
        tap_point *wanted = load_points(path, &n_wanted);
        struct selection selection = select_points(map.values, width, height, &options);
        n = as_hugging_face(rows, &selection, width, height);
        struct selection in_rows = {.n = n, .points = rows};
        assert_points(&in_rows, wanted, n_wanted);
        free(selection.memory);
        free(wanted);
    }
    free(rows);
    free_array(&map);
}

/* ---- the definition ------------------------------------------------------------------------ */

static float window_maximum(const float *map, size_t width, size_t height, size_t x, size_t y,
                            size_t radius)
{
    float best = 0;
    for (size_t v = y < radius ? 0 : y - radius; v <= y + radius && v < height; v++)
        for (size_t u = x < radius ? 0 : x - radius; u <= x + radius && u < width; u++)
            if (map[v * width + u] > best)
                best = map[v * width + u];
    return best;
}

/* keep[i] = 1 where map equals its window's maximum. */
static void mark_maxima(float *keep, const float *map, size_t width, size_t height, size_t radius)
{
    for (size_t i = 0; i < width * height; i++)
        keep[i] = map[i] == window_maximum(map, width, height, i % width, i / width, radius);
}

static void mark_iteratively(float *keep, const float *map, size_t width, size_t height,
                             size_t radius)
{
    size_t n = width * height;
    float *near = calloc(n, sizeof *near), *rest = calloc(n, sizeof *rest);
    float *fresh = calloc(n, sizeof *fresh);
    assert_true(near != NULL && rest != NULL && fresh != NULL);
    mark_maxima(keep, map, width, height, radius);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < n; i++) {
            near[i] = window_maximum(keep, width, height, i % width, i / width, radius);
            rest[i] = near[i] > 0 ? 0 : map[i];
        }
        mark_maxima(fresh, rest, width, height, radius);
        for (size_t i = 0; i < n; i++)
            if (fresh[i] > 0 && near[i] == 0)
                keep[i] = 1;
    }
    free(near);
    free(rest);
    free(fresh);
}

static int by_score_then_place(const void *a, const void *b)
{
    const tap_point *p = a, *q = b;
    if (p->score != q->score)
        return p->score > q->score ? -1 : 1;
    if (p->y != q->y)
        return p->y < q->y ? -1 : 1;
    return p->x < q->x ? -1 : 1;
}

static tap_point *define_points(size_t *n, const float *map, size_t width, size_t height,
                                const tap_superpoint_options *options)
{
    float *keep = malloc(width * height * sizeof *keep);
    tap_point *points = malloc(width * height * sizeof *points);
    assert_true(keep != NULL && points != NULL);
    if (options->nms == TAP_NMS_ITERATIVE)
        mark_iteratively(keep, map, width, height, options->nms_radius);
    else
        mark_maxima(keep, map, width, height, options->nms_radius);
    *n = 0;
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++)
            if (keep[y * width + x] > 0 && map[y * width + x] > options->keypoint_threshold &&
                x >= options->border && x + options->border < width && y >= options->border &&
                y + options->border < height)
                points[(*n)++] = (tap_point){x, y, map[y * width + x]};
    qsort(points, *n, sizeof *points, by_score_then_place);
    if (options->max_keypoints >= 0 && *n > (size_t)options->max_keypoints)
        *n = (size_t)options->max_keypoints;
    free(keep);
    return points;
}

/* Continuous scores, or a few levels so that ties are everywhere; an eighth of zeros. */
static void fill_map(float *map, size_t n, bool levels, uint64_t *random)
{
    for (size_t i = 0; i < n; i++) {
        float value = random_unit(random);
        map[i] = levels ? (float)(int)(value * 8) / 8 : value < 0.125f ? 0 : value;
    }
}

static void any_size_radius_and_flavour_follows_the_definition(void **state)
{
    (void)state;
    static const size_t sizes[][2] = {{8, 8}, {64, 16}, {16, 64}, {8, 88}, {88, 8}, {40, 24}};
    static const uint32_t radii[] = {0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32};
    uint64_t random = 1;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t j = 0; j < sizeof radii / sizeof *radii; j++)
            for (unsigned variant = 0; variant < 8; variant++) {
                size_t n, width = sizes[i][0], height = sizes[i][1];
                float map[88 * 64];
                tap_superpoint_options options = defaults;
                fill_map(map, width * height, variant & 1, &random);
                options.nms_radius = radii[j];
                options.nms = variant & 2 ? TAP_NMS_ITERATIVE : TAP_NMS_SINGLE;
                options.border = (uint32_t)(random_unit(&random) * 6);
                options.keypoint_threshold = variant & 4 ? 0 : 0.5f;
                options.max_keypoints = variant & 4 ? -1 : (int32_t)(random_unit(&random) * 40);
                tap_point *wanted = define_points(&n, map, width, height, &options);
                struct selection selection = select_points(map, width, height, &options);
                assert_points(&selection, wanted, n);
                free(selection.memory);
                free(wanted);
            }
}

static void every_pixel_of_a_large_map_comes_out_in_order(void **state)
{
    (void)state;
    enum { WIDTH = 640, HEIGHT = 480 };
    size_t n;
    uint64_t random = 7;
    float *map = malloc(WIDTH * HEIGHT * sizeof *map);
    assert_non_null(map);
    for (size_t i = 0; i < WIDTH * HEIGHT; i++)
        map[i] = i % 3 == 0 ? 0.25f : random_unit(&random) * 0.999f + 1e-3f;
    tap_superpoint_options options = defaults;
    options.nms_radius = 0;
    options.keypoint_threshold = 0;
    for (int pass = 0; pass < 3; pass++) {
        options.max_keypoints = pass == 0 ? -1 : pass == 1 ? 200000 : 512;
        tap_point *wanted = define_points(&n, map, WIDTH, HEIGHT, &options);
        assert_int_equal(n, pass == 0 ? 298304 : options.max_keypoints);
        struct selection selection = select_points(map, WIDTH, HEIGHT, &options);
        assert_points(&selection, wanted, n);
        free(selection.memory);
        free(wanted);
    }
    free(map);
}

/* ---- small cases with a name --------------------------------------------------------------- */

static void x_is_across_and_y_is_down(void **state)
{
    (void)state;
    float map[16 * 64] = {0};
    map[7 * 64 + 50] = 0.5f;
    struct selection selection = select_points(map, 64, 16, &defaults);
    assert_points(&selection, &(tap_point){50, 7, 0.5f}, 1);
    free(selection.memory);
}

static void empty_maps_give_no_points(void **state)
{
    (void)state;
    float map[16 * 16] = {0};
    tap_superpoint_options options = defaults;
    options.keypoint_threshold = 0;
    for (int flavour = 0; flavour < 2; flavour++) {
        options.nms = flavour ? TAP_NMS_ITERATIVE : TAP_NMS_SINGLE;
        struct selection selection = select_points(map, 16, 16, &options);
        assert_int_equal(selection.n, 0);
        free(selection.memory);
    }
}

static void a_flat_plateau_survives_whole_inside_the_border(void **state)
{
    (void)state;
    float map[24 * 32];
    for (size_t i = 0; i < 24 * 32; i++)
        map[i] = 0.25f;
    tap_superpoint_options options = defaults;
    struct selection selection = select_points(map, 32, 24, &options);
    assert_int_equal(selection.n, 24 * 16);
    for (size_t i = 0; i < selection.n; i++) {
        assert_int_equal(selection.points[i].x, 4 + i % 24);
        assert_int_equal(selection.points[i].y, 4 + i / 24);
    }
    free(selection.memory);
    options.max_keypoints = 100; /* cuts inside the run of equals */
    selection = select_points(map, 32, 24, &options);
    assert_int_equal(selection.n, 100);
    assert_int_equal(selection.points[99].x, 4 + 99 % 24);
    assert_int_equal(selection.points[99].y, 4 + 99 / 24);
    free(selection.memory);
}

static void the_threshold_is_strict_and_in_float32(void **state)
{
    (void)state;
    float map[16 * 16] = {0};
    map[8 * 16 + 8] = 0.005f;
    struct selection selection = select_points(map, 16, 16, &defaults);
    assert_int_equal(selection.n, 0);
    free(selection.memory);
    map[8 * 16 + 8] = 0.0050000004f; /* the next float32 */
    selection = select_points(map, 16, 16, &defaults);
    assert_int_equal(selection.n, 1);
    free(selection.memory);
}

static void a_removed_border_point_still_suppresses(void **state)
{
    (void)state;
    float map[24 * 24] = {0};
    map[12 * 24 + 3] = 0.9f;
    map[12 * 24 + 6] = 0.5f;
    struct selection selection = select_points(map, 24, 24, &defaults);
    assert_int_equal(selection.n, 0);
    free(selection.memory);
}

static void the_smallest_scores_count(void **state)
{
    (void)state;
    float map[16 * 16] = {0};
    tap_superpoint_options options = defaults;
    options.keypoint_threshold = 0;
    map[5 * 16 + 5] = 1e-42f; /* subnormal */
    map[10 * 16 + 10] = 1.0f;
    struct selection selection = select_points(map, 16, 16, &options);
    assert_points(&selection, (tap_point[]){{10, 10, 1.0f}, {5, 5, 1e-42f}}, 2);
    free(selection.memory);
}

static void impossible_sizes_have_no_scratch_size(void **state)
{
    (void)state;
    size_t bytes;
    assert_false(tap_points_scratch_bytes(SIZE_MAX, 2, &bytes));
    assert_false(tap_points_scratch_bytes((size_t)1 << 33, 1, &bytes));
    assert_false(tap_points_scratch_bytes(SIZE_MAX - 8, 1, &bytes));
    assert_true(tap_points_scratch_bytes(8192, 8192, &bytes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_points_are_equal),
        cmocka_unit_test(iterative_reference_points_are_equal),
        cmocka_unit_test(any_size_radius_and_flavour_follows_the_definition),
        cmocka_unit_test(every_pixel_of_a_large_map_comes_out_in_order),
        cmocka_unit_test(x_is_across_and_y_is_down),
        cmocka_unit_test(empty_maps_give_no_points),
        cmocka_unit_test(a_flat_plateau_survives_whole_inside_the_border),
        cmocka_unit_test(the_threshold_is_strict_and_in_float32),
        cmocka_unit_test(a_removed_border_point_still_suppresses),
        cmocka_unit_test(the_smallest_scores_count),
        cmocka_unit_test(impossible_sizes_have_no_scratch_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
