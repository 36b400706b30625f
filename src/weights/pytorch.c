#include "pytorch.h"

#include "sniff.h"

#include <string.h>

/* Tags of the globals below; storage classes have STORAGE + their dtype. */
enum { INERT, REBUILD, REBUILD_V2, PARAMETER, SIZE, STORAGE };

/* All that a state_dict needs. */
static const tap_pickle_global globals[] = {
    {"collections", "OrderedDict", TAP_PICKLE_MAKES_DICT, INERT},
    {"builtins", "dict", TAP_PICKLE_MAKES_DICT, INERT},
    {"__builtin__", "dict", TAP_PICKLE_MAKES_DICT, INERT},
    {"builtins", "set", TAP_PICKLE_MAKES_LIST, INERT},
    {"__builtin__", "set", TAP_PICKLE_MAKES_LIST, INERT},
    {"torch._utils", "_rebuild_tensor_v2", TAP_PICKLE_MAKES_OBJECT, REBUILD_V2},
    {"torch._utils", "_rebuild_tensor", TAP_PICKLE_MAKES_OBJECT, REBUILD},
    {"torch._utils", "_rebuild_parameter", TAP_PICKLE_MAKES_OBJECT, PARAMETER},
    {"torch._utils", "_rebuild_parameter_with_state", TAP_PICKLE_MAKES_OBJECT, PARAMETER},
    {"torch", "Size", TAP_PICKLE_MAKES_OBJECT, SIZE},
    {"torch", "device", TAP_PICKLE_MAKES_OBJECT, INERT},
    {"_codecs", "encode", TAP_PICKLE_MAKES_OBJECT, INERT},
    {"torch", "DoubleStorage", TAP_PICKLE_MAKES_NOTHING, STORAGE + TAP_DTYPE_F64},
    {"torch", "FloatStorage", TAP_PICKLE_MAKES_NOTHING, STORAGE + TAP_DTYPE_F32},
    {"torch", "HalfStorage", TAP_PICKLE_MAKES_NOTHING, STORAGE + TAP_DTYPE_F16},
    {"torch", "BFloat16Storage", TAP_PICKLE_MAKES_NOTHING, STORAGE + TAP_DTYPE_BF16},
    {"torch", "LongStorage", TAP_PICKLE_MAKES_NOTHING, STORAGE + TAP_DTYPE_I64},
    {"torch", "IntStorage", TAP_PICKLE_MAKES_NOTHING, STORAGE + TAP_DTYPE_I32},
    {"torch", "ShortStorage", TAP_PICKLE_MAKES_NOTHING, STORAGE + TAP_DTYPE_I16},
    {"torch", "CharStorage", TAP_PICKLE_MAKES_NOTHING, STORAGE + TAP_DTYPE_I8},
    {"torch", "ByteStorage", TAP_PICKLE_MAKES_NOTHING, STORAGE + TAP_DTYPE_U8},
    {"torch", "BoolStorage", TAP_PICKLE_MAKES_NOTHING, STORAGE + TAP_DTYPE_BOOL},
};

const tap_pickle_policy tap_torch_policy = {
    .globals = globals,
    .n_globals = sizeof globals / sizeof *globals,
    .keep_foreign = false,
    .advice = "in Python, save the state_dict alone: torch.save(model.state_dict(), file)",
    .writers = "torch.save's pickles"};
const tap_pickle_policy tap_torch_checkpoint_policy = {
    .globals = globals,
    .n_globals = sizeof globals / sizeof *globals,
    .keep_foreign = true,
    .advice = "in Python, save the state_dict alone: torch.save(model.state_dict(), file)",
    .writers = "torch.save's pickles"};

/* A whole number that is a size, an offset, a stride. */
static bool to_size(const tap_pickle_value *value, size_t *size)
{
    *size = value->kind == TAP_PICKLE_INT ? (size_t)value->integer : 0;
    return value->kind == TAP_PICKLE_INT && value->integer >= 0;
}

