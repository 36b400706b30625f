/* Dictionaries of arrays: pickles of NumPy arrays, among them MANO's, and .npz files.
 * Sources: NumPy's ndarray.__reduce__ and dtype.__reduce__; SciPy's and chumpy's __getstate__, as
 * their pickles show them. */
#include "sniff.h"
#include "table.h"
#include "unpickle.h"
#include "zip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_FILE = 16 << 20,
    MAX_BYTES = 64 << 20,
    MAX_ARRAYS = 256,
    MAX_SPARSE = 1 << 24,
    /* A pickle's values may be shared, and hold themselves: what is looked through is bounded, or a
     * file of a megabyte could ask for hours. */
    MAX_NESTED = 8,
    MAX_STATE = 64 /* attributes of an object */
};

/* Tags of the globals below. */
enum {
    INERT,
    RECONSTRUCT,
    FROMBUFFER,
    NDARRAY,
    DTYPE,
    SCALAR,
    ENCODE,
    NO_BYTES,
    CSC,
    CH,
    SELECT,
    RECONSTRUCTOR
};

static const tap_pickle_global globals[] = {
    {"numpy.core.multiarray", "_reconstruct", TAP_PICKLE_MAKES_OBJECT, RECONSTRUCT},
    {"numpy._core.multiarray", "_reconstruct", TAP_PICKLE_MAKES_OBJECT, RECONSTRUCT},
    {"numpy.core.numeric", "_frombuffer", TAP_PICKLE_MAKES_OBJECT, FROMBUFFER},
    {"numpy._core.numeric", "_frombuffer", TAP_PICKLE_MAKES_OBJECT, FROMBUFFER},
    {"numpy.core.multiarray", "scalar", TAP_PICKLE_MAKES_OBJECT, SCALAR},
    {"numpy._core.multiarray", "scalar", TAP_PICKLE_MAKES_OBJECT, SCALAR},
    {"numpy", "ndarray", TAP_PICKLE_MAKES_NOTHING, NDARRAY},
    {"numpy", "dtype", TAP_PICKLE_MAKES_OBJECT, DTYPE},
    {"_codecs", "encode", TAP_PICKLE_MAKES_OBJECT, ENCODE},
    {"__builtin__", "bytes", TAP_PICKLE_MAKES_OBJECT, NO_BYTES},
    {"scipy.sparse.csc", "csc_matrix", TAP_PICKLE_MAKES_OBJECT, CSC},
    {"scipy.sparse._csc", "csc_matrix", TAP_PICKLE_MAKES_OBJECT, CSC},
    {"chumpy.ch", "Ch", TAP_PICKLE_MAKES_OBJECT, CH},
    {"chumpy.reordering", "Select", TAP_PICKLE_MAKES_OBJECT, SELECT},
    {"copy_reg", "_reconstructor", TAP_PICKLE_MAKES_OBJECT, RECONSTRUCTOR},
    {"copyreg", "_reconstructor", TAP_PICKLE_MAKES_OBJECT, RECONSTRUCTOR},
    {"__builtin__", "object", TAP_PICKLE_MAKES_NOTHING, INERT},
    {"builtins", "object", TAP_PICKLE_MAKES_NOTHING, INERT},
    {"__builtin__", "set", TAP_PICKLE_MAKES_LIST, INERT},
    {"builtins", "set", TAP_PICKLE_MAKES_LIST, INERT},
    {"collections", "OrderedDict", TAP_PICKLE_MAKES_DICT, INERT},
};

static const tap_pickle_policy policy = {
    .globals = globals,
    .n_globals = sizeof globals / sizeof *globals,
    .keep_foreign = false,
    .advice = "if this is the right file, save its arrays with numpy.savez and give the .npz",
    .writers = "pickles of protocols 2 to 5"};

/* ---- one array ------------------------------------------------------------------------------ */

/* An array as the pickle has it. */
struct array {
    tap_tensor tensor;      /* without its data; its strides are those of bytes */
    const uint8_t *bytes;   /* of size, dense; or */
    const uint8_t *encoded; /* text of size characters below 256, which are the bytes */
    size_t n_encoded;
    size_t size;
    bool in_order; /* bytes are in C order */
};

struct reader {
    const char *file, *name; /* of the array at hand */
    tap_error *err;
};

