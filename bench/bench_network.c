/* Times the SuperPoint network on the CPU backend, step by step, on synthetic weights.
 *
 *     bench_network [--threads N] [--size WIDTHxHEIGHT] [--runs N] [--isa NAME] [--total]
 *
 * --total prints only one line of JSON with the medians, for bench_network.py. Limits are what the
 * multiply-adds alone would take at the peak that a loop of FMAs reaches in between the runs: those
 * of the plain algorithm, and those of F(4x4, 3x3), a quarter as many. */
#include "fma_peak.h"

#include "cpu/cpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STEPS = 32, MAX_RUNS = 1000 };

struct arguments {
    size_t threads, width, height, runs;
    const char *isa;
    bool total;
};

struct layer {
    const char *name;
    size_t in, out, kernel;
    bool relu, pool;
};

static const struct layer layers[] = {
    {"block0_a", 1, 64, 3, true, false},        {"block0_b", 64, 64, 3, true, true},
    {"block1_a", 64, 64, 3, true, false},       {"block1_b", 64, 64, 3, true, true},
    {"block2_a", 64, 128, 3, true, false},      {"block2_b", 128, 128, 3, true, true},
    {"block3_a", 128, 128, 3, true, false},     {"block3_b", 128, 128, 3, true, false},
    {"score_a", 128, 256, 3, true, false},      {"score_b", 256, 65, 1, false, false},
    {"descriptor_a", 128, 256, 3, true, false}, {"descriptor_b", 256, 256, 1, false, false},
};
enum { N_LAYERS = sizeof layers / sizeof *layers, N_ENCODER = 8 };

static float *values(size_t n, uint64_t seed, float scale)
{
    float *made = tap_alloc(n, sizeof *made);
    for (size_t i = 0; made != NULL && i < n; i++)
        made[i] = scale * ((float)(tap_splitmix64(seed, i + 1) >> 40) / (float)(1 << 23) - 1);
    if (made == NULL)
        exit(1);
    return made;
}

static tap_plan *make_plan(const struct arguments *arguments, float *weights[2 * N_LAYERS])
{
    tap_plan *plan;
    tap_error err;
    if (tap_plan_create(&plan, &err) != TAP_OK)
        exit(1);
    tap_buffer x = tap_plan_input(plan, (tap_shape){arguments->height, arguments->width, 1});
    tap_buffer trunk = x;
    for (size_t i = 0; i < N_LAYERS; i++) {
        const struct layer *layer = &layers[i];
        size_t n = layer->in * layer->kernel * layer->kernel;
        weights[2 * i] = values(n * layer->out, 2 * i, sqrtf(6.0f / (float)n));
        weights[2 * i + 1] = values(layer->out, 2 * i + 1, 0.1f);
        tap_conv conv = {weights[2 * i], weights[2 * i + 1], layer->out,
                         layer->kernel,  layer->relu,        layer->pool};
        bool head = i >= N_ENCODER && i % 2 == 0;
        x = tap_plan_conv(plan, head ? trunk : x, layer->name, &conv);
        if (i + 1 == N_ENCODER)
            trunk = x;
        if (strcmp(layer->name, "score_b") == 0)
            tap_plan_output(plan, tap_plan_cell_softmax(plan, x, "score_softmax", 8));
    }
    tap_plan_output(plan, tap_plan_l2_norm(plan, x, "descriptor_norm"));
    if (tap_plan_finish(plan, &err) != TAP_OK) {
        fprintf(stderr, "bench_network: %s\n", err.message);
        exit(1);
    }
    return plan;
}

static int by_value(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static double median(double *sorted, size_t n)
{
    qsort(sorted, n, sizeof *sorted, by_value);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* Multiply-adds of the operations that a step stands for, found by its name; those of 3x3 layers
 * past the first count a quarter in winograd. */
static void step_macs(const tap_plan *plan, const char *name, double *plain, double *winograd)
{
    *plain = *winograd = 0;
    for (size_t i = 0; i < plan->n_ops; i++) {
        const tap_op *op = &plan->ops[i];
        if (strstr(name, op->name) == NULL)
            continue;
        double macs = (double)tap_plan_macs(plan, op);
        *plain += macs;
        *winograd += op->kernel == 3 && plan->shapes[op->input].channels > 4 ? macs / 4 : macs;
    }
}

static struct arguments read_arguments(int argc, char **argv)
{
    struct arguments arguments = {tap_cpus_allowed(NULL, 0), 640, 480, 15, NULL, false};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--total") == 0) {
            arguments.total = true;
            continue;
        }
        char *end = NULL;
        if (strcmp(argv[i], "--threads") == 0)
            arguments.threads = strtoul(value, &end, 10);
        else if (strcmp(argv[i], "--runs") == 0)
            arguments.runs = strtoul(value, &end, 10);
        else if (strcmp(argv[i], "--isa") == 0)
            arguments.isa = value;
        else if (strcmp(argv[i], "--size") == 0) {
            arguments.width = strtoul(value, &end, 10);
            arguments.height = *end == 'x' ? strtoul(end + 1, &end, 10) : 0;
        } else {
            fprintf(stderr, "bench_network: unknown option %s\n", argv[i]);
            exit(2);
        }
        i++;
    }
    if (arguments.threads == 0 || arguments.runs == 0 || arguments.runs > MAX_RUNS) {
        fprintf(stderr, "bench_network: --threads and --runs (at most %d) must be positive\n",
                MAX_RUNS);
        exit(2);
    }
    return arguments;
}

