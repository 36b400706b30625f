/* The server's life: options, signals, start, drain, end. */
#include "http.h"
#include "listen.h"

#include "core/core.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20, DRAIN_LOOK_MS = 50 };

void tap_server_options_init(tap_server_options *options)
{
    *options = (tap_server_options){.size = sizeof *options,
                                    .host = "127.0.0.1",
                                    .port = -1,
                                    .n_http_threads = 2,
                                    .max_connections = 256,
                                    .queue_length = 64,
                                    .max_body_bytes = 32u * MIB,
                                    .max_bodies_bytes = 256u * MIB,
                                    .max_answer_bytes = 32u * MIB,
                                    .max_pixels = 64000000,
                                    .max_input_pixels = 2100000,
                                    .max_hands = 16,
                                    .header_timeout_ms = 30000,
                                    .body_timeout_ms = 120000,
                                    .answer_timeout_ms = 120000,
                                    .idle_timeout_ms = 30000,
                                    .drain_timeout_ms = 4500,
                                    .log_fd = 2};
}

static tap_status check_models(const tap_server_options *options, tap_error *err)
{
    size_t n = options->n_models;
    if (n < 1 || n > TAP_SERVER_MODELS)
        return tap_fail(err, TAP_ERR_ARGUMENT, "models: one or two can be served, not %zu", n);
    if (n == 2 && options->models[0].kind == options->models[1].kind)
        return tap_fail(err, TAP_ERR_ARGUMENT, "models: two of one kind cannot be served");
    for (size_t i = 0; i < n; i++)
        if (options->models[i].weights == NULL)
            return tap_fail(err, TAP_ERR_ARGUMENT, "weights: a path is needed");
    if (options->max_hands < 1 || options->max_hands > TAP_HANDS_MAX)
        return tap_fail(err, TAP_ERR_ARGUMENT, "max-hands: %u is not in 1..%d", options->max_hands,
                        TAP_HANDS_MAX);
    return TAP_OK;
}

static tap_status check(const tap_server_options *options, tap_error *err)
{
    if (options->size != sizeof *options)
        return tap_fail(err, TAP_ERR_ARGUMENT, "options: not initialised");
    TAP_TRY(check_models(options, err));
    if (options->port < -1 || options->port > 65535)
        return tap_fail(err, TAP_ERR_ARGUMENT, "port: %d is not in -1..65535", options->port);
    if (options->n_http_threads < 1 || options->max_connections < 1 || options->queue_length < 1 ||
        options->idle_timeout_ms < 1)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "http-threads, max-connections, queue, idle-timeout: at least 1");
    if (options->max_body_bytes > options->max_bodies_bytes)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "max-bodies: %zu bytes for all bodies are fewer than max-body's %zu for "
                        "one",
                        options->max_bodies_bytes, options->max_body_bytes);
    if (options->token != NULL && options->token[0] == '\0')
        return tap_fail(err, TAP_ERR_ARGUMENT, "token: empty");
    return TAP_OK;
}

void tap_service_wake(const tap_service *service)
{
    uint64_t one = 1;
    ssize_t written = write(service->wake, &one, sizeof one);
    (void)written; /* full means that an earlier one has not been read yet: it will be */
}

/* ---- the main loop -----------------------------------------------------------------------------
 */

struct server {
    tap_service service;
    tap_http *http;
    int listener, signals;
    sigset_t old_mask;
    bool masked;
    struct sigaction old_pipe;
};

/* Waits for a signal, a wake-up or a time; true if a signal came. */
static bool wait_event(struct server *server, int timeout_ms)
{
    struct pollfd fds[] = {{.fd = server->signals, .events = POLLIN},
                           {.fd = server->service.wake, .events = POLLIN}};
    struct signalfd_siginfo signal;
    uint64_t count;
    if (poll(fds, 2, timeout_ms) <= 0)
        return false;
    if (fds[1].revents & POLLIN) {
        ssize_t got = read(server->service.wake, &count, sizeof count);
        (void)got; /* only that it happened matters */
    }
    return (fds[0].revents & POLLIN) != 0 &&
           read(server->signals, &signal, sizeof signal) == (ssize_t)sizeof signal;
}

/* Until a signal, or until a model turns out not to load. */
static tap_status serve(struct server *server, tap_error *err)
{
    tap_service *service = &server->service;
    for (;;) {
        if (wait_event(server, tap_http_cut_late(server->http)))
            return TAP_OK;
        if (tap_jobs_state(service->jobs) == TAP_STATE_FAILED) {
            tap_jobs_error(service->jobs, err);
            return err->status;
        }
    }
}

