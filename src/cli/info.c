/* tapetum info: what this machine runs, and how. */
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings {
    bool kernels;
    const char *plan, *size, *isa;
    unsigned precision; /* index in tap_cli_precisions */
    uint32_t n_threads;
};

static const tap_option options[] = {
    {"kernels", 'k', NULL, "which kernel runs each operation", TAP_OPTION_ON,
     offsetof(struct settings, kernels), 0, 0, NULL},
    {"plan", 'p', "WEIGHTS", "load these weights and print their network, a line an\noperation",
     TAP_OPTION_TEXT, offsetof(struct settings, plan), 0, 0, NULL},
    {"size", 's', "WxH", "the plan's input, multiples of 8 (640x480); HaMeR has one\nsize only",
     TAP_OPTION_TEXT, offsetof(struct settings, size), 0, 0, NULL},
    {"precision", 0, "HOW", "of the plan's weights, HaMeR: f32 (default), f16 or int8",
     TAP_OPTION_CHOICE, offsetof(struct settings, precision), 0, 0, tap_cli_precisions},
    {"threads", 't', "N", "as the other verbs' --threads", TAP_OPTION_U32,
     offsetof(struct settings, n_threads), 0, 256, NULL},
    {"isa", 0, "NAME", "as the other verbs' --isa", TAP_OPTION_TEXT, offsetof(struct settings, isa),
     0, 0, NULL},
    {.name = NULL}};

static void print_weights(const tap_cli_kind *kind)
{
    char *path;
    tap_error err;
    if (tap_cli_find_weights(&path, kind, NULL, &err) == TAP_OK)
        printf("%-10s %s\n", kind->name, path);
    else
        printf("%-10s no weights; type 'tapetum fetch %s'\n", kind->name, kind->name);
    free(path);
}

static void print_model(const tap_model_info *info)
{
    bool hamer = strcmp(info->kind, "hamer") == 0;
    printf("\nmodel      %s\nfile       %s (%s)\nparameters %llu\nprecision  %s\n", info->kind,
           info->path, info->format, (unsigned long long)info->n_parameters, info->precision);
    printf("packed     %.1f MiB%s\n", (double)info->packed_bytes / (1 << 20),
           info->cached ? ", mapped from the cache" : "");
    if (hamer)
        printf("mano       %s\n", info->mano_available ? info->mano_path : "none");
    printf("gate       %.6f correlation with the reference\nloaded in  %.0f ms\n",
           info->gate_correlation, info->load_ms);
}

static tap_status print_plan(tap_engine *engine, const struct settings *settings, uint32_t width,
                             uint32_t height, tap_error *err)
{
    tap_model *model;
    char *text = NULL;
    tap_model_info info = {.size = sizeof info};
    tap_model_options load;
    tap_model_options_init(&load);
    load.precision = tap_cli_precisions[settings->precision];
    TAP_TRY(tap_model_load(&model, engine, settings->plan, &load, err));
    tap_status status = tap_model_describe(model, &info);
    if (status == TAP_OK) {
        bool given = settings->size != NULL, fixed = strcmp(info.kind, "hamer") == 0;
        status = fixed && !given ? tap_model_plan(model, 0, 0, &text, err)
                                 : tap_model_plan(model, width, height, &text, err);
    }
    if (status == TAP_OK) {
        print_model(&info);
        printf("\n%s\n%s\n", text, info.licence);
        if (info.mano_licence != NULL)
            printf("%s\n", info.mano_licence);
    }
    tap_free(text);
    tap_model_release(model);
    return status;
}

static int run(const tap_verb *verb, int argc, char **argv)
{
    struct settings settings = {0};
    tap_engine *engine;
    tap_engine_options engine_options;
    tap_engine_info info = {.size = sizeof info};
    tap_error err;
    int operand;
    uint32_t width = 640, height = 480;
    bool native = false;
    int status = tap_cli_parse(verb, argc, argv, &settings, &operand);
    if (status >= 0)
        return status;
    if (operand != argc)
        return tap_cli_usage(verb, "%s: takes no operand", argv[operand]);
    if (settings.size != NULL &&
        tap_cli_read_size(settings.size, &width, &height, &native, &err) != TAP_OK)
        return tap_cli_usage(verb, "%s", err.message);
    if (native)
        return tap_cli_usage(verb, "--size: a plan is of one size, WxH");
    tap_engine_options_init(&engine_options);
    engine_options.isa = settings.isa;
    engine_options.n_threads = settings.n_threads;
    if (tap_engine_open(&engine, &engine_options, &err) != TAP_OK) {
        tap_cli_complain("%s", err.message);
        return TAP_EXIT_USAGE;
    }
    status = TAP_EXIT_OK;
    if (tap_engine_describe(engine, &info) == TAP_OK)
        printf("%s\nbackend    %s\nisa        %s (%s)\nthreads    %u (%s)\n", tap_build_info(),
               info.backend, info.isa, info.isa_reason, info.n_threads, info.threads_reason);
    print_weights(&tap_cli_superpoint);
    print_weights(&tap_cli_hamer);
    if (settings.kernels)
        printf("\n%s", info.kernels);
    if (settings.plan != NULL && print_plan(engine, &settings, width, height, &err) != TAP_OK) {
        tap_cli_complain("%s", err.message);
        status = TAP_EXIT_WEIGHTS;
    }
    tap_engine_release(engine);
    return tap_cli_finish(status);
}

const tap_verb tap_verb_info = {
    .name = "info",
    .operands = "",
    .summary = "Say what this machine runs, and how",
    .examples =
        "  tapetum info                             # CPU, threads, weights\n"
        "  tapetum info --kernels                   # which kernel runs what\n"
        "  tapetum info --plan model.safetensors    # the network, operation by operation\n",
    .groups = {{options, 0}},
    .run = run};
