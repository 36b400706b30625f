/* NPZ: a zip (PKWARE's APPNOTE.TXT, 4.3) of stored NPY members. The same arrays give the same
 * bytes: every member is dated 1980-01-01, the format's zero. */
#include "json.h"
#include "table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    LOCAL_SIZE = 30,
    CENTRAL_SIZE = 46,
    END_SIZE = 22,
    NPY_PREFIX = 10,
    MAX_NPY_HEADER = 384, /* 8 dimensions of 20 digits, and the names */
    MAX_NAME = 200,
    MAX_ARRAYS = 1000,
    DOS_DATE = 1 << 5 | 1, /* 1980-01-01 */
    UTF8_NAME = 1 << 11
};

struct member {
    uint8_t header[MAX_NPY_HEADER];
    size_t header_size, data_size, name_size;
    uint32_t crc, offset;
};

static uint8_t *put16(uint8_t *at, size_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
    return at + 2;
}

static uint8_t *put32(uint8_t *at, size_t value)
{
    return put16(put16(at, value), value >> 16);
}

static uint8_t *put_bytes(uint8_t *at, const void *bytes, size_t n)
{
    if (n > 0)
        memcpy(at, bytes, n);
    return at + n;
}

/* The NPY header of version 1.0, so long that the data behind begins at a multiple of 64. */
static tap_status make_member(struct member *member, const tap_npz_array *array, tap_error *err)
{
    char *text = (char *)member->header + NPY_PREFIX;
    tap_tensor tensor = {.dtype = array->dtype, .rank = array->rank};
    if (array->dtype != TAP_DTYPE_F32 && array->dtype != TAP_DTYPE_F16)
        return tap_fail(err, TAP_ERR_ARGUMENT, "NPZ array %s: dtype is neither F32 nor F16",
                        array->name);
    member->name_size = strlen(array->name);
    if (member->name_size == 0 || member->name_size > MAX_NAME ||
        !tap_utf8_is_valid((const uint8_t *)array->name, member->name_size))
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "NPZ array \"%.40s\": its name is empty, over %d bytes or not UTF-8",
                        array->name, MAX_NAME);
    if (array->rank > TAP_TENSOR_MAX_RANK)
        return tap_fail(err, TAP_ERR_ARGUMENT, "NPZ array %s: rank %zu over %d", array->name,
                        array->rank, TAP_TENSOR_MAX_RANK);
    memcpy(tensor.shape, array->shape, sizeof tensor.shape);
    if (!tap_tensor_make_dense(&tensor))
        return tap_fail(err, TAP_ERR_ARGUMENT, "NPZ array %s: its shape overflows", array->name);
    int n = sprintf(text, "{'descr': '<f%zu', 'fortran_order': False, 'shape': (",
                    tap_dtype_size(array->dtype));
    for (size_t d = 0; d < array->rank; d++)
        n += sprintf(text + n, "%zu%s", array->shape[d],
                     array->rank == 1      ? ","
                     : d + 1 < array->rank ? ", "
                                           : "");
    n += sprintf(text + n, "), }");
    member->header_size = ((size_t)n + NPY_PREFIX + 1 + 63) / 64 * 64;
    memset(text + n, ' ', member->header_size - NPY_PREFIX - (size_t)n);
    member->header[member->header_size - 1] = '\n';
    memcpy(member->header, "\x93NUMPY\x01\x00", 8);
    put16(member->header + 8, member->header_size - NPY_PREFIX);
    member->data_size = tensor.n_elements * tap_dtype_size(array->dtype);
    return TAP_OK;
}

/* The fields from "version needed" to the extra field's length, which both headers share. */
static uint8_t *put_fields(uint8_t *at, const struct member *member, const char *name)
{
    size_t size = member->header_size + member->data_size, flags = 0;
    for (size_t i = 0; i < member->name_size; i++)
        if ((uint8_t)name[i] >= 0x80)
            flags = UTF8_NAME;
    at = put16(at, 20);
    at = put16(at, flags);
    at = put16(at, 0); /* stored */
    at = put16(at, 0); /* midnight */
    at = put16(at, DOS_DATE);
    at = put32(at, member->crc);
    at = put32(at, size);
    at = put32(at, size);
    at = put16(at, member->name_size + 4);
    return put16(at, 0);
}

static uint8_t *put_name(uint8_t *at, const struct member *member, const char *name)
{
    return put_bytes(put_bytes(at, name, member->name_size), ".npy", 4);
}

static void put_archive(uint8_t *bytes, struct member *members, const tap_npz_array *arrays,
                        size_t n)
{
    uint8_t *at = bytes;
    for (size_t i = 0; i < n; i++) {
        struct member *member = &members[i];
        member->crc = (uint32_t)crc32_z(0, member->header, member->header_size);
        if (member->data_size > 0)
            member->crc = (uint32_t)crc32_z(member->crc, arrays[i].data, member->data_size);
        member->offset = (uint32_t)(at - bytes);
        at = put_bytes(at, "PK\3\4", 4);
        at = put_name(put_fields(at, member, arrays[i].name), member, arrays[i].name);
        at = put_bytes(at, member->header, member->header_size);
        at = put_bytes(at, arrays[i].data, member->data_size);
    }
    uint8_t *central = at;
    for (size_t i = 0; i < n; i++) {
        at = put_bytes(at, "PK\1\2\x14\0", 6);
        at = put_fields(at, &members[i], arrays[i].name);
        at = put_bytes(at, "\0\0\0\0\0\0\0\0\0\0", 10); /* comment, disk, attributes */
        at = put_name(put32(at, members[i].offset), &members[i], arrays[i].name);
    }
    size_t central_size = (size_t)(at - central);
    at = put_bytes(at, "PK\5\6\0\0\0\0", 8);
    at = put16(put16(at, n), n);
    at = put32(put32(at, central_size), (size_t)(central - bytes));
    put16(at, 0);
}

tap_status tap_npz_write(uint8_t **bytes, size_t *n_bytes, const tap_npz_array *arrays,
                         size_t n_arrays, tap_error *err)
{
    size_t size = END_SIZE;
    *bytes = NULL;
    *n_bytes = 0;
    if (n_arrays > MAX_ARRAYS)
        return tap_fail(err, TAP_ERR_LIMIT, "NPZ of %zu arrays, over %d", n_arrays, MAX_ARRAYS);
    struct member *members = calloc(n_arrays + 1, sizeof *members);
    tap_status status =
        members == NULL ? tap_fail(err, TAP_ERR_MEMORY, "NPZ: out of memory") : TAP_OK;
    for (size_t i = 0; i < n_arrays && status == TAP_OK; i++) {
        status = make_member(&members[i], &arrays[i], err);
        size_t names = 2 * (members[i].name_size + 4) + LOCAL_SIZE + CENTRAL_SIZE;
        if (status == TAP_OK &&
            (!tap_size_add(size, members[i].data_size, &size) ||
             !tap_size_add(size, members[i].header_size + names, &size) || size > UINT32_MAX))
            status = tap_fail(err, TAP_ERR_LIMIT, "NPZ array %s: over 4 GiB", arrays[i].name);
    }
    if (status == TAP_OK) {
        *bytes = malloc(size);
        if (*bytes == NULL)
            status = tap_fail(err, TAP_ERR_MEMORY, "NPZ: out of memory for %zu bytes", size);
    }
    if (status == TAP_OK) {
        put_archive(*bytes, members, arrays, n_arrays);
        *n_bytes = size;
    }
    free(members);
    return status;
}
