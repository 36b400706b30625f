/* tapetum convert: a checkpoint's needed tensors as a clean file. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings {
    unsigned dtype;
    bool quiet;
};

static const char *const dtypes[] = {"f32", "f16", NULL};

static const tap_option options[] = {
    {"dtype", 0, "TYPE", "f32 (default), or f16: half the size, rounded to nearest",
     TAP_OPTION_CHOICE, offsetof(struct settings, dtype), 0, 0, dtypes},
    {"quiet", 'q', NULL, "say nothing, no progress bar", TAP_OPTION_ON,
     offsetof(struct settings, quiet), 0, 0, NULL},
    {.name = NULL}};

static int run(const tap_verb *verb, int argc, char **argv)
{
    struct settings settings = {0};
    tap_progress progress;
    tap_error err;
    int operand;
    int status = tap_cli_parse(verb, argc, argv, &settings, &operand);
    if (status >= 0)
        return status;
    if (argc - operand != 2)
        return tap_cli_usage(verb, "needs a checkpoint and a file, as in 'tapetum convert "
                                   "hamer.ckpt hamer.safetensors'");
    const char *from = argv[operand], *to = argv[operand + 1], *dot = strrchr(to, '.');
    if (dot == NULL || strcmp(dot, ".safetensors") != 0)
        return tap_cli_usage(verb, "%s: must end in .safetensors", to);
    status = tap_cli_check_target(verb, to, false);
    if (status >= 0)
        return status;
    tap_progress_begin(&progress, 0, !settings.quiet);
    tap_status done =
        tap_model_convert(from, to, dtypes[settings.dtype], tap_cli_show_progress, &progress, &err);
    tap_progress_clear(&progress);
    if (done != TAP_OK) {
        tap_cli_complain("%s", err.message);
        return done == TAP_ERR_IO || done == TAP_ERR_NOT_FOUND ? TAP_EXIT_FAILED : TAP_EXIT_WEIGHTS;
    }
    if (!settings.quiet)
        printf("%s: %s, as %s\n", to, from, dtypes[settings.dtype]);
    return tap_cli_finish(TAP_EXIT_OK);
}

const tap_verb tap_verb_convert = {
    .name = "convert",
    .operands = "CHECKPOINT FILE",
    .summary = "Write a checkpoint's network as a clean .safetensors",
    .examples =
        "  tapetum convert hamer.ckpt hamer.safetensors\n"
        "  tapetum convert hamer.ckpt hamer-f16.safetensors --dtype f16   # half the size\n",
    .notes =
        "CHECKPOINT is what --weights of the other verbs may be. Optimizer state, licensed extras\n"
        "and Python objects are left behind; nothing in it is executed. FILE appears whole or not\n"
        "at all. The weights' licence goes with the new file.\n",
    .groups = {{options, 0}},
    .run = run};
