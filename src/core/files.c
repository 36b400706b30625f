#include "core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opens path for reading; *size is its length. Not blocking on a FIFO that nobody writes. */
static tap_status open_regular(int *fd, size_t *size, const char *path, size_t max_bytes,
                               tap_error *err)
{
    struct stat status;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return tap_fail_errno(err, path, "cannot open", errno);
    tap_status result = TAP_OK;
    if (fstat(*fd, &status) != 0)
        result = tap_fail_errno(err, path, "cannot stat", errno);
    else if (S_ISDIR(status.st_mode))
        result = tap_fail(err, TAP_ERR_ARGUMENT, "%s: is a folder; name a file in it", path);
    else if (!S_ISREG(status.st_mode))
        result =
            tap_fail(err, TAP_ERR_ARGUMENT, "%s: is a pipe or device; name a regular file", path);
    else if ((uintmax_t)status.st_size > max_bytes)
        result = tap_fail(err, TAP_ERR_LIMIT, "%s: %jd bytes, over the limit of %zu", path,
                          (intmax_t)status.st_size, max_bytes);
    if (result != TAP_OK) {
        close(*fd);
        *fd = -1;
        return result;
    }
    *size = (size_t)status.st_size;
    return TAP_OK;
}

tap_status tap_bytes_map(tap_bytes *bytes, const char *path, size_t max_bytes, tap_error *err)
{
    int fd;
    size_t size = 0;
    *bytes = (tap_bytes){0};
    TAP_TRY(open_regular(&fd, &size, path, max_bytes, err));
    if (size == 0) {
        close(fd);
        return TAP_OK;
    }
    void *memory = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    int saved = errno;
    close(fd);
    if (memory == MAP_FAILED)
        return tap_fail_errno(err, path, "cannot map", saved);
    *bytes = (tap_bytes){.data = memory, .size = size, .mapped = true};
    return TAP_OK;
}

/* Reads fd to its end. Memory grows with what really arrives, not with what a header claims. */
static tap_status read_all(tap_bytes *bytes, int fd, const char *path, size_t expected,
                           size_t max_bytes, tap_error *err)
{
    size_t capacity = expected + 1, size = 0; /* one more, to see the end without growing */
    uint8_t *data = malloc(capacity);
    if (data == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for %zu bytes", path, capacity);
    for (;;) {
        if (size == capacity) {
            size_t larger = capacity * 2;
            uint8_t *moved = larger > capacity ? realloc(data, larger) : NULL;
            if (moved == NULL) {
                free(data);
                return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for %zu bytes", path,
                                larger);
            }
            data = moved;
            capacity = larger;
        }
        ssize_t n = read(fd, data + size, capacity - size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int saved = errno;
            free(data);
            return tap_fail_errno(err, path, "cannot read", saved);
        }
        if (n == 0)
            break;
        size += (size_t)n;
        if (size > max_bytes) {
            free(data);
            return tap_fail(err, TAP_ERR_LIMIT, "%s: over the limit of %zu bytes", path, max_bytes);
        }
    }
    *bytes = (tap_bytes){.data = data, .size = size};
    return TAP_OK;
}

tap_status tap_bytes_read(tap_bytes *bytes, const char *path, size_t max_bytes, tap_error *err)
{
    *bytes = (tap_bytes){0};
    if (strcmp(path, "-") == 0)
        return read_all(bytes, STDIN_FILENO, "standard input", 65535, max_bytes, err);
    int fd;
    size_t size = 0;
    TAP_TRY(open_regular(&fd, &size, path, max_bytes, err));
    tap_status status = read_all(bytes, fd, path, size, max_bytes, err);
    close(fd);
    return status;
}

void tap_bytes_release(tap_bytes *bytes)
{
    if (bytes->mapped)
        munmap((void *)(uintptr_t)bytes->data, bytes->size);
    else
        free((void *)(uintptr_t)bytes->data);
    *bytes = (tap_bytes){0};
}

/* A new file "path.xxxxxx". Not mkostemp, whose files are 0600: to give them what open would, one
 * would have to ask for the umask, and asking changes it for all threads. */
