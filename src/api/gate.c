/* The warm-up gate: the packed network against the reference executor; "Precision" in docs/plan.md.
 */
#include "api.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* SuperPoint's input: 4 x 4 cells see every layer, every border and every channel, and take the
     * reference executor 0.1 s. */
    POINTS_SIDE = 32,
    MAX_OUTPUTS = 2
};

/* What the outputs must correlate with their reference: design.md's "what we ship as good". */
static const double threshold = 0.9999;

struct gate {
    float *input;
    float *ours[MAX_OUTPUTS], *reference[MAX_OUTPUTS];
    void *scratch;
    size_t n[MAX_OUTPUTS];
};

static tap_status make_plan(tap_plan **plan, const tap_model *model, tap_error *err)
{
    if (model->kind == TAP_KIND_HAMER)
        return tap_hamer_gate_plan(model->hamer, plan, err);
    bool descriptors = tap_superpoint_descriptor_dim(model->superpoint) > 0;
    return tap_superpoint_plan(model->superpoint, POINTS_SIDE, POINTS_SIDE, descriptors, plan, err);
}

/* Levels of grey as a function of their place, so that every start is judged alike: in [0, 1], or
 * for HaMeR, whose pixels are normalised, in about [-2, 2]. */
static void fill_input(float *input, size_t n, tap_kind kind)
{
    uint64_t seed = tap_fnv1a64("gate.input");
    for (size_t i = 0; i < n; i++) {
        float level = (float)(tap_splitmix64(seed, i + 1) >> 56) / 255.0f;
        input[i] = kind == TAP_KIND_HAMER ? 4 * level - 2 : level;
    }
}

static tap_status run(struct gate *gate, const tap_model *model, const tap_plan *plan,
                      const tap_program *program, tap_error *err)
{
    const tap_backend *backend = model->engine->backend;
    size_t n_input = tap_plan_elements(plan, plan->inputs[0]);
    tap_program_info info;
    backend->inspect(program, &info);
    gate->scratch = tap_alloc(info.scratch_bytes, 1);
    gate->input = tap_alloc(n_input, sizeof(float));
    bool enough = gate->scratch != NULL && gate->input != NULL;
    for (size_t i = 0; i < plan->n_outputs; i++) {
        gate->n[i] = tap_plan_elements(plan, plan->outputs[i]);
        gate->ours[i] = tap_alloc(gate->n[i], sizeof(float));
        gate->reference[i] = tap_alloc(gate->n[i], sizeof(float));
        enough = enough && gate->ours[i] != NULL && gate->reference[i] != NULL;
    }
    if (!enough)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for the warm-up gate");
    fill_input(gate->input, n_input, model->kind);
    const float *inputs[] = {gate->input};
    TAP_TRY(backend->run(program, gate->scratch, inputs, gate->ours, NULL, err));
    const float *kept = model->cache == NULL ? NULL : tap_cache_reference(model->cache, gate->n[0]);
    if (kept == NULL)
        return tap_reference_run(plan, inputs, gate->reference, err);
    memcpy(gate->reference[0], kept, gate->n[0] * sizeof *kept);
    return TAP_OK;
}

/* A file that could not be kept is told and costs the next load its time. */
static void keep(const struct gate *gate, const tap_model *model)
{
    tap_error err;
    if (model->cache != NULL &&
        tap_cache_commit(model->cache, gate->reference[0], gate->n[0], &err) != TAP_OK)
        tap_engine_log(model->engine, TAP_LOG_WARNING, "%s", err.message);
}

static tap_status judge(const struct gate *gate, size_t n_outputs, tap_model *model, tap_error *err)
{
    model->gate_correlation = 1;
    for (size_t i = 0; i < n_outputs; i++) {
        double r = tap_correlation(gate->ours[i], gate->reference[i], gate->n[i]);
        if (!(r >= model->gate_correlation)) /* NaN is the worst */
            model->gate_correlation = r;
    }
    if (model->gate_correlation >= threshold) {
        keep(gate, model);
        return TAP_OK;
    }
    return tap_fail(err, TAP_ERR_INTERNAL,
                    "%s: the warm-up gate failed: the packed network's correlation with the "
                    "reference is %.6f, must be %.4f or more; the weights' values are extreme, or "
                    "this build is wrong on this CPU",
                    model->path, model->gate_correlation, threshold);
}

tap_status tap_gate_check(tap_model *model, tap_error *err)
{
    struct gate gate = {.input = NULL};
    tap_plan *plan = NULL;
    tap_program *program = NULL;
    const tap_backend *backend = model->engine->backend;
    const tap_compile_options options = {.share = model->base, .precision = model->precision};
    tap_status status = make_plan(&plan, model, err);
    if (status == TAP_OK)
        status = backend->compile(model->engine->state, plan, &options, &program, err);
    if (status == TAP_OK)
        status = run(&gate, model, plan, program, err);
    if (status == TAP_OK)
        status = judge(&gate, plan->n_outputs, model, err);
    for (size_t i = 0; i < MAX_OUTPUTS; i++) {
        free(gate.ours[i]);
        free(gate.reference[i]);
    }
    free(gate.input);
    free(gate.scratch);
    if (program != NULL)
        backend->free_program(program);
    tap_plan_free(plan);
    return status;
}