static tap_status fail(const struct reader *reader, const char *what)
{
    return tap_fail(reader->err, TAP_ERR_FORMAT, "%s: array '%s': %s", reader->file, reader->name,
                    what);
}

/* The class of an object: its callee, or what copyreg._reconstructor was given. */
static int tag_of(const tap_pickle_value *value)
{
    if (value == NULL || value->kind != TAP_PICKLE_OBJECT)
        return INERT;
    const tap_pickle_value *class = value->object.callee;
    const tap_pickle_value *arguments = value->object.arguments;
    if (class->global.known != NULL && class->global.known->tag == RECONSTRUCTOR) {
        if (arguments->kind != TAP_PICKLE_TUPLE || arguments->items.n == 0)
            return INERT;
        class = arguments->items.data[0];
    }
    return class->kind == TAP_PICKLE_GLOBAL && class->global.known != NULL
               ? class->global.known->tag
               : INERT;
}

/* NULL where the object's state is no dictionary of a few attributes or lacks the key. */
static const tap_pickle_value *state_of(const tap_pickle_value *object, const char *key)
{
    const tap_pickle_value *state = object->object.state;
    return state != NULL && state->kind == TAP_PICKLE_DICT && state->items.n <= 2 * MAX_STATE
               ? tap_pickle_get(state, key)
               : NULL;
}

static bool to_size(const tap_pickle_value *value, size_t *size)
{
    *size = value->kind == TAP_PICKLE_INT ? (size_t)value->integer : 0;
    return value->kind == TAP_PICKLE_INT && value->integer >= 0;
}

static bool read_shape(tap_tensor *tensor, const tap_pickle_value *value)
{
    if (value == NULL || (value->kind != TAP_PICKLE_TUPLE && value->kind != TAP_PICKLE_LIST) ||
        value->items.n > TAP_TENSOR_MAX_RANK)
        return false;
    tensor->rank = value->items.n;
    for (size_t i = 0; i < tensor->rank; i++)
        if (!to_size(value->items.data[i], &tensor->shape[i]))
            return false;
    return true;
}

/* dtype('f8', 0, 1) with the state (3, '<', ...). */
static bool read_dtype(tap_dtype *dtype, const tap_pickle_value *value)
{
    static const struct {
        const char *name;
        tap_dtype dtype;
    } known[] = {{"f8", TAP_DTYPE_F64}, {"f4", TAP_DTYPE_F32}, {"f2", TAP_DTYPE_F16},
                 {"i8", TAP_DTYPE_I64}, {"i4", TAP_DTYPE_I32}, {"i2", TAP_DTYPE_I16},
                 {"i1", TAP_DTYPE_I8},  {"u8", TAP_DTYPE_U64}, {"u4", TAP_DTYPE_U32},
                 {"u2", TAP_DTYPE_U16}, {"u1", TAP_DTYPE_U8},  {"b1", TAP_DTYPE_BOOL}};
    const tap_pickle_value *state = value->object.state;
    const tap_pickle_value *arguments = value->object.arguments;
    if (arguments->kind != TAP_PICKLE_TUPLE || arguments->items.n == 0 || state == NULL ||
        state->kind != TAP_PICKLE_TUPLE || state->items.n < 2 ||
        tap_pickle_is_text(state->items.data[1], ">"))
        return false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (tap_pickle_is_text(arguments->items.data[0], known[i].name)) {
            *dtype = known[i].dtype;
            return true;
        }
    return false;
}

/* Bytes, a Python 2 string, or as Python 3 writes bytes in protocol 2: _codecs.encode(text,
 * 'latin1'), and bytes() for none. */
static bool read_bytes(struct array *array, const tap_pickle_value *value)
{
    if (value->kind == TAP_PICKLE_BYTES || value->kind == TAP_PICKLE_TEXT) {
        array->bytes = value->text.data;
        array->size = value->text.size;
        return true;
    }
    if (tag_of(value) == NO_BYTES) {
        array->bytes = (const uint8_t *)"";
        return true;
    }
    if (tag_of(value) != ENCODE || value->object.arguments->items.n < 1 ||
        value->object.arguments->items.data[0]->kind != TAP_PICKLE_TEXT)
        return false;
    const tap_pickle_value *text = value->object.arguments->items.data[0];
    array->encoded = text->text.data;
    array->n_encoded = text->text.size;
    for (size_t i = 0; i < array->n_encoded; i++)
        array->size += (array->encoded[i] & 0xc0) != 0x80;
    return true;
}

