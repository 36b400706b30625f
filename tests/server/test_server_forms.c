/* base64, query strings and multipart bodies, further: against libcrypto, and what RFC 9112, 7578
 * and 2046 say of the corners. */
#include "check.h"

#include "server/request.h"

#include "core/core.h"

#include <openssl/evp.h>

/* ---- base64 -------------------------------------------------------------------------------- */

/* libcrypto's text of random bytes, in either alphabet, without its padding and with white space in
 * random places, decodes to those bytes, also onto itself. */
static void base64_undoes_libcrypto(void **state)
{
    (void)state;
    uint64_t turn = 0;
    for (size_t n = 0; n < 300; n++) {
        uint8_t bytes[300], out[300];
        char plain[420], text[1300];
        size_t n_text = 0, n_out;
        tap_error err;
        for (size_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)tap_splitmix64(n, i);
        size_t n_plain = (size_t)EVP_EncodeBlock((unsigned char *)plain, bytes, (int)n);
        bool url = n % 2 == 1, bare = n % 5 == 0, spaces = n % 3 == 0;
        for (size_t i = 0; i < n_plain; i++) {
            char c = plain[i];
            if (bare && c == '=')
                break;
            uint64_t random = tap_splitmix64(99, ++turn);
            for (size_t j = 0; spaces && j < random % 3; j++)
                text[n_text++] = " \t\r\n\v\f"[(random >> (8 + 8 * j)) % 6];
            text[n_text++] = (char)(url && c == '+' ? '-' : url && c == '/' ? '_' : c);
        }
        char *exact = malloc(n_text + 1); /* so that a sanitizer sees a byte too far */
        assert_non_null(exact);
        memcpy(exact, text, n_text);
        assert_ok(tap_base64_decode(out, &n_out, exact, n_text, &err), err);
        assert_int_equal(n_out, n);
        assert_memory_equal(out, bytes, n);
        assert_ok(tap_base64_decode((uint8_t *)exact, &n_out, exact, n_text, &err), err);
        assert_int_equal(n_out, n);
        assert_memory_equal(exact, bytes, n);
        free(exact);
    }
}

static void base64_that_is_none(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"data:image/png;base64,Zm9*", "'*' at position 25"},
        {"Zm9v\x7f", "byte 0x7f at position 4"},
        {"Zm8=v", "'v' at position 4"},
        {"Zm 9v\r\n.", "'.' at position 7"},
        {"data:;base6,Zm9v", "data: URL"},
        {"data:base64,Zm9v", "data: URL"},
        {"data:", "without a comma"},
        {"=", "padding"},
        {"==", "padding"},
        {"====", "padding"},
        {"Zm8==", "padding"},
        {"Zg===", "padding"},
        {"Zm9v====", "padding"},
        {"A", "left over"},
        {"Z===", "left over"},
        {"Zm9v A", "plus signs"},
        {"http://a/b.png", "':' at position 4"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint8_t out[64];
        size_t n_out;
        tap_error err;
        assert_fails(tap_base64_decode(out, &n_out, wrong[i][0], strlen(wrong[i][0]), &err),
                     TAP_ERR_FORMAT, err, wrong[i][1]);
    }
}

/* ---- query --------------------------------------------------------------------------------- */

static void check_path(const char *target, const char *path, size_t n_pairs)
{
    char text[128];
    tap_query query;
    tap_error err;
    snprintf(text, sizeof text, "%s", target);
    assert_ok(tap_query_parse(&query, text, &err), err);
    assert_string_equal(query.path, path);
    assert_int_equal(query.n_pairs, n_pairs);
}

