/* weights: model files as named read-only tensors. safetensors; PyTorch checkpoints, zip and the
 * legacy format, through an unpickler that knows only what tensors need and never runs anything;
 * NPY and NPZ; config.json. Knows no model's tensor names. */
#ifndef TAP_WEIGHTS_H
#define TAP_WEIGHTS_H

#include "core/core.h"

/* ---- tensors ----------------------------------------------------------------------------- */

typedef enum tap_dtype {
    TAP_DTYPE_F64,
    TAP_DTYPE_F32,
    TAP_DTYPE_F16,
    TAP_DTYPE_BF16,
    TAP_DTYPE_I64,
    TAP_DTYPE_I32,
    TAP_DTYPE_I16,
    TAP_DTYPE_I8,
    TAP_DTYPE_U8,
    TAP_DTYPE_U16,
    TAP_DTYPE_U32,
    TAP_DTYPE_U64,
    TAP_DTYPE_BOOL
} tap_dtype;

enum { TAP_TENSOR_MAX_RANK = 8 };

size_t tap_dtype_size(tap_dtype dtype);
const char *tap_dtype_name(tap_dtype dtype); /* "F32", as safetensors writes it */

/* Borrowed from the tap_weights that holds it. data is little-endian and may be unaligned. */
typedef struct tap_tensor {
    const char *name;
    tap_dtype dtype;
    size_t rank;
    size_t shape[TAP_TENSOR_MAX_RANK];
    size_t strides[TAP_TENSOR_MAX_RANK]; /* in elements; dense C order unless PyTorch says else */
    size_t n_elements;
    const uint8_t *data;
} tap_tensor;

/* dst[n_elements] in C order. Floating types only (TAP_ERR_UNSUPPORTED names the tensor); a NaN or
 * infinity is TAP_ERR_FORMAT with the tensor's name and the element's index. file is for messages.
 */
tap_status tap_tensor_to_f32(const tap_tensor *tensor, const char *file, float *dst,
                             tap_error *err);

/* ---- model files ------------------------------------------------------------------------- */

typedef struct tap_weights tap_weights;

/* Opens a folder (model.safetensors in it, else its only *.safetensors, else its only *.pth, *.pt,
 * *.ckpt or *.bin), a .safetensors file, or a PyTorch file of either format; the content decides,
 * not the name. In a checkpoint, tensors are looked for under "state_dict", "model_state_dict" and
 * "model", then at the top, then in the only dictionary that has any. Nothing is executed. A file
 * of up to 64 MiB is read whole; a larger one is mapped, and must not be cut short while in use.
 * Errors  TAP_ERR_NOT_FOUND, TAP_ERR_IO, TAP_ERR_ARGUMENT (a pipe; a folder of several),
 *         TAP_ERR_FORMAT (what it is instead, or what is damaged), TAP_ERR_UNSUPPORTED (a Python
 *         object, by name; another dtype), TAP_ERR_LIMIT (4,096 tensors, names of 256 bytes, a
 *         header of 4 MiB, a pickle of 16 MiB, a file of 16 GiB), TAP_ERR_MEMORY. */
tap_status tap_weights_open(tap_weights **weights, const char *path, tap_error *err);
/* The same for a file that a training program wrote: in a PyTorch zip, Python objects beside the
 * tensors are stepped over as inert marks instead of being refused. Nothing is executed either. */
tap_status tap_weights_open_checkpoint(tap_weights **weights, const char *path, tap_error *err);
void tap_weights_close(tap_weights *weights); /* NULL is fine */

/* Lets go of the memory that a mapped file's pages take: they are read again where they are needed.
 * For a file whose tensors have been packed and will hardly be looked at again. */
void tap_weights_rest(const tap_weights *weights);

/* Bytes of the file. */
size_t tap_weights_bytes(const tap_weights *weights);

/* Opens a dictionary of arrays: a pickle of NumPy arrays as Python 2 and 3 write them (protocols 2
 * to 5), or a .npz. Of other objects two are known, for MANO's files have them: chumpy's arrays and
 * their selections, scipy's sparse matrices in columns, which become dense. All data are copied;
 * arrays in Fortran order keep it, by their strides. What is neither array nor known is passed over
 * where it holds no Python object, else refused by name; nothing is executed.
 * Errors  as above; TAP_ERR_LIMIT (a file of 16 MiB, arrays of 64 MiB). */
tap_status tap_weights_open_arrays(tap_weights **weights, const char *path, tap_error *err);

