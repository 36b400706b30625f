/* tapetum synth: weights that are a pure function of their names. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

enum config { FULL, TINY };

struct settings {
    enum config config;
    bool quiet;
};

static const char *const configs[] = {"full", "tiny", NULL};

static const tap_option options[] = {
    {"config", 0, "SIZE", "of HaMeR: full (default; 2.7 GB) or tiny (0.9 MB), for tests",
     TAP_OPTION_CHOICE, offsetof(struct settings, config), 0, 0, configs},
    {"quiet", 'q', NULL, "say nothing", TAP_OPTION_ON, offsetof(struct settings, quiet), 0, 0,
     NULL},
    {.name = NULL}};

static int run(const tap_verb *verb, int argc, char **argv)
{
    struct settings settings = {.config = FULL};
    const tap_cli_kind *kind;
    tap_error err;
    int operand;
    int status = tap_cli_parse(verb, argc, argv, &settings, &operand);
    if (status >= 0)
        return status;
    if (argc - operand != 2)
        return tap_cli_usage(verb, "needs a model and a file, as in 'tapetum synth superpoint "
                                   "synthetic.safetensors'");
    status = tap_cli_need_kind(verb, argv[operand], &kind);
    if (status < 0 && settings.config == TINY && kind != &tap_cli_hamer)
        status = tap_cli_usage(verb, "--config: %s has one size only", kind->title);
    const char *path = argv[operand + 1];
    if (status < 0)
        status = tap_cli_check_target(verb, path, false);
    if (status >= 0)
        return status;
    const char *name = settings.config == TINY ? "hamer-tiny" : kind->name;
    if (tap_synth_write(name, path, &err) != TAP_OK) {
        tap_cli_complain("%s", err.message);
        return TAP_EXIT_FAILED;
    }
    if (!settings.quiet)
        printf("%s: synthetic weights; their %s\n", path,
               kind == &tap_cli_hamer ? "hands mean nothing" : "points are noise");
    return tap_cli_finish(TAP_EXIT_OK);
}

const tap_verb tap_verb_synth = {
    .name = "synth",
    .operands = "MODEL FILE",
    .summary = "Write synthetic weights, to try and to test without licensed ones",
    .examples = "  tapetum synth superpoint synthetic.safetensors\n"
                "  tapetum superpoint photo.jpg --weights synthetic.safetensors\n"
                "  tapetum synth hamer synthetic.safetensors            # 2.7 GB\n"
                "  tapetum synth hamer tiny.safetensors --config tiny\n",
    .notes =
        "MODEL is superpoint or hamer. The values are a pure function of the tensors' names, the\n"
        "same on every machine (docs/formats.md). Speed and formats are as with real weights; the\n"
        "points are noise, and the hands mean nothing.\n",
    .groups = {{options, 0}},
    .run = run};
