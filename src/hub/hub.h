/* hub: model repositories of the Hugging Face hub: the cache on this machine, in the layout that
 * its own clients share, and downloads into it. Knows no model: whoever asks for a file says how to
 * judge it. */
#ifndef TAP_HUB_H
#define TAP_HUB_H

#include "core/core.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One revision of one repository. Strings are borrowed. */
typedef struct tap_hub_repo {
    const char *id;       /* "magic-leap-community/superpoint" */
    const char *revision; /* a commit of 40 hex digits, or a branch or tag */
} tap_hub_repo;

/* Judges a finished download before it becomes part of the cache: reads path, which is the file's
 * content under a temporary name. A failure throws the download away and is tap_hub_fetch's. */
typedef tap_status (*tap_hub_check)(void *user, const char *path, tap_error *err);

/* done of total bytes (0: not known) of file have come; a further attempt begins anew. Called from
 * tap_hub_fetch's thread. */
typedef void (*tap_hub_progress)(void *user, const char *file, uint64_t done, uint64_t total);

typedef struct tap_hub_file {
    const char *name;    /* its path in the repository, "model.safetensors" */
    uint64_t max_bytes;  /* a larger one is refused before and while it comes */
    tap_hub_check check; /* NULL: the hash is enough */
    void *user;          /* check's */
} tap_hub_file;

typedef struct tap_hub_options {
    const char *cache;    /* NULL: as tap_hub_cache says */
    const char *endpoint; /* NULL: $HF_ENDPOINT, else https://huggingface.co. https, or http on a
                             loopback address (a test's stand-in) */
    const char *token;    /* NULL: $HF_TOKEN, else none; sent to the endpoint's host only */
    uint32_t connect_ms;  /* 10,000 */
    uint32_t stall_ms;    /* 30,000 under 1 KiB/s end a transfer; there is no total limit */
    uint32_t attempts;    /* 3: for stalls, broken transfers, 429 and 5xx */
    uint32_t retry_ms;    /* 500 before the second attempt, twice that before the third */
    tap_hub_progress progress; /* NULL: none */
    void *user;                /* progress's */
} tap_hub_options;

void tap_hub_options_init(tap_hub_options *options);

/* The cache's folder: $HF_HUB_CACHE, else $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else
 * ~/.cache/huggingface/hub. It need not exist. *folder is freed by the caller. Errors
 * TAP_ERR_NOT_FOUND: none of the variables is set. */
tap_status tap_hub_cache(char **folder, tap_error *err);

/* The snapshot folder of repo in the cache, if all of the named files are in it; no network.
 * cache   NULL: as tap_hub_cache says.
 * *folder is freed by the caller, NULL on failure.
 * Errors  TAP_ERR_NOT_FOUND: the message names the folder and the first file that lacks.
 *         TAP_ERR_ARGUMENT: an id, revision or name that could leave the cache. */
tap_status tap_hub_find(char **folder, const char *cache, const tap_hub_repo *repo,
                        const char *const *names, size_t n_names, tap_error *err);

/* Brings files into the cache and gives the snapshot folder that has them; a file that is there is
 * not fetched again. Each is written beside as `.incomplete`, compared with the hash that the hub
 * announces (SHA-256 of LFS files, git's SHA-1 of others), judged by its check, synced and renamed.
 * Other processes that fetch the same file wait for a lock. A commit's files are those of that
 * commit: an answer for another one is refused.
 * *folder is freed by the caller, NULL on failure; after a failure no partial file stays.
 * Errors  TAP_ERR_NOT_FOUND (no such repository, revision or file), TAP_ERR_UNSUPPORTED (gated, or
 *         the token was refused), TAP_ERR_IO (the network, the disk; $HF_HUB_OFFLINE is set),
 *         TAP_ERR_FORMAT (wrong hash or length, no hash, a redirect to http), TAP_ERR_LIMIT,
 *         TAP_ERR_ARGUMENT, and those of the checks. */
tap_status tap_hub_fetch(char **folder, const tap_hub_repo *repo, const tap_hub_file *files,
                         size_t n_files, const tap_hub_options *options, tap_error *err);

#endif