/* What an array is made from, in the pickle; NULL where it is none. */
struct parts {
    const tap_pickle_value *shape, *dtype, *order, *bytes, *axes;
};

/* _reconstruct(ndarray, (0,), 'b') with the state (1, shape, dtype, fortran, bytes); protocol 5's
 * _frombuffer(bytes, dtype, shape, 'C' or 'F'), where the array lies dense, and since NumPy 2.3
 * _frombuffer(bytes, dtype, shape, 'K', axes): in C order, then transposed. */
static struct parts find_parts(const tap_pickle_value *value)
{
    const tap_pickle_value *from = NULL;
    int tag = tag_of(value);
    if (tag == RECONSTRUCT)
        from = value->object.state;
    else if (tag == FROMBUFFER)
        from = value->object.arguments;
    size_t n = from != NULL && from->kind == TAP_PICKLE_TUPLE ? from->items.n : 0;
    if (n != 5 && (n != 4 || tag == RECONSTRUCT))
        return (struct parts){NULL, NULL, NULL, NULL, NULL};
    tap_pickle_value **items = from->items.data;
    return tag == RECONSTRUCT
               ? (struct parts){items[1], items[2], items[3], items[4], NULL}
               : (struct parts){items[2], items[1], items[3], items[0], n == 5 ? items[4] : NULL};
}

/* Turns the strides of a dense tensor into those of the array's order. */
static bool read_order(struct array *array, const struct parts *parts)
{
    tap_tensor *tensor = &array->tensor;
    const tap_tensor dense = *tensor;
    const tap_pickle_value *order = parts->order, *axes = parts->axes;
    bool flag = order->kind == TAP_PICKLE_BOOL, used[TAP_TENSOR_MAX_RANK] = {false};
    array->in_order = flag ? !order->truth : tap_pickle_is_text(order, "C");
    if (array->in_order)
        return true;
    if (flag || tap_pickle_is_text(order, "F")) {
        tap_tensor_make_fortran(tensor);
        return true;
    }
    if (!tap_pickle_is_text(order, "K") || axes == NULL || axes->kind != TAP_PICKLE_TUPLE ||
        axes->items.n != tensor->rank)
        return false;
    for (size_t i = 0; i < tensor->rank; i++) {
        size_t axis;
        if (!to_size(axes->items.data[i], &axis) || axis >= tensor->rank || used[axis])
            return false;
        used[axis] = true;
        tensor->shape[i] = dense.shape[axis];
        tensor->strides[i] = dense.strides[axis];
    }
    return true;
}

static tap_status read_array(const struct reader *reader, struct array *array,
                             const tap_pickle_value *value)
{
    *array = (struct array){.bytes = NULL};
    for (size_t depth = 0; tag_of(value) == CH; depth++) { /* a chumpy array around it */
        value = depth < MAX_NESTED ? state_of(value, "x") : NULL;
        if (value == NULL)
            return fail(reader, "a chumpy array without its values 'x', or too deep in others");
    }
    const struct parts parts = find_parts(value);
    if (parts.shape == NULL)
        return fail(reader, "is no NumPy array, or of a newer kind: save it with numpy.savez");
    if (!read_shape(&array->tensor, parts.shape))
        return fail(reader, "its shape is no tuple of up to 8 sizes");
    if (tag_of(parts.dtype) != DTYPE || !read_dtype(&array->tensor.dtype, parts.dtype))
        return fail(reader, "its type is none that is read: whole or real numbers, little-endian");
    if (!read_bytes(array, parts.bytes))
        return fail(reader, "its bytes are missing");
    if (!tap_tensor_make_dense(&array->tensor) ||
        array->tensor.n_elements * tap_dtype_size(array->tensor.dtype) != array->size)
        return fail(reader, "its bytes are not as many as its shape says");
    if (!read_order(array, &parts))
        return fail(reader, "its order is none that is known: save it with numpy.savez");
    return TAP_OK;
}

/* The array's bytes in order; those of encoded text are its characters' numbers. False where one is
 * over 255. */
