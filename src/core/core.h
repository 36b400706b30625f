/* core: what every room stands on. Status and messages, checked sizes, arenas, files, threads,
 * CPU features, half floats, clock. Depends on libc and pthreads only. */
#ifndef TAP_CORE_H
#define TAP_CORE_H

#include "tapetum.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- status ------------------------------------------------------------------------------ */

/* Fills *err (may be NULL) and returns status, so that a failing function ends in
 * `return tap_fail(err, TAP_ERR_FORMAT, "%s: ...", path)`. The message says what was wrong, where,
 * and what to do; longer than tap_error holds, it is cut at a UTF-8 boundary. Control characters
 * (a hostile file's names) are written as '?'. */
__attribute__((format(printf, 3, 4))) tap_status tap_fail(tap_error *err, tap_status status,
                                                          const char *format, ...);

/* TAP_ERR_IO or TAP_ERR_NOT_FOUND for ENOENT, from errno's value. "path: what: strerror; what
 * to do", where there is something to do. */
tap_status tap_fail_errno(tap_error *err, const char *path, const char *what, int errno_value);

/* Returns early with the status of a failed call, whose message is already in err. */
#define TAP_TRY(call)                        \
    do {                                     \
        tap_status tap_try_status_ = (call); \
        if (tap_try_status_ != TAP_OK)       \
            return tap_try_status_;          \
    } while (0)

/* ---- checked sizes ----------------------------------------------------------------------- */

/* *out = a * b, a + b; false, and *out unspecified, if that overflows. Every size that comes from
 * a file or a request goes through these. */
static inline bool tap_size_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool tap_size_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* size up to a multiple of align, a power of two; false on overflow. */
static inline bool tap_size_align(size_t size, size_t align, size_t *out)
{
    if (!tap_size_add(size, align - 1, out))
        return false;
    *out &= ~(align - 1);
    return true;
}

/* ---- memory ------------------------------------------------------------------------------ */

enum { TAP_ALIGN = 64 }; /* a cache line, and the widest vector */

/* TAP_ALIGN-aligned memory for count * size bytes, or NULL (overflow, or none left); a count of 0
 * gives a valid pointer. Contents are unspecified. Released with free(). */
void *tap_alloc(size_t count, size_t size);

/* A fixed block handed out piece by piece; never grows. */
typedef struct tap_arena {
    uint8_t *base;
    size_t capacity, used;
} tap_arena;

tap_status tap_arena_create(tap_arena *arena, size_t capacity, tap_error *err);
/* TAP_ALIGN-aligned; NULL when the arena is full. */
void *tap_arena_take(tap_arena *arena, size_t count, size_t size);
void tap_arena_reset(tap_arena *arena);
void tap_arena_free(tap_arena *arena);

/* ---- files ------------------------------------------------------------------------------- */

/* A file's bytes, read-only. */
typedef struct tap_bytes {
    const uint8_t *data;
    size_t size;
    bool mapped; /* else from malloc */
} tap_bytes;

/* Maps a regular file privately. Refuses directories, FIFOs and devices, and files over max_bytes
 * (TAP_ERR_LIMIT). An empty file gives size 0. A mapped file that another process cuts short makes
 * reads fault: use tap_bytes_read where the file is not ours and small. */
tap_status tap_bytes_map(tap_bytes *bytes, const char *path, size_t max_bytes, tap_error *err);

/* Reads a file, or standard input for "-", into memory; never more than max_bytes. */
tap_status tap_bytes_read(tap_bytes *bytes, const char *path, size_t max_bytes, tap_error *err);

void tap_bytes_release(tap_bytes *bytes);

/* Writing beside, syncing, renaming: the target is the old file or the whole new one, never half.
 * What is there and no regular file is refused. Usage: begin, write..., then commit, or abort after
 * any failure (abort after commit is fine). */
typedef struct tap_writer {
    char *path, *temporary;
    int fd;
} tap_writer;

tap_status tap_writer_begin(tap_writer *writer, const char *path, tap_error *err);
tap_status tap_writer_write(tap_writer *writer, const void *data, size_t size, tap_error *err);
tap_status tap_writer_commit(tap_writer *writer, tap_error *err);
void tap_writer_abort(tap_writer *writer);

/* All of the above in one call. */
tap_status tap_file_write(const char *path, const void *data, size_t size, tap_error *err);

/* ---- threads ----------------------------------------------------------------------------- */

/* A fixed set of workers. The caller's thread works too, so n_threads = 1 starts none. */
typedef struct tap_pool tap_pool;

/* One piece of work: item in 0..n_items-1; worker in 0..n_threads-1 names scratch memory. */
typedef void (*tap_pool_fn)(void *context, size_t item, size_t worker);

tap_status tap_pool_create(tap_pool **pool, size_t n_threads, tap_error *err);
void tap_pool_free(tap_pool *pool);
size_t tap_pool_threads(const tap_pool *pool);

/* Runs fn for every item, in any order, on any worker, and returns when all are done. Items are
 * taken from an atomic counter. Calls from several threads take turns. fn must not call it. In a
 * child after fork() the first call starts threads of the child's own. */
void tap_pool_run(tap_pool *pool, size_t n_items, tap_pool_fn fn, void *context);

/* CPUs that this process may use: the smaller of the affinity mask and the cgroup's quota rounded
 * up, at least 1. reason (may be NULL): a few words for people, "2 CPUs allowed". */
size_t tap_cpus_allowed(char *reason, size_t reason_size);

/* ---- half floats ------------------------------------------------------------------------- */

/* IEEE 754 binary16 to and from float; rounds to nearest, ties to even; NaN stays NaN. */
float tap_f16_to_f32(uint16_t half);
uint16_t tap_f32_to_f16(float value);
void tap_f32_to_f16_row(uint16_t *halves, const float *values, size_t n);
float tap_bf16_to_f32(uint16_t bf16);

/* ---- clock ------------------------------------------------------------------------------- */

/* Milliseconds on a clock that never jumps. */
double tap_clock_ms(void);

/* ---- text ------------------------------------------------------------------------------- */

/* Bytes of the UTF-8 character at text, 1 to 4; 0 where there is none (RFC 3629). */
size_t tap_utf8_length(const uint8_t *text, size_t size);

/* ---- names to numbers -------------------------------------------------------------------- */

/* FNV-1a, 64 bits, of a string. */
uint64_t tap_fnv1a64(const char *text);

/* Output i (from 1) of splitmix64 seeded with seed: the state needs no keeping. */
uint64_t tap_splitmix64(uint64_t seed, uint64_t i);

#endif
