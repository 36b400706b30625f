#include "cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HEADER_BYTES = 1 << 17,
    PAGE = 4096,
    MAX_BLOCKS = 1024,
    MAX_REFERENCE = 128,
    LAYOUT_CHARS = 32,
    SAMPLE_BYTES = 64
};

static const char magic[8] = "TAPPACK";
enum { VERSION = 1 };

struct block {
    char name[TAP_PLAN_NAME];
    uint64_t offset, n_bytes;
};

/* As it lies in the file; little-endian, as every machine here is. */
struct header {
    char magic[8];
    uint64_t version, checksum; /* of the header with this field 0 */
    uint64_t file_bytes, source;
    char layout[LAYOUT_CHARS];
    uint64_t n_blocks, n_reference;
    float reference[MAX_REFERENCE];
    struct block blocks[MAX_BLOCKS];
};
_Static_assert(sizeof(struct header) <= HEADER_BYTES, "the blocks begin after the header");

struct tap_cache {
    char *path;
    struct header *header; /* ours, in memory */
    uint8_t *mapped;       /* the whole file */
    void *plain;           /* in its place where no file can be made */
    bool hit;
    tap_writer writer; /* open until the new file is committed */
};

/* ---- what is in a file --------------------------------------------------------------------- */

/* FNV-1a over words of eight bytes and what is left. */
static uint64_t hash(uint64_t seed, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    for (; size >= sizeof(uint64_t); bytes += sizeof(uint64_t), size -= sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, bytes, sizeof word);
        seed = (seed ^ word) * 0x100000001b3u;
        seed ^= seed >> 29;
    }
    while (size-- > 0)
        seed = (seed ^ *bytes++) * 0x100000001b3u;
    return seed;
}

static uint64_t checksum(const struct header *header)
{
    const uint8_t *bytes = (const void *)header;
    size_t at = offsetof(struct header, checksum), after = at + sizeof header->checksum;
    uint64_t sum = hash(0xcbf29ce484222325u, bytes, at);
    return hash(sum, bytes + after, sizeof *header - after);
}

/* What tells one weights file from another without reading gigabytes: its size and time of change,
 * every tensor's name, type, shape and first bytes. */
static uint64_t describe_source(const tap_weights *weights)
{
    struct stat file = {0};
    if (stat(tap_weights_file(weights), &file) != 0)
        memset(&file, 0, sizeof file);
    uint64_t stamps[] = {(uint64_t)file.st_size, (uint64_t)file.st_mtim.tv_sec,
                         (uint64_t)file.st_mtim.tv_nsec};
    uint64_t sum = hash(0xcbf29ce484222325u, stamps, sizeof stamps);
    for (size_t i = 0; i < tap_weights_count(weights); i++) {
        const tap_tensor *tensor = tap_weights_at(weights, i);
        size_t n = tensor->n_elements * tap_dtype_size(tensor->dtype);
        uint64_t dtype = tensor->dtype;
        sum = hash(sum, tensor->name, strlen(tensor->name));
        sum = hash(sum, &dtype, sizeof dtype);
        sum = hash(sum, tensor->shape, tensor->rank * sizeof *tensor->shape);
        sum = hash(sum, tensor->data, n < SAMPLE_BYTES ? n : SAMPLE_BYTES);
    }
    return sum;
}

/* ---- finding it ---------------------------------------------------------------------------- */

/* *folder from malloc, or NULL where there is no place for one. */
static tap_status find_folder(char **folder, const char *option, tap_error *err)
{
    static const struct {
        const char *variable, *below;
    } places[] = {
        {"TAPETUM_CACHE", ""}, {"XDG_CACHE_HOME", "/tapetum"}, {"HOME", "/.cache/tapetum"}};
    *folder = NULL;
    int written = 0;
    if (option != NULL)
        written = option[0] == '\0' ? 0 : asprintf(folder, "%s", option);
    for (size_t i = 0; option == NULL && i < sizeof places / sizeof *places; i++) {
        const char *value = getenv(places[i].variable);
        if (value == NULL || value[0] == '\0')
            continue;
        written = asprintf(folder, "%s%s", value, places[i].below);
        break;
    }
    if (written < 0) {
        *folder = NULL;
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for the cache's name");
    }
    return TAP_OK;
}

