#include "counting.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

_Atomic size_t n_allocations, fail_at;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
char *__real_strdup(const char *text);
int __real_posix_memalign(void **block, size_t align, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
char *__wrap_strdup(const char *text);
int __wrap_posix_memalign(void **block, size_t align, size_t size);

static bool fails_now(void)
{
    return atomic_fetch_add(&n_allocations, 1) + 1 == atomic_load(&fail_at);
}

void *__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails_now() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails_now() ? NULL : __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
    return fails_now() ? NULL : __real_aligned_alloc(align, size);
}

char *__wrap_strdup(const char *text)
{
    return fails_now() ? NULL : __real_strdup(text);
}

int __wrap_posix_memalign(void **block, size_t align, size_t size)
{
    return fails_now() ? ENOMEM : __real_posix_memalign(block, align, size);
}
