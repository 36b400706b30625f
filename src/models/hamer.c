/* HaMeR's tensors, checked, with all of the head that no image changes worked out at load; and the
 * plan of the network. */
#include "hamer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_DEPTH = 64,
    MAX_DIM = 8192,
    PATCH = 16,
    PATCH_PADDING = 2,
    GATE_ROWS = 2, /* of patches, which the warm-up gate looks at */
    VIT_HEAD = 80,
    MANO_HEAD = 64
};

static const float vit_epsilon = 1e-6f, head_epsilon = 1e-5f;

struct tap_hamer {
    tap_hamer_config config;
    const tap_weights *weights;
    const tap_tensor **found;
    const float **tensors; /* in the order of hamer_tensors.c; borrowed, or in copies */
    float **copies;        /* as long; NULL where borrowed */
    uint64_t n_parameters;

    /* Made by tap_hamer_read. */
    float *positions;    /* [192][dim]: pos_embed[1 + t] + pos_embed[0] */
    float *kv;           /* [layers][2 inner][dim]: to_kv of all layers, which share their input */
    float *readout;      /* [109][head_dim] */
    float *readout_bias; /* with the mean parameters */
    float *first_query;  /* [inner]: the query of the first cross-attention */
    float *first_bias;   /* [head_dim]: its output's bias and the token that it is added to */
};

/* ---- sizes ------------------------------------------------------------------------------------
 */

/* One more than the greatest N of "prefixN.": with a block missing between, its first tensor is
 * missed later, by name. At most MAX_DEPTH + 1. */
static size_t count(const tap_weights *weights, const char *prefix)
{
    size_t n = 0, n_prefix = strlen(prefix);
    for (size_t i = 0; i < tap_weights_count(weights); i++) {
        const char *name = tap_weights_at(weights, i)->name;
        if (strncmp(name, prefix, n_prefix) != 0)
            continue;
        const char *digits = name + n_prefix;
        size_t n_digits = strspn(digits, "0123456789");
        if (n_digits == 0 || digits[n_digits] != '.')
            continue;
        size_t number = n_digits > 4 ? MAX_DEPTH : (size_t)strtoul(digits, NULL, 10);
        n = number + 1 > n ? number + 1 : n;
    }
    return n <= MAX_DEPTH ? n : MAX_DEPTH + 1;
}

/* Side i of a tensor that decides about sizes; 0 where there is none. */
static size_t side(const tap_weights *weights, const char *name, size_t rank, size_t i)
{
    const tap_tensor *tensor = tap_weights_find(weights, name);
    return tensor != NULL && tensor->rank == rank && tensor->shape[i] <= MAX_DIM ? tensor->shape[i]
                                                                                 : 0;
}

/* No tensor shows how many heads there are; the published sizes and the test's do. */
static size_t n_heads(size_t width, size_t per_head, size_t tiny_width, size_t tiny_heads)
{
    if (width == tiny_width)
        return tiny_heads;
    return width % per_head == 0 ? width / per_head : 0;
}

static tap_status read_config(tap_hamer_config *config, const tap_weights *weights, tap_error *err)
{
    static const char head[] = "mano_head.transformer.transformer.layers.";
    const char *file = tap_weights_file(weights);
    if (tap_weights_find(weights, "backbone.patch_embed.proj.weight") == NULL)
        return tap_fail(
            err, TAP_ERR_UNSUPPORTED,
            "%s: not a HaMeR: it has no 'backbone.patch_embed.proj.weight'; its first "
            "tensor is '%s'; give upstream's hamer.ckpt or a .safetensors of the same names",
            file, tap_weights_count(weights) > 0 ? tap_weights_at(weights, 0)->name : "(none)");
    *config = (tap_hamer_config){
        .dim = side(weights, "backbone.patch_embed.proj.weight", 4, 0),
        .depth = count(weights, "backbone.blocks."),
        .mlp = side(weights, "backbone.blocks.0.mlp.fc1.weight", 2, 0),
        .head_dim = side(weights, "mano_head.transformer.pos_embedding", 3, 2),
        .head_depth = count(weights, head),
        .head_inner =
            side(weights, "mano_head.transformer.transformer.layers.0.1.fn.to_q.weight", 2, 0),
        .head_mlp =
            side(weights, "mano_head.transformer.transformer.layers.0.2.fn.net.0.weight", 2, 0)};
    config->heads = n_heads(config->dim, VIT_HEAD, tap_hamer_tiny.dim, tap_hamer_tiny.heads);
    config->head_heads = n_heads(config->head_inner, MANO_HEAD, tap_hamer_tiny.head_inner,
                                 tap_hamer_tiny.head_heads);
    if (config->dim == 0 || config->mlp == 0 || config->head_dim == 0 || config->head_inner == 0 ||
        config->head_mlp == 0 || config->depth == 0 || config->head_depth == 0)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: not a whole HaMeR: %zu blocks of width %zu, %zu decoder layers of "
                        "width %zu; fetch or convert it again",
                        file, config->depth, config->dim, config->head_depth, config->head_dim);
    if (config->depth > MAX_DEPTH || config->head_depth > MAX_DEPTH)
        return tap_fail(err, TAP_ERR_LIMIT, "%s: more than %d blocks; HaMeR has 32", file,
                        MAX_DEPTH);
    if (config->heads == 0 || config->head_heads == 0)
        return tap_fail(err, TAP_ERR_UNSUPPORTED,
                        "%s: widths %zu and %zu: how many heads they have is known for multiples "
                        "of %d and %d; HaMeR's are 1280 and 512",
                        file, config->dim, config->head_inner, VIT_HEAD, MANO_HEAD);
    return TAP_OK;
}

