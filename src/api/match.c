#include "api.h"

#include <math.h>
#include <stdlib.h>

/* The similarity matrix: 2^27 floats, 512 MiB. */
static const size_t max_pairs = (size_t)1 << 27;

void tap_match_options_init(tap_match_options *options)
{
    *options = (tap_match_options){.size = sizeof *options, .min_similarity = -1};
}

static tap_status check_rows(const char *name, const float *rows, size_t n, size_t dim,
                             tap_error *err)
{
    if (rows == NULL)
        return tap_fail(err, TAP_ERR_ARGUMENT, "%s: is NULL, with %zu rows", name, n);
    for (size_t i = 0; i < n * dim; i++)
        if (!isfinite(rows[i]))
            return tap_fail(err, TAP_ERR_ARGUMENT, "%s: row %zu holds a value that is not finite",
                            name, i / dim);
    return TAP_OK;
}

static tap_status check_arguments(const float *a, size_t n_a, const float *b, size_t n_b,
                                  size_t dim, const tap_match_options *options, tap_error *err)
{
    size_t pairs, values;
    if (dim == 0 || dim > 4096)
        return tap_fail(err, TAP_ERR_ARGUMENT, "dim %zu: must be in 1..4096", dim);
    if (!(options->min_similarity >= -1 && options->min_similarity <= 1))
        return tap_fail(err, TAP_ERR_ARGUMENT, "min_similarity %g: must be in [-1, 1]",
                        (double)options->min_similarity);
    if (!(options->ratio >= 0 && options->ratio <= 1))
        return tap_fail(err, TAP_ERR_ARGUMENT, "ratio %g: must be 0 (off) or in (0, 1]",
                        (double)options->ratio);
    if (n_a == 0 || n_b == 0)
        return TAP_OK;
    if (!tap_size_mul(n_a, n_b, &pairs) || pairs > max_pairs || n_a > UINT32_MAX ||
        n_b > UINT32_MAX || !tap_size_mul(n_a, dim, &values) || !tap_size_mul(n_b, dim, &values))
        return tap_fail(err, TAP_ERR_LIMIT,
                        "matching %zu with %zu points: over the limit of %zu "
                        "pairs; keep fewer keypoints",
                        n_a, n_b, max_pairs);
    TAP_TRY(check_rows("a", a, n_a, dim, err));
    return check_rows("b", b, n_b, dim, err);
}

/* similarity[n_a][n_b] on the engine's backend. */
static tap_status run_similarity(float *similarity, tap_engine *engine, const float *a, size_t n_a,
                                 const float *b, size_t n_b, size_t dim, tap_error *err)
{
    tap_plan *plan;
    tap_program *program = NULL;
    void *scratch = NULL;
    TAP_TRY(tap_plan_create(&plan, err));
    tap_buffer rows_a = tap_plan_input(plan, (tap_shape){1, n_a, dim});
    tap_buffer rows_b = tap_plan_input(plan, (tap_shape){1, n_b, dim});
    tap_plan_output(plan, tap_plan_similarity(plan, rows_a, rows_b, "match"));
    tap_status status = tap_plan_finish(plan, err);
    if (status == TAP_OK)
        status = engine->backend->compile(engine->state, plan, NULL, &program, err);
    if (status == TAP_OK) {
        tap_program_info info;
        engine->backend->inspect(program, &info);
        scratch = tap_alloc(info.scratch_bytes, 1);
        const float *inputs[] = {a, b};
        float *outputs[] = {similarity};
        if (scratch == NULL)
            status = tap_fail(err, TAP_ERR_MEMORY, "out of memory for matching");
        else
            status = engine->backend->run(program, scratch, inputs, outputs, NULL, err);
    }
    free(scratch);
    if (program != NULL)
        engine->backend->free_program(program);
    tap_plan_free(plan);
    return status;
}

tap_status tap_match(tap_engine *engine, const float *a, size_t n_a, const float *b, size_t n_b,
                     size_t dim, const tap_match_options *options, tap_match_pair *matches,
                     size_t *n_matches, tap_error *err)
{
    tap_match_options own;
    *n_matches = 0;
    tap_match_options_init(&own);
    if (!tap_options_read(&own, sizeof own, options))
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "tap_match_options: size is not set; use tap_match_options_init");
    TAP_TRY(check_arguments(a, n_a, b, n_b, dim, &own, err));
    if (n_a == 0 || n_b == 0)
        return TAP_OK;
    float *similarity = tap_alloc(n_a * n_b, sizeof *similarity);
    void *scratch = tap_alloc(n_a + n_b, 16);
    tap_status status = TAP_OK;
    if (similarity == NULL || scratch == NULL)
        status = tap_fail(err, TAP_ERR_MEMORY, "out of memory for matching %zu with %zu points",
                          n_a, n_b);
    if (status == TAP_OK)
        status = run_similarity(similarity, engine, a, n_a, b, n_b, dim, err);
    if (status == TAP_OK)
        *n_matches = tap_match_mutual(matches, similarity, n_a, n_b, &own, scratch);
    free(similarity);
    free(scratch);
    return status;
}
