/* JSON bodies: what RFC 8259 lets pass, within the limits, and nothing else. */
#include "body.h"

/* Refused with this status and these words in the message. */
static void refuse(const char *body, size_t n, tap_status status, const char *words)
{
    struct read read;
    read_body(&read, body, n, false);
    if (read.status != status || read.err.status != status)
        fail_msg("%.100s: %s, not %s", body, tap_status_name(read.status), tap_status_name(status));
    if (strstr(read.err.message, words) == NULL)
        fail_msg("%.100s: \"%s\" does not say \"%s\"", body, read.err.message, words);
    done(&read);
}

#define REFUSE(body, status, words) refuse(body, sizeof(body) - 1, status, words)

/* ---- pictures and names -------------------------------------------------------------------- */

static void pictures_that_are_none(void **state)
{
    (void)state;
    REFUSE("{}", TAP_ERR_ARGUMENT, "image: missing");
    REFUSE("{\"images\":\"Zm9v\"}", TAP_ERR_ARGUMENT, "image: missing");
    REFUSE("{\"x\":{\"image\":\"Zm9v\"}}", TAP_ERR_ARGUMENT, "image: missing");
    REFUSE("{\"x\":\"image\",\"y\":\"Zm9v\"}", TAP_ERR_ARGUMENT, "image: missing");
    REFUSE("{\"image\":5}", TAP_ERR_ARGUMENT, "image: must be a base64 string, not a number");
    REFUSE("{\"image\":null}", TAP_ERR_ARGUMENT, "image: must be a base64 string, not null");
    REFUSE("{\"image\":[\"Zm9v\"]}", TAP_ERR_ARGUMENT, "image: must be a base64 string");
    REFUSE("{\"image\":{\"a\":\"Zm9v\"}}", TAP_ERR_ARGUMENT, "image: must be a base64 string");
    REFUSE("{\"image\":\"Zm9*\"}", TAP_ERR_FORMAT,
           "bad image: image: Only base64 data is allowed: '*' at position 3");
    REFUSE("{\"image\":\"Zm9v\xc3\xa9\"}", TAP_ERR_FORMAT, "byte 0xc3 at position 4");
    REFUSE("{\"image\":\"\\q\"}", TAP_ERR_ARGUMENT, "not JSON: a bad escape");
    REFUSE("{\"image\":\"\\u00g0\"}", TAP_ERR_ARGUMENT, "not JSON: a bad escape");
    REFUSE("{\"image\":\"\\u006\"}", TAP_ERR_ARGUMENT, "not JSON: a bad escape");
    REFUSE("{\"image\":\"Zm\\u00009v\"}", TAP_ERR_FORMAT, "byte 0x00 at position 2");
    /* An empty text is a picture of no bytes, which the decoder refuses. */
    struct read read;
    read_text(&read, "{\"image\":\"\"}");
    assert_ok(read.status, read.err);
    assert_non_null(read.slices[0].data);
    assert_int_equal(read.slices[0].size, 0);
    done(&read);
    read_text(&read, "{\"\\u0069mage\":\"\\u005Am9\\u0076\\r\\n\\/\\/8=\"}");
    assert_ok(read.status, read.err);
    assert_int_equal(read.slices[0].size, 5);
    assert_memory_equal(read.slices[0].data, "foo\xff\xff", 5);
    done(&read);
}

static void names_given_twice(void **state)
{
    (void)state;
    REFUSE("{\"image\":\"Zm9v\",\"image\":\"Zm9v\"}", TAP_ERR_ARGUMENT, "image: given twice");
    REFUSE("{\"image\":\"Zm9v\",\"\\u0069mage\":\"Zm9v\"}", TAP_ERR_ARGUMENT, "image: given twice");
    REFUSE("{\"image\":\"Zm9v\",\"i\\u006Dage\":5}", TAP_ERR_ARGUMENT, "image: given twice");
    REFUSE("{\"image\":\"Zm9v\",\"nms_radius\":4,\"nms_radius\":4}", TAP_ERR_ARGUMENT,
           "nms_radius: given twice");
    REFUSE("{\"image\":\"Zm9v\",\"caf\\u00e9\":4,\"caf\xc3\xa9\":4}", TAP_ERR_ARGUMENT,
           "given twice");
    REFUSE("{\"image\":\"Zm9v\",\"\":4,\"\":4}", TAP_ERR_ARGUMENT, "given twice");
    /* A NUL must not end a name early. */
    REFUSE("{\"image\\u0000x\":\"Zm9v\"}", TAP_ERR_ARGUMENT, "name");
    /* Names that differ, or are of another object, are no doubles. */
    let_pass("\"caf\\u00e9\":1,\"caf\\u00e8\":2,\"caf?\":3,\"caf\\u20ac\":4");
    let_pass("\"a\":{\"b\":1},\"b\":{\"b\":2,\"image\":3}");
    let_pass("\"unknown\":[1,{\"max_keypoints\":-9}],\"Image\":1,\"image \":2");
}

