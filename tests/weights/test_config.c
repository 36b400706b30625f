/* config.json, and through it the strict JSON reader. */
#include "check.h"

#include "weights/weights.h"

#include <locale.h>

static tap_status parse(tap_config **config, const char *text, tap_error *err)
{
    /* A copy of exactly that size, so that a sanitizer sees a byte too far. */
    size_t n = strlen(text);
    uint8_t *copy = malloc(n > 0 ? n : 1);
    memcpy(copy, text, n);
    tap_status status = tap_config_parse(config, copy, n, "config.json", err);
    free(copy);
    return status;
}

static void test_values(void **state)
{
    (void)state;
    tap_config *config;
    tap_error err;
    double number = 0;
    size_t sizes[4] = {0};
    assert_ok(parse(&config,
                    " {\"type\": \"super\\u0070oint\", \"n\": -1, \"t\" : 5e-3,\n"
                    "\"widths\":[64,64,128,128], \"none\":null, \"yes\":true, \"no\":false,"
                    "\"mixed\":[1,\"a\"], \"empty\":[], \"fractions\":[0.5],\"zero\":-0.0,"
                    "\"nested\":{\"n\":[{\"n\":[[1]]},{}]}, "
                    "\"e\":\"\\ud83d\\ude00\\u00e9\\\\/\\u20aC\"}\t ",
                    &err),
              err);
    assert_string_equal(tap_config_string(config, "type"), "superpoint");
    assert_string_equal(tap_config_string(config, "e"), "\xf0\x9f\x98\x80\xc3\xa9\\/\xe2\x82\xac");
    assert_true(tap_config_number(config, "n", &number) && number == -1);
    assert_true(tap_config_number(config, "t", &number) && number == 0.005);
    assert_true(tap_config_number(config, "zero", &number) && number == 0);
    assert_int_equal(tap_config_sizes(config, "widths", sizes, 3), 4);
    assert_true(sizes[0] == 64 && sizes[2] == 128 && sizes[3] == 0);
    static const char *const others[] = {"none",  "yes",       "no",    "mixed",
                                         "empty", "fractions", "nested"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_true(tap_config_has(config, others[i]));
        assert_null(tap_config_string(config, others[i]));
        assert_false(tap_config_number(config, others[i], &number));
        assert_int_equal(tap_config_sizes(config, others[i], sizes, 4), 0);
    }
    assert_false(tap_config_has(config, "missing"));
    assert_null(tap_config_string(config, "n"));
    tap_config_free(config);
    tap_config_free(NULL);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } bad[] = {
        {"", "ends too early"},
        {"[]", "one JSON object"},
        {"\"a\"", "one JSON object"},
        {"{", "ends too early"},
        {"{}x", "text after"},
        {"{\"a\":1,}", "double quotes"},
        {"{,}", "double quotes"},
        {"{\"a\" 1}", "colon"},
        {"{\"a\":1 \"b\":2}", "comma or }"},
        {"{\"a\":[1 2]}", "comma or ]"},
        {"{\"a\":[1,]}", "not a JSON value"},
        {"{\"a\":[1}", "comma or ]"},
        {"{'a':1}", "double quotes"},
        {"{\"a\":1,\"a\":1}", "twice"},
        {"{\"x\":{\"a\":1,\"b\":2,\"a\":1}}", "\"a\" is there twice"},
        {"{\"a\":NaN}", "not a JSON value"},
        {"{\"a\":Infinity}", "not a JSON value"},
        {"{\"a\":-Infinity}", "not a number"},
        {"{\"a\":+1}", "not a JSON value"},
        {"{\"a\":.5}", "not a JSON value"},
        {"{\"a\":5.}", "not a number"},
        {"{\"a\":-}", "not a number"},
        {"{\"a\":1e}", "not a number"},
        {"{\"a\":1e+}", "not a number"},
        {"{\"a\":01}", "not a number"},
        {"{\"a\":0x10}", "comma or }"},
        {"{\"a\":1e999}", "too large"},
        {"{\"a\":tru", "not a JSON value"},
        {"{\"a\":nuLL}", "not a JSON value"},
        {"{\"a\":fals_}", "not a JSON value"},
        {"{\"a\":\"", "ends inside a string"},
        {"{\"a\":\"\\", "not an escape"},
        {"{\"a\":\"\\u12", "hexadecimal"},
        {"{\"a\":\"\\ud800\"}", "surrogate"},
        {"{\"a\":\"\\ud800\\n12345\"}", "surrogate"},
        {"{\"a\":\"\\ud83d\\ud83d\"}", "surrogate"},
        {"{\"a\":\"\xf5\x80\x80\x80\"}", "not UTF-8"},
        {"{\"a\":\"\xf0\x8f\xbf\xbf\"}", "not UTF-8"},
        {"{\"a\":\"\xf4\x90\x80\x80\"}", "not UTF-8"},
        {"{\"a\":\"\xe0\x9f\xbf\"}", "not UTF-8"},
        {"{\"a\":\"\xe2\x82\"}", "not UTF-8"},
        {"{\"a\":\"\xe2\x82", "not UTF-8"},
        {"{\"a\":\x01}", "not a JSON value"},
        {"{\"a\":1234567890123456789012345678901234567890123456789012345678901234567890}",
         "64 characters"},
        {"/* */{}", "not a JSON value"},
    };
    tap_config *config;
    tap_error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_fails(parse(&config, bad[i].text, &err), TAP_ERR_FORMAT, err, bad[i].words);
        assert_null(config);
    }
}

