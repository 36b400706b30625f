/* What answers are written with: numbers, strings, base64, metrics, log lines. */
#include "check.h"

#include "server/answer.h"
#include "server/log.h"
#include "server/metrics.h"

#include "core/core.h"

#include <json-c/json.h>
#include <math.h>

/* Not inlined: GCC 12 would take the text for a local of this function. */
__attribute__((noinline)) static char *take(tap_text *text)
{
    char *data = NULL;
    tap_error err;
    assert_ok(tap_text_take(text, &data, NULL, &err), err);
    return data;
}

/* ---- numbers ----------------------------------------------------------------------------------
 */

/* Digits of a decimal without its sign, point, exponent and outer zeros. */
static size_t count_digits(const char *text)
{
    size_t n = 0, zeros = 0;
    for (; *text != '\0' && *text != 'e'; text++) {
        if (*text < '0' || *text > '9')
            continue;
        if (*text != '0') {
            n += n > 0 ? zeros + 1 : 1;
            zeros = 0;
        } else {
            zeros++;
        }
    }
    return n;
}

/* It reads back to the same bits, JSON takes it as a number with a fraction, and no decimal of
 * fewer digits reads back. The C library's own conversions are the judge. */
static void check_shortest(float value)
{
    char text[TAP_F32_CHARS + 1], fewer[40];
    size_t n = tap_f32_shortest(text, value);
    assert_true(n > 0 && n < TAP_F32_CHARS);
    text[n] = '\0';
    float back = strtof(text, NULL);
    if (memcmp(&back, &value, sizeof back) != 0)
        fail_msg("%.9g became %s", (double)value, text);
    if (strpbrk(text, ".e") == NULL || strspn(text, "-0123456789.e+") != n)
        fail_msg("%.9g became %s", (double)value, text);
    size_t digits = count_digits(text);
    if (digits > 1) {
        snprintf(fewer, sizeof fewer, "%.*e", (int)digits - 2, (double)value);
        if (strtof(fewer, NULL) == value)
            fail_msg("%s is shorter than %s", fewer, text);
    }
}

static void floats_are_the_shortest_that_read_back(void **state)
{
    (void)state;
    static const float known[] = {0,
                                  -0.0f,
                                  1,
                                  -1,
                                  0.1f,
                                  0.005f,
                                  610,
                                  16777216,
                                  3.4028235e38f,
                                  1.1754944e-38f,
                                  1e-45f,
                                  0.3f,
                                  1e10f,
                                  9.999999e6f,
                                  123456.79f,
                                  8589934592.0f,
                                  1e23f};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        check_shortest(known[i]);
    for (uint64_t i = 1; i <= 200000; i++) {
        uint32_t bits = (uint32_t)(tap_splitmix64(7, i) >> 32);
        float value;
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value))
            check_shortest(value);
        /* And of the sizes that scores and positions have. */
        check_shortest((float)(bits >> 8) / 16777216.0f);
        check_shortest((float)(bits >> 20) * 1.0671875f);
    }
    char text[TAP_F32_CHARS];
    assert_memory_equal(text, "610.0", tap_f32_shortest(text, 610));
    assert_memory_equal(text, "0.005", tap_f32_shortest(text, 0.005f));
}

static void doubles_read_back(void **state)
{
    (void)state;
    static const double values[] = {0, 0.1, 1.0 / 3, 480.0 / 427, 1e300, 5e-324, -2.5, 700 / 480.0};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        tap_text text = {0};
        tap_text_field_f64(&text, "x", values[i]);
        char *data = take(&text);
        assert_memory_equal(data, "\"x\":", 4);
        assert_true(strtod(data + 4, NULL) == values[i]);
        free(data);
    }
    tap_text text = {0};
    tap_text_field_f64(&text, "x", (double)NAN);
    tap_text_field_f64(&text, "y", (double)INFINITY);
    char *data = take(&text);
    assert_string_equal(data, "\"x\":null,\"y\":null");
    free(data);
}

/* ---- strings ----------------------------------------------------------------------------------
 */