/* ---- not JSON ------------------------------------------------------------------------------ */

/* RFC 8259: after its first values, so that only what is named here is at fault. */
static void what_is_not_json(void **state)
{
    (void)state;
    static const char *const values[] = {"NaN",
                                         "nan",
                                         "Infinity",
                                         "-Infinity",
                                         "inf",
                                         "-inf",
                                         "-nan",
                                         "True",
                                         "tRue",
                                         "FALSE",
                                         "nul",
                                         "nulll",
                                         "truefalse",
                                         "+5",
                                         "05",
                                         "-05",
                                         "00",
                                         ".5",
                                         "5.",
                                         "-",
                                         "-.5",
                                         "1e",
                                         "1e+",
                                         "1E-",
                                         "1.e5",
                                         "1.5.5",
                                         "0x5",
                                         "1_0",
                                         "--5",
                                         "1-1",
                                         "5e5e5",
                                         "'a'",
                                         "\"a",
                                         "\"\\x41\"",
                                         "\"\\u12\"",
                                         "\"\\",
                                         "[1,]",
                                         "[,1]",
                                         "[1 2]",
                                         "[",
                                         "]",
                                         "[}",
                                         "{]",
                                         "{\"a\"}",
                                         "{\"a\":}",
                                         "{\"a\":1,}",
                                         "{a:1}",
                                         "{1:1}",
                                         "{,}",
                                         "/* */1",
                                         "1 // x",
                                         "1,",
                                         "1,,\"y\":2",
                                         "",
                                         ":",
                                         "\"\xe9\"",
                                         "\"\xc0\x80\"",
                                         "\"\xc1\xbf\"",
                                         "\"\xe0\x80\x80\"",
                                         "\"\xed\xa0\x80\"",
                                         "\"\xf0\x80\x80\x80\"",
                                         "\"\xf4\x90\x80\x80\"",
                                         "\"\xf5\x80\x80\x80\"",
                                         "\"\xe2\x82\"",
                                         "\"\x80\"",
                                         "\"\xff\"",
                                         "\"\x01\"",
                                         "\"a\nb\"",
                                         "\"a\tb\"",
                                         "\xc2\xa0\x31",
                                         "\v1",
                                         "\f1"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char fields[64];
        struct read read;
        snprintf(fields, sizeof fields, "\"x\":%s", values[i]);
        read_fields(&read, fields);
        if (read.status != TAP_ERR_ARGUMENT)
            fail_msg("%s is let pass (%s)", fields, tap_status_name(read.status));
        if (strncmp(read.err.message, "not JSON: ", 10) != 0)
            fail_msg("%s: %s", fields, read.err.message);
        done(&read);
    }
    static const char *const right[] = {"0",
                                        "-0",
                                        "0.0",
                                        "1e5",
                                        "1E+5",
                                        "1e-5",
                                        "-1.25e-300",
                                        "1e999",
                                        "123456789012345678901234",
                                        "true",
                                        "false",
                                        "null",
                                        "[]",
                                        "{}",
                                        "[[],{}]",
                                        "\"\"",
                                        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
                                        "\"\\ud83d\\ude00\"",
                                        "\"\x7f\"",
                                        "\"\xc2\x80\xef\xbf\xbf\xf4\x8f\xbf\xbf\"",
                                        " [ 1 ,\r\n\t2 ] ",
                                        "\"{[:,]}\"",
                                        "\"\\u0000\""};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        char fields[64];
        snprintf(fields, sizeof fields, "\"x\":%s", right[i]);
        let_pass(fields);
    }
}

