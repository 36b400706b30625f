/* AVX2 and FMA: sixteen registers of eight floats. */
#include "kernels.h"

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES            8
#define VEC_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define VEC_MAX(a, b)    _mm256_max_ps(a, b)

#include "vector.inc"

#include "bytes.inc"

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

/* The six-row block in assembly: compilers fold the broadcasts or the loads of b into the FMAs,
 * which then need three loads a cycle where the machine has two. Sums ymm0..ymm11, b in ymm12 and
 * ymm13, values of a in turn in ymm14 and ymm15. The panel that comes next in memory is fetched
 * while this one is used: a line from `fetch` on every four steps. */
/* C promises strings of 4095 characters only; GCC and Clang know no limit. */
#pragma GCC diagnostic ignored "-Woverlength-strings"

#define ROW(disp, address, value, left, right)             \
    "vbroadcastss " disp address ", %%ymm" value "\n"      \
    "vfmadd231ps %%ymm12, %%ymm" value ", %%ymm" left "\n" \
    "vfmadd231ps %%ymm13, %%ymm" value ", %%ymm" right "\n"
#define STEP(disp, b_left, b_right)                                                             \
    "vmovups " b_left "(%[b]), %%ymm12\n"                                                       \
    "vmovups " b_right "(%[b]), %%ymm13\n" ROW(disp, "(%[a])", "14", "0", "1")                  \
        ROW(disp, "(%[a],%[row])", "15", "2", "3") ROW(disp, "(%[a],%[row],2)", "14", "4", "5") \
            ROW(disp, "(%[a3])", "15", "6", "7") ROW(disp, "(%[a3],%[row])", "14", "8", "9")    \
                ROW(disp, "(%[a3],%[row],2)", "15", "10", "11")
#define CLEAR(i) "vxorps %%xmm" i ", %%xmm" i ", %%xmm" i "\n"
#define PUT(address, left, right)          \
    "vmovups %%ymm" left ", " address "\n" \
    "vmovups %%ymm" right ", 32" address "\n"

static inline void gemm_six(float *c, size_t c_row, const float *a, size_t a_row, const float *b,
                            size_t k, const float *fetch)
{
    size_t fours = k / 4, ones = k % 4;
    const float *a3 = a + 3 * a_row;
    float *c3 = c + 3 * c_row;
    __asm__ volatile(
        CLEAR("0") CLEAR("1") CLEAR("2") CLEAR("3") CLEAR("4") CLEAR("5") CLEAR("6") CLEAR("7")
            CLEAR("8") CLEAR("9") CLEAR("10") CLEAR(
                "11") "test %[fours], %[fours]\n"
                      "jz 2f\n"
                      ".p2align 5\n"
                      "1:\n"
                      "prefetcht0 (%[fetch])\n" STEP("", "", "32") STEP("4", "64", "96")
                          STEP("8", "128", "160") STEP(
                              "12", "192",
                              "224") "add $16, %[a]\n"
                                     "add $16, %[a3]\n"
                                     "add $256, %[b]\n"
                                     "add $64, %[fetch]\n"
                                     "dec %[fours]\n"
                                     "jnz 1b\n"
                                     "2:\n"
                                     "test %[ones], %[ones]\n"
                                     "jz 4f\n"
                                     "3:\n" STEP("", "",
                                                 "32") "add $4, %[a]\n"
                                                       "add $4, %[a3]\n"
                                                       "add $64, %[b]\n"
                                                       "dec %[ones]\n"
                                                       "jnz 3b\n"
                                                       "4:\n" PUT("(%[c])", "0", "1")
                                                           PUT("(%[c],%[c_row])", "2", "3")
                                                               PUT("(%[c],%[c_row],2)", "4",
                                                                   "5") PUT("(%[c3])", "6", "7")
                                                                   PUT("(%[c3],%[c_row])", "8", "9")
                                                                       PUT("(%[c3],%[c_row],2)",
                                                                           "10", "11")
        : [a] "+r"(a), [a3] "+r"(a3), [b] "+r"(b), [fetch] "+r"(fetch), [fours] "+r"(fours),
          [ones] "+r"(ones)
        : [c] "r"(c), [c3] "r"(c3), [c_row] "r"(c_row * sizeof(float)),
          [row] "r"(a_row * sizeof(float))
        : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
          "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

static void gemm(float *restrict c, size_t c_row, const float *restrict a, size_t a_row,
                 const float *restrict b, size_t m, size_t k, size_t n)
{
    for (size_t column = 0; column < n; column += TAP_PANEL, b += k * TAP_PANEL) {
        /* A panel is k lines; a block fetches k / 4 of them, so four blocks fetch the next one. */
        const bool last = column + TAP_PANEL == n;
        const float *next = b + k * TAP_PANEL;
        size_t row = 0;
        for (; row + ROWS <= m; row += ROWS, next += k / 4 * TAP_PANEL)
            gemm_six(c + row * c_row + column, c_row, a + row * a_row, a_row, b, k,
                     last ? a + (row + ROWS) * a_row : next);
        gemm_few(c + row * c_row + column, c_row, a + row * a_row, a_row, b, k, m - row);
    }
}

static void widen(float *restrict y, const uint16_t *restrict x, size_t n)
{
    size_t whole = n - n % LANES;
    for (size_t i = 0; i < whole; i += LANES)
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(x + i))));
    for (size_t i = whole; i < n; i++)
        y[i] = _cvtsh_ss(x[i]);
}

