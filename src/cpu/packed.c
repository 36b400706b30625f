#include "packed.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FEW_CHANNELS = 4, INPUTS_PER_ITEM = 16 };

tap_form tap_packed_form(size_t kernel, size_t in)
{
    if (kernel == 1)
        return TAP_FORM_MATRIX;
    return in <= FEW_CHANNELS ? TAP_FORM_DIRECT : TAP_FORM_WINOGRAD;
}

/* Values a column holds for one input channel. */
static size_t values_per_input(tap_form form)
{
    switch (form) {
    case TAP_FORM_WINOGRAD:
        return TAP_TILE_PLANES;
    case TAP_FORM_DIRECT:
        return 9;
    case TAP_FORM_MATRIX:
        break;
    }
    return 1;
}

tap_status tap_packed_create(tap_packed **out_packed, const tap_op *op, size_t in, size_t out,
                             tap_error *err)
{
    tap_form form = tap_packed_form(op->kernel, in);
    size_t in_padded, out_padded, n, bytes;
    *out_packed = NULL;
    if (!tap_size_align(in, TAP_PANEL, &in_padded) || !tap_size_align(out, TAP_PANEL, &out_padded))
        return tap_fail(err, TAP_ERR_LIMIT, "%s: too many channels", op->name);
    if (form != TAP_FORM_WINOGRAD)
        in_padded = in;
    if (!tap_size_mul(in_padded, out_padded, &n) || !tap_size_mul(n, values_per_input(form), &n) ||
        !tap_size_add(n, out_padded, &n) || !tap_size_mul(n, sizeof(float), &bytes))
        return tap_fail(err, TAP_ERR_LIMIT, "%s: too many channels", op->name);
    tap_packed *packed = calloc(1, sizeof *packed);
    float *values = tap_alloc(n, sizeof *values);
    if (packed == NULL || values == NULL) {
        free(packed);
        free(values);
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for %zu bytes of packed weights",
                        op->name, bytes);
    }
    *packed = (tap_packed){.form = form,
                           .in = in,
                           .out = out,
                           .in_padded = in_padded,
                           .out_padded = out_padded,
                           .n_bytes = bytes,
                           .weights = values,
                           .bias = values + (n - out_padded),
                           .n_references = 1};
    snprintf(packed->name, sizeof packed->name, "%s", op->name);
    *out_packed = packed;
    return TAP_OK;
}

/* ---- forms --------------------------------------------------------------------------------- */

/* G g of a column of three weights of a panel's filters, for the points 0, +-1, +-2 and infinity.
 */
static inline void filter_1d(double out[][TAP_PANEL], const double a[TAP_PANEL],
                             const double b[TAP_PANEL], const double c[TAP_PANEL])
{
    for (size_t i = 0; i < TAP_PANEL; i++) {
        double even = a[i] + c[i], even2 = a[i] + 4 * c[i];
        out[0][i] = a[i] / 4;
        out[1][i] = (even + b[i]) * (-1.0 / 6);
        out[2][i] = (even - b[i]) * (-1.0 / 6);
        out[3][i] = (even2 + 2 * b[i]) * (1.0 / 24);
        out[4][i] = (even2 - 2 * b[i]) * (1.0 / 24);
        out[5][i] = c[i];
    }
}

/* The 3x3 filters of input channel i to the columns of one panel; zeros where there are none. */
static void gather_filters(double g[3][3][TAP_PANEL], const tap_packed *packed, const tap_op *op,
                           size_t panel, size_t i)
{
    memset(g, 0, sizeof(double[3][3][TAP_PANEL]));
    for (size_t column = 0; i < packed->in && column < TAP_PANEL; column++) {
        size_t o = panel * TAP_PANEL + column;
        const float *from = op->weight + (o * packed->in + i) * 9;
        for (size_t j = 0; o < packed->out && j < 9; j++)
            g[j / 3][j % 3][column] = (double)from[j];
    }
}

