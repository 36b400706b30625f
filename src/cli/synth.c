/* tapetum synth: weights that are a pure function of their names. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

struct settings {
    bool quiet;
};

static const tap_option options[] = {{"quiet", 'q', NULL, "say nothing", TAP_OPTION_ON,
                                      offsetof(struct settings, quiet), 0, 0, NULL},
                                     {.name = NULL}};

static int run(const tap_verb *verb, int argc, char **argv)
{
    struct settings settings = {false};
    tap_error err;
    int operand;
    int status = tap_cli_parse(verb, argc, argv, &settings, &operand);
    if (status >= 0)
        return status;
    if (argc - operand != 2)
        return tap_cli_usage(verb, "needs a model and a file, as in 'tapetum synth superpoint "
                                   "synthetic.safetensors'");
    if (strcmp(argv[operand], "superpoint") != 0)
        return tap_cli_usage(verb, "%s: is no model we know; there is: superpoint", argv[operand]);
    const char *path = argv[operand + 1];
    status = tap_cli_check_target(verb, path, false);
    if (status >= 0)
        return status;
    if (tap_synth_write(argv[operand], path, &err) != TAP_OK) {
        tap_cli_complain("%s", err.message);
        return TAP_EXIT_FAILED;
    }
    if (!settings.quiet)
        printf("%s: synthetic weights; their points are noise\n", path);
    return tap_cli_finish(TAP_EXIT_OK);
}

const tap_verb tap_verb_synth = {
    .name = "synth",
    .operands = "superpoint FILE",
    .summary = "Write synthetic weights, to try and to test without licensed ones",
    .examples = "  tapetum synth superpoint synthetic.safetensors\n"
                "  tapetum superpoint photo.jpg --weights synthetic.safetensors\n",
    .notes =
        "The values are a pure function of the tensors' names, the same on every machine\n"
        "(docs/formats.md). Speed and formats are as with real weights; the points are noise.\n",
    .groups = {{options, 0}},
    .run = run};
