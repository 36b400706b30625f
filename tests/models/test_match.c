/* Mutual nearest neighbours against the definition, loop by loop in double. */
#include "models/arrays.h"

#include "models/models.h"

#include <math.h>

static const tap_match_options defaults = {.size = sizeof defaults, .min_similarity = -1};

/* The scratch is as large as the header says, to the byte, for the sanitizers to watch. */
static size_t match(tap_match_pair *pairs, const float *similarity, size_t n_a, size_t n_b,
                    const tap_match_options *options)
{
    void *scratch = malloc(16 * (n_a + n_b) + 1);
    assert_non_null(scratch);
    size_t n = tap_match_mutual(pairs, similarity, n_a, n_b, options, scratch);
    free(scratch);
    return n;
}

static double distance(float similarity)
{
    return sqrt(fmax(0, 2 - 2 * (double)similarity));
}

static size_t best_in_row(const float *similarity, size_t i, size_t n_b)
{
    size_t best = 0;
    for (size_t j = 1; j < n_b; j++)
        if (similarity[i * n_b + j] > similarity[i * n_b + best])
            best = j;
    return best;
}

static size_t define_matches(tap_match_pair *pairs, const float *similarity, size_t n_a, size_t n_b,
                             const tap_match_options *options)
{
    size_t n = 0;
    for (size_t i = 0; i < n_a && n_b > 0; i++) {
        size_t j = best_in_row(similarity, i, n_b), back = 0;
        for (size_t k = 1; k < n_a; k++)
            if (similarity[k * n_b + j] > similarity[back * n_b + j])
                back = k;
        float best = similarity[i * n_b + j];
        double second = INFINITY;
        for (size_t k = 0; k < n_b; k++)
            if (k != j)
                second = fmin(second, distance(similarity[i * n_b + k]));
        if (back == i && best >= options->min_similarity &&
            (options->ratio == 0 || distance(best) < (double)options->ratio * second))
            pairs[n++] = (tap_match_pair){(uint32_t)i, (uint32_t)j, best};
    }
    return n;
}

static void any_matrix_follows_the_definition(void **state)
{
    (void)state;
    static const size_t sizes[][2] = {{0, 7},  {7, 0},  {0, 0},   {1, 1},   {1, 9},   {9, 1},
                                      {3, 40}, {40, 3}, {16, 16}, {33, 47}, {500, 3}, {128, 200}};
    static const tap_match_options options[] = {{sizeof defaults, -1, 0},
                                                {sizeof defaults, 0.5f, 0},
                                                {sizeof defaults, -1, 0.8f},
                                                {sizeof defaults, -1, 1},
                                                {sizeof defaults, 0.25f, 0.95f}};
    static float similarity[200 * 128];
    static tap_match_pair found[512], wanted[512];
    uint64_t random = 11;
    size_t total = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t k = 0; k < 2 * sizeof options / sizeof *options; k++) {
            size_t n_a = sizes[i][0], n_b = sizes[i][1];
            for (size_t e = 0; e < n_a * n_b; e++) {
                float value = random_unit(&random) * 2 - 1;
                similarity[e] = k % 2 ? (float)(int)(value * 4) / 4 : value; /* ties abound */
            }
            size_t n = match(found, similarity, n_a, n_b, &options[k / 2]);
            assert_int_equal(n, define_matches(wanted, similarity, n_a, n_b, &options[k / 2]));
            assert_memory_equal(found, wanted, n * sizeof *found);
            total += n;
        }
    assert_true(total > 200);
}

static void a_tie_goes_to_the_lower_row(void **state)
{
    (void)state;
    const float similarity[3 * 3] = {0.5f, 0.9f, 0.9f, /* */
                                     0.5f, 0.9f, 0.9f, /* */
                                     0.5f, 0.2f, 0.1f};
    tap_match_pair pairs[3];
    assert_int_equal(match(pairs, similarity, 3, 3, &defaults), 1);
    assert_int_equal(pairs[0].a, 0);
    assert_int_equal(pairs[0].b, 1);
}

static void two_equal_candidates_fail_the_ratio(void **state)
{
    (void)state;
    const float similarity[2] = {0.9f, 0.9f};
    tap_match_pair pairs[1];
    tap_match_options options = defaults;
    options.ratio = 1;
    assert_int_equal(match(pairs, similarity, 1, 2, &options), 0);
    assert_int_equal(match(pairs, similarity, 1, 2, &defaults), 1);
}

static void rounding_over_one_is_a_distance_of_zero(void **state)
{
    (void)state;
    const float similarity[2] = {1.0000002f, 0.5f};
    tap_match_pair pairs[1];
    tap_match_options options = {sizeof options, 1, 0.5f};
    assert_int_equal(match(pairs, similarity, 1, 2, &options), 1);
    const float twins[2] = {1.0000004f, 1.0000002f}; /* both at no distance: no telling apart */
    assert_int_equal(match(pairs, twins, 1, 2, &options), 0);
}

static void the_least_similarity_itself_is_enough(void **state)
{
    (void)state;
    tap_match_pair pairs[1];
    tap_match_options options = {sizeof options, 0.75f, 0};
    assert_int_equal(match(pairs, (float[]){0.75f}, 1, 1, &options), 1);
    assert_int_equal(match(pairs, (float[]){0.7499f}, 1, 1, &options), 0);
}

static void numbers_that_are_none_match_nothing(void **state)
{
    (void)state;
    const float similarity[4] = {NAN, NAN, NAN, NAN};
    tap_match_pair pairs[2];
    assert_int_equal(match(pairs, similarity, 2, 2, &defaults), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_matrix_follows_the_definition),
        cmocka_unit_test(a_tie_goes_to_the_lower_row),
        cmocka_unit_test(two_equal_candidates_fail_the_ratio),
        cmocka_unit_test(rounding_over_one_is_a_distance_of_zero),
        cmocka_unit_test(the_least_similarity_itself_is_enough),
        cmocka_unit_test(numbers_that_are_none_match_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
