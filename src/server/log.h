/* The server's log: a line an event, as text or JSON, each in one write. Private. */
#ifndef TAP_SERVER_LOG_H
#define TAP_SERVER_LOG_H

#include "tapetum.h"

typedef struct tap_log {
    int fd;
    bool json, quiet;
} tap_log;

/* A line for people: "2026-12-01T06:33:58.123Z INFO Loading weights". */
__attribute__((format(printf, 3, 4))) void tap_log_line(const tap_log *log, tap_log_level level,
                                                        const char *format, ...);

/* One request, when it is over. Strings come from clients; they are escaped here. */
typedef struct tap_log_request {
    const char *method, *path, *id;
    unsigned code;
    double ms;
    size_t bytes_in, bytes_out;
} tap_log_request;

void tap_log_access(const tap_log *log, const tap_log_request *request);

#endif