tap_status tap_torch_read_reference(tap_torch_reference *reference, const tap_pickle_value *value,
                                    const char *file, tap_error *err)
{
    const tap_pickle_value *id = value->object.arguments;
    *reference = (tap_torch_reference){0};
    if (id->kind == TAP_PICKLE_TUPLE && id->items.n > 0 &&
        tap_pickle_is_text(id->items.data[0], "module"))
        return tap_fail(err, TAP_ERR_UNSUPPORTED,
                        "%s: holds a whole module with its Python source; in Python, save "
                        "torch.save(model.state_dict(), file)",
                        file);
    if (id->kind != TAP_PICKLE_TUPLE || id->items.n < 5 || id->items.n > 6 ||
        !tap_pickle_is_text(id->items.data[0], "storage"))
        return tap_fail(err, TAP_ERR_FORMAT, "%s: pickle: a reference that is not to a storage",
                        file);
    tap_pickle_value **items = id->items.data;
    if (items[1]->kind != TAP_PICKLE_GLOBAL || items[1]->global.known == NULL ||
        items[1]->global.known->tag < STORAGE || items[2]->kind != TAP_PICKLE_TEXT)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: pickle: a storage without a class that is known here, or a key", file);
    reference->key = items[2]->text.data;
    reference->n_key = items[2]->text.size;
    reference->dtype = (tap_dtype)(items[1]->global.known->tag - STORAGE);
    if (!to_size(items[4], &reference->n_elements) ||
        !tap_size_mul(reference->n_elements, tap_dtype_size(reference->dtype), &reference->n_bytes))
        return tap_fail(err, TAP_ERR_FORMAT, "%s: storage %.*s: its size is negative or overflows",
                        file, reference->n_key < 60 ? (int)reference->n_key : 60, reference->key);
    if (id->items.n == 6 && items[5]->kind != TAP_PICKLE_NONE)
        return tap_fail(err, TAP_ERR_UNSUPPORTED,
                        "%s: storage %.*s is a view of another, which is not read here; load and "
                        "save it again with a newer PyTorch",
                        file, reference->n_key < 60 ? (int)reference->n_key : 60, reference->key);
    return TAP_OK;
}

static int tag_of(const tap_pickle_value *value)
{
    if (value->kind != TAP_PICKLE_OBJECT || value->object.callee->global.known == NULL)
        return INERT;
    return value->object.callee->global.known->tag;
}

/* The call that rebuilds a tensor, out of the parameter around it if need be; else NULL. */
static const tap_pickle_value *as_tensor(const tap_pickle_value *value)
{
    if (tag_of(value) == PARAMETER && value->object.arguments->items.n > 0)
        value = value->object.arguments->items.data[0];
    int tag = tag_of(value);
    return tag == REBUILD || tag == REBUILD_V2 ? value : NULL;
}

/* (3, 4), [3, 4] or torch.Size((3, 4)). */
static bool read_sizes(const tap_pickle_value *value, size_t *sizes, size_t *n)
{
    if (tag_of(value) == SIZE && value->object.arguments->items.n == 1)
        value = value->object.arguments->items.data[0];
    if ((value->kind != TAP_PICKLE_TUPLE && value->kind != TAP_PICKLE_LIST) ||
        value->items.n > TAP_TENSOR_MAX_RANK)
        return false;
    *n = value->items.n;
    for (size_t i = 0; i < *n; i++)
        if (!to_size(value->items.data[i], &sizes[i]))
            return false;
    return true;
}

/* Whether every element of the tensor, from offset on, lies in a storage of n elements, and none
 * is there more than once. Sets n_elements. */
static bool fits(tap_tensor *tensor, size_t offset, size_t n)
{
    size_t last = offset;
    tensor->n_elements = 1;
    for (size_t d = 0; d < tensor->rank; d++)
        if (!tap_size_mul(tensor->n_elements, tensor->shape[d], &tensor->n_elements))
            return false;
    if (tensor->n_elements == 0)
        return offset <= n;
    for (size_t d = 0; d < tensor->rank; d++) {
        size_t reach;
        if (!tap_size_mul(tensor->shape[d] - 1, tensor->strides[d], &reach) ||
            !tap_size_add(last, reach, &last))
            return false;
    }
    return last < n && tensor->n_elements <= n;
}

struct collector {
    tap_weights *weights;
    const char *file;
    tap_torch_find find;
    void *context;
};

/* _rebuild_tensor_v2(storage, offset, size, stride, ...) or its older form of four arguments. */
static tap_status add_tensor(const struct collector *collector, const tap_pickle_value *key,
                             const tap_pickle_value *rebuild, tap_error *err)
{
    const tap_pickle_value *arguments = rebuild->object.arguments;
    tap_pickle_value **items = arguments->items.data;
    tap_torch_reference reference;
    tap_tensor tensor = {0};
    size_t offset = 0, n_strides = 0;
    const uint8_t *data = NULL;
    const char *name = (const char *)key->text.data;
    int length = key->text.size < 200 ? (int)key->text.size : 200;
    if (arguments->items.n < 4 || items[0]->kind != TAP_PICKLE_PERSISTENT ||
        !to_size(items[1], &offset) || !read_sizes(items[2], tensor.shape, &tensor.rank) ||
        !read_sizes(items[3], tensor.strides, &n_strides) || n_strides != tensor.rank)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: tensor %.*s: its storage, offset, shape (rank up to 8) or strides are "
                        "missing or negative",
                        collector->file, length, name);
    TAP_TRY(tap_torch_read_reference(&reference, items[0], collector->file, err));
    if (!fits(&tensor, offset, reference.n_elements))
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: tensor %.*s: offset, shape and strides reach outside of its storage "
                        "of %zu elements, or read some twice",
                        collector->file, length, name, reference.n_elements);
    TAP_TRY(collector->find(collector->context, &reference, &data, err));
    tensor.dtype = reference.dtype;
    tensor.data = data + offset * tap_dtype_size(tensor.dtype);
    return tap_weights_add(collector->weights, &tensor, name, key->text.size, err);
}

