/* Dictionaries of arrays: files that NumPy itself writes, and pickles written by hand that no
 * program writes. */
#include "check.h"

#include "weights/weights.h"

/* Opcodes of one array of protocol 2: NumPy's own spelling. */
#define ARRAY_OF(shape, dtype, bytes)                                                          \
    "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\1b\x87R(K\1" shape        \
    "cnumpy\ndtype\nU\2" dtype "K\0K\1\x87R(K\3U\1<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb" \
    "\x89" bytes "tb"
#define EIGHT_BYTES "U\x08\0\0\x80\x3f\0\0\0\x40"
#define PAIR        ARRAY_OF("K\2\x85", "f4", EIGHT_BYTES)
/* An object of a class, and its attributes to come. */
#define BEGIN(class) "c" class "\n)\x81}("
#define END          "ub"

#define PARSE(weights, text, err) \
    tap_arrays_parse(weights, (const uint8_t *)(text), sizeof(text) - 1, "a.pkl", err)

static void a_chumpy_array_is_its_values(void **state)
{
    (void)state;
    tap_weights *weights;
    tap_error err;
    float values[2];
    assert_ok(PARSE(&weights,
                    "\x80\2}(U\1a" BEGIN("chumpy.ch\nCh") "U\1x" BEGIN(
                        "chumpy.ch\nCh") "U\1x" PAIR END END "u.",
                    &err),
              err);
    assert_int_equal(tap_weights_count(weights), 1);
    const tap_tensor *tensor = tap_weights_find(weights, "a");
    assert_non_null(tensor);
    assert_ok(tap_tensor_to_f32(tensor, "a.pkl", values, &err), err);
    assert_true(values[0] == 1 && values[1] == 2);
    tap_weights_close(weights);
}

/* As NumPy 2.3 and later write what is neither in C's nor in Fortran's order. */
static void a_turned_array_is_turned_back(void **state)
{
    (void)state;
#define TURNED(axes)                                                                          \
    "\x80\5}(\x8c\1acnumpy._core.numeric\n_frombuffer\n(C\6\0\1\2\3\4\5cnumpy\ndtype\n"       \
    "\x8c\2u1\x89\x88\x87R(K\3\x8c\1|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tbK\1K\2K\3\x87" \
    "\x8c\1K" axes "tRu."
    tap_weights *weights;
    tap_error err;
    assert_ok(PARSE(&weights, TURNED("K\2K\0K\1\x87"), &err), err);
    const tap_tensor *tensor = tap_weights_find(weights, "a");
    static const size_t shape[] = {3, 1, 2};
    assert_memory_equal(tensor->shape, shape, sizeof shape);
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 2; k++)
            assert_int_equal(tensor->data[i * tensor->strides[0] + k * tensor->strides[2]],
                             3 * k + i);
    tap_weights_close(weights);
    static const char wrong[] = "its order is none that is known: save it with numpy.savez";
    assert_fails(PARSE(&weights, TURNED("K\2K\0K\0\x87"), &err), TAP_ERR_FORMAT, err, wrong);
    assert_fails(PARSE(&weights, TURNED("K\3K\0K\1\x87"), &err), TAP_ERR_FORMAT, err, wrong);
    assert_fails(PARSE(&weights, TURNED("K\1K\0\x86"), &err), TAP_ERR_FORMAT, err, wrong);
    assert_fails(PARSE(&weights, TURNED("N"), &err), TAP_ERR_FORMAT, err, wrong);
}

/* It would be followed for ever. */
static void a_chumpy_array_that_holds_itself_is_refused(void **state)
{
    (void)state;
    tap_weights *weights;
    tap_error err;
    assert_fails(PARSE(&weights, "\x80\2}(U\1acchumpy.ch\nCh\n)\x81q\0}(U\1xh\0ubu.", &err),
                 TAP_ERR_FORMAT, err, "array 'a': a chumpy array without its values 'x'");
    assert_null(weights);
}

static void put(char *text, size_t *n, const void *bytes, size_t size)
{
    memcpy(text + *n, bytes, size);
    *n += size;
}

/* 200 arrays, each of which takes from one of a million bytes and from a dictionary of 200,000
 * attributes: in a file of 16 MiB, half a minute. */
static void shared_values_are_not_looked_through_for_ever(void **state)
{
    (void)state;
    enum { BIG = 1000000, ATTRIBUTES = 200000, ARRAYS = 200 };
    static const char array[] = "\x80\2cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0"
                                "\x85U\1b\x87R(K\1J\x40\x42\x0f\0\x85"
                                "cnumpy\ndtype\nU\2u1K\0K\1\x87R(K\3U\1<NNNJ\xff\xff\xff\xff"
                                "J\xff\xff\xff\xffK\0tb\x89T\x40\x42\x0f\0";
    static const char none[] = "tbq\0" ARRAY_OF("K\0\x85", "i8", "U\0") "q\1";
    static const char attributes[] = "K\0\x85q\2}(U\1ah\0U\4idxsh\1U\x0fpreferred_shapeh\2";
    static const char select[] = "cchumpy.reordering\nSelect\n)\x81h\3b";
    static char text[BIG + 4 * ATTRIBUTES + 64 * ARRAYS + 1000];
    for (size_t crowded = 0; crowded < 2; crowded++) {
        size_t n = 0;
        tap_weights *weights;
        tap_error err;
        put(text, &n, array, sizeof array - 1);
        n += BIG;
        put(text, &n, none, sizeof none - 1);
        put(text, &n, attributes, sizeof attributes - 1);
        for (size_t i = 0; crowded && i < ATTRIBUTES; i++)
            put(text, &n, "h\0h\0", 4);
        put(text, &n,
            "uq\3"
            "0000}(",
            9);
        for (size_t i = 0; i < ARRAYS; i++) {
            char name[] = "U\003"
                          "000";
            snprintf(name + 2, 4, "%03zu", i);
            put(text, &n, name, 5);
            put(text, &n, select, sizeof select - 1);
        }
        put(text, &n, "u.", 2);
        assert_fails(tap_arrays_parse(&weights, (const uint8_t *)text, n, "a.pkl", &err),
                     crowded ? TAP_ERR_FORMAT : TAP_ERR_LIMIT, err,
                     crowded ? "'preferred_shape'" : "over 64 MiB");
    }
}

