/* What each route wants and answers. */
#include "answer.h"
#include "exchange.h"

#include "core/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    MAX_KEYPOINTS = 307200, /* 640 * 480 */
    MATCH_KEYPOINTS = 8192, /* a side: pairs are tried all with all */
    MAX_ORIGIN = 512
};

/* ---- headers ----------------------------------------------------------------------------------
 */

static const char *header(const tap_exchange *exchange, const char *name)
{
    return tap_exchange_header(exchange, name);
}

/* The media type of a header's value, without its parameters, is this one. */
static bool is_type(const char *value, const char *type)
{
    size_t n = strlen(type);
    return value != NULL && strncasecmp(value, type, n) == 0 &&
           (value[n] == '\0' || strchr("; \t", value[n]) != NULL);
}

/* In time that depends on the guess's length alone. */
static bool is_token(const char *guess, const char *token)
{
    size_t n = strlen(token), n_guess = strlen(guess);
    unsigned difference = n != n_guess;
    for (size_t i = 0; i < n_guess; i++)
        difference |= (unsigned char)guess[i] ^ (unsigned char)token[n > 0 ? i % n : 0];
    return difference == 0;
}

static bool is_authorized(const tap_exchange *exchange)
{
    const char *token = exchange->service->options->token;
    const char *given = header(exchange, "Authorization");
    if (token == NULL)
        return true;
    return given != NULL && strncasecmp(given, "Bearer ", 7) == 0 && is_token(given + 7, token);
}

/* The origin is in the list of --cors. */
static bool is_listed(const char *list, const char *origin)
{
    size_t n = strlen(origin);
    if (list == NULL)
        return false;
    while (*list != '\0') {
        size_t length = strcspn(list, ",");
        const char *entry = list + strspn(list, " ");
        size_t n_entry = length - (size_t)(entry - list);
        while (n_entry > 0 && entry[n_entry - 1] == ' ')
            n_entry--;
        if ((n_entry == 1 && *entry == '*') || (n_entry == n && strncasecmp(entry, origin, n) == 0))
            return true;
        list += length + (list[length] == ',');
    }
    return false;
}

/* A page that this very server would have given: its origin is the host asked, and that is an
 * address or localhost. Any other name may have been pointed here by whoever owns it. */
static bool is_own(const char *origin, const char *host)
{
    const char *name = strstr(origin, "://");
    if (name == NULL || host == NULL || strcasecmp(name + 3, host) != 0)
        return false;
    size_t n = strcspn(host, ":");
    return host[0] == '[' || (n == 9 && strncasecmp(host, "localhost", n) == 0) ||
           strspn(host, "0123456789.") == n;
}

/* Any page in the user's browser can send requests to a server on the user's machine; what it sends
 * says where the page is from. */
static bool is_foreign_page(const tap_exchange *exchange)
{
    const char *origin = header(exchange, "Origin");
    return origin != NULL && !is_listed(exchange->service->options->cors, origin) &&
           !is_own(origin, header(exchange, "Host"));
}

/* The client names the binary answer, and JSON not before it. */
static bool wants_npz(const tap_exchange *exchange)
{
    const char *accept = header(exchange, "Accept");
    const char *npz = accept != NULL ? strcasestr(accept, "application/x-npz") : NULL;
    const char *json = accept != NULL ? strcasestr(accept, "application/json") : NULL;
    return npz != NULL && (json == NULL || npz < json);
}

/* ---- answers without a body to read ------------------------------------------------------------
 */

/* Takes the text as a 200, or says that memory is out. */
static void answer_text(tap_exchange *exchange, tap_text *text, unsigned code, const char *type)
{
    tap_answer *answer = &exchange->answer;
    tap_error err;
    *answer = (tap_answer){.code = code, .type = type, .retry = code == 503};
    if (tap_text_take(text, &answer->body, &answer->size, &err) != TAP_OK)
        tap_answer_error(answer, &err);
    exchange->answered = true;
}

static void answer_metrics(tap_exchange *exchange)
{
    tap_service *service = exchange->service;
    tap_text text = {0};
    tap_served served;
    tap_gauges gauges = {.queue_length = service->options->queue_length,
                         .connections = atomic_load(&service->n_connections),
                         .body_bytes = atomic_load(&service->body_bytes),
                         .ready = tap_jobs_state(service->jobs) == TAP_STATE_READY,
                         .started_unix = service->started_unix};
    tap_jobs_count(service->jobs, &gauges.queue_depth, &gauges.in_flight);
    tap_jobs_served(service->jobs, &served);
    gauges.isa = served.loaded ? served.engine.isa : NULL;
    tap_metrics_write(&service->metrics, &gauges, &text);
    answer_text(exchange, &text, 200, "text/plain; version=0.0.4; charset=utf-8");
}

