/* net: a network as a plan, the table that a backend fills, and the reference executor.
 *
 * A model writes its network once, as a flat list of operations over buffers of fixed shape. A
 * backend compiles the plan into a program: it packs the weights for its hardware, lays the
 * buffers out in one block of scratch memory and fuses what it can. A call replays the program. */
#ifndef TAP_NET_H
#define TAP_NET_H

#include "core/core.h"

enum {
    TAP_PLAN_MAX_OPS = 512,
    TAP_PLAN_MAX_BUFFERS = 1024,
    TAP_PLAN_MAX_PORTS = 16, /* inputs, outputs */
    TAP_PLAN_NAME = 96
};

/* ---- the plan ---------------------------------------------------------------------------- */

/* A buffer's number in its plan; negative after a failure. */
typedef int32_t tap_buffer;

/* float32 [height][width][channels], dense. */
typedef struct tap_shape {
    size_t height, width, channels;
} tap_shape;

typedef enum tap_op_kind {
    /* k x k convolution, stride 1, zero padding k / 2, k = 1 or 3:
     *   y[o] = bias[o] + sum over i, u, v of weight[o][i][u][v] * x[i] at (y + u - k/2, x + v -
     * k/2) then, if asked, max(y, 0), then 2x2 max pooling with stride 2. */
    TAP_OP_CONV,
    /* [h][w][r * r + 1] logits -> [h * r][w * r][1]: softmax over the channels (the maximum taken
     * off first), the last one dropped, channel r * i + j put at pixel (i, j) of its r x r cell. */
    TAP_OP_CELL_SOFTMAX,
    /* v / max(|v|, 1e-12) over the channels of each position. */
    TAP_OP_L2_NORM,
    /* a [1][m][k], b [1][n][k] -> [1][m][n]: every row of a times every row of b. */
    TAP_OP_SIMILARITY,
    /* Pictures above each other, [n * picture_height][w][in], to tokens [n][rows * columns][out]: a
     * k x k convolution with a stride and zero padding, y[o] = bias[o] + table[token][o] (without a
     * table: nothing) + sum as in TAP_OP_CONV; tokens row by row. */
    TAP_OP_PATCH_EMBED,
    /* (v - mean) / sqrt(variance + epsilon) * weight + bias over the channels of each position;
     * variance is the mean square of the differences. */
    TAP_OP_LAYER_NORM,
    /* y[o] = bias[o] (without: 0) + sum over i of weight[o][i] * x[i]; then, if asked,
     * gelu(y) = y / 2 * (1 + erf(y / sqrt 2)); then, if there is a second buffer, + second. */
    TAP_OP_LINEAR,
    /* softmax(q k^T / sqrt(d)) v for each of n_heads heads of d channels, heads side by side;
     * within each of the height sequences. x [n][m][inner] is q, and k and v [n][t][...] lie in the
     * second buffer, from channel second_channel and inner channels later; without a second buffer
     * x [n][m][3 inner] holds q, k, v side by side. */
    TAP_OP_ATTENTION,
    /* The same row for each of n sequences: y [n][1][channels] = bias. No input. */
    TAP_OP_CONSTANT
} tap_op_kind;

typedef struct tap_op {
    tap_op_kind kind;
    char name[TAP_PLAN_NAME]; /* the tensors' prefix, for messages and `tapetum info --plan` */
    tap_buffer input, output; /* input -1: none */
    tap_buffer second; /* SIMILARITY: b; LINEAR: what is added; ATTENTION: k and v; else -1 */
    /* Borrowed from the model; in the shapes above. */
    const float *weight, *bias, *table;
    /* TAP_OP_CONV, TAP_OP_PATCH_EMBED */
    size_t kernel, stride, padding, picture_height;
    bool relu, pool;
    /* TAP_OP_CELL_SOFTMAX */
    size_t cell;
    /* TAP_OP_LAYER_NORM */
    float epsilon;
    /* TAP_OP_LINEAR */
    bool gelu, exact;
    /* TAP_OP_ATTENTION */
    size_t n_heads, second_channel;
} tap_op;

