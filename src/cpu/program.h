/* A compiled plan: what compile.c makes and run.c replays. Private to the room. */
#ifndef TAP_CPU_PROGRAM_H
#define TAP_CPU_PROGRAM_H

#include "cpu.h"
#include "kernels.h"

#include <stdatomic.h>

enum {
    MAX_OUTPUTS_PER_STEP = 2, /* convolutions of one buffer that share its transform */
    STEP_NAME = 192
};

struct tap_backend_state {
    const tap_kernels *kernels;
    tap_pool *pool;
    char isa_reason[64];
};

/* The weights of one convolution as its kernel reads them. Reference-counted: the programs of a
 * model at several sizes share them. */
struct packed {
    _Atomic size_t references;
    size_t size_bytes, out_channels;
    char name[TAP_PLAN_NAME];
    float *weight; /* Winograd: [plane][panel][in][TAP_PANEL]; 1x1: [panel][in][TAP_PANEL];
                      one channel: [9][out] */
    float *bias;   /* [out padded] */
};

/* Where a buffer of the plan lives while the program runs. Inside, it has one pixel of zeros above
 * and left, and enough below and right for whole tiles: a convolution reads no pixel conditionally.
 * A plan's input or output lies in the caller's memory, dense. */
struct place {
    size_t height, width, channels; /* as the plan says */
    size_t padded;                  /* channels, a multiple of TAP_PANEL; a picture's 1 stays 1 */
    size_t rows, columns;           /* with the zeros around */
    size_t offset_bytes;            /* in scratch */
    int port;                       /* of the caller: >= 0; else -1 */
};

enum step_kind {
    STEP_IMPORT,    /* a dense input to a padded buffer */
    STEP_EXPORT,    /* a padded buffer to a dense output */
    STEP_CONV_ONE,  /* direct 3x3 of one channel */
    STEP_WINOGRAD,  /* 3x3, up to two convolutions of one buffer, perhaps after a fused CONV_ONE */
    STEP_POINTWISE, /* 1x1 */
    STEP_POOL,      /* 2x2 maximum, where no convolution could take it */
    STEP_SOFTMAX,
    STEP_NORM,
    STEP_PACK_ROWS, /* rows of a matrix into panels */
    STEP_SIMILARITY
};

struct step {
    enum step_kind kind;
    char name[STEP_NAME];
    size_t input, second; /* places */
    size_t n_outputs, outputs[MAX_OUTPUTS_PER_STEP];
    struct packed *packed[MAX_OUTPUTS_PER_STEP];
    bool relu[MAX_OUTPUTS_PER_STEP], pool[MAX_OUTPUTS_PER_STEP];
    struct packed *first; /* a fused CONV_ONE before, else NULL */
    bool first_relu;
    size_t tiles; /* Winograd: per item */
    size_t cell;
};

struct tap_program {
    const tap_kernels *kernels;
    tap_pool *pool;
    size_t n_places, n_steps, n_packed;
    struct place *places;
    struct step *steps;
    struct packed **packed;
    size_t buffer_bytes, worker_bytes, scratch_bytes, packed_bytes;
};

/* Tiles of 4x4 outputs that cover n pixels. */
static inline size_t tiles_of(size_t n)
{
    return (n + TAP_TILE_OUT - 1) / TAP_TILE_OUT;
}

static inline size_t padded_channels(size_t n)
{
    return (n + TAP_PANEL - 1) / TAP_PANEL * TAP_PANEL;
}

/* Floats between two planes of a Winograd block of n floats: not a multiple of a large power of
 * two, else all 36 planes compete for a few sets of the first cache. */
static inline size_t plane_stride(size_t n)
{
    return n + TAP_PANEL;
}

/* Output channels that one pass of a Winograd step makes: their 36 planes stay in the second
 * cache beside the input's. */
enum { CHANNELS_PER_PASS = 128 };

/* Pixels a side of the strip that a fused first layer makes for n tiles. */
static inline size_t strip_columns(size_t n_tiles)
{
    return n_tiles * TAP_TILE_OUT + 2;
}

enum { STRIP_TILES = 12 };

/* Rows of the first matrix that one item of the matcher takes. */
enum { SIMILARITY_ROWS = 48 };

/* pack.c */
struct packed *tap_packed_retain(struct packed *packed);
void tap_packed_release(struct packed *packed);
tap_status tap_pack_winograd(struct packed **out, tap_pool *pool, const tap_op *op, size_t in,
                             size_t out_channels, tap_error *err);
tap_status tap_pack_pointwise(struct packed **out, const tap_op *op, size_t in, size_t out_channels,
                              tap_error *err);
tap_status tap_pack_one(struct packed **out, const tap_op *op, size_t out_channels, tap_error *err);

/* compile.c */
tap_status tap_cpu_compile(tap_backend_state *state, const tap_plan *plan, const tap_program *share,
                           tap_program **program, tap_error *err);
void tap_cpu_free_program(tap_program *program);

/* run.c */
tap_status tap_cpu_run(const tap_program *program, void *scratch, const float *const *inputs,
                       float *const *outputs, double *step_ms, tap_error *err);

#endif