static int create_beside(char *name, size_t size, const char *path)
{
    enum { TRIES = 100 };
    int fd = -1;
    for (int i = 0; i < TRIES && fd < 0; i++) {
        uint64_t random = 0;
        if (getrandom(&random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random)
            random = (uint64_t)(tap_clock_ms() * 1e6) + (uint64_t)i;
        snprintf(name, size, "%s.%06x", path, (unsigned)(random & 0xffffff));
        fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    return fd;
}

tap_status tap_writer_begin(tap_writer *writer, const char *path, tap_error *err)
{
    *writer = (tap_writer){.fd = -1};
    size_t length = strlen(path);
    writer->path = strdup(path);
    writer->temporary = malloc(length + 16);
    if (writer->path == NULL || writer->temporary == NULL) {
        tap_writer_abort(writer);
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for its name", path);
    }
    struct stat there;
    bool special = stat(path, &there) == 0 && !S_ISREG(there.st_mode);
    if (special) {
        writer->temporary[0] = '\0';
        tap_writer_abort(writer);
        return tap_fail(err, TAP_ERR_IO,
                        "%s: is a folder, device or pipe, which renaming would replace; give a "
                        "file's name",
                        path);
    }
    writer->fd = create_beside(writer->temporary, length + 16, path);
    if (writer->fd < 0) {
        int saved = errno;
        writer->temporary[0] = '\0';
        tap_writer_abort(writer);
        return tap_fail_errno(err, path, "cannot create a file beside it", saved);
    }
    return TAP_OK;
}

tap_status tap_writer_write(tap_writer *writer, const void *data, size_t size, tap_error *err)
{
    const uint8_t *next = data;
    while (size > 0) {
        ssize_t n = write(writer->fd, next, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tap_fail_errno(err, writer->path, "cannot write", errno);
        next += n;
        size -= (size_t)n;
    }
    return TAP_OK;
}

/* A rename is only durable once the folder is on disk too. Some file systems can't sync a folder
 * (EINVAL); then there is nothing more to do. */
static tap_status sync_folder_of(const char *path, tap_error *err)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL   ? strdup(".")
                   : slash == path ? strdup("/")
                                   : strndup(path, (size_t)(slash - path));
    if (folder == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for its folder's name", path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(folder);
    if (fd < 0)
        return TAP_OK; /* written through a folder that can't be listed: the file itself is safe */
    int failed = fsync(fd) != 0 && errno != EINVAL ? errno : 0;
    close(fd);
    return failed ? tap_fail_errno(err, path, "cannot sync its folder", failed) : TAP_OK;
}

tap_status tap_writer_commit(tap_writer *writer, tap_error *err)
{
    tap_status status = TAP_OK;
    if (fsync(writer->fd) != 0)
        status = tap_fail_errno(err, writer->path, "cannot sync", errno);
    int closed = close(writer->fd);
    writer->fd = -1;
    if (status == TAP_OK && closed != 0)
        status = tap_fail_errno(err, writer->path, "cannot close", errno);
    if (status == TAP_OK && rename(writer->temporary, writer->path) != 0)
        status = tap_fail_errno(err, writer->path, "cannot rename into place", errno);
    if (status == TAP_OK) {
        writer->temporary[0] = '\0';
        status = sync_folder_of(writer->path, err);
    }
    tap_writer_abort(writer);
    return status;
}

void tap_writer_abort(tap_writer *writer)
{
    if (writer->fd >= 0)
        close(writer->fd);
    if (writer->temporary != NULL && writer->temporary[0] != '\0')
        unlink(writer->temporary);
    free(writer->path);
    free(writer->temporary);
    *writer = (tap_writer){.fd = -1};
}

tap_status tap_file_write(const char *path, const void *data, size_t size, tap_error *err)
{
    tap_writer writer;
    TAP_TRY(tap_writer_begin(&writer, path, err));
    tap_status status = tap_writer_write(&writer, data, size, err);
    if (status == TAP_OK)
        return tap_writer_commit(&writer, err);
    tap_writer_abort(&writer);
    return status;
}
