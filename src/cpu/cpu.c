/* The backend's table, and which kernels it chooses. */
#include "cpu.h"
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f");
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

static bool always(void)
{
    return true;
}

/* Best first. Asking the compiler's run-time support rather than CPUID alone: it also checks that
 * the system saves the wide registers. */
static const struct {
    const char *name;
    const tap_kernels *kernels; /* NULL: not in this build */
    bool (*runs_here)(void);
} choices[] = {
#if defined(__x86_64__)
    {"avx512", &tap_kernels_avx512, has_avx512},
    {"avx2", &tap_kernels_avx2, has_avx2},
    {"neon", NULL, always},
#elif defined(__aarch64__)
    {"neon", &tap_kernels_neon, always},
    {"avx512", NULL, always},
    {"avx2", NULL, always},
#else
    {"avx512", NULL, always},
    {"avx2", NULL, always},
    {"neon", NULL, always},
#endif
    {"scalar", &tap_kernels_scalar, always},
};

static tap_status choose(tap_backend_state *state, const char *isa, tap_error *err)
{
    const char *reason = "asked for by option";
    if (isa == NULL) {
        isa = getenv("TAPETUM_CPU");
        reason = "asked for by TAPETUM_CPU";
    }
    if (isa != NULL && isa[0] == '\0')
        isa = NULL;
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        bool usable = choices[i].kernels != NULL && choices[i].runs_here();
        if (isa == NULL ? !usable : strcmp(isa, choices[i].name) != 0)
            continue;
        if (!usable)
            return tap_fail(err, TAP_ERR_UNSUPPORTED,
                            "isa '%s': this CPU, or this build, can't run it; leave it out to get "
                            "the best that can",
                            isa);
        state->kernels = choices[i].kernels;
        snprintf(state->isa_reason, sizeof state->isa_reason, "%s",
                 isa == NULL ? "best of this CPU" : reason);
        return TAP_OK;
    }
    return tap_fail(err, TAP_ERR_ARGUMENT,
                    "isa '%s': must be scalar, avx2, avx512 or neon; leave it out to get the best",
                    isa);
}

static tap_status open_backend(tap_backend_state **out, const tap_backend_options *options,
                               tap_error *err)
{
    tap_backend_state *state = calloc(1, sizeof *state);
    *out = NULL;
    if (state == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for the CPU backend");
    state->pool = options->pool;
    tap_status status = choose(state, options->isa, err);
    if (status != TAP_OK) {
        free(state);
        return status;
    }
    *out = state;
    return TAP_OK;
}

static void close_backend(tap_backend_state *state)
{
    free(state);
}

static void describe(const tap_backend_state *state, tap_backend_info *info)
{
    static const char *const operations[][2] = {
        {"conv3x3", "Winograd F(4x4, 3x3), bias, ReLU and 2x2 maximum fused"},
        {"conv3x3 of one channel", "direct, fused into the next convolution's strips"},
        {"conv1x1", "packed matrix product"},
        {"cell_softmax", "polynomial exp, unfolded"},
        {"l2_norm", "one pass"},
        {"similarity", "packed matrix product"},
    };
    size_t used = 0;
    snprintf(info->isa, sizeof info->isa, "%s", state->kernels->name);
    snprintf(info->isa_reason, sizeof info->isa_reason, "%s", state->isa_reason);
    info->kernels[0] = '\0';
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++)
        used +=
            (size_t)snprintf(info->kernels + used, sizeof info->kernels - used, "%-24s %-8s %s\n",
                             operations[i][0], state->kernels->name, operations[i][1]);
}

static const char *step_name(const tap_program *program, size_t step)
{
    return program->steps[step].name;
}

static void inspect(const tap_program *program, tap_program_info *info)
{
    *info = (tap_program_info){.scratch_bytes = program->scratch_bytes,
                               .packed_bytes = program->packed_bytes,
                               .n_steps = program->n_steps};
}

const tap_backend tap_cpu_backend = {.name = "cpu",
                                     .open = open_backend,
                                     .close = close_backend,
                                     .describe = describe,
                                     .compile = tap_cpu_compile,
                                     .run = tap_cpu_run,
                                     .step_name = step_name,
                                     .inspect = inspect,
                                     .free_program = tap_cpu_free_program};
