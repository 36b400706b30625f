/* One request and its answer. Private to the server. */
#ifndef TAP_SERVER_EXCHANGE_H
#define TAP_SERVER_EXCHANGE_H

#include "service.h"

#include <microhttpd.h>

enum { TAP_REQUEST_ID = 128 };

typedef enum tap_method {
    TAP_METHOD_GET, /* HEAD too: the library leaves the body out */
    TAP_METHOD_POST,
    TAP_METHOD_OPTIONS,
    TAP_METHOD_OTHER
} tap_method;

typedef struct tap_exchange {
    tap_service *service;
    struct MHD_Connection *connection;
    struct tap_link *link; /* the connection's time limits */
    double start_ms;
    char method_name[16];
    char id[TAP_REQUEST_ID + 1]; /* X-Request-Id */

    /* The request's target, taken apart in place. */
    char *target;
    tap_query query;

    tap_method method;
    tap_route route;

    /* The body so far, in memory that grows with it. */
    uint8_t *body;
    size_t n_body, capacity, content_length;
    size_t n_discarded; /* of a body that came after a refusal */
    bool begun;         /* headers have been seen */

    tap_job job;
    bool answered; /* answer is what to send */
    tap_answer answer;
} tap_exchange;

/* A request header, or NULL. */
const char *tap_exchange_header(const tap_exchange *exchange, const char *name);

/* Sets the answer: {"detail": words}. */
__attribute__((format(printf, 3, 4))) void
tap_exchange_refuse(tap_exchange *exchange, unsigned code, const char *format, ...);

/* ---- routes.c ------------------------------------------------------------------------------ */

/* With the headers there: the route's answer, or a refusal, or neither when the body is wanted. */
void tap_route_begin(tap_exchange *exchange);

/* With the body there: true when exchange->job is to be submitted; else the answer is set. */
bool tap_route_body(tap_exchange *exchange);

/* The answer's headers that depend on the request: authorization, CORS, Allow. */
void tap_route_headers(const tap_exchange *exchange, struct MHD_Response *response);

/* ---- describe.c ---------------------------------------------------------------------------- */

/* The bodies of /health, /info and /v1/models. */
void tap_describe_health(tap_service *service, tap_text *text);
void tap_describe_info(tap_service *service, tap_text *text);
void tap_describe_models(tap_service *service, tap_text *text);

/* ---- openapi.c ------------------------------------------------------------------------------- */

/* OpenAPI 3.1 of the routes there are. */
tap_status tap_describe_openapi(const tap_service *service, tap_text *text, tap_error *err);

#endif