static void what_is_no_object(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "[]",   "[\"image\",\"Zm9v\"]",  "\"image\"", "5", "5.5", "-1", "null",
        "true", "[{\"image\":\"Zm9v\"}]"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        refuse(bodies[i], strlen(bodies[i]), TAP_ERR_ARGUMENT, "the body must be a JSON object");
    static const char *const cut[] = {"",
                                      " ",
                                      "\r\n",
                                      "{",
                                      "{\"",
                                      "{\"image",
                                      "{\"image\"",
                                      "{\"image\":",
                                      "{\"image\":\"",
                                      "{\"image\":\"Zm9v",
                                      "{\"image\":\"Zm9v\"",
                                      "{\"image\":\"Zm9v\",",
                                      "{\"image\":\"\\",
                                      "}",
                                      "]",
                                      "\"",
                                      "t",
                                      "-"};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++)
        refuse(cut[i], strlen(cut[i]), TAP_ERR_ARGUMENT, "not JSON: ");
    REFUSE("{\"image\":\"Zm9v\"} x", TAP_ERR_ARGUMENT, "not JSON: ");
    REFUSE("{\"image\":\"Zm9v\"}5", TAP_ERR_ARGUMENT, "not JSON: unexpected character, at byte 16");
    REFUSE("{\"image\":\"Zm9v\"}}", TAP_ERR_ARGUMENT, "not JSON: unexpected character, at byte 16");
    REFUSE("{\"image\":\"Zm9v\"}{\"image\":\"Zm9v\"}", TAP_ERR_ARGUMENT, "image: given twice");
    REFUSE("{\"x\":1}{\"image\":\"Zm9v\"}", TAP_ERR_ARGUMENT, "at byte 7");
    REFUSE("{\"image\":\"Zm9v\"}\0", TAP_ERR_ARGUMENT, "not JSON: byte 0x00 at 16");
    REFUSE("\xef\xbb\xbf{\"image\":\"Zm9v\"}", TAP_ERR_ARGUMENT, "not JSON: byte 0xef at 0");
    REFUSE("{\"image\":\"Zm9v\" \"Zm9v\"}", TAP_ERR_ARGUMENT, "at byte 16");
    REFUSE("{\"image\":[]\"Zm9v\"}", TAP_ERR_ARGUMENT, "not JSON: ");
    REFUSE("{\"image\":\"Zm9v\":1}", TAP_ERR_ARGUMENT, "not JSON: ");
    REFUSE("{\"image\" \"Zm9v\"}", TAP_ERR_ARGUMENT, "not JSON: ");
    struct read read;
    /* The place is that in the body, behind both pictures, in either order. */
    static const char *const pairs[] = {"{\"image_a\":\"Zm9v\",\"image_b\":\"Zm9vYg==\" []}",
                                        "{\"image_b\":\"Zm9vYg==\",\"image_a\":\"Zm9v\" []}"};
    for (size_t i = 0; i < 2; i++) {
        char words[32];
        snprintf(words, sizeof words, "at byte %zu", strcspn(pairs[i], "["));
        read_body(&read, pairs[i], strlen(pairs[i]), true);
        assert_fails(read.status, TAP_ERR_ARGUMENT, read.err, words);
        done(&read);
    }
    read_text(&read, " \r\n\t{\"image\" : \"Zm9v\"}\r\n\t ");
    assert_ok(read.status, read.err);
    assert_memory_equal(read.slices[0].data, "foo", 3);
    done(&read);
}

/* ---- limits -------------------------------------------------------------------------------- */

/* A body made of head, middle * n, tail. */
static void read_repeated(struct read *read, const char *head, const char *middle, size_t n,
                          const char *tail)
{
    size_t size = strlen(head) + strlen(middle) * n + strlen(tail) + 1, at = 0;
    char *body = malloc(size);
    assert_non_null(body);
    at += (size_t)snprintf(body, size, "%s", head);
    for (size_t i = 0; i < n; i++, at += strlen(middle))
        memcpy(body + at, middle, strlen(middle));
    at += (size_t)snprintf(body + at, size - at, "%s", tail);
    read_body(read, body, at, false);
    free(body);
}

