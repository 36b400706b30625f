#include "table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct tap_weights {
    char *file;
    const char *format;
    tap_bytes bytes; /* what the tensors' data points into, if it is ours */
    tap_tensor *tensors;
    size_t n, capacity;
};

tap_status tap_weights_create(tap_weights **weights, const char *file, const char *format,
                              tap_error *err)
{
    *weights = calloc(1, sizeof **weights);
    char *copy = strdup(file);
    if (*weights == NULL || copy == NULL) {
        free(copy);
        free(*weights);
        *weights = NULL;
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", file);
    }
    (*weights)->file = copy;
    (*weights)->format = format;
    return TAP_OK;
}

size_t tap_weights_bytes(const tap_weights *weights)
{
    return weights->bytes.size;
}

void tap_weights_rest(const tap_weights *weights)
{
    if (weights->bytes.mapped)
        madvise((void *)(uintptr_t)weights->bytes.data, weights->bytes.size, MADV_DONTNEED);
}

void tap_weights_close(tap_weights *weights)
{
    if (weights == NULL)
        return;
    for (size_t i = 0; i < weights->n; i++)
        free((void *)(uintptr_t)weights->tensors[i].name);
    free(weights->tensors);
    tap_bytes_release(&weights->bytes);
    free(weights->file);
    free(weights);
}

void tap_weights_keep(tap_weights *weights, const tap_bytes *bytes)
{
    weights->bytes = *bytes;
}

static tap_status grow(tap_weights *weights, tap_error *err)
{
    size_t larger = weights->capacity == 0 ? 64 : weights->capacity * 2;
    if (weights->n == TAP_WEIGHTS_MAX_TENSORS)
        return tap_fail(err, TAP_ERR_LIMIT, "%s: over %d tensors", weights->file,
                        TAP_WEIGHTS_MAX_TENSORS);
    tap_tensor *moved = realloc(weights->tensors, larger * sizeof *moved);
    if (moved == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for %zu tensors", weights->file,
                        larger);
    weights->tensors = moved;
    weights->capacity = larger;
    return TAP_OK;
}

tap_status tap_weights_add(tap_weights *weights, const tap_tensor *tensor, const char *name,
                           size_t name_length, tap_error *err)
{
    if (name_length > TAP_WEIGHTS_MAX_NAME)
        return tap_fail(err, TAP_ERR_LIMIT, "%s: a tensor's name of %zu bytes (at most %d): %.40s",
                        weights->file, name_length, TAP_WEIGHTS_MAX_NAME, name);
    if (memchr(name, '\0', name_length) != NULL)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: a NUL in the name of tensor %s", weights->file,
                        name);
    if (weights->n == weights->capacity)
        TAP_TRY(grow(weights, err));
    char *copy = strndup(name, name_length);
    if (copy == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for names", weights->file);
    weights->tensors[weights->n] = *tensor;
    weights->tensors[weights->n++].name = copy;
    return TAP_OK;
}

static int compare_names(const void *a, const void *b)
{
    const tap_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

tap_status tap_weights_finish(tap_weights *weights, tap_error *err)
{
    if (weights->n > 1)
        qsort(weights->tensors, weights->n, sizeof *weights->tensors, compare_names);
    for (size_t i = 1; i < weights->n; i++)
        if (compare_names(&weights->tensors[i - 1], &weights->tensors[i]) == 0)
            return tap_fail(err, TAP_ERR_FORMAT, "%s: tensor %s is there twice", weights->file,
                            weights->tensors[i].name);
    return TAP_OK;
}

const char *tap_weights_file(const tap_weights *weights)
{
    return weights->file;
}

const char *tap_weights_format(const tap_weights *weights)
{
    return weights->format;
}

size_t tap_weights_count(const tap_weights *weights)
{
    return weights->n;
}

const tap_tensor *tap_weights_at(const tap_weights *weights, size_t i)
{
    return &weights->tensors[i];
}

const tap_tensor *tap_weights_find(const tap_weights *weights, const char *name)
{
    tap_tensor wanted = {.name = name};
    if (weights->n == 0)
        return NULL;
    return bsearch(&wanted, weights->tensors, weights->n, sizeof wanted, compare_names);
}