static bool copy_bytes(uint8_t *to, const struct array *array)
{
    if (array->encoded == NULL) {
        memcpy(to, array->bytes, array->size);
        return true;
    }
    const uint8_t *from = array->encoded, *end = from + array->n_encoded;
    while (from < end) {
        if (*from < 0x80) {
            *to++ = *from++;
        } else if ((*from & 0xfc) == 0xc0) { /* two bytes, below 256; it is UTF-8 already */
            *to++ = (uint8_t)(*from << 6 | (from[1] & 0x3f));
            from += 2;
        } else {
            return false;
        }
    }
    return true;
}

/* ---- all of them, into one block ------------------------------------------------------------ */

struct entry {
    const tap_pickle_value *name, *value;
    struct array array; /* itself; or what a selection or a sparse matrix takes from */
    struct array indices, pointers;
    tap_tensor tensor; /* what it becomes */
    int tag;           /* RECONSTRUCT: as it is; SELECT, CSC */
    size_t size;       /* in bytes */
};

struct collection {
    struct reader reader;
    struct entry entries[MAX_ARRAYS];
    size_t n, size; /* of all arrays together, each at a multiple of TAP_ALIGN */
    size_t taken;   /* bytes of what they are made from, which they may share */
    char name[TAP_WEIGHTS_MAX_NAME];
};

/* value = a.ravel()[idxs].reshape(preferred_shape) */
static tap_status read_selection(struct collection *collection, struct entry *entry)
{
    const struct reader *reader = &collection->reader;
    const tap_pickle_value *from = state_of(entry->value, "a");
    const tap_pickle_value *indices = state_of(entry->value, "idxs");
    const tap_pickle_value *shape = state_of(entry->value, "preferred_shape");
    if (from == NULL || indices == NULL || !read_shape(&entry->tensor, shape))
        return fail(reader, "a chumpy selection without 'a', 'idxs' or 'preferred_shape'");
    TAP_TRY(read_array(reader, &entry->array, from));
    TAP_TRY(read_array(reader, &entry->indices, indices));
    entry->tensor.dtype = entry->array.tensor.dtype;
    if (!tap_tensor_make_dense(&entry->tensor) ||
        entry->tensor.n_elements != entry->indices.tensor.n_elements)
        return fail(reader, "a chumpy selection whose indices are not as many as its shape says");
    return TAP_OK;
}

static tap_status read_sparse(struct collection *collection, struct entry *entry)
{
    const struct reader *reader = &collection->reader;
    const tap_pickle_value *shape = state_of(entry->value, "_shape");
    const tap_pickle_value *data = state_of(entry->value, "data");
    const tap_pickle_value *indices = state_of(entry->value, "indices");
    const tap_pickle_value *pointers = state_of(entry->value, "indptr");
    if (shape == NULL)
        shape = state_of(entry->value, "shape");
    if (data == NULL || indices == NULL || pointers == NULL || !read_shape(&entry->tensor, shape) ||
        entry->tensor.rank != 2)
        return fail(reader, "a sparse matrix without 'data', 'indices', 'indptr' or its shape");
    TAP_TRY(read_array(reader, &entry->array, data));
    TAP_TRY(read_array(reader, &entry->indices, indices));
    TAP_TRY(read_array(reader, &entry->pointers, pointers));
    entry->tensor.dtype = entry->array.tensor.dtype;
    if (!tap_tensor_make_dense(&entry->tensor) || entry->tensor.n_elements > MAX_SPARSE ||
        entry->indices.tensor.n_elements != entry->array.tensor.n_elements ||
        entry->pointers.tensor.n_elements != entry->tensor.shape[1] + 1)
        return fail(reader, "a sparse matrix whose parts do not fit its shape");
    return TAP_OK;
}

static bool is_array(const tap_pickle_value *value)
{
    int tag = tag_of(value);
    return tag == RECONSTRUCT || tag == FROMBUFFER || tag == CH || tag == SELECT || tag == CSC;
}

