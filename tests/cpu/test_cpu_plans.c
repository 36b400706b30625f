/* Plans on the backend against the reference executor, over awkward sizes and channel counts. */
#include "probe.h"

struct job {
    tap_backend_state *state;
    const char *isa;
};

/* Runs the plan on both; scale is the size of the largest partial sums, to which rounding is
 * relative. Inputs and scratch are guarded. */
static void compare(const struct job *job, tap_plan *plan, const char *what, double bound)
{
    tap_program *program;
    tap_error err;
    tap_program_info info;
    const float *inputs[2];
    float *wanted[4], *got[4];
    CHECK(tap_plan_finish(plan, &err) == TAP_OK, "%s: %s", what, err.message);
    tap_status status = tap_cpu_backend.compile(job->state, plan, NULL, &program, &err);
    CHECK(status == TAP_OK, "%s: %s", what, err.message);
    if (status != TAP_OK)
        return;
    tap_cpu_backend.inspect(program, &info);
    for (size_t i = 0; i < plan->n_inputs; i++) {
        size_t n = tap_plan_elements(plan, plan->inputs[i]);
        float *values = probe_values(n, 77 + i), *guarded = probe_guarded(n);
        memcpy(guarded, values, n * sizeof *values);
        inputs[i] = guarded;
        free(values);
    }
    for (size_t i = 0; i < plan->n_outputs; i++) {
        wanted[i] = malloc(tap_plan_elements(plan, plan->outputs[i]) * sizeof(float));
        got[i] = probe_guarded(tap_plan_elements(plan, plan->outputs[i]));
    }
    enum { GUARD_BYTES = 4096 };
    uint8_t *scratch = tap_alloc(info.scratch_bytes + GUARD_BYTES, 1);
    memset(scratch, 0xff, info.scratch_bytes + GUARD_BYTES); /* NaN: nothing relies on zeros */
    CHECK(tap_cpu_backend.run(program, scratch, inputs, got, NULL, &err) == TAP_OK, "%s: %s", what,
          err.message);
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (scratch[info.scratch_bytes + i] != 0xff) {
            CHECK(false, "%s %s: wrote behind the scratch", job->isa, what);
            break;
        }
    CHECK(tap_reference_run(plan, inputs, wanted, &err) == TAP_OK, "%s: %s", what, err.message);
    for (size_t i = 0; i < plan->n_outputs; i++) {
        size_t n = tap_plan_elements(plan, plan->outputs[i]);
        double distance = probe_distance(wanted[i], got[i], n);
        CHECK(distance <= bound, "%s %s: output %zu differs by %g, bound %g", job->isa, what, i,
              distance, bound);
        CHECK(probe_guards_whole(got[i], n), "%s %s: wrote outside output %zu", job->isa, what, i);
        probe_guarded_free(got[i]);
        free(wanted[i]);
    }
    for (size_t i = 0; i < plan->n_inputs; i++)
        probe_guarded_free((float *)(uintptr_t)inputs[i]);
    free(scratch);
    tap_cpu_backend.free_program(program);
}

static tap_plan *new_plan(void)
{
    tap_plan *plan;
    if (tap_plan_create(&plan, NULL) != TAP_OK)
        abort();
    return plan;
}

struct conv_case {
    size_t height, width, in, out, kernel;
    bool relu, pool;
};

/* Weights and inputs in [-1, 1) make a sum of n = k^2 in products of standard deviation 1/3, so
 * outputs of about sqrt(n) / 3. A plain sum rounds to 1e-7 of that (rms), F(4x4, 3x3) to 2e-6; the
 * worst of some 10^5 outputs is tenfold the rms, 2e-5 sqrt(n) / 3, and the bound twice that. */