/* What runs is finished, what waits gets 503; up to the time limit, or a second signal. */
static tap_status drain(struct server *server, tap_error *err)
{
    tap_service *service = &server->service;
    double limit = service->options->drain_timeout_ms, start = tap_clock_ms();
    atomic_store(&service->draining, true);
    tap_http_quiesce(server->http);
    /* New connections are refused from here on. The number stays taken until stop: the library's
     * threads may still look at it. */
    shutdown(server->listener, SHUT_RDWR);
    /* After that, so that whoever reads it can rely on it. */
    tap_log_line(&service->log, TAP_LOG_INFO, "Shutting down: finishing what runs");
    tap_jobs_drain(service->jobs);
    for (;;) {
        bool idle = tap_jobs_idle(service->jobs);
        if (idle && atomic_load(&service->n_exchanges) == 0)
            return TAP_OK;
        double left = limit - (tap_clock_ms() - start);
        if (left <= 0) {
            tap_log_line(&service->log, TAP_LOG_WARNING,
                         "Shutting down: cutting off %zu requests after %.1f s",
                         atomic_load(&service->n_exchanges), limit / 1000);
            /* With nothing suspended the library can close the rest itself. */
            return idle ? TAP_OK : tap_fail(err, TAP_ERR_CANCELLED, "drain: out of time");
        }
        tap_http_cut_late(server->http);
        if (wait_event(server, left < DRAIN_LOOK_MS ? (int)left + 1 : DRAIN_LOOK_MS))
            return tap_fail(err, TAP_ERR_CANCELLED, "a second signal: requests were cut off");
    }
}

/* ---- start and end ------------------------------------------------------------------------------
 */

static tap_status start(struct server *server, tap_error *err)
{
    tap_service *service = &server->service;
    const tap_server_options *options = service->options;
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    char where[300];
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    server->masked = pthread_sigmask(SIG_BLOCK, &stop, &server->old_mask) == 0;
    sigaction(SIGPIPE, &ignore, &server->old_pipe);
    server->signals = signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK);
    service->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->signals < 0 || service->wake < 0)
        return tap_fail_errno(err, "server", "opening its signals", errno);
    TAP_TRY(tap_listen(&server->listener, where, sizeof where, options, err));
    tap_log_line(&service->log, TAP_LOG_INFO, "Listening on %s", where);
    if (!tap_listen_is_local(options->host) && options->token == NULL)
        tap_log_line(&service->log, TAP_LOG_WARNING,
                     "Whoever reaches %s can use this server: set a token, or listen on 127.0.0.1",
                     where);
    TAP_TRY(tap_jobs_start(&service->jobs, options, &service->log, &service->metrics, service->wake,
                           err));
    return tap_http_start(&server->http, service, server->listener, err);
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* Everything that start did, backwards. Only with no job in flight. */
static void stop(struct server *server)
{
    tap_service *service = &server->service;
    if (service->jobs != NULL)
        tap_jobs_drain(service->jobs);
    tap_http_stop(server->http);
    if (service->jobs != NULL)
        tap_jobs_free(service->jobs);
    close_fd(server->listener);
    close_fd(server->signals);
    close_fd(service->wake);
    tap_metrics_destroy(&service->metrics);
    if (server->masked) {
        sigaction(SIGPIPE, &server->old_pipe, NULL);
        pthread_sigmask(SIG_SETMASK, &server->old_mask, NULL);
    }
}

/* Bodies, pictures and answers of a megabyte come and go with every request. Left to itself the C
 * library takes each from the system, page by page, and gives it back. */
static void keep_memory(void)
{
    enum { KEEP_BLOCK = 16 * MIB, KEEP_FREE = 16 * MIB };
    mallopt(M_MMAP_THRESHOLD, KEEP_BLOCK);
    mallopt(M_TRIM_THRESHOLD, KEEP_FREE);
}

tap_status tap_server_run(const tap_server_options *options, tap_error *err)
{
    tap_error own;
    struct timespec now;
    if (err == NULL)
        err = &own;
    TAP_TRY(check(options, err));
    keep_memory();
    struct server server = {.listener = -1, .signals = -1};
    clock_gettime(CLOCK_REALTIME, &now);
    server.service.options = options;
    server.service.log = (tap_log){options->log_fd, options->log_json, options->quiet};
    server.service.wake = -1;
    server.service.started_unix = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
    tap_metrics_init(&server.service.metrics);
    tap_status status = start(&server, err);
    if (status == TAP_OK)
        status = serve(&server, err);
    if (status == TAP_OK)
        status = drain(&server, err);
    if (status == TAP_ERR_CANCELLED)
        return status;
    if (status == TAP_OK)
        tap_log_line(&server.service.log, TAP_LOG_INFO, "Shutdown complete");
    stop(&server);
    return status;
}
