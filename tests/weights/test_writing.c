/* What is written is read by NumPy and by Python's json and zipfile, and NumPy's NPY by us. */
#include "check.h"

#include "weights/weights.h"

static void fill(void *user, size_t tensor, size_t first, size_t n, float *dst)
{
    size_t *calls = user;
    if (calls != NULL)
        ++*calls;
    for (size_t i = 0; i < n; i++)
        dst[i] = (float)(first + i) + 1000 * (float)tensor;
}

static const tap_tensor_spec specs[] = {{"z\xc3\xa9", 2, {3, 20000}, false},
                                        {"a\"b", 3, {2, 1, 3}, false},
                                        {"none", 2, {4, 0}, false},
                                        {"scalar", 0, {0}, false}};

static void write_files(const char *npz, const char *safetensors)
{
    static const float xy[] = {0, 0.25f, 0.5f, 0.75f, 1, 1.25f}, scalar[] = {7}, two[] = {1, 2};
    static const uint16_t half[] = {0x3c00, 0xc000, 0x3800};
    static const char *const metadata[] = {"format", "pt", "quote\"\\", "line\nfeed"};
    const tap_npz_array arrays[] = {{"keypoints", TAP_DTYPE_F32, 2, {3, 2}, xy},
                                    {"half", TAP_DTYPE_F16, 1, {3}, half},
                                    {"scalar", TAP_DTYPE_F32, 0, {0}, scalar},
                                    {"none", TAP_DTYPE_F16, 2, {0, 256}, NULL},
                                    {"\xc3\xa9", TAP_DTYPE_F32, 8, {1, 1, 1, 1, 1, 1, 1, 2}, two}};
    uint8_t *bytes, *again;
    size_t n, m, calls = 0;
    tap_error err;
    assert_ok(tap_npz_write(&bytes, &n, arrays, 5, &err), err);
    assert_ok(tap_npz_write(&again, &m, arrays, 5, &err), err);
    assert_int_equal(n, m);
    assert_memory_equal(bytes, again, n);
    assert_ok(tap_file_write(npz, bytes, n, &err), err);
    free(bytes);
    free(again);
    assert_ok(tap_safetensors_write(safetensors, specs, 4, metadata, 4, fill, &calls, &err), err);
    assert_int_equal(calls, 4 + 1 + 1); /* 60,000 elements in pieces of 16,384 */
}

static void read_back(const char *safetensors)
{
    tap_weights *weights;
    tap_error err;
    float values[6];
    assert_ok(tap_weights_open(&weights, safetensors, &err), err);
    const tap_tensor *tensor = tap_weights_find(weights, "a\"b");
    assert_non_null(tensor);
    assert_ok(tap_tensor_to_f32(tensor, safetensors, values, &err), err);
    for (size_t i = 0; i < 6; i++)
        assert_true(values[i] == (float)(1000 + i));
    tap_weights_close(weights);
}

static void read_numpy(const char *folder, int version, const char *type, size_t rank)
{
    static const size_t shapes[4][3] = {{0}, {3}, {2, 3}, {2, 0, 5}}, counts[] = {1, 3, 6, 0};
    char path[256];
    tap_bytes bytes;
    tap_tensor tensor;
    tap_error err;
    snprintf(path, sizeof path, "%s/%d_%s_%zu.npy", folder, version, type, rank);
    assert_ok(tap_bytes_read(&bytes, path, 1 << 20, &err), err);
    assert_ok(tap_npy_parse(&tensor, bytes.data, bytes.size, path, &err), err);
    assert_int_equal(tensor.rank, rank);
    assert_int_equal(tensor.n_elements, counts[rank]);
    for (size_t d = 0; d < rank; d++)
        assert_int_equal(tensor.shape[d], shapes[rank][d]);
    for (size_t i = 0; i < tensor.n_elements; i++) {
        const uint8_t *element = tensor.data + i * tap_dtype_size(tensor.dtype);
        float value = element[0];
        if (tensor.dtype <= TAP_DTYPE_BF16) {
            tap_tensor one = {.dtype = tensor.dtype, .n_elements = 1, .data = element};
            assert_ok(tap_tensor_to_f32(&one, path, &value, &err), err);
        }
        assert_true(value == (float)(i % 2));
    }
    tap_bytes_release(&bytes);
}