static void conv(const struct job *job, const struct conv_case *c)
{
    char what[128];
    snprintf(what, sizeof what, "conv%zu %zux%zu %zu->%zu%s%s", c->kernel, c->height, c->width,
             c->in, c->out, c->relu ? " relu" : "", c->pool ? " pool" : "");
    size_t area = c->kernel * c->kernel;
    float *weight = probe_values(c->out * c->in * area, 5), *bias = probe_values(c->out, 6);
    tap_plan *plan = new_plan();
    tap_conv op = {weight, bias, c->out, c->kernel, c->relu, c->pool};
    tap_buffer x = tap_plan_input(plan, (tap_shape){c->height, c->width, c->in});
    tap_plan_output(plan, tap_plan_conv(plan, x, "conv", &op));
    compare(job, plan, what, 1.3e-5 * (1 + sqrt((double)(area * c->in))));
    tap_plan_free(plan);
    free(weight);
    free(bias);
}

static void convolutions_of_every_small_size(const struct job *job)
{
    static const size_t channels[] = {1, 3, 5, 16, 17, 65};
    for (size_t kernel = 1; kernel <= 3; kernel += 2)
        for (size_t height = 1; height <= 9; height++)
            for (size_t width = 1; width <= 9; width++) {
                size_t pick = height * 9 + width;
                struct conv_case c = {.height = height,
                                      .width = width,
                                      .in = channels[pick % 6],
                                      .out = channels[pick / 6 % 6],
                                      .kernel = kernel,
                                      .relu = pick % 2 != 0};
                conv(job, &c);
                c.pool = height % 2 == 0 && width % 2 == 0;
                if (c.pool)
                    conv(job, &c);
            }
}

static void convolutions_of_every_channel_count(const struct job *job)
{
    static const size_t channels[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 31, 32, 33, 64, 65, 80};
    enum { N = sizeof channels / sizeof *channels };
    for (size_t kernel = 1; kernel <= 3; kernel += 2)
        for (size_t i = 0; i < (size_t)N * N; i++) {
            struct conv_case c = {.height = 6,
                                  .width = 8,
                                  .in = channels[i % N],
                                  .out = channels[i / N],
                                  .kernel = kernel,
                                  .relu = i % 2 != 0,
                                  .pool = i % 3 == 0};
            conv(job, &c);
        }
}