static void answer_readyz(tap_exchange *exchange)
{
    static const char *const words[] = {[TAP_STATE_STARTING] = "starting",
                                        [TAP_STATE_READY] = "ready",
                                        [TAP_STATE_DRAINING] = "draining",
                                        [TAP_STATE_FAILED] = "failed"};
    tap_state state = tap_jobs_state(exchange->service->jobs);
    tap_text text = {0};
    tap_text_puts(&text, "{");
    tap_text_field(&text, "status", words[state]);
    tap_text_puts(&text, "}");
    answer_text(exchange, &text, state == TAP_STATE_READY ? 200 : 503, NULL);
}

static void answer_openapi(tap_exchange *exchange)
{
    tap_text text = {0};
    tap_error err;
    if (tap_describe_openapi(exchange->service, &text, &err) == TAP_OK) {
        answer_text(exchange, &text, 200, NULL);
        return;
    }
    tap_answer_error(&exchange->answer, &err);
    exchange->answered = true;
}

static void answer_get(tap_exchange *exchange)
{
    tap_service *service = exchange->service;
    tap_text text = {0};
    switch (exchange->route) {
    case TAP_ROUTE_HEALTH:
        tap_describe_health(service, &text);
        break;
    case TAP_ROUTE_INFO:
        tap_describe_info(service, &text);
        break;
    case TAP_ROUTE_MODELS:
        tap_describe_models(service, &text);
        break;
    case TAP_ROUTE_METRICS:
        answer_metrics(exchange);
        return;
    case TAP_ROUTE_OPENAPI:
        answer_openapi(exchange);
        return;
    case TAP_ROUTE_READYZ:
        answer_readyz(exchange);
        return;
    default:
        tap_text_puts(&text, "{\"status\":\"alive\"}");
    }
    answer_text(exchange, &text, 200, NULL);
}

/* ---- with the headers --------------------------------------------------------------------------
 */

static bool is_match(tap_route route)
{
    return route == TAP_ROUTE_MATCH || route == TAP_ROUTE_SUPERPOINT_MATCH;
}

static bool wants_post(tap_route route)
{
    return route <= TAP_ROUTE_HAMER_PREDICT;
}

_Static_assert(TAP_ROUTE_HAMER_PREDICT + 1 == TAP_ROUTE_HEALTH, "models' routes come first");

/* Whose route it is. */
static tap_server_kind kind_of(const tap_server_options *options, tap_route route)
{
    if (route == TAP_ROUTE_PREDICT)
        return options->models[0].kind;
    return route == TAP_ROUTE_HAMER_PREDICT ? TAP_SERVER_HAMER : TAP_SERVER_SUPERPOINT;
}

static bool is_open(tap_route route)
{
    return route == TAP_ROUTE_HEALTH || route == TAP_ROUTE_LIVEZ || route == TAP_ROUTE_READYZ;
}

/* Routes of models that are not served are none. */
static tap_route find_route(const tap_server_options *options, const char *path)
{
    int route = 0;
    while (route < TAP_ROUTE_OTHER && strcmp(path, tap_route_path((tap_route)route)) != 0)
        route++;
    if (wants_post((tap_route)route) &&
        tap_server_find(options, kind_of(options, (tap_route)route)) == options->n_models)
        return TAP_ROUTE_OTHER;
    return (tap_route)route;
}

/* What a POST's headers rule out. */
static void check_post(tap_exchange *exchange)
{
    const char *type = header(exchange, "Content-Type");
    const char *encoding = header(exchange, "Content-Encoding");
    bool match = is_match(exchange->route);
    bool hands = kind_of(exchange->service->options, exchange->route) == TAP_SERVER_HAMER;
    bool picture =
        is_type(type, "image/jpeg") || is_type(type, "image/png") || is_type(type, "image/webp");
    exchange->job.npz = wants_npz(exchange);
    if (is_foreign_page(exchange))
        tap_exchange_refuse(exchange, 403,
                            "Origin: pages of %.128s may not call this server; --cors lets them",
                            header(exchange, "Origin"));
    else if (encoding != NULL && strcasecmp(encoding, "identity") != 0)
        tap_exchange_refuse(exchange, 415,
                            "Content-Encoding: %.32s is not taken; send the body "
                            "as it is",
                            encoding);
    else if (!is_type(type, "application/json") && !is_type(type, "multipart/form-data") &&
             !(picture && !match))
        tap_exchange_refuse(exchange, 415,
                            "Content-Type: %.64s is not taken; send application/json%s or "
                            "multipart/form-data",
                            type != NULL ? type : "none",
                            match ? "" : ", image/jpeg, image/png, image/webp");
    else if ((match || hands) && exchange->job.npz)
        tap_exchange_refuse(exchange, 406, "Accept: %s answers application/json only",
                            tap_route_path(exchange->route));
}