static void targets_are_taken_apart(void **state)
{
    (void)state;
    check_path("/predict", "/predict", 0);
    check_path("/predict?", "/predict", 0);
    check_path("/predict?a?b=/c", "/predict", 1);
    check_path("/a%2fb?%3d=%26", "/a%2fb", 1); /* the path as sent */
    check_path("/a#?b=1", "/a", 0);
    check_path("*", "*", 0);
    check_path("", "", 0);
    check_path("/?&&&", "/", 0);
    check_path("HTTP://h/p?a", "/p", 1);
    check_path("http://h", "", 0);
    /* RFC 3986, section 3.2: a "?" or "#" ends the authority too. */
    check_path("http://h?a=/predict", "", 1);
    check_path("http://h#/predict", "", 0);
    check_path("//h/p", "//h/p", 0);
}

static void queries_have_limits(void **state)
{
    (void)state;
    tap_query query;
    tap_error err;
    char many[400] = "/x?";
    size_t n = 3;
    for (size_t i = 0; i < TAP_QUERY_PAIRS; i++)
        n += (size_t)snprintf(many + n, sizeof many - n, "%sa%zu=%zu", i > 0 ? "&" : "", i, i);
    assert_ok(tap_query_parse(&query, many, &err), err);
    assert_int_equal(query.n_pairs, TAP_QUERY_PAIRS);
    assert_string_equal(query.pairs[31].name, "a31");
    assert_string_equal(query.pairs[31].value, "31");
    static const char *const wrong[][2] = {{"/x?a=1&a=1", "a: given twice"},
                                           {"/x?a&a", "a: given twice"},
                                           {"/x?a+b&a%20b", "a b: given twice"},
                                           {"/x?=1&=2", "given twice"},
                                           {"/x?%00=1", "NUL"},
                                           {"/x?a%=1", "escape"},
                                           {"/x?a=%4", "escape"},
                                           {"/x?a=%-1", "escape"},
                                           {"/x?a=% 41", "escape"},
                                           {"/x?a=1%", "escape"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *exact = strdup(wrong[i][0]);
        assert_fails(tap_query_parse(&query, exact, &err), TAP_ERR_ARGUMENT, err, wrong[i][1]);
        free(exact);
    }
}

/* ---- multipart ----------------------------------------------------------------------------- */

static void boundaries_are_found(void **state)
{
    (void)state;
    static const char *const right[][2] = {
        {"multipart/form-data; boundary=abc", "abc"},
        {"multipart/form-data;boundary=abc", "abc"},
        {"multipart/form-data ; boundary=abc ; charset=utf-8", "abc"},
        {"multipart/form-data; charset=\"a;boundary=no\"; BOUNDARY=\"abc\"", "abc"},
        {"multipart/form-data; boundary=\"a b;c\"", "a b;c"},
        {"multipart/form-data; boundary=\"a\\\"b\"", "a\"b"},
        {"multipart/form-data; boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW",
         "----WebKitFormBoundary7MA4YWxkTrZu0gW"},
        {"multipart/form-data; xboundary=no; boundary='()+_,-./:=?", "'()+_,-./:=?"}};
    char out[TAP_BOUNDARY + 1], type[1024] = "multipart/form-data; boundary=";
    tap_error err;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        assert_ok(tap_multipart_boundary(out, right[i][0], &err), err);
        assert_string_equal(out, right[i][1]);
    }
    static const char *const wrong[] = {"multipart/form-data",
                                        "multipart/form-data;",
                                        "multipart/form-data; boundary",
                                        "multipart/form-data; boundary=",
                                        "multipart/form-data; boundary=\"\"",
                                        "multipart/form-data; boundary=\"abc",
                                        "multipart/form-data; =abc",
                                        "multipart/form-data; ; boundary=abc",
                                        "multipart/form-data boundary=abc",
                                        ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(tap_multipart_boundary(out, wrong[i], &err), TAP_ERR_ARGUMENT, err,
                     "boundary");
    /* RFC 2046, section 5.1.1: at most 70 characters. */
    size_t n = strlen(type);
    memset(type + n, 'b', TAP_BOUNDARY);
    assert_ok(tap_multipart_boundary(out, type, &err), err);
    assert_int_equal(strlen(out), 70);
    type[n + TAP_BOUNDARY] = 'b';
    assert_fails(tap_multipart_boundary(out, type, &err), TAP_ERR_ARGUMENT, err, "over 70");
    memset(type + n, 'b', sizeof type - n - 1);
    assert_fails(tap_multipart_boundary(out, type, &err), TAP_ERR_ARGUMENT, err, "bytes long");
}

struct form {
    tap_part parts[TAP_PARTS];
    size_t n_parts;
    tap_error err;
    uint8_t *body;
};

static tap_status read_form(struct form *form, const char *body, size_t n)
{
    form->body = malloc(n + 1); /* never n: malloc(0) */
    assert_non_null(form->body);
    memcpy(form->body, body, n);
    return tap_multipart_parse(form->parts, &form->n_parts, form->body, n, "x", &form->err);
}

static void refuse_form(const char *body, size_t n, tap_status status, const char *words)
{
    struct form form;
    if (read_form(&form, body, n) != status)
        fail_msg("%s is let pass", body);
    if (strstr(form.err.message, words) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", body, form.err.message, words);
    free(form.body);
}

#define DISPOSITION              "Content-Disposition: form-data; "
#define PART(parameters, data)   "--x\r\n" DISPOSITION parameters "\r\n\r\n" data "\r\n"
#define REFUSE_FORM(body, words) refuse_form(body, sizeof(body) - 1, TAP_ERR_ARGUMENT, words)

static void names_are_found(void **state)
{
    (void)state;
    static const char *const heads[] = {
        DISPOSITION "name=image",
        DISPOSITION "name=\"image\"",
        DISPOSITION "filename=\"a.png\"; name=\"image\"",
        DISPOSITION "filename=\"a; name=\\\"no\\\"\"; name=image",
        DISPOSITION "filename=a.png ; name=image ; x=y",
        DISPOSITION "filename*=UTF-8''%e2%82%ac.png;name=\"image\"",
        "content-disposition:form-data;NAME=image",
        "Content-Type: image/png; name=no\r\n" DISPOSITION "name=image",
        DISPOSITION "name=image\r\nContent-Type: image/png; name=no\r\nX: name=\"no\"",
        DISPOSITION "name=image\r\nContent-Transfer-Encoding: binary",
        "Content-Transfer-Encoding:8BIT\r\n" DISPOSITION "name=image",
    };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        char body[300];
        struct form form;
        int n = snprintf(body, sizeof body, "--x\r\n%s\r\n\r\nbytes\r\n--x--", heads[i]);
        if (read_form(&form, body, (size_t)n) != TAP_OK)
            fail_msg("%s: %s", heads[i], form.err.message);
        assert_int_equal(form.n_parts, 1);
        assert_string_equal(form.parts[0].name, "image");
        assert_int_equal(form.parts[0].size, 5);
        assert_memory_equal(form.parts[0].data, "bytes", 5);
        free(form.body);
    }
}

static void forms_that_are_none(void **state)
{
    (void)state;
    REFUSE_FORM("", "boundary is not in the body");
    REFUSE_FORM("--", "boundary is not in the body");
    REFUSE_FORM("\n--x\r\n",
                "boundary is not in the body"); /* a line feed alone is no line break */
    REFUSE_FORM("a--x\r\n", "boundary is not in the body");
    REFUSE_FORM("--x", "begins like the boundary");
    REFUSE_FORM("--x\n", "begins like the boundary");
    /* RFC 2046, section 5.1.1: the beginning of a line decides, so "--xy" is the boundary as well.
     */
    REFUSE_FORM(PART("name=a", "1\r\n--xy") "--x--", "begins like the boundary");
    REFUSE_FORM("--x\r\n" DISPOSITION "name=a", "it was cut");
    REFUSE_FORM("--x\r\n" DISPOSITION "name=a\r\n\r\n1\r\n--y--", "it was cut");
    REFUSE_FORM("--x\r\n" DISPOSITION "name=a\r\n1\r\n--x--", "head of part 1");
    REFUSE_FORM("--x\r\n" DISPOSITION "na\0me=a\r\n\r\n1\r\n--x--", "NUL");
    REFUSE_FORM(PART("x=a", "1") "--x--", "part 1 has no name");
    REFUSE_FORM(PART("name=a", "1") PART("name=\"\"", "1") "--x--", "part 2 has no name");
    REFUSE_FORM(PART("name=\"a", "1") "--x--", "part 1 has no name");
    REFUSE_FORM("--x\r\nContent-Type: image/png\r\n\r\n1\r\n--x--", "part 1 has no name");
    REFUSE_FORM("--x\r\nContent-Disposition: attachment; name=a\r\n\r\n1\r\n--x--",
                "not form-data");
    REFUSE_FORM("--x\r\nContent-Disposition: form-database; name=a\r\n\r\n1\r\n--x--",
                "not form-data");
    REFUSE_FORM("--x\r\nContent-Transfer-Encoding: base64\r\n" DISPOSITION
                "name=a\r\n\r\nZm9v\r\n--x--",
                "sent as base64");
    REFUSE_FORM(PART("name=a", "1") PART("name=\"a\"", "2") "--x--", "a: given twice");
    /* A part without a head has no name, even if its data looks like a head. */
    REFUSE_FORM("--x\r\n\r\n" DISPOSITION "name=a\r\n\r\n1\r\n--x--", "part 1");
}

static void forms_have_limits(void **state)
{
    (void)state;
    struct form form;
    for (size_t n_parts = TAP_PARTS; n_parts <= TAP_PARTS + 1; n_parts++) {
        char body[4096];
        size_t n = 0;
        for (size_t i = 0; i < n_parts; i++)
            n += (size_t)snprintf(body + n, sizeof body - n, PART("name=a%zu", "%zu"), i, i);
        n += (size_t)snprintf(body + n, sizeof body - n, "--x--");
        tap_status status = read_form(&form, body, n);
        if (n_parts <= TAP_PARTS) {
            assert_ok(status, form.err);
            assert_int_equal(form.n_parts, TAP_PARTS);
            assert_string_equal(form.parts[31].name, "a31");
            assert_memory_equal(form.parts[31].data, "31", 2);
        } else {
            assert_fails(status, TAP_ERR_LIMIT, form.err, "more than 32 parts");
        }
        free(form.body);
    }
    /* Names of 64 bytes, heads of 4096 with the empty line. */
    for (size_t extra = 0; extra < 2; extra++) {
        char body[200], name[80] = {0};
        memset(name, 'n', 64 + extra);
        int n = snprintf(body, sizeof body, PART("name=%s", "1") "--x--", name);
        assert_int_equal(read_form(&form, body, (size_t)n), extra == 0 ? TAP_OK : TAP_ERR_ARGUMENT);
        free(form.body);
    }
    for (size_t extra = 0; extra < 2; extra++) {
        static char body[5000], filler[4100];
        size_t head = 4096 - strlen("X: \r\n" DISPOSITION "name=a\r\n\r\n") + extra;
        memset(filler, 'f', head);
        filler[head] = '\0';
        int n = snprintf(body, sizeof body,
                         "--x\r\nX: %s\r\n" DISPOSITION "name=a\r\n\r\n1\r\n--x--", filler);
        assert_int_equal(read_form(&form, body, (size_t)n), extra == 0 ? TAP_OK : TAP_ERR_ARGUMENT);
        free(form.body);
    }
    /* None at all is a form too; what comes after the end is not read. */
    assert_ok(read_form(&form, "--x--\r\n--x\r\n", 12), form.err);
    assert_int_equal(form.n_parts, 0);
    free(form.body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base64_undoes_libcrypto), cmocka_unit_test(base64_that_is_none),
        cmocka_unit_test(targets_are_taken_apart), cmocka_unit_test(queries_have_limits),
        cmocka_unit_test(boundaries_are_found),    cmocka_unit_test(names_are_found),
        cmocka_unit_test(forms_that_are_none),     cmocka_unit_test(forms_have_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