static void convolutions_of_network_shapes(const struct job *job)
{
    static const struct conv_case cases[] = {
        {48, 64, 1, 64, 3, true, false},    {40, 88, 64, 64, 3, true, true},
        {24, 44, 64, 128, 3, true, false},  {32, 24, 128, 128, 3, true, true},
        {15, 20, 128, 256, 3, true, false}, {12, 17, 256, 65, 1, false, false},
        {9, 13, 256, 256, 1, false, false}, {8, 8, 65, 1, 1, true, true},
        {50, 70, 2, 20, 3, false, true},    {2, 200, 64, 64, 3, true, true},
        {200, 2, 64, 64, 3, true, true},    {1, 1, 256, 256, 3, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        conv(job, &cases[i]);
}

/* A first layer computed into the strips of the second; with keep, its buffer is wanted too. */
static void first_layer_fused(const struct job *job, size_t height, size_t width, size_t in,
                              size_t middle, bool keep)
{
    char what[128];
    snprintf(what, sizeof what, "front %zux%zu %zu->%zu->64%s", height, width, in, middle,
             keep ? " kept" : "");
    float *weight = probe_values(64 * middle * 9, 5), *bias = probe_values(middle + 64, 6);
    tap_plan *plan = new_plan();
    tap_conv first = {weight, bias, middle, 3, true, false};
    tap_conv second = {weight, bias, 64, 3, true, height % 2 == 0 && width % 2 == 0};
    tap_buffer x = tap_plan_input(plan, (tap_shape){height, width, in});
    x = tap_plan_conv(plan, x, "first", &first);
    if (keep)
        tap_plan_output(plan, x);
    tap_plan_output(plan, tap_plan_conv(plan, x, "second", &second));
    compare(job, plan, what, 2e-5 * (1 + sqrt((double)(9 * middle))));
    tap_plan_free(plan);
    free(weight);
    free(bias);
}

static void first_layers(const struct job *job)
{
    for (size_t height = 1; height <= 9; height++)
        for (size_t width = 1; width <= 9; width++)
            first_layer_fused(job, height, width, 1, 16, (height + width) % 3 == 0);
    first_layer_fused(job, 8, 8, 1, 64, false);
    first_layer_fused(job, 56, 72, 1, 64, false);
    first_layer_fused(job, 26, 50, 3, 37, false);
    first_layer_fused(job, 26, 50, 4, 64, true);
}

/* Inputs scaled so that the plain exp would overflow. */
static void softmax(const struct job *job, size_t height, size_t width, size_t cell, float scale)
{
    char what[128];
    snprintf(what, sizeof what, "softmax %zux%zu cell %zu scale %g", height, width, cell,
             (double)scale);
    size_t n = cell * cell + 1;
    float *weight = calloc(n * n, sizeof *weight), *bias = calloc(n, sizeof *bias);
    for (size_t i = 0; i < n; i++)
        weight[i * n + i] = scale;
    tap_plan *plan = new_plan();
    tap_conv op = {weight, bias, n, 1, false, false};
    tap_buffer x = tap_plan_input(plan, (tap_shape){height, width, n});
    x = tap_plan_conv(plan, x, "scale", &op);
    tap_plan_output(plan, tap_plan_cell_softmax(plan, x, "softmax", cell));
    compare(job, plan, what, 4e-7);
    tap_plan_free(plan);
    free(weight);
    free(bias);
}

static void norm(const struct job *job, size_t height, size_t width, size_t n)
{
    char what[128];
    snprintf(what, sizeof what, "norm %zux%zux%zu", height, width, n);
    tap_plan *plan = new_plan();
    tap_buffer x = tap_plan_input(plan, (tap_shape){height, width, n});
    tap_plan_output(plan, tap_plan_l2_norm(plan, x, "norm"));
    compare(job, plan, what, 3e-7);
    tap_plan_free(plan);
}

static void similarity(const struct job *job, size_t m, size_t n, size_t k)
{
    char what[128];
    snprintf(what, sizeof what, "similarity %zux%zux%zu", m, n, k);
    tap_plan *plan = new_plan();
    tap_buffer a = tap_plan_input(plan, (tap_shape){1, m, k});
    tap_buffer b = tap_plan_input(plan, (tap_shape){1, n, k});
    tap_plan_output(plan, tap_plan_similarity(plan, a, b, "similarity"));
    compare(job, plan, what, 1e-6 * (1 + sqrt((double)k)));
    tap_plan_free(plan);
}

static void the_other_operations(const struct job *job)
{
    static const float scales[] = {1, 8, 40, 90, 3e5f};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        for (size_t cell = 1; cell <= 9; cell += cell == 1 ? 1 : 3)
            softmax(job, 3, 1 + i, cell, scales[i]);
    softmax(job, 6, 7, 8, 20);
    for (size_t n = 1; n <= 34; n++)
        norm(job, 2, 3, n);
    norm(job, 20, 20, 256);
    for (size_t n = 1; n <= 33; n++)
        similarity(job, n, 34 - n, 1 + n % 7);
    similarity(job, 130, 97, 256);
}

int main(void)
{
    tap_pool *pool;
    if (tap_pool_create(&pool, 2, NULL) != TAP_OK)
        return 1;
    for (size_t i = 0; probe_isas[i] != NULL; i++) {
        struct job job = {probe_open(probe_isas[i], pool), probe_isas[i]};
        if (job.state == NULL)
            continue;
        convolutions_of_every_small_size(&job);
        convolutions_of_every_channel_count(&job);
        convolutions_of_network_shapes(&job);
        first_layers(&job);
        the_other_operations(&job);
        tap_cpu_backend.close(job.state);
        printf("%s: done\n", job.isa);
    }
    tap_pool_free(pool);
    return probe_failures != 0;
}
