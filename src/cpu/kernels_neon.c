/* NEON of AArch64: thirty-two registers of four floats. */
#include "kernels.h"

#include <arm_neon.h>
#include <math.h>
#include <stdint.h>

#define LANES            4
#define VEC_FMA(a, b, c) (vec) vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b))
#define VEC_MAX(a, b)    (vec) vmaxq_f32((float32x4_t)(a), (float32x4_t)(b))

#include "vector.inc"

enum { ROWS = 5 }; /* 5 x 16 sums fill twenty registers */

static inline __attribute__((always_inline)) void gemm_rows(float *restrict c, size_t c_row,
                                                            const float *restrict a, size_t a_row,
                                                            const float *restrict b, size_t k,
                                                            size_t rows)
{
    vec sum[ROWS][HALVES] = {0};
    for (size_t i = 0; i < k; i++, b += TAP_PANEL)
        for (size_t row = 0; row < rows; row++) {
            const vec value = splat(a[row * a_row + i]);
            for (size_t j = 0; j < HALVES; j++)
                sum[row][j] = VEC_FMA(value, load(b + j * LANES), sum[row][j]);
        }
    for (size_t row = 0; row < rows; row++)
        for (size_t j = 0; j < HALVES; j++)
            store(c + row * c_row + j * LANES, sum[row][j]);
}

static void gemm(float *restrict c, size_t c_row, const float *restrict a, size_t a_row,
                 const float *restrict b, size_t m, size_t k, size_t n)
{
    for (size_t column = 0; column < n; column += TAP_PANEL, b += k * TAP_PANEL) {
        size_t row = 0;
        for (; row + ROWS <= m; row += ROWS)
            gemm_rows(c + row * c_row + column, c_row, a + row * a_row, a_row, b, k, ROWS);
        for (; row < m; row++)
            gemm_rows(c + row * c_row + column, c_row, a + row * a_row, a_row, b, k, 1);
    }
}

const tap_kernels tap_kernels_neon = {
    .isa = "neon",
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
};
