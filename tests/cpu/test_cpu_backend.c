/* The verbs: which instruction set is chosen, what programs share, what threads may change, which
 * is nothing. */
#include "probe.h"

#include <pthread.h>

static void expect_refused(const char *isa, const char *variable, tap_status wanted,
                           const char *words)
{
    tap_backend_state *state = (tap_backend_state *)(uintptr_t)1;
    tap_error err = {0};
    tap_backend_options options = {.isa = isa};
    if (variable != NULL)
        setenv("TAPETUM_CPU", variable, 1);
    tap_status status = tap_cpu_backend.open(&state, &options, &err);
    CHECK(status == wanted && state == NULL && strstr(err.message, words) != NULL,
          "isa %s, variable %s: %s, \"%s\"", isa == NULL ? "-" : isa,
          variable == NULL ? "-" : variable, tap_status_name(status), err.message);
    unsetenv("TAPETUM_CPU");
}

static void expect_chosen(const char *isa, const char *variable, const char *wanted,
                          const char *reason)
{
    tap_backend_state *state;
    tap_backend_info info;
    tap_error err;
    tap_backend_options options = {.isa = isa};
    if (variable != NULL)
        setenv("TAPETUM_CPU", variable, 1);
    tap_status status = tap_cpu_backend.open(&state, &options, &err);
    unsetenv("TAPETUM_CPU");
    CHECK(status == TAP_OK, "%s", err.message);
    if (status != TAP_OK)
        return;
    tap_cpu_backend.describe(state, &info);
    CHECK(wanted == NULL || strcmp(info.isa, wanted) == 0, "chose %s", info.isa);
    CHECK(strstr(info.isa_reason, reason) != NULL, "reason \"%s\"", info.isa_reason);
    CHECK(strstr(info.kernels, "matrix product") != NULL && strstr(info.kernels, info.isa) != NULL,
          "kernels:\n%s", info.kernels);
    tap_cpu_backend.close(state);
}

static void option_beats_variable_beats_best(void)
{
    unsetenv("TAPETUM_CPU");
    expect_chosen(NULL, NULL, NULL, "best of this CPU");
    expect_chosen(NULL, "", NULL, "best of this CPU");
    expect_chosen(NULL, "scalar", "scalar", "TAPETUM_CPU");
    expect_chosen("scalar", "nonsense", "scalar", "option");
    expect_refused("sse9", NULL, TAP_ERR_ARGUMENT, "isa: 'sse9' is not one of scalar, avx2");
    expect_refused("", NULL, TAP_ERR_ARGUMENT, "scalar, avx2, avx512, avx512vnni, amx, neon");
    expect_refused(NULL, "AVX2", TAP_ERR_ARGUMENT, "TAPETUM_CPU: 'AVX2'");
#if defined(__x86_64__)
    expect_refused("neon", NULL, TAP_ERR_UNSUPPORTED, "cannot run 'neon'");
    if (!__builtin_cpu_supports("avx512f"))
        expect_refused(NULL, "avx512", TAP_ERR_UNSUPPORTED, "cannot run 'avx512'");
#else
    expect_refused("avx2", NULL, TAP_ERR_UNSUPPORTED, "cannot run 'avx2'");
#endif
}

/* ---- a small network of every operation ---------------------------------------------------- */

enum { N_WEIGHTS = 6 };

struct net {
    float *weights[N_WEIGHTS];
    tap_plan *plan;
};

static tap_buffer add_conv(struct net *net, size_t i, tap_buffer x, size_t in, size_t out,
                           size_t kernel, bool relu, bool pool)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    size_t n = out * in * kernel * kernel;
    net->weights[i] = probe_values(n + out, 11 + i);
    for (size_t j = 0; j < n; j++)
        net->weights[i][j] *= sqrtf(3 / (float)(in * kernel * kernel));
    tap_conv conv = {net->weights[i], net->weights[i] + n, out, kernel, relu, pool};
    return tap_plan_conv(net->plan, x, names[i], &conv);
}

static struct net make_net(size_t height, size_t width, bool both)
{
    struct net net = {0};
    if (tap_plan_create(&net.plan, NULL) != TAP_OK)
        abort();
    tap_buffer x = tap_plan_input(net.plan, (tap_shape){height, width, 1});
    x = add_conv(&net, 0, x, 1, 32, 3, true, false);
    x = add_conv(&net, 1, x, 32, 48, 3, true, true);
    tap_buffer scores = add_conv(&net, 2, x, 48, 65, 1, false, false);
    tap_plan_output(net.plan, tap_plan_cell_softmax(net.plan, scores, "softmax", 8));
    if (both) {
        tap_buffer map = add_conv(&net, 3, x, 48, 80, 3, false, false);
        tap_plan_output(net.plan, tap_plan_l2_norm(net.plan, map, "norm"));
    }
    return net;
}

static void free_net(struct net *net)
{
    for (size_t i = 0; i < N_WEIGHTS; i++)
        free(net->weights[i]);
    tap_plan_free(net->plan);
}

