/* AVX2 and FMA: sixteen registers of eight floats. */
#include "kernels.h"

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#define LANES            8
#define VEC_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define VEC_MAX(a, b)    _mm256_max_ps(a, b)

#include "vector.inc"

enum { ROWS = 6 }; /* 6 x 16 sums fill twelve registers: 12 FMAs on 8 loads a step */

static inline __attribute__((always_inline)) void gemm_rows(float *restrict c, size_t c_row,
                                                            const float *restrict a, size_t a_row,
                                                            const float *restrict b, size_t k,
                                                            size_t rows)
{
    vec sum[ROWS][2] = {0};
    for (size_t i = 0; i < k; i++, b += TAP_PANEL) {
        const vec left = load(b), right = load(b + LANES);
        for (size_t row = 0; row < rows; row++) {
            const vec value = splat(a[row * a_row + i]);
            sum[row][0] = VEC_FMA(value, left, sum[row][0]);
            sum[row][1] = VEC_FMA(value, right, sum[row][1]);
        }
    }
    for (size_t row = 0; row < rows; row++) {
        store(c + row * c_row, sum[row][0]);
        store(c + row * c_row + LANES, sum[row][1]);
    }
}

static void gemm_few(float *restrict c, size_t c_row, const float *restrict a, size_t a_row,
                     const float *restrict b, size_t k, size_t rows)
{
    switch (rows) {
    case 1:
        gemm_rows(c, c_row, a, a_row, b, k, 1);
        break;
    case 2:
        gemm_rows(c, c_row, a, a_row, b, k, 2);
        break;
    case 3:
        gemm_rows(c, c_row, a, a_row, b, k, 3);
        break;
    case 4:
        gemm_rows(c, c_row, a, a_row, b, k, 4);
        break;
    case 5:
        gemm_rows(c, c_row, a, a_row, b, k, 5);
        break;
    default:
        break;
    }
}

static void gemm(float *restrict c, size_t c_row, const float *restrict a, size_t a_row,
                 const float *restrict b, size_t m, size_t k, size_t n)
{
    for (size_t column = 0; column < n; column += TAP_PANEL, b += k * TAP_PANEL) {
        size_t row = 0;
        for (; row + ROWS <= m; row += ROWS)
            gemm_rows(c + row * c_row + column, c_row, a + row * a_row, a_row, b, k, ROWS);
        gemm_few(c + row * c_row + column, c_row, a + row * a_row, a_row, b, k, m - row);
    }
}

const tap_kernels tap_kernels_avx2 = {
    .isa = "avx2",
    .gemm = gemm,
    .winograd_input = winograd_input,
    .winograd_output = winograd_output,
    .winograd_output_pool = winograd_output_pool,
    .direct = direct_conv,
    .bias = bias_rows,
    .softmax = softmax,
    .l2_norm = l2_norm,
};