static void depth_is_bounded(void **state)
{
    (void)state;
    struct read read;
    /* The object itself is one. */
    for (size_t depth = 15; depth <= 16; depth++) {
        char tail[32] = "1", head[] = "{\"image\":\"Zm9v\",\"x\":";
        memset(tail + 1, ']', depth);
        strcpy(tail + 1 + depth, "}");
        read_repeated(&read, head, "[", depth, tail);
        if (depth + 1 <= TAP_JSON_DEPTH)
            assert_ok(read.status, read.err);
        else
            assert_fails(read.status, TAP_ERR_LIMIT, read.err, "nested over 16 deep");
        done(&read);
    }
    read_repeated(&read, "", "[", 1000000, "");
    assert_fails(read.status, TAP_ERR_LIMIT, read.err, "nested over 16 deep, at byte 16");
    done(&read);
    read_repeated(&read, "{\"x\":", "{\"x\":", 15, "[");
    assert_fails(read.status, TAP_ERR_LIMIT, read.err, "nested over 16 deep");
    done(&read);
    /* Closing what was never opened does not make room. */
    read_repeated(&read, "]]]]]]]]", "[", 17, "");
    assert_fails(read.status, TAP_ERR_LIMIT, read.err, "nested over 16 deep");
    done(&read);
}

static void values_are_counted(void **state)
{
    (void)state;
    struct read read;
    const char *head = "{\"x\":[0", *tail = "]}";
    /* The object, the array, its elements. Without a picture, so that the tree is read through. */
    read_repeated(&read, head, ",0", TAP_JSON_VALUES - 3, tail);
    assert_fails(read.status, TAP_ERR_ARGUMENT, read.err, "image: missing");
    done(&read);
    read_repeated(&read, head, ",0", TAP_JSON_VALUES - 2, tail);
    assert_fails(read.status, TAP_ERR_LIMIT, read.err, "over 10000 values");
    done(&read);
    read_repeated(&read, "{\"x\":[", "[],", 1000000, "0]}");
    assert_fails(read.status, TAP_ERR_LIMIT, read.err, "over 10000 values");
    done(&read);
}

static void bytes_beside_the_picture_are_bounded(void **state)
{
    (void)state;
    struct read read;
    const char *head = "{\"image\":\"Zm9v\",\"x\":\"", *tail = "\"}";
    size_t beside = strlen(head) + strlen(tail) - 4; /* without the picture's text */
    read_repeated(&read, head, "a", TAP_JSON_REST - beside, tail);
    assert_ok(read.status, read.err);
    done(&read);
    read_repeated(&read, head, "a", TAP_JSON_REST - beside + 1, tail);
    assert_fails(read.status, TAP_ERR_LIMIT, read.err, "bytes of JSON beside the picture");
    done(&read);
    /* The picture itself may be as large as a body may be. */
    read_repeated(&read, "{\"image\":\"", "Zm9v", 1u << 20, "\"}");
    assert_ok(read.status, read.err);
    assert_int_equal(read.slices[0].size, 3u << 20);
    for (size_t i = 0; i < read.slices[0].size; i += 3)
        assert_memory_equal(read.slices[0].data + i, "foo", 3);
    done(&read);
    /* A name over the limit is refused in words. */
    read_repeated(&read, "{\"", "a", 257, "\":1}");
    assert_fails(read.status, TAP_ERR_ARGUMENT, read.err, "256");
    done(&read);
}

/* Every beginning of a good body is refused, and none reads beyond its end. */
static void every_cut_is_refused(void **state)
{
    (void)state;
    static const char whole[] =
        "{\"image\":\"Zm9v\\n\",\"max_keypoints\":50,\"nms\":\"\\u0073ingle\","
        "\"x\":[1.5e3,{\"a\":null,\"b\":[true,false]}],\"size\":\"64x64\"}";
    for (size_t n = 0; n < sizeof whole - 1; n++)
        refuse(whole, n, TAP_ERR_ARGUMENT, "not JSON: ");
    struct read read;
    read_body(&read, whole, sizeof whole - 1, false);
    assert_ok(read.status, read.err);
    done(&read);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pictures_that_are_none),
                                       cmocka_unit_test(names_given_twice),
                                       cmocka_unit_test(what_is_not_json),
                                       cmocka_unit_test(what_is_no_object),
                                       cmocka_unit_test(depth_is_bounded),
                                       cmocka_unit_test(values_are_counted),
                                       cmocka_unit_test(bytes_beside_the_picture_are_bounded),
                                       cmocka_unit_test(every_cut_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
