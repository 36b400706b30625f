#include "scene.h"

#include <math.h>

static tap_engine *engine;

/* Unit rows from a fixed sequence. */
static void fill_rows(float *rows, size_t n, size_t dim, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (size_t j = 0; j < dim; j++) {
            seed = seed * 1664525u + 1013904223u;
            rows[i * dim + j] = (float)(seed >> 8) / 8388608.0f - 1;
            sum += (double)rows[i * dim + j] * (double)rows[i * dim + j];
        }
        for (size_t j = 0; j < dim; j++)
            rows[i * dim + j] /= (float)sqrt(sum);
    }
}

/* B is A in reverse order: row i must find row n - 1 - i, with similarity 1. */
static void a_permutation_is_undone(void **state)
{
    (void)state;
    enum { N = 150, DIM = 256 };
    float *a = malloc(N * DIM * sizeof *a), *b = malloc(N * DIM * sizeof *b);
    tap_match_pair matches[N];
    size_t n;
    tap_error err;
    fill_rows(a, N, DIM, 1);
    for (size_t i = 0; i < N; i++)
        memcpy(b + i * DIM, a + (N - 1 - i) * DIM, DIM * sizeof *a);
    assert_ok(tap_match(engine, a, N, b, N, DIM, NULL, matches, &n, &err), err);
    assert_int_equal(n, N);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(matches[i].a, i);
        assert_int_equal(matches[i].b, N - 1 - i);
        assert_true(fabsf(matches[i].similarity - 1) < 1e-5f);
    }
    free(a), free(b);
}

/* Mutual nearest neighbours by the definition, in double. */
static void random_rows_match_the_definition(void **state)
{
    (void)state;
    enum { NA = 83, NB = 61, DIM = 256 };
    static float a[NA * DIM], b[NB * DIM];
    static double similarity[NA][NB];
    tap_match_pair matches[NB];
    size_t n, wanted = 0;
    tap_error err;
    fill_rows(a, NA, DIM, 2), fill_rows(b, NB, DIM, 3);
    for (size_t i = 0; i < NA; i++)
        for (size_t j = 0; j < NB; j++) {
            similarity[i][j] = 0;
            for (size_t k = 0; k < DIM; k++)
                similarity[i][j] += (double)a[i * DIM + k] * (double)b[j * DIM + k];
        }
    assert_ok(tap_match(engine, a, NA, b, NB, DIM, NULL, matches, &n, &err), err);
    for (size_t i = 0; i < NA; i++)
        for (size_t j = 0; j < NB; j++) {
            bool best = true;
            for (size_t k = 0; k < NB; k++)
                best = best && similarity[i][k] <= similarity[i][j];
            for (size_t k = 0; k < NA; k++)
                best = best && similarity[k][j] <= similarity[i][j];
            if (!best)
                continue;
            assert_true(wanted < n && matches[wanted].a == i && matches[wanted].b == j);
            assert_true(fabs(matches[wanted].similarity - similarity[i][j]) < 1e-5);
            wanted++;
        }
    assert_int_equal(n, wanted);
}

static void odd_counts_and_wrong_values(void **state)
{
    (void)state;
    static float a[500 * 8], b[3 * 8];
    tap_match_pair matches[3];
    tap_match_options options;
    tap_error err;
    size_t n = 9;
    fill_rows(a, 500, 8, 4), fill_rows(b, 3, 8, 5);
    assert_ok(tap_match(engine, a, 500, b, 3, 8, NULL, matches, &n, &err), err);
    assert_true(n >= 1 && n <= 3);
    assert_ok(tap_match(engine, NULL, 0, b, 3, 8, NULL, matches, &n, &err), err);
    assert_int_equal(n, 0);
    assert_ok(tap_match(engine, a, 3, NULL, 0, 8, NULL, matches, &n, &err), err);
    assert_int_equal(n, 0);
    assert_ok(tap_match(engine, a, 1, b, 1, 8, NULL, matches, &n, &err), err);
    assert_int_equal(n, 1);
    tap_match_options_init(&options);
    options.ratio = 1.5f;
    assert_fails(tap_match(engine, a, 1, b, 1, 8, &options, matches, &n, &err), TAP_ERR_ARGUMENT,
                 err, "ratio 1.5");
    tap_match_options_init(&options);
    options.min_similarity = NAN;
    assert_fails(tap_match(engine, a, 1, b, 1, 8, &options, matches, &n, &err), TAP_ERR_ARGUMENT,
                 err, "min_similarity nan");
    assert_fails(tap_match(engine, a, 1, NULL, 1, 8, NULL, matches, &n, &err), TAP_ERR_ARGUMENT,
                 err, "b: is NULL");
    assert_fails(tap_match(engine, a, 1, b, 1, 0, NULL, matches, &n, &err), TAP_ERR_ARGUMENT, err,
                 "dim 0");
    assert_fails(tap_match(engine, a, 1 << 20, b, 1 << 20, 8, NULL, matches, &n, &err),
                 TAP_ERR_LIMIT, err, "fewer keypoints");
    b[9] = NAN;
    assert_fails(tap_match(engine, a, 3, b, 3, 8, NULL, matches, &n, &err), TAP_ERR_ARGUMENT, err,
                 "b: row 1");
}

static int set_up(void **state)
{
    (void)state;
    return tap_engine_open(&engine, NULL, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    tap_engine_release(engine);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_permutation_is_undone),
        cmocka_unit_test(random_rows_match_the_definition),
        cmocka_unit_test(odd_counts_and_wrong_values),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
