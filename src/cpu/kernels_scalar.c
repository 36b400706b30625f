/* Portable C: vectors of four floats by the compilers' own types, which every target has, or
 * imitates. Products are rounded before they are added. */
#include "kernels.h"

#include "core/core.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES            4
#define VEC_FMA(a, b, c) ((a) * (b) + (c))
#define VEC_MAX(a, b)    larger(a, b)

typedef float vec4 __attribute__((vector_size(16)));
typedef int32_t int4 __attribute__((vector_size(16)));

static inline vec4 larger(vec4 a, vec4 b)
{
    int4 mask = (int4)(a > b);
    return (vec4)(((int4)a & mask) | ((int4)b & ~mask));
}

#include "vector.inc"

#include "bytes.inc"

/* rows x TAP_PANEL elements of c. */
static inline __attribute__((always_inline)) void gemm_tile(float *restrict c, size_t c_row,
                                                            const float *restrict a, size_t a_row,
                                                            const float *restrict b, size_t k,
                                                            size_t rows)
{
    vec sum[3][HALVES] = {0};
    for (size_t i = 0; i < k; i++, b += TAP_PANEL)
        for (size_t row = 0; row < rows; row++)
            for (size_t j = 0; j < HALVES; j++)
                sum[row][j] += splat(a[row * a_row + i]) * load(b + j * LANES);
    for (size_t row = 0; row < rows; row++)
        for (size_t j = 0; j < HALVES; j++)
            store(c + row * c_row + j * LANES, sum[row][j]);
}

static void gemm(float *restrict c, size_t c_row, const float *restrict a, size_t a_row,
                 const float *restrict b, size_t m, size_t k, size_t n)
{
    for (size_t column = 0; column < n; column += TAP_PANEL, b += k * TAP_PANEL) {
        size_t row = 0;
        for (; row + 3 <= m; row += 3)
            gemm_tile(c + row * c_row + column, c_row, a + row * a_row, a_row, b, k, 3);
        for (; row < m; row++)
            gemm_tile(c + row * c_row + column, c_row, a + row * a_row, a_row, b, k, 1);
    }
}

static void widen(float *restrict y, const uint16_t *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = tap_f16_to_f32(x[i]);
}

static void quantize(tap_byte_row *row, uint8_t *bytes, const float *x, size_t k, size_t k_padded)
{
    quantize_levels(row, bytes, x, k, k_padded, 255);
}

static void dot(int32_t *restrict c, const uint8_t *restrict rows, size_t row_bytes,
                const int8_t *restrict panel, size_t m, size_t k)
{
    for (size_t row = 0; row < m; row++, rows += row_bytes, c += TAP_BYTE_COLUMNS) {
        const int8_t *weights = panel;
        int32_t sum[TAP_BYTE_COLUMNS] = {0};
        for (size_t i = 0; i < k; i += 4, weights += 4 * TAP_BYTE_COLUMNS)
            for (size_t column = 0; column < TAP_BYTE_COLUMNS; column++)
                for (size_t j = 0; j < 4; j++)
                    sum[column] += rows[i + j] * weights[4 * column + j];
        memcpy(c, sum, sizeof sum);
    }
}

static const tap_bytes_kernels bytes = {quantize, dot, scale_sums};

const tap_kernels tap_kernels_scalar = {
    .isa = "scalar",
    .gemm = gemm,
    .winograd_input = winograd_input,
    .winograd_output = winograd_output,
    .winograd_output_pool = winograd_output_pool,
    .direct = direct_conv,
    .bias = bias_rows,
    .softmax = softmax,
    .l2_norm = l2_norm,
    .finish = finish_rows,
    .layer_norm = layer_norm,
    .strassen_weights = strassen_weights,
    .strassen_combine = strassen_combine,
    .widen = widen,
    .bytes = &bytes,
};