/* ---- tensors ----------------------------------------------------------------------------------
 */

static tap_status check_shape(const tap_tensor *tensor, const tap_hamer_tensor *wanted,
                              const char *file, tap_error *err)
{
    bool right = tensor->rank == wanted->rank;
    for (size_t i = 0; right && i < wanted->rank; i++)
        right = tensor->shape[i] == wanted->shape[i];
    if (right)
        return TAP_OK;
    char text[2][128] = {"", ""};
    for (size_t side_of = 0; side_of < 2; side_of++) {
        const size_t *shape = side_of == 0 ? tensor->shape : wanted->shape;
        size_t rank = side_of == 0 ? tensor->rank : wanted->rank, used = 0;
        for (size_t i = 0; i < rank && used < sizeof text[0]; i++)
            used += (size_t)snprintf(text[side_of] + used, sizeof text[0] - used, "%s%zu",
                                     i == 0 ? "" : ", ", shape[i]);
    }
    return tap_fail(err, TAP_ERR_FORMAT,
                    "%s: tensor '%s' has the shape (%s), expected (%s); fetch or convert it again",
                    file, tensor->name, text[0], text[1]);
}

/* Dense float32 at its own alignment: usable where it lies. */
static bool is_ready(const tap_tensor *tensor)
{
    size_t stride = 1;
    if (tensor->dtype != TAP_DTYPE_F32 || (uintptr_t)tensor->data % sizeof(float) != 0)
        return false;
    for (size_t i = tensor->rank; i-- > 0; stride *= tensor->shape[i])
        if (tensor->shape[i] > 1 && tensor->strides[i] != stride)
            return false;
    return true;
}

static tap_status check_finite(const tap_tensor *tensor, const char *file, tap_error *err)
{
    const float *values = (const void *)tensor->data;
    /* A NaN or an infinity times 0 is a NaN, and stays one in the sum. */
    float sum = 0;
    for (size_t i = 0; i < tensor->n_elements; i++)
        sum += values[i] * 0;
    return sum == 0 ? TAP_OK
                    : tap_fail(err, TAP_ERR_FORMAT, "%s: tensor '%s' holds a NaN or an infinity",
                               file, tensor->name);
}

/* Checks that the tensor is there and of the right shape. */
static tap_status find_tensor(tap_hamer *model, size_t i, tap_error *err)
{
    const char *file = tap_weights_file(model->weights);
    tap_hamer_tensor wanted;
    tap_hamer_tensor_at(&wanted, &model->config, i);
    const tap_tensor *tensor = tap_weights_find(model->weights, wanted.name);
    if (tensor == NULL)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: tensor '%s' is missing; the file is not a whole HaMeR, fetch or "
                        "convert it again",
                        file, wanted.name);
    TAP_TRY(check_shape(tensor, &wanted, file, err));
    model->n_parameters += tensor->n_elements;
    model->found[i] = tensor;
    model->tensors[i] = (const void *)tensor->data; /* not to be read before tap_hamer_read */
    return TAP_OK;
}

