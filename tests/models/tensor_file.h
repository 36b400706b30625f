/* A small SuperPoint as a safetensors file in memory, to be spoilt by the tests. */
#ifndef TAP_TESTS_MODELS_TENSOR_FILE_H
#define TAP_TESTS_MODELS_TENSOR_FILE_H

#include "models/arrays.h"

#include "models/models.h"

enum { FILE_TENSORS = 24, FILE_CAPACITY = 32, FILE_DESCRIPTOR_DIM = 20 };

struct file_tensor {
    char name[160];
    const char *dtype; /* "F32", "F16", "BF16"; any other is filled with zeros */
    size_t rank, shape[4];
    size_t place; /* what the values depend on: the tensor's number in the table */
    float sign;
};

/* The names' schemes. */
enum naming { NAMED_BY_HUGGING_FACE, NAMED_BY_MAGIC_LEAP, NAMED_LONG_AGO };

struct tensor_file {
    struct file_tensor tensors[FILE_CAPACITY];
    size_t n;
    unsigned char *bytes; /* of the last open */
    tap_weights *weights;
};

/* Widths 4, 4, 8, 8, heads of 12, descriptors of FILE_DESCRIPTOR_DIM, values that halves hold. */
void file_init(struct tensor_file *file, enum naming naming, const char *prefix);
struct file_tensor *file_find(struct tensor_file *file, const char *name);
void file_remove(struct tensor_file *file, const char *name);
struct file_tensor *file_add(struct tensor_file *file, const char *name);
/* Sets the value of one element, of F32 tensors, in the bytes of an opened file. */
void file_poke(struct tensor_file *file, const char *name, size_t i, float value);
/* Builds the bytes and parses them as "model.safetensors". */
const tap_weights *file_open(struct tensor_file *file);
void file_close(struct tensor_file *file);

#endif
