#include "models/arrays.h"

#include <openssl/evp.h>
#include <zlib.h>

#include "core/core.h"

unsigned char *load_bytes(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail_msg("%s: cannot be opened", path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(*size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    bytes[*size] = 0;
    fclose(file);
    return bytes;
}

static uint32_t little(const unsigned char *bytes, size_t n)
{
    uint32_t value = 0;
    for (size_t i = 0; i < n; i++)
        value |= (uint32_t)bytes[i] << 8 * i;
    return value;
}

static float element(const unsigned char *data, const char *dtype, size_t i)
{
    float value;
    if (strcmp(dtype, "<f4") == 0) {
        memcpy(&value, data + 4 * i, 4);
        return value;
    }
    if (strcmp(dtype, "<f2") == 0)
        return tap_f16_to_f32((uint16_t)little(data + 2 * i, 2));
    if (strcmp(dtype, "|u1") == 0)
        return data[i];
    fail_msg("dtype %s is not read here", dtype);
    return 0;
}

static void read_shape(struct array *array, const char *header)
{
    const char *at = strstr(header, "'shape': (");
    assert_non_null(at);
    at += strlen("'shape': (");
    array->n = 1;
    while (*at != ')') {
        char *end;
        assert_true(array->rank < 4);
        array->shape[array->rank] = strtoul(at, &end, 10);
        assert_true(end != at);
        array->n *= array->shape[array->rank++];
        at = end + strspn(end, ", ");
    }
}

static struct array parse_npy(const unsigned char *bytes, size_t size)
{
    struct array array = {0};
    char dtype[4] = "", header[512] = "";
    assert_true(size > 10 && memcmp(bytes, "\x93NUMPY\x01", 7) == 0);
    size_t header_size = little(bytes + 8, 2);
    assert_true(header_size < sizeof header && 10 + header_size <= size);
    memcpy(header, bytes + 10, header_size);
    const char *descr = strstr(header, "'descr': '");
    assert_non_null(descr);
    memcpy(dtype, descr + strlen("'descr': '"), 3);
    read_shape(&array, header);
    bool fortran = strstr(header, "'fortran_order': True") != NULL;
    array.values = malloc((array.n + 1) * sizeof(float));
    assert_non_null(array.values);
    const unsigned char *data = bytes + 10 + header_size;
    for (size_t i = 0; i < array.n; i++)
        if (fortran && array.rank == 2) {
            size_t rows = array.shape[0], columns = array.shape[1];
            array.values[i] = element(data, dtype, i % columns * rows + i / columns);
        } else {
            assert_false(fortran);
            array.values[i] = element(data, dtype, i);
        }
    return array;
}

struct array load_npy(const char *path)
{
    size_t size;
    unsigned char *bytes = load_bytes(path, &size);
    struct array array = parse_npy(bytes, size);
    free(bytes);
    return array;
}

/* The member's header in the central directory. */
static const unsigned char *find_member(const unsigned char *zip, size_t size, const char *name)
{
    size_t end = size - 22;
    while (memcmp(zip + end, "PK\5\6", 4) != 0)
        assert_true(end-- > 0);
    const unsigned char *entry = zip + little(zip + end + 16, 4);
    for (uint32_t i = 0; i < little(zip + end + 10, 2); i++) {
        size_t length = little(entry + 28, 2);
        if (length == strlen(name) + 4 && memcmp(entry + 46, name, length - 4) == 0)
            return entry;
        entry += 46 + length + little(entry + 30, 2) + little(entry + 32, 2);
    }
    fail_msg("no member %s", name);
    return NULL;
}

struct array load_npz(const char *path, const char *name)
{
    size_t size;
    unsigned char *zip = load_bytes(path, &size);
    const unsigned char *entry = find_member(zip, size, name);
    const unsigned char *local = zip + little(entry + 42, 4);
    const unsigned char *data = local + 30 + little(local + 26, 2) + little(local + 28, 2);
    uint32_t packed = little(entry + 20, 4), n = little(entry + 24, 4);
    unsigned char *bytes = malloc(n);
    assert_non_null(bytes);
    if (little(entry + 10, 2) == 0) {
        memcpy(bytes, data, n);
    } else {
        z_stream stream = {.next_in = (unsigned char *)data,
                           .avail_in = packed,
                           .next_out = bytes,
                           .avail_out = n};
        assert_int_equal(inflateInit2(&stream, -15), Z_OK);
        assert_int_equal(inflate(&stream, Z_FINISH), Z_STREAM_END);
        inflateEnd(&stream);
    }
    struct array array = parse_npy(bytes, n);
    free(bytes);
    free(zip);
    return array;
}

void free_array(struct array *array)
{
    free(array->values);
    array->values = NULL;
}

json_object *load_json(const char *path)
{
    json_object *object = json_object_from_file(path);
    if (object == NULL)
        fail_msg("%s: %s", path, json_util_get_last_err());
    return object;
}

json_object *json_at(json_object *object, const char *key)
{
    json_object *value;
    if (!json_object_object_get_ex(object, key, &value))
        fail_msg("no key %s", key);
    return value;
}

double json_number(json_object *object, const char *key)
{
    return json_object_get_double(json_at(object, key));
}

void sha256_hex(char hex[65], const void *data, size_t n)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length;
    assert_int_equal(EVP_Digest(data, n, digest, &length, EVP_sha256(), NULL), 1);
    for (size_t i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

float random_unit(uint64_t *state)
{
    return (float)(tap_splitmix64(0x5eed, ++*state) >> 40) / (float)(1 << 24);
}