static tap_status add_entry(struct collection *collection, const tap_pickle_value *name,
                            const tap_pickle_value *value)
{
    struct reader *reader = &collection->reader;
    size_t n_name = name->text.size;
    if (collection->n == MAX_ARRAYS)
        return tap_fail(reader->err, TAP_ERR_LIMIT, "%s: over %d arrays", reader->file, MAX_ARRAYS);
    if (n_name >= sizeof collection->name)
        return tap_fail(reader->err, TAP_ERR_LIMIT, "%s: an array's name of %zu bytes (at most %d)",
                        reader->file, n_name, TAP_WEIGHTS_MAX_NAME - 1);
    memcpy(collection->name, name->text.data, n_name);
    collection->name[n_name] = '\0';
    reader->name = collection->name;
    struct entry *entry = &collection->entries[collection->n++];
    *entry = (struct entry){.name = name, .value = value, .tag = tag_of(value)};
    if (entry->tag == SELECT) {
        TAP_TRY(read_selection(collection, entry));
    } else if (entry->tag == CSC) {
        TAP_TRY(read_sparse(collection, entry));
    } else {
        entry->tag = RECONSTRUCT;
        TAP_TRY(read_array(reader, &entry->array, value));
        entry->tensor = entry->array.tensor;
    }
    entry->size = entry->tensor.n_elements * tap_dtype_size(entry->tensor.dtype);
    if (!tap_size_align(entry->size, TAP_ALIGN, &entry->size) ||
        !tap_size_add(collection->size, entry->size, &collection->size) ||
        !tap_size_add(collection->taken, entry->array.size, &collection->taken) ||
        !tap_size_add(collection->taken, entry->indices.size, &collection->taken) ||
        !tap_size_add(collection->taken, entry->pointers.size, &collection->taken) ||
        collection->size > MAX_BYTES || collection->taken > MAX_BYTES)
        return tap_fail(reader->err, TAP_ERR_LIMIT, "%s: its arrays are over %d MiB", reader->file,
                        MAX_BYTES >> 20);
    return TAP_OK;
}

/* Index i among bytes that lie in order; -1 for one that no array is long enough for. */
static int64_t whole_at(const uint8_t *bytes, tap_dtype dtype, size_t i)
{
    int64_t wide;
    int32_t narrow;
    if (tap_dtype_size(dtype) == sizeof wide)
        memcpy(&wide, bytes + i * sizeof wide, sizeof wide);
    else {
        memcpy(&narrow, bytes + i * sizeof narrow, sizeof narrow);
        wide = narrow;
    }
    return wide < 0 ? -1 : wide;
}

static bool is_whole(const struct array *array)
{
    tap_dtype dtype = array->tensor.dtype;
    return dtype == TAP_DTYPE_I64 || dtype == TAP_DTYPE_I32 || dtype == TAP_DTYPE_U64 ||
           dtype == TAP_DTYPE_U32;
}

/* The place of element i, counted in C order, among the bytes of an array in any order. */
static size_t place_of(const struct array *array, size_t i)
{
    const tap_tensor *tensor = &array->tensor;
    size_t place = 0;
    if (array->in_order)
        return i;
    for (size_t d = tensor->rank; d-- > 0; i /= tensor->shape[d])
        place += i % tensor->shape[d] * tensor->strides[d];
    return place;
}

/* Copies of what a selection or a sparse matrix takes from, in order. */
struct sources {
    uint8_t *values, *indices, *pointers;
};

static tap_status fill_selection(const struct reader *reader, uint8_t *to,
                                 const struct entry *entry, const struct sources *sources)
{
    size_t width = tap_dtype_size(entry->tensor.dtype), n = entry->array.tensor.n_elements;
    if (!is_whole(&entry->indices))
        return fail(reader, "a chumpy selection whose indices are no whole numbers");
    for (size_t i = 0; i < entry->tensor.n_elements; i++) {
        int64_t index =
            whole_at(sources->indices, entry->indices.tensor.dtype, place_of(&entry->indices, i));
        if (index < 0 || (uint64_t)index >= n)
            return fail(reader, "a chumpy selection with an index outside of what it selects from");
        memcpy(to + i * width, sources->values + place_of(&entry->array, (size_t)index) * width,
               width);
    }
    return TAP_OK;
}

