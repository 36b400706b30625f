/* Numbers out of a file, whatever its format: NPY, NPZ, a pickle of arrays, JSON. */
#include "json.h"
#include "sniff.h"
#include "table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t max_file = 256 << 20;

/* ---- tensors of any type -------------------------------------------------------------------- */

static double number_at(const tap_tensor *tensor, size_t place)
{
    const uint8_t *at = tensor->data + place * tap_dtype_size(tensor->dtype);
    union {
        uint64_t u64;
        int64_t i64;
        uint32_t u32;
        int32_t i32;
        uint16_t u16;
        int16_t i16;
        int8_t i8;
    } bits = {0};
    memcpy(&bits, at, tap_dtype_size(tensor->dtype));
    switch (tensor->dtype) {
    case TAP_DTYPE_U64:
        return (double)bits.u64;
    case TAP_DTYPE_I64:
        return (double)bits.i64;
    case TAP_DTYPE_U32:
        return bits.u32;
    case TAP_DTYPE_I32:
        return bits.i32;
    case TAP_DTYPE_U16:
        return bits.u16;
    case TAP_DTYPE_I16:
        return bits.i16;
    case TAP_DTYPE_I8:
        return bits.i8;
    default:
        return *at; /* U8, BOOL */
    }
}

static tap_status take_tensor(float **values, tap_tensor *array, const tap_tensor *tensor,
                              const char *file, tap_error *err)
{
    *array = *tensor;
    array->data = NULL;
    *values = tap_alloc(tensor->n_elements, sizeof(float));
    if (*values == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for its numbers", file);
    if (tensor->dtype <= TAP_DTYPE_BF16)
        return tap_tensor_to_f32(tensor, file, *values, err);
    for (size_t i = 0; i < tensor->n_elements; i++) {
        size_t place = 0, rest = i;
        for (size_t d = tensor->rank; d-- > 0; rest /= tensor->shape[d])
            place += rest % tensor->shape[d] * tensor->strides[d];
        (*values)[i] = (float)number_at(tensor, place);
    }
    return TAP_OK;
}

static tap_status take_named(float **values, tap_tensor *array, const tap_weights *arrays,
                             const char *name, tap_error *err)
{
    size_t n = tap_weights_count(arrays);
    const char *file = tap_weights_file(arrays);
    if (n == 0)
        return tap_fail(err, TAP_ERR_NOT_FOUND, "%s: holds no array", file);
    const tap_tensor *found =
        name == NULL ? tap_weights_at(arrays, 0) : tap_weights_find(arrays, name);
    if (found != NULL)
        return take_tensor(values, array, found, file, err);
    char names[200] = "";
    for (size_t i = 0, used = 0; i < n && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i == 0 ? "" : ", ",
                                 tap_weights_at(arrays, i)->name);
    return tap_fail(err, TAP_ERR_NOT_FOUND, "%s: holds no array '%s'; it has: %s", file, name,
                    names);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

/* Numbers as they come, and the shape that the first list of each depth has. */
struct lists {
    tap_json json;
    tap_tensor array;
    float *values;
    size_t n, capacity;
    tap_error *err;
};

static tap_status add_number(struct lists *lists)
{
    double value;
    if (!tap_json_to_double(&lists->json, &value) || !isfinite((float)value))
        return tap_json_fail(&lists->json, lists->err, "a number that is not finite in float32");
    if (lists->n == lists->capacity) {
        size_t more = lists->capacity == 0 ? 1024 : 2 * lists->capacity;
        float *grown = reallocarray(lists->values, more, sizeof *grown);
        if (grown == NULL)
            return tap_fail(lists->err, TAP_ERR_MEMORY, "%s: out of memory for its numbers",
                            lists->json.file);
        lists->values = grown;
        lists->capacity = more;
    }
    lists->values[lists->n++] = (float)value;
    return TAP_OK;
}

/* The value at hand, a number or lists of them, depth lists deep. The first of a depth decides how
 * long all of it are; rank is 0 until the first number has been met. */
static tap_status read_lists(struct lists *lists, size_t depth, bool first)
{
    tap_json *json = &lists->json;
    tap_tensor *array = &lists->array;
    if (json->kind == TAP_JSON_NUMBER) {
        if (first)
            array->rank = depth;
        return depth == array->rank ? add_number(lists)
                                    : tap_json_fail(json, lists->err, "lists of several depths");
    }
    if (json->kind != TAP_JSON_ARRAY)
        return tap_json_fail(json, lists->err, "neither a number nor a list of numbers");
    if (depth == TAP_TENSOR_MAX_RANK)
        return tap_json_fail(json, lists->err, "lists more than 8 deep");
    if (!first && depth >= array->rank)
        return tap_json_fail(json, lists->err, "lists of several depths");
    size_t n = 0;
    for (;; n++) {
        TAP_TRY(tap_json_next(json, lists->err));
        if (json->kind == TAP_JSON_ARRAY_END)
            break;
        TAP_TRY(read_lists(lists, depth + 1, first && n == 0));
    }
    if (first && n == 0)
        array->rank = depth + 1; /* an empty list */
    if (first)
        array->shape[depth] = n;
    return n == array->shape[depth] ? TAP_OK
                                    : tap_json_fail(json, lists->err, "lists of several lengths");
}

/* The list of several arrays that the top is: the one of this number, or without a name all of them
 * as one if they are alike, else the first. */
static tap_status read_top_list(struct lists *lists, const char *name)
{
    tap_json *json = &lists->json;
    char *end = NULL;
    size_t wanted = name == NULL ? 0 : strtoul(name, &end, 10), n = 0, alike = 0;
    tap_tensor first = {0};
    bool same = true;
    if (name != NULL && (end == name || *end != '\0'))
        return tap_fail(lists->err, TAP_ERR_NOT_FOUND,
                        "%s: is a list; its arrays are told by numbers, not by '%s'", json->file,
                        name);
    for (;; n++) {
        TAP_TRY(tap_json_next(json, lists->err));
        if (json->kind == TAP_JSON_ARRAY_END)
            break;
        if ((name != NULL && n != wanted) || !same) {
            TAP_TRY(tap_json_skip(json, lists->err));
            continue;
        }
        lists->array = (tap_tensor){0};
        size_t before = lists->n;
        TAP_TRY(read_lists(lists, 0, true));
        same = n == 0 || name != NULL ||
               (lists->array.rank == first.rank &&
                memcmp(lists->array.shape, first.shape, sizeof first.shape) == 0);
        if (n == 0 || name != NULL)
            first = lists->array;
        else if (!same)
            lists->n = before;
        alike += same;
    }
    lists->array = first;
    if (name != NULL)
        return wanted < n ? TAP_OK
                          : tap_fail(lists->err, TAP_ERR_NOT_FOUND,
                                     "%s: is a list of %zu: there is no %s", json->file, n, name);
    if (!same) {
        size_t one = 1;
        for (size_t i = 0; i < first.rank; i++)
            one *= first.shape[i];
        lists->n = one;
        return TAP_OK;
    }
    if (first.rank == TAP_TENSOR_MAX_RANK)
        return tap_json_fail(json, lists->err, "lists more than 8 deep");
    memmove(lists->array.shape + 1, first.shape, first.rank * sizeof *first.shape);
    lists->array.shape[0] = alike;
    lists->array.rank = first.rank + 1;
    return TAP_OK;
}

static tap_status read_top_object(struct lists *lists, const char *name)
{
    tap_json *json = &lists->json;
    bool found = false;
    for (;;) {
        TAP_TRY(tap_json_next(json, lists->err));
        if (json->kind == TAP_JSON_OBJECT_END)
            break;
        bool this = !found && (name == NULL || strcmp(json->string, name) == 0);
        TAP_TRY(tap_json_next(json, lists->err));
        if (this)
            TAP_TRY(read_lists(lists, 0, true));
        else
            TAP_TRY(tap_json_skip(json, lists->err));
        found = found || this;
    }
    return found ? TAP_OK
                 : tap_fail(lists->err, TAP_ERR_NOT_FOUND, "%s: holds no '%s'", json->file,
                            name == NULL ? "list" : name);
}

static tap_status read_json(float **values, tap_tensor *array, const tap_bytes *bytes,
                            const char *path, const char *name, tap_error *err)
{
    struct lists lists = {.err = err};
    TAP_TRY(tap_json_open(&lists.json, bytes->data, bytes->size, path, 0, err));
    tap_status status = tap_json_next(&lists.json, err);
    if (status == TAP_OK && lists.json.kind == TAP_JSON_OBJECT)
        status = read_top_object(&lists, name);
    else if (status == TAP_OK && lists.json.kind == TAP_JSON_ARRAY)
        status = read_top_list(&lists, name);
    else if (status == TAP_OK)
        status = tap_json_fail(&lists.json, err, "neither a list nor an object");
    if (status == TAP_OK)
        status = tap_json_next(&lists.json, err); /* nothing may follow */
    tap_json_close(&lists.json);
    *array = lists.array;
    *values = lists.values;
    if (status == TAP_OK && lists.values == NULL) {
        *values = malloc(1);
        if (*values == NULL)
            status = tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", path);
    }
    return status;
}

/* ---- files ---------------------------------------------------------------------------------- */

static tap_status read_npy(float **values, tap_tensor *array, const tap_bytes *bytes,
                           const char *path, tap_error *err)
{
    tap_tensor tensor;
    TAP_TRY(tap_npy_parse(&tensor, bytes->data, bytes->size, path, err));
    tensor.name = "array";
    return take_tensor(values, array, &tensor, path, err);
}

static tap_status read_arrays(float **values, tap_tensor *array, const tap_bytes *bytes,
                              const char *path, const char *name, tap_error *err)
{
    tap_weights *arrays;
    TAP_TRY(tap_arrays_parse(&arrays, bytes->data, bytes->size, path, err));
    tap_status status = take_named(values, array, arrays, name, err);
    tap_weights_close(arrays);
    return status;
}

tap_status tap_array_open(float **values, tap_tensor *array, const char *path, const char *name,
                          tap_error *err)
{
    tap_bytes bytes;
    *values = NULL;
    *array = (tap_tensor){0};
    TAP_TRY(tap_bytes_read(&bytes, path, max_file, err));
    const uint8_t *at = bytes.data, *end = at + bytes.size;
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    tap_status status;
    if (bytes.size >= 6 && memcmp(bytes.data, "\x93NUMPY", 6) == 0)
        status = read_npy(values, array, &bytes, path, err);
    else if (at < end && (*at == '[' || *at == '{'))
        status = read_json(values, array, &bytes, path, name, err);
    else
        status = read_arrays(values, array, &bytes, path, name, err);
    tap_bytes_release(&bytes);
    array->name = NULL;
    if (status != TAP_OK) {
        free(*values);
        *values = NULL;
    }
    return status;
}
