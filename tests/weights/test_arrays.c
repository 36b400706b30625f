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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chumpy_array_is_its_values),
        cmocka_unit_test(a_chumpy_array_that_holds_itself_is_refused),
        cmocka_unit_test(shared_values_are_not_looked_through_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
