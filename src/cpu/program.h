/* A compiled plan: steps over memory whose places are decided. Private to the room. */
#ifndef TAP_CPU_PROGRAM_H
#define TAP_CPU_PROGRAM_H

#include "packed.h"

struct tap_backend_state {
    const tap_kernels *table; /* the chosen one, with its gaps */
    tap_kernels kernels;      /* the gaps filled */
    tap_pool *pool;
    char reason[64];
};

/* Where a buffer lies during a run. */
typedef struct tap_place {
    enum { TAP_PLACE_SCRATCH, TAP_PLACE_INPUT, TAP_PLACE_OUTPUT } kind;
    size_t index; /* of the input or output, or bytes into the scratch */
} tap_place;

typedef enum tap_step_kind {
    TAP_STEP_WINOGRAD, /* with front: the first layer computed into its input strips */
    TAP_STEP_DIRECT,
    TAP_STEP_MATRIX,
    TAP_STEP_CELL_SOFTMAX,
    TAP_STEP_L2_NORM,
    TAP_STEP_SIMILARITY,
    TAP_STEP_LINEAR,
    TAP_STEP_PATCH_EMBED,
    TAP_STEP_ATTENTION,
    TAP_STEP_LAYER_NORM,
    TAP_STEP_CONSTANT
} tap_step_kind;

typedef struct tap_step {
    tap_step_kind kind;
    char name[2 * TAP_PLAN_NAME + 64];
    tap_buffer x, second, y; /* numbers in the plan; second -1 without */
    tap_place x_place, second_place, y_place;
    tap_shape in, out; /* of x, of y */
    bool relu, pool, front_relu, gelu;
    size_t cell;
    size_t n_second;                                /* similarity: rows of b */
    tap_shape second_shape;                         /* of the second buffer, where there is one */
    size_t n_heads, second_channel;                 /* attention */
    float epsilon;                                  /* layer norm */
    size_t kernel, stride, padding, picture_height; /* patches */
    size_t group;                                   /* linear: panels of an item */
    tap_packed *weights, *front;                    /* retained; NULL where there are none */
    size_t block_rows, block_columns; /* of an item, in tiles (Winograd) or positions */
    size_t shared_bytes;              /* scratch of the step beside its buffers: packed b */
    size_t worker_bytes;              /* scratch of each worker */
} tap_step;

/* What a step's items see. */
typedef struct tap_step_run {
    const tap_step *step;
    const tap_kernels *kernels;
    const float *x, *second;
    float *y;
    float *shared;
    uint8_t *workers;
    size_t worker_stride, n_workers;
} tap_step_run;

static inline float *tap_step_worker(const tap_step_run *run, size_t worker)
{
    return (float *)(void *)(run->workers + worker * run->worker_stride);
}

/* Each kind: decides on blocks and scratch when compiled; runs. False if sizes overflow. */
bool tap_winograd_plan(tap_step *step, size_t n_threads);
void tap_winograd_run(const tap_step_run *run, tap_pool *pool);
bool tap_direct_plan(tap_step *step);
void tap_direct_run(const tap_step_run *run, tap_pool *pool);
bool tap_matrix_plan(tap_step *step);
void tap_matrix_run(const tap_step_run *run, tap_pool *pool);
void tap_cell_softmax_run(const tap_step_run *run, tap_pool *pool);
void tap_l2_norm_run(const tap_step_run *run, tap_pool *pool);
bool tap_similarity_plan(tap_step *step);
void tap_similarity_run(const tap_step_run *run, tap_pool *pool);

bool tap_linear_plan(tap_step *step, size_t n_threads);
void tap_linear_run(const tap_step_run *run, tap_pool *pool);
bool tap_patch_embed_plan(tap_step *step, size_t n_threads);
void tap_patch_embed_run(const tap_step_run *run, tap_pool *pool);
bool tap_attention_plan(tap_step *step);
void tap_attention_run(const tap_step_run *run, tap_pool *pool);
void tap_layer_norm_run(const tap_step_run *run, tap_pool *pool);
void tap_constant_run(const tap_step_run *run);

/* y [rows / 2][columns / 2][n] = 2x2 maxima of x, any n. Strides in floats. */
void tap_max_pool(float *y, size_t y_row, size_t y_pixel, const float *x, size_t x_row,
                  size_t x_pixel, size_t rows, size_t columns, size_t n);

/* The verbs of net/net.h. */
tap_status tap_program_compile(tap_backend_state *state, const tap_plan *plan,
                               const tap_compile_options *options, tap_program **program,
                               tap_error *err);
tap_status tap_program_layout(const tap_backend_state *state, const char *precision, char *text,
                              size_t size, tap_error *err);
tap_status tap_program_run(const tap_program *program, void *scratch, const float *const *inputs,
                           float *const *outputs, double *step_ms, tap_error *err);
const char *tap_program_step_name(const tap_program *program, size_t step);
void tap_program_inspect(const tap_program *program, tap_program_info *info);
void tap_program_free(tap_program *program);

#endif
