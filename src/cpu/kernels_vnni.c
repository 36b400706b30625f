/* AVX-512 with VNNI, whose one instruction multiplies four bytes of a row by four weights and adds
 * them up in 32 bits. All else is AVX-512's. */
#include "kernels.h"

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES            16
#define VEC_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define VEC_MAX(a, b)    _mm512_max_ps(a, b)

#include "lanes.inc"

#include "bytes.inc"

enum { BYTE_ROWS = 8 }; /* 8 x 32 sums: 16 of 32 registers; a multiple of them is 32 */

static void quantize(tap_byte_row *row, uint8_t *bytes, const float *x, size_t k, size_t k_padded)
{
    quantize_levels(row, bytes, x, k, k_padded, 255);
}

static inline __m512i quad(const uint8_t *from)
{
    int32_t value;
    memcpy(&value, from, sizeof value);
    return _mm512_set1_epi32(value);
}

static void dot(int32_t *restrict c, const uint8_t *restrict rows, size_t row_bytes,
                const int8_t *restrict panel, size_t m, size_t k)
{
    for (size_t row = 0; row < m; row += BYTE_ROWS) {
        __m512i sum[BYTE_ROWS][2];
        const int8_t *weights = panel;
        const uint8_t *from = rows + row * row_bytes;
        for (size_t i = 0; i < BYTE_ROWS; i++)
            sum[i][0] = sum[i][1] = _mm512_setzero_si512();
        for (size_t i = 0; i < k; i += 4, from += 4, weights += 4 * TAP_BYTE_COLUMNS) {
            const __m512i left = _mm512_loadu_si512(weights);
            const __m512i right = _mm512_loadu_si512(weights + 64);
            for (size_t j = 0; j < BYTE_ROWS; j++) {
                const __m512i value = quad(from + j * row_bytes);
                sum[j][0] = _mm512_dpbusd_epi32(sum[j][0], value, left);
                sum[j][1] = _mm512_dpbusd_epi32(sum[j][1], value, right);
            }
        }
        for (size_t i = 0; i < BYTE_ROWS; i++) {
            _mm512_storeu_si512(c + (row + i) * TAP_BYTE_COLUMNS, sum[i][0]);
            _mm512_storeu_si512(c + (row + i) * TAP_BYTE_COLUMNS + 16, sum[i][1]);
        }
    }
}

static const tap_bytes_kernels bytes = {quantize, dot, scale_sums};

const tap_kernels tap_kernels_vnni = {
    .isa = "avx512vnni", .base = &tap_kernels_avx512, .bytes = &bytes};
