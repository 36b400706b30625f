/* The machine by itself, on pickles written by hand: values, sharing, both policies. */
#include "check.h"

#include "weights/unpickle.h"

#define RUN(pickle, policy, text, err) \
    tap_pickle_run(pickle, (const uint8_t *)(text), sizeof(text) - 1, policy, "p", 0, err)

static const tap_pickle_global globals[] = {
    {"collections", "OrderedDict", TAP_PICKLE_MAKES_DICT, 1},
    {"builtins", "set", TAP_PICKLE_MAKES_LIST, 2},
    {"torch", "Size", TAP_PICKLE_MAKES_OBJECT, 3},
};
static const tap_pickle_policy strict = {globals, 3, false, "leave it out", "these tests"},
                               lenient = {globals, 3, true, "leave it out", "these tests"};

/* ["value", ...] of a list of everything that is plain. */
static void test_values(void **state)
{
    (void)state;
    tap_pickle pickle;
    tap_error err;
    assert_ok(
        RUN(&pickle, &strict,
            "\x80\x02](NI00\nI01\nI-12\nL9223372036854775807L\nK\xffM\xff\xffJ\xfe\xff\xff\xff"
            "\x8a\x00\x8a\x01\x80\x8a\x09\x01\x02\x03\x04\x05\x06\x07\x08\x09"
            "G\x00\x00\x00\x00\x00\x00\x00\x00\x8c\x01xX\x01\x00\x00\x00yU\x01zU\x01\xff"
            "C\x01\xff)\x88\x8f(K\x01\x90(K\x01\x91(K\x01l(K\x01K\x02\x64"
            "T\x02\x00\x00\x00okL-9223372036854775808L\ne.",
            &err),
        err);
    const tap_pickle_value *list = pickle.result;
    static const tap_pickle_kind kinds[] = {
        TAP_PICKLE_NONE,  TAP_PICKLE_BOOL,  TAP_PICKLE_BOOL,  TAP_PICKLE_INT,  TAP_PICKLE_INT,
        TAP_PICKLE_INT,   TAP_PICKLE_INT,   TAP_PICKLE_INT,   TAP_PICKLE_INT,  TAP_PICKLE_INT,
        TAP_PICKLE_LONG,  TAP_PICKLE_FLOAT, TAP_PICKLE_TEXT,  TAP_PICKLE_TEXT, TAP_PICKLE_TEXT,
        TAP_PICKLE_BYTES, TAP_PICKLE_BYTES, TAP_PICKLE_TUPLE, TAP_PICKLE_BOOL, TAP_PICKLE_LIST,
        TAP_PICKLE_LIST,  TAP_PICKLE_LIST,  TAP_PICKLE_DICT,  TAP_PICKLE_TEXT, TAP_PICKLE_INT};
    static const int64_t integers[] = {-12, INT64_MAX, 255, 65535, -2, 0, -128};
    assert_int_equal(list->items.n, sizeof kinds / sizeof *kinds);
    for (size_t i = 0; i < list->items.n; i++)
        assert_int_equal(list->items.data[i]->kind, kinds[i]);
    for (size_t i = 0; i < 7; i++)
        assert_true(list->items.data[3 + i]->integer == integers[i]);
    assert_true(list->items.data[24]->integer == INT64_MIN);
    assert_false(list->items.data[1]->truth);
    assert_true(list->items.data[2]->truth);
    assert_int_equal(list->items.data[10]->text.size, 9);
    assert_true(tap_pickle_is_text(list->items.data[14], "z"));
    assert_int_equal(list->items.data[19]->items.n, 1);
    tap_pickle_free(&pickle);
}

/* DUP, POP, POP_MARK, memo in its three forms; a value put once and got twice is one value. */
static void test_sharing(void **state)
{
    (void)state;
    tap_pickle pickle;
    tap_error err;
    assert_ok(RUN(&pickle, &strict,
                  "\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00(]\x94r\x07\x00\x00\x00h\x00j\x07"
                  "\x00\x00\x00N0(NN1(02\x94t.",
                  &err),
              err);
    assert_int_equal(pickle.result->items.n, 4);
    for (size_t i = 1; i < 4; i++)
        assert_ptr_equal(pickle.result->items.data[i], pickle.result->items.data[0]);
    tap_pickle_free(&pickle);
}

/* An OrderedDict as Python 3 and as Python 2 write it; its state is not its items. */
static void test_dictionaries(void **state)
{
    (void)state;
    tap_pickle pickle;
    tap_error err;
    assert_ok(RUN(&pickle, &strict,
                  "\x80\x02"
                  "ccollections\nOrderedDict\n)R(U\x01"
                  "aK\x01U\x01"
                  "bK\x02U\x01"
                  "aK\x03u}U\x09_metadataK\x09sb.",
                  &err),
              err);
    assert_int_equal(pickle.result->items.n, 6);
    assert_int_equal(tap_pickle_get(pickle.result, "a")->integer, 3);
    assert_int_equal(tap_pickle_get(pickle.result, "b")->integer, 2);
    assert_null(tap_pickle_get(pickle.result, "_metadata"));
    tap_pickle_free(&pickle);
    assert_ok(RUN(&pickle, &strict,
                  "\x80\x02"
                  "ccollections\nOrderedDict\n(](](U\x01"
                  "aK\x01"
                  "eU\x01"
                  "bK\x02\x86"
                  "etR.",
                  &err),
              err);
    assert_int_equal(tap_pickle_get(pickle.result, "a")->integer, 1);
    assert_int_equal(tap_pickle_get(pickle.result, "b")->integer, 2);
    tap_pickle_free(&pickle);
    assert_ok(RUN(&pickle, &strict,
                  "\x80\x02"
                  "cbuiltins\nset\n(](K\x01K\x02"
                  "etR.",
                  &err),
              err);
    assert_int_equal(pickle.result->items.n, 2);
    tap_pickle_free(&pickle);
    assert_ok(RUN(&pickle, &strict,
                  "\x80\x02"
                  "cbuiltins\nset\n)R.",
                  &err),
              err);
    assert_int_equal(pickle.result->items.n, 0);
    tap_pickle_free(&pickle);
}

