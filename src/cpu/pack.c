/* Weights as the kernels read them. Done once, at load. */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct packed *tap_packed_retain(struct packed *packed)
{
    atomic_fetch_add_explicit(&packed->references, 1, memory_order_relaxed);
    return packed;
}

void tap_packed_release(struct packed *packed)
{
    if (packed == NULL ||
        atomic_fetch_sub_explicit(&packed->references, 1, memory_order_acq_rel) != 1)
        return;
    free(packed->weight);
    free(packed->bias);
    free(packed);
}

/* Room for n weights and the padded bias, all zero. */
static tap_status create(struct packed **out, const tap_op *op, size_t n, size_t out_channels,
                         tap_error *err)
{
    size_t n_bias = padded_channels(out_channels);
    struct packed *packed = calloc(1, sizeof *packed);
    *out = NULL;
    if (packed == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for its weights", op->name);
    atomic_init(&packed->references, 1);
    packed->out_channels = out_channels;
    snprintf(packed->name, sizeof packed->name, "%s", op->name);
    packed->weight = tap_alloc(n, sizeof(float));
    packed->bias = tap_alloc(n_bias, sizeof(float));
    if (packed->weight == NULL || packed->bias == NULL) {
        tap_packed_release(packed);
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for %zu weights", op->name, n);
    }
    memset(packed->weight, 0, n * sizeof(float));
    memset(packed->bias, 0, n_bias * sizeof(float));
    memcpy(packed->bias, op->bias, out_channels * sizeof(float));
    packed->size_bytes = (n + n_bias) * sizeof(float);
    *out = packed;
    return TAP_OK;
}

/* G g G^T in double (Lavin and Gray 2016, section 4.3): the rounding of the weights happens once.
 */
static void transform_weights(double u[TAP_PLANES], const float g[9])
{
    static const double G[6][3] = {{1.0 / 4, 0, 0},
                                   {-1.0 / 6, -1.0 / 6, -1.0 / 6},
                                   {-1.0 / 6, 1.0 / 6, -1.0 / 6},
                                   {1.0 / 24, 1.0 / 12, 1.0 / 6},
                                   {1.0 / 24, -1.0 / 12, 1.0 / 6},
                                   {0, 0, 1}};
    double half[6][3];
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < 3; j++)
            half[i][j] =
                G[i][0] * (double)g[j] + G[i][1] * (double)g[3 + j] + G[i][2] * (double)g[6 + j];
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < 6; j++)
            u[i * 6 + j] = half[i][0] * G[j][0] + half[i][1] * G[j][1] + half[i][2] * G[j][2];
}

struct winograd_job {
    float *weight;
    const float *from;
    size_t in, padded_in, out, n_panels;
};

/* One panel of output channels. */
static void pack_panel(void *context, size_t panel, size_t worker)
{
    const struct winograd_job *job = context;
    (void)worker;
    size_t plane = job->n_panels * job->padded_in * TAP_PANEL;
    float *to = job->weight + panel * job->padded_in * TAP_PANEL;
    size_t n = job->out - panel * TAP_PANEL < TAP_PANEL ? job->out - panel * TAP_PANEL : TAP_PANEL;
    for (size_t i = 0; i < job->in; i++) {
        float row[TAP_PLANES][TAP_PANEL] = {{0}};
        for (size_t j = 0; j < n; j++) {
            double u[TAP_PLANES];
            transform_weights(u, job->from + ((panel * TAP_PANEL + j) * job->in + i) * 9);
            for (size_t p = 0; p < TAP_PLANES; p++)
                row[p][j] = (float)u[p];
        }
        for (size_t p = 0; p < TAP_PLANES; p++)
            memcpy(to + p * plane + i * TAP_PANEL, row[p], sizeof row[p]);
    }
}

tap_status tap_pack_winograd(struct packed **out, tap_pool *pool, const tap_op *op, size_t in,
                             size_t out_channels, tap_error *err)
{
    size_t padded_in = padded_channels(in), n;
    if (!tap_size_mul(padded_in, padded_channels(out_channels), &n) ||
        !tap_size_mul(n, TAP_PLANES, &n))
        return tap_fail(err, TAP_ERR_LIMIT, "%s: its weights are too large", op->name);
    TAP_TRY(create(out, op, n, out_channels, err));
    size_t n_panels = padded_channels(out_channels) / TAP_PANEL;
    struct winograd_job job = {(*out)->weight, op->weight, in, padded_in, out_channels, n_panels};
    tap_pool_run(pool, n_panels, pack_panel, &job);
    return TAP_OK;
}

tap_status tap_pack_pointwise(struct packed **out, const tap_op *op, size_t in, size_t out_channels,
                              tap_error *err)
{
    size_t padded_in = padded_channels(in), n;
    if (!tap_size_mul(padded_in, padded_channels(out_channels), &n))
        return tap_fail(err, TAP_ERR_LIMIT, "%s: its weights are too large", op->name);
    TAP_TRY(create(out, op, n, out_channels, err));
    for (size_t o = 0; o < out_channels; o++)
        for (size_t i = 0; i < in; i++)
            (*out)->weight[(o / TAP_PANEL * padded_in + i) * TAP_PANEL + o % TAP_PANEL] =
                op->weight[o * in + i];
    return TAP_OK;
}

tap_status tap_pack_one(struct packed **out, const tap_op *op, size_t out_channels, tap_error *err)
{
    size_t padded = padded_channels(out_channels);
    TAP_TRY(create(out, op, 9 * padded, out_channels, err));
    for (size_t o = 0; o < out_channels; o++)
        for (size_t tap = 0; tap < 9; tap++)
            (*out)->weight[tap * padded + o] = op->weight[o * 9 + tap];
    return TAP_OK;
}