/* The folder and those above it, as far as they are missing; the last one for the user alone. */
static void make_folders(char *folder)
{
    for (char *slash = strchr(folder + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(folder, 0777);
        *slash = '/';
    }
    mkdir(folder, 0700);
}

/* A name for each weights file and layout, so that a changed file's replaces the old one's. */
static tap_status name_file(tap_cache *cache, char *folder, const char *source, const char *layout,
                            tap_error *err)
{
    char real[PATH_MAX];
    const char *path = realpath(source, real) != NULL ? real : source;
    make_folders(folder);
    if (asprintf(&cache->path, "%s/%016llx-%s.packed", folder,
                 (unsigned long long)tap_fnv1a64(path), layout) >= 0)
        return TAP_OK;
    cache->path = NULL;
    return tap_fail(err, TAP_ERR_MEMORY, "out of memory for the cache's name");
}

/* A regular file that nobody else may write to. */
static bool is_ours(int fd, off_t *size)
{
    struct stat file;
    if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode) || file.st_uid != geteuid() ||
        (file.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return false;
    *size = file.st_size;
    return true;
}

/* The header of a file of this size, with every number in it checked. */
static bool is_sound(const struct header *found, uint64_t size, uint64_t source, const char *layout)
{
    if (memcmp(found->magic, magic, sizeof magic) != 0 || found->version != VERSION ||
        found->file_bytes != size || found->source != source ||
        strncmp(found->layout, layout, LAYOUT_CHARS) != 0 || found->n_blocks > MAX_BLOCKS ||
        found->n_reference > MAX_REFERENCE || found->checksum != checksum(found))
        return false;
    for (uint64_t i = 0; i < found->n_blocks; i++) {
        const struct block *at = &found->blocks[i];
        if (at->offset % PAGE != 0 || at->offset < HEADER_BYTES || at->offset > size ||
            at->n_bytes > size - at->offset || memchr(at->name, '\0', sizeof at->name) == NULL)
            return false;
    }
    return true;
}

/* Maps the file if it is there and is what these weights were packed into. */
static void look(tap_cache *cache, uint64_t source, const char *layout)
{
    off_t size = 0;
    int fd = open(cache->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    if (is_ours(fd, &size) && size >= HEADER_BYTES &&
        pread(fd, cache->header, sizeof *cache->header, 0) == (ssize_t)sizeof *cache->header &&
        is_sound(cache->header, (uint64_t)size, source, layout)) {
        void *mapped = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);
        if (mapped != MAP_FAILED)
            cache->mapped = mapped;
    }
    close(fd);
}

tap_status tap_cache_open(tap_cache **out, const char *option, const tap_weights *weights,
                          const char *layout, tap_error *err)
{
    char *folder;
    *out = NULL;
    TAP_TRY(find_folder(&folder, option, err));
    if (folder == NULL)
        return TAP_OK;
    tap_cache *cache = calloc(1, sizeof *cache);
    struct header *header = calloc(1, sizeof *header);
    tap_status status = TAP_OK;
    if (cache == NULL || header == NULL) {
        free(cache);
        free(header);
        free(folder);
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for the cache");
    }
    cache->header = header;
    cache->writer.fd = -1;
    status = name_file(cache, folder, tap_weights_file(weights), layout, err);
    free(folder);
    if (status != TAP_OK) {
        tap_cache_free(cache);
        return status;
    }
    uint64_t source = describe_source(weights);
    look(cache, source, layout);
    if (cache->mapped == NULL) {
        *header = (struct header){.version = VERSION, .source = source};
        memcpy(header->magic, magic, sizeof magic);
        snprintf(header->layout, sizeof header->layout, "%s", layout);
    }
    *out = cache;
    return TAP_OK;
}

/* ---- memory for a program's weights -------------------------------------------------------- */

static const struct block *find_block(const struct header *header, const tap_pack_request *request)
{
    for (uint64_t i = 0; i < header->n_blocks; i++)
        if (strcmp(header->blocks[i].name, request->name) == 0 &&
            header->blocks[i].n_bytes == request->n_bytes)
            return &header->blocks[i];
    return NULL;
}

/* Every request's block, or none. */
static bool use_file(tap_cache *cache, tap_pack_request *requests, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (find_block(cache->header, &requests[i]) == NULL)
            return false;
    for (size_t i = 0; i < n; i++) {
        requests[i].memory = cache->mapped + find_block(cache->header, &requests[i])->offset;
        requests[i].filled = true;
    }
    /* All of it is read at once by the warm-up; asking for it in order is faster than faults. */
    madvise(cache->mapped, cache->header->file_bytes, MADV_WILLNEED);
    cache->hit = true;
    return true;
}

static tap_status lay_out(struct header *header, const tap_pack_request *requests, size_t n,
                          tap_error *err)
{
    size_t end = HEADER_BYTES;
    if (n > MAX_BLOCKS)
        return tap_fail(err, TAP_ERR_LIMIT, "the cache: %zu weights, at most %d", n, MAX_BLOCKS);
    header->n_blocks = n;
    for (size_t i = 0; i < n; i++) {
        struct block *at = &header->blocks[i];
        snprintf(at->name, sizeof at->name, "%s", requests[i].name);
        at->offset = end;
        at->n_bytes = requests[i].n_bytes;
        if (!tap_size_add(end, requests[i].n_bytes, &end) || !tap_size_align(end, PAGE, &end) ||
            end > PTRDIFF_MAX)
            return tap_fail(err, TAP_ERR_LIMIT, "the cache: the weights are too large");
    }
    header->file_bytes = end;
    return TAP_OK;
}

/* Files that a process left which was killed while it packed: whoever still writes holds a lock. */
static void remove_leftovers(const char *path)
{
    enum { SUFFIX = 7 }; /* ".", six digits: tap_writer's */
    const char *name = strrchr(path, '/') + 1;
    size_t n_name = strlen(name);
    char *parent = strndup(path, (size_t)(name - path));
    DIR *stream = parent == NULL ? NULL : opendir(parent);
    free(parent);
    if (stream == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        if (strncmp(entry->d_name, name, n_name) != 0 || entry->d_name[n_name] != '.' ||
            strlen(entry->d_name) != n_name + SUFFIX)
            continue;
        int fd = openat(dirfd(stream), entry->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0)
            continue;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            unlinkat(dirfd(stream), entry->d_name, 0);
        close(fd);
    }
    closedir(stream);
}

/* A new file beside the old one, mapped for writing. Its room on the disk is taken first: writing
 * to a mapping of a full disk would kill the process. */
static bool make_file(tap_cache *cache)
{
    tap_error ignored;
    size_t size = cache->header->file_bytes;
    remove_leftovers(cache->path);
    if (tap_writer_begin(&cache->writer, cache->path, &ignored) != TAP_OK)
        return false;
    int fd = cache->writer.fd;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fchmod(fd, 0600) == 0 &&
        posix_fallocate(fd, 0, (off_t)size) == 0) {
        void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (mapped != MAP_FAILED) {
            cache->mapped = mapped;
            return true;
        }
    }
    tap_writer_abort(&cache->writer);
    return false;
}