/* Dictionaries may be shared, so looking into each one is bounded, or a file of a megabyte could
 * ask for 10^11 looks. */
enum { MAX_CHILDREN = 1024, MAX_LOOKS = 2 * TAP_WEIGHTS_MAX_TENSORS };

static bool holds_tensors(const tap_pickle_value *value)
{
    if (value->kind != TAP_PICKLE_DICT)
        return false;
    for (size_t i = 0; i + 1 < value->items.n && i < MAX_LOOKS; i += 2)
        if (as_tensor(value->items.data[i + 1]) != NULL)
            return true;
    return false;
}

static tap_status find_only_child(const tap_pickle_value **dict, const tap_pickle_value *root,
                                  const char *file, tap_error *err)
{
    const tap_pickle_value *found[2] = {NULL, NULL};
    *dict = NULL;
    for (size_t i = 0; i + 1 < root->items.n && i < MAX_CHILDREN; i += 2) {
        if (!holds_tensors(root->items.data[i + 1]))
            continue;
        if (*dict != NULL) {
            found[1] = root->items.data[i];
            break;
        }
        found[0] = root->items.data[i];
        *dict = root->items.data[i + 1];
    }
    if (found[1] != NULL)
        return tap_fail(err, TAP_ERR_UNSUPPORTED,
                        "%s: several dictionaries of tensors and none is called state_dict or "
                        "model; save the one that is wanted alone",
                        file);
    if (*dict == NULL)
        return tap_fail(err, TAP_ERR_UNSUPPORTED, "%s: a PyTorch file without a tensor", file);
    return TAP_OK;
}

static tap_status find_state_dict(const tap_pickle_value **dict, const tap_pickle_value *root,
                                  const char *file, tap_error *err)
{
    static const char *const keys[] = {"state_dict", "model_state_dict", "model"};
    *dict = root;
    if (as_tensor(root) != NULL)
        return tap_fail(err, TAP_ERR_UNSUPPORTED,
                        "%s: a single tensor where a dictionary of them (a state_dict) is wanted",
                        file);
    if (root->kind != TAP_PICKLE_DICT)
        return tap_fail(err, TAP_ERR_UNSUPPORTED, "%s: not a dictionary of tensors (a state_dict)",
                        file);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const tap_pickle_value *child = tap_pickle_get(root, keys[i]);
        if (child != NULL && holds_tensors(child)) {
            *dict = child;
            return TAP_OK;
        }
    }
    return holds_tensors(root) ? TAP_OK : find_only_child(dict, root, file, err);
}

tap_status tap_torch_collect(tap_weights *weights, const tap_pickle_value *root,
                             tap_torch_find find, void *context, tap_error *err)
{
    struct collector collector = {weights, tap_weights_file(weights), find, context};
    const tap_pickle_value *dict = NULL;
    TAP_TRY(find_state_dict(&dict, root, collector.file, err));
    for (size_t i = 0; i + 1 < dict->items.n; i += 2) {
        const tap_pickle_value *key = dict->items.data[i];
        const tap_pickle_value *tensor = as_tensor(dict->items.data[i + 1]);
        if (tensor == NULL)
            continue;
        if (key->kind != TAP_PICKLE_TEXT)
            return tap_fail(err, TAP_ERR_FORMAT, "%s: a tensor whose name is not a string",
                            collector.file);
        TAP_TRY(add_tensor(&collector, key, tensor, err));
    }
    return tap_weights_finish(weights, err);
}

tap_status tap_pytorch_parse(tap_weights **weights, const uint8_t *data, size_t size,
                             const char *file, tap_error *err)
{
    tap_format format;
    *weights = NULL;
    TAP_TRY(tap_format_sniff(&format, data, size, TAP_WEIGHTS_WANTED, file, err));
    if (format == TAP_FORMAT_SAFETENSORS)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: a safetensors file where PyTorch's is wanted",
                        file);
    return format == TAP_FORMAT_ZIP
               ? tap_pytorch_zip_parse(weights, data, size, file, &tap_torch_policy, err)
               : tap_pytorch_legacy_parse(weights, data, size, file, err);
}
