#include "cache.h"
#include "http.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { SHA256_DIGITS = 64, SHA1_DIGITS = 40 };

static const char default_endpoint[] = "https://huggingface.co";

void tap_hub_options_init(tap_hub_options *options)
{
    *options =
        (tap_hub_options){.connect_ms = 10000, .stall_ms = 30000, .attempts = 3, .retry_ms = 500};
}

/* Everything one call of tap_hub_fetch works with. */
struct fetch {
    const tap_hub_repo *repo;
    tap_hub_options options;
    tap_http *http;
    char *cache;
    char commit[SHA1_DIGITS + 1]; /* empty until the first answer, if a branch was asked for */
};

static const char *setting(const char *given, const char *variable, const char *otherwise)
{
    if (given != NULL)
        return given;
    const char *value = getenv(variable);
    return value != NULL && value[0] != '\0' ? value : otherwise;
}

static bool is_offline(void)
{
    const char *value = setting(NULL, "HF_HUB_OFFLINE", "0");
    return strcmp(value, "0") != 0 && strcmp(value, "false") != 0;
}

/* The hub's refusals in words. Decided by its error code, not by its text. */
static tap_status fail_refused(const struct fetch *fetch, const tap_hub_file *file,
                               const tap_http_facts *facts, tap_error *err)
{
    const char *id = fetch->repo->id, *endpoint = fetch->options.endpoint;
    if (strcmp(facts->error, "GatedRepo") == 0)
        return tap_fail(err, TAP_ERR_UNSUPPORTED,
                        "%s: is gated: accept its terms at %s/%s and set $HF_TOKEN", id, endpoint,
                        id);
    if (strcmp(facts->error, "EntryNotFound") == 0)
        return tap_fail(err, TAP_ERR_NOT_FOUND, "%s: has no %s at revision %s", id, file->name,
                        fetch->repo->revision);
    if (strcmp(facts->error, "RevisionNotFound") == 0)
        return tap_fail(err, TAP_ERR_NOT_FOUND, "%s: has no revision %s", id,
                        fetch->repo->revision);
    if (facts->code == 401 || facts->code == 403)
        return tap_fail(err, TAP_ERR_UNSUPPORTED,
                        "%s: the hub at %s answers %ld: no access, or no such repository; check "
                        "the name and $HF_TOKEN",
                        id, endpoint, facts->code);
    if (facts->code == 404)
        return tap_fail(err, TAP_ERR_NOT_FOUND,
                        "%s: the hub at %s answers 404: no such repository, revision or file", id,
                        endpoint);
    return tap_fail(err, TAP_ERR_FORMAT, "%s: the hub at %s answers %ld for %s, not a file", id,
                    endpoint, facts->code, file->name);
}

/* Asks the hub for the file's hash, size and commit, and checks that they can be trusted. */
static tap_status look_up(struct fetch *fetch, const tap_hub_file *file, const char *url,
                          tap_http_facts *facts, tap_error *err)
{
    TAP_TRY(tap_http_head(fetch->http, url, facts, err));
    bool redirected = facts->code >= 300 && facts->code < 400;
    if (facts->code != 200 && !redirected)
        return fail_refused(fetch, file, facts, err);
    if (!tap_hub_is_hex(facts->etag, SHA256_DIGITS) && !tap_hub_is_hex(facts->etag, SHA1_DIGITS))
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: the server announces no hash, so the file can't be trusted; is there "
                        "a proxy in between?",
                        url);
    if (facts->has_size && facts->size > file->max_bytes)
        return tap_fail(err, TAP_ERR_LIMIT, "%s: has %" PRIu64 " bytes, may have %" PRIu64, url,
                        facts->size, file->max_bytes);
    if (fetch->commit[0] == '\0' && tap_hub_is_hex(facts->commit, SHA1_DIGITS))
        memcpy(fetch->commit, facts->commit, sizeof fetch->commit);
    if (fetch->commit[0] == '\0')
        return tap_fail(err, TAP_ERR_FORMAT, "%s: the server doesn't say which commit this is",
                        url);
    if (facts->commit[0] != '\0' && strcmp(facts->commit, fetch->commit) != 0)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: is of commit %s, not of %s; refused", url,
                        facts->commit, fetch->commit);
    return TAP_OK;
}

/* Better said before than after 2 GB. */
static tap_status check_room(const char *path, const tap_http_facts *facts, tap_error *err)
{
    struct statvfs disk;
    char *folder = strdup(path);
    if (folder == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a path");
    *strrchr(folder, '/') = '\0';
    int asked = statvfs(folder, &disk);
    free(folder);
    if (asked != 0 || !facts->has_size)
        return TAP_OK;
    uint64_t available = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (facts->size > available)
        return tap_fail(err, TAP_ERR_IO,
                        "%s: needs %" PRIu64 " bytes, the disk has %" PRIu64
                        " free; make room or set $HF_HUB_CACHE",
                        path, facts->size, available);
    return TAP_OK;
}

/* The file's content, down and judged, under its temporary name. */
static tap_status download(struct fetch *fetch, const tap_hub_file *file, const char *url,
                           const tap_http_facts *facts, const char *partial, tap_error *err)
{
    bool same = false;
    struct stat info;
    TAP_TRY(check_room(partial, facts, err));
    int fd = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return tap_fail_errno(err, partial, "cannot create", errno);
    uint64_t max_bytes = facts->has_size ? facts->size : file->max_bytes;
    tap_status status = tap_http_get(fetch->http, url, fd, max_bytes, file->name, facts->size, err);
    if (status == TAP_OK && (fsync(fd) != 0 || fstat(fd, &info) != 0))
        status = tap_fail_errno(err, partial, "cannot sync", errno);
    if (close(fd) != 0 && status == TAP_OK)
        status = tap_fail_errno(err, partial, "cannot close", errno);
    TAP_TRY(status);
    if (facts->has_size && (uint64_t)info.st_size != facts->size)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: %jd bytes came of %" PRIu64 "; the download is incomplete, try again",
                        url, (intmax_t)info.st_size, facts->size);
    TAP_TRY(tap_hub_verify(&same, partial, facts->etag, err));
    if (!same)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: what came has not the hash %s that the hub announces; thrown away",
                        url, facts->etag);
    return file->check != NULL ? file->check(file->user, partial, err) : TAP_OK;
}