typedef struct tap_plan {
    size_t n_ops, n_buffers, n_inputs, n_outputs;
    tap_op ops[TAP_PLAN_MAX_OPS];
    tap_shape shapes[TAP_PLAN_MAX_BUFFERS];
    tap_buffer inputs[TAP_PLAN_MAX_PORTS], outputs[TAP_PLAN_MAX_PORTS];
    tap_error failure; /* the first failure sticks; tap_plan_finish reports it */
} tap_plan;

/* Builders check shapes; after the first failure they do nothing and return -1. */
tap_status tap_plan_create(tap_plan **plan, tap_error *err);
void tap_plan_free(tap_plan *plan);

tap_buffer tap_plan_input(tap_plan *plan, tap_shape shape);
void tap_plan_output(tap_plan *plan, tap_buffer buffer);

typedef struct tap_conv {
    const float *weight, *bias; /* [out][in][kernel][kernel], [out] */
    size_t out, kernel;         /* in is the input buffer's channels */
    bool relu, pool;
} tap_conv;

tap_buffer tap_plan_conv(tap_plan *plan, tap_buffer x, const char *name, const tap_conv *conv);
tap_buffer tap_plan_cell_softmax(tap_plan *plan, tap_buffer x, const char *name, size_t cell);
tap_buffer tap_plan_l2_norm(tap_plan *plan, tap_buffer x, const char *name);
tap_buffer tap_plan_similarity(tap_plan *plan, tap_buffer a, tap_buffer b, const char *name);

typedef struct tap_patch_embed {
    const float *weight, *bias, *table;
    size_t out, kernel, stride, padding, picture_height;
} tap_patch_embed;

tap_buffer tap_plan_patch_embed(tap_plan *plan, tap_buffer x, const char *name,
                                const tap_patch_embed *embed);

tap_buffer tap_plan_layer_norm(tap_plan *plan, tap_buffer x, const char *name, const float *weight,
                               const float *bias, float epsilon);

typedef struct tap_linear {
    const float *weight, *bias; /* [out][in], [out] or NULL */
    size_t out;
    bool gelu;
    bool exact;     /* rounding here is felt in the result: not to be done in 8 bits */
    tap_buffer add; /* -1: nothing; else of the output's shape */
} tap_linear;

tap_buffer tap_plan_linear(tap_plan *plan, tap_buffer x, const char *name,
                           const tap_linear *linear);

/* kv -1: x holds q, k and v. */
tap_buffer tap_plan_attention(tap_plan *plan, tap_buffer x, tap_buffer kv, size_t kv_channel,
                              const char *name, size_t n_heads);

tap_buffer tap_plan_constant(tap_plan *plan, const char *name, const float *row, size_t n,
                             size_t channels);

/* TAP_OK if every builder call was right and there is an output. */
tap_status tap_plan_finish(const tap_plan *plan, tap_error *err);

/* Elements of a buffer. The builders have checked that it does not overflow. */
size_t tap_plan_elements(const tap_plan *plan, tap_buffer buffer);

/* Multiply-adds of an operation by the plain algorithm. */
uint64_t tap_plan_macs(const tap_plan *plan, const tap_op *op);

/* The last operation that reads the buffer, or n_ops if the plan outputs it: when its memory is
 * free again. */
size_t tap_plan_last_use(const tap_plan *plan, tap_buffer buffer);

/* A line an operation, for people. *text is released with free(). */
tap_status tap_plan_print(const tap_plan *plan, char **text, tap_error *err);

/* ---- backends ---------------------------------------------------------------------------- */

typedef struct tap_backend_options {
    const char *isa; /* NULL: the backend chooses */
    tap_pool *pool;  /* outlives the backend */
} tap_backend_options;

