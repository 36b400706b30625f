/* torch.save before 1.6: five pickles one after another (a magic number, the protocol's version,
 * facts on the machine, the object, the list of its storages' keys), then for every key the count
 * of its elements in 8 bytes and the elements. */
#include "pytorch.h"

#include <stdlib.h>
#include <string.h>

struct storage {
    tap_torch_reference reference;
    const uint8_t *data; /* NULL: not met yet */
};

struct reader {
    const uint8_t *data;
    size_t size, at;
    const char *file;
    struct storage *storages; /* ordered by key */
    size_t n_storages;
};

/* The next of the five. Values point into the file. */
static tap_status next_pickle(struct reader *reader, tap_pickle *pickle, tap_error *err)
{
    size_t size = reader->size - reader->at;
    size = size < TAP_PICKLE_MAX_SIZE ? size : TAP_PICKLE_MAX_SIZE;
    TAP_TRY(tap_pickle_run(pickle, reader->data + reader->at, size, &tap_torch_policy, reader->file,
                           reader->at, err));
    reader->at += pickle->consumed;
    return TAP_OK;
}

static tap_status check_magic(struct reader *reader, tap_error *err)
{
    static const uint8_t magic[] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
    tap_pickle pickle;
    TAP_TRY(next_pickle(reader, &pickle, err));
    const tap_pickle_value *value = pickle.result;
    bool good = value->kind == TAP_PICKLE_LONG && value->text.size == sizeof magic &&
                memcmp(value->text.data, magic, sizeof magic) == 0;
    tap_pickle_free(&pickle);
    if (!good)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: a Python pickle, but not one that torch.save wrote; a safetensors or "
                        "PyTorch file is wanted",
                        reader->file);
    return TAP_OK;
}

static tap_status check_version(struct reader *reader, tap_error *err)
{
    tap_pickle pickle;
    TAP_TRY(next_pickle(reader, &pickle, err));
    bool good = pickle.result->kind == TAP_PICKLE_INT && pickle.result->integer == 1001;
    tap_pickle_free(&pickle);
    if (!good)
        return tap_fail(err, TAP_ERR_UNSUPPORTED,
                        "%s: an old PyTorch file whose version is not 1001", reader->file);
    return TAP_OK;
}

static tap_status check_machine(struct reader *reader, tap_error *err)
{
    tap_pickle pickle;
    TAP_TRY(next_pickle(reader, &pickle, err));
    const tap_pickle_value *little = pickle.result->kind == TAP_PICKLE_DICT
                                         ? tap_pickle_get(pickle.result, "little_endian")
                                         : NULL;
    bool known = little != NULL && little->kind == TAP_PICKLE_BOOL;
    bool good = known && little->truth;
    tap_pickle_free(&pickle);
    if (!known)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: an old PyTorch file without its byte order",
                        reader->file);
    if (!good)
        return tap_fail(err, TAP_ERR_UNSUPPORTED,
                        "%s: its byte order is big-endian; save it again on a little-endian "
                        "machine",
                        reader->file);
    return TAP_OK;
}

static int compare_keys(const void *a, const void *b)
{
    const tap_torch_reference *x = &((const struct storage *)a)->reference;
    const tap_torch_reference *y = &((const struct storage *)b)->reference;
    if (x->n_key != y->n_key)
        return x->n_key < y->n_key ? -1 : 1;
    return x->n_key > 0 ? memcmp(x->key, y->key, x->n_key) : 0;
}

static struct storage *find_key(const struct reader *reader, const uint8_t *key, size_t n_key)
{
    struct storage wanted = {.reference = {.key = key, .n_key = n_key}};
    if (reader->n_storages == 0)
        return NULL;
    return bsearch(&wanted, reader->storages, reader->n_storages, sizeof wanted, compare_keys);
}

