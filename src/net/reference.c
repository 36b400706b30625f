/* The reference executor: each operation as its definition in net.h reads. Kept naive so that it
 * can be believed; sums in double so that a backend's rounding is measured against less of its
 * own. */
#include "net.h"

#include <math.h>
#include <stdlib.h>

/* The k x k window around (row, column) in the weights' order [in][k][k], zeros outside. */
static void gather(double *window, const float *x, tap_shape in, size_t k, size_t row,
                   size_t column)
{
    for (size_t i = 0; i < in.channels; i++)
        for (size_t u = 0; u < k; u++)
            for (size_t v = 0; v < k; v++) {
                size_t from_row = row + u - k / 2, from_column = column + v - k / 2;
                /* -1 wraps to a huge number, so one comparison checks both edges. */
                bool outside = from_row >= in.height || from_column >= in.width;
                *window++ = outside ? 0 : x[(from_row * in.width + from_column) * in.channels + i];
            }
}

/* Eight chains: with one the adder's latency is all that counts, and every start waits for this. */
static double dot(const double *a, const float *b, size_t n)
{
    enum { CHAINS = 8 };
    double sums[CHAINS] = {0}, sum = 0;
    for (; n >= CHAINS; n -= CHAINS, a += CHAINS, b += CHAINS)
        for (size_t i = 0; i < CHAINS; i++)
            sums[i] += a[i] * (double)b[i];
    for (size_t i = 0; i < n; i++)
        sum += a[i] * (double)b[i];
    for (size_t i = 0; i < CHAINS; i++)
        sum += sums[i];
    return sum;
}

