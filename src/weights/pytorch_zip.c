/* torch.save since 1.6: a zip of NAME/data.pkl, NAME/data/KEY for every storage, NAME/version, and
 * later NAME/byteorder. */
#include "pytorch.h"
#include "zip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct archive {
    tap_zip zip;
    const char *root; /* NAME, not terminated */
    size_t n_root;
};

static tap_zip_entry *find_member(const struct archive *archive, const char *prefix,
                                  const uint8_t *key, size_t n_key)
{
    char name[TAP_ZIP_MAX_NAME];
    size_t n_prefix = strlen(prefix), n = archive->n_root + n_prefix;
    if (n_key > sizeof name || n + n_key > sizeof name)
        return NULL;
    memcpy(name, archive->root, archive->n_root);
    memcpy(name + archive->n_root, prefix, n_prefix);
    if (n_key > 0)
        memcpy(name + n, key, n_key);
    return tap_zip_find(&archive->zip, name, n + n_key);
}

static tap_status find_storage(void *context, const tap_torch_reference *reference,
                               const uint8_t **data, tap_error *err)
{
    const struct archive *archive = context;
    int length = reference->n_key < 60 ? (int)reference->n_key : 60;
    tap_zip_entry *entry = find_member(archive, "/data/", reference->key, reference->n_key);
    if (entry == NULL)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: no zip member for storage %.*s",
                        archive->zip.file, length, reference->key);
    if (entry->size != reference->n_bytes)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: storage %.*s: its zip member has %zu bytes where %zu are wanted",
                        archive->zip.file, length, reference->key, entry->size, reference->n_bytes);
    *data = entry->data;
    return tap_zip_stored(&archive->zip, entry, err);
}

/* A zip that is not a state_dict: say what it looks like. */
static tap_status refuse_zip(const struct archive *archive, tap_error *err)
{
    const tap_zip *zip = &archive->zip;
    const tap_zip_entry *first = zip->n > 0 ? &zip->entries[0] : NULL;
    bool npy = first != NULL && first->name_length > 4 &&
               memcmp(first->name + first->name_length - 4, ".npy", 4) == 0;
    return tap_fail(err, TAP_ERR_FORMAT,
                    "%s: a zip without NAME/data.pkl, so not PyTorch's%s%s%.*s; a safetensors or "
                    "PyTorch file is wanted",
                    zip->file, npy ? " but NumPy's (.npz)" : "",
                    first != NULL ? "; it holds " : "; it is empty",
                    first != NULL ? (int)first->name_length : 0, first != NULL ? first->name : "");
}

/* The one NAME/data.pkl. */
static tap_status find_root(struct archive *archive, tap_zip_entry **pickle, tap_error *err)
{
    static const char member[] = "/data.pkl";
    size_t n_member = sizeof member - 1;
    *pickle = NULL;
    for (size_t i = 0; i < archive->zip.n; i++) {
        tap_zip_entry *entry = &archive->zip.entries[i];
        size_t n = entry->name_length;
        if (n <= n_member || memcmp(entry->name + n - n_member, member, n_member) != 0 ||
            memchr(entry->name, '/', n - n_member) != NULL)
            continue;
        if (*pickle != NULL)
            return tap_fail(err, TAP_ERR_FORMAT, "%s: a zip with two pickles, %.*s and %.*s",
                            archive->zip.file, (int)(*pickle)->name_length, (*pickle)->name, (int)n,
                            entry->name);
        *pickle = entry;
        archive->root = entry->name;
        archive->n_root = n - n_member;
    }
    if (*pickle == NULL)
        return refuse_zip(archive, err);
    if (find_member(archive, "/constants.pkl", NULL, 0) != NULL)
        return tap_fail(err, TAP_ERR_UNSUPPORTED,
                        "%s: a TorchScript program (torch.jit.save), which is not run here; in "
                        "Python, save its state_dict with torch.save",
                        archive->zip.file);
    return TAP_OK;
}

static tap_status check_byte_order(const struct archive *archive, tap_error *err)
{
    tap_zip_entry *entry = find_member(archive, "/byteorder", NULL, 0);
    if (entry == NULL)
        return TAP_OK;
    TAP_TRY(tap_zip_stored(&archive->zip, entry, err));
    if (entry->size == 6 && memcmp(entry->data, "little", 6) == 0)
        return TAP_OK;
    return tap_fail(err, TAP_ERR_UNSUPPORTED,
                    "%s: its byte order is not \"little\"; save it again on a little-endian "
                    "machine",
                    archive->zip.file);
}

static tap_status read_pickle(struct archive *archive, tap_weights *weights, const uint8_t *bytes,
                              size_t size, const tap_pickle_policy *policy, tap_error *err)
{
    tap_pickle pickle;
    const char *file = archive->zip.file;
    TAP_TRY(tap_pickle_run(&pickle, bytes, size, policy, file, 0, err));
    tap_status status =
        pickle.consumed == size
            ? tap_torch_collect(weights, pickle.result, find_storage, archive, err)
            : tap_fail(err, TAP_ERR_FORMAT, "%s: %zu bytes in data.pkl after its pickle's end",
                       file, size - pickle.consumed);
    tap_pickle_free(&pickle);
    return status;
}

static tap_status read_archive(struct archive *archive, tap_weights *weights,
                               const tap_pickle_policy *policy, tap_error *err)
{
    tap_zip_entry *entry = NULL;
    const uint8_t *bytes = NULL;
    uint8_t *memory = NULL;
    TAP_TRY(find_root(archive, &entry, err));
    TAP_TRY(check_byte_order(archive, err));
    TAP_TRY(tap_zip_load(&archive->zip, entry, &bytes, &memory, err));
    tap_status status = read_pickle(archive, weights, bytes, entry->size, policy, err);
    free(memory);
    return status;
}

tap_status tap_pytorch_zip_parse(tap_weights **weights, const uint8_t *data, size_t size,
                                 const char *file, const tap_pickle_policy *policy, tap_error *err)
{
    struct archive archive = {0};
    *weights = NULL;
    TAP_TRY(tap_zip_open(&archive.zip, data, size, file, err));
    tap_weights *made = NULL;
    tap_status status = tap_weights_create(&made, file, "pytorch zip", err);
    if (status == TAP_OK)
        status = read_archive(&archive, made, policy, err);
    tap_zip_close(&archive.zip);
    if (status != TAP_OK)
        tap_weights_close(made);
    else
        *weights = made;
    return status;
}
