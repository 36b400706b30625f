#include "metrics.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The codes we answer; the last slot is for any other. */
static const unsigned codes[TAP_N_CODES] = {200, 204, 400, 401, 403, 404, 405, 406, 408, 411,
                                            413, 414, 415, 431, 499, 500, 501, 503, 505, 0};

static const double bounds[TAP_N_BUCKETS] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                             0.1,    0.25,  0.5,    1,     2.5,  5,     10};

static const char *const stage_names[TAP_N_STAGES] = {
    "parse", "queue", "decode", "preprocess", "forward", "postprocess", "encode"};

const char *tap_route_path(tap_route route)
{
    static const char *const paths[TAP_N_ROUTES] = {
        [TAP_ROUTE_PREDICT] = "/predict",
        [TAP_ROUTE_MATCH] = "/match",
        [TAP_ROUTE_SUPERPOINT_PREDICT] = "/superpoint/predict",
        [TAP_ROUTE_SUPERPOINT_MATCH] = "/superpoint/match",
        [TAP_ROUTE_HAMER_PREDICT] = "/hamer/predict",
        [TAP_ROUTE_HEALTH] = "/health",
        [TAP_ROUTE_INFO] = "/info",
        [TAP_ROUTE_MODELS] = "/v1/models",
        [TAP_ROUTE_METRICS] = "/metrics",
        [TAP_ROUTE_OPENAPI] = "/openapi.json",
        [TAP_ROUTE_LIVEZ] = "/livez",
        [TAP_ROUTE_READYZ] = "/readyz",
        [TAP_ROUTE_OTHER] = "other"};
    return paths[route];
}

void tap_metrics_init(tap_metrics *metrics)
{
    memset(metrics, 0, sizeof *metrics);
    pthread_mutex_init(&metrics->mutex, NULL);
}

void tap_metrics_destroy(tap_metrics *metrics)
{
    pthread_mutex_destroy(&metrics->mutex);
}

static void observe(tap_histogram *histogram, double ms)
{
    double seconds = ms / 1000;
    size_t i = 0;
    while (i < TAP_N_BUCKETS && seconds > bounds[i])
        i++;
    if (i < TAP_N_BUCKETS)
        histogram->buckets[i]++;
    histogram->count++;
    histogram->sum += seconds;
}

void tap_metrics_request(tap_metrics *metrics, tap_route route, unsigned code, double ms,
                         size_t bytes_in, size_t bytes_out)
{
    size_t i = 0;
    while (i < TAP_N_CODES - 1 && codes[i] != code)
        i++;
    pthread_mutex_lock(&metrics->mutex);
    metrics->requests[route][i]++;
    observe(&metrics->seconds[route], ms);
    metrics->bytes_in += bytes_in;
    metrics->bytes_out += bytes_out;
    pthread_mutex_unlock(&metrics->mutex);
}

void tap_metrics_stage(tap_metrics *metrics, tap_stage stage, double ms)
{
    pthread_mutex_lock(&metrics->mutex);
    observe(&metrics->stages[stage], ms);
    pthread_mutex_unlock(&metrics->mutex);
}

static void add(tap_metrics *metrics, uint64_t *counter, uint64_t n)
{
    pthread_mutex_lock(&metrics->mutex);
    *counter += n;
    pthread_mutex_unlock(&metrics->mutex);
}

void tap_metrics_keypoints(tap_metrics *metrics, size_t n)
{
    add(metrics, &metrics->keypoints, n);
}

void tap_metrics_hands(tap_metrics *metrics, size_t n)
{
    add(metrics, &metrics->hands, n);
}

void tap_metrics_dropped(tap_metrics *metrics)
{
    add(metrics, &metrics->dropped, 1);
}

void tap_metrics_rejected(tap_metrics *metrics)
{
    add(metrics, &metrics->rejected, 1);
}

void tap_metrics_timed_out(tap_metrics *metrics)
{
    add(metrics, &metrics->timed_out, 1);
}

/* ---- /proc ----------------------------------------------------------------------------------- */

/* The kB of one line of /proc/self/status, in bytes. */
static uint64_t status_line(FILE *file, const char *name)
{
    char line[256];
    unsigned long long kib;
    rewind(file);
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0 &&
            sscanf(line + strlen(name), ": %llu", &kib) == 1)
            return (uint64_t)kib * 1024;
    return 0;
}

void tap_memory_resident(uint64_t *now, uint64_t *peak)
{
    FILE *file = fopen("/proc/self/status", "re");
    *now = *peak = 0;
    if (file == NULL)
        return;
    *now = status_line(file, "VmRSS");
    *peak = status_line(file, "VmHWM");
    fclose(file);
}

/* ---- the text -------------------------------------------------------------------------------- */