/* One storage for each key that the object refers to, all references of a key being alike. */
static tap_status list_storages(struct reader *reader, const tap_pickle *object, tap_error *err)
{
    size_t n = object->n_persistents, kept = 0;
    reader->storages = calloc(n + 1, sizeof *reader->storages);
    if (reader->storages == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for its storages", reader->file);
    for (size_t i = 0; i < n; i++)
        TAP_TRY(tap_torch_read_reference(&reader->storages[i].reference, object->persistents[i],
                                         reader->file, err));
    qsort(reader->storages, n, sizeof *reader->storages, compare_keys);
    for (size_t i = 0; i < n; i++) {
        const tap_torch_reference *now = &reader->storages[i].reference;
        const tap_torch_reference *last = kept > 0 ? &reader->storages[kept - 1].reference : NULL;
        if (last == NULL || compare_keys(&reader->storages[i], &reader->storages[kept - 1]) != 0)
            reader->storages[kept++] = reader->storages[i];
        else if (now->dtype != last->dtype || now->n_elements != last->n_elements)
            return tap_fail(err, TAP_ERR_FORMAT,
                            "%s: storage %.*s is referred to with two types or sizes", reader->file,
                            now->n_key < 60 ? (int)now->n_key : 60, now->key);
    }
    reader->n_storages = kept;
    return TAP_OK;
}

static tap_status place_storage(struct reader *reader, const tap_pickle_value *key, tap_error *err)
{
    if (key->kind != TAP_PICKLE_TEXT)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: a storage's key is not a string", reader->file);
    int length = key->text.size < 60 ? (int)key->text.size : 60;
    struct storage *storage = find_key(reader, key->text.data, key->text.size);
    if (storage == NULL || storage->data != NULL)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: storage %.*s is %s", reader->file, length,
                        key->text.data, storage == NULL ? "not used by any tensor" : "there twice");
    size_t left = reader->size - reader->at;
    uint64_t count;
    if (left < sizeof count || left - sizeof count < storage->reference.n_bytes)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: ends inside storage %.*s: the download is incomplete, fetch it again",
                        reader->file, length, key->text.data);
    memcpy(&count, reader->data + reader->at, sizeof count);
    if (count != storage->reference.n_elements)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: storage %.*s: two counts of its elements disagree", reader->file,
                        length, key->text.data);
    storage->data = reader->data + reader->at + sizeof count;
    reader->at += sizeof count + storage->reference.n_bytes;
    return TAP_OK;
}

static tap_status place_storages(struct reader *reader, tap_error *err)
{
    tap_pickle keys;
    TAP_TRY(next_pickle(reader, &keys, err));
    tap_status status = TAP_OK;
    if (keys.result->kind != TAP_PICKLE_LIST)
        status = tap_fail(err, TAP_ERR_FORMAT, "%s: no list of its storages", reader->file);
    for (size_t i = 0; status == TAP_OK && i < keys.result->items.n; i++)
        status = place_storage(reader, keys.result->items.data[i], err);
    tap_pickle_free(&keys);
    if (status == TAP_OK && reader->at != reader->size)
        status = tap_fail(err, TAP_ERR_FORMAT, "%s: %zu bytes after its last storage", reader->file,
                          reader->size - reader->at);
    return status;
}

static tap_status find_storage(void *context, const tap_torch_reference *reference,
                               const uint8_t **data, tap_error *err)
{
    const struct reader *reader = context;
    const struct storage *storage = find_key(reader, reference->key, reference->n_key);
    if (storage == NULL || storage->data == NULL)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: storage %.*s is missing", reader->file,
                        reference->n_key < 60 ? (int)reference->n_key : 60, reference->key);
    *data = storage->data;
    return TAP_OK;
}

static tap_status read_object(struct reader *reader, tap_weights *weights, tap_error *err)
{
    tap_pickle object;
    TAP_TRY(next_pickle(reader, &object, err));
    tap_status status = list_storages(reader, &object, err);
    if (status == TAP_OK)
        status = place_storages(reader, err);
    if (status == TAP_OK)
        status = tap_torch_collect(weights, object.result, find_storage, reader, err);
    free(reader->storages);
    tap_pickle_free(&object);
    return status;
}

tap_status tap_pytorch_legacy_parse(tap_weights **weights, const uint8_t *data, size_t size,
                                    const char *file, tap_error *err)
{
    struct reader reader = {.data = data, .size = size, .file = file};
    *weights = NULL;
    TAP_TRY(check_magic(&reader, err));
    TAP_TRY(check_version(&reader, err));
    TAP_TRY(check_machine(&reader, err));
    tap_weights *made = NULL;
    TAP_TRY(tap_weights_create(&made, file, "pytorch legacy", err));
    tap_status status = read_object(&reader, made, err);
    if (status != TAP_OK)
        tap_weights_close(made);
    else
        *weights = made;
    return status;
}