/* U = G g G^T; in double, rounded once. */
static void pack_winograd(const tap_packed *packed, const tap_op *op, size_t panel, size_t i)
{
    size_t first = panel * TAP_PANEL / TAP_PASS * TAP_PASS, n = packed->out_padded - first;
    size_t plane = packed->in_padded * (n < TAP_PASS ? n : TAP_PASS);
    float *to = packed->weights + first * packed->in_padded * TAP_TILE_PLANES +
                ((panel * TAP_PANEL - first) * packed->in_padded + i * TAP_PANEL);
    double g[3][3][TAP_PANEL], half[3][TAP_TILE_INPUT][TAP_PANEL];
    double whole[TAP_TILE_INPUT][TAP_PANEL];
    gather_filters(g, packed, op, panel, i);
    for (size_t v = 0; v < 3; v++)
        filter_1d(half[v], g[0][v], g[1][v], g[2][v]);
    for (size_t u = 0; u < TAP_TILE_INPUT; u++) {
        filter_1d(whole, half[0][u], half[1][u], half[2][u]);
        for (size_t v = 0; v < TAP_TILE_INPUT; v++)
            for (size_t column = 0; column < TAP_PANEL; column++)
                to[(u * TAP_TILE_INPUT + v) * plane + column] = (float)whole[v][column];
    }
}

static void pack_plain(const tap_packed *packed, const tap_op *op, size_t panel, size_t i)
{
    size_t k = op->kernel;
    for (size_t u = 0; u < k; u++)
        for (size_t v = 0; v < k; v++) {
            size_t line = ((panel * k + u) * packed->in + i) * k + v;
            float *to = packed->weights + line * TAP_PANEL;
            for (size_t column = 0; column < TAP_PANEL; column++) {
                size_t o = panel * TAP_PANEL + column;
                to[column] =
                    o < packed->out ? op->weight[((o * packed->in + i) * k + u) * k + v] : 0;
            }
        }
}

/* ---- filling ------------------------------------------------------------------------------- */

struct filling {
    const tap_packing *packings;
    size_t n;
};

static size_t n_items(const tap_packed *packed)
{
    return packed->out_padded / TAP_PANEL *
           ((packed->in_padded + INPUTS_PER_ITEM - 1) / INPUTS_PER_ITEM);
}

/* A panel's columns of a few input channels. */
static void fill_item(void *context, size_t item, size_t worker)
{
    const struct filling *filling = context;
    const tap_packing *packing = filling->packings;
    (void)worker;
    while (item >= n_items(packing->packed)) {
        item -= n_items(packing->packed);
        packing++;
    }
    const tap_packed *packed = packing->packed;
    size_t n_panels = packed->out_padded / TAP_PANEL;
    size_t panel = item % n_panels, first = item / n_panels * INPUTS_PER_ITEM;
    for (size_t i = first; i < packed->in_padded && i < first + INPUTS_PER_ITEM; i++)
        if (packed->form == TAP_FORM_WINOGRAD)
            pack_winograd(packed, packing->op, panel, i);
        else
            pack_plain(packed, packing->op, panel, i);
}

void tap_packed_fill(const tap_packing *packings, size_t n, tap_pool *pool)
{
    struct filling filling = {packings, n};
    size_t items = 0;
    for (size_t i = 0; i < n; i++) {
        tap_packed *packed = packings[i].packed;
        for (size_t o = 0; o < packed->out_padded; o++)
            packed->bias[o] = o < packed->out ? packings[i].op->bias[o] : 0;
        items += n_items(packed);
    }
    tap_pool_run(pool, items, fill_item, &filling);
}

tap_packed *tap_packed_retain(tap_packed *packed)
{
    atomic_fetch_add_explicit(&packed->n_references, 1, memory_order_relaxed);
    return packed;
}

void tap_packed_release(tap_packed *packed)
{
    if (packed == NULL ||
        atomic_fetch_sub_explicit(&packed->n_references, 1, memory_order_acq_rel) != 1)
        return;
    free(packed->weights);
    free(packed);
}
