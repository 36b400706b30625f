/* What operators read: the metrics in the grammar of Prometheus' text format 0.0.4, and log lines
 * that stay lines whatever a client or a file's name puts into them; and answers as json-c reads
 * them. */
#include "check.h"

#include "server/answer.h"
#include "server/log.h"
#include "server/metrics.h"

#include <json-c/json.h>
#include <math.h>
#include <regex.h>
#include <sys/mman.h>

/* ---- metrics ------------------------------------------------------------------------------- */

static bool matches(const char *pattern, const char *line)
{
    regex_t regex;
    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    bool found = regexec(&regex, line, 0, NULL, 0) == 0;
    regfree(&regex);
    return found;
}

/* The reading side of a scrape: what has been seen of the family and the histogram at hand. */
struct scrape {
    char family[80], type[16], series[160];
    double last; /* bucket */
    size_t n_samples, n_histograms;
    bool inf;
};

static void read_bucket(struct scrape *scrape, const char *line)
{
    char series[160];
    double count = strtod(strrchr(line, ' ') + 1, NULL);
    const char *le = strstr(line, "le=\"");
    assert_non_null(le);
    snprintf(series, sizeof series, "%.*s", (int)(le - line), line);
    if (strcmp(series, scrape->series) != 0) {
        strcpy(scrape->series, series);
        scrape->last = 0;
    }
    if (count < scrape->last)
        fail_msg("%s: fewer than in the bucket before", line);
    scrape->last = count;
    scrape->inf = strstr(le, "+Inf") != NULL;
}

static void read_line(struct scrape *scrape, const char *line)
{
    const char *number = " -?([0-9]+(\\.[0-9]+)?(e[+-]?[0-9]+)?|\\+Inf|NaN)$";
    const char *name = "^[a-zA-Z_:][a-zA-Z0-9_:]*";
    const char *labels = "(\\{[a-z_]+=\"[^\"\\]*\"(,[a-z_]+=\"[^\"\\]*\")*\\})?";
    char pattern[300], family[80] = "";
    if (strncmp(line, "# HELP ", 7) == 0) {
        assert_true(matches("^# HELP [a-z_]+ [^\\]+$", line));
        sscanf(line, "# HELP %79s", scrape->family);
        return;
    }
    if (line[0] == '#') {
        assert_true(matches("^# TYPE [a-z_]+ (counter|gauge|histogram)$", line));
        sscanf(line, "# TYPE %79s %15s", family, scrape->type);
        assert_string_equal(family, scrape->family);
        return;
    }
    snprintf(pattern, sizeof pattern, "%s%s%s", name, labels, number);
    if (!matches(pattern, line))
        fail_msg("no sample: %s", line);
    scrape->n_samples++;
    size_t n = strcspn(line, "{ "), n_family = strlen(scrape->family);
    assert_memory_equal(line, scrape->family, n_family);
    const char *suffix = line + n_family;
    if (strcmp(scrape->type, "histogram") != 0) {
        assert_int_equal(n, n_family);
        if (strcmp(scrape->type, "counter") == 0)
            assert_true(matches("_total$", scrape->family));
    } else if (strncmp(suffix, "_bucket{", 8) == 0) {
        read_bucket(scrape, line);
    } else if (strncmp(suffix, "_count{", 7) == 0) {
        assert_true(scrape->inf); /* the last bucket was +Inf, and holds all */
        assert_true(strtod(strrchr(line, ' ') + 1, NULL) == scrape->last);
        scrape->n_histograms++;
    } else {
        assert_memory_equal(suffix, "_sum{", 5);
    }
}