/* json-c reads what was written; bytes that are no UTF-8 became U+FFFD. */
static void check_string(const char *bytes, size_t n, const char *wanted, size_t n_wanted)
{
    tap_text text = {0};
    tap_text_string(&text, bytes, n);
    char *data = take(&text);
    json_object *object = json_tokener_parse(data);
    assert_non_null(object);
    assert_int_equal(json_object_get_string_len(object), n_wanted);
    assert_memory_equal(json_object_get_string(object), wanted, n_wanted);
    json_object_put(object);
    free(data);
}

#define CHECK_STRING(bytes, wanted) \
    check_string(bytes, sizeof(bytes) - 1, wanted, sizeof(wanted) - 1)

static void strings_are_valid_json(void **state)
{
    (void)state;
    char all[128];
    for (int i = 0; i < 128; i++)
        all[i] = (char)i;
    check_string(all, sizeof all, all, sizeof all);
    CHECK_STRING("\"\\/\b\f\n\r\t\x1f\x7f", "\"\\/\b\f\n\r\t\x1f\x7f");
    CHECK_STRING("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    CHECK_STRING("a\xff"
                 "b",
                 "a\xef\xbf\xbd"
                 "b");
    CHECK_STRING("\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd");                 /* cut */
    CHECK_STRING("\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd");                 /* overlong */
    CHECK_STRING("\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); /* a surrogate */
    CHECK_STRING("", "");
}

static void base64_as_the_rfc_has_it(void **state)
{
    (void)state;
    /* RFC 4648, section 10. */
    static const char *const vectors[][2] = {{"", ""},
                                             {"f", "Zg=="},
                                             {"fo", "Zm8="},
                                             {"foo", "Zm9v"},
                                             {"foob", "Zm9vYg=="},
                                             {"fooba", "Zm9vYmE="},
                                             {"foobar", "Zm9vYmFy"}};
    for (size_t i = 0; i < 7; i++) {
        tap_text text = {0};
        tap_text_base64(&text, (const uint8_t *)vectors[i][0], strlen(vectors[i][0]));
        char *data = take(&text);
        assert_string_equal(data, vectors[i][1]);
        free(data);
    }
}

/* ---- answers ----------------------------------------------------------------------------------
 */

static tap_status answer(const tap_keypoints_view *view, char **out, tap_error *err)
{
    tap_superpoint_options options;
    tap_engine_info engine = {.size = sizeof engine, .backend = "cpu", .isa = "avx2"};
    tap_text text = {0};
    tap_superpoint_options_init(&options);
    tap_status status =
        tap_answer_points(&text, "a \"name\"\n", view, &options, NULL, 0, &engine, err);
    if (status == TAP_OK)
        *out = take(&text);
    tap_text_free(&text);
    return status;
}

static void an_answer_never_holds_a_nan(void **state)
{
    (void)state;
    float xy[] = {1, 2, 3, 4}, scores[] = {0.5f, 0.25f};
    tap_keypoints_view view = {.size = sizeof view, .count = 2, .xy = xy, .scores = scores};
    tap_error err;
    char *text = NULL;
    assert_ok(answer(&view, &text, &err), err);
    json_object *object = json_tokener_parse(text);
    assert_non_null(object);
    assert_string_equal(json_object_get_string(json_object_object_get(object, "file")),
                        "a \"name\"\n");
    assert_int_equal(json_object_array_length(json_object_object_get(object, "keypoints")), 2);
    json_object_put(object);
    free(text);
    scores[1] = NAN;
    assert_fails(answer(&view, &text, &err), TAP_ERR_INTERNAL, err, "score of point 1");
    scores[1] = 0.25f, xy[0] = INFINITY;
    assert_fails(answer(&view, &text, &err), TAP_ERR_INTERNAL, err, "position of point 0");
    view.count = 0;
    assert_ok(answer(&view, &text, &err), err);
    assert_non_null(strstr(text, "\"num_keypoints\":0,\"keypoints\":[],\"scores\":[]"));
    free(text);
}

/* ---- metrics and log ---------------------------------------------------------------------------
 */

static double sample(const char *text, const char *name)
{
    char line[200];
    snprintf(line, sizeof line, "\n%s ", name);
    const char *found = strstr(text, line);
    if (found == NULL)
        fail_msg("no %s", name);
    return strtod(found + strlen(line), NULL);
}

static void metrics_add_up(void **state)
{
    (void)state;
    tap_metrics metrics;
    tap_gauges gauges = {
        .queue_depth = 3, .queue_length = 64, .in_flight = 4, .ready = true, .isa = "avx2"};
    tap_text text = {0};
    tap_metrics_init(&metrics);
    tap_metrics_request(&metrics, TAP_ROUTE_PREDICT, 200, 30, 100, 1000);
    tap_metrics_request(&metrics, TAP_ROUTE_PREDICT, 200, 70, 100, 1000);
    tap_metrics_request(&metrics, TAP_ROUTE_PREDICT, 418, 20000, 1, 1);
    tap_metrics_keypoints(&metrics, 5);
    tap_metrics_dropped(&metrics);
    tap_metrics_write(&metrics, &gauges, &text);
    char *data = take(&text);
    assert_true(sample(data, "tapetum_http_requests_total{route=\"/predict\",code=\"200\"}") == 2);
    assert_true(sample(data, "tapetum_http_requests_total{route=\"/predict\",code=\"other\"}") ==
                1);
    const char *bucket = "tapetum_http_request_seconds_bucket{route=\"/predict\",le=\"%s\"}";
    static const struct {
        const char *bound;
        double count;
    } wanted[] = {{"0.025", 0}, {"0.05", 1}, {"0.1", 2}, {"10", 2}, {"+Inf", 3}};
    for (size_t i = 0; i < 5; i++) {
        char name[100];
        snprintf(name, sizeof name, bucket, wanted[i].bound);
        assert_true(sample(data, name) == wanted[i].count);
    }
    assert_true(sample(data, "tapetum_http_request_seconds_count{route=\"/predict\"}") == 3);
    assert_true(fabs(sample(data, "tapetum_http_request_seconds_sum{route=\"/predict\"}") - 20.1) <
                1e-6);
    assert_true(sample(data, "tapetum_queue_depth") == 3);
    assert_true(sample(data, "tapetum_keypoints_total") == 5);
    assert_true(sample(data, "tapetum_received_body_bytes_total") == 201);
    assert_true(sample(data, "process_resident_memory_bytes") > 100000);
    free(data);
    tap_metrics_destroy(&metrics);
}

/* A hostile id or path cannot begin a line of its own. */
static void log_lines_stay_lines(void **state)
{
    (void)state;
    for (int json = 0; json < 2; json++) {
        int ends[2];
        char line[2000];
        assert_int_equal(pipe(ends), 0);
        tap_log log = {.fd = ends[1], .json = json != 0};
        tap_log_request request = {.method = "GET\n",
                                   .path = "/a b\"\\\x1b[31m\n2026",
                                   .id = "\r\n",
                                   .code = 200,
                                   .ms = 1.5};
        tap_log_access(&log, &request);
        ssize_t n = read(ends[0], line, sizeof line - 1);
        assert_true(n > 0);
        line[n] = '\0';
        assert_true(strchr(line, '\n') == line + n - 1 && strpbrk(line, "\r\x1b") == NULL);
        if (json) {
            json_object *object = json_tokener_parse(line);
            assert_non_null(object);
            assert_string_equal(json_object_get_string(json_object_object_get(object, "path")),
                                request.path);
            json_object_put(object);
        }
        close(ends[0]), close(ends[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(floats_are_the_shortest_that_read_back),
                                       cmocka_unit_test(doubles_read_back),
                                       cmocka_unit_test(strings_are_valid_json),
                                       cmocka_unit_test(base64_as_the_rfc_has_it),
                                       cmocka_unit_test(an_answer_never_holds_a_nan),
                                       cmocka_unit_test(metrics_add_up),
                                       cmocka_unit_test(log_lines_stay_lines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
