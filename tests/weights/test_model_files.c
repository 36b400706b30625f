/* Golden model files of every format, written by make_files.py, hold the same tensors by the same
 * rule; cut anywhere they are refused; real ones open. */
#include "check.h"

#include "weights/weights.h"

#include <math.h>

#define GOLDEN "tests/golden/weights/"

struct expected {
    const char *name;
    tap_dtype dtype;
    size_t rank, shape[4];
};

static const struct expected expected[] = {
    {"conv.weight", TAP_DTYPE_F32, 4, {4, 3, 3, 3}},
    {"conv.bias", TAP_DTYPE_F32, 1, {4}},
    {"half", TAP_DTYPE_F16, 2, {5, 2}},
    {"brain", TAP_DTYPE_BF16, 2, {3, 4}},
    {"double", TAP_DTYPE_F64, 2, {2, 2}},
    {"scalar", TAP_DTYPE_F32, 0, {0}},
    {"empty", TAP_DTYPE_F32, 2, {0, 7}},
    /* what only the PyTorch files hold */
    {"transposed", TAP_DTYPE_F32, 2, {3, 4}},
    {"low", TAP_DTYPE_F32, 1, {6}},
    {"high", TAP_DTYPE_F32, 2, {2, 3}},
};

enum { N_PLAIN = 7, N_EXPECTED = 10 };

static float value_of(const char *name, size_t i)
{
    return (float)((int)((i * 7 + strlen(name) * 5) % 64) - 32) / 8;
}

static void check_tensor(const tap_weights *weights, const struct expected *want)
{
    float values[128];
    tap_error err;
    const tap_tensor *tensor = tap_weights_find(weights, want->name);
    assert_non_null(tensor);
    assert_int_equal(tensor->dtype, want->dtype);
    assert_int_equal(tensor->rank, want->rank);
    for (size_t d = 0; d < want->rank; d++)
        assert_int_equal(tensor->shape[d], want->shape[d]);
    assert_ok(tap_tensor_to_f32(tensor, "golden", values, &err), err);
    for (size_t i = 0; i < tensor->n_elements; i++)
        assert_true(values[i] == value_of(want->name, i));
}

static void check_file(const char *path, const char *format, size_t n_tensors)
{
    tap_weights *weights;
    tap_error err;
    assert_ok(tap_weights_open(&weights, path, &err), err);
    assert_string_equal(tap_weights_file(weights), path);
    assert_string_equal(tap_weights_format(weights), format);
    assert_int_equal(tap_weights_count(weights), n_tensors);
    for (size_t i = 0; i + 1 < n_tensors; i++)
        assert_true(strcmp(tap_weights_at(weights, i)->name, tap_weights_at(weights, i + 1)->name) <
                    0);
    size_t n = n_tensors == N_PLAIN ? N_PLAIN : N_EXPECTED;
    for (size_t i = 0; i < n; i++)
        check_tensor(weights, &expected[i]);
    assert_null(tap_weights_find(weights, "conv"));
    tap_weights_close(weights);
}

static void test_safetensors(void **state)
{
    (void)state;
    check_file(GOLDEN "all.safetensors", "safetensors", N_PLAIN);
}

static void test_pytorch_zip(void **state)
{
    (void)state;
    static const char *const names[] = {"zip.pth",      "parameter.pth", "protocol1.pth",
                                        "protocol5.pt", "plain_zip.pt",  "checkpoint.ckpt",
                                        "nested.pth",   "zip64.pth",     "deflated.pth"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128];
        snprintf(path, sizeof path, GOLDEN "%s", names[i]);
        check_file(path, "pytorch zip", N_EXPECTED + 1);
    }
}

static void test_pytorch_legacy(void **state)
{
    (void)state;
    check_file(GOLDEN "legacy.pth", "pytorch legacy", N_EXPECTED + 1);
    check_file(GOLDEN "legacy_2018.pth", "pytorch legacy", N_EXPECTED + 1);
}

static void test_integers_are_refused(void **state)
{
    (void)state;
    tap_weights *weights;
    tap_error err;
    float value;
    assert_ok(tap_weights_open(&weights, GOLDEN "zip.pth", &err), err);
    const tap_tensor *counter = tap_weights_find(weights, "batches");
    assert_string_equal(tap_dtype_name(counter->dtype), "I64");
    assert_int_equal(counter->data[0], 3);
    assert_fails(tap_tensor_to_f32(counter, "zip.pth", &value, &err), TAP_ERR_UNSUPPORTED, err,
                 "zip.pth: tensor batches: I64");
    tap_weights_close(weights);
}

