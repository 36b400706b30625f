#include "api.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_WIDTH = 640,
    DEFAULT_HEIGHT = 480,
    /* The warm-up gate's input: 4 x 4 cells see every layer, every border and every channel, and
     * take the reference executor 0.1 s. */
    GATE_SIDE = 32
};

/* What the weights must correlate with their reference: design.md's "what we ship as good". */
static const double gate_threshold = 0.9999;

static const char licence[] =
    "The published SuperPoint weights (magic-leap-community/superpoint) are licensed by Magic Leap "
    "for academic or non-profit, non-commercial research only. Other weights carry their own "
    "licence.";

void tap_model_options_init(tap_model_options *options)
{
    *options = (tap_model_options){.size = sizeof *options};
}

/* A stored input: a pure function of the position, so that every start is judged alike. */
static void fill_gate_input(float *input)
{
    uint64_t seed = tap_fnv1a64("gate.input");
    for (uint64_t i = 0; i < GATE_SIDE * GATE_SIDE; i++)
        input[i] = (float)(tap_splitmix64(seed, i + 1) >> 56) / 255.0f;
}

struct gate {
    float input[GATE_SIDE * GATE_SIDE];
    float *ours[2], *reference[2];
    void *scratch;
    size_t n_outputs, n[2];
};

static tap_status run_gate(struct gate *gate, tap_model *model, const tap_plan *plan,
                           const tap_program *program, tap_error *err)
{
    const tap_backend *backend = model->engine->backend;
    const float *inputs[] = {gate->input};
    tap_program_info info;
    backend->inspect(program, &info);
    gate->scratch = tap_alloc(info.scratch_bytes, 1);
    gate->n_outputs = plan->n_outputs;
    bool enough = gate->scratch != NULL;
    for (size_t i = 0; i < plan->n_outputs; i++) {
        gate->n[i] = tap_plan_elements(plan, plan->outputs[i]);
        gate->ours[i] = tap_alloc(gate->n[i], sizeof(float));
        gate->reference[i] = tap_alloc(gate->n[i], sizeof(float));
        enough = enough && gate->ours[i] != NULL && gate->reference[i] != NULL;
    }
    if (!enough)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for the warm-up gate");
    fill_gate_input(gate->input);
    TAP_TRY(backend->run(program, gate->scratch, inputs, gate->ours, NULL, err));
    return tap_reference_run(plan, inputs, gate->reference, err);
}

/* Compares the packed network with the reference executor; see "Precision" in docs/plan.md. */
static tap_status check_gate(tap_model *model, tap_error *err)
{
    struct gate gate = {.n_outputs = 0};
    tap_plan *plan = NULL;
    tap_program *program = NULL;
    const tap_backend *backend = model->engine->backend;
    bool descriptors = tap_superpoint_descriptor_dim(model->network) > 0;
    tap_status status =
        tap_superpoint_plan(model->network, GATE_SIDE, GATE_SIDE, descriptors, &plan, err);
    if (status == TAP_OK)
        status = backend->compile(model->engine->state, plan, model->base, &program, err);
    if (status == TAP_OK)
        status = run_gate(&gate, model, plan, program, err);
    if (status == TAP_OK) {
        model->gate_correlation = 1;
        for (size_t i = 0; i < gate.n_outputs; i++) {
            double r = tap_correlation(gate.ours[i], gate.reference[i], gate.n[i]);
            if (!(r >= model->gate_correlation)) /* NaN is the worst */
                model->gate_correlation = r;
        }
        if (!(model->gate_correlation >= gate_threshold))
            status = tap_fail(err, TAP_ERR_INTERNAL,
                              "%s: the warm-up gate failed: the packed network's correlation with "
                              "the reference is %.6f, must be %.4f or more; the weights' values "
                              "are extreme, or this build is wrong on this CPU",
                              model->path, model->gate_correlation, gate_threshold);
    }
    for (size_t i = 0; i < 2; i++) {
        free(gate.ours[i]);
        free(gate.reference[i]);
    }
    free(gate.scratch);
    if (program != NULL)
        backend->free_program(program);
    tap_plan_free(plan);
    return status;
}

/* config.json beside the weights, where there is one. */
static tap_status open_config(tap_config **config, const char *weights_file, tap_error *err)
{
    *config = NULL;
    const char *slash = strrchr(weights_file, '/');
    int folder = slash == NULL ? 0 : (int)(slash - weights_file) + 1;
    char *path = NULL;
    if (asprintf(&path, "%.*sconfig.json", folder, weights_file) < 0)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for a path", weights_file);
    tap_error ignored;
    tap_status status = tap_config_open(config, path, &ignored);
    free(path);
    if (status == TAP_OK || status == TAP_ERR_NOT_FOUND)
        return TAP_OK;
    return tap_fail(err, status, "%s", ignored.message);
}