struct times {
    double total[MAX_RUNS], peak[MAX_RUNS], step[MAX_STEPS][MAX_RUNS];
};

static void print_steps(const tap_plan *plan, const tap_program *program, struct times *times,
                        size_t n_steps, size_t runs, double peak)
{
    double sums[3] = {0};
    printf("%8s %8s %9s %11s %11s  step\n", "ms", "least", "GF/s eff.", "of FMA lim.",
           "of Wino lim.");
    for (size_t i = 0; i < n_steps; i++) {
        double plain, winograd, middle = median(times->step[i], runs);
        const char *name = tap_cpu_backend.step_name(program, i);
        step_macs(plan, name, &plain, &winograd);
        double plain_ms = plain * 2e-6 / peak, winograd_ms = winograd * 2e-6 / peak;
        sums[0] += middle;
        sums[1] += plain_ms;
        sums[2] += winograd_ms;
        printf("%8.2f %8.2f %9.0f %11.2f %11.2f  %s\n", middle, times->step[i][0],
               plain * 2e-6 / middle, plain_ms / middle, winograd_ms / middle, name);
    }
    printf("%8.2f %8s %9s %11.2f %11.2f  sum\n", sums[0], "", "", sums[1] / sums[0],
           sums[2] / sums[0]);
}

int main(int argc, char **argv)
{
    static struct times times;
    struct arguments arguments = read_arguments(argc, argv);
    float *weights[2 * N_LAYERS];
    tap_pool *pool;
    tap_backend_state *state;
    tap_program *program;
    tap_program_info info;
    tap_backend_info backend;
    tap_error err;
    tap_plan *plan = make_plan(&arguments, weights);
    double start = tap_clock_ms();
    if (tap_pool_create(&pool, arguments.threads, &err) != TAP_OK ||
        tap_cpu_backend.open(&state, &(tap_backend_options){arguments.isa, pool}, &err) != TAP_OK ||
        tap_cpu_backend.compile(state, plan, NULL, &program, &err) != TAP_OK) {
        fprintf(stderr, "bench_network: %s\n", err.message);
        return 1;
    }
    double compile_ms = tap_clock_ms() - start;
    tap_cpu_backend.inspect(program, &info);
    tap_cpu_backend.describe(state, &backend);
    void *scratch = tap_alloc(info.scratch_bytes, 1);
    const float *inputs[] = {values(arguments.width * arguments.height, 99, 0.5f)};
    float *outputs[] = {values(arguments.width * arguments.height, 98, 0),
                        values(arguments.width * arguments.height * 4, 97, 0)};
    for (size_t run = 0; run < arguments.runs + 2; run++) {
        double step_ms[MAX_STEPS];
        size_t slot = run < 2 ? 0 : run - 2; /* the first two warm up */
        times.peak[slot] = bench_fma_peak(pool, backend.isa, 5);
        start = tap_clock_ms();
        if (tap_cpu_backend.run(program, scratch, inputs, outputs, step_ms, &err) != TAP_OK) {
            fprintf(stderr, "bench_network: %s\n", err.message);
            return 1;
        }
        times.total[slot] = tap_clock_ms() - start;
        for (size_t i = 0; i < info.n_steps; i++)
            times.step[i][slot] = step_ms[i];
    }
    double total = median(times.total, arguments.runs), peak = median(times.peak, arguments.runs);
    if (arguments.total)
        printf("{\"median_ms\": %.2f, \"min_ms\": %.2f, \"peak_gflops\": %.1f, \"isa\": \"%s\", "
               "\"threads\": %zu}\n",
               total, times.total[0], peak, backend.isa, arguments.threads);
    else {
        printf("%zux%zu, %s, %zu threads, %zu runs; FMA peak %.0f GF/s (most %.0f)\n",
               arguments.width, arguments.height, backend.isa, arguments.threads, arguments.runs,
               peak, times.peak[arguments.runs - 1]);
        print_steps(plan, program, &times, info.n_steps, arguments.runs, peak);
        printf("%8.2f %8.2f total; open, pack and compile %.1f ms, scratch %.1f MB, packed "
               "weights %.1f MB\n",
               total, times.total[0], compile_ms, (double)info.scratch_bytes * 1e-6,
               (double)info.packed_bytes * 1e-6);
    }
    tap_cpu_backend.free_program(program);
    tap_cpu_backend.close(state);
    tap_pool_free(pool);
    tap_plan_free(plan);
    for (size_t i = 0; i < (size_t)2 * N_LAYERS; i++)
        free(weights[i]);
    free((void *)(uintptr_t)inputs[0]);
    free(outputs[0]);
    free(outputs[1]);
    free(scratch);
    return 0;
}
