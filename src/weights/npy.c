/* NPY: "\x93NUMPY", version, header length, a Python dictionary as text, then the data.
 * numpy.lib.format states the grammar; its writer's output and little else is accepted. */
#include "table.h"

#include <string.h>

enum { MAX_HEADER = 65536 };

struct reader {
    const char *text, *end, *file;
    bool fortran;
};

static tap_status bad(const struct reader *reader, const char *what, tap_error *err)
{
    return tap_fail(err, TAP_ERR_FORMAT, "%s: NPY header: %s", reader->file, what);
}

static void skip_space(struct reader *reader)
{
    while (reader->text < reader->end && *reader->text == ' ')
        reader->text++;
}

static bool take(struct reader *reader, const char *word)
{
    size_t n = strlen(word);
    skip_space(reader);
    if ((size_t)(reader->end - reader->text) < n || memcmp(reader->text, word, n) != 0)
        return false;
    reader->text += n;
    return true;
}

/* A Python string without escapes; its length, or 0. */
static size_t take_string(struct reader *reader, const char **string)
{
    skip_space(reader);
    if (reader->text == reader->end || (*reader->text != '\'' && *reader->text != '"'))
        return 0;
    const char *first = reader->text + 1;
    const char *last = memchr(first, *reader->text, (size_t)(reader->end - first));
    if (last == NULL)
        return 0;
    reader->text = last + 1;
    *string = first;
    return (size_t)(last - first);
}

static tap_status read_descr(struct reader *reader, tap_dtype *dtype, tap_error *err)
{
    static const struct {
        const char *name;
        tap_dtype dtype;
    } known[] = {{"<f8", TAP_DTYPE_F64}, {"<f4", TAP_DTYPE_F32}, {"<f2", TAP_DTYPE_F16},
                 {"<i8", TAP_DTYPE_I64}, {"<i4", TAP_DTYPE_I32}, {"<i2", TAP_DTYPE_I16},
                 {"|i1", TAP_DTYPE_I8},  {"<u8", TAP_DTYPE_U64}, {"<u4", TAP_DTYPE_U32},
                 {"<u2", TAP_DTYPE_U16}, {"|u1", TAP_DTYPE_U8},  {"|b1", TAP_DTYPE_BOOL}};
    const char *descr;
    size_t n = take_string(reader, &descr);
    if (n == 0)
        return bad(reader, "descr is not a string", err);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (n == strlen(known[i].name) && memcmp(descr, known[i].name, n) == 0) {
            *dtype = known[i].dtype;
            return TAP_OK;
        }
    return tap_fail(err, TAP_ERR_UNSUPPORTED,
                    "%s: NPY dtype '%.*s' is not read here (little-endian numbers are%s)",
                    reader->file, n < 20 ? (int)n : 20, descr,
                    n > 1 && descr[1] == 'O' ? "; Python objects never" : "");
}

static bool take_size(struct reader *reader, size_t *value)
{
    skip_space(reader);
    const char *first = reader->text;
    *value = 0;
    for (; reader->text < reader->end && *reader->text >= '0' && *reader->text <= '9';
         reader->text++)
        if (!tap_size_mul(*value, 10, value) ||
            !tap_size_add(*value, (size_t)(*reader->text - '0'), value))
            return false;
    return reader->text > first;
}

/* (), (3,), (3, 4) */
static tap_status read_shape(struct reader *reader, tap_tensor *tensor, tap_error *err)
{
    if (!take(reader, "("))
        return bad(reader, "shape is not a tuple", err);
    for (tensor->rank = 0; !take(reader, ")");) {
        if (tensor->rank == TAP_TENSOR_MAX_RANK)
            return tap_fail(err, TAP_ERR_LIMIT, "%s: NPY array of more than %d dimensions",
                            reader->file, TAP_TENSOR_MAX_RANK);
        if (!take_size(reader, &tensor->shape[tensor->rank]))
            return bad(reader, "shape is not a tuple of whole numbers", err);
        tensor->rank++;
        bool comma = take(reader, ",");
        if (!comma && (tensor->rank == 1 || !take(reader, ")")))
            return bad(reader, "shape is not a tuple", err);
        if (!comma)
            break;
    }
    return TAP_OK;
}

static tap_status read_order(struct reader *reader, tap_error *err)
{
    reader->fortran = take(reader, "True");
    if (!reader->fortran && !take(reader, "False"))
        return bad(reader, "fortran_order is neither True nor False", err);
    return TAP_OK;
}

static tap_status read_header(struct reader *reader, tap_tensor *tensor, tap_error *err)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    unsigned seen = 0;
    if (!take(reader, "{"))
        return bad(reader, "does not begin with {", err);
    while (!take(reader, "}")) {
        const char *key;
        size_t n = take_string(reader, &key), k = 0;
        while (k < 3 && (n != strlen(keys[k]) || memcmp(key, keys[k], n) != 0))
            k++;
        if (k == 3 || (seen & 1u << k) != 0)
            return bad(reader, "descr, fortran_order and shape are wanted, each once", err);
        seen |= 1u << k;
        if (!take(reader, ":"))
            return bad(reader, "a colon is wanted", err);
        TAP_TRY(k == 0   ? read_descr(reader, &tensor->dtype, err)
                : k == 1 ? read_order(reader, err)
                         : read_shape(reader, tensor, err));
        if (!take(reader, ",")) {
            if (!take(reader, "}"))
                return bad(reader, "a comma or } is wanted", err);
            break;
        }
    }
    skip_space(reader);
    if (seen != 7)
        return bad(reader, "descr, fortran_order and shape are wanted, each once", err);
    if (reader->end - reader->text != 1 || *reader->text != '\n')
        return bad(reader, "spaces and one line feed are wanted after }", err);
    return TAP_OK;
}

tap_status tap_npy_parse(tap_tensor *tensor, const uint8_t *data, size_t size, const char *file,
                         tap_error *err)
{
    *tensor = (tap_tensor){.name = ""};
    size_t prefix = size > 6 && data[6] == 1 ? 10 : 12, length = 0;
    if (size < prefix || memcmp(data, "\x93NUMPY", 6) != 0)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: not an NPY array, or an incomplete one", file);
    if (data[6] < 1 || data[6] > 3 || data[7] != 0)
        return tap_fail(err, TAP_ERR_UNSUPPORTED, "%s: NPY version %d.%d (1.0 to 3.0 are read)",
                        file, data[6], data[7]);
    memcpy(&length, data + 8, prefix - 8);
    if (length > MAX_HEADER)
        return tap_fail(err, TAP_ERR_LIMIT, "%s: an NPY header of %zu bytes, over %d", file, length,
                        MAX_HEADER);
    if (length > size - prefix)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: ends inside its NPY header: incomplete", file);
    const char *text = (const char *)data + prefix;
    struct reader reader = {.text = text, .end = text + length, .file = file};
    TAP_TRY(read_header(&reader, tensor, err));
    if (!tap_tensor_make_dense(tensor))
        return tap_fail(err, TAP_ERR_FORMAT, "%s: NPY shape overflows", file);
    size_t bytes = tensor->n_elements * tap_dtype_size(tensor->dtype);
    if (bytes != size - prefix - length)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: %zu bytes of NPY data where its shape takes %zu: %s", file,
                        size - prefix - length, bytes,
                        bytes > size - prefix - length ? "incomplete" : "something follows it");
    tensor->data = data + prefix + length;
    if (reader.fortran)
        tap_tensor_make_fortran(tensor);
    return TAP_OK;
}
