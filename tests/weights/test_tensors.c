/* Widening, strides, and NPY. */
#include "check.h"

#include "weights/weights.h"

#include <math.h>

static tap_tensor dense(tap_dtype dtype, size_t n, const void *data)
{
    return (tap_tensor){.name = "t",
                        .dtype = dtype,
                        .rank = 1,
                        .shape = {n},
                        .strides = {1},
                        .n_elements = n,
                        .data = data};
}

static void test_widening(void **state)
{
    (void)state;
    float values[4];
    tap_error err;
    static const uint16_t half[] = {0x3c00, 0xc000, 0x0001, 0x7bff};
    tap_tensor tensor = dense(TAP_DTYPE_F16, 4, half);
    assert_ok(tap_tensor_to_f32(&tensor, "f", values, &err), err);
    assert_true(values[0] == 1 && values[1] == -2 && values[2] == 0x1p-24f && values[3] == 65504);
    static const uint16_t brain[] = {0x3f80, 0xc040, 0x0001, 0x7f7f};
    tensor = dense(TAP_DTYPE_BF16, 4, brain);
    assert_ok(tap_tensor_to_f32(&tensor, "f", values, &err), err);
    assert_true(values[0] == 1 && values[1] == -3 && values[2] == 0x1p-133f &&
                values[3] == 0x1.fep127f);
    static const double wide[] = {1.5, 0.1, -1e300, 0};
    tensor = dense(TAP_DTYPE_F64, 2, wide);
    assert_ok(tap_tensor_to_f32(&tensor, "f", values, &err), err);
    assert_true(values[0] == 1.5f && values[1] == 0.1f);
    tensor = dense(TAP_DTYPE_F64, 3, wide); /* over a float's range */
    assert_fails(tap_tensor_to_f32(&tensor, "f", values, &err), TAP_ERR_FORMAT, err,
                 "f: tensor t: element 2 is infinite");
    static const float bad[] = {1, NAN};
    tensor = dense(TAP_DTYPE_F32, 2, bad);
    assert_fails(tap_tensor_to_f32(&tensor, "f", values, &err), TAP_ERR_FORMAT, err,
                 "f: tensor t: element 1 is NaN");
    for (int d = TAP_DTYPE_I64; d <= TAP_DTYPE_BOOL; d++) {
        tensor = dense((tap_dtype)d, 0, bad);
        assert_fails(tap_tensor_to_f32(&tensor, "f", values, &err), TAP_ERR_UNSUPPORTED, err,
                     tap_dtype_name((tap_dtype)d));
    }
}

