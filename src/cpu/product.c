#include "product.h"

#include "core/core.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- 8 bits: a scale for each column of weights, and one for each row as it comes ------------ */

/* In front of a panel's weights. */
struct columns {
    float scales[TAP_BYTE_COLUMNS];
    float sums[TAP_BYTE_COLUMNS]; /* of a column's weights, in steps */
};

_Static_assert((int)TAP_BYTE_COLUMNS == (int)TAP_PRODUCT_COLUMNS, "one panel for all products");
_Static_assert(sizeof(tap_byte_row) <= TAP_BYTE_STEP, "a row's bytes follow its head");

static size_t byte_panel_bytes(size_t k)
{
    return sizeof(struct columns) + k * TAP_BYTE_COLUMNS;
}

static size_t byte_row_bytes(size_t k)
{
    return TAP_BYTE_STEP + k;
}

static size_t byte_scratch_bytes(size_t k)
{
    (void)k;
    return 0; /* sums of 32 bits take the place of the floats that they become */
}

/* What becomes 127: the column's largest weight, unless two neighbours of one sign would come to
 * more than TAP_BYTE_PAIR, where rounding adds one. */
static float column_range(const float *weight, size_t k)
{
    float most = 0, pair = 0;
    for (size_t i = 0; i < k; i++) {
        most = fmaxf(most, fabsf(weight[i]));
        if (i % 2 == 0 && i + 1 < k && (weight[i] < 0) == (weight[i + 1] < 0))
            pair = fmaxf(pair, fabsf(weight[i] + weight[i + 1]));
    }
    return fmaxf(most, pair * (127.0f / (TAP_BYTE_PAIR - 1)));
}

/* w = scale * byte, by the column's range. */
static void byte_pack(void *panel, const float *weight, size_t n, size_t k)
{
    struct columns *columns = panel;
    int8_t *bytes = (int8_t *)(columns + 1);
    size_t k_padded = tap_product_pad(k, TAP_BYTE_STEP);
    memset(panel, 0, byte_panel_bytes(k_padded));
    for (size_t column = 0; column < n; column++) {
        const float *from = weight + column * k;
        const float range = column_range(from, k), inverse = range > 0 ? 127 / range : 0;
        long sum = 0;
        for (size_t i = 0; i < k; i++) {
            long value = lrintf(from[i] * inverse);
            bytes[(i / 4 * TAP_BYTE_COLUMNS + column) * 4 + i % 4] = (int8_t)value;
            sum += value;
        }
        columns->scales[column] = range / 127;
        columns->sums[column] = (float)sum;
    }
}

static void byte_rows(const tap_kernels *kernels, void *form, const float *x, size_t x_row,
                      size_t first, size_t n, size_t m, size_t k)
{
    size_t k_padded = tap_product_pad(k, TAP_BYTE_STEP);
    uint8_t *to = (uint8_t *)form + first * byte_row_bytes(k_padded);
    (void)m;
    for (size_t row = 0; row < n; row++, x += x_row, to += byte_row_bytes(k_padded))
        kernels->bytes->quantize((tap_byte_row *)(void *)to, to + TAP_BYTE_STEP, x, k, k_padded);
}

/* What the outliers lack: their rests times the weights. */
static void add_outliers(float *c, const tap_byte_row *row, const struct columns *columns)
{
    const int8_t *bytes = (const int8_t *)(columns + 1);
    for (size_t j = 0; j < row->n_outliers; j++) {
        size_t i = row->places[j];
        for (size_t column = 0; column < TAP_BYTE_COLUMNS; column++)
            c[column] += row->rests[j] * columns->scales[column] *
                         (float)bytes[(i / 4 * TAP_BYTE_COLUMNS + column) * 4 + i % 4];
    }
}

static void byte_multiply(const tap_multiply *multiply)
{
    const struct columns *columns = multiply->panel;
    const tap_bytes_kernels *kernels = multiply->kernels->bytes;
    const uint8_t *rows = multiply->form;
    size_t row_bytes = byte_row_bytes(multiply->k);
    int32_t *sums = (int32_t *)(void *)multiply->c;
    kernels->dot(sums, rows + TAP_BYTE_STEP, row_bytes, (const int8_t *)(columns + 1),
                 tap_product_pad(multiply->m, TAP_PRODUCT_ROWS), multiply->k);
    for (size_t i = 0; i < multiply->m; i++, rows += row_bytes) {
        const tap_byte_row *row = (const void *)rows;
        int32_t own[TAP_BYTE_COLUMNS];
        float *c = multiply->c + i * TAP_BYTE_COLUMNS;
        memcpy(own, sums + i * TAP_BYTE_COLUMNS, sizeof own);
        kernels->scale(c, own, row, columns->scales, columns->sums);
        add_outliers(c, row, columns);
    }
}

static const tap_product byte = {
    .name = "8 bits, outliers apart",
    .precision = "int8",
    .k_step = TAP_BYTE_STEP,
    .panel_bytes = byte_panel_bytes,
    .row_bytes = byte_row_bytes,
    .scratch_bytes = byte_scratch_bytes,
    .pack = byte_pack,
    .rows = byte_rows,
    .multiply = byte_multiply,
};

/* The better first. */
static const tap_product *const products[] = {
#if defined(TAPETUM_AMX)
    &tap_product_amx_f32,
#endif
    &tap_product_strassen_f32,
    &tap_product_strassen_f16,
    &byte,
};

const tap_product *tap_product_find(const tap_kernels *kernels, const char *precision)
{
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        const tap_product *product = products[i];
        if (strcmp(product->precision, precision) == 0 &&
            (product->isa == NULL || strcmp(product->isa, kernels->isa) == 0))
            return product;
    }
    return NULL;
}

void tap_products_print(const tap_kernels *kernels, char *text, size_t size)
{
    static const char *const precisions[] = {"f32", "f16", "int8"};
    size_t used = 0;
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions && used < size; i++) {
        const tap_product *product = tap_product_find(kernels, precisions[i]);
        if (product != NULL)
            used += (size_t)snprintf(text + used, size - used, "linear, %-24s %s, %s\n",
                                     precisions[i], kernels->isa, product->name);
    }
}
