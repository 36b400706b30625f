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

/* The hash says that these are the hub's bytes; our own strict reader, that they are the model. */
static tap_status check_model(void *user, const char *path, tap_error *err)
{
    const tap_cli_kind *kind = user;
    tap_engine *engine;
    tap_model *model = NULL;
    tap_error inner;
    tap_model_options load;
    tap_model_options_init(&load);
    load.kind = kind->name;
    load.mano = "";
    TAP_TRY(tap_engine_open(&engine, NULL, err));
    tap_status status = tap_model_load(&model, engine, path, &load, &inner);
    if (status != TAP_OK)
        tap_fail(err, status, "what came is no usable %s; thrown away: %s", kind->title,
                 inner.message);
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

static tap_status download(char **folder, const tap_cli_kind *kind, const tap_hub_repo *repo,
                           const struct settings *settings, tap_error *err)
{
    enum { MAX_FILES = 4 };
    tap_hub_file files[MAX_FILES] = {0};
    tap_hub_options hub;
    tap_progress progress;
    for (size_t i = 0; i < kind->n_files; i++)
        files[i] = (tap_hub_file){.name = kind->files[i], .max_bytes = kind->most_bytes[i]};
    files[kind->n_files - 1].check = check_model;
    files[kind->n_files - 1].user = (void *)kind; /* check_model only reads it */
    tap_hub_options_init(&hub);
    hub.stall_ms = settings->stall_ms;
    hub.progress = show;
    hub.user = &progress;
    tap_progress_begin(&progress, 0, !settings->quiet);
    tap_status status = tap_hub_fetch(folder, repo, files, kind->n_files, &hub, err);
    tap_progress_clear(&progress);
    return status;
}

static int fetch(const tap_cli_kind *kind, const struct settings *settings)
{
    tap_error err;
    char *folder;
    tap_hub_repo repo = tap_cli_repo(kind);
    if (tap_hub_find(&folder, NULL, &repo, kind->files, kind->n_files, &err) == TAP_OK) {
        if (!settings->quiet)
            fprintf(stderr, "%s: in the cache already\n", repo.id);
    } else {
        if (!settings->quiet)
            fprintf(stderr, "%s, revision %s: %s\n", repo.id, repo.revision, kind->licence);
        tap_status status = download(&folder, kind, &repo, settings, &err);
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
    const tap_cli_kind *kind;
    int operand;
    int status = tap_cli_parse(verb, argc, argv, &settings, &operand);
    if (status >= 0)
        return status;
    if (argc - operand != 1)
        return tap_cli_usage(verb, "needs a model, as in 'tapetum fetch superpoint'");
    status = tap_cli_need_kind(verb, argv[operand], &kind);
    return status >= 0 ? status : fetch(kind, &settings);
}

const tap_verb tap_verb_fetch = {
    .name = "fetch",
    .operands = "MODEL",
    .summary = "Fetch a model's weights from the Hugging Face hub, once",
    .examples = "  tapetum fetch superpoint      # prints the folder they are in\n"
                "  tapetum fetch hamer           # 2.7 GB\n",
    .notes =
        "MODEL is superpoint or hamer. SuperPoint's published weights are licensed by Magic Leap\n"
        "for academic or non-profit, non-commercial research only; HaMeR's were trained with "
        "MANO,\n"
        "which is for non-commercial scientific research only. MANO itself is not fetched: it is\n"
        "yours to get (docs/hamer.md). Weights go to the hub's usual cache ($HF_HUB_CACHE,\n"
        "$HF_HOME), where its other clients find them too, after their SHA-256 has been compared\n"
        "and they have been loaded once. $HF_MODEL and $TT_WEIGHTS_REVISION name others,\n"
        "$HF_ENDPOINT another server (https, or http on this machine), $HF_TOKEN a token.\n"
        "No other verb ever uses the network on its own.\n",
    .groups = {{options, 0}},
    .run = run};
