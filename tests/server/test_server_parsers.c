/* What clients send, taken apart. tests/http sends far more of it through sockets; here is what
 * needs a look inside: bytes, bounds, places. */
#include "check.h"

#include "server/request.h"

static const tap_wish_limits limits = {
    .max_keypoints = 307200, .min_max_keypoints = -1, .max_input_pixels = 2100000};

/* ---- base64 -----------------------------------------------------------------------------------
 */

static void check_base64(const char *text, const char *wanted)
{
    uint8_t out[64];
    size_t n_out;
    tap_error err;
    assert_ok(tap_base64_decode(out, &n_out, text, strlen(text), &err), err);
    assert_int_equal(n_out, strlen(wanted));
    assert_memory_equal(out, wanted, n_out);
}

static void check_bad_base64(const char *text, const char *words)
{
    uint8_t out[512];
    size_t n_out;
    tap_error err;
    assert_fails(tap_base64_decode(out, &n_out, text, strlen(text), &err), TAP_ERR_FORMAT, err,
                 "Only base64 data is allowed");
    assert_non_null(strstr(err.message, words));
}

static void base64_is_read(void **state)
{
    (void)state;
    /* RFC 4648, section 10, with and without padding. */
    static const char *const vectors[][2] = {{"", ""},
                                             {"f", "Zg=="},
                                             {"fo", "Zm8="},
                                             {"foo", "Zm9v"},
                                             {"foob", "Zm9vYg=="},
                                             {"fooba", "Zm9vYmE="},
                                             {"foobar", "Zm9vYmFy"}};
    for (size_t i = 0; i < 7; i++) {
        char bare[16];
        check_base64(vectors[i][1], vectors[i][0]);
        snprintf(bare, sizeof bare, "%s", vectors[i][1]);
        bare[strcspn(bare, "=")] = '\0';
        check_base64(bare, vectors[i][0]);
    }
    check_base64("Zm9v\r\nYm Fy\t", "foobar");
    check_base64("data:image/png;base64,Zm9v", "foo");
    check_base64("DATA:;charset=x;BASE64,Zm9v", "foo");
    check_base64("-_-_", "\xfb\xff\xbf");
    check_base64("+/+/", "\xfb\xff\xbf");
    check_bad_base64("Zm9*", "'*' at position 3");
    check_bad_base64("Zm9v\x80", "0x80 at position 4");
    check_bad_base64("Zm9vY", "left over");
    check_bad_base64("Zg==Zg==", "position 4");
    check_bad_base64("Zm9v=", "padding");
    check_bad_base64("data:image/png,abc", "data: URL");
    check_bad_base64("data:image/png;base64", "comma");
}

/* Decoding into the text itself, as the server does, gives the same bytes. */
static void base64_works_in_place(void **state)
{
    (void)state;
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t n = 0; n < 200; n++) {
        char text[256], place[256];
        uint8_t apart[256];
        size_t n_apart, n_place;
        tap_error err;
        for (size_t i = 0; i < n; i++)
            text[i] = i % 7 == 6 ? '\n' : alphabet[(i * 29 + n) % 64];
        memcpy(place, text, n);
        tap_status status = tap_base64_decode(apart, &n_apart, text, n, &err);
        assert_int_equal(tap_base64_decode((uint8_t *)place, &n_place, place, n, &err), status);
        if (status == TAP_OK) {
            assert_int_equal(n_place, n_apart);
            assert_memory_equal(place, apart, n_apart);
        }
    }
}

/* ---- query ------------------------------------------------------------------------------------
 */

static void queries_are_read(void **state)
{
    (void)state;
    tap_query query;
    tap_error err;
    char target[] = "http://host:1/predict?a=1&b+c=%41%2b&&empty&d=#gone?x=1";
    assert_ok(tap_query_parse(&query, target, &err), err);
    assert_string_equal(query.path, "/predict");
    assert_int_equal(query.n_pairs, 4);
    static const char *const wanted[][2] = {{"a", "1"}, {"b c", "A+"}, {"empty", ""}, {"d", ""}};
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(query.pairs[i].name, wanted[i][0]);
        assert_string_equal(query.pairs[i].value, wanted[i][1]);
    }
    static const char *const bad[][2] = {{"/x?a=%4", "escape"},
                                         {"/x?a=%zz", "escape"},
                                         {"/x?a=%", "escape"},
                                         {"/x?a=%00", "NUL"},
                                         {"/x?a=1&%61=2", "a: given twice"}};
    for (size_t i = 0; i < 5; i++) {
        char text[40];
        snprintf(text, sizeof text, "%s", bad[i][0]);
        assert_fails(tap_query_parse(&query, text, &err), TAP_ERR_ARGUMENT, err, bad[i][1]);
    }
    char many[400] = "/x?";
    for (size_t i = 0, n = 3; i <= TAP_QUERY_PAIRS; i++)
        n += (size_t)snprintf(many + n, sizeof many - n, "a%zu&", i);
    assert_fails(tap_query_parse(&query, many, &err), TAP_ERR_LIMIT, err, "more than 32");
}

