/* tapetum fetch: weights from the hub into its cache. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings {
    uint32_t stall_ms;
    bool quiet;
};

static const tap_option options[] = {
    {"stall-timeout", 0, "S", "give up after S seconds under 1 KiB/s, 1 to 3600 (30)",
     TAP_OPTION_SECONDS, offsetof(struct settings, stall_ms), 1, 3600, NULL},
    {"quiet", 'q', NULL, "only the folder's name, no progress bar", TAP_OPTION_ON,
     offsetof(struct settings, quiet), 0, 0, NULL},
    {.name = NULL}};

/* The hash says that these are the hub's bytes; our own strict reader, that they are SuperPoint. */
static tap_status check_model(void *user, const char *path, tap_error *err)
{
    tap_engine *engine;
    tap_model *model = NULL;
    tap_error inner;
    (void)user;
    TAP_TRY(tap_engine_open(&engine, NULL, err));
    tap_status status = tap_model_load(&model, engine, path, NULL, &inner);
    if (status != TAP_OK)
        tap_fail(err, status, "what came is no usable SuperPoint; thrown away: %s", inner.message);
    tap_model_release(model);
    tap_engine_release(engine);
    return status;
}

static void show(void *user, const char *file, uint64_t done, uint64_t total)
{
    tap_progress *progress = user;
    progress->total = total;
    tap_progress_show(progress, done, file);
}

static int fetch(const tap_hub_repo *repo, const struct settings *settings)
{
    tap_error err;
    tap_progress progress;
    char *folder;
    tap_hub_options hub;
    if (tap_hub_find(&folder, NULL, repo, tap_cli_weights_files, 2, &err) == TAP_OK) {
        if (!settings->quiet)
            fprintf(stderr, "%s: in the cache already\n", repo->id);
    } else {
        tap_hub_file files[] = {
            {.name = tap_cli_weights_files[0], .max_bytes = 64 << 10},
            {.name = tap_cli_weights_files[1], .max_bytes = 64 << 20, .check = check_model}};
        if (!settings->quiet)
            fprintf(
                stderr,
                "%s, revision %s: the published weights are licensed by Magic Leap for academic "
                "or non-profit, non-commercial research only\n",
                repo->id, repo->revision);
        tap_hub_options_init(&hub);
        hub.stall_ms = settings->stall_ms;
        hub.progress = show;
        hub.user = &progress;
        tap_progress_begin(&progress, 0, !settings->quiet);
        tap_status status = tap_hub_fetch(&folder, repo, files, 2, &hub, &err);
        tap_progress_clear(&progress);
        if (status != TAP_OK) {
            tap_cli_complain("fetch: %s", err.message);
            return status == TAP_ERR_ARGUMENT ? TAP_EXIT_USAGE : TAP_EXIT_WEIGHTS;
        }
    }
    puts(folder);
    free(folder);
    return tap_cli_finish(TAP_EXIT_OK);
}

static int run(const tap_verb *verb, int argc, char **argv)
{
    struct settings settings = {.stall_ms = 30000};
    int operand;
    int status = tap_cli_parse(verb, argc, argv, &settings, &operand);
    if (status >= 0)
        return status;
    if (argc - operand != 1)
        return tap_cli_usage(verb, "needs a model, as in 'tapetum fetch superpoint'");
    if (strcmp(argv[operand], "superpoint") != 0)
        return tap_cli_usage(verb, "%s: is no model we know; there is: superpoint", argv[operand]);
    tap_hub_repo repo = tap_cli_repo();
    return fetch(&repo, &settings);
}

const tap_verb tap_verb_fetch = {
    .name = "fetch",
    .operands = "superpoint",
    .summary = "Fetch a model's weights from the Hugging Face hub, once",
    .examples = "  tapetum fetch superpoint      # prints the folder they are in\n",
    .notes =
        "The published weights are licensed by Magic Leap for academic or non-profit,\n"
        "non-commercial research only. They go to the hub's usual cache ($HF_HUB_CACHE,\n"
        "$HF_HOME), where its other clients find them too, after their SHA-256 has been compared\n"
        "and they have been loaded once. $HF_MODEL and $TT_WEIGHTS_REVISION name others,\n"
        "$HF_ENDPOINT another server (https, or http on this machine), $HF_TOKEN a token.\n"
        "No other verb ever uses the network on its own.\n",
    .groups = {{options, 0}},
    .run = run};