static void test_limits(void **state)
{
    (void)state;
    char text[128] = "{\"a\":";
    tap_config *config;
    tap_error err;
    memset(text + 5, '[', 15);
    memset(text + 20, ']', 15);
    strcpy(text + 35, "}");
    assert_ok(parse(&config, text, &err), err);
    tap_config_free(config);
    memset(text + 5, '[', 16);
    memset(text + 21, ']', 16);
    strcpy(text + 37, "}");
    assert_fails(parse(&config, text, &err), TAP_ERR_FORMAT, err, "16 deep");
    uint8_t *large = calloc((1 << 20) + 1, 1);
    assert_fails(tap_config_parse(&config, large, (1 << 20) + 1, "c", &err), TAP_ERR_LIMIT, err,
                 "over 1048576");
    /* 100,000 names of one object, and a list of as many numbers: sorted, not compared in pairs. */
    char *many = malloc(3 << 20);
    size_t n = (size_t)sprintf(many, "{\"x\":{\"0\":0");
    for (int i = 1; i < 80000; i++)
        n += (size_t)sprintf(many + n, ",\"%x\":0", i);
    n += (size_t)sprintf(many + n, "},\"y\":[0");
    for (int i = 0; i < 65; i++)
        n += (size_t)sprintf(many + n, ",0");
    n += (size_t)sprintf(many + n, "]}");
    assert_true(n < 1 << 20);
    assert_ok(tap_config_parse(&config, (uint8_t *)many, n, "c", &err), err);
    assert_int_equal(tap_config_sizes(config, "y", NULL, 0), 0); /* longer than any model's */
    tap_config_free(config);
    free(many);
    free(large);
}

/* Numbers are read alike where the program has set a locale with a decimal comma. */
static void test_locale(void **state)
{
    (void)state;
    tap_config *config;
    tap_error err;
    double number = 0;
    const char *found = setlocale(LC_ALL, "de_DE.UTF-8");
    if (found == NULL) {
        printf("SKIP: no locale de_DE.UTF-8 here\n");
        skip();
    }
    assert_ok(parse(&config, "{\"t\":0.005}", &err), err);
    setlocale(LC_ALL, "C");
    assert_true(tap_config_number(config, "t", &number) && number == 0.005);
    tap_config_free(config);
}

static void test_open(void **state)
{
    (void)state;
    tap_config *config;
    tap_error err;
    char path[512];
    assert_fails(tap_config_open(&config, "/nowhere/config.json", &err), TAP_ERR_NOT_FOUND, err,
                 "/nowhere/config.json");
    shared_path(path, sizeof path, "weights/superpoint/config.json");
    assert_ok(tap_config_open(&config, path, &err), err);
    assert_string_equal(tap_config_string(config, "model_type"), "superpoint");
    size_t widths[4];
    assert_int_equal(tap_config_sizes(config, "encoder_hidden_sizes", widths, 4), 4);
    assert_int_equal(widths[3], 128);
    tap_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_limits), cmocka_unit_test(test_locale),
        cmocka_unit_test(test_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