static void another_file_is_named(void **state)
{
    (void)state;
    tap_weights *weights;
    tap_error err;
    assert_fails(PARSE(&weights, "<html><head><title>Sign in</title>", &err), TAP_ERR_FORMAT, err,
                 "HTML or XML page");
    assert_fails(PARSE(&weights, "\x89PNG\r\n\x1a\n........", &err), TAP_ERR_FORMAT, err,
                 "this is a PNG picture; a pickle of NumPy arrays or a .npz is wanted");
    assert_fails(PARSE(&weights, "(dp0\nS'f'\np1\nI1\ns.", &err), TAP_ERR_FORMAT, err,
                 "a pickle of protocol 0; save it again with pickle.dump(object, file, 2)");
    assert_fails(PARSE(&weights, "}q\0X\1\0\0\0fq\1K\1s.", &err), TAP_ERR_FORMAT, err,
                 "a pickle of protocol 1; save it again");
    assert_fails(PARSE(&weights, "\x80\2]q\0.", &err), TAP_ERR_FORMAT, err,
                 "no dictionary of arrays");
    assert_fails(PARSE(&weights, "........{}", &err), TAP_ERR_FORMAT, err,
                 "neither a pickle of arrays nor a .npz");
}

/* ---- NumPy's own -------------------------------------------------------------------------- */

static double number_at(const tap_tensor *tensor, size_t place)
{
    const uint8_t *at = tensor->data + place * tap_dtype_size(tensor->dtype);
    int64_t whole = 0;
    double real;
    if (tensor->dtype == TAP_DTYPE_F64) {
        memcpy(&real, at, sizeof real);
        return real;
    }
    memcpy(&whole, at, tap_dtype_size(tensor->dtype)); /* at most 24 */
    return (double)whole;
}

/* Element i is i. */
static void check_array(const tap_tensor *tensor, const char *file)
{
    float values[24];
    tap_error err;
    assert_true(tensor->n_elements <= 24);
    if (tensor->dtype <= TAP_DTYPE_BF16)
        assert_ok(tap_tensor_to_f32(tensor, file, values, &err), err);
    for (size_t i = 0; i < tensor->n_elements; i++) {
        size_t place = 0, rest = i;
        for (size_t d = tensor->rank; d-- > 0; rest /= tensor->shape[d])
            place += rest % tensor->shape[d] * tensor->strides[d];
        double value =
            tensor->dtype <= TAP_DTYPE_BF16 ? (double)values[i] : number_at(tensor, place);
        if (value != (double)i)
            fail_msg("%s: %s: element %zu is %g", file, tensor->name, i, value);
    }
}

static void check_numpy_file(const char *folder, const char *name)
{
    char path[64];
    tap_weights *weights;
    tap_error err;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (access(path, R_OK) != 0)
        return; /* an old Python has no protocol 5 */
    assert_ok(tap_weights_open_arrays(&weights, path, &err), err);
    assert_int_equal(tap_weights_count(weights), 11 * 5 * 4);
    for (size_t i = 0; i < tap_weights_count(weights); i++)
        check_array(tap_weights_at(weights, i), name);
    tap_weights_close(weights);
}

static void what_numpy_writes_is_read(void **state)
{
    (void)state;
    static const char *const files[] = {"2.pkl", "3.pkl",      "4.pkl",
                                        "5.pkl", "stored.npz", "compressed.npz"};
    char folder[] = "/tmp/tap_arrays_XXXXXX", command[128];
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "PATH=/usr/bin:$PATH python3 tests/weights/make_arrays.py %s",
             folder);
    int result = system(command) >> 8;
    for (size_t i = 0; result == 0 && i < sizeof files / sizeof *files; i++)
        check_numpy_file(folder, files[i]);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    if (result == 77 || result == 127) {
        printf("SKIP: no python3 with numpy to write arrays\n");
        skip();
    }
    assert_int_equal(result, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chumpy_array_is_its_values),
        cmocka_unit_test(a_turned_array_is_turned_back),
        cmocka_unit_test(a_chumpy_array_that_holds_itself_is_refused),
        cmocka_unit_test(shared_values_are_not_looked_through_for_ever),
        cmocka_unit_test(another_file_is_named),
        cmocka_unit_test(what_numpy_writes_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