typedef struct tap_backend_info {
    char isa[16], isa_reason[64];
    char kernels[2048]; /* a line an operation */
} tap_backend_info;

/* What a backend keeps between calls, and a compiled plan. Each backend defines its own. */
typedef struct tap_backend_state tap_backend_state;
typedef struct tap_program tap_program;

/* One operation's packed weights, as a store keeps them. */
typedef struct tap_pack_request {
    const char *name;
    size_t n_bytes;
    void *memory; /* given by the store, TAP_ALIGN-aligned */
    bool filled;  /* by the store: what lies there is what was packed there before */
} tap_pack_request;

/* Memory for packed weights that outlives the program, of another origin than malloc. */
typedef struct tap_pack_store {
    void *user;
    /* Called once a compilation, with all that is not shared. */
    tap_status (*take)(void *user, tap_pack_request *requests, size_t n, tap_error *err);
} tap_pack_store;

typedef struct tap_compile_options {
    /* A program made from the same weights at another size or with fewer outputs, or NULL: weights
     * packed there are shared, found by operation name and not packed again. */
    const tap_program *share;
    /* Of linear layers: NULL or "f32"; "f16"; "int8", where exact ones have "f16". */
    const char *precision;
    const tap_pack_store *store; /* NULL: memory of the program's own */
    /* Called from the compiling thread while weights are packed; false: TAP_ERR_CANCELLED. NULL:
     * not called. */
    bool (*progress)(void *user, uint64_t done, uint64_t total);
    void *progress_user;
} tap_compile_options;

typedef struct tap_program_info {
    size_t scratch_bytes; /* what run needs, TAP_ALIGN-aligned */
    size_t packed_bytes;  /* weights as packed, shared by the programs of one model */
    size_t n_steps;       /* the program's steps: one or more fused operations each */
} tap_program_info;

typedef struct tap_backend {
    const char *name;
    tap_status (*open)(tap_backend_state **state, const tap_backend_options *options,
                       tap_error *err);
    void (*close)(tap_backend_state *state);
    void (*describe)(const tap_backend_state *state, tap_backend_info *info);

    /* Compiles a plan; the plan may be freed afterwards, its weights too. options may be NULL.
     * Refuses, naming the operation, what it can't do. Thread-safe. */
    tap_status (*compile)(tap_backend_state *state, const tap_plan *plan,
                          const tap_compile_options *options, tap_program **program,
                          tap_error *err);
    /* What packed weights of this precision depend on beside the weights, "avx2-f32-1": a store
     * keeps them under it. TAP_ERR_UNSUPPORTED: no such precision here. */
    tap_status (*layout)(const tap_backend_state *state, const char *precision, char *text,
                         size_t size, tap_error *err);
    /* inputs and outputs in the plan's order, dense as tap_shape says. step_ms may be NULL, else
     * n_steps values. Allocates nothing. Several runs of one program may go on at once, each with
     * its own scratch. */
    tap_status (*run)(const tap_program *program, void *scratch, const float *const *inputs,
                      float *const *outputs, double *step_ms, tap_error *err);
    /* "encoder.conv_blocks.0.conv_a + .conv_b: conv3x3 fused, winograd 4x4, relu, pool". Static
     * for the program's life. */
    const char *(*step_name)(const tap_program *program, size_t step);
    void (*inspect)(const tap_program *program, tap_program_info *info);
    void (*free_program)(tap_program *program);
} tap_backend;

/* ---- the reference executor --------------------------------------------------------------- */

/* Runs the plan by the definitions above: plain loops, sums in double, no SIMD, no fusing, one
 * thread. Slow by design; every backend is compared with it. */
tap_status tap_reference_run(const tap_plan *plan, const float *const *inputs,
                             float *const *outputs, tap_error *err);

/* Pearson's correlation of n pairs, in double; 1 if both are constant and equal, 0 if only one is
 * constant, NaN if a value is not finite. The figure of the warm-up gate. */
double tap_correlation(const float *a, const float *b, size_t n);

#endif