/* Compiles and runs; the outputs one after the other, from malloc. */
static float *run_net(tap_backend_state *state, const struct net *net, const tap_program *share,
                      tap_program **keep, size_t *n_values)
{
    tap_program *program;
    tap_program_info info;
    tap_error err;
    size_t n = 0, n_outputs = net->plan->n_outputs;
    tap_status status = tap_cpu_backend.compile(
        state, net->plan, &(tap_compile_options){.share = share}, &program, &err);
    CHECK(status == TAP_OK, "%s", err.message);
    if (status != TAP_OK)
        exit(1);
    tap_cpu_backend.inspect(program, &info);
    for (size_t i = 0; i < n_outputs; i++)
        n += tap_plan_elements(net->plan, net->plan->outputs[i]);
    float *values = malloc(n * sizeof *values), *outputs[2] = {values, NULL};
    if (n_outputs > 1)
        outputs[1] = values + tap_plan_elements(net->plan, net->plan->outputs[0]);
    float *input = probe_values(tap_plan_elements(net->plan, net->plan->inputs[0]), 50);
    const float *inputs[] = {input};
    void *scratch = tap_alloc(info.scratch_bytes, 1);
    double step_ms[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
    memset(scratch, 0xff, info.scratch_bytes);
    CHECK(tap_cpu_backend.run(program, scratch, inputs, outputs, step_ms, &err) == TAP_OK, "%s",
          err.message);
    for (size_t i = 0; i < info.n_steps; i++)
        CHECK(step_ms[i] >= 0 && tap_cpu_backend.step_name(program, i)[0] != '\0', "step %zu", i);
    free(scratch);
    free(input);
    if (keep != NULL)
        *keep = program;
    else
        tap_cpu_backend.free_program(program);
    *n_values = n;
    return values;
}

/* On every instruction set: the same bits for 1 to 5 threads, and again. */
static void threads_change_nothing(void)
{
    for (size_t i = 0; probe_isas[i] != NULL; i++) {
        float *first = NULL;
        struct net net = make_net(72, 104, true);
        for (size_t threads = 1; threads <= 5; threads++) {
            tap_pool *pool;
            size_t n;
            if (tap_pool_create(&pool, threads, NULL) != TAP_OK)
                abort();
            tap_backend_state *state = probe_open(probe_isas[i], pool);
            for (size_t round = 0; state != NULL && round < 2; round++) {
                float *values = run_net(state, &net, NULL, NULL, &n);
                if (first == NULL)
                    first = values;
                CHECK(memcmp(first, values, n * sizeof *values) == 0, "%s: %zu threads, run %zu",
                      probe_isas[i], threads, round);
                if (first != values)
                    free(values);
            }
            if (state != NULL)
                tap_cpu_backend.close(state);
            tap_pool_free(pool);
            if (state == NULL)
                break;
        }
        free(first);
        free_net(&net);
    }
}

/* A program at another size, and one with fewer outputs, share weights and outlive their source. */
static void programs_share_weights(tap_backend_state *state)
{
    struct net large = make_net(64, 80, true), same = make_net(64, 80, true);
    struct net small = make_net(16, 8, false), alone = make_net(16, 8, false);
    tap_program *base, *sharing;
    tap_program_info info, base_info;
    size_t n, n_small;
    float *before = run_net(state, &large, NULL, &base, &n);
    /* Weights of a sharing program aren't read: ruined, they make no difference. */
    for (size_t i = 0; i < N_WEIGHTS; i++)
        if (small.weights[i] != NULL)
            small.weights[i][0] = NAN;
    float *by_sharing = run_net(state, &small, base, &sharing, &n_small);
    float *by_itself = run_net(state, &alone, NULL, NULL, &n_small);
    CHECK(memcmp(by_sharing, by_itself, n_small * sizeof *by_itself) == 0, "sharing differs");
    tap_cpu_backend.inspect(base, &base_info);
    tap_cpu_backend.inspect(sharing, &info);
    CHECK(info.packed_bytes < base_info.packed_bytes && info.n_steps < base_info.n_steps,
          "%zu bytes, %zu steps", info.packed_bytes, info.n_steps);
    tap_cpu_backend.free_program(base);
    /* base is gone; what it shared is still there. */
    float *after = run_net(state, &same, sharing, NULL, &n);
    CHECK(memcmp(before, after, n * sizeof *after) == 0, "the same network differs");
    double start = tap_clock_ms(), least = INFINITY;
    for (size_t i = 0; i < 20; i++) {
        tap_program *again;
        start = tap_clock_ms();
        CHECK(tap_cpu_backend.compile(state, small.plan, &(tap_compile_options){.share = sharing},
                                      &again, NULL) == TAP_OK,
              "again");
        least = fmin(least, tap_clock_ms() - start);
        tap_cpu_backend.free_program(again);
    }
    CHECK(least < 5, "a sharing compile took %g ms", least);
    tap_cpu_backend.free_program(sharing);
    free(before);
    free(after);
    free(by_sharing);
    free(by_itself);
    free_net(&large);
    free_net(&same);
    free_net(&small);
    free_net(&alone);
}

struct caller {
    tap_backend_state *state;
    const tap_program *program;
    const float *wanted;
    float *input;
    size_t n_first, n, scratch_bytes, n_wrong;
};

static void *call(void *argument)
{
    struct caller *caller = argument;
    void *scratch = tap_alloc(caller->scratch_bytes, 1);
    float *values = malloc(caller->n * sizeof *values);
    const float *inputs[] = {caller->input};
    float *outputs[] = {values, values + caller->n_first};
    for (size_t i = 0; i < 5; i++) {
        memset(values, 0, caller->n * sizeof *values);
        if (tap_cpu_backend.run(caller->program, scratch, inputs, outputs, NULL, NULL) != TAP_OK ||
            memcmp(values, caller->wanted, caller->n * sizeof *values) != 0)
            caller->n_wrong++;
    }
    free(scratch);
    free(values);
    return NULL;
}

/* Four threads run one program at once, each with its own scratch. */
static void runs_may_overlap(tap_backend_state *state)
{
    enum { N_CALLERS = 4 };
    struct net net = make_net(48, 64, true);
    tap_program *program;
    tap_program_info info;
    size_t n;
    float *wanted = run_net(state, &net, NULL, &program, &n);
    float *input = probe_values((size_t)48 * 64, 50);
    struct caller callers[N_CALLERS];
    pthread_t threads[N_CALLERS];
    tap_cpu_backend.inspect(program, &info);
    for (size_t i = 0; i < N_CALLERS; i++) {
        callers[i] = (struct caller){.state = state,
                                     .program = program,
                                     .wanted = wanted,
                                     .input = input,
                                     .n_first = tap_plan_elements(net.plan, net.plan->outputs[0]),
                                     .n = n,
                                     .scratch_bytes = info.scratch_bytes};
        if (pthread_create(&threads[i], NULL, call, &callers[i]) != 0)
            abort();
    }
    for (size_t i = 0; i < N_CALLERS; i++) {
        pthread_join(threads[i], NULL);
        CHECK(callers[i].n_wrong == 0, "caller %zu: %zu wrong", i, callers[i].n_wrong);
    }
    tap_cpu_backend.free_program(program);
    free(wanted);
    free(input);
    free_net(&net);
}

/* A buffer that is input and output, and one that is output twice. */
static void outputs_may_be_anything(tap_backend_state *state)
{
    tap_plan *plan;
    tap_program *program;
    tap_program_info info;
    tap_error err;
    float x[] = {3, 4, 0, 5}, y[3][4];
    const float *inputs[] = {x};
    float *outputs[] = {y[0], y[1], y[2]};
    if (tap_plan_create(&plan, NULL) != TAP_OK)
        abort();
    tap_buffer in = tap_plan_input(plan, (tap_shape){1, 2, 2});
    tap_buffer out = tap_plan_l2_norm(plan, in, "norm");
    tap_plan_output(plan, out);
    tap_plan_output(plan, in);
    tap_plan_output(plan, out);
    CHECK(tap_cpu_backend.compile(state, plan, NULL, &program, &err) == TAP_OK, "%s", err.message);
    tap_cpu_backend.inspect(program, &info);
    void *scratch = tap_alloc(info.scratch_bytes, 1);
    CHECK(tap_cpu_backend.run(program, scratch, inputs, outputs, NULL, &err) == TAP_OK, "%s",
          err.message);
    const float wanted[] = {0.6f, 0.8f, 0, 1};
    CHECK(memcmp(y[1], x, sizeof x) == 0, "the input as output");
    CHECK(memcmp(y[0], y[2], sizeof y[0]) == 0 && probe_distance(y[0], wanted, 4) < 1e-7, "twice");
    tap_cpu_backend.free_program(program);
    tap_plan_free(plan);
    free(scratch);
}

static void a_failed_plan_is_refused(tap_backend_state *state)
{
    tap_plan *plan;
    tap_program *program;
    tap_error err;
    if (tap_plan_create(&plan, NULL) != TAP_OK)
        abort();
    tap_plan_l2_norm(plan, 7, "nothing");
    tap_status status = tap_cpu_backend.compile(state, plan, NULL, &program, &err);
    CHECK(status != TAP_OK && program == NULL && strstr(err.message, "nothing") != NULL, "%s",
          err.message);
    tap_plan_free(plan);
}

int main(void)
{
    tap_pool *pool;
    option_beats_variable_beats_best();
    threads_change_nothing();
    if (tap_pool_create(&pool, 2, NULL) != TAP_OK)
        return 1;
    tap_backend_state *state = probe_open(NULL, pool);
    programs_share_weights(state);
    runs_may_overlap(state);
    outputs_may_be_anything(state);
    a_failed_plan_is_refused(state);
    tap_cpu_backend.close(state);
    tap_pool_free(pool);
    return probe_failures != 0;
}