/* ---- 8 bits: pairs of products are summed in 16 bits, so a row's bytes go to 170 only:
 * 170 * TAP_BYTE_PAIR = 32640 ---------------------------------------------------------------- */

_Static_assert(170 * TAP_BYTE_PAIR <= INT16_MAX, "a pair of products fits");

static void quantize(tap_byte_row *row, uint8_t *bytes, const float *x, size_t k, size_t k_padded)
{
    quantize_levels(row, bytes, x, k, k_padded, 170);
}

enum { BYTE_ROWS = 4, BYTE_VECTORS = 2 }; /* 4 x 16 sums; 32 columns are two halves */

static inline __m256i dot_step(__m256i sum, __m256i row, __m256i weights, __m256i ones)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(row, weights), ones));
}

static inline __m256i quad(const uint8_t *from)
{
    int32_t value;
    memcpy(&value, from, sizeof value);
    return _mm256_set1_epi32(value);
}

static void dot(int32_t *restrict c, const uint8_t *restrict rows, size_t row_bytes,
                const int8_t *restrict panel, size_t m, size_t k)
{
    const __m256i ones = _mm256_set1_epi16(1);
    for (size_t half = 0; half < 2; half++)
        for (size_t row = 0; row < m; row += BYTE_ROWS) {
            __m256i sum[BYTE_ROWS][BYTE_VECTORS];
            const int8_t *weights = panel + half * 64;
            const uint8_t *from = rows + row * row_bytes;
            for (size_t i = 0; i < BYTE_ROWS; i++)
                sum[i][0] = sum[i][1] = _mm256_setzero_si256();
            for (size_t i = 0; i < k; i += 4, from += 4, weights += 4 * TAP_BYTE_COLUMNS) {
                const __m256i left = _mm256_loadu_si256((const void *)weights);
                const __m256i right = _mm256_loadu_si256((const void *)(weights + 32));
                for (size_t j = 0; j < BYTE_ROWS; j++) {
                    const __m256i value = quad(from + j * row_bytes);
                    sum[j][0] = dot_step(sum[j][0], value, left, ones);
                    sum[j][1] = dot_step(sum[j][1], value, right, ones);
                }
            }
            for (size_t i = 0; i < BYTE_ROWS; i++)
                for (size_t j = 0; j < BYTE_VECTORS; j++)
                    _mm256_storeu_si256(
                        (void *)(c + (row + i) * TAP_BYTE_COLUMNS + half * 16 + j * 8), sum[i][j]);
        }
}

static const tap_bytes_kernels bytes = {quantize, dot, scale_sums};

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
    .finish = finish_rows,
    .layer_norm = layer_norm,
    .strassen_weights = strassen_weights,
    .strassen_combine = strassen_combine,
    .widen = widen,
    .bytes = &bytes,
};