static tap_status conv(const tap_op *op, tap_shape in, size_t n_out, float *y, const float *x,
                       tap_error *err)
{
    size_t n = in.channels * op->kernel * op->kernel;
    double *window = tap_alloc(n, sizeof *window);
    if (window == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", op->name);
    for (size_t row = 0; row < in.height; row++)
        for (size_t column = 0; column < in.width; column++) {
            gather(window, x, in, op->kernel, row, column);
            for (size_t o = 0; o < n_out; o++) {
                double sum = op->bias[o] + dot(window, op->weight + o * n, n);
                *y++ = (float)(op->relu && sum < 0 ? 0 : sum);
            }
        }
    free(window);
    return TAP_OK;
}

static void max_pool(tap_shape out, float *y, const float *x)
{
    size_t n = out.channels, x_row = out.width * 2 * n;
    for (size_t row = 0; row < out.height; row++)
        for (size_t column = 0; column < out.width; column++)
            for (size_t i = 0; i < n; i++) {
                const float *corner = x + row * 2 * x_row + column * 2 * n + i;
                float top = fmaxf(corner[0], corner[n]);
                float bottom = fmaxf(corner[x_row], corner[x_row + n]);
                y[(row * out.width + column) * n + i] = fmaxf(top, bottom);
            }
}

static void cell_softmax(const tap_op *op, tap_shape in, float *y, const float *x)
{
    size_t r = op->cell, n = in.channels;
    for (size_t row = 0; row < in.height; row++)
        for (size_t column = 0; column < in.width; column++) {
            const float *logits = x + (row * in.width + column) * n;
            double top = logits[0], sum = 0;
            for (size_t i = 1; i < n; i++)
                top = fmax(top, logits[i]);
            for (size_t i = 0; i < n; i++)
                sum += exp(logits[i] - top);
            for (size_t i = 0; i < r * r; i++)
                y[(row * r + i / r) * in.width * r + column * r + i % r] =
                    (float)(exp(logits[i] - top) / sum);
        }
}

static void l2_norm(tap_shape in, float *y, const float *x)
{
    for (size_t p = 0; p < in.height * in.width; p++, x += in.channels, y += in.channels) {
        double sum = 0;
        for (size_t i = 0; i < in.channels; i++)
            sum += (double)x[i] * (double)x[i];
        double length = fmax(sqrt(sum), 1e-12);
        for (size_t i = 0; i < in.channels; i++)
            y[i] = (float)(x[i] / length);
    }
}

static void similarity(tap_shape a, size_t n_b, float *y, const float *x, const float *b)
{
    for (size_t i = 0; i < a.width; i++)
        for (size_t j = 0; j < n_b; j++) {
            double sum = 0;
            for (size_t k = 0; k < a.channels; k++)
                sum += (double)x[i * a.channels + k] * (double)b[j * a.channels + k];
            y[i * n_b + j] = (float)sum;
        }
}

static tap_status patch_embed(const tap_op *op, tap_shape in, tap_shape out, float *y,
                              const float *x, tap_error *err)
{
    size_t k = op->kernel, n = in.channels * k * k, height = op->picture_height;
    size_t columns = (in.width + 2 * op->padding - k) / op->stride + 1;
    double *window = tap_alloc(n, sizeof *window);
    if (window == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", op->name);
    tap_shape picture = {height, in.width, in.channels};
    for (size_t p = 0; p < out.height; p++, x += height * in.width * in.channels)
        for (size_t t = 0; t < out.width; t++) {
            /* gather's window begins k / 2 in front of where it is put. */
            size_t row = t / columns * op->stride + k / 2 - op->padding;
            size_t column = t % columns * op->stride + k / 2 - op->padding;
            gather(window, x, picture, k, row, column);
            for (size_t o = 0; o < out.channels; o++)
                *y++ = (float)(op->bias[o] +
                               (op->table != NULL ? op->table[t * out.channels + o] : 0.0f) +
                               dot(window, op->weight + o * n, n));
        }
    free(window);
    return TAP_OK;
}

static void layer_norm(const tap_op *op, tap_shape in, float *y, const float *x)
{
    size_t n = in.channels;
    for (size_t p = 0; p < in.height * in.width; p++, x += n, y += n) {
        double mean = 0, variance = 0;
        for (size_t i = 0; i < n; i++)
            mean += x[i];
        mean /= (double)n;
        for (size_t i = 0; i < n; i++)
            variance += (x[i] - mean) * (x[i] - mean);
        double scale = 1 / sqrt(variance / (double)n + (double)op->epsilon);
        for (size_t i = 0; i < n; i++)
            y[i] = (float)((x[i] - mean) * scale * op->weight[i] + op->bias[i]);
    }
}

static tap_status linear(const tap_op *op, tap_shape in, size_t n_out, float *y, const float *x,
                         const float *add, tap_error *err)
{
    size_t n = in.channels;
    double *row = tap_alloc(n, sizeof *row);
    if (row == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", op->name);
    for (size_t p = 0; p < in.height * in.width; p++, x += n) {
        for (size_t i = 0; i < n; i++)
            row[i] = x[i];
        for (size_t o = 0; o < n_out; o++) {
            double sum = dot(row, op->weight + o * n, n) + (op->bias != NULL ? op->bias[o] : 0.0f);
            if (op->gelu)
                sum = sum / 2 * (1 + erf(sum * sqrt(0.5)));
            *y++ = (float)(add != NULL ? sum + *add++ : sum);
        }
    }
    free(row);
    return TAP_OK;
}

/* One query against all keys: weights [n_keys] is scratch. Strides in floats. */
static void attend(float *y, const float *q, const float *k, const float *v, size_t stride,
                   size_t n_keys, size_t d, double *weights)
{
    double top = -INFINITY, sum = 0;
    for (size_t j = 0; j < n_keys; j++) {
        double score = 0;
        for (size_t i = 0; i < d; i++)
            score += (double)q[i] * (double)k[j * stride + i];
        weights[j] = score / sqrt((double)d);
        top = fmax(top, weights[j]);
    }
    for (size_t j = 0; j < n_keys; j++)
        sum += weights[j] = exp(weights[j] - top);
    for (size_t i = 0; i < d; i++) {
        double value = 0;
        for (size_t j = 0; j < n_keys; j++)
            value += weights[j] * (double)v[j * stride + i];
        y[i] = (float)(value / sum);
    }
}

/* other is the second buffer's shape; second NULL: x holds q, k and v. */
static tap_status attention(const tap_op *op, tap_shape in, tap_shape other, size_t inner, float *y,
                            const float *x, const float *second, tap_error *err)
{
    tap_shape keys = second != NULL ? other : in;
    size_t first = second != NULL ? op->second_channel : inner, d = inner / op->n_heads;
    double *weights = tap_alloc(keys.width, sizeof *weights);
    if (weights == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", op->name);
    for (size_t n = 0; n < in.height; n++) {
        const float *k = (second != NULL ? second : x) + n * keys.width * keys.channels + first;
        for (size_t row = 0; row < in.width; row++)
            for (size_t head = 0; head < op->n_heads; head++) {
                size_t at = n * in.width + row, c = head * d;
                attend(y + at * inner + c, x + at * in.channels + c, k + c, k + inner + c,
                       keys.channels, keys.width, d, weights);
            }
    }
    free(weights);
    return TAP_OK;
}

/* x and second are NULL for operations without. */
static tap_status run_op(const tap_plan *plan, const tap_op *op, float *y, const float *x,
                         const float *second, tap_error *err)
{
    static const tap_shape none = {0, 0, 0};
    tap_shape in = op->input < 0 ? none : plan->shapes[op->input], out = plan->shapes[op->output];
    tap_shape other = op->second < 0 ? none : plan->shapes[op->second];
    switch (op->kind) {
    case TAP_OP_CONV: {
        float *full = y;
        if (op->pool)
            full = tap_alloc(in.height * in.width * out.channels, sizeof *full);
        if (full == NULL)
            return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", op->name);
        tap_status status = conv(op, in, out.channels, full, x, err);
        if (op->pool) {
            if (status == TAP_OK)
                max_pool(out, y, full);
            free(full);
        }
        return status;
    }
    case TAP_OP_CELL_SOFTMAX:
        cell_softmax(op, in, y, x);
        return TAP_OK;
    case TAP_OP_L2_NORM:
        l2_norm(in, y, x);
        return TAP_OK;
    case TAP_OP_SIMILARITY:
        similarity(in, out.channels, y, x, second);
        return TAP_OK;
    case TAP_OP_PATCH_EMBED:
        return patch_embed(op, in, out, y, x, err);
    case TAP_OP_LAYER_NORM:
        layer_norm(op, in, y, x);
        return TAP_OK;
    case TAP_OP_LINEAR:
        return linear(op, in, out.channels, y, x, second, err);
    case TAP_OP_ATTENTION:
        return attention(op, in, other, out.channels, y, x, second, err);
    case TAP_OP_CONSTANT:
        for (size_t i = 0; i < out.height * out.channels; i++)
            y[i] = op->bias[i % out.channels];
        return TAP_OK;
    }
    return tap_fail(err, TAP_ERR_INTERNAL, "%s: unknown operation %d", op->name, (int)op->kind);
}

tap_status tap_reference_run(const tap_plan *plan, const float *const *inputs,
                             float *const *outputs, tap_error *err)
{
    float **own = calloc(plan->n_buffers, sizeof *own);
    const float **buffers = calloc(plan->n_buffers, sizeof *buffers);
    tap_status status = TAP_OK;
    if (own == NULL || buffers == NULL)
        status = tap_fail(err, TAP_ERR_MEMORY, "out of memory for the reference executor");
    for (size_t i = 0; status == TAP_OK && i < plan->n_inputs; i++)
        buffers[plan->inputs[i]] = inputs[i];
    for (size_t i = 0; status == TAP_OK && i < plan->n_ops; i++) {
        const tap_op *op = &plan->ops[i];
        own[op->output] = tap_alloc(tap_plan_elements(plan, op->output), sizeof(float));
        buffers[op->output] = own[op->output];
        if (own[op->output] == NULL)
            status = tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", op->name);
        else
            status = run_op(plan, op, own[op->output], op->input < 0 ? NULL : buffers[op->input],
                            op->second < 0 ? NULL : buffers[op->second], err);
    }
    for (size_t i = 0; status == TAP_OK && i < plan->n_outputs; i++) {
        size_t n = tap_plan_elements(plan, plan->outputs[i]);
        for (size_t j = 0; j < n; j++)
            outputs[i][j] = buffers[plan->outputs[i]][j];
    }
    for (size_t i = 0; own != NULL && i < plan->n_buffers; i++)
        free(own[i]);
    free(own);
    free(buffers);
    return status;
}

double tap_correlation(const float *a, const float *b, size_t n)
{
    double mean_a = 0, mean_b = 0, aa = 0, bb = 0, ab = 0;
    for (size_t i = 0; i < n; i++) {
        mean_a += a[i];
        mean_b += b[i];
    }
    mean_a /= (double)n;
    mean_b /= (double)n;
    for (size_t i = 0; i < n; i++) {
        double da = a[i] - mean_a, db = b[i] - mean_b;
        aa += da * da;
        bb += db * db;
        ab += da * db;
    }
    if (!isfinite(aa) || !isfinite(bb) || !isfinite(ab))
        return NAN;
    if (aa == 0 || bb == 0)
        return aa == bb && mean_a == mean_b ? 1 : 0;
    return ab / sqrt(aa * bb);
}
