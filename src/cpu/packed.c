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

/* Sizes of a convolution's weights. */
static bool size_conv(tap_packed *packed, const tap_op *op)
{
    size_t n;
    packed->form = tap_packed_form(op->kernel, packed->in);
    if (!tap_size_align(packed->in, TAP_PANEL, &packed->in_padded) ||
        !tap_size_align(packed->out, TAP_PANEL, &packed->out_padded))
        return false;
    if (packed->form != TAP_FORM_WINOGRAD)
        packed->in_padded = packed->in;
    packed->n_biases = packed->out_padded;
    size_t per_input = packed->form == TAP_FORM_WINOGRAD ? TAP_TILE_PLANES
                       : packed->form == TAP_FORM_DIRECT ? 9
                                                         : 1;
    return tap_size_mul(packed->in_padded, packed->out_padded, &n) &&
           tap_size_mul(n, per_input * sizeof(float), &packed->n_weights);
}

static bool size_panels(tap_packed *packed, size_t n_tokens, const tap_product *product)
{
    packed->form = TAP_FORM_PANELS;
    packed->product = product;
    if (!tap_size_align(packed->in, product->k_step, &packed->in_padded) ||
        !tap_size_align(packed->out, TAP_PRODUCT_COLUMNS, &packed->out_padded) ||
        !tap_size_align(product->panel_bytes(packed->in_padded), TAP_ALIGN, &packed->panel_bytes) ||
        !tap_size_mul(packed->out_padded, n_tokens, &packed->n_biases))
        return false;
    return tap_size_mul(packed->out_padded / TAP_PRODUCT_COLUMNS, packed->panel_bytes,
                        &packed->n_weights);
}

tap_status tap_packed_create(tap_packed **out_packed, const tap_op *op, size_t in, size_t out,
                             size_t n_tokens, const tap_product *product, tap_error *err)
{
    size_t biases;
    *out_packed = NULL;
    tap_packed *packed = calloc(1, sizeof *packed);
    if (packed == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for its weights", op->name);
    *packed = (tap_packed){.form = TAP_FORM_VALUES,
                           .in = in,
                           .out = out,
                           .in_padded = in,
                           .out_padded = out,
                           .n_weights = out * sizeof(float),
                           .n_biases = out,
                           .n_references = 1};
    snprintf(packed->name, sizeof packed->name, "%s", op->name);
    bool fits = op->kind == TAP_OP_CONV ? size_conv(packed, op)
                : product != NULL       ? size_panels(packed, n_tokens, product)
                                        : true;
    if (!fits || !tap_size_align(packed->n_weights, TAP_ALIGN, &packed->n_weights) ||
        !tap_size_mul(packed->n_biases, sizeof(float), &biases) ||
        !tap_size_add(packed->n_weights, biases, &packed->n_bytes) ||
        packed->n_bytes > PTRDIFF_MAX) {
        free(packed);
        return tap_fail(err, TAP_ERR_LIMIT, "%s: too many channels", op->name);
    }
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
    switch (packed->form) {
    case TAP_FORM_PANELS:
        return packed->out_padded / TAP_PRODUCT_COLUMNS;
    case TAP_FORM_VALUES:
        return 1;
    default:
        return packed->out_padded / TAP_PANEL *
               ((packed->in_padded + INPUTS_PER_ITEM - 1) / INPUTS_PER_ITEM);
    }
}

static void fill_panel(const tap_packed *packed, const tap_op *op, size_t panel)
{
    size_t first = panel * TAP_PRODUCT_COLUMNS, n = packed->out - first;
    packed->product->pack((uint8_t *)packed->weights + panel * packed->panel_bytes,
                          op->weight + first * packed->in,
                          n < TAP_PRODUCT_COLUMNS ? n : TAP_PRODUCT_COLUMNS, packed->in);
}

/* A panel's columns of a few input channels. */
static void fill_conv(const tap_packed *packed, const tap_op *op, size_t item)
{
    size_t n_panels = packed->out_padded / TAP_PANEL;
    size_t panel = item % n_panels, first = item / n_panels * INPUTS_PER_ITEM;
    for (size_t i = first; i < packed->in_padded && i < first + INPUTS_PER_ITEM; i++)
        if (packed->form == TAP_FORM_WINOGRAD)
            pack_winograd(packed, op, panel, i);
        else
            pack_plain(packed, op, panel, i);
}

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
    if (packed->form == TAP_FORM_PANELS)
        fill_panel(packed, packing->op, item);
    else if (packed->form == TAP_FORM_VALUES)
        memcpy(packed->weights,
               packing->op->weight != NULL ? packing->op->weight : packing->op->bias,
               packed->out * sizeof(float));
    else
        fill_conv(packed, packing->op, item);
}

