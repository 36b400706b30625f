/* Which models there are, and where their weights come from. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const superpoint_files[] = {"config.json", "model.safetensors"};
static const uint64_t superpoint_bytes[] = {64 << 10, 64 << 20};
static const char *const hamer_files[] = {"hamer.ckpt"};
static const uint64_t hamer_bytes[] = {(uint64_t)8 << 30};

const tap_cli_kind tap_cli_superpoint = {
    .name = "superpoint",
    .title = "SuperPoint",
    .repo = "magic-leap-community/superpoint",
    .revision = "734450e9ffe229074f5998494ddc615475cdb20a",
    .variable = "SP_WEIGHTS_DIR",
    .files = superpoint_files,
    .most_bytes = superpoint_bytes,
    .n_files = 2,
    .licence = "the published weights are licensed by Magic Leap for academic or non-profit, "
               "non-commercial research only",
    .terms = "academic or non-profit, non-commercial research only"};

const tap_cli_kind tap_cli_hamer = {
    .name = "hamer",
    .title = "HaMeR",
    .repo = "changh95/hamer-weights",
    .revision = "main",
    .variable = "HAMER_WEIGHTS_DIR",
    .files = hamer_files,
    .most_bytes = hamer_bytes,
    .n_files = 1,
    .one_file = true,
    .licence = "the published weights (2.7 GB) were trained with MANO, which is licensed for "
               "non-commercial scientific research only",
    .terms = "2.7 GB; non-commercial scientific research only"};

static const tap_cli_kind *const kinds[] = {&tap_cli_superpoint, &tap_cli_hamer};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

const tap_cli_kind *tap_cli_find_kind(const char *name)
{
    for (size_t i = 0; i < N_KINDS; i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    return NULL;
}

int tap_cli_need_kind(const tap_verb *verb, const char *name, const tap_cli_kind **kind)
{
    *kind = tap_cli_find_kind(name);
    if (*kind != NULL)
        return -1;
    return tap_cli_usage(verb, "%s: is no model we know; there are: superpoint, hamer", name);
}

const char *tap_cli_environment(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : otherwise;
}

/* $HF_MODEL and $TT_WEIGHTS_REVISION are of one model. Where they name another one's repository
 * they don't count, so that one environment fits a server of both; the revision alone, without a
 * repository, has always been SuperPoint's. */
tap_hub_repo tap_cli_repo(const tap_cli_kind *kind)
{
    const char *id = tap_cli_environment("HF_MODEL", NULL);
    bool ours = id != NULL || kind == &tap_cli_superpoint;
    for (size_t i = 0; i < N_KINDS; i++)
        if (id != NULL && kinds[i] != kind && strcmp(kinds[i]->repo, id) == 0)
            ours = false;
    if (!ours)
        return (tap_hub_repo){.id = kind->repo, .revision = kind->revision};
    id = id != NULL ? id : kind->repo;
    /* Another repository has no such commit. */
    const char *otherwise = strcmp(id, kind->repo) == 0 ? kind->revision : "main";
    return (tap_hub_repo){.id = id,
                          .revision = tap_cli_environment("TT_WEIGHTS_REVISION", otherwise)};
}

static tap_status find_in_cache(char **path, const tap_cli_kind *kind, tap_error *err)
{
    tap_hub_repo repo = tap_cli_repo(kind);
    tap_error reason;
    tap_status status = tap_hub_find(path, NULL, &repo, kind->files, kind->n_files, &reason);
    if (status == TAP_ERR_NOT_FOUND)
        return tap_fail(err, status,
                        "weights: neither --weights nor $%s is given, and the cache has none of "
                        "%s: type 'tapetum fetch %s' once (%s), or 'tapetum synth %s "
                        "FILE.safetensors' to try without, or give --weights PATH",
                        kind->variable, repo.id, kind->name, kind->terms, kind->name);
    if (status != TAP_OK)
        return tap_fail(err, status, "weights: %s", reason.message);
    if (!kind->one_file)
        return TAP_OK;
    /* The folder is shared with other clients, who may have put other files there. */
    char *folder = *path;
    if (asprintf(path, "%s/%s", folder, kind->files[kind->n_files - 1]) < 0)
        *path = NULL;
    free(folder);
    return *path != NULL ? TAP_OK : tap_fail(err, TAP_ERR_MEMORY, "out of memory for a path");
}

tap_status tap_cli_find_weights(char **path, const tap_cli_kind *kind, const char *given,
                                tap_error *err)
{
    const char *chosen = given != NULL ? given : tap_cli_environment(kind->variable, NULL);
    *path = NULL;
    if (chosen == NULL)
        return find_in_cache(path, kind, err);
    *path = strdup(chosen);
    return *path != NULL ? TAP_OK : tap_fail(err, TAP_ERR_MEMORY, "out of memory for a path");
}
