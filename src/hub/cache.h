/* The cache's layout. Private to the room.
 *
 *     CACHE/models--ORG--NAME/blobs/ETAG             content, named by its hash
 *     CACHE/models--ORG--NAME/blobs/ETAG.incomplete  a download that runs
 *     CACHE/models--ORG--NAME/refs/REVISION          a branch's or tag's commit, 40 hex digits
 *     CACHE/models--ORG--NAME/snapshots/COMMIT/FILE  relative link to ../../blobs/ETAG
 *     CACHE/.locks/models--ORG--NAME/ETAG.lock       flock while a download runs */
#ifndef TAP_HUB_CACHE_H
#define TAP_HUB_CACHE_H

#include "hub.h"

/* True for exactly n lowercase hex digits. */
bool tap_hub_is_hex(const char *text, size_t n);

/* TAP_ERR_ARGUMENT if the id, revision or a file's name could reach outside its folder. */
tap_status tap_hub_check_repo(const tap_hub_repo *repo, tap_error *err);
tap_status tap_hub_check_name(const char *name, tap_error *err);

/* "CACHE/models--ORG--NAME/" and printf's text after it. NULL: out of memory. */
__attribute__((format(printf, 3, 4))) char *tap_hub_path(const char *cache, const char *id,
                                                         const char *format, ...);
/* CACHE/.locks/models--ORG--NAME/ETAG.lock */
char *tap_hub_lock_path(const char *cache, const char *id, const char *etag);

/* The folders above path, made where they lack. */
tap_status tap_hub_make_folders(const char *path, tap_error *err);

/* The lock file, made and locked; waits for other holders. *fd is closed by the caller, which
 * unlocks. */
tap_status tap_hub_lock(int *fd, const char *path, tap_error *err);

/* snapshots/COMMIT/NAME -> the blob; an old link is replaced in one step. */
tap_status tap_hub_link(const char *cache, const char *id, const char *commit, const char *name,
                        const char *etag, tap_error *err);

/* True if the file's content has the hash: 64 hex digits are its SHA-256, 40 its git blob SHA-1. */
tap_status tap_hub_verify(bool *same, const char *path, const char *etag, tap_error *err);

#endif
