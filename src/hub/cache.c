#include "cache.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COMMIT_DIGITS = 40, NAME_BYTES = 512, REF_BYTES = 64 };

bool tap_hub_is_hex(const char *text, size_t n)
{
    return strlen(text) == n && strspn(text, "0123456789abcdef") == n;
}

/* A relative path of plain names: no empty part, none that begins with a dot, no odd character. */
static bool is_plain_path(const char *text, size_t max_parts)
{
    size_t n_parts = 1;
    bool at_start = true;
    if (strlen(text) > NAME_BYTES)
        return false;
    for (; *text != '\0'; text++) {
        if (*text == '/') {
            if (at_start || ++n_parts > max_parts)
                return false;
            at_start = true;
            continue;
        }
        if (!isalnum((unsigned char)*text) && strchr("._-+@", *text) == NULL)
            return false;
        if (at_start && *text == '.')
            return false;
        at_start = false;
    }
    return !at_start;
}

tap_status tap_hub_check_repo(const tap_hub_repo *repo, tap_error *err)
{
    if (!is_plain_path(repo->id, 2) || strchr(repo->id, '/') == NULL)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "'%s': is no repository of the hub; write it as organisation/name",
                        repo->id);
    if (!is_plain_path(repo->revision, 8))
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "%s: '%s' is no revision; give a commit, a branch or a tag", repo->id,
                        repo->revision);
    return TAP_OK;
}

tap_status tap_hub_check_name(const char *name, tap_error *err)
{
    if (!is_plain_path(name, 8))
        return tap_fail(err, TAP_ERR_ARGUMENT, "'%s': is no file name of a repository", name);
    return TAP_OK;
}

tap_status tap_hub_cache(char **folder, tap_error *err)
{
    static const struct {
        const char *variable, *below;
    } places[] = {{"HF_HUB_CACHE", ""},
                  {"HF_HOME", "/hub"},
                  {"XDG_CACHE_HOME", "/huggingface/hub"},
                  {"HOME", "/.cache/huggingface/hub"}};
    *folder = NULL;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *value = getenv(places[i].variable);
        if (value == NULL || value[0] == '\0')
            continue;
        if (asprintf(folder, "%s%s", value, places[i].below) < 0) {
            *folder = NULL;
            return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a path");
        }
        return TAP_OK;
    }
    return tap_fail(err, TAP_ERR_NOT_FOUND,
                    "the hub's cache: neither $HOME nor $HF_HUB_CACHE is set; set one of them");
}

/* "CACHE/[.locks/]models--ORG--NAME/text" */
static char *repo_path(const char *cache, const char *middle, const char *id, const char *text)
{
    char *path = NULL;
    const char *slash = strchr(id, '/');
    if (asprintf(&path, "%s/%smodels--%.*s--%s/%s", cache, middle, (int)(slash - id), id, slash + 1,
                 text) < 0)
        return NULL;
    return path;
}

char *tap_hub_path(const char *cache, const char *id, const char *format, ...)
{
    va_list args;
    char *text = NULL;
    va_start(args, format);
    int written = vasprintf(&text, format, args);
    va_end(args);
    if (written < 0)
        return NULL;
    char *path = repo_path(cache, "", id, text);
    free(text);
    return path;
}

char *tap_hub_lock_path(const char *cache, const char *id, const char *etag)
{
    char name[80];
    snprintf(name, sizeof name, "%s.lock", etag);
    return repo_path(cache, ".locks/", id, name);
}

