/* From descriptor map to rows, and from logits to scores, against the reference arrays. */
#include "models/arrays.h"

#include "models/models.h"

#include <math.h>

static void assert_close(const float *found, const float *wanted, size_t n, double tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)found[i] - (double)wanted[i]) <= tolerance))
            fail_msg("value %zu is %.9g, expected %.9g", i, (double)found[i], (double)wanted[i]);
}

/* The reference map: generator values of "post.descriptor_map", [dim][height][width], made unit
 * vectors in double, in our order. */
static float *make_map(size_t width, size_t height, size_t dim)
{
    size_t cells = width * height;
    uint64_t seed = tap_fnv1a64("post.descriptor_map");
    float *map = malloc(cells * dim * sizeof *map);
    assert_non_null(map);
    for (size_t cell = 0; cell < cells; cell++) {
        double sum = 0;
        for (size_t c = 0; c < dim; c++) {
            uint64_t z = tap_splitmix64(seed, c * cells + cell + 1);
            float value = (float)((int64_t)(z >> 40) - (1 << 23)) / (float)(1 << 23);
            map[cell * dim + c] = value;
            sum += (double)value * (double)value;
        }
        for (size_t c = 0; c < dim; c++)
            map[cell * dim + c] = (float)((double)map[cell * dim + c] / sqrt(sum));
    }
    return map;
}

static void reference_descriptors(void **state)
{
    (void)state;
    struct array points = load_npy(GOLDEN "post/sample_points.npy");
    struct array wanted = load_npy(GOLDEN "post/sample_desc.npy");
    size_t n = points.shape[0], dim = wanted.shape[1];
    float *map = make_map(16, 12, dim), *found = malloc(n * dim * sizeof *found);
    assert_non_null(found);
    assert_int_equal(n, 12);
    assert_int_equal(wanted.shape[0], n);
    tap_descriptors_sample(found, points.values, n, map, 16, 12, dim);
    assert_close(found, wanted.values, n * dim, 2e-6);
    free(found);
    free(map);
    free_array(&points);
    free_array(&wanted);
}

/* The formula in double, for widths that are no multiple of a vector. */
static void define_descriptor(double *out, double x, double y, const float *map, size_t width,
                              size_t height, size_t dim)
{
    double column = (x - 3.5) / (8.0 * (double)width - 4.5) * (double)(width - 1);
    double row = (y - 3.5) / (8.0 * (double)height - 4.5) * (double)(height - 1);
    double sum = 0;
    for (size_t c = 0; c < dim; c++) {
        out[c] = 0;
        for (int k = 0; k < 4; k++) {
            double u = floor(column) + k % 2, v = floor(row) + (double)(k / 2);
            if (u < 0 || v < 0 || u >= (double)width || v >= (double)height)
                continue;
            out[c] += (double)map[((size_t)v * width + (size_t)u) * dim + c] *
                      (1 - fabs(column - u)) * (1 - fabs(row - v));
        }
        sum += out[c] * out[c];
    }
    for (size_t c = 0; c < dim; c++)
        out[c] /= sum > 0 ? sqrt(sum) : 1;
}

static void any_width_follows_the_formula(void **state)
{
    (void)state;
    static const size_t dims[] = {1, 5, 16, 33, 256};
    uint64_t random = 3;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        enum { WIDTH = 9, HEIGHT = 7 };
        float *map = make_map(WIDTH, HEIGHT, dims[i]), xy[2], found[256];
        double wanted[256];
        for (int k = 0; k < 50; k++) {
            xy[0] = random_unit(&random) * (8 * WIDTH - 1);
            xy[1] = random_unit(&random) * (8 * HEIGHT - 1);
            tap_descriptors_sample(found, xy, 1, map, WIDTH, HEIGHT, dims[i]);
            define_descriptor(wanted, (double)xy[0], (double)xy[1], map, WIDTH, HEIGHT, dims[i]);
            /* One channel may cancel to almost nothing, whose sign rounding decides. */
            for (size_t c = 0; dims[i] > 1 && c < dims[i]; c++)
                if (!(fabs((double)found[c] - wanted[c]) <= 1e-4))
                    fail_msg("%zu channels at (%g, %g): %g, expected %g", dims[i], (double)xy[0],
                             (double)xy[1], (double)found[c], wanted[c]);
        }
        free(map);
    }
}

static void a_map_of_zeros_gives_zeros(void **state)
{
    (void)state;
    float map[4 * 20] = {0}, found[20];
    tap_descriptors_sample(found, (float[]){8, 8}, 1, map, 2, 2, 20);
    for (size_t c = 0; c < 20; c++)
        assert_true(found[c] == 0);
}

/* Only a length below 1e-12 counts as none. */
static void faint_vectors_become_unit_vectors(void **state)
{
    (void)state;
    float map[4 * 20], found[20];
    for (size_t i = 0; i < 4 * 20; i++)
        map[i] = 1e-10f;
    tap_descriptors_sample(found, (float[]){8, 8}, 1, map, 2, 2, 20);
    for (size_t c = 0; c < 20; c++)
        assert_true(fabs((double)found[c] - sqrt(1.0 / 20)) < 1e-6);
}

static void points_outside_are_zeros_not_faults(void **state)
{
    (void)state;
    static const float wild[] = {-1e30f, 1e30f, -40, 400, NAN, INFINITY};
    float *map = make_map(4, 4, 16), found[16];
    for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
        tap_descriptors_sample(found, (float[]){wild[i], 8}, 1, map, 4, 4, 16);
        for (size_t c = 0; c < 16; c++)
            assert_true(found[c] == 0);
    }
    tap_descriptors_sample(found, (float[]){3, 3}, 1, map, 1, 1, 16); /* one cell, any place */
    assert_close(found, map, 16, 1e-6);
    free(map);
}

static void reference_scores_from_logits(void **state)
{
    (void)state;
    struct array logits = load_npy(GOLDEN "post/logits.npy");
    struct array wanted = load_npy(GOLDEN "post/folded.npy");
    size_t channels = logits.shape[0], height = logits.shape[1], width = logits.shape[2];
    float *input = malloc(logits.n * sizeof *input), *found = malloc(wanted.n * sizeof *found);
    assert_true(input != NULL && found != NULL);
    for (size_t c = 0; c < channels; c++)
        for (size_t i = 0; i < height * width; i++)
            input[i * channels + c] = logits.values[c * height * width + i];
    tap_plan *plan;
    tap_error err;
    assert_ok(tap_plan_create(&plan, &err), err);
    tap_buffer x = tap_plan_input(plan, (tap_shape){height, width, channels});
    tap_plan_output(plan, tap_plan_cell_softmax(plan, x, "softmax", TAP_SUPERPOINT_CELL));
    assert_ok(tap_plan_finish(plan, &err), err);
    assert_int_equal(tap_plan_elements(plan, plan->outputs[0]), wanted.n);
    assert_ok(tap_reference_run(plan, (const float *[]){input}, (float *[]){found}, &err), err);
    assert_close(found, wanted.values, wanted.n, 1e-6);
    tap_plan_free(plan);
    free(input);
    free(found);
    free_array(&logits);
    free_array(&wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_descriptors),
        cmocka_unit_test(any_width_follows_the_formula),
        cmocka_unit_test(a_map_of_zeros_gives_zeros),
        cmocka_unit_test(faint_vectors_become_unit_vectors),
        cmocka_unit_test(points_outside_are_zeros_not_faults),
        cmocka_unit_test(reference_scores_from_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
