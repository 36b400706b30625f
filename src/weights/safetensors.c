/* safetensors: 8 bytes of header length, a JSON header, then every tensor's data without a gap.
 * The checks are those of the format's reference reader, and limits of our own. */
#include "json.h"
#include "table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The format allows 100 MB; 4,096 tensors take under 1 MiB. */
enum { MAX_HEADER = 4 << 20 };

struct range {
    size_t begin, end;
    const char *name; /* borrowed from the table */
};

struct reader {
    tap_json json;
    const char *file;
    tap_weights *weights;
    struct range *ranges;
    const uint8_t *data; /* what follows the header */
    size_t data_size;
};

static tap_status want(const struct reader *reader, tap_json_kind kind, const char *what,
                       tap_error *err)
{
    return reader->json.kind == kind ? TAP_OK : tap_json_fail(&reader->json, err, what);
}

static tap_status read_metadata(struct reader *reader, tap_error *err)
{
    TAP_TRY(tap_json_next(&reader->json, err));
    TAP_TRY(want(reader, TAP_JSON_OBJECT, "__metadata__ is not an object", err));
    for (;;) {
        TAP_TRY(tap_json_next(&reader->json, err));
        if (reader->json.kind == TAP_JSON_OBJECT_END)
            return TAP_OK;
        TAP_TRY(tap_json_next(&reader->json, err));
        TAP_TRY(want(reader, TAP_JSON_STRING, "a value of __metadata__ is not a string", err));
    }
}

/* A list of at most capacity whole numbers. */
static tap_status read_sizes(struct reader *reader, size_t *values, size_t *n, size_t capacity,
                             const char *what, tap_error *err)
{
    *n = 0;
    TAP_TRY(tap_json_next(&reader->json, err));
    TAP_TRY(want(reader, TAP_JSON_ARRAY, what, err));
    for (;;) {
        TAP_TRY(tap_json_next(&reader->json, err));
        if (reader->json.kind == TAP_JSON_ARRAY_END)
            return TAP_OK;
        if (*n == capacity || !tap_json_to_size(&reader->json, &values[*n]))
            return tap_json_fail(&reader->json, err, what);
        ++*n;
    }
}

static tap_status read_dtype(struct reader *reader, const char *name, tap_dtype *dtype,
                             tap_error *err)
{
    TAP_TRY(tap_json_next(&reader->json, err));
    TAP_TRY(want(reader, TAP_JSON_STRING, "dtype is not a string", err));
    for (int d = TAP_DTYPE_F64; d <= TAP_DTYPE_BOOL; d++)
        if (strcmp(reader->json.string, tap_dtype_name((tap_dtype)d)) == 0) {
            *dtype = (tap_dtype)d;
            return TAP_OK;
        }
    return tap_fail(err, TAP_ERR_UNSUPPORTED,
                    "%s: tensor %s: dtype \"%.20s\" is not read here; save it as F32, F16 or BF16",
                    reader->file, name, reader->json.string);
}

static tap_status check_range(const struct reader *reader, const char *name,
                              const tap_tensor *tensor, const struct range *range, tap_error *err)
{
    size_t bytes = tensor->n_elements * tap_dtype_size(tensor->dtype); /* make_dense checked it */
    if (range->end < range->begin || range->end - range->begin != bytes)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: tensor %s: data_offsets [%zu, %zu] where its shape and dtype take %zu "
                        "bytes",
                        reader->file, name, range->begin, range->end, bytes);
    return TAP_OK;
}

/* {"dtype": "F32", "shape": [...], "data_offsets": [begin, end]}, in any order, nothing else. */
static tap_status read_tensor(struct reader *reader, const char *name, size_t name_length,
                              tap_error *err)
{
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4 };
    tap_json *json = &reader->json;
    tap_tensor tensor = {0};
    size_t offsets[2], n;
    int seen = 0;
    TAP_TRY(tap_json_next(json, err));
    TAP_TRY(want(reader, TAP_JSON_OBJECT, "a tensor's entry is not an object", err));
    for (;;) {
        TAP_TRY(tap_json_next(json, err));
        if (json->kind == TAP_JSON_OBJECT_END)
            break;
        if (strcmp(json->string, "dtype") == 0) {
            TAP_TRY(read_dtype(reader, name, &tensor.dtype, err));
            seen |= DTYPE;
        } else if (strcmp(json->string, "shape") == 0) {
            TAP_TRY(read_sizes(reader, tensor.shape, &tensor.rank, TAP_TENSOR_MAX_RANK,
                               "shape is not a list of at most 8 whole numbers", err));
            seen |= SHAPE;
        } else if (strcmp(json->string, "data_offsets") == 0) {
            TAP_TRY(
                read_sizes(reader, offsets, &n, 2, "data_offsets is not two whole numbers", err));
            if (n != 2)
                return tap_json_fail(json, err, "data_offsets is not two whole numbers");
            seen |= OFFSETS;
        } else {
            return tap_fail(err, TAP_ERR_FORMAT,
                            "%s: tensor %s: unknown field \"%.40s\" (dtype, shape, data_offsets)",
                            reader->file, name, json->string);
        }
    }
    if (seen != (DTYPE | SHAPE | OFFSETS))
        return tap_fail(err, TAP_ERR_FORMAT, "%s: tensor %s: no %s", reader->file, name,
                        !(seen & DTYPE)   ? "dtype"
                        : !(seen & SHAPE) ? "shape"
                                          : "data_offsets");
    if (!tap_tensor_make_dense(&tensor))
        return tap_fail(err, TAP_ERR_FORMAT, "%s: tensor %s: its shape overflows", reader->file,
                        name);
    struct range range = {.begin = offsets[0], .end = offsets[1]};
    TAP_TRY(check_range(reader, name, &tensor, &range, err));
    /* One that lies outside makes check_layout fail, so nobody sees this pointer missing. */
    tensor.data = range.end <= reader->data_size ? reader->data + range.begin : NULL;
    TAP_TRY(tap_weights_add(reader->weights, &tensor, name, name_length, err));
    size_t i = tap_weights_count(reader->weights) - 1;
    range.name = tap_weights_at(reader->weights, i)->name;
    reader->ranges[i] = range;
    return TAP_OK;
}

