/* What the two PyTorch formats share: which globals their pickles may name, and how tensors are
 * found in the result. Private to weights. */
#ifndef TAP_WEIGHTS_PYTORCH_H
#define TAP_WEIGHTS_PYTORCH_H

#include "table.h"
#include "unpickle.h"

extern const tap_pickle_policy tap_torch_policy;
/* The same, and other Python objects as inert marks. */
extern const tap_pickle_policy tap_torch_checkpoint_policy;

/* A storage as a pickle refers to it. */
typedef struct tap_torch_reference {
    const uint8_t *key; /* in the pickle */
    size_t n_key;
    tap_dtype dtype;
    size_t n_elements;
    size_t n_bytes;
} tap_torch_reference;

/* ("storage", class, key, location, count[, view]) of a persistent reference. */
tap_status tap_torch_read_reference(tap_torch_reference *reference, const tap_pickle_value *value,
                                    const char *file, tap_error *err);

/* *data: the reference's n_bytes bytes. */
typedef tap_status (*tap_torch_find)(void *context, const tap_torch_reference *reference,
                                     const uint8_t **data, tap_error *err);

/* Adds every tensor of the dictionary at root, or of the one under its key "state_dict",
 * "model_state_dict" or "model", or of the only one under any other key; then sorts them. */
tap_status tap_torch_collect(tap_weights *weights, const tap_pickle_value *root,
                             tap_torch_find find, void *context, tap_error *err);

/* The two formats, told apart by their first bytes. */
tap_status tap_pytorch_zip_parse(tap_weights **weights, const uint8_t *data, size_t size,
                                 const char *file, const tap_pickle_policy *policy, tap_error *err);
tap_status tap_pytorch_legacy_parse(tap_weights **weights, const uint8_t *data, size_t size,
                                    const char *file, tap_error *err);

#endif