/* Every order of three dimensions, in three types, against the formula of strides. */
static void test_strides(void **state)
{
    (void)state;
    static const size_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                        {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    float source[64], values[64];
    uint16_t half[64];
    double wide[64];
    tap_error err;
    for (size_t i = 0; i < 64; i++) {
        source[i] = (float)i;
        wide[i] = (double)i;
        half[i] = tap_f32_to_f16((float)i);
    }
    const struct {
        tap_dtype dtype;
        const void *data;
    } types[] = {{TAP_DTYPE_F32, source}, {TAP_DTYPE_F64, wide}, {TAP_DTYPE_F16, half}};
    for (size_t k = 0; k < 18; k++) {
        const size_t *order = orders[k / 3];
        tap_tensor tensor = {.name = "t",
                             .dtype = types[k % 3].dtype,
                             .rank = 3,
                             .shape = {2, 3, 4},
                             .n_elements = 24,
                             .data = types[k % 3].data};
        size_t stride = 2; /* a gap after every element */
        for (size_t d = 3; d-- > 0; stride *= tensor.shape[order[d]])
            tensor.strides[order[d]] = stride;
        assert_ok(tap_tensor_to_f32(&tensor, "f", values, &err), err);
        for (size_t i = 0; i < 24; i++) {
            size_t at = i / 12 * tensor.strides[0] + i / 4 % 3 * tensor.strides[1] +
                        i % 4 * tensor.strides[2];
            assert_true(values[i] == (float)at);
        }
    }
}

/* An NPY file of that header, version and data size, in memory of exactly its size. */
static tap_status parse_npy(tap_tensor *tensor, const char *header, unsigned version, size_t n_data,
                            tap_error *err)
{
    size_t prefix = version == 1 ? 10 : 12, n = strlen(header), size = prefix + n + n_data;
    uint8_t *bytes = calloc(size, 1);
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = (uint8_t)version;
    bytes[8] = (uint8_t)n;
    bytes[9] = (uint8_t)(n >> 8);
    memcpy(bytes + prefix, header, n);
    tap_status status = tap_npy_parse(tensor, bytes, size, "x.npy", err);
    free(bytes);
    return status;
}

#define HEADER(descr, order, shape) \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }  \n"

static void test_npy(void **state)
{
    (void)state;
    tap_tensor tensor;
    tap_error err;
    for (unsigned version = 1; version <= 3; version++) {
        assert_ok(parse_npy(&tensor, HEADER("'<f4'", "False", "(2, 3)"), version, 24, &err), err);
        assert_int_equal(tensor.dtype, TAP_DTYPE_F32);
        assert_int_equal(tensor.rank, 2);
        assert_int_equal(tensor.shape[1], 3);
        assert_int_equal(tensor.n_elements, 6);
        assert_int_equal(tensor.strides[0], 3);
    }
    assert_ok(parse_npy(&tensor, HEADER("'<u4'", "True", "(2, 3)"), 1, 24, &err), err);
    assert_int_equal(tensor.dtype, TAP_DTYPE_U32);
    assert_int_equal(tensor.strides[0], 1); /* Fortran's order */
    assert_int_equal(tensor.strides[1], 2);
    assert_ok(parse_npy(&tensor, HEADER("'|b1'", "False", "()"), 1, 1, &err), err);
    assert_int_equal(tensor.rank, 0);
    assert_ok(parse_npy(&tensor, HEADER("\"<f2\"", "False", "(5,)"), 1, 10, &err), err);
    assert_ok(parse_npy(&tensor, HEADER("'<i8'", "False", "(0, 9)"), 1, 0, &err), err);
    assert_ok(
        parse_npy(&tensor, "{'shape':(1,2,),'fortran_order':False,'descr':'<f8'}\n", 1, 16, &err),
        err);
}

static void test_bad_npy(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t n_data;
        tap_status status;
        const char *words;
    } bad[] = {
        {HEADER("'<f4'", "False", "(2, 3)"), 23, TAP_ERR_FORMAT, "takes 24: incomplete"},
        {HEADER("'<f4'", "False", "(2, 3)"), 25, TAP_ERR_FORMAT, "something follows"},
        {HEADER("'>f4'", "False", "(2,)"), 8, TAP_ERR_UNSUPPORTED, "'>f4' is not read"},
        {HEADER("'|O'", "False", "(2,)"), 8, TAP_ERR_UNSUPPORTED, "Python objects never"},
        {HEADER("'<f4'", "Nah", "(2,)"), 8, TAP_ERR_FORMAT, "neither True nor False"},
        {HEADER("[('a', '<f4')]", "False", "(2,)"), 8, TAP_ERR_FORMAT, "not a string"},
        {HEADER("'<f4", "False", "(2,)"), 8, TAP_ERR_UNSUPPORTED, "is not read"},
        {HEADER("''", "False", "(2,)"), 8, TAP_ERR_FORMAT, "not a string"},
        {HEADER("'<f4'", "False", "(2)"), 8, TAP_ERR_FORMAT, "not a tuple"},
        {HEADER("'<f4'", "False", "2"), 8, TAP_ERR_FORMAT, "not a tuple"},
        {HEADER("'<f4'", "False", "(2 3)"), 8, TAP_ERR_FORMAT, "not a tuple"},
        {HEADER("'<f4'", "False", "(2, 3 4)"), 8, TAP_ERR_FORMAT, "not a tuple"},
        {HEADER("'<f4'", "False", "(-2,)"), 8, TAP_ERR_FORMAT, "whole numbers"},
        {HEADER("'<f4'", "False", "(2L,)"), 8, TAP_ERR_FORMAT, "not a tuple"},
        {HEADER("'<f4'", "False", "(99999999999999999999,)"), 8, TAP_ERR_FORMAT, "whole numbers"},
        {HEADER("'<f4'", "False", "(4294967296, 4294967296)"), 8, TAP_ERR_FORMAT, "overflows"},
        {HEADER("'<f4'", "False", "(1, 1, 1, 1, 1, 1, 1, 1, 1)"), 4, TAP_ERR_LIMIT, "more than 8"},
        {"{'descr': '<f4', 'shape': (), }\n", 4, TAP_ERR_FORMAT, "each once"},
        {"{'descr': '<f4', 'descr': '<f4', }\n", 4, TAP_ERR_FORMAT, "each once"},
        {"{'x': 1}\n", 4, TAP_ERR_FORMAT, "each once"},
        {"{'descr' '<f4'}\n", 4, TAP_ERR_FORMAT, "colon"},
        {"{'descr': '<f4' 'shape': ()}\n", 4, TAP_ERR_FORMAT, "comma"},
        {"{'descr", 4, TAP_ERR_FORMAT, "each once"},
        {"[1]\n", 4, TAP_ERR_FORMAT, "begin with {"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4, TAP_ERR_FORMAT, "line feed"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': ()}x\n", 4, TAP_ERR_FORMAT,
         "line feed"},
    };
    tap_tensor tensor;
    tap_error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_fails(parse_npy(&tensor, bad[i].header, 1, bad[i].n_data, &err), bad[i].status, err,
                     bad[i].words);
    assert_fails(parse_npy(&tensor, HEADER("'<f4'", "False", "()"), 4, 4, &err),
                 TAP_ERR_UNSUPPORTED, err, "version 4.0");
    static const uint8_t large[] = "\x93NUMPY\2\0\1\0\1\0{", cut[] = "\x93NUMPY\1\0\x90\0{";
    assert_fails(tap_npy_parse(&tensor, large, sizeof large, "x", &err), TAP_ERR_LIMIT, err,
                 "header of 65537 bytes");
    assert_fails(tap_npy_parse(&tensor, cut, sizeof cut, "x", &err), TAP_ERR_FORMAT, err,
                 "ends inside");
    assert_fails(tap_npy_parse(&tensor, large, 5, "x", &err), TAP_ERR_FORMAT, err, "not an NPY");
    assert_fails(tap_npy_parse(&tensor, (const uint8_t *)"PK\3\4........", 12, "x", &err),
                 TAP_ERR_FORMAT, err, "not an NPY");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widening),
        cmocka_unit_test(test_strides),
        cmocka_unit_test(test_npy),
        cmocka_unit_test(test_bad_npy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