const char *tap_weights_file(const tap_weights *weights);   /* the file that was read */
const char *tap_weights_format(const tap_weights *weights); /* "safetensors", "pytorch zip", ... */
size_t tap_weights_count(const tap_weights *weights);
const tap_tensor *tap_weights_at(const tap_weights *weights, size_t i); /* ordered by name */
const tap_tensor *tap_weights_find(const tap_weights *weights, const char *name); /* or NULL */

/* Readers on memory, which must outlive the result. file is for messages. */
tap_status tap_safetensors_parse(tap_weights **weights, const uint8_t *data, size_t size,
                                 const char *file, tap_error *err);
tap_status tap_pytorch_parse(tap_weights **weights, const uint8_t *data, size_t size,
                             const char *file, tap_error *err);
tap_status tap_arrays_parse(tap_weights **weights, const uint8_t *data, size_t size,
                            const char *file, tap_error *err);

/* ---- writing safetensors ----------------------------------------------------------------- */

/* Fills dst with the n elements of one tensor, or of a part of it that begins at element first. */
typedef void (*tap_tensor_fill)(void *user, size_t tensor, size_t first, size_t n, float *dst);

typedef struct tap_tensor_spec {
    const char *name;
    size_t rank;
    size_t shape[TAP_TENSOR_MAX_RANK];
    bool half; /* written as float16, rounded to nearest even; else as float32 */
} tap_tensor_spec;

/* Writes tensors in the given order, in pieces, so that memory stays small however large
 * the file; atomic (tap_writer). metadata: pairs key, value, key, value, ..., n_metadata strings.
 */
tap_status tap_safetensors_write(const char *path, const tap_tensor_spec *tensors, size_t n_tensors,
                                 const char *const *metadata, size_t n_metadata,
                                 tap_tensor_fill fill, void *user, tap_error *err);

/* ---- config.json ------------------------------------------------------------------------- */

/* One flat JSON object, strictly read (duplicate keys, depth over 16, over 1 MiB: refused). Nested
 * values other than lists of whole numbers are checked and skipped. */
typedef struct tap_config tap_config;

tap_status tap_config_open(tap_config **config, const char *path, tap_error *err);
tap_status tap_config_parse(tap_config **config, const uint8_t *text, size_t size, const char *file,
                            tap_error *err);
void tap_config_free(tap_config *config);
bool tap_config_has(const tap_config *config, const char *key);
/* NULL where the key is missing or not a string. */
const char *tap_config_string(const tap_config *config, const char *key);
/* false where the key is missing or not a number. */
bool tap_config_number(const tap_config *config, const char *key, double *value);
/* How many whole numbers a list has (up to capacity are stored); 0 where missing or another type.
 */
size_t tap_config_sizes(const tap_config *config, const char *key, size_t *values, size_t capacity);

/* ---- NPY and NPZ ------------------------------------------------------------------------- */

/* One .npy array in memory, versions 1 to 3, little-endian; else a named error. Fortran order shows
 * in its strides. */
tap_status tap_npy_parse(tap_tensor *tensor, const uint8_t *data, size_t size, const char *file,
                         tap_error *err);

/* Numbers of a file as float32 in C order, from malloc: a .npy array; one by name of a .npz or of a
 * pickle of arrays; JSON: nested lists of one shape, name being the key, where the top is an
 * object, or a whole number, where it is a list of several such. name may be NULL: the only one, or
 * the first. *array has the shape and no data. Errors  as tap_weights_open_arrays;
 * TAP_ERR_NOT_FOUND (no such name: those there are named); TAP_ERR_FORMAT (ragged lists, a number
 * that is not finite); TAP_ERR_LIMIT (256 MiB). */
tap_status tap_array_open(float **values, tap_tensor *array, const char *path, const char *name,
                          tap_error *err);

/* One array for tap_npz_write: dtype F32 or F16, data dense in C order. */
typedef struct tap_npz_array {
    const char *name; /* member NAME.npy */
    tap_dtype dtype;
    size_t rank;
    size_t shape[TAP_TENSOR_MAX_RANK];
    const void *data;
} tap_npz_array;

/* A zip of stored .npy members (version 1.0, data aligned to 64 bytes in the member) that
 * numpy.load reads. *bytes is released with free(). Sizes over 4 GiB are TAP_ERR_LIMIT. */
tap_status tap_npz_write(uint8_t **bytes, size_t *n_bytes, const tap_npz_array *arrays,
                         size_t n_arrays, tap_error *err);

#endif