void tap_route_begin(tap_exchange *exchange)
{
    exchange->route = find_route(exchange->service->options, exchange->query.path);
    bool post = wants_post(exchange->route);
    if (exchange->method == TAP_METHOD_OPTIONS &&
        header(exchange, "Access-Control-Request-Method") != NULL &&
        exchange->service->options->cors != NULL) {
        exchange->answer.code = 204;
        exchange->answered = true;
    } else if (!is_open(exchange->route) && !is_authorized(exchange)) {
        tap_exchange_refuse(exchange, 401,
                            "Authorization: this server wants \"Bearer\" and its token");
    } else if (exchange->route == TAP_ROUTE_OTHER) {
        tap_exchange_refuse(exchange, 404, "%.128s: no such route; GET /openapi.json lists them",
                            exchange->query.path);
    } else if (exchange->method != (post ? TAP_METHOD_POST : TAP_METHOD_GET)) {
        tap_exchange_refuse(exchange, 405, "%s: %s only", tap_route_path(exchange->route),
                            post ? "POST" : "GET and HEAD");
    } else if (post) {
        check_post(exchange);
    } else {
        answer_get(exchange);
    }
}

void tap_route_headers(const tap_exchange *exchange, struct MHD_Response *response)
{
    const char *cors = exchange->service->options->cors;
    const char *origin = header(exchange, "Origin");
    if (exchange->answer.code == 401)
        MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    if (exchange->answer.code == 405)
        MHD_add_response_header(response, "Allow",
                                wants_post(exchange->route) ? "POST" : "GET, HEAD");
    if (cors == NULL)
        return;
    MHD_add_response_header(response, "Vary", "Origin");
    if (origin == NULL || strlen(origin) > MAX_ORIGIN || !is_listed(cors, origin))
        return;
    MHD_add_response_header(response, "Access-Control-Allow-Origin", origin);
    MHD_add_response_header(response, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
    if (exchange->method == TAP_METHOD_OPTIONS) {
        MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, POST");
        MHD_add_response_header(response, "Access-Control-Allow-Headers",
                                "Authorization, Content-Type, Accept, X-Request-Id");
        MHD_add_response_header(response, "Access-Control-Max-Age", "600");
    }
}

/* ---- with the body -----------------------------------------------------------------------------
 */

static const char *const one_picture[] = {"image"}, *const two_pictures[] = {"image_a", "image_b"};

static tap_status read_query(tap_exchange *exchange, const tap_wish_limits *limits, tap_error *err)
{
    const tap_query *query = &exchange->query;
    for (size_t i = 0; i < query->n_pairs; i++)
        TAP_TRY(tap_wish_set_text(&exchange->job.wish, limits, query->pairs[i].name,
                                  query->pairs[i].value, err));
    return TAP_OK;
}

/* One part: a picture, or a field that is not in the query as well. */
static tap_status read_part(tap_exchange *exchange, const tap_wish_limits *limits,
                            const char *const *names, const tap_part *part, tap_error *err)
{
    tap_job *job = &exchange->job;
    for (size_t i = 0; i < job->n_pictures; i++)
        if (strcmp(part->name, names[i]) == 0) {
            job->pictures[i] = (tap_slice){.data = part->data, .size = part->size};
            return TAP_OK;
        }
    for (size_t i = 0; i < exchange->query.n_pairs; i++)
        if (strcmp(part->name, exchange->query.pairs[i].name) == 0)
            return tap_fail(err, TAP_ERR_ARGUMENT, "%s: given twice, in the query and in the body",
                            part->name);
    if (memchr(part->data, '\0', part->size) != NULL)
        return tap_fail(err, TAP_ERR_ARGUMENT, "%s: a NUL in it", part->name);
    part->data[part->size] = '\0'; /* the line break before the next boundary */
    return tap_wish_set_text(&job->wish, limits, part->name, (const char *)part->data, err);
}

static tap_status read_multipart(tap_exchange *exchange, const tap_wish_limits *limits,
                                 const char *const *names, tap_error *err)
{
    char boundary[TAP_BOUNDARY + 1];
    tap_part parts[TAP_PARTS];
    size_t n_parts;
    TAP_TRY(read_query(exchange, limits, err));
    TAP_TRY(tap_multipart_boundary(boundary, header(exchange, "Content-Type"), err));
    TAP_TRY(tap_multipart_parse(parts, &n_parts, exchange->body, exchange->n_body, boundary, err));
    for (size_t i = 0; i < n_parts; i++)
        TAP_TRY(read_part(exchange, limits, names, &parts[i], err));
    for (size_t i = 0; i < exchange->job.n_pictures; i++)
        if (exchange->job.pictures[i].data == NULL)
            return tap_fail(err, TAP_ERR_ARGUMENT, "%s: missing (a picture as a part)", names[i]);
    return TAP_OK;
}

static tap_status read_fields(tap_exchange *exchange, const tap_wish_limits *limits,
                              const char *const *names, tap_error *err)
{
    tap_job *job = &exchange->job;
    const char *type = header(exchange, "Content-Type");
    if (exchange->n_body == 0)
        return tap_fail(err, TAP_ERR_ARGUMENT, "the body is empty; %s: missing", names[0]);
    if (is_type(type, "application/json"))
        return tap_json_request(&job->wish, limits, job->pictures, names, job->n_pictures,
                                (char *)exchange->body, exchange->n_body, err);
    if (is_type(type, "multipart/form-data"))
        return read_multipart(exchange, limits, names, err);
    job->pictures[0] = (tap_slice){.data = exchange->body, .size = exchange->n_body};
    return read_query(exchange, limits, err);
}

static tap_status read_body(tap_exchange *exchange, tap_error *err)
{
    tap_job *job = &exchange->job;
    const tap_server_options *options = exchange->service->options;
    bool match = is_match(exchange->route);
    tap_wish_limits limits = {.max_keypoints = match ? MATCH_KEYPOINTS : MAX_KEYPOINTS,
                              .min_max_keypoints = match ? 1 : -1,
                              .max_input_pixels = options->max_input_pixels,
                              .max_hands = options->max_hands};
    tap_wish_init(&job->wish, kind_of(options, exchange->route));
    job->n_pictures = match ? 2 : 1;
    TAP_TRY(read_fields(exchange, &limits, match ? two_pictures : one_picture, err));
    return tap_wish_finish(&job->wish, err);
}

/* Descriptors are in every answer unless the model has none and nobody asked. */
static void settle_descriptors(tap_wish *wish, const tap_model_info *model, bool match)
{
    if (match)
        wish->superpoint.descriptors = true;
    else if (!model->has_descriptors && !wish->descriptors_given)
        wish->superpoint.descriptors = false;
}

/* What depends on the model that is loaded. */
static tap_status settle(tap_exchange *exchange, tap_error *err)
{
    tap_served served;
    tap_wish *wish = &exchange->job.wish;
    const tap_server_options *options = exchange->service->options;
    tap_jobs_served(exchange->service->jobs, &served);
    const tap_model_info *model = &served.models[tap_server_find(options, wish->kind)].info;
    if (wish->kind == TAP_SERVER_SUPERPOINT) {
        settle_descriptors(wish, model, is_match(exchange->route));
        return TAP_OK;
    }
    size_t n = wish->hands.boxes_given ? wish->hands.n_boxes : 1;
    size_t bytes = tap_answer_hands_bytes(n, model->mano_available, &wish->hands.answer);
    if (bytes > options->max_answer_bytes)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "bbox: the answer for %zu boxes could have %zu bytes, over this server's "
                        "%zu; send them in several requests, or leave out vertices and faces",
                        n, bytes, options->max_answer_bytes);
    return TAP_OK;
}

bool tap_route_body(tap_exchange *exchange)
{
    tap_error err;
    double start = tap_clock_ms();
    if (tap_jobs_state(exchange->service->jobs) == TAP_STATE_READY &&
        (read_body(exchange, &err) != TAP_OK || settle(exchange, &err) != TAP_OK)) {
        tap_answer_error(&exchange->answer, &err);
        exchange->answered = true;
        return false;
    }
    exchange->job.parse_ms = tap_clock_ms() - start;
    return true;
}