static void head(tap_text *text, const char *name, const char *type, const char *help)
{
    tap_text_printf(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void single(tap_text *text, const char *name, const char *type, const char *help,
                   uint64_t value)
{
    head(text, name, type, help);
    tap_text_printf(text, "%s %llu\n", name, (unsigned long long)value);
}

static void write_histogram(tap_text *text, const char *name, const char *label, const char *value,
                            const tap_histogram *histogram)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < TAP_N_BUCKETS; i++) {
        sum += histogram->buckets[i];
        tap_text_printf(text, "%s_bucket{%s=\"%s\",le=\"%g\"} %llu\n", name, label, value,
                        bounds[i], (unsigned long long)sum);
    }
    tap_text_printf(text, "%s_bucket{%s=\"%s\",le=\"+Inf\"} %llu\n", name, label, value,
                    (unsigned long long)histogram->count);
    tap_text_printf(text, "%s_sum{%s=\"%s\"} %.9g\n%s_count{%s=\"%s\"} %llu\n", name, label, value,
                    histogram->sum, name, label, value, (unsigned long long)histogram->count);
}

static void write_requests(tap_text *text, const tap_metrics *metrics)
{
    const char *name = "tapetum_http_requests_total";
    head(text, name, "counter", "Requests answered, by route and status code.");
    for (size_t r = 0; r < TAP_N_ROUTES; r++)
        for (size_t c = 0; c < TAP_N_CODES; c++) {
            if (metrics->requests[r][c] == 0)
                continue;
            char code[8] = "other";
            if (c < TAP_N_CODES - 1)
                snprintf(code, sizeof code, "%u", codes[c]);
            tap_text_printf(text, "%s{route=\"%s\",code=\"%s\"} %llu\n", name,
                            tap_route_path((tap_route)r), code,
                            (unsigned long long)metrics->requests[r][c]);
        }
    name = "tapetum_http_request_seconds";
    head(text, name, "histogram", "From the request's headers to the end of its answer.");
    for (size_t r = 0; r < TAP_N_ROUTES; r++)
        if (metrics->seconds[r].count > 0)
            write_histogram(text, name, "route", tap_route_path((tap_route)r),
                            &metrics->seconds[r]);
    name = "tapetum_stage_seconds";
    head(text, name, "histogram", "Stages of /predict and /match.");
    for (size_t s = 0; s < TAP_N_STAGES; s++)
        write_histogram(text, name, "stage", stage_names[s], &metrics->stages[s]);
}

void tap_metrics_write(tap_metrics *metrics, const tap_gauges *gauges, tap_text *text)
{
    uint64_t now, peak;
    tap_memory_resident(&now, &peak);
    head(text, "tapetum_build_info", "gauge", "Version and instruction set; always 1.");
    tap_text_printf(text, "tapetum_build_info{version=\"%s\",isa=\"%s\"} 1\n", tap_version(),
                    gauges->isa != NULL ? gauges->isa : "");
    single(text, "tapetum_ready", "gauge", "1 when requests are run.", gauges->ready);
    single(text, "tapetum_queue_depth", "gauge", "Requests waiting.", gauges->queue_depth);
    single(text, "tapetum_queue_length", "gauge", "How many may wait.", gauges->queue_length);
    single(text, "tapetum_in_flight", "gauge", "Requests waiting or running.", gauges->in_flight);
    single(text, "tapetum_connections", "gauge", "Open connections.", gauges->connections);
    single(text, "tapetum_body_bytes", "gauge", "Memory of the bodies held.", gauges->body_bytes);
    pthread_mutex_lock(&metrics->mutex);
    write_requests(text, metrics);
    single(text, "tapetum_dropped_requests_total", "counter",
           "Requests not run because their client had left.", metrics->dropped);
    single(text, "tapetum_rejected_requests_total", "counter", "Requests the full queue refused.",
           metrics->rejected);
    single(text, "tapetum_timed_out_connections_total", "counter",
           "Connections cut by the time limits of headers, body or answer.", metrics->timed_out);
    single(text, "tapetum_keypoints_total", "counter", "Keypoints served.", metrics->keypoints);
    single(text, "tapetum_hands_total", "counter", "Hands served.", metrics->hands);
    single(text, "tapetum_received_body_bytes_total", "counter", "Bodies received.",
           metrics->bytes_in);
    single(text, "tapetum_sent_body_bytes_total", "counter", "Bodies answered.",
           metrics->bytes_out);
    pthread_mutex_unlock(&metrics->mutex);
    single(text, "process_resident_memory_bytes", "gauge", "Resident memory.", now);
    single(text, "process_resident_memory_peak_bytes", "gauge", "Its highest value.", peak);
    head(text, "process_start_time_seconds", "gauge", "When the server started, Unix time.");
    tap_text_printf(text, "process_start_time_seconds %.3f\n", gauges->started_unix);
}
