/* AVX-512F: thirty-two registers of sixteen floats. Compiled everywhere, run only where the CPU
 * has it; see docs/performance.md for what has been tried. */
#include "kernels.h"

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#define LANES            16
#define VEC_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define VEC_MAX(a, b)    _mm512_max_ps(a, b)

#include "vector.inc"

enum { ROWS = 12, PAIR = 2 }; /* 12 rows x 2 panels: 24 sums, 24 FMAs on 14 loads a step */

static inline __attribute__((always_inline)) void gemm_rows(float *restrict c, size_t c_row,
                                                            const float *restrict a, size_t a_row,
                                                            const float *restrict b, size_t k,
                                                            size_t rows, size_t panels)
{
    vec sum[ROWS][PAIR] = {0};
    for (size_t i = 0; i < k; i++, b += TAP_PANEL) {
        const vec left = load(b), right = panels == PAIR ? load(b + k * TAP_PANEL) : left;
        for (size_t row = 0; row < rows; row++) {
            const vec value = splat(a[row * a_row + i]);
            sum[row][0] = VEC_FMA(value, left, sum[row][0]);
            if (panels == PAIR)
                sum[row][1] = VEC_FMA(value, right, sum[row][1]);
        }
    }
    for (size_t row = 0; row < rows; row++)
        for (size_t panel = 0; panel < panels; panel++)
            store(c + row * c_row + panel * TAP_PANEL, sum[row][panel]);
}

static void gemm(float *restrict c, size_t c_row, const float *restrict a, size_t a_row,
                 const float *restrict b, size_t m, size_t k, size_t n)
{
    for (size_t column = 0; column < n;) {
        size_t row = 0, panels = n - column >= (size_t)PAIR * TAP_PANEL ? PAIR : 1;
        for (; panels == PAIR && row + ROWS <= m; row += ROWS)
            gemm_rows(c + row * c_row + column, c_row, a + row * a_row, a_row, b, k, ROWS, PAIR);
        for (; panels == 1 && row + ROWS <= m; row += ROWS)
            gemm_rows(c + row * c_row + column, c_row, a + row * a_row, a_row, b, k, ROWS, 1);
        for (; panels == PAIR && row < m; row++)
            gemm_rows(c + row * c_row + column, c_row, a + row * a_row, a_row, b, k, 1, PAIR);
        for (; row < m; row++)
            gemm_rows(c + row * c_row + column, c_row, a + row * a_row, a_row, b, k, 1, 1);
        column += panels * TAP_PANEL;
        b += panels * k * TAP_PANEL;
    }
}

static void widen(float *restrict y, const uint16_t *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i += LANES) {
        size_t left = n - i;
        __mmask16 have = left >= LANES ? 0xffff : (__mmask16)((1u << left) - 1);
        __m256i halves = _mm256_maskz_loadu_epi16(have, x + i);
        _mm512_mask_storeu_ps(y + i, have, _mm512_cvtph_ps(halves));
    }
}

const tap_kernels tap_kernels_avx512 = {
    .isa = "avx512",
    .base = &tap_kernels_avx2,
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
};