/* Column j's entries are data[indptr[j]] to data[indptr[j + 1] - 1], in the rows of indices. */
static tap_status fill_sparse(const struct reader *reader, uint8_t *to, const struct entry *entry,
                              const struct sources *sources)
{
    size_t width = tap_dtype_size(entry->tensor.dtype), columns = entry->tensor.shape[1];
    size_t n = entry->array.tensor.n_elements;
    int64_t before = 0;
    if (!is_whole(&entry->indices) || !is_whole(&entry->pointers))
        return fail(reader, "a sparse matrix whose indices are no whole numbers");
    memset(to, 0, entry->tensor.n_elements * width);
    for (size_t column = 0; column <= columns; column++) {
        int64_t end = whole_at(sources->pointers, entry->pointers.tensor.dtype, column);
        if (end < before || (uint64_t)end > n || (column == 0 && end != 0))
            return fail(reader, "a sparse matrix whose 'indptr' does not ascend from 0");
        for (int64_t i = before; i < end; i++) {
            int64_t row = whole_at(sources->indices, entry->indices.tensor.dtype, (size_t)i);
            if (row < 0 || (uint64_t)row >= entry->tensor.shape[0])
                return fail(reader, "a sparse matrix with a row outside of its shape");
            memcpy(to + ((size_t)row * columns + column - 1) * width,
                   sources->values + (size_t)i * width, width);
        }
        before = end;
    }
    return TAP_OK;
}

static tap_status copy_source(const struct reader *reader, uint8_t **to, const struct array *array)
{
    *to = malloc(array->size + 1);
    if (*to == NULL)
        return tap_fail(reader->err, TAP_ERR_MEMORY, "%s: out of memory", reader->file);
    return copy_bytes(*to, array) ? TAP_OK : fail(reader, "its bytes hold a character over 255");
}

static tap_status fill_entry(const struct reader *reader, uint8_t *to, const struct entry *entry)
{
    if (entry->tag == RECONSTRUCT)
        return copy_bytes(to, &entry->array) ? TAP_OK
                                             : fail(reader, "its bytes hold a character over 255");
    struct sources sources = {NULL, NULL, NULL};
    tap_status status = copy_source(reader, &sources.values, &entry->array);
    if (status == TAP_OK)
        status = copy_source(reader, &sources.indices, &entry->indices);
    if (status == TAP_OK && entry->tag == CSC)
        status = copy_source(reader, &sources.pointers, &entry->pointers);
    if (status == TAP_OK)
        status = entry->tag == CSC ? fill_sparse(reader, to, entry, &sources)
                                   : fill_selection(reader, to, entry, &sources);
    free(sources.values);
    free(sources.indices);
    free(sources.pointers);
    return status;
}

static tap_status build(tap_weights **weights, struct collection *collection)
{
    struct reader *reader = &collection->reader;
    uint8_t *block = malloc(collection->size + 1);
    if (block == NULL)
        return tap_fail(reader->err, TAP_ERR_MEMORY, "%s: out of memory for %zu bytes of arrays",
                        reader->file, collection->size);
    tap_status status = tap_weights_create(weights, reader->file, "pickle", reader->err);
    if (status != TAP_OK) {
        free(block);
        return status;
    }
    const tap_bytes bytes = {.data = block, .size = collection->size};
    tap_weights_keep(*weights, &bytes);
    uint8_t *to = block;
    for (size_t i = 0; status == TAP_OK && i < collection->n; i++) {
        struct entry *entry = &collection->entries[i];
        memcpy(collection->name, entry->name->text.data, entry->name->text.size);
        collection->name[entry->name->text.size] = '\0';
        status = fill_entry(reader, to, entry);
        entry->tensor.data = to;
        if (status == TAP_OK)
            status = tap_weights_add(*weights, &entry->tensor, (const char *)entry->name->text.data,
                                     entry->name->text.size, reader->err);
        to += entry->size;
    }
    if (status == TAP_OK)
        status = tap_weights_finish(*weights, reader->err);
    if (status != TAP_OK) {
        tap_weights_close(*weights);
        *weights = NULL;
    }
    return status;
}

