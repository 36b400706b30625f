/* The table of named tensors that every reader fills. Private to weights. */
#ifndef TAP_WEIGHTS_TABLE_H
#define TAP_WEIGHTS_TABLE_H

#include "weights.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "model files are little-endian and read in place"
#endif
_Static_assert(sizeof(size_t) == sizeof(uint64_t), "sizes in model files have 64 bits");

enum {
    TAP_WEIGHTS_MAX_TENSORS = 4096,
    TAP_WEIGHTS_MAX_NAME = 256 /* bytes */
};

/* An empty table; format is static. */
tap_status tap_weights_create(tap_weights **weights, const char *file, const char *format,
                              tap_error *err);

/* Adds a tensor; its name is copied and need not be terminated. Errors: the limits above, a NUL in
 * the name, memory. */
tap_status tap_weights_add(tap_weights *weights, const tap_tensor *tensor, const char *name,
                           size_t name_length, tap_error *err);

/* Sorts by name; a name that is there twice is TAP_ERR_FORMAT. */
tap_status tap_weights_finish(tap_weights *weights, tap_error *err);

/* The table owns the file's bytes from now on. */
void tap_weights_keep(tap_weights *weights, const tap_bytes *bytes);

/* Fills n_elements and dense strides from shape; false if the product or the size in bytes
 * overflows. */
bool tap_tensor_make_dense(tap_tensor *tensor);

/* Turns a dense tensor's strides into those of Fortran order, the first dimension fastest. */
void tap_tensor_make_fortran(tap_tensor *tensor);

#endif