/* With keep_foreign, an object of another program is an inert record; a tensor beside it is still
 * found. Without, it is refused by name. */
#define FOREIGN                                                                  \
    "\x80\x02}(U\x09"                                                            \
    "callbacks"                                                                  \
    "clightning.callbacks\nCheckpoint\n)\x81}U\x01xK\x01sbU\x06"                 \
    "config\x8c\x09omegaconf\x8c\x0a"                                            \
    "DictConfig\x93(K\x01tR(U\x01kK\x02uU\x05rlistcmod\nList\n)}\x92(K\x01K\x02" \
    "eU\x04sizectorch\nSize\n(K\x02\x85tR"                                       \
    "u."

static void test_foreign(void **state)
{
    (void)state;
    tap_pickle pickle;
    tap_error err;
    assert_fails(RUN(&pickle, &strict, FOREIGN, &err), TAP_ERR_UNSUPPORTED, err,
                 "Python object lightning.callbacks.Checkpoint");
    assert_null(pickle.result);
    assert_ok(RUN(&pickle, &lenient, FOREIGN, &err), err);
    const tap_pickle_value *callbacks = tap_pickle_get(pickle.result, "callbacks");
    assert_int_equal(callbacks->kind, TAP_PICKLE_OBJECT);
    assert_null(callbacks->object.callee->global.known);
    assert_memory_equal(callbacks->object.callee->global.name, "Checkpoint", 10);
    assert_int_equal(tap_pickle_get(callbacks->object.state, "x")->integer, 1);
    assert_int_equal(tap_pickle_get(pickle.result, "config")->kind, TAP_PICKLE_OBJECT);
    assert_int_equal(tap_pickle_get(pickle.result, "rlist")->kind, TAP_PICKLE_OBJECT);
    const tap_pickle_value *size = tap_pickle_get(pickle.result, "size");
    assert_int_equal(size->object.callee->global.known->tag, 3);
    assert_int_equal(size->object.arguments->items.n, 1);
    tap_pickle_free(&pickle);
    assert_int_equal(pickle.memory, 0);
}

/* 3^4000 leaves in memory that grows with the pickle, not with them. */
static void test_bomb_is_small(void **state)
{
    (void)state;
    enum { N = 4000 };
    static uint8_t text[3 + N * 9 + 2];
    tap_pickle pickle;
    tap_error err;
    size_t n = 0;
    text[n++] = ')', text[n++] = 'q', text[n++] = 0;
    for (size_t i = 0; i < N; i++) {
        memcpy(text + n, "0h\0h\0h\0\x87", 8);
        n += 8;
        text[n++] = 0x94; /* as entry i + 1, which is not entry 0 */
        if (i < 255)      /* the next ones are made of the newest that one byte can name */
            text[n - 7] = text[n - 5] = text[n - 3] = (uint8_t)i;
    }
    text[n++] = '.';
    assert_ok(tap_pickle_run(&pickle, text, n, &strict, "p", 0, &err), err);
    assert_int_equal(pickle.result->items.n, 3);
    assert_true(pickle.memory < 2 << 20);
    tap_pickle_free(&pickle);
}

static void test_persistent(void **state)
{
    (void)state;
    tap_pickle pickle;
    tap_error err;
    assert_ok(RUN(&pickle, &strict, "\x80\x02(K\x01QK\x02Qt.", &err), err);
    assert_int_equal(pickle.n_persistents, 2);
    assert_int_equal(pickle.persistents[1]->object.arguments->integer, 2);
    assert_ptr_equal(pickle.result->items.data[0], pickle.persistents[0]);
    assert_int_equal(pickle.consumed, 11);
    tap_pickle_free(&pickle);
}

/* Every prefix of two pickles with a checkpoint's every kind of value, and of the one above. */
static void check_prefixes(const uint8_t *text, size_t size)
{
    tap_pickle pickle;
    tap_error err;
    assert_ok(tap_pickle_run(&pickle, text, size, &lenient, "p", 0, &err), err);
    tap_pickle_free(&pickle);
    for (size_t n = 0; n < size; n++) {
        uint8_t *cut = malloc(n > 0 ? n : 1); /* so that a sanitizer sees a byte too far */
        memcpy(cut, text, n);
        assert_int_equal(tap_pickle_run(&pickle, cut, n, &lenient, "p", 0, &err), TAP_ERR_FORMAT);
        free(cut);
    }
}

static void test_prefixes(void **state)
{
    (void)state;
    static const char *const files[] = {"fuzz/corpus/pytorch/pickle2",
                                        "fuzz/corpus/pytorch/pickle5"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        tap_bytes bytes;
        tap_error err;
        assert_ok(tap_bytes_read(&bytes, files[i], 1 << 20, &err), err);
        check_prefixes(bytes.data, bytes.size);
        tap_bytes_release(&bytes);
    }
    check_prefixes((const uint8_t *)FOREIGN, sizeof FOREIGN - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),        cmocka_unit_test(test_sharing),
        cmocka_unit_test(test_dictionaries),  cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_bomb_is_small), cmocka_unit_test(test_persistent),
        cmocka_unit_test(test_prefixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