/* Bias and, of patches, the table: a row for each token. */
static void fill_biases(const tap_packed *packed, const tap_op *op)
{
    for (size_t i = 0; i < packed->n_biases; i++) {
        size_t o = i % packed->out_padded, row = i / packed->out_padded;
        float bias = o < packed->out && op->bias != NULL ? op->bias[o] : 0;
        if (o < packed->out && op->table != NULL)
            bias += op->table[row * packed->out + o];
        packed->bias[i] = bias;
    }
}

static void place(tap_packed *packed, void *memory, bool owned)
{
    packed->weights = memory;
    packed->bias = (float *)(void *)((uint8_t *)memory + packed->n_weights);
    packed->owned = owned;
}

/* Memory for all; *filled[i]: a store's that was packed before. */
static tap_status take_memory(const tap_packing *packings, size_t n, tap_pack_request *requests,
                              const tap_pack_store *store, tap_error *err)
{
    for (size_t i = 0; i < n; i++)
        requests[i] = (tap_pack_request){.name = packings[i].packed->name,
                                         .n_bytes = packings[i].packed->n_bytes};
    if (store != NULL) {
        TAP_TRY(store->take(store->user, requests, n, err));
    } else {
        for (size_t i = 0; i < n; i++) {
            requests[i].memory = tap_alloc(requests[i].n_bytes, 1);
            if (requests[i].memory == NULL)
                return tap_fail(err, TAP_ERR_MEMORY,
                                "%s: out of memory for %zu bytes of packed weights",
                                requests[i].name, requests[i].n_bytes);
            place(packings[i].packed, requests[i].memory, true);
        }
    }
    for (size_t i = 0; i < n && store != NULL; i++)
        place(packings[i].packed, requests[i].memory, false);
    return TAP_OK;
}

/* A stretch of packings, so that progress can be told between. */
static void fill_some(const tap_packing *packings, size_t n, tap_pool *pool)
{
    struct filling filling = {packings, n};
    size_t items = 0;
    for (size_t i = 0; i < n; i++) {
        fill_biases(packings[i].packed, packings[i].op);
        items += n_items(packings[i].packed);
    }
    tap_pool_run(pool, items, fill_item, &filling);
}

tap_status tap_packed_fill(const tap_packing *packings, size_t n,
                           const tap_compile_options *options, tap_pool *pool, tap_error *err)
{
    enum { STRETCH_BYTES = 1 << 26 };
    uint64_t total = 0, done = 0;
    tap_pack_request *requests = calloc(n + 1, sizeof *requests);
    if (requests == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for %zu weights", n);
    tap_status status = take_memory(packings, n, requests, options->store, err);
    for (size_t i = 0; i < n; i++)
        total += requests[i].n_bytes;
    for (size_t first = 0, next = 0; status == TAP_OK && first < n; first = next) {
        size_t bytes = 0;
        for (; next < n && requests[next].filled == requests[first].filled && bytes < STRETCH_BYTES;
             next++)
            bytes += requests[next].n_bytes;
        if (!requests[first].filled)
            fill_some(packings + first, next - first, pool);
        done += bytes;
        if (options->progress != NULL && !requests[first].filled &&
            !options->progress(options->progress_user, done, total))
            status = tap_fail(err, TAP_ERR_CANCELLED, "packing: stopped, as was asked");
    }
    free(requests);
    return status;
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
    if (packed->owned)
        free(packed->weights);
    free(packed);
}