static tap_status take(void *user, tap_pack_request *requests, size_t n, tap_error *err)
{
    tap_cache *cache = user;
    if (cache->mapped != NULL)
        return use_file(cache, requests, n)
                   ? TAP_OK
                   : tap_fail(err, TAP_ERR_INTERNAL, "%s: holds other weights", cache->path);
    TAP_TRY(lay_out(cache->header, requests, n, err));
    uint8_t *base = NULL;
    if (make_file(cache))
        base = cache->mapped;
    else
        base = cache->plain = tap_alloc(cache->header->file_bytes, 1);
    if (base == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for %zu bytes of packed weights",
                        (size_t)cache->header->file_bytes);
    for (size_t i = 0; i < n; i++)
        requests[i].memory = base + cache->header->blocks[i].offset;
    return TAP_OK;
}

tap_pack_store tap_cache_store(tap_cache *cache)
{
    return (tap_pack_store){.user = cache, .take = take};
}

bool tap_cache_found(const tap_cache *cache)
{
    return cache->mapped != NULL;
}

void tap_cache_drop(tap_cache *cache)
{
    if (cache->mapped != NULL)
        munmap(cache->mapped, cache->header->file_bytes);
    cache->mapped = NULL;
}

bool tap_cache_hit(const tap_cache *cache)
{
    return cache != NULL && cache->hit;
}

const float *tap_cache_reference(const tap_cache *cache, size_t n)
{
    return tap_cache_hit(cache) && cache->header->n_reference == n ? cache->header->reference
                                                                   : NULL;
}

tap_status tap_cache_commit(tap_cache *cache, const float *reference, size_t n, tap_error *err)
{
    if (cache->hit)
        return TAP_OK;
    if (cache->writer.fd < 0)
        return tap_fail(err, TAP_ERR_IO,
                        "%s: cannot be written, so the weights will be packed again next time",
                        cache->path);
    cache->header->n_reference = n <= MAX_REFERENCE ? n : 0;
    memcpy(cache->header->reference, reference, cache->header->n_reference * sizeof *reference);
    cache->header->checksum = checksum(cache->header);
    memcpy(cache->mapped, cache->header, sizeof *cache->header);
    mprotect(cache->mapped, cache->header->file_bytes, PROT_READ);
    return tap_writer_commit(&cache->writer, err);
}

void tap_cache_free(tap_cache *cache)
{
    if (cache == NULL)
        return;
    if (cache->mapped != NULL)
        munmap(cache->mapped, cache->header->file_bytes);
    tap_writer_abort(&cache->writer);
    free(cache->plain);
    free(cache->header);
    free(cache->path);
    free(cache);
}
