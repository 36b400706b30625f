#include "http.h"
#include "exchange.h"

#include "core/core.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>

enum {
    CONNECTION_MEMORY = 64 << 10, /* headers, and the buffer that bodies arrive through */
    FIRST_CAPACITY = 64 << 10,    /* a body's first block */
    DISCARD_BYTES = 128 << 20,    /* a refused body is read and thrown away up to here */
    LOOK_MS = 250                 /* how late a time limit may be noticed */
};

/* What a connection is doing, and since when. */
typedef enum tap_phase {
    TAP_PHASE_HEADERS, /* receiving, or idle between requests */
    TAP_PHASE_BODY,
    TAP_PHASE_WORK, /* the request waits or runs: that takes as long as it takes */
    TAP_PHASE_ANSWER
} tap_phase;

struct tap_link {
    int socket;
    tap_phase phase;
    double since_ms;
    bool cut;
    size_t n_requests;
    struct tap_http *http;
    struct tap_link *before, *after;
};

struct tap_http {
    tap_service *service;
    struct MHD_Daemon *daemon;
    pthread_mutex_t mutex; /* of the list and its links */
    struct tap_link *links;
};

/* ---- connections ------------------------------------------------------------------------------
 */

static void set_phase(struct tap_link *link, tap_phase phase)
{
    pthread_mutex_lock(&link->http->mutex);
    link->phase = phase;
    link->since_ms = tap_clock_ms();
    pthread_mutex_unlock(&link->http->mutex);
}

static void open_link(tap_http *http, struct MHD_Connection *connection, void **context)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct tap_link *link = *context = calloc(1, sizeof *link);
    if (link == NULL)
        return; /* begin_request closes the connection */
    link->socket = info != NULL ? info->connect_fd : -1;
    link->since_ms = tap_clock_ms();
    link->http = http;
    pthread_mutex_lock(&http->mutex);
    link->after = http->links;
    if (http->links != NULL)
        http->links->before = link;
    http->links = link;
    pthread_mutex_unlock(&http->mutex);
    if (atomic_fetch_add(&http->service->n_connections, 1) == 0)
        tap_service_wake(http->service);
}

static void close_link(tap_http *http, struct tap_link *link)
{
    if (link == NULL)
        return;
    pthread_mutex_lock(&http->mutex);
    if (link->before != NULL)
        link->before->after = link->after;
    else
        http->links = link->after;
    if (link->after != NULL)
        link->after->before = link->before;
    pthread_mutex_unlock(&http->mutex);
    free(link);
    atomic_fetch_sub(&http->service->n_connections, 1);
}

/* The library calls this before it closes the socket, so that tap_http_cut_late, which holds the
 * mutex, never meets a number that has gone to another connection. */
static void on_connection(void *context, struct MHD_Connection *connection, void **link,
                          enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        open_link(context, connection, link);
    else
        close_link(context, *link);
}

int tap_http_cut_late(tap_http *http)
{
    const tap_server_options *options = http->service->options;
    const uint32_t limits[] = {[TAP_PHASE_HEADERS] = options->header_timeout_ms,
                               [TAP_PHASE_BODY] = options->body_timeout_ms,
                               [TAP_PHASE_ANSWER] = options->answer_timeout_ms};
    double now = tap_clock_ms();
    size_t n_cut = 0;
    pthread_mutex_lock(&http->mutex);
    for (struct tap_link *link = http->links; link != NULL; link = link->after) {
        if (link->cut || link->phase == TAP_PHASE_WORK ||
            now - link->since_ms <= (double)limits[link->phase])
            continue;
        /* The library sees the end of the stream and closes the connection in its own thread. */
        link->cut = true;
        shutdown(link->socket, SHUT_RDWR);
        n_cut += link->phase != TAP_PHASE_HEADERS || link->n_requests == 0;
    }
    int again = http->links != NULL ? LOOK_MS : -1;
    pthread_mutex_unlock(&http->mutex);
    while (n_cut-- > 0)
        tap_metrics_timed_out(&http->service->metrics);
    return again;
}

/* ---- requests ---------------------------------------------------------------------------------
 */

const char *tap_exchange_header(const tap_exchange *exchange, const char *name)
{
    return MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, name);
}

void tap_exchange_refuse(tap_exchange *exchange, unsigned code, const char *format, ...)
{
    char words[sizeof((tap_error *)0)->message];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    tap_answer_fail(&exchange->answer, code, words);
    exchange->answered = true;
}

