/* HTTP for the hub: HEAD and GET over libcurl, redirects followed by us. Private to the room. */
#ifndef TAP_HUB_HTTP_H
#define TAP_HUB_HTTP_H

#include "hub.h"

/* One connection's worth of state; one thread. */
typedef struct tap_http tap_http;

/* What the hub's answer said about a file. */
typedef struct tap_http_facts {
    long code;       /* HTTP status of the last answer */
    char etag[80];   /* X-Linked-Etag, else ETag, without W/ and quotes */
    char commit[48]; /* X-Repo-Commit */
    char error[48];  /* X-Error-Code */
    bool has_size;   /* X-Linked-Size was sent */
    uint64_t size;   /* its value */
} tap_http_facts;

/* endpoint and token of options are set. Errors TAP_ERR_ARGUMENT: an endpoint that is neither https
 * nor http on a loopback address. */
tap_status tap_http_open(tap_http **http, const tap_hub_options *options, tap_error *err);
void tap_http_close(tap_http *http);

/* Asks for url's headers until an answer carries X-Linked-Etag or is no redirect. Any HTTP status
 * is TAP_OK and in facts->code, but for a 429 or 5xx at the last attempt. */
tap_status tap_http_head(tap_http *http, const char *url, tap_http_facts *facts, tap_error *err);

/* Writes url's content to fd from its start, at most max_bytes; a status other than 200 is an
 * error. Each attempt begins anew. file and total are the progress callback's. */
tap_status tap_http_get(tap_http *http, const char *url, int fd, uint64_t max_bytes,
                        const char *file, uint64_t total, tap_error *err);

#endif