static void metrics_are_prometheus_text(void **state)
{
    (void)state;
    tap_metrics metrics;
    tap_gauges gauges = {.ready = true, .started_unix = 1764500000.5};
    tap_text text = {0};
    tap_error err;
    char *data = NULL, *rest;
    tap_metrics_init(&metrics);
    for (int route = 0; route < TAP_N_ROUTES; route++)
        for (unsigned code = 200; code < 600; code += 3)
            tap_metrics_request(&metrics, (tap_route)route, code, pow(1.05, code - 200.0), code, 1);
    for (int stage = 0; stage < TAP_N_STAGES; stage++)
        for (int i = 0; i < 20; i++)
            tap_metrics_stage(&metrics, (tap_stage)stage, 0.5 * (1 << i));
    tap_metrics_write(&metrics, &gauges, &text);
    tap_metrics_destroy(&metrics);
    assert_ok(tap_text_take(&text, &data, NULL, &err), err);
    assert_int_equal(data[strlen(data) - 1], '\n');
    struct scrape scrape = {0};
    for (char *line = strtok_r(data, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        read_line(&scrape, line);
    assert_int_equal(scrape.n_histograms, TAP_N_ROUTES + TAP_N_STAGES);
    assert_true(scrape.n_samples > 300);
    free(data);
}

/* A bucket holds what is at its bound too: "le" is less or equal. */
static void a_bound_belongs_to_its_bucket(void **state)
{
    (void)state;
    tap_metrics metrics;
    tap_gauges gauges = {0};
    tap_text text = {0};
    tap_error err;
    char *data = NULL;
    tap_metrics_init(&metrics);
    tap_metrics_stage(&metrics, TAP_STAGE_FORWARD, 250);
    tap_metrics_stage(&metrics, TAP_STAGE_FORWARD, 250.001);
    tap_metrics_write(&metrics, &gauges, &text);
    tap_metrics_destroy(&metrics);
    assert_ok(tap_text_take(&text, &data, NULL, &err), err);
    assert_non_null(strstr(data, "_bucket{stage=\"forward\",le=\"0.1\"} 0\n"));
    assert_non_null(strstr(data, "_bucket{stage=\"forward\",le=\"0.25\"} 1\n"));
    assert_non_null(strstr(data, "_bucket{stage=\"forward\",le=\"0.5\"} 2\n"));
    free(data);
}

/* ---- log ----------------------------------------------------------------------------------- */

/* What was written to the log's file, which is emptied. */
static void take_log(const tap_log *log, char *out, size_t size)
{
    ssize_t n = pread(log->fd, out, size - 1, 0);
    assert_true(n > 0);
    out[n] = '\0';
    assert_int_equal(ftruncate(log->fd, 0), 0);
    assert_int_equal(lseek(log->fd, 0, SEEK_SET), 0);
}

/* One line; nothing in it that a terminal would obey, C1 controls in UTF-8 included. */
static void check_line(const char *line)
{
    size_t n = strlen(line);
    assert_true(n > 0 && line[n - 1] == '\n');
    for (size_t i = 0; i + 1 < n; i++) {
        unsigned char c = (unsigned char)line[i], next = (unsigned char)line[i + 1];
        if (c < 0x20 || c == 0x7f || (c == 0xc2 && next >= 0x80 && next < 0xa0))
            fail_msg("byte 0x%02x at %zu of %s", c, i, line);
    }
}

static const char *const hostile[] = {
    "\n2026-12-01T00:00:00.000Z INFO forged",
    "\r\n\r\n",
    "\"} {\"code\":200,\"x\":\"",
    "\x1b[2J\x1b]0;title\x07",
    "\xc2\x9b\x32J", /* CSI as one C1 character */
    "\xff\xfe\xc0\x80\xed\xa0\x80",
    "%n%s%00%0a",
    "\\\\\"\\",
    "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
    "\x7f\x01\x08\x0b\x0c",
    "",
};

/* As JSON, what json-c reads is what was given, but for bytes that are no UTF-8. */
static void check_json(const char *line, const char *name, const char *given)
{
    enum json_tokener_error error;
    json_object *object = json_tokener_parse_verbose(line, &error), *value;
    if (object == NULL)
        fail_msg("%s: %s", json_tokener_error_desc(error), line);
    assert_true(json_object_object_get_ex(object, name, &value));
    assert_true(json_object_object_get_ex(object, "time", NULL));
    if (strchr(given, '\xff') == NULL)
        assert_string_equal(json_object_get_string(value), given);
    else
        assert_non_null(strstr(json_object_get_string(value), "\xef\xbf\xbd\xef\xbf\xbd"));
    json_object_put(object);
}

static void log_lines_stay_lines(void **state)
{
    (void)state;
    char line[8192];
    tap_log log = {.fd = memfd_create("log", MFD_CLOEXEC)};
    assert_true(log.fd >= 0);
    for (int json = 0; json < 2; json++)
        for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
            log.json = json == 1;
            tap_log_request request = {
                .method = hostile[i], .path = hostile[i], .id = hostile[i], .code = 200, .ms = 1};
            tap_log_access(&log, &request);
            take_log(&log, line, sizeof line);
            check_line(line);
            if (json == 1) {
                check_json(line, "method", hostile[i]);
                check_json(line, "path", hostile[i]);
                check_json(line, "id", hostile[i]);
            }
            tap_log_line(&log, TAP_LOG_WARNING, "weights from %s", hostile[i]);
            take_log(&log, line, sizeof line);
            check_line(line);
            if (json == 1) {
                char words[100];
                snprintf(words, sizeof words, "weights from %s", hostile[i]);
                check_json(line, "message", words);
            } else {
                assert_true(matches("^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
                                    "\\.[0-9]{3}Z WARNING weights from ",
                                    line));
            }
        }
    close(log.fd);
}

/* A long path is cut, not the line; a closed log is no error. */
static void long_and_lost_lines(void **state)
{
    (void)state;
    char line[8192], path[5000];
    tap_log log = {.fd = memfd_create("log", MFD_CLOEXEC), .json = true};
    for (size_t i = 0; i + 1 < sizeof path; i++)
        path[i] = "\xe2\x82\xac"[i % 3];
    path[sizeof path - 1] = '\0';
    tap_log_request request = {.method = "GET", .path = path, .id = "i", .code = 404};
    tap_log_access(&log, &request);
    take_log(&log, line, sizeof line);
    check_line(line);
    check_json(line, "id", "i");
    assert_true(strlen(line) < 500);
    tap_log_line(&log, TAP_LOG_INFO, "%s", path);
    take_log(&log, line, sizeof line);
    check_line(line);
    assert_true(strlen(line) < 1200);
    close(log.fd);
    log.fd = -1;
    tap_log_access(&log, &request);
}

/* ---- answers ------------------------------------------------------------------------------- */

static double number_at(json_object *object, const char *name, size_t i, int j)
{
    json_object *array = json_object_object_get(object, name);
    json_object *value = json_object_array_get_idx(array, i);
    if (j >= 0)
        value = json_object_array_get_idx(value, (size_t)j);
    assert_true(json_object_is_type(value, json_type_double)); /* never an integer */
    return json_object_get_double(value);
}

static void answers_carry_their_numbers(void **state)
{
    (void)state;
    float xy[] = {0, 0, 639.5f, 0.1f, 1e-7f, 8191.999f}, scores[] = {1, 0.33333334f, 1e-10f};
    float rows[] = {0.6f, 0.8f, 1, 0, 0, 1};
    uint8_t npz[] = {0xfb, 0xff, 0xbf, 'f'};
    tap_keypoints_view view = {.size = sizeof view,
                               .count = 3,
                               .xy = xy,
                               .scores = scores,
                               .descriptors = rows,
                               .descriptor_dim = 2,
                               .original_width = 700,
                               .original_height = 427,
                               .input_width = 640,
                               .input_height = 480,
                               .scale_x = 700 / 640.0,
                               .scale_y = 427 / 480.0,
                               .exif_orientation = 6,
                               .total_ms = 12.3456};
    tap_superpoint_options options;
    tap_engine_info engine = {.size = sizeof engine, .backend = "cpu", .isa = "avx2"};
    tap_error err;
    char *data = NULL;
    tap_superpoint_options_init(&options);
    tap_text text = {0};
    assert_ok(tap_answer_points(&text, "\xff", &view, &options, npz, sizeof npz, &engine, &err),
              err);
    assert_ok(tap_text_take(&text, &data, NULL, &err), err);
    assert_null(strchr(data, '\n'));
    json_object *answer = json_tokener_parse(data), *part;
    assert_non_null(answer);
    assert_string_equal(json_object_get_string(json_object_object_get(answer, "file")),
                        "\xef\xbf\xbd");
    assert_int_equal(json_object_get_int(json_object_object_get(answer, "num_keypoints")), 3);
    for (size_t i = 0; i < 3; i++) {
        assert_true((float)number_at(answer, "keypoints", i, 0) == xy[2 * i]);
        assert_true((float)number_at(answer, "keypoints", i, 1) == xy[2 * i + 1]);
        assert_true((float)number_at(answer, "scores", i, -1) == scores[i]);
    }
    part = json_object_object_get(answer, "scale");
    assert_true(json_object_get_double(json_object_object_get(part, "x")) == 700 / 640.0);
    assert_true(json_object_get_double(json_object_object_get(part, "y")) == 427 / 480.0);
    part = json_object_object_get(answer, "image_size");
    assert_int_equal(json_object_get_int(json_object_object_get(part, "width")), 640);
    part = json_object_object_get(answer, "descriptors");
    assert_string_equal(json_object_get_string(json_object_object_get(part, "data")), "+/+/Zg==");
    assert_string_equal(json_object_get_string(json_object_object_get(part, "shape")), "[ 3, 2 ]");
    json_object_put(answer);
    free(data);
    rows[3] = NAN;
    text = (tap_text){0};
    assert_fails(tap_answer_points(&text, NULL, &view, &options, npz, sizeof npz, &engine, &err),
                 TAP_ERR_INTERNAL, err, "descriptor of point 1 is not a number");
    tap_text_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_are_prometheus_text),
        cmocka_unit_test(a_bound_belongs_to_its_bucket), cmocka_unit_test(log_lines_stay_lines),
        cmocka_unit_test(long_and_lost_lines), cmocka_unit_test(answers_carry_their_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