/* An id that may go into logs and headers as it is, else one of ours. */
static void set_id(tap_exchange *exchange)
{
    static const char allowed[] =
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._:/+=@-";
    const char *given = tap_exchange_header(exchange, "X-Request-Id");
    size_t n = given != NULL ? strlen(given) : 0;
    if (n > 0 && n <= TAP_REQUEST_ID && strspn(given, allowed) == n) {
        memcpy(exchange->id, given, n + 1);
        return;
    }
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random)
        random = (uint64_t)(tap_clock_ms() * 1e6);
    snprintf(exchange->id, sizeof exchange->id, "%016llx", (unsigned long long)random);
}

/* The request line is there: what the library calls with the target as it was sent. */
static void *on_target(void *context, const char *target, struct MHD_Connection *connection)
{
    tap_http *http = context;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct tap_link *link = info != NULL ? info->socket_context : NULL;
    tap_exchange *exchange = link != NULL ? calloc(1, sizeof *exchange) : NULL;
    if (exchange == NULL)
        return NULL;
    exchange->target = strdup(target);
    if (exchange->target == NULL) {
        free(exchange);
        return NULL;
    }
    exchange->service = http->service;
    exchange->connection = connection;
    exchange->link = link;
    exchange->start_ms = tap_clock_ms();
    exchange->route = TAP_ROUTE_OTHER;
    exchange->job.socket = link->socket;
    atomic_fetch_add(&http->service->n_exchanges, 1);
    return exchange;
}

static void release_body(tap_exchange *exchange)
{
    free(exchange->body);
    atomic_fetch_sub(&exchange->service->body_bytes, exchange->capacity);
    exchange->body = NULL;
    exchange->n_body = exchange->capacity = 0;
}

static void on_completed(void *context, struct MHD_Connection *connection, void **held,
                         enum MHD_RequestTerminationCode how)
{
    tap_http *http = context;
    tap_service *service = http->service;
    tap_exchange *exchange = *held;
    (void)connection;
    if (exchange == NULL)
        return;
    *held = NULL;
    /* What the library refuses itself, malformed headers above all, is never answered by us. */
    unsigned code = exchange->answered                           ? exchange->answer.code
                    : how == MHD_REQUEST_TERMINATED_COMPLETED_OK ? 400
                                                                 : 499;
    double ms = tap_clock_ms() - exchange->start_ms;
    tap_metrics_request(&service->metrics, exchange->route, code, ms, exchange->content_length,
                        exchange->answer.size);
    if (!service->log.quiet) {
        tap_log_request line = {.method = exchange->method_name,
                                .path = exchange->query.path != NULL ? exchange->query.path : "",
                                .id = exchange->id,
                                .code = code,
                                .ms = ms,
                                .bytes_in = exchange->content_length,
                                .bytes_out = exchange->answer.size};
        tap_log_access(&service->log, &line);
    }
    pthread_mutex_lock(&http->mutex);
    exchange->link->phase = TAP_PHASE_HEADERS;
    exchange->link->since_ms = tap_clock_ms();
    exchange->link->n_requests++;
    pthread_mutex_unlock(&http->mutex);
    release_body(exchange);
    free(exchange->answer.body);
    free(exchange->target);
    free(exchange);
    if (atomic_fetch_sub(&service->n_exchanges, 1) == 1 && atomic_load(&service->draining))
        tap_service_wake(service);
}

/* ---- bodies -----------------------------------------------------------------------------------
 */

static tap_method method_of(const char *name)
{
    if (strcmp(name, "GET") == 0 || strcmp(name, "HEAD") == 0)
        return TAP_METHOD_GET;
    if (strcmp(name, "POST") == 0)
        return TAP_METHOD_POST;
    return strcmp(name, "OPTIONS") == 0 ? TAP_METHOD_OPTIONS : TAP_METHOD_OTHER;
}

static enum MHD_Result count_length(void *count, enum MHD_ValueKind kind, const char *name,
                                    const char *value)
{
    (void)kind, (void)value;
    *(size_t *)count += strcasecmp(name, "Content-Length") == 0;
    return MHD_YES;
}