static tap_status parse_pickle(tap_weights **weights, const uint8_t *data, size_t size,
                               const char *file, tap_error *err)
{
    tap_pickle pickle;
    struct collection *collection = calloc(1, sizeof *collection);
    if (collection == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", file);
    collection->reader = (struct reader){.file = file, .err = err};
    tap_status status = tap_pickle_run(&pickle, data, size, &policy, file, 0, err);
    if (status != TAP_OK) {
        free(collection);
        return status;
    }
    const tap_pickle_value *dict = pickle.result;
    if (dict->kind != TAP_PICKLE_DICT)
        status = tap_fail(err, TAP_ERR_FORMAT, "%s: its pickle is no dictionary of arrays", file);
    for (size_t i = 0; status == TAP_OK && i + 1 < dict->items.n; i += 2)
        if (dict->items.data[i]->kind == TAP_PICKLE_TEXT && is_array(dict->items.data[i + 1]))
            status = add_entry(collection, dict->items.data[i], dict->items.data[i + 1]);
    if (status == TAP_OK)
        status = build(weights, collection);
    tap_pickle_free(&pickle);
    free(collection);
    return status;
}

/* ---- .npz ----------------------------------------------------------------------------------- */

/* A member's bytes go to the end of the block, with the tensor pointing to where they will be. */
static tap_status add_member(tap_weights *weights, uint8_t *block, size_t *used, const tap_zip *zip,
                             tap_zip_entry *member, tap_error *err)
{
    static const char suffix[] = ".npy";
    const uint8_t *bytes;
    uint8_t *memory;
    tap_tensor tensor;
    size_t n_suffix = sizeof suffix - 1;
    if (member->name_length <= n_suffix ||
        memcmp(member->name + member->name_length - n_suffix, suffix, n_suffix) != 0)
        return TAP_OK;
    TAP_TRY(tap_zip_load(zip, member, &bytes, &memory, err));
    memcpy(block + *used, bytes, member->size);
    free(memory);
    char name[TAP_WEIGHTS_MAX_NAME + 64];
    snprintf(name, sizeof name, "%.60s: %.*s", zip->file,
             member->name_length < 200 ? (int)member->name_length : 200, member->name);
    TAP_TRY(tap_npy_parse(&tensor, block + *used, member->size, name, err));
    *used += member->size;
    return tap_weights_add(weights, &tensor, member->name, member->name_length - n_suffix, err);
}

static tap_status parse_npz(tap_weights **weights, const uint8_t *data, size_t size,
                            const char *file, tap_error *err)
{
    tap_zip zip;
    size_t total = 0, used = 0;
    TAP_TRY(tap_zip_open(&zip, data, size, file, err));
    tap_status status = tap_weights_create(weights, file, "npz", err);
    for (size_t i = 0; status == TAP_OK && i < zip.n; i++)
        if (!tap_size_add(total, zip.entries[i].size, &total) || total > MAX_BYTES)
            status = tap_fail(err, TAP_ERR_LIMIT, "%s: its arrays are over %d MiB", file,
                              MAX_BYTES >> 20);
    uint8_t *block = status == TAP_OK ? malloc(total + 1) : NULL;
    if (status == TAP_OK && block == NULL)
        status = tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for %zu bytes", file, total);
    if (status == TAP_OK) {
        const tap_bytes bytes = {.data = block, .size = total};
        tap_weights_keep(*weights, &bytes);
    }
    for (size_t i = 0; status == TAP_OK && i < zip.n; i++)
        status = add_member(*weights, block, &used, &zip, &zip.entries[i], err);
    if (status == TAP_OK)
        status = tap_weights_finish(*weights, err);
    tap_zip_close(&zip);
    if (status != TAP_OK) {
        tap_weights_close(*weights);
        *weights = NULL;
    }
    return status;
}

/* ---- files ---------------------------------------------------------------------------------- */

tap_status tap_arrays_parse(tap_weights **weights, const uint8_t *data, size_t size,
                            const char *file, tap_error *err)
{
    tap_format format;
    *weights = NULL;
    TAP_TRY(tap_format_sniff(&format, data, size, "a pickle of NumPy arrays or a .npz", file, err));
    if (format == TAP_FORMAT_ZIP)
        return parse_npz(weights, data, size, file, err);
    if (format == TAP_FORMAT_PICKLE)
        return parse_pickle(weights, data, size, file, err);
    return tap_fail(err, TAP_ERR_FORMAT, "%s: is neither a pickle of arrays nor a .npz", file);
}

tap_status tap_weights_open_arrays(tap_weights **weights, const char *path, tap_error *err)
{
    tap_bytes bytes;
    *weights = NULL;
    TAP_TRY(tap_bytes_read(&bytes, path, MAX_FILE, err));
    tap_status status = tap_arrays_parse(weights, bytes.data, bytes.size, path, err);
    tap_bytes_release(&bytes);
    return status;
}