static int compare_ranges(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* No overlap (a small file that claims much memory), no hole and no tail (where a second file could
 * hide). */
static tap_status check_layout(struct reader *reader, tap_error *err)
{
    size_t n = tap_weights_count(reader->weights), end = 0;
    qsort(reader->ranges, n, sizeof *reader->ranges, compare_ranges);
    for (size_t i = 0; i < n; i++) {
        const struct range *range = &reader->ranges[i];
        if (range->begin != end)
            return tap_fail(err, TAP_ERR_FORMAT,
                            "%s: tensor %s: begins at byte %zu of the data, %s byte %zu, where the "
                            "one before ends",
                            reader->file, range->name, range->begin,
                            range->begin < end ? "overlapping" : "leaving a hole after", end);
        end = range->end;
    }
    if (end > reader->data_size)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: holds %zu bytes of data where its header lists %zu: the download is "
                        "incomplete, fetch it again",
                        reader->file, reader->data_size, end);
    if (end < reader->data_size)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: %zu bytes after the last tensor's end",
                        reader->file, reader->data_size - end);
    return TAP_OK;
}

static tap_status read_header(struct reader *reader, tap_error *err)
{
    tap_json *json = &reader->json;
    TAP_TRY(tap_json_next(json, err));
    TAP_TRY(want(reader, TAP_JSON_OBJECT, "the header is not an object", err));
    for (;;) {
        TAP_TRY(tap_json_next(json, err));
        if (json->kind == TAP_JSON_OBJECT_END)
            break;
        if (strcmp(json->string, "__metadata__") == 0)
            TAP_TRY(read_metadata(reader, err));
        else
            TAP_TRY(read_tensor(reader, json->string, json->length, err));
    }
    TAP_TRY(tap_json_next(json, err)); /* the end, after padding */
    return check_layout(reader, err);
}

static tap_status check_header_size(const uint8_t *data, size_t size, const char *file,
                                    size_t *header, tap_error *err)
{
    uint64_t length;
    if (size < sizeof length)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: only %zu bytes, too few for safetensors: the download is incomplete, "
                        "fetch it again",
                        file, size);
    memcpy(&length, data, sizeof length);
    if (length > MAX_HEADER)
        return tap_fail(err, TAP_ERR_LIMIT,
                        "%s: a safetensors header of %" PRIu64 " bytes, over our limit of %d", file,
                        length, MAX_HEADER);
    if (length > size - sizeof length)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: ends inside its header of %" PRIu64 " bytes: the download is "
                        "incomplete, fetch it again",
                        file, length);
    if (length == 0 || data[sizeof length] != '{')
        return tap_fail(err, TAP_ERR_FORMAT, "%s: its safetensors header does not begin with {",
                        file);
    *header = (size_t)length;
    return TAP_OK;
}

tap_status tap_safetensors_parse(tap_weights **weights, const uint8_t *data, size_t size,
                                 const char *file, tap_error *err)
{
    enum { PREFIX = 8 };
    size_t header = 0;
    *weights = NULL;
    TAP_TRY(check_header_size(data, size, file, &header, err));
    struct reader reader = {
        .file = file, .data = data + PREFIX + header, .data_size = size - PREFIX - header};
    reader.ranges = malloc(TAP_WEIGHTS_MAX_TENSORS * sizeof *reader.ranges);
    tap_status status = reader.ranges == NULL
                            ? tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", file)
                            : tap_weights_create(&reader.weights, file, "safetensors", err);
    if (status == TAP_OK)
        status = tap_json_open(&reader.json, data + PREFIX, header, file, PREFIX, err);
    if (status == TAP_OK)
        status = read_header(&reader, err);
    if (status == TAP_OK)
        status = tap_weights_finish(reader.weights, err);
    tap_json_close(&reader.json);
    free(reader.ranges);
    if (status != TAP_OK)
        tap_weights_close(reader.weights);
    else
        *weights = reader.weights;
    return status;
}