/* A body has one length, in digits; without one it ends we don't know where. */
static void read_length(tap_exchange *exchange)
{
    size_t n_lengths = 0;
    const tap_server_options *options = exchange->service->options;
    const char *text = tap_exchange_header(exchange, "Content-Length");
    const char *encoding = tap_exchange_header(exchange, "Transfer-Encoding");
    MHD_get_connection_values(exchange->connection, MHD_HEADER_KIND, count_length, &n_lengths);
    if (encoding != NULL || text == NULL) {
        tap_exchange_refuse(exchange, 411, "Content-Length: missing; chunked bodies are not taken");
        return;
    }
    if (n_lengths > 1 || text[0] == '\0' || text[strspn(text, "0123456789")] != '\0') {
        tap_exchange_refuse(exchange, 400, "Content-Length: must be one number");
        return;
    }
    errno = 0;
    unsigned long long length = strtoull(text, NULL, 10);
    exchange->content_length = errno != 0 || length > SIZE_MAX ? SIZE_MAX : (size_t)length;
    if (exchange->content_length > options->max_body_bytes)
        tap_exchange_refuse(exchange, 413,
                            "the body has %s bytes and this server takes %zu; send a smaller "
                            "picture, or raise --max-body",
                            text, options->max_body_bytes);
}

/* Room for n more bytes, doubling up to the announced length, within what all bodies may take. */
static bool reserve(tap_exchange *exchange, size_t n)
{
    tap_service *service = exchange->service;
    size_t wanted = exchange->n_body + n, capacity = exchange->capacity;
    if (wanted <= capacity)
        return true;
    capacity = capacity == 0 ? FIRST_CAPACITY : 2 * capacity;
    if (capacity > exchange->content_length)
        capacity = exchange->content_length;
    if (capacity < wanted)
        capacity = wanted;
    size_t more = capacity - exchange->capacity;
    size_t all = atomic_fetch_add(&service->body_bytes, more) + more;
    uint8_t *body =
        all <= service->options->max_bodies_bytes ? realloc(exchange->body, capacity) : NULL;
    if (body == NULL) {
        atomic_fetch_sub(&service->body_bytes, more);
        return false;
    }
    exchange->body = body;
    exchange->capacity = capacity;
    return true;
}

static enum MHD_Result receive(tap_exchange *exchange, const char *data, size_t n)
{
    if (!exchange->answered && !reserve(exchange, n)) {
        release_body(exchange);
        tap_exchange_refuse(exchange, 503,
                            "the memory for requests' bodies is full; ask again soon");
    }
    if (exchange->answered) {
        exchange->n_discarded += n;
        return exchange->n_discarded <= DISCARD_BYTES ? MHD_YES : MHD_NO;
    }
    memcpy(exchange->body + exchange->n_body, data, n);
    exchange->n_body += n;
    return MHD_YES;
}

/* ---- answers ----------------------------------------------------------------------------------
 */