/* Every prefix of every golden file: a clean refusal that blames the file, on memory of exactly
 * that size, so that a sanitizer sees a byte too far. */
static void test_truncations(void **state)
{
    (void)state;
    static const char *const names[] = {"all.safetensors", "zip.pth",     "plain_zip.pt",
                                        "protocol5.pt",    "legacy.pth",  "checkpoint.ckpt",
                                        "zip64.pth",       "deflated.pth"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128];
        tap_bytes bytes;
        tap_error err;
        snprintf(path, sizeof path, GOLDEN "%s", names[i]);
        assert_ok(tap_bytes_read(&bytes, path, 1 << 20, &err), err);
        for (size_t n = 0; n < bytes.size; n++) {
            tap_weights *weights = (tap_weights *)path;
            uint8_t *cut = malloc(n > 0 ? n : 1);
            memcpy(cut, bytes.data, n);
            tap_status status = i == 0 ? tap_safetensors_parse(&weights, cut, n, "cut", &err)
                                       : tap_pytorch_parse(&weights, cut, n, "cut", &err);
            if (status != TAP_ERR_FORMAT || weights != NULL)
                fail_msg("%s cut to %zu bytes: %s %s", path, n, tap_status_name(status),
                         status != TAP_OK ? err.message : "");
            free(cut);
        }
        tap_bytes_release(&bytes);
    }
}

/* One byte changed: refused, or still within bounds (a tensor's name or value). */
static void test_flipped_bytes(void **state)
{
    (void)state;
    static const char *const names[] = {"all.safetensors", "plain_zip.pt", "legacy.pth"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128];
        tap_bytes bytes;
        tap_error err;
        snprintf(path, sizeof path, GOLDEN "%s", names[i]);
        assert_ok(tap_bytes_read(&bytes, path, 1 << 20, &err), err);
        uint8_t *copy = malloc(bytes.size);
        for (size_t at = 0; at < bytes.size; at++) {
            tap_weights *weights = NULL;
            memcpy(copy, bytes.data, bytes.size);
            copy[at] ^= (uint8_t)(1 + at % 255);
            tap_status status =
                i == 0 ? tap_safetensors_parse(&weights, copy, bytes.size, "bent", &err)
                       : tap_pytorch_parse(&weights, copy, bytes.size, "bent", &err);
            assert_int_equal(status == TAP_OK, weights != NULL);
            for (size_t t = 0; weights != NULL && t < tap_weights_count(weights); t++) {
                float values[1024];
                const tap_tensor *tensor = tap_weights_at(weights, t);
                assert_true(tensor->n_elements <= 1024);
                (void)tap_tensor_to_f32(tensor, "bent", values, &err);
            }
            tap_weights_close(weights);
        }
        free(copy);
        tap_bytes_release(&bytes);
    }
}

/* A folder: its model.safetensors before others; else the only candidate. */
static void test_folders(void **state)
{
    (void)state;
    char folder[] = "/tmp/tap_folder_XXXXXX", path[128], other[128];
    tap_bytes bytes;
    tap_weights *weights;
    tap_error err;
    assert_non_null(mkdtemp(folder));
    assert_ok(tap_bytes_read(&bytes, GOLDEN "zip.pth", 1 << 20, &err), err);
    snprintf(other, sizeof other, "%s/superpoint.ckpt", folder);
    assert_ok(tap_file_write(other, bytes.data, bytes.size, &err), err);
    tap_bytes_release(&bytes);
    assert_ok(tap_weights_open(&weights, folder, &err), err);
    assert_string_equal(tap_weights_file(weights), other);
    tap_weights_close(weights);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_ok(tap_bytes_read(&bytes, GOLDEN "all.safetensors", 1 << 20, &err), err);
    assert_ok(tap_file_write(path, bytes.data, bytes.size, &err), err);
    assert_ok(tap_weights_open(&weights, folder, &err), err);
    assert_string_equal(tap_weights_file(weights), path);
    tap_weights_close(weights);
    /* A name says nothing: content decides. */
    assert_ok(tap_file_write(other, bytes.data, bytes.size, &err), err);
    assert_ok(tap_weights_open(&weights, other, &err), err);
    assert_string_equal(tap_weights_format(weights), "safetensors");
    tap_weights_close(weights);
    assert_fails(tap_pytorch_parse(&weights, bytes.data, bytes.size, "it", &err), TAP_ERR_FORMAT,
                 err, "it: a safetensors file");
    tap_bytes_release(&bytes);
    unlink(path);
    unlink(other);
    rmdir(folder);
}

