/* What the server's parts share: options, log, counters, jobs. Private to the server. */
#ifndef TAP_SERVER_SERVICE_H
#define TAP_SERVER_SERVICE_H

#include "jobs.h"

#include <stdatomic.h>

typedef struct tap_service {
    const tap_server_options *options;
    tap_log log;
    tap_metrics metrics;
    tap_jobs *jobs;
    int wake; /* eventfd: something has happened that the main loop should look at */
    double started_unix;
    atomic_size_t n_connections, n_exchanges; /* open; with a request on them */
    atomic_size_t body_bytes;                 /* memory of the bodies held */
    atomic_bool draining;
} tap_service;

/* Makes the main loop look. */
void tap_service_wake(const tap_service *service);

#endif
