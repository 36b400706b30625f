/* A SuperPoint from a file, compiled by the CPU backend for 640 x 480, for the golden tests. */
#ifndef TAP_TESTS_MODELS_NETWORK_H
#define TAP_TESTS_MODELS_NETWORK_H

#include "models/arrays.h"

#include "models/models.h"

enum { WIDTH = 640, HEIGHT = 480, N_PIXELS = WIDTH * HEIGHT };

/* Under sanitizers, without optimisation, a run takes many seconds; memory and threads show their
 * faults on the first picture as on the fifteenth. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED true
#endif
#endif
#ifndef SANITIZED
#define SANITIZED false
#endif

/* How many of n pictures to look at; says so where it is not all. */
size_t pictures_to_see(size_t n);

struct network {
    tap_pool *pool;
    tap_backend_state *state;
    tap_superpoint *model;
    tap_plan *plan;
    tap_program *program;
    void *scratch, *select_scratch;
    size_t dim;      /* of the descriptors; 0: none are computed */
    float *input;    /* [HEIGHT][WIDTH] */
    float **outputs; /* scores, descriptor map; with layers: then every other buffer of the plan */
};

/* with_layers: every operation's output is kept. */
void network_open(struct network *network, const char *weights, bool with_layers);
void network_close(struct network *network);
/* From network->input to network->outputs. */
void network_run(struct network *network);
const float *network_scores(const struct network *network);
const float *network_map(const struct network *network);

/* The points of the last run; they live until the next call. */
const tap_point *network_points(struct network *network, const tap_superpoint_options *options,
                                size_t *n);
/* Descriptors [n][dim] of points, from malloc. */
float *network_descriptors(const struct network *network, const tap_point *points, size_t n);

/* Pixels of a picture of the reference data as the network sees them: its red channel, resized to
 * 640 x 480 if it has another size. */
void load_plane(uint8_t plane[N_PIXELS], const char *path);
void network_set_input(struct network *network, const uint8_t plane[N_PIXELS]);

extern const tap_superpoint_options network_defaults;

#endif