/* blobs/ETAG, from the cache or the network; the caller holds its lock. */
static tap_status bring_blob(struct fetch *fetch, const tap_hub_file *file, const char *url,
                             const tap_http_facts *facts, tap_error *err)
{
    bool same = false;
    char *blob = tap_hub_path(fetch->cache, fetch->repo->id, "blobs/%s", facts->etag);
    char *partial = tap_hub_path(fetch->cache, fetch->repo->id, "blobs/%s.incomplete", facts->etag);
    tap_status status = TAP_OK;
    if (blob == NULL || partial == NULL)
        status = tap_fail(err, TAP_ERR_MEMORY, "out of memory for a path");
    else
        status = tap_hub_make_folders(blob, err);
    if (status == TAP_OK && access(blob, F_OK) == 0)
        status = tap_hub_verify(&same, blob, facts->etag, err);
    if (status == TAP_OK && !same) {
        status = download(fetch, file, url, facts, partial, err);
        if (status == TAP_OK && rename(partial, blob) != 0)
            status = tap_fail_errno(err, blob, "cannot rename into place", errno);
        if (status != TAP_OK)
            unlink(partial);
    }
    free(blob);
    free(partial);
    return status;
}

static tap_status fetch_file(struct fetch *fetch, const tap_hub_file *file, tap_error *err)
{
    tap_http_facts facts;
    char *url = NULL, *lock = NULL;
    int lock_fd = -1;
    if (asprintf(&url, "%s/%s/resolve/%s/%s", fetch->options.endpoint, fetch->repo->id,
                 fetch->commit[0] != '\0' ? fetch->commit : fetch->repo->revision, file->name) < 0)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for an address");
    tap_status status = look_up(fetch, file, url, &facts, err);
    if (status == TAP_OK) {
        lock = tap_hub_lock_path(fetch->cache, fetch->repo->id, facts.etag);
        status = lock != NULL ? tap_hub_lock(&lock_fd, lock, err)
                              : tap_fail(err, TAP_ERR_MEMORY, "out of memory for a path");
    }
    if (status == TAP_OK)
        status = bring_blob(fetch, file, url, &facts, err);
    if (status == TAP_OK)
        status =
            tap_hub_link(fetch->cache, fetch->repo->id, fetch->commit, file->name, facts.etag, err);
    if (lock_fd >= 0)
        close(lock_fd);
    free(lock);
    free(url);
    return status;
}

/* A branch's or tag's commit, for tap_hub_find. A download by commit writes none. */
static tap_status write_ref(const struct fetch *fetch, tap_error *err)
{
    if (strcmp(fetch->commit, fetch->repo->revision) == 0)
        return TAP_OK;
    char *path = tap_hub_path(fetch->cache, fetch->repo->id, "refs/%s", fetch->repo->revision);
    if (path == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a path");
    tap_status status = tap_hub_make_folders(path, err);
    if (status == TAP_OK)
        status = tap_file_write(path, fetch->commit, SHA1_DIGITS, err);
    free(path);
    return status;
}

static tap_status begin(struct fetch *fetch, const tap_hub_repo *repo, const tap_hub_file *files,
                        size_t n_files, const tap_hub_options *options, tap_error *err)
{
    fetch->repo = repo;
    fetch->options = *options;
    fetch->options.endpoint = setting(options->endpoint, "HF_ENDPOINT", default_endpoint);
    fetch->options.token = setting(options->token, "HF_TOKEN", NULL);
    TAP_TRY(tap_hub_check_repo(repo, err));
    for (size_t i = 0; i < n_files; i++)
        TAP_TRY(tap_hub_check_name(files[i].name, err));
    if (tap_hub_is_hex(repo->revision, SHA1_DIGITS))
        memcpy(fetch->commit, repo->revision, sizeof fetch->commit);
    if (is_offline())
        return tap_fail(err, TAP_ERR_IO,
                        "%s: $HF_HUB_OFFLINE is set, so nothing is fetched; unset it", repo->id);
    if (options->cache == NULL)
        TAP_TRY(tap_hub_cache(&fetch->cache, err));
    else if ((fetch->cache = strdup(options->cache)) == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a path");
    return tap_http_open(&fetch->http, &fetch->options, err);
}

tap_status tap_hub_fetch(char **folder, const tap_hub_repo *repo, const tap_hub_file *files,
                         size_t n_files, const tap_hub_options *options, tap_error *err)
{
    struct fetch fetch = {0};
    *folder = NULL;
    tap_status status = begin(&fetch, repo, files, n_files, options, err);
    for (size_t i = 0; i < n_files && status == TAP_OK; i++)
        status = fetch_file(&fetch, &files[i], err);
    if (status == TAP_OK)
        status = write_ref(&fetch, err);
    if (status == TAP_OK) {
        *folder = tap_hub_path(fetch.cache, repo->id, "snapshots/%s", fetch.commit);
        if (*folder == NULL)
            status = tap_fail(err, TAP_ERR_MEMORY, "out of memory for a path");
    }
    tap_http_close(fetch.http);
    free(fetch.cache);
    return status;
}
