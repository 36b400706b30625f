#include "json.h"
#include "table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 16384 /* elements written at a time */ };

/* text is UTF-8, as was checked: only quotes, backslashes and controls need escapes. */
static void put_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20)
            fprintf(out, "\\u%04x", (unsigned)c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

static tap_status check_spec(const char *path, const tap_tensor_spec *spec, tap_tensor *tensor,
                             tap_error *err)
{
    size_t length = strlen(spec->name);
    if (length > TAP_WEIGHTS_MAX_NAME || !tap_utf8_is_valid((const uint8_t *)spec->name, length))
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "%s: tensor name \"%.40s\": not UTF-8 or over %d bytes", path, spec->name,
                        TAP_WEIGHTS_MAX_NAME);
    if (spec->rank > TAP_TENSOR_MAX_RANK)
        return tap_fail(err, TAP_ERR_ARGUMENT, "%s: tensor %s: rank %zu over %d", path, spec->name,
                        spec->rank, TAP_TENSOR_MAX_RANK);
    *tensor = (tap_tensor){.dtype = spec->half ? TAP_DTYPE_F16 : TAP_DTYPE_F32, .rank = spec->rank};
    memcpy(tensor->shape, spec->shape, sizeof tensor->shape);
    if (!tap_tensor_make_dense(tensor))
        return tap_fail(err, TAP_ERR_ARGUMENT, "%s: tensor %s: its shape overflows", path,
                        spec->name);
    return TAP_OK;
}

static tap_status put_tensors(FILE *out, const char *path, const tap_tensor_spec *specs, size_t n,
                              bool comma, tap_error *err)
{
    size_t begin = 0;
    for (size_t i = 0; i < n; i++) {
        tap_tensor tensor;
        size_t end;
        TAP_TRY(check_spec(path, &specs[i], &tensor, err));
        if (!tap_size_add(begin, tensor.n_elements * tap_dtype_size(tensor.dtype), &end))
            return tap_fail(err, TAP_ERR_ARGUMENT, "%s: its tensors' sizes overflow", path);
        fputs(i > 0 || comma ? "," : "", out);
        put_string(out, specs[i].name);
        fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[", tap_dtype_name(tensor.dtype));
        for (size_t d = 0; d < tensor.rank; d++)
            fprintf(out, "%s%zu", d > 0 ? "," : "", tensor.shape[d]);
        fprintf(out, "],\"data_offsets\":[%zu,%zu]}", begin, end);
        begin = end;
    }
    return TAP_OK;
}

static tap_status put_metadata(FILE *out, const char *path, const char *const *metadata, size_t n,
                               tap_error *err)
{
    fputs("\"__metadata__\":{", out);
    for (size_t i = 0; i < n; i++) {
        if (!tap_utf8_is_valid((const uint8_t *)metadata[i], strlen(metadata[i])))
            return tap_fail(err, TAP_ERR_ARGUMENT, "%s: metadata string %zu is not UTF-8", path, i);
        fputs(i == 0 ? "" : i % 2 != 0 ? ":" : ",", out);
        put_string(out, metadata[i]);
    }
    fputc('}', out);
    return TAP_OK;
}

/* The length and the header, padded with spaces so that data begins at a multiple of 8. */
static tap_status make_header(char **header, size_t *size, const char *path,
                              const tap_tensor_spec *specs, size_t n, const char *const *metadata,
                              size_t n_metadata, tap_error *err)
{
    *header = NULL;
    FILE *out = open_memstream(header, size);
    if (out == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for its header", path);
    fwrite("\0\0\0\0\0\0\0", 1, sizeof(uint64_t), out);
    fputc('{', out);
    tap_status status =
        n_metadata > 0 ? put_metadata(out, path, metadata, n_metadata, err) : TAP_OK;
    if (status == TAP_OK)
        status = put_tensors(out, path, specs, n, n_metadata > 0, err);
    fputc('}', out);
    bool failed = fflush(out) != 0; /* which sets *size */
    while (!failed && *size % 8 != 0)
        failed = fputc(' ', out) == EOF || fflush(out) != 0;
    failed = failed || ferror(out) != 0;
    if ((fclose(out) != 0 || failed) && status == TAP_OK)
        status = tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for its header", path);
    if (status == TAP_OK) {
        uint64_t length = *size - sizeof length;
        memcpy(*header, &length, sizeof length);
    }
    return status;
}

static tap_status write_data(tap_writer *writer, const tap_tensor_spec *specs, size_t n_specs,
                             tap_tensor_fill fill, void *user, tap_error *err)
{
    static const size_t piece = PIECE;
    float *values = tap_alloc(piece, sizeof *values);
    uint16_t *halves = tap_alloc(piece, sizeof *halves);
    if (values == NULL || halves == NULL) {
        free(values);
        free(halves);
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", writer->path);
    }
    tap_status status = TAP_OK;
    for (size_t i = 0; i < n_specs && status == TAP_OK; i++) {
        size_t n = 1;
        for (size_t d = 0; d < specs[i].rank; d++)
            n *= specs[i].shape[d];
        for (size_t first = 0; first < n && status == TAP_OK; first += piece) {
            size_t now = n - first < piece ? n - first : piece;
            fill(user, i, first, now, values);
            if (specs[i].half)
                tap_f32_to_f16_row(halves, values, now);
            status = specs[i].half ? tap_writer_write(writer, halves, now * sizeof *halves, err)
                                   : tap_writer_write(writer, values, now * sizeof *values, err);
        }
    }
    free(values);
    free(halves);
    return status;
}

tap_status tap_safetensors_write(const char *path, const tap_tensor_spec *tensors, size_t n_tensors,
                                 const char *const *metadata, size_t n_metadata,
                                 tap_tensor_fill fill, void *user, tap_error *err)
{
    char *header;
    size_t size = 0;
    tap_writer writer;
    if (n_metadata % 2 != 0)
        return tap_fail(err, TAP_ERR_ARGUMENT, "%s: metadata: a key without a value", path);
    if (n_tensors > TAP_WEIGHTS_MAX_TENSORS)
        return tap_fail(err, TAP_ERR_ARGUMENT, "%s: %zu tensors, over %d", path, n_tensors,
                        TAP_WEIGHTS_MAX_TENSORS);
    tap_status status =
        make_header(&header, &size, path, tensors, n_tensors, metadata, n_metadata, err);
    if (status == TAP_OK)
        status = tap_writer_begin(&writer, path, err);
    if (status != TAP_OK) {
        free(header);
        return status;
    }
    status = tap_writer_write(&writer, header, size, err);
    free(header);
    if (status == TAP_OK)
        status = write_data(&writer, tensors, n_tensors, fill, user, err);
    if (status == TAP_OK)
        return tap_writer_commit(&writer, err);
    tap_writer_abort(&writer);
    return status;
}