/* A file of over 64 MiB is mapped; the last value says that it is the whole one. */
static void fill_ramp(void *user, size_t tensor, size_t first, size_t n, float *dst)
{
    (void)user;
    for (size_t i = 0; i < n; i++)
        dst[i] = (float)((first + i) % 1024) + (float)tensor;
}

static void test_large_file(void **state)
{
    (void)state;
    char path[] = "/tmp/tap_large_XXXXXX";
    close(mkstemp(path));
    const tap_tensor_spec specs[] = {{"a", 2, {17, 1 << 20}, false}, {"none", 1, {0}, false}};
    tap_weights *weights;
    tap_error err;
    assert_ok(tap_safetensors_write(path, specs, 2, NULL, 0, fill_ramp, NULL, &err), err);
    assert_ok(tap_weights_open(&weights, path, &err), err);
    unlink(path);
    const tap_tensor *tensor = tap_weights_find(weights, "a");
    float *values = malloc(tensor->n_elements * sizeof *values);
    assert_ok(tap_tensor_to_f32(tensor, path, values, &err), err);
    for (size_t i = 0; i < tensor->n_elements; i++)
        if (values[i] != (float)(i % 1024))
            fail_msg("element %zu is %g", i, values[i]);
    free(values);
    tap_weights_close(weights);
}

/* Another process cuts the file short after it was opened: what was read stays. */
static void test_shrinking_file(void **state)
{
    (void)state;
    char path[] = "/tmp/tap_shrinking_XXXXXX";
    tap_bytes bytes;
    tap_weights *weights;
    tap_error err;
    close(mkstemp(path));
    assert_ok(tap_bytes_read(&bytes, GOLDEN "all.safetensors", 1 << 20, &err), err);
    assert_ok(tap_file_write(path, bytes.data, bytes.size, &err), err);
    tap_bytes_release(&bytes);
    assert_ok(tap_weights_open(&weights, path, &err), err);
    assert_int_equal(truncate(path, 0), 0);
    for (size_t i = 0; i < N_PLAIN; i++)
        check_tensor(weights, &expected[i]);
    tap_weights_close(weights);
    unlink(path);
}

static void test_real_weights(void **state)
{
    (void)state;
    char path[512], half[512];
    tap_weights *wide, *narrow;
    tap_error err;
    shared_path(path, sizeof path, "weights/superpoint");
    shared_path(half, sizeof half, "weights/superpoint/f16/model.safetensors");
    assert_ok(tap_weights_open(&wide, path, &err), err);
    assert_ok(tap_weights_open(&narrow, half, &err), err);
    assert_int_equal(tap_weights_count(wide), 24);
    size_t n = 0;
    /* The two files hold the same numbers in two types. */
    for (size_t t = 0; t < 24; t++) {
        const tap_tensor *a = tap_weights_at(wide, t), *b = tap_weights_at(narrow, t);
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->n_elements, b->n_elements);
        float *x = malloc(a->n_elements * sizeof *x), *y = malloc(b->n_elements * sizeof *y);
        assert_ok(tap_tensor_to_f32(a, path, x, &err), err);
        assert_ok(tap_tensor_to_f32(b, half, y, &err), err);
        assert_memory_equal(x, y, a->n_elements * sizeof *x);
        n += a->n_elements;
        free(x);
        free(y);
    }
    assert_int_equal(n, 1300865);
    tap_weights_close(wide);
    tap_weights_close(narrow);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safetensors),    cmocka_unit_test(test_pytorch_zip),
        cmocka_unit_test(test_pytorch_legacy), cmocka_unit_test(test_integers_are_refused),
        cmocka_unit_test(test_truncations),    cmocka_unit_test(test_flipped_bytes),
        cmocka_unit_test(test_folders),        cmocka_unit_test(test_large_file),
        cmocka_unit_test(test_shrinking_file), cmocka_unit_test(test_real_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
