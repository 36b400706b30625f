/* Every allocation of every reader and writer fails once: TAP_ERR_MEMORY, and nothing leaks. The
 * linker sends the room's allocations here (--wrap). */
#include "check.h"

#include "weights/weights.h"

#define GOLDEN "tests/golden/weights/"

static size_t allowed = SIZE_MAX; /* allocations until one fails */

static bool refused(void)
{
    if (allowed == SIZE_MAX)
        return false;
    if (allowed == 0)
        return true;
    allowed--;
    return false;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t n);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t n);

void *__wrap_malloc(size_t size)
{
    return refused() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return refused() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    return refused() ? NULL : __real_realloc(memory, size);
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
    return refused() ? NULL : __real_aligned_alloc(align, size);
}

char *__wrap_strdup(const char *text)
{
    return refused() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t n)
{
    return refused() ? NULL : __real_strndup(text, n);
}

static tap_status open_weights(const char *path, tap_error *err)
{
    tap_weights *weights = NULL;
    tap_status status = tap_weights_open(&weights, path, err);
    assert_int_equal(status == TAP_OK, weights != NULL);
    tap_weights_close(weights);
    return status;
}

static tap_status open_arrays(const char *path, tap_error *err)
{
    tap_weights *weights = NULL;
    tap_status status = tap_weights_open_arrays(&weights, path, err);
    assert_int_equal(status == TAP_OK, weights != NULL);
    tap_weights_close(weights);
    return status;
}

static tap_status parse_config(const char *text, tap_error *err)
{
    tap_config *config = NULL;
    tap_status status =
        tap_config_parse(&config, (const uint8_t *)text, strlen(text), "config", err);
    assert_int_equal(status == TAP_OK, config != NULL);
    tap_config_free(config);
    return status;
}

static tap_status write_npz(const char *name, tap_error *err)
{
    static const float data[] = {1, 2};
    const tap_npz_array array = {name, TAP_DTYPE_F32, 1, {2}, data};
    uint8_t *bytes = NULL;
    size_t n;
    tap_status status = tap_npz_write(&bytes, &n, &array, 1, err);
    free(bytes);
    return status;
}

static void fill(void *user, size_t tensor, size_t first, size_t n, float *dst)
{
    (void)user, (void)tensor, (void)first;
    memset(dst, 0, n * sizeof *dst);
}

static tap_status write_safetensors(const char *path, tap_error *err)
{
    static const tap_tensor_spec spec = {"a", 1, {2}, false};
    tap_status status = tap_safetensors_write(path, &spec, 1, NULL, 0, fill, NULL, err);
    unlink(path);
    return status;
}

static void fail_each(tap_status (*call)(const char *argument, tap_error *err),
                      const char *argument)
{
    tap_error err;
    for (size_t k = 0;; k++) {
        err.status = TAP_OK;
        allowed = k;
        tap_status status = call(argument, &err);
        bool reached = allowed == 0;
        allowed = SIZE_MAX;
        if (status == TAP_OK) {
            assert_true(k > 0);
            return;
        }
        assert_true(reached);
        if (status != TAP_ERR_MEMORY || err.status != TAP_ERR_MEMORY)
            fail_msg("%s, allocation %zu: %s \"%s\"", argument, k, tap_status_name(status),
                     err.message);
    }
}

static void test_each_allocation(void **state)
{
    (void)state;
    static const char *const files[] = {"all.safetensors", "zip.pth", "checkpoint.ckpt",
                                        "legacy.pth"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[128];
        snprintf(path, sizeof path, GOLDEN "%s", files[i]);
        fail_each(open_weights, path);
    }
    fail_each(open_arrays, "fuzz/corpus/arrays/protocol2"); /* chumpy's and SciPy's objects, too */
    fail_each(open_arrays, "fuzz/corpus/arrays/compressed");
    fail_each(parse_config, "{\"a\":\"b\",\"c\":[1,2],\"d\":{\"e\":1}}");
    fail_each(write_npz, "a");
    fail_each(write_safetensors, "/tmp/tap_weights_memory.safetensors");
}

static void test_folder(void **state)
{
    (void)state;
    char folder[] = "/tmp/tap_memory_XXXXXX", path[64];
    tap_bytes bytes;
    tap_error err;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/only.pth", folder);
    assert_ok(tap_bytes_read(&bytes, GOLDEN "zip.pth", 1 << 20, &err), err);
    assert_ok(tap_file_write(path, bytes.data, bytes.size, &err), err);
    tap_bytes_release(&bytes);
    fail_each(open_weights, folder);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_allocation),
        cmocka_unit_test(test_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
