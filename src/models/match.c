#include "models.h"

#include <float.h>

enum { LANES = 16 }; /* independent maxima, so that the compiler may use vectors */

/* The best row for every column; a tie stays with the lower row. */
static void best_of_columns(float *restrict best, uint32_t *restrict rows, const float *similarity,
                            size_t n_a, size_t n_b)
{
    for (size_t j = 0; j < n_b; j++) {
        best[j] = similarity[j];
        rows[j] = 0;
    }
    for (size_t i = 1; i < n_a; i++) {
        const float *row = similarity + i * n_b;
        for (size_t j = 0; j < n_b; j++) {
            bool better = row[j] > best[j];
            best[j] = better ? row[j] : best[j];
            rows[j] = better ? (uint32_t)i : rows[j];
        }
    }
}

static float maximum(const float *values, size_t n)
{
    float lanes[LANES], best = -FLT_MAX;
    size_t i = 0;
    for (size_t lane = 0; lane < LANES; lane++)
        lanes[lane] = -FLT_MAX;
    for (; i + LANES <= n; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++)
            lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
    for (; i < n; i++)
        best = values[i] > best ? values[i] : best;
    for (size_t lane = 0; lane < LANES; lane++)
        best = lanes[lane] > best ? lanes[lane] : best;
    return best;
}

/* The square of the distance between unit vectors with this dot product, which rounding may have
 * brought over 1. */
static double squared_distance(float similarity)
{
    double squared = 2 - 2 * (double)similarity;
    return squared > 0 ? squared : 0;
}

/* Lowe's test. A row that has only one candidate has no rival to be confused with. */
static bool is_distinct(const float *row, size_t n, size_t best, float ratio)
{
    if (ratio == 0 || n == 1)
        return true;
    float before = maximum(row, best), after = maximum(row + best + 1, n - best - 1);
    double second = squared_distance(before > after ? before : after);
    return squared_distance(row[best]) < (double)ratio * (double)ratio * second;
}

size_t tap_match_mutual(tap_match_pair *matches, const float *similarity, size_t n_a, size_t n_b,
                        const tap_match_options *options, void *scratch)
{
    if (n_a == 0 || n_b == 0)
        return 0;
    float *column_best = scratch;
    uint32_t *column_row = (void *)(column_best + n_b);
    size_t n_matches = 0;
    best_of_columns(column_best, column_row, similarity, n_a, n_b);
    for (size_t i = 0; i < n_a; i++) {
        const float *row = similarity + i * n_b;
        float best = maximum(row, n_b);
        size_t j = 0;
        while (j < n_b && row[j] != best)
            j++;
        if (j == n_b || column_row[j] != i || best < options->min_similarity ||
            !is_distinct(row, n_b, j, options->ratio))
            continue;
        matches[n_matches++] =
            (tap_match_pair){.a = (uint32_t)i, .b = (uint32_t)j, .similarity = best};
    }
    return n_matches;
}