/* ---- multipart --------------------------------------------------------------------------------
 */

static tap_status parse(tap_part parts[TAP_PARTS], size_t *n_parts, const char *type, char *body,
                        size_t n_body, tap_error *err)
{
    char boundary[TAP_BOUNDARY + 1];
    tap_status status = tap_multipart_boundary(boundary, type, err);
    if (status != TAP_OK)
        return status;
    return tap_multipart_parse(parts, n_parts, (uint8_t *)body, n_body, boundary, err);
}

static void forms_are_read(void **state)
{
    (void)state;
    tap_part parts[TAP_PARTS];
    size_t n_parts;
    tap_error err;
    /* A preamble, an epilogue, data with line breaks, a NUL and something like the boundary. */
    char body[] = "preamble\r\n--x\r\n"
                  "Content-Disposition: form-data; name=\"image\"; filename=\"a;\\\"b.png\"\r\n"
                  "Content-Type: image/png\r\n\r\n\0\r\n\r\n--y\r\n-\r\n--x  \r\n"
                  "CONTENT-DISPOSITION:form-data;name=size\r\n\r\n64x64\r\n--x\r\n"
                  "Content-Disposition: form-data; name=none\r\n\r\n\r\n--x--\r\nepilogue";
    assert_ok(
        parse(parts, &n_parts, "multipart/form-data; boundary=x", body, sizeof body - 1, &err),
        err);
    assert_int_equal(n_parts, 3);
    assert_string_equal(parts[0].name, "image");
    assert_int_equal(parts[0].size, 11);
    assert_memory_equal(parts[0].data, "\0\r\n\r\n--y\r\n-", 11);
    assert_string_equal(parts[1].name, "size");
    assert_int_equal(parts[1].size, 5);
    assert_string_equal(parts[2].name, "none");
    assert_int_equal(parts[2].size, 0);
    char quoted[] = "--a b\r\nContent-Disposition: form-data; name=i\r\n\r\nx\r\n--a b--";
    assert_ok(parse(parts, &n_parts, "multipart/form-data; charset=utf-8 ; Boundary=\"a b\"",
                    quoted, sizeof quoted - 1, &err),
              err);
    assert_int_equal(n_parts, 1);
}

static void every_cut_of_a_form_is_refused(void **state)
{
    (void)state;
    static const char whole[] = "--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--x\r\n"
                                "Content-Disposition: form-data; name=b\r\n\r\n2\r\n--x--";
    for (size_t n = 0; n < sizeof whole - 1; n++) {
        tap_part parts[TAP_PARTS];
        size_t n_parts;
        tap_error err;
        char *body = malloc(n + 1);
        memcpy(body, whole, n);
        assert_int_not_equal(
            parse(parts, &n_parts, "multipart/form-data; boundary=x", body, n, &err), TAP_OK);
        free(body);
    }
}

/* ---- JSON -------------------------------------------------------------------------------------
 */

static void pictures_are_decoded_where_they_lie(void **state)
{
    (void)state;
    static const char *const names[] = {"image_a", "image_b"};
    char body[] = "{\"image_b\": \"Zm9v\", \"max_keypoints\": 7.0, \"size\": \"64x40\", "
                  "\"image_a\": \"YmFy\\/w=\\u003d\", \"x\": {\"image_a\": 5}}";
    tap_wish wish = {0};
    tap_slice slices[2] = {{0}};
    tap_error err;
    tap_superpoint_options_init(&wish.superpoint);
    assert_ok(tap_json_request(&wish, &limits, slices, names, 2, body, sizeof body - 1, &err), err);
    assert_int_equal(slices[0].size, 4);
    assert_memory_equal(slices[0].data, "bar\xff", 4);
    assert_memory_equal(slices[1].data, "foo", 3);
    for (size_t i = 0; i < 2; i++)
        assert_true(slices[i].data >= (uint8_t *)body &&
                    slices[i].data < (uint8_t *)body + sizeof body);
    assert_int_equal(wish.superpoint.max_keypoints, 7);
    assert_int_equal(wish.superpoint.width, 64);
    assert_int_equal(wish.superpoint.height, 40);
    assert_false(wish.descriptors_given);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(base64_is_read),
                                       cmocka_unit_test(base64_works_in_place),
                                       cmocka_unit_test(queries_are_read),
                                       cmocka_unit_test(forms_are_read),
                                       cmocka_unit_test(every_cut_of_a_form_is_refused),
                                       cmocka_unit_test(pictures_are_decoded_where_they_lie)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
