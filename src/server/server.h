/* server: models over HTTP. docs/server.md is the contract; this is the door for the program. The
 * room uses the public header and core only. */
#ifndef TAP_SERVER_H
#define TAP_SERVER_H

#include "tapetum.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TAP_SERVER_PORT = 20000, TAP_SERVER_PORT_WALK = 100, TAP_SERVER_MODELS = 2 };

typedef enum tap_server_kind { TAP_SERVER_SUPERPOINT, TAP_SERVER_HAMER } tap_server_kind;

/* One model to serve. NULL but for weights: the default of its kind. */
typedef struct tap_server_model {
    tap_server_kind kind;
    const char *weights;   /* folder or file; required */
    const char *name;      /* the package's, in /health and /info: "superpoint-p150",
                              "hamer-p150" */
    const char *repo;      /* the id in /v1/models: "magic-leap-community/superpoint",
                              "changh95/hamer-weights" */
    const char *revision;  /* NULL: not known */
    const char *precision; /* these three as in tap_model_options */
    const char *mano;
    const char *cache;
} tap_server_model;

/* Strings are borrowed until tap_server_run returns. */
typedef struct tap_server_options {
    size_t size;

    /* What is served: one or two models of different kinds. /predict is the first one's. */
    tap_server_model models[TAP_SERVER_MODELS];
    size_t n_models;
    const char *backend; /* as in tap_engine_options */
    const char *isa;     /* " */
    uint32_t n_threads;  /* " */
    uint32_t device_id;  /* 0 */

    /* Where, and to whom. */
    const char *host;  /* "127.0.0.1"; an address or a name */
    int32_t port;      /* -1: 20000, or the next free one after it; 0: any free one */
    const char *token; /* NULL: none; else every route but /health, /livez and /readyz wants
                          `Authorization: Bearer TOKEN` */
    const char *cors;  /* NULL: off; "*", or origins with commas between them */

    /* Limits. Each is in /info and in docs/server.md. */
    uint32_t n_http_threads;     /* 2; they receive and parse, and never run the network */
    uint32_t max_connections;    /* 256 */
    uint32_t max_connections_ip; /* 0: no limit for one address */
    uint32_t queue_length;       /* 64 requests waiting; one more gets 503 */
    size_t max_body_bytes;       /* 32 MiB, one request's body */
    size_t max_bodies_bytes;     /* 256 MiB, all bodies in memory together */
    size_t max_answer_bytes;     /* 32 MiB, one answer: bounds max_keypoints = -1 */
    uint64_t max_pixels;         /* 64,000,000, a picture's */
    uint64_t max_input_pixels;   /* 2,100,000, SuperPoint's input for `size` and "native" */
    uint32_t max_hands;          /* 16, boxes in one request; at most TAP_HANDS_MAX */
    uint32_t header_timeout_ms;  /* 30,000: from connect, or the answer before, to headers */
    uint32_t body_timeout_ms;    /* 120,000: from headers to the body's end */
    uint32_t answer_timeout_ms;  /* 120,000: for the client to take the answer */
    uint32_t idle_timeout_ms;    /* 30,000 without one byte, in body or answer */
    uint32_t drain_timeout_ms;   /* 4,500: for running requests after SIGTERM */

    /* The log: one line an event to a file descriptor. */
    int log_fd;    /* 2 */
    bool log_json; /* false: text */
    bool quiet;    /* true: no line for each request */
} tap_server_options;

void tap_server_options_init(tap_server_options *options);

/* Listens at once, loads the models, warms up, and serves until SIGTERM or SIGINT; then finishes
 * what runs, answers 503 to what waits, and returns. It blocks these two signals and ignores
 * SIGPIPE while it runs, so no other thread of the process should be started before.
 * Returns  TAP_OK after a drain. TAP_ERR_CANCELLED when requests were cut off, at the drain's time
 *          limit or by a second signal: threads still run then, and use what was lent to them, so
 *          the caller ends the process, by _exit.
 * Errors   TAP_ERR_ARGUMENT (an option: the message names it; an isa that this machine lacks),
 *          TAP_ERR_IO (the port is taken), those of tap_engine_open and tap_model_load. */
tap_status tap_server_run(const tap_server_options *options, tap_error *err);

/* One result as the contract's JSON object, on one line without a line feed at the end.
 * file      NULL, or written as the first field, "file"; bytes that are no UTF-8 become U+FFFD.
 * keypoints has descriptors or not; they are in the answer if it has.
 * options   those of the call that made keypoints; NULL: the defaults.
 * engine    for "serving_path".
 * *text     NUL-terminated; the caller frees it with free(). *n_text (may be NULL): its length.
 * Errors    TAP_ERR_INTERNAL (a number is not finite: the message says which), TAP_ERR_MEMORY. */
tap_status tap_answer_superpoint(char **text, size_t *n_text, const char *file,
                                 const tap_keypoints *keypoints,
                                 const tap_superpoint_options *options, const tap_engine *engine,
                                 tap_error *err);

/* What an answer about hands carries. */
typedef struct tap_hands_answer {
    bool return_vertices, return_faces; /* where there is MANO; true, false by the contract */
    bool image_rotations;               /* adds rotmats_image and axis_angle */
    bool list;                          /* {"hands": [...]} even of one hand, or of none */
} tap_hands_answer;

/* A picture's hands as POST /predict of HaMeR answers, on one line likewise: one hand is the
 * contract's object, several or none are {"hands": [...]}.
 * file    NULL, or written as the first field, "file".
 * answer  NULL: {true, false, false, false}.
 * Errors  as tap_answer_superpoint. */
tap_status tap_answer_hamer(char **text, size_t *n_text, const char *file, const tap_hands *hands,
                            const tap_hands_answer *answer, tap_error *err);

/* One pair of results as the JSON object that POST /match answers with, likewise.
 * keypoints the results of A and B; pairs [n_pairs] in order of a; match_ms the time it took. */
tap_status tap_answer_pairs(char **text, size_t *n_text, const tap_keypoints *const keypoints[2],
                            const tap_superpoint_options *options, const tap_match_options *match,
                            const tap_match_pair *pairs, size_t n_pairs, double match_ms,
                            const tap_engine *engine, tap_error *err);

#endif
