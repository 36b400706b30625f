#include "net.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tap_status tap_plan_create(tap_plan **plan, tap_error *err)
{
    *plan = calloc(1, sizeof **plan);
    if (*plan == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a plan");
    return TAP_OK;
}

void tap_plan_free(tap_plan *plan)
{
    free(plan);
}

static bool failed(const tap_plan *plan)
{
    return plan->failure.status != TAP_OK;
}

static bool shape_fits(tap_shape shape)
{
    size_t n;
    return shape.height > 0 && shape.width > 0 && shape.channels > 0 &&
           tap_size_mul(shape.height, shape.width, &n) && tap_size_mul(n, shape.channels, &n) &&
           tap_size_mul(n, sizeof(float), &n) && n <= PTRDIFF_MAX;
}

static tap_buffer add_buffer(tap_plan *plan, tap_shape shape, const char *name)
{
    if (plan->n_buffers == TAP_PLAN_MAX_BUFFERS || !shape_fits(shape)) {
        tap_fail(&plan->failure, TAP_ERR_LIMIT, "%s: buffer [%zu][%zu][%zu] does not fit a plan",
                 name, shape.height, shape.width, shape.channels);
        return -1;
    }
    plan->shapes[plan->n_buffers] = shape;
    return (tap_buffer)plan->n_buffers++;
}

/* Adds an operation and its output; NULL after a failure. */
static tap_op *add_op(tap_plan *plan, tap_op_kind kind, tap_buffer input, tap_shape output,
                      const char *name)
{
    if (plan->n_ops == TAP_PLAN_MAX_OPS) {
        tap_fail(&plan->failure, TAP_ERR_LIMIT, "%s: more than %d operations", name,
                 TAP_PLAN_MAX_OPS);
        return NULL;
    }
    tap_buffer buffer = add_buffer(plan, output, name);
    if (buffer < 0)
        return NULL;
    tap_op *op = &plan->ops[plan->n_ops++];
    *op = (tap_op){.kind = kind, .input = input, .second = -1, .output = buffer};
    snprintf(op->name, sizeof op->name, "%s", name);
    return op;
}

tap_buffer tap_plan_input(tap_plan *plan, tap_shape shape)
{
    if (failed(plan))
        return -1;
    if (plan->n_inputs == TAP_PLAN_MAX_PORTS) {
        tap_fail(&plan->failure, TAP_ERR_LIMIT, "more than %d inputs", TAP_PLAN_MAX_PORTS);
        return -1;
    }
    tap_buffer buffer = add_buffer(plan, shape, "input");
    if (buffer >= 0)
        plan->inputs[plan->n_inputs++] = buffer;
    return buffer;
}

void tap_plan_output(tap_plan *plan, tap_buffer buffer)
{
    if (failed(plan))
        return;
    if (buffer < 0 || (size_t)buffer >= plan->n_buffers || plan->n_outputs == TAP_PLAN_MAX_PORTS) {
        tap_fail(&plan->failure, TAP_ERR_INTERNAL, "output %zu: no such buffer, or too many",
                 plan->n_outputs);
        return;
    }
    plan->outputs[plan->n_outputs++] = buffer;
}

/* The input's shape, or false with the failure recorded. */
static bool input_shape(tap_plan *plan, tap_buffer x, const char *name, tap_shape *shape)
{
    if (failed(plan))
        return false;
    if (x < 0 || (size_t)x >= plan->n_buffers) {
        tap_fail(&plan->failure, TAP_ERR_INTERNAL, "%s: its input is no buffer of this plan", name);
        return false;
    }
    *shape = plan->shapes[x];
    return true;
}

tap_buffer tap_plan_conv(tap_plan *plan, tap_buffer x, const char *name, const tap_conv *conv)
{
    tap_shape in;
    if (!input_shape(plan, x, name, &in))
        return -1;
    if (conv->weight == NULL || conv->bias == NULL || conv->out == 0 ||
        (conv->kernel != 1 && conv->kernel != 3)) {
        tap_fail(&plan->failure, TAP_ERR_UNSUPPORTED, "%s: a %zux%zu convolution to %zu channels",
                 name, conv->kernel, conv->kernel, conv->out);
        return -1;
    }
    if (conv->pool && (in.height % 2 != 0 || in.width % 2 != 0)) {
        tap_fail(&plan->failure, TAP_ERR_ARGUMENT, "%s: pooling needs even sides, has %zux%zu",
                 name, in.width, in.height);
        return -1;
    }
    size_t shrink = conv->pool ? 2 : 1;
    tap_shape out = {in.height / shrink, in.width / shrink, conv->out};
    tap_op *op = add_op(plan, TAP_OP_CONV, x, out, name);
    if (op == NULL)
        return -1;
    op->weight = conv->weight;
    op->bias = conv->bias;
    op->kernel = conv->kernel;
    op->relu = conv->relu;
    op->pool = conv->pool;
    return op->output;
}

tap_buffer tap_plan_cell_softmax(tap_plan *plan, tap_buffer x, const char *name, size_t cell)
{
    tap_shape in;
    if (!input_shape(plan, x, name, &in))
        return -1;
    if (cell == 0 || cell > 64 || in.channels != cell * cell + 1) {
        tap_fail(&plan->failure, TAP_ERR_ARGUMENT, "%s: cells of %zu need %zu channels, has %zu",
                 name, cell, cell * cell + 1, in.channels);
        return -1;
    }
    tap_shape out = {0, 0, 1};
    if (!tap_size_mul(in.height, cell, &out.height) || !tap_size_mul(in.width, cell, &out.width)) {
        tap_fail(&plan->failure, TAP_ERR_LIMIT, "%s: too large", name);
        return -1;
    }
    tap_op *op = add_op(plan, TAP_OP_CELL_SOFTMAX, x, out, name);
    if (op == NULL)
        return -1;
    op->cell = cell;
    return op->output;
}

tap_buffer tap_plan_l2_norm(tap_plan *plan, tap_buffer x, const char *name)
{
    tap_shape in;
    if (!input_shape(plan, x, name, &in))
        return -1;
    tap_op *op = add_op(plan, TAP_OP_L2_NORM, x, in, name);
    return op == NULL ? -1 : op->output;
}

tap_buffer tap_plan_similarity(tap_plan *plan, tap_buffer a, tap_buffer b, const char *name)
{
    tap_shape x, y;
    if (!input_shape(plan, a, name, &x) || !input_shape(plan, b, name, &y))
        return -1;
    if (x.height != 1 || y.height != 1 || x.channels != y.channels) {
        tap_fail(&plan->failure, TAP_ERR_ARGUMENT, "%s: rows of %zu and %zu values", name,
                 x.channels, y.channels);
        return -1;
    }
    tap_op *op = add_op(plan, TAP_OP_SIMILARITY, a, (tap_shape){1, x.width, y.width}, name);
    if (op == NULL)
        return -1;
    op->second = b;
    return op->output;
}

/* Tokens along a side; 0 if the kernel doesn't fit. */
static size_t count_patches(size_t side, const tap_patch_embed *embed)
{
    size_t padded = side + 2 * embed->padding;
    return padded < embed->kernel ? 0 : (padded - embed->kernel) / embed->stride + 1;
}

tap_buffer tap_plan_patch_embed(tap_plan *plan, tap_buffer x, const char *name,
                                const tap_patch_embed *embed)
{
    tap_shape in;
    if (!input_shape(plan, x, name, &in))
        return -1;
    if (embed->weight == NULL || embed->bias == NULL || embed->out == 0 || embed->stride == 0 ||
        embed->padding >= embed->kernel || embed->picture_height == 0 ||
        in.height % embed->picture_height != 0) {
        tap_fail(&plan->failure, TAP_ERR_INTERNAL, "%s: patches of %zu, stride %zu, padding %zu",
                 name, embed->kernel, embed->stride, embed->padding);
        return -1;
    }
    size_t rows = count_patches(embed->picture_height, embed);
    size_t columns = count_patches(in.width, embed);
    tap_shape out = {in.height / embed->picture_height, rows * columns, embed->out};
    tap_op *op = add_op(plan, TAP_OP_PATCH_EMBED, x, out, name);
    if (op == NULL)
        return -1;
    op->weight = embed->weight;
    op->bias = embed->bias;
    op->table = embed->table;
    op->kernel = embed->kernel;
    op->stride = embed->stride;
    op->padding = embed->padding;
    op->picture_height = embed->picture_height;
    return op->output;
}

tap_buffer tap_plan_layer_norm(tap_plan *plan, tap_buffer x, const char *name, const float *weight,
                               const float *bias, float epsilon)
{
    tap_shape in;
    if (!input_shape(plan, x, name, &in))
        return -1;
    tap_op *op = add_op(plan, TAP_OP_LAYER_NORM, x, in, name);
    if (op == NULL)
        return -1;
    op->weight = weight;
    op->bias = bias;
    op->epsilon = epsilon;
    return op->output;
}

static bool same_shape(tap_shape a, tap_shape b)
{
    return a.height == b.height && a.width == b.width && a.channels == b.channels;
}

tap_buffer tap_plan_linear(tap_plan *plan, tap_buffer x, const char *name, const tap_linear *linear)
{
    tap_shape in, add;
    if (!input_shape(plan, x, name, &in))
        return -1;
    tap_shape out = {in.height, in.width, linear->out};
    if (linear->add >= 0 &&
        (!input_shape(plan, linear->add, name, &add) || !same_shape(add, out))) {
        tap_fail(&plan->failure, TAP_ERR_INTERNAL, "%s: what is added has another shape", name);
        return -1;
    }
    tap_op *op = add_op(plan, TAP_OP_LINEAR, x, out, name);
    if (op == NULL)
        return -1;
    op->weight = linear->weight;
    op->bias = linear->bias;
    op->gelu = linear->gelu;
    op->exact = linear->exact;
    op->second = linear->add;
    return op->output;
}

tap_buffer tap_plan_attention(tap_plan *plan, tap_buffer x, tap_buffer kv, size_t kv_channel,
                              const char *name, size_t n_heads)
{
    tap_shape q, other;
    if (!input_shape(plan, x, name, &q))
        return -1;
    size_t parts = kv < 0 ? 3 : 1, inner = q.channels / parts;
    bool fits = n_heads > 0 && q.channels % parts == 0 && inner % n_heads == 0 && inner > 0;
    if (fits && kv >= 0)
        fits = input_shape(plan, kv, name, &other) && other.height == q.height &&
               other.channels >= 2 * inner && kv_channel <= other.channels - 2 * inner;
    if (!fits) {
        tap_fail(&plan->failure, TAP_ERR_INTERNAL, "%s: %zu heads in %zu channels", name, n_heads,
                 q.channels);
        return -1;
    }
    tap_op *op = add_op(plan, TAP_OP_ATTENTION, x, (tap_shape){q.height, q.width, inner}, name);
    if (op == NULL)
        return -1;
    op->second = kv < 0 ? -1 : kv;
    op->second_channel = kv_channel;
    op->n_heads = n_heads;
    return op->output;
}

tap_buffer tap_plan_constant(tap_plan *plan, const char *name, const float *row, size_t n,
                             size_t channels)
{
    if (failed(plan))
        return -1;
    tap_op *op = add_op(plan, TAP_OP_CONSTANT, -1, (tap_shape){n, 1, channels}, name);
    if (op == NULL)
        return -1;
    op->bias = row;
    return op->output;
}

tap_status tap_plan_finish(const tap_plan *plan, tap_error *err)
{
    if (failed(plan))
        return tap_fail(err, plan->failure.status, "%s", plan->failure.message);
    if (plan->n_outputs == 0)
        return tap_fail(err, TAP_ERR_INTERNAL, "the plan has no output");
    return TAP_OK;
}

size_t tap_plan_elements(const tap_plan *plan, tap_buffer buffer)
{
    tap_shape shape = plan->shapes[buffer];
    return shape.height * shape.width * shape.channels;
}

uint64_t tap_plan_macs(const tap_plan *plan, const tap_op *op)
{
    if (op->input < 0)
        return 0;
    tap_shape in = plan->shapes[op->input], out = plan->shapes[op->output];
    uint64_t dense = (uint64_t)in.height * in.width * in.channels * out.channels;
    uint64_t window = (uint64_t)op->kernel * op->kernel;
    switch (op->kind) {
    case TAP_OP_CONV:
        return dense * window;
    case TAP_OP_SIMILARITY:
    case TAP_OP_LINEAR:
        return dense;
    case TAP_OP_PATCH_EMBED:
        return (uint64_t)out.height * out.width * out.channels * in.channels * window;
    case TAP_OP_ATTENTION: {
        size_t keys = op->second < 0 ? in.width : plan->shapes[op->second].width;
        return 2 * (uint64_t)out.height * out.width * out.channels * keys;
    }
    case TAP_OP_CELL_SOFTMAX:
    case TAP_OP_L2_NORM:
    case TAP_OP_LAYER_NORM:
    case TAP_OP_CONSTANT:
        break;
    }
    return 0;
}

size_t tap_plan_last_use(const tap_plan *plan, tap_buffer buffer)
{
    for (size_t i = 0; i < plan->n_outputs; i++)
        if (plan->outputs[i] == buffer)
            return plan->n_ops;
    for (size_t i = plan->n_ops; i-- > 0;)
        if (plan->ops[i].input == buffer || plan->ops[i].second == buffer ||
            plan->ops[i].output == buffer)
            return i;
    return 0;
}

static const char *op_words(const tap_op *op, char *words, size_t size)
{
    switch (op->kind) {
    case TAP_OP_CONV:
        snprintf(words, size, "conv%zux%zu%s%s", op->kernel, op->kernel, op->relu ? "+relu" : "",
                 op->pool ? "+pool" : "");
        break;
    case TAP_OP_CELL_SOFTMAX:
        snprintf(words, size, "cell_softmax");
        break;
    case TAP_OP_L2_NORM:
        snprintf(words, size, "l2_norm");
        break;
    case TAP_OP_SIMILARITY:
        snprintf(words, size, "similarity");
        break;
    case TAP_OP_PATCH_EMBED:
        snprintf(words, size, "patches%zux%zu/%zu", op->kernel, op->kernel, op->stride);
        break;
    case TAP_OP_LAYER_NORM:
        snprintf(words, size, "layer_norm");
        break;
    case TAP_OP_LINEAR:
        snprintf(words, size, "linear%s%s%s", op->gelu ? "+gelu" : "", op->second < 0 ? "" : "+add",
                 op->exact ? ", exact" : "");
        break;
    case TAP_OP_ATTENTION:
        snprintf(words, size, "attention x%zu", op->n_heads);
        break;
    case TAP_OP_CONSTANT:
        snprintf(words, size, "constant");
        break;
    }
    return words;
}

tap_status tap_plan_print(const tap_plan *plan, char **text, tap_error *err)
{
    size_t size = 0;
    *text = NULL;
    FILE *out = open_memstream(text, &size);
    if (out == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory to print the plan");
    uint64_t total = 0;
    for (size_t i = 0; i < plan->n_ops; i++) {
        const tap_op *op = &plan->ops[i];
        tap_shape y = plan->shapes[op->output];
        tap_shape in = op->input < 0 ? (tap_shape){0, 0, 0} : plan->shapes[op->input];
        char words[32];
        uint64_t macs = tap_plan_macs(plan, op);
        total += macs;
        fprintf(out, "%-42s %-18s [%zu, %zu, %zu] -> [%zu, %zu, %zu] %10.1f MMAC\n", op->name,
                op_words(op, words, sizeof words), in.height, in.width, in.channels, y.height,
                y.width, y.channels, (double)macs * 1e-6);
    }
    fprintf(out, "%zu operations, %.1f MMAC\n", plan->n_ops, (double)total * 1e-6);
    if (fclose(out) != 0) {
        free(*text);
        *text = NULL;
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory to print the plan");
    }
    return TAP_OK;
}
