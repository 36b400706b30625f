/* Reference data for the tests of this room: NumPy files, JSON, random numbers. The readers are the
 * tests' own, so that the programs under test are not judged by their own parsers. They trust the
 * files and fail the test on anything else. */
#ifndef TAP_TESTS_MODELS_ARRAYS_H
#define TAP_TESTS_MODELS_ARRAYS_H

#include "check.h"

#include <json-c/json.h>
#include <stdbool.h>

#define GOLDEN "tests/golden/superpoint/"

/* Any dtype used here, as float32 in C order. */
struct array {
    size_t rank, shape[4], n;
    float *values;
};

struct array load_npy(const char *path);
/* A member of a zip file, stored or deflated; name is without ".npy". */
struct array load_npz(const char *path, const char *name);
void free_array(struct array *array);

/* The parsed file; released with json_object_put. */
json_object *load_json(const char *path);
/* object[key], which must be there. */
json_object *json_at(json_object *object, const char *key);
double json_number(json_object *object, const char *key);

/* The file's bytes from malloc. */
unsigned char *load_bytes(const char *path, size_t *size);

/* SHA-256 of n bytes as 64 hexadecimal digits. */
void sha256_hex(char hex[65], const void *data, size_t n);

/* Uniform in [0, 1), from the state. */
float random_unit(uint64_t *state);

#endif