static tap_status read_tensor(tap_hamer *model, size_t i, tap_error *err)
{
    const char *file = tap_weights_file(model->weights);
    const tap_tensor *tensor = model->found[i];
    if (is_ready(tensor))
        return check_finite(tensor, file, err);
    if (model->copies[i] == NULL)
        model->copies[i] = tap_alloc(tensor->n_elements, sizeof(float));
    if (model->copies[i] == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for '%s'", file, tensor->name);
    model->tensors[i] = model->copies[i];
    return tap_tensor_to_f32(tensor, file, model->copies[i], err);
}

/* ---- what no image changes --------------------------------------------------------------------
 */

static const float *layer_tensor(const tap_hamer *model, size_t layer, size_t i)
{
    return model->tensors[tap_hamer_layer(&model->config, layer) + i];
}

static void layer_norm(double *y, const double *x, size_t n, const float *weight, const float *bias)
{
    double mean = 0, variance = 0;
    for (size_t i = 0; i < n; i++)
        mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        variance += (x[i] - mean) * (x[i] - mean) / (double)n;
    for (size_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) / sqrt(variance + (double)head_epsilon) * (double)weight[i] +
               (double)bias[i];
}

static void multiply(double *y, const float *weight, const double *x, size_t n_out, size_t n_in)
{
    for (size_t o = 0; o < n_out; o++) {
        y[o] = 0;
        for (size_t i = 0; i < n_in; i++)
            y[o] += (double)weight[o * n_in + i] * x[i];
    }
}

/* The one query token is the number 0, so it enters the decoder as a constant; its first
 * self-attention, over itself alone, is W_o W_v of its norm. work: 3 head_dim + inner doubles. */
static void fold_token(tap_hamer *model, double *work)
{
    const tap_hamer_config *c = &model->config;
    size_t d = c->head_dim, inner = c->head_inner;
    double *x = work, *norm = x + d, *out = norm + d, *v = out + d;
    const float *out_bias = layer_tensor(model, 0, TAP_LAYER_SELF_OUT_BIAS);
    for (size_t i = 0; i < d; i++)
        x[i] = (double)model->tensors[TAP_HAMER_TOKEN_BIAS][i] +
               (double)model->tensors[TAP_HAMER_TOKEN_POSITION][i];
    layer_norm(norm, x, d, layer_tensor(model, 0, TAP_LAYER_SELF_NORM_WEIGHT),
               layer_tensor(model, 0, TAP_LAYER_SELF_NORM_BIAS));
    multiply(v, layer_tensor(model, 0, TAP_LAYER_SELF_QKV) + 2 * inner * d, norm, inner, d);
    multiply(out, layer_tensor(model, 0, TAP_LAYER_SELF_OUT_WEIGHT), v, d, inner);
    for (size_t i = 0; i < d; i++)
        x[i] += out[i] + (double)out_bias[i];
    layer_norm(norm, x, d, layer_tensor(model, 0, TAP_LAYER_CROSS_NORM_WEIGHT),
               layer_tensor(model, 0, TAP_LAYER_CROSS_NORM_BIAS));
    multiply(v, layer_tensor(model, 0, TAP_LAYER_CROSS_Q), norm, inner, d);
    for (size_t i = 0; i < inner; i++)
        model->first_query[i] = (float)v[i];
    for (size_t i = 0; i < d; i++)
        model->first_bias[i] =
            (float)(x[i] + (double)layer_tensor(model, 0, TAP_LAYER_CROSS_OUT_BIAS)[i]);
}

/* The three read-outs below each other, with the mean parameters in their bias. */
static void join_readouts(tap_hamer *model)
{
    static const struct {
        size_t weight, bias, mean, n;
    } parts[] = {
        {TAP_HAMER_POSE_WEIGHT, TAP_HAMER_POSE_BIAS, TAP_HAMER_INIT_POSE, TAP_HAMER_POSE},
        {TAP_HAMER_BETAS_WEIGHT, TAP_HAMER_BETAS_BIAS, TAP_HAMER_INIT_BETAS, TAP_HAMER_BETAS},
        {TAP_HAMER_CAMERA_WEIGHT, TAP_HAMER_CAMERA_BIAS, TAP_HAMER_INIT_CAMERA, TAP_HAMER_CAMERA}};
    size_t d = model->config.head_dim, row = 0;
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
        memcpy(model->readout + row * d, model->tensors[parts[p].weight],
               parts[p].n * d * sizeof(float));
        for (size_t i = 0; i < parts[p].n; i++, row++)
            model->readout_bias[row] =
                model->tensors[parts[p].bias][i] + model->tensors[parts[p].mean][i];
    }
}

