/* tapetum check hamer --server: one picture again and again, and where the time goes. */
#include "check.h"

#include <ctype.h>
#include <curl/curl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_STAGES = 16,
    MAX_NAME = 32,
    MAX_ANSWER_BYTES = 64 << 20,
    MAX_DEPTH = 16,
    CONNECT_S = 10,
    ANSWER_S = 600
};

/* A growing text, of a request or an answer. */
struct text {
    char *data;
    size_t n, capacity;
};

/* One stage's times. */
struct stage {
    char name[MAX_NAME];
    double *ms; /* [n_requests] */
};

struct session {
    CURL *curl;
    struct curl_slist *headers;
    char *url;
    struct text request, answer;
    struct stage stages[MAX_STAGES];
    size_t n_stages, n_requests;
    char *first; /* the first answer's numbers, as JSON */
};

static const char round_trip[] = "round_trip";

/* ---- the request --------------------------------------------------------------------------- */

static bool append(struct text *text, const void *data, size_t n)
{
    size_t needed;
    if (!tap_size_add(text->n, n, &needed) || !tap_size_add(needed, 1, &needed))
        return false;
    if (needed > text->capacity) {
        size_t capacity = needed > 2 * text->capacity ? needed : 2 * text->capacity;
        char *moved = realloc(text->data, capacity);
        if (moved == NULL)
            return false;
        text->data = moved;
        text->capacity = capacity;
    }
    memcpy(text->data + text->n, data, n);
    text->n += n;
    text->data[text->n] = '\0';
    return true;
}

/* RFC 4648, section 4. */
static bool append_base64(struct text *text, const uint8_t *data, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t bits = (uint32_t)data[i] << 16;
        bits |= i + 1 < n ? (uint32_t)data[i + 1] << 8 : 0;
        bits |= i + 2 < n ? data[i + 2] : 0;
        const char four[4] = {digits[bits >> 18], digits[bits >> 12 & 63],
                              i + 1 < n ? digits[bits >> 6 & 63] : '=',
                              i + 2 < n ? digits[bits & 63] : '='};
        if (!append(text, four, sizeof four))
            return false;
    }
    return true;
}

/* The contract's JSON, which the accelerator's server takes too. */
static tap_status write_request(struct text *request, const char *picture,
                                const tap_cli_boxes *boxes, tap_error *err)
{
    char around[160];
    tap_bytes bytes;
    TAP_TRY(tap_bytes_read(&bytes, picture, TAP_PICTURE_BYTES, err));
    bool done = append(request, "{\"image\":\"", 10) &&
                append_base64(request, bytes.data, bytes.size) && append(request, "\"", 1);
    tap_bytes_release(&bytes);
    if (boxes->n > 0) {
        const tap_hand_box *box = &boxes->boxes[0].box;
        int n = snprintf(around, sizeof around, ",\"bbox\":[%.9g,%.9g,%.9g,%.9g],\"is_right\":%s",
                         (double)box->x1, (double)box->y1, (double)box->x2, (double)box->y2,
                         box->is_right ? "true" : "false");
        done = done && append(request, around, (size_t)n);
    }
    if (!done || !append(request, "}", 1))
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for the request", picture);
    return TAP_OK;
}

static size_t receive(char *data, size_t one, size_t n, void *user)
{
    struct text *answer = user;
    if (n > MAX_ANSWER_BYTES - answer->n || !append(answer, data, n))
        return 0;
    return one * n;
}

/* The route, if the address has none. */
static char *whole_url(const char *server)
{
    const char *host = strstr(server, "://");
    const char *path = host != NULL ? strchr(host + 3, '/') : strchr(server, '/');
    char *url;
    bool bare = path == NULL || path[1] == '\0';
    if (asprintf(&url, "%s%s", server, path == NULL ? "/predict" : bare ? "predict" : "") < 0)
        return NULL;
    return url;
}

static bool add_header(struct session *session, const char *header)
{
    struct curl_slist *list = curl_slist_append(session->headers, header);
    if (list != NULL)
        session->headers = list;
    return list != NULL;
}