static tap_status read_network(tap_model *model, const char *path, tap_error *err)
{
    tap_weights *weights = NULL;
    tap_config *config = NULL;
    tap_status status = tap_weights_open(&weights, path, err);
    if (status == TAP_OK)
        status = open_config(&config, tap_weights_file(weights), err);
    if (status == TAP_OK)
        status = tap_superpoint_create(&model->network, weights, config, err);
    if (status == TAP_OK) {
        model->path = strdup(tap_weights_file(weights));
        model->format = tap_weights_format(weights);
        if (model->path == NULL)
            status = tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for its name", path);
    }
    tap_config_free(config);
    tap_weights_close(weights);
    return status;
}

static tap_status pack_network(tap_model *model, tap_error *err)
{
    tap_plan *plan = NULL;
    const tap_backend *backend = model->engine->backend;
    bool descriptors = tap_superpoint_descriptor_dim(model->network) > 0;
    TAP_TRY(tap_superpoint_plan(model->network, DEFAULT_WIDTH, DEFAULT_HEIGHT, descriptors, &plan,
                                err));
    tap_status status = backend->compile(model->engine->state, plan, NULL, &model->base, err);
    tap_plan_free(plan);
    if (status == TAP_OK) {
        tap_program_info info;
        backend->inspect(model->base, &info);
        model->packed_bytes = info.packed_bytes;
    }
    return status;
}

tap_status tap_model_load(tap_model **out, tap_engine *engine, const char *path,
                          const tap_model_options *options, tap_error *err)
{
    tap_model_options own;
    *out = NULL;
    tap_model_options_init(&own);
    if (!tap_options_read(&own, sizeof own, options))
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "tap_model_options: size is not set; use tap_model_options_init");
    if (path == NULL || path[0] == '\0')
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "path: is empty; name a model's folder or weights file");
    tap_model *model = calloc(1, sizeof *model);
    if (model == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a model");
    double start = tap_clock_ms();
    atomic_init(&model->references, 1);
    model->engine = tap_engine_retain(engine);
    model->gate_correlation = NAN;
    tap_status status = read_network(model, path, err);
    if (status == TAP_OK)
        status = pack_network(model, err);
    if (status == TAP_OK && !own.skip_gate)
        status = check_gate(model, err);
    if (status != TAP_OK) {
        tap_model_release(model);
        return status;
    }
    model->load_ms = tap_clock_ms() - start;
    tap_engine_log(engine, TAP_LOG_INFO, "%s: superpoint, %llu parameters, gate %.6f, %.0f ms",
                   model->path, (unsigned long long)tap_superpoint_parameters(model->network),
                   model->gate_correlation, model->load_ms);
    *out = model;
    return TAP_OK;
}

tap_model *tap_model_retain(tap_model *model)
{
    atomic_fetch_add_explicit(&model->references, 1, memory_order_relaxed);
    return model;
}

void tap_model_release(tap_model *model)
{
    if (model == NULL ||
        atomic_fetch_sub_explicit(&model->references, 1, memory_order_acq_rel) != 1)
        return;
    if (model->base != NULL)
        model->engine->backend->free_program(model->base);
    tap_superpoint_free(model->network);
    tap_engine_release(model->engine);
    free(model->path);
    free(model);
}

tap_status tap_model_describe(const tap_model *model, tap_model_info *info)
{
    size_t dim = tap_superpoint_descriptor_dim(model->network);
    tap_model_info own = {.size = sizeof own,
                          .kind = "superpoint",
                          .path = model->path,
                          .format = model->format,
                          .licence = licence,
                          .n_parameters = tap_superpoint_parameters(model->network),
                          .has_descriptors = dim > 0,
                          .descriptor_dim = (uint32_t)dim,
                          .gate_correlation = model->gate_correlation,
                          .load_ms = model->load_ms,
                          .packed_bytes = model->packed_bytes};
    size_t size = info->size;
    if (size < sizeof size || size > sizeof own)
        return TAP_ERR_ARGUMENT;
    memcpy(info, &own, size);
    info->size = size;
    return TAP_OK;
}

tap_status tap_model_plan(const tap_model *model, uint32_t width, uint32_t height, char **text,
                          tap_error *err)
{
    tap_plan *plan = NULL;
    *text = NULL;
    bool descriptors = tap_superpoint_descriptor_dim(model->network) > 0;
    TAP_TRY(tap_superpoint_plan(model->network, width, height, descriptors, &plan, err));
    tap_status status = tap_plan_print(plan, text, err);
    tap_plan_free(plan);
    return status;
}

tap_status tap_synth_write(const char *kind, const char *path, tap_error *err)
{
    if (kind == NULL || strcmp(kind, "superpoint") != 0)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "kind '%s': synthetic weights are known for \"superpoint\"",
                        kind == NULL ? "" : kind);
    return tap_synth_superpoint(path, err);
}
