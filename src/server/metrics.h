/* Counters and histograms, in Prometheus' text format 0.0.4. One mutex: the server handles some
 * hundred requests a second. Private to the server. */
#ifndef TAP_SERVER_METRICS_H
#define TAP_SERVER_METRICS_H

#include "text.h"

#include "tapetum.h"

#include <pthread.h>

typedef enum tap_route {
    TAP_ROUTE_PREDICT, /* of the first model */
    TAP_ROUTE_MATCH,   /* of SuperPoint, as its own two */
    TAP_ROUTE_SUPERPOINT_PREDICT,
    TAP_ROUTE_SUPERPOINT_MATCH,
    TAP_ROUTE_HAMER_PREDICT,
    TAP_ROUTE_HEALTH,
    TAP_ROUTE_INFO,
    TAP_ROUTE_MODELS,
    TAP_ROUTE_METRICS,
    TAP_ROUTE_OPENAPI,
    TAP_ROUTE_LIVEZ,
    TAP_ROUTE_READYZ,
    TAP_ROUTE_OTHER,
    TAP_N_ROUTES
} tap_route;

/* "/predict", ...; "other" for TAP_ROUTE_OTHER. */
const char *tap_route_path(tap_route route);

typedef enum tap_stage {
    TAP_STAGE_PARSE,       /* JSON, base64, multipart, fields */
    TAP_STAGE_QUEUE,       /* waiting: for the decoder and for the network */
    TAP_STAGE_DECODE,      /* the picture */
    TAP_STAGE_PREPROCESS,  /* resize, crop */
    TAP_STAGE_FORWARD,     /* the network */
    TAP_STAGE_POSTPROCESS, /* keypoints and descriptors; MANO */
    TAP_STAGE_ENCODE,      /* NPZ, base64, JSON */
    TAP_N_STAGES
} tap_stage;

enum { TAP_N_CODES = 20, TAP_N_BUCKETS = 14 };

typedef struct tap_histogram {
    uint64_t buckets[TAP_N_BUCKETS], count; /* buckets are not cumulative here */
    double sum;
} tap_histogram;

typedef struct tap_metrics {
    pthread_mutex_t mutex;
    uint64_t requests[TAP_N_ROUTES][TAP_N_CODES];
    tap_histogram seconds[TAP_N_ROUTES], stages[TAP_N_STAGES];
    uint64_t dropped, rejected, timed_out, keypoints, hands, bytes_in, bytes_out;
} tap_metrics;

/* Figures of the moment, which others keep. */
typedef struct tap_gauges {
    size_t queue_depth, queue_length, in_flight, connections, body_bytes;
    bool ready;
    const char *isa; /* NULL while starting */
    double started_unix;
} tap_gauges;

void tap_metrics_init(tap_metrics *metrics);
void tap_metrics_destroy(tap_metrics *metrics);
void tap_metrics_request(tap_metrics *metrics, tap_route route, unsigned code, double ms,
                         size_t bytes_in, size_t bytes_out);
void tap_metrics_stage(tap_metrics *metrics, tap_stage stage, double ms);
void tap_metrics_keypoints(tap_metrics *metrics, size_t n);
void tap_metrics_hands(tap_metrics *metrics, size_t n);
/* A request whose client had left; one refused by the full queue; a connection cut by a timeout. */
void tap_metrics_dropped(tap_metrics *metrics);
void tap_metrics_rejected(tap_metrics *metrics);
void tap_metrics_timed_out(tap_metrics *metrics);
void tap_metrics_write(tap_metrics *metrics, const tap_gauges *gauges, tap_text *text);

/* Resident memory now and at its highest, bytes; 0 where the system doesn't say. */
void tap_memory_resident(uint64_t *now, uint64_t *peak);

#endif