static tap_status open_session(struct session *session, const tap_cli_check_settings *settings,
                               const char *picture, tap_error *err)
{
    const char *token = tap_cli_environment("TAPETUM_TOKEN", NULL);
    char *authorization = NULL;
    TAP_TRY(write_request(&session->request, picture, &settings->boxes, err));
    session->n_requests = settings->n_requests;
    session->url = whole_url(settings->server);
    session->curl = curl_easy_init();
    bool done = session->url != NULL && session->curl != NULL &&
                add_header(session, "Content-Type: application/json") &&
                add_header(session, "Expect:"); /* no round trip of its own before the body */
    if (done && token != NULL) {
        done = asprintf(&authorization, "Authorization: Bearer %s", token) >= 0 &&
               add_header(session, authorization);
        free(authorization);
    }
    if (!done)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a connection");
    curl_easy_setopt(session->curl, CURLOPT_URL, session->url);
    curl_easy_setopt(session->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(session->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(session->curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    curl_easy_setopt(session->curl, CURLOPT_TIMEOUT, (long)ANSWER_S);
    curl_easy_setopt(session->curl, CURLOPT_HTTPHEADER, session->headers);
    curl_easy_setopt(session->curl, CURLOPT_POSTFIELDS, session->request.data);
    curl_easy_setopt(session->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)session->request.n);
    curl_easy_setopt(session->curl, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(session->curl, CURLOPT_WRITEDATA, &session->answer);
    return TAP_OK;
}

static void close_session(struct session *session)
{
    curl_easy_cleanup(session->curl);
    curl_slist_free_all(session->headers);
    for (size_t i = 0; i < session->n_stages; i++)
        free(session->stages[i].ms);
    free(session->url);
    free(session->request.data);
    free(session->answer.data);
    free(session->first);
}

/* ---- the answers --------------------------------------------------------------------------- */

static tap_status note(struct session *session, size_t i, const char *told, double ms,
                       tap_error *err)
{
    char name[MAX_NAME];
    size_t k = 0;
    snprintf(name, sizeof name, "%s", told);
    for (char *c = name; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && *c != '_')
            *c = '?'; /* it is another's text, and is printed */
    while (k < session->n_stages && strcmp(session->stages[k].name, name) != 0)
        k++;
    if (k == session->n_stages) {
        /* Stages are those of the first answer. */
        if (k == MAX_STAGES || i > 0)
            return TAP_OK;
        struct stage *stage = &session->stages[k];
        stage->ms = calloc(session->n_requests, sizeof *stage->ms);
        if (stage->ms == NULL)
            return tap_fail(err, TAP_ERR_MEMORY, "out of memory for the times");
        memcpy(stage->name, name, sizeof stage->name);
        session->n_stages++;
    }
    session->stages[k].ms[i] = ms;
    return TAP_OK;
}

/* What the network said must not change from answer to answer. */
static tap_status compare_numbers(struct session *session, struct json_object *answer, size_t i,
                                  tap_error *err)
{
    static const char *const names[] = {"rotmats", "betas", "cam"};
    struct text numbers = {0};
    bool done = true;
    for (size_t k = 0; k < sizeof names / sizeof *names && done; k++) {
        struct json_object *value;
        if (!json_object_object_get_ex(answer, names[k], &value)) {
            free(numbers.data);
            return tap_fail(err, TAP_ERR_FORMAT, "%s: answer %zu has no %s: is it a HaMeR server?",
                            session->url, i + 1, names[k]);
        }
        const char *text = json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN);
        done = text != NULL && append(&numbers, text, strlen(text));
    }
    if (done && i == 0) {
        session->first = numbers.data;
        return TAP_OK;
    }
    bool same = done && strcmp(numbers.data, session->first) == 0;
    free(numbers.data);
    if (!done)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for an answer");
    return same ? TAP_OK
                : tap_fail(err, TAP_ERR_FORMAT,
                           "%s: answer %zu differs from the first, to the same request",
                           session->url, i + 1);
}

static tap_status read_answer(struct session *session, size_t i, tap_error *err)
{
    struct json_tokener *tokener = json_tokener_new_ex(MAX_DEPTH);
    struct json_object *answer = NULL, *times = NULL;
    if (tokener != NULL)
        answer = json_tokener_parse_ex(tokener, session->answer.data, (int)session->answer.n + 1);
    json_tokener_free(tokener);
    json_object_object_get_ex(answer, "timing_ms", &times);
    if (!json_object_is_type(answer, json_type_object) ||
        !json_object_is_type(times, json_type_object)) {
        json_object_put(answer);
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: answer %zu is no JSON object with timing_ms: is it a HaMeR server?",
                        session->url, i + 1);
    }
    tap_status status = compare_numbers(session, answer, i, err);
    json_object_object_foreach(times, name, value)
    {
        if (status == TAP_OK)
            status = note(session, i, name, json_object_get_double(value), err);
    }
    json_object_put(answer);
    return status;
}

static tap_status ask(struct session *session, size_t i, tap_error *err)
{
    long code = 0;
    session->answer.n = 0;
    if (!append(&session->answer, "", 0))
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for an answer");
    double start = tap_clock_ms();
    CURLcode result = curl_easy_perform(session->curl);
    double ms = tap_clock_ms() - start;
    if (result != CURLE_OK)
        return tap_fail(err, TAP_ERR_IO, "%s: %s: is the server running there?", session->url,
                        curl_easy_strerror(result));
    curl_easy_getinfo(session->curl, CURLINFO_RESPONSE_CODE, &code);
    if (code != 200)
        return tap_fail(err, TAP_ERR_IO, "%s: request %zu was answered with %ld: %.200s",
                        session->url, i + 1, code, session->answer.data);
    TAP_TRY(read_answer(session, i, err));
    return note(session, i, round_trip, ms, err);
}

/* ---- percentiles --------------------------------------------------------------------------- */

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The nearest rank: the least time that this share of all is not above. */
static double percentile(const double *sorted, size_t n, unsigned per_cent)
{
    return sorted[(n * per_cent + 99) / 100 - 1];
}

static void print(struct session *session, bool json)
{
    size_t n = session->n_requests;
    if (json)
        printf("{\"requests\":%zu,\"stages_ms\":{", n);
    else
        printf("%zu requests, one after another; every answer the same\n%-12s %9s %9s %9s %9s ms\n",
               n, "", "p50", "p90", "p99", "max");
    for (size_t k = 0; k < session->n_stages; k++) {
        double *ms = session->stages[k].ms;
        qsort(ms, n, sizeof *ms, compare_times);
        const double shown[] = {percentile(ms, n, 50), percentile(ms, n, 90), percentile(ms, n, 99),
                                ms[n - 1]};
        const char *name = session->stages[k].name;
        if (json)
            printf("%s\"%s\":{\"p50\":%.3f,\"p90\":%.3f,\"p99\":%.3f,\"max\":%.3f}",
                   k > 0 ? "," : "", name, shown[0], shown[1], shown[2], shown[3]);
        else
            printf("%-12s %9.2f %9.2f %9.2f %9.2f\n", name, shown[0], shown[1], shown[2], shown[3]);
    }
    if (json)
        puts("}}");
}

int tap_cli_check_server(const tap_verb *verb, const tap_cli_check_settings *settings,
                         const char *picture)
{
    struct session session = {0};
    tap_progress progress;
    tap_error err;
    if (settings->boxes.n > 1)
        return tap_cli_usage(verb, "--bbox: one box is enough");
    tap_status status = open_session(&session, settings, picture, &err);
    tap_progress_begin(&progress, settings->n_requests, !settings->model.quiet);
    for (size_t i = 0; status == TAP_OK && i < settings->n_requests; i++) {
        tap_progress_show(&progress, i, session.url);
        status = ask(&session, i, &err);
    }
    tap_progress_clear(&progress);
    if (status == TAP_OK)
        print(&session, settings->json);
    else
        tap_cli_complain("%s", err.message);
    close_session(&session);
    return tap_cli_finish(status == TAP_OK ? TAP_EXIT_OK : TAP_EXIT_FAILED);
}
