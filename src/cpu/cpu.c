#include "cpu.h"
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char variable[] = "TAPETUM_CPU";

/* Every name that is a choice on some machine: one of another architecture is known, but can't run
 * here. */
static const char *const known[] = {"scalar", "avx2", "avx512", "avx512vnni", "amx", "neon"};

static bool is_known(const char *isa)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i], isa) == 0)
            return true;
    return false;
}

static tap_status choose(tap_backend_state *state, const char *option, tap_error *err)
{
    const char *wanted = option, *from = "isa";
    snprintf(state->reason, sizeof state->reason, "asked for by option");
    if (wanted == NULL) {
        wanted = getenv(variable);
        from = variable;
        if (wanted != NULL && wanted[0] == '\0')
            wanted = NULL;
        snprintf(state->reason, sizeof state->reason, "asked for by %s", variable);
    }
    if (wanted != NULL && !is_known(wanted))
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "%s: '%s' is not one of scalar, avx2, avx512, avx512vnni, amx, neon", from,
                        wanted);
    if (wanted == NULL)
        snprintf(state->reason, sizeof state->reason, "best of this CPU");
    const tap_kernels *table;
    for (size_t i = 0; (table = tap_kernels_at(i)) != NULL; i++) {
        if (wanted != NULL && strcmp(table->isa, wanted) != 0)
            continue;
        if (tap_kernels_runnable(table)) {
            state->table = table;
            state->kernels = tap_kernels_complete(table);
            return TAP_OK;
        }
    }
    return tap_fail(err, TAP_ERR_UNSUPPORTED,
                    "%s: this CPU cannot run '%s'; leave it out to get the best it can", from,
                    wanted == NULL ? "" : wanted);
}

static tap_status open_backend(tap_backend_state **out, const tap_backend_options *options,
                               tap_error *err)
{
    *out = NULL;
    tap_backend_state *state = calloc(1, sizeof *state);
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
    snprintf(info->isa, sizeof info->isa, "%s", state->table->isa);
    snprintf(info->isa_reason, sizeof info->isa_reason, "%s", state->reason);
    tap_kernels_print(state->table, info->kernels, sizeof info->kernels);
    size_t used = strlen(info->kernels);
    tap_products_print(state->table, info->kernels + used, sizeof info->kernels - used);
}

const tap_backend tap_cpu_backend = {
    .name = "cpu",
    .open = open_backend,
    .close = close_backend,
    .describe = describe,
    .compile = tap_program_compile,
    .layout = tap_program_layout,
    .run = tap_program_run,
    .step_name = tap_program_step_name,
    .inspect = tap_program_inspect,
    .free_program = tap_program_free,
};