/* The commit that a branch or tag pointed at when it was last fetched. */
static tap_status read_ref(char commit[COMMIT_DIGITS + 1], const char *cache,
                           const tap_hub_repo *repo, tap_error *err)
{
    tap_bytes bytes;
    char *path = tap_hub_path(cache, repo->id, "refs/%s", repo->revision);
    if (path == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a path");
    tap_status status = tap_bytes_read(&bytes, path, REF_BYTES, err);
    if (status == TAP_OK) {
        size_t n = bytes.size < COMMIT_DIGITS ? bytes.size : COMMIT_DIGITS;
        if (n > 0)
            memcpy(commit, bytes.data, n);
        commit[n] = '\0';
        if (!tap_hub_is_hex(commit, COMMIT_DIGITS))
            status =
                tap_fail(err, TAP_ERR_FORMAT,
                         "%s: holds no commit of 40 hex digits; delete it and fetch again", path);
        tap_bytes_release(&bytes);
    }
    free(path);
    return status;
}

tap_status tap_hub_find(char **folder, const char *cache, const tap_hub_repo *repo,
                        const char *const *names, size_t n_names, tap_error *err)
{
    char commit[COMMIT_DIGITS + 1], *own = NULL;
    *folder = NULL;
    TAP_TRY(tap_hub_check_repo(repo, err));
    for (size_t i = 0; i < n_names; i++)
        TAP_TRY(tap_hub_check_name(names[i], err));
    if (cache == NULL) {
        TAP_TRY(tap_hub_cache(&own, err));
        cache = own;
    }
    tap_status status = TAP_OK;
    if (tap_hub_is_hex(repo->revision, COMMIT_DIGITS))
        memcpy(commit, repo->revision, sizeof commit);
    else
        status = read_ref(commit, cache, repo, err);
    char *found = status == TAP_OK ? tap_hub_path(cache, repo->id, "snapshots/%s", commit) : NULL;
    free(own);
    TAP_TRY(status);
    if (found == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a path");
    for (size_t i = 0; i < n_names && status == TAP_OK; i++) {
        char *path = NULL;
        struct stat info;
        if (asprintf(&path, "%s/%s", found, names[i]) < 0)
            status = tap_fail(err, TAP_ERR_MEMORY, "out of memory for a path");
        else if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
            status = tap_fail(err, TAP_ERR_NOT_FOUND, "%s: has no %s; it was never fetched whole",
                              found, names[i]);
        if (path != NULL)
            free(path);
    }
    if (status == TAP_OK)
        *folder = found;
    else
        free(found);
    return status;
}

tap_status tap_hub_make_folders(const char *path, tap_error *err)
{
    char *folder = strdup(path);
    if (folder == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for a path", path);
    tap_status status = TAP_OK;
    for (char *slash = strchr(folder + 1, '/'); slash != NULL && status == TAP_OK;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(folder, 0777) != 0 && errno != EEXIST)
            status = tap_fail_errno(err, folder, "cannot make the folder", errno);
        *slash = '/';
    }
    free(folder);
    return status;
}

tap_status tap_hub_lock(int *fd, const char *path, tap_error *err)
{
    *fd = -1;
    TAP_TRY(tap_hub_make_folders(path, err));
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*fd < 0)
        return tap_fail_errno(err, path, "cannot open the lock", errno);
    int result;
    do
        result = flock(*fd, LOCK_EX);
    while (result != 0 && errno == EINTR);
    if (result != 0) {
        tap_status status = tap_fail_errno(err, path, "cannot lock", errno);
        close(*fd);
        *fd = -1;
        return status;
    }
    return TAP_OK;
}

tap_status tap_hub_link(const char *cache, const char *id, const char *commit, const char *name,
                        const char *etag, tap_error *err)
{
    char target[2 * NAME_BYTES] = "../../";
    for (const char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash + 1, '/'))
        strcat(target, "../"); /* at most 7: tap_hub_check_name */
    strcat(strcat(target, "blobs/"), etag);
    char *path = tap_hub_path(cache, id, "snapshots/%s/%s", commit, name);
    char *beside = tap_hub_path(cache, id, "snapshots/%s/%s.%ld", commit, name, (long)getpid());
    tap_status status = TAP_OK;
    if (path == NULL || beside == NULL)
        status = tap_fail(err, TAP_ERR_MEMORY, "out of memory for a path");
    else
        status = tap_hub_make_folders(path, err);
    if (status == TAP_OK) {
        unlink(beside); /* of a process of the same number that was killed */
        if (symlink(target, beside) != 0)
            status = tap_fail_errno(err, path, "cannot link", errno);
        else if (rename(beside, path) != 0) {
            status = tap_fail_errno(err, path, "cannot rename into place", errno);
            unlink(beside);
        }
    }
    free(path);
    free(beside);
    return status;
}

/* Adds fd's content to digest. */
static bool digest_file(EVP_MD_CTX *digest, int fd)
{
    unsigned char block[16384];
    for (;;) {
        ssize_t n = read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0;
        if (EVP_DigestUpdate(digest, block, (size_t)n) != 1)
            return false;
    }
}

tap_status tap_hub_verify(bool *same, const char *path, const char *etag, tap_error *err)
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    char text[2 * EVP_MAX_MD_SIZE + 1], prefix[48];
    unsigned n_hash = 0;
    struct stat info;
    bool git = strlen(etag) == COMMIT_DIGITS;
    *same = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) {
        tap_status status = tap_fail_errno(err, path, "cannot open", errno);
        if (fd >= 0)
            close(fd);
        return status;
    }
    EVP_MD_CTX *digest = EVP_MD_CTX_new();
    bool good =
        digest != NULL && EVP_DigestInit_ex(digest, git ? EVP_sha1() : EVP_sha256(), NULL) == 1;
    if (good && git) { /* git hashes "blob SIZE" and a NUL before the content */
        int n = snprintf(prefix, sizeof prefix, "blob %jd", (intmax_t)info.st_size);
        good = EVP_DigestUpdate(digest, prefix, (size_t)n + 1) == 1;
    }
    good = good && digest_file(digest, fd) && EVP_DigestFinal_ex(digest, hash, &n_hash) == 1;
    EVP_MD_CTX_free(digest);
    close(fd);
    if (!good)
        return tap_fail(err, TAP_ERR_IO, "%s: cannot read it to compute its hash", path);
    for (unsigned i = 0; i < n_hash; i++)
        snprintf(text + 2 * i, 3, "%02x", hash[i]);
    *same = strcmp(text, etag) == 0;
    return TAP_OK;
}