static void fold(tap_hamer *model, double *work)
{
    const tap_hamer_config *c = &model->config;
    size_t kv = 2 * c->head_inner * c->dim;
    const float *table = model->tensors[TAP_HAMER_POS_EMBED];
    for (size_t i = 0; i < TAP_HAMER_TOKENS * c->dim; i++)
        model->positions[i] = table[c->dim + i] + table[i % c->dim];
    for (size_t layer = 0; layer < c->head_depth; layer++)
        memcpy(model->kv + layer * kv, layer_tensor(model, layer, TAP_LAYER_CROSS_KV),
               kv * sizeof(float));
    join_readouts(model);
    fold_token(model, work);
}

/* ---- the model --------------------------------------------------------------------------------
 */

static tap_status make_model(tap_hamer *model, tap_error *err)
{
    const tap_hamer_config *c = &model->config;
    size_t n = tap_hamer_n_tensors(c);
    model->tensors = calloc(n, sizeof *model->tensors);
    model->found = calloc(n, sizeof *model->found);
    model->copies = calloc(n, sizeof *model->copies);
    if (model->tensors == NULL || model->found == NULL || model->copies == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", tap_weights_file(model->weights));
    /* Before any memory of the sizes that the file claims: a side of a tensor without elements
     * costs nothing to claim. */
    for (size_t i = 0; i < n; i++)
        TAP_TRY(find_tensor(model, i, err));
    model->positions = tap_alloc(TAP_HAMER_TOKENS * c->dim, sizeof(float));
    model->kv = tap_alloc(c->head_depth * 2 * c->head_inner * c->dim, sizeof(float));
    model->readout = tap_alloc(TAP_HAMER_OUTPUTS * c->head_dim, sizeof(float));
    model->readout_bias = tap_alloc(TAP_HAMER_OUTPUTS, sizeof(float));
    model->first_query = tap_alloc(c->head_inner, sizeof(float));
    model->first_bias = tap_alloc(c->head_dim, sizeof(float));
    if (model->positions == NULL || model->kv == NULL || model->readout == NULL ||
        model->readout_bias == NULL || model->first_query == NULL || model->first_bias == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", tap_weights_file(model->weights));
    return TAP_OK;
}

tap_status tap_hamer_create(tap_hamer **out, const tap_weights *weights, tap_error *err)
{
    *out = NULL;
    tap_hamer_config config;
    TAP_TRY(read_config(&config, weights, err));
    tap_hamer *model = calloc(1, sizeof *model);
    if (model == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", tap_weights_file(weights));
    model->config = config;
    model->weights = weights;
    tap_status status = make_model(model, err);
    if (status != TAP_OK) {
        tap_hamer_free(model);
        return status;
    }
    *out = model;
    return TAP_OK;
}

tap_status tap_hamer_read(tap_hamer *model, tap_error *err)
{
    const tap_hamer_config *c = &model->config;
    for (size_t i = 0; i < tap_hamer_n_tensors(c); i++)
        TAP_TRY(read_tensor(model, i, err));
    double *work = tap_alloc(3 * c->head_dim + c->head_inner, sizeof *work);
    if (work == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", tap_weights_file(model->weights));
    fold(model, work);
    free(work);
    return TAP_OK;
}

void tap_hamer_forget(tap_hamer *model)
{
    for (size_t i = 0; i < tap_hamer_n_tensors(&model->config); i++) {
        free(model->copies[i]);
        model->copies[i] = NULL;
        model->tensors[i] = (const void *)model->found[i]->data;
    }
    tap_weights_rest(model->weights);
}

void tap_hamer_free(tap_hamer *model)
{
    if (model == NULL)
        return;
    for (size_t i = 0; model->copies != NULL && i < tap_hamer_n_tensors(&model->config); i++)
        free(model->copies[i]);
    free(model->copies);
    free(model->found);
    free(model->tensors);
    free(model->positions);
    free(model->kv);
    free(model->readout);
    free(model->readout_bias);
    free(model->first_query);
    free(model->first_bias);
    free(model);
}

const tap_hamer_config *tap_hamer_describe(const tap_hamer *model)
{
    return &model->config;
}

uint64_t tap_hamer_parameters(const tap_hamer *model)
{
    return model->n_parameters;
}

/* ---- the plan ---------------------------------------------------------------------------------
 */

/* What builds a plan: operations are named after their tensors. */
struct builder {
    const tap_hamer *model;
    tap_plan *plan;
    char prefix[TAP_HAMER_NAME];
    const float *const *tensors; /* of the block or layer at hand */
    bool exact; /* in the head, a hundredth of the work, whose rounding nothing averages away */
};

static const char *op_name(char name[2 * TAP_HAMER_NAME], const struct builder *builder,
                           const char *tail)
{
    snprintf(name, 2 * TAP_HAMER_NAME, "%s%s", builder->prefix, tail);
    return name;
}

static tap_buffer norm(const struct builder *builder, tap_buffer x, const char *tail, size_t weight,
                       float epsilon)
{
    char name[2 * TAP_HAMER_NAME];
    return tap_plan_layer_norm(builder->plan, x, op_name(name, builder, tail),
                               builder->tensors[weight], builder->tensors[weight + 1], epsilon);
}

static tap_buffer linear(const struct builder *builder, tap_buffer x, const char *tail,
                         const float *weight, const float *bias, size_t out, bool gelu,
                         tap_buffer add)
{
    char name[2 * TAP_HAMER_NAME];
    tap_linear linear = {.weight = weight,
                         .bias = bias,
                         .out = out,
                         .gelu = gelu,
                         .exact = builder->exact,
                         .add = add};
    return tap_plan_linear(builder->plan, x, op_name(name, builder, tail), &linear);
}

/* x += proj(attention(norm1 x)), x += fc2(gelu(fc1(norm2 x))). */
static tap_buffer add_block(struct builder *builder, size_t block, tap_buffer x)
{
    const tap_hamer_config *c = &builder->model->config;
    char name[2 * TAP_HAMER_NAME];
    const float *const *t = builder->tensors = builder->model->tensors + tap_hamer_block(block);
    snprintf(builder->prefix, sizeof builder->prefix, "backbone.blocks.%zu.", block);
    tap_buffer y = norm(builder, x, "norm1", TAP_BLOCK_NORM1_WEIGHT, vit_epsilon);
    y = linear(builder, y, "attn.qkv", t[TAP_BLOCK_QKV_WEIGHT], t[TAP_BLOCK_QKV_BIAS], 3 * c->dim,
               false, -1);
    y = tap_plan_attention(builder->plan, y, -1, 0, op_name(name, builder, "attn"), c->heads);
    x = linear(builder, y, "attn.proj", t[TAP_BLOCK_PROJ_WEIGHT], t[TAP_BLOCK_PROJ_BIAS], c->dim,
               false, x);
    y = norm(builder, x, "norm2", TAP_BLOCK_NORM2_WEIGHT, vit_epsilon);
    y = linear(builder, y, "mlp.fc1", t[TAP_BLOCK_FC1_WEIGHT], t[TAP_BLOCK_FC1_BIAS], c->mlp, true,
               -1);
    return linear(builder, y, "mlp.fc2", t[TAP_BLOCK_FC2_WEIGHT], t[TAP_BLOCK_FC2_BIAS], c->dim,
                  false, x);
}

/* The query of a layer's cross-attention, and the token that its output is added to (-1: it is in
 * the bias). The first layer's are constants. */
static tap_buffer add_query(struct builder *builder, size_t layer, size_t n, tap_buffer *x)
{
    const tap_hamer *model = builder->model;
    const tap_hamer_config *c = &model->config;
    const float *const *t = builder->tensors;
    char name[2 * TAP_HAMER_NAME];
    if (layer == 0) {
        *x = -1;
        return tap_plan_constant(builder->plan, op_name(name, builder, "1.fn.to_q"),
                                 model->first_query, n, c->head_inner);
    }
    tap_buffer y = norm(builder, *x, "0.norm", TAP_LAYER_SELF_NORM_WEIGHT, head_epsilon);
    y = linear(builder, y, "0.fn.to_v", t[TAP_LAYER_SELF_QKV] + 2 * c->head_inner * c->head_dim,
               NULL, c->head_inner, false, -1);
    *x = linear(builder, y, "0.fn.to_out", t[TAP_LAYER_SELF_OUT_WEIGHT], t[TAP_LAYER_SELF_OUT_BIAS],
                c->head_dim, false, *x);
    y = norm(builder, *x, "1.norm", TAP_LAYER_CROSS_NORM_WEIGHT, head_epsilon);
    return linear(builder, y, "1.fn.to_q", t[TAP_LAYER_CROSS_Q], NULL, c->head_inner, false, -1);
}

static tap_buffer add_layer(struct builder *builder, size_t layer, size_t n, tap_buffer x,
                            tap_buffer kv)
{
    const tap_hamer *model = builder->model;
    const tap_hamer_config *c = &model->config;
    char name[2 * TAP_HAMER_NAME];
    const float *const *t = builder->tensors = model->tensors + tap_hamer_layer(c, layer);
    snprintf(builder->prefix, sizeof builder->prefix,
             "mano_head.transformer.transformer.layers.%zu.", layer);
    tap_buffer y = add_query(builder, layer, n, &x);
    y = tap_plan_attention(builder->plan, y, kv, layer * 2 * c->head_inner,
                           op_name(name, builder, "1.fn"), c->head_heads);
    x = linear(builder, y, "1.fn.to_out", t[TAP_LAYER_CROSS_OUT_WEIGHT],
               layer == 0 ? model->first_bias : t[TAP_LAYER_CROSS_OUT_BIAS], c->head_dim, false, x);
    y = norm(builder, x, "2.norm", TAP_LAYER_MLP_NORM_WEIGHT, head_epsilon);
    y = linear(builder, y, "2.fn.net.0", t[TAP_LAYER_MLP_IN_WEIGHT], t[TAP_LAYER_MLP_IN_BIAS],
               c->head_mlp, true, -1);
    return linear(builder, y, "2.fn.net.3", t[TAP_LAYER_MLP_OUT_WEIGHT], t[TAP_LAYER_MLP_OUT_BIAS],
                  c->head_dim, false, x);
}

/* n pictures of so many rows of patches. */
static void build(struct builder *builder, size_t n, size_t rows)
{
    const tap_hamer *model = builder->model;
    const tap_hamer_config *c = &model->config;
    tap_plan *plan = builder->plan;
    tap_patch_embed embed = {.weight = model->tensors[TAP_HAMER_PATCH_WEIGHT],
                             .bias = model->tensors[TAP_HAMER_PATCH_BIAS],
                             .table = model->positions,
                             .out = c->dim,
                             .kernel = PATCH,
                             .stride = PATCH,
                             .padding = PATCH_PADDING,
                             .picture_height = rows * PATCH};
    tap_buffer x = tap_plan_input(plan, (tap_shape){n * rows * PATCH, TAP_HAMER_WIDTH, 3});
    x = tap_plan_patch_embed(plan, x, "backbone.patch_embed.proj", &embed);
    for (size_t block = 0; block < c->depth; block++)
        x = add_block(builder, block, x);
    x = tap_plan_layer_norm(plan, x, "backbone.last_norm",
                            model->tensors[TAP_HAMER_LAST_NORM_WEIGHT],
                            model->tensors[TAP_HAMER_LAST_NORM_BIAS], vit_epsilon);
    builder->prefix[0] = '\0';
    builder->exact = true;
    tap_buffer kv = linear(builder, x, "mano_head.transformer.to_kv", model->kv, NULL,
                           c->head_depth * 2 * c->head_inner, false, -1);
    tap_buffer token = -1;
    for (size_t layer = 0; layer < c->head_depth; layer++)
        token = add_layer(builder, layer, n, token, kv);
    builder->prefix[0] = '\0';
    tap_plan_output(plan, linear(builder, token, "mano_head.readout", model->readout,
                                 model->readout_bias, TAP_HAMER_OUTPUTS, false, -1));
}

static tap_status make_plan(tap_plan **out, const tap_hamer *model, size_t n, size_t rows,
                            tap_error *err)
{
    tap_plan *plan;
    *out = NULL;
    TAP_TRY(tap_plan_create(&plan, err));
    struct builder builder = {.model = model, .plan = plan};
    build(&builder, n, rows);
    tap_status status = tap_plan_finish(plan, err);
    if (status != TAP_OK) {
        tap_plan_free(plan);
        return status;
    }
    *out = plan;
    return TAP_OK;
}

tap_status tap_hamer_plan(const tap_hamer *model, size_t n, tap_plan **plan, tap_error *err)
{
    enum { MAX_CROPS = 1024 };
    *plan = NULL;
    if (n == 0 || n > MAX_CROPS)
        return tap_fail(err, TAP_ERR_ARGUMENT, "%zu crops at once: 1 to %d", n, MAX_CROPS);
    return make_plan(plan, model, n, TAP_HAMER_HEIGHT / PATCH, err);
}

tap_status tap_hamer_gate_plan(const tap_hamer *model, tap_plan **plan, tap_error *err)
{
    return make_plan(plan, model, 1, GATE_ROWS, err);
}