static enum MHD_Result send_answer(tap_exchange *exchange)
{
    tap_answer *answer = &exchange->answer;
    if (answer->code == 499)
        return MHD_NO;
    release_body(exchange);
    struct MHD_Response *response = MHD_create_response_from_buffer(
        answer->body != NULL ? answer->size : 0, answer->body,
        answer->body != NULL ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (response == NULL)
        return MHD_NO;
    answer->body = NULL; /* the response's now */
    MHD_add_response_header(response, "Content-Type",
                            answer->type != NULL ? answer->type : "application/json");
    MHD_add_response_header(response, "X-Request-Id", exchange->id);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (answer->retry)
        MHD_add_response_header(response, "Retry-After", "1");
    if (atomic_load(&exchange->service->draining))
        MHD_add_response_header(response, "Connection", "close");
    tap_route_headers(exchange, response);
    set_phase(exchange->link, TAP_PHASE_ANSWER);
    enum MHD_Result result = MHD_queue_response(exchange->connection, answer->code, response);
    MHD_destroy_response(response);
    return result;
}

/* Called by whichever thread finished the job. */
static void on_done(tap_job *job)
{
    tap_exchange *exchange = (tap_exchange *)((char *)job - offsetof(tap_exchange, job));
    exchange->answer = job->answer;
    exchange->answered = true;
    MHD_resume_connection(exchange->connection);
}

/* Suspends first: the job may be done before tap_jobs_submit returns. */
static enum MHD_Result submit(tap_exchange *exchange)
{
    exchange->job.done = on_done;
    set_phase(exchange->link, TAP_PHASE_WORK);
    MHD_suspend_connection(exchange->connection);
    switch (tap_jobs_submit(exchange->service->jobs, &exchange->job)) {
    case TAP_SUBMITTED:
        return MHD_YES; /* the exchange may be gone already */
    case TAP_SUBMIT_STARTING:
        tap_exchange_refuse(exchange, 503, "starting: the model is being loaded; ask again soon");
        break;
    case TAP_SUBMIT_DRAINING:
        tap_exchange_refuse(exchange, 503, "shutting down; ask another server");
        break;
    case TAP_SUBMIT_FULL:
        tap_exchange_refuse(exchange, 503, "%u requests wait already; ask again soon",
                            exchange->service->options->queue_length);
        break;
    }
    MHD_resume_connection(exchange->connection);
    return MHD_YES;
}

/* The headers are there. */
static enum MHD_Result begin_request(tap_exchange *exchange, const char *method)
{
    tap_error err;
    exchange->begun = true;
    snprintf(exchange->method_name, sizeof exchange->method_name, "%s", method);
    exchange->method = method_of(method);
    set_id(exchange);
    if (tap_query_parse(&exchange->query, exchange->target, &err) != TAP_OK)
        tap_exchange_refuse(exchange, 400, "%s", err.message);
    else
        tap_route_begin(exchange);
    if (!exchange->answered)
        read_length(exchange);
    set_phase(exchange->link, TAP_PHASE_BODY);
    /* A client that is still sending does not read an early answer, and then sees its connection
     * reset; so a refused body is let in, within reason, unless the client waits to be asked. */
    bool waits = tap_exchange_header(exchange, "Expect") != NULL;
    if (exchange->answered && exchange->method == TAP_METHOD_POST &&
        (waits || exchange->content_length > DISCARD_BYTES))
        return send_answer(exchange);
    return MHD_YES;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *n_data, void **held)
{
    tap_exchange *exchange = *held;
    (void)context, (void)connection, (void)url, (void)version;
    if (exchange == NULL)
        return MHD_NO; /* no memory for it */
    if (!exchange->begun)
        return begin_request(exchange, method);
    if (*n_data > 0) {
        size_t n = *n_data;
        *n_data = 0;
        return receive(exchange, data, n);
    }
    if (exchange->answered)
        return send_answer(exchange);
    if (tap_route_body(exchange))
        return submit(exchange);
    return send_answer(exchange);
}

/* ---- the daemon -------------------------------------------------------------------------------
 */

tap_status tap_http_start(tap_http **out, tap_service *service, int socket, tap_error *err)
{
    const tap_server_options *options = service->options;
    tap_http *http = *out = calloc(1, sizeof *http);
    if (http == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for the server");
    http->service = service;
    pthread_mutex_init(&http->mutex, NULL);
    /* Every HTTP thread needs room for at least one connection. */
    unsigned n_threads = options->n_http_threads < options->max_connections
                             ? options->n_http_threads
                             : options->max_connections;
    /* poll, not epoll: there, MHD_quiesce_daemon and a thread of the pool may both take the
     * listening socket out of the set, and on the second attempt the library aborts (as of 1.0.1).
     */
    http->daemon = MHD_start_daemon(
        MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC, 0, NULL, NULL,
        on_request, http, MHD_OPTION_LISTEN_SOCKET, (MHD_socket)socket, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)options->max_connections, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        (unsigned)options->max_connections_ip, MHD_OPTION_CONNECTION_TIMEOUT,
        (options->idle_timeout_ms + 999u) / 1000u, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_MEMORY, MHD_OPTION_NOTIFY_CONNECTION, on_connection, http,
        MHD_OPTION_URI_LOG_CALLBACK, on_target, http, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
        http, MHD_OPTION_THREAD_POOL_SIZE, n_threads, MHD_OPTION_END);
    if (http->daemon != NULL)
        return TAP_OK;
    int error = errno;
    pthread_mutex_destroy(&http->mutex);
    free(http);
    *out = NULL;
    return tap_fail_errno(err, "server", "starting the HTTP threads", error);
}

void tap_http_quiesce(tap_http *http)
{
    MHD_quiesce_daemon(http->daemon);
}

void tap_http_stop(tap_http *http)
{
    if (http == NULL)
        return;
    MHD_stop_daemon(http->daemon);
    pthread_mutex_destroy(&http->mutex);
    free(http);
}