static void test_against_python(void **state)
{
    (void)state;
    static const char *const types[] = {"f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "b1"};
    char folder[] = "/tmp/tap_written_XXXXXX", npz[64], safetensors[64], command[512];
    assert_non_null(mkdtemp(folder));
    snprintf(npz, sizeof npz, "%s/a.npz", folder);
    snprintf(safetensors, sizeof safetensors, "%s/a.safetensors", folder);
    write_files(npz, safetensors);
    read_back(safetensors);
    snprintf(command, sizeof command,
             "PATH=/usr/bin:$PATH python3 "
             "tests/weights/check_written.py %s %s %s",
             npz, safetensors, folder);
    int result = system(command) >> 8;
    if (result == 0)
        for (int version = 1; version <= 3; version++)
            for (size_t i = 0; i < sizeof types / sizeof *types; i++)
                for (size_t rank = 0; rank < 4; rank++)
                    read_numpy(folder, version, types[i], rank);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    if (result == 77 || result == 127) {
        printf("SKIP: no python3 with numpy to check what was written\n");
        skip();
    }
    assert_int_equal(result, 0);
}

static void test_bad_npz(void **state)
{
    (void)state;
    static const float data[] = {1};
    static const struct {
        tap_npz_array array;
        tap_status status;
        const char *words;
    } bad[] = {
        {{"a", TAP_DTYPE_F64, 0, {0}, data}, TAP_ERR_ARGUMENT, "neither F32 nor F16"},
        {{"", TAP_DTYPE_F32, 0, {0}, data}, TAP_ERR_ARGUMENT, "name is empty"},
        {{"\xff", TAP_DTYPE_F32, 0, {0}, data}, TAP_ERR_ARGUMENT, "not UTF-8"},
        {{"a", TAP_DTYPE_F32, 9, {0}, data}, TAP_ERR_ARGUMENT, "rank 9"},
        {{"a", TAP_DTYPE_F32, 2, {SIZE_MAX, 2}, data}, TAP_ERR_ARGUMENT, "overflows"},
        {{"a", TAP_DTYPE_F32, 1, {1 << 30}, data}, TAP_ERR_LIMIT, "over 4 GiB"},
    };
    uint8_t *bytes;
    size_t n;
    tap_error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_fails(tap_npz_write(&bytes, &n, &bad[i].array, 1, &err), bad[i].status, err,
                     bad[i].words);
        assert_null(bytes);
    }
    assert_fails(tap_npz_write(&bytes, &n, NULL, 1001, &err), TAP_ERR_LIMIT, err, "1001 arrays");
    assert_ok(tap_npz_write(&bytes, &n, NULL, 0, &err), err);
    assert_int_equal(n, 22);
    free(bytes);
}

static void test_bad_safetensors(void **state)
{
    (void)state;
    char long_name[300];
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    const struct {
        tap_tensor_spec spec;
        const char *words;
    } bad[] = {
        {{long_name, 0, {0}, false}, "over 256 bytes"},
        {{"\xff", 0, {0}, false}, "not UTF-8"},
        {{"a", 9, {0}, false}, "rank 9"},
        {{"a", 2, {SIZE_MAX, 2}, false}, "overflows"},
    };
    static const char *const metadata[] = {"key", "\xff"};
    static const tap_tensor_spec good = {"a", 1, {1}, false};
    static const size_t half = (size_t)1 << 60;
    const tap_tensor_spec many[] = {{"a", 1, {half}, false},
                                    {"b", 1, {half}, false},
                                    {"c", 1, {half}, false},
                                    {"d", 1, {half}, false},
                                    {"e", 1, {half}, false}};
    const char *path = "/tmp/tap_never_written";
    tap_error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(tap_safetensors_write(path, &bad[i].spec, 1, NULL, 0, fill, NULL, &err),
                     TAP_ERR_ARGUMENT, err, bad[i].words);
    assert_fails(tap_safetensors_write(path, many, 5, NULL, 0, fill, NULL, &err), TAP_ERR_ARGUMENT,
                 err, "overflow");
    assert_fails(tap_safetensors_write(path, &good, 1, metadata, 1, fill, NULL, &err),
                 TAP_ERR_ARGUMENT, err, "without a value");
    assert_fails(tap_safetensors_write(path, &good, 1, metadata, 2, fill, NULL, &err),
                 TAP_ERR_ARGUMENT, err, "metadata string 1");
    assert_fails(tap_safetensors_write(path, &good, 4097, metadata, 0, fill, NULL, &err),
                 TAP_ERR_ARGUMENT, err, "4097 tensors");
    assert_int_equal(access(path, F_OK), -1);
    assert_fails(tap_safetensors_write("/nowhere/at/all", &good, 1, NULL, 0, fill, NULL, &err),
                 TAP_ERR_NOT_FOUND, err, "/nowhere/at/all");
    /* A full disk: the old file stays, nothing is left beside it. */
    if (access("/dev/full", W_OK) == 0) {
        assert_int_not_equal(
            tap_safetensors_write("/dev/full/x", &good, 1, NULL, 0, fill, NULL, &err), TAP_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_python),
        cmocka_unit_test(test_bad_npz),
        cmocka_unit_test(test_bad_safetensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
