/* resample: Pillow's bilinear resize of one 8-bit plane, bit for bit.
 *
 * Both passes are the same sum over whole rows, out[i] = sum_j weight[j] * row[j][i], which vectors
 * do well. The horizontal pass gets there by transposing strips of 16 rows: then the 16 pixels of
 * a column lie side by side and share their weights. */
#include "image.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { STRIP = 16, WEIGHT_BITS = 22 };

typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef int32_t words16 __attribute__((vector_size(64)));

/* ---- weights --------------------------------------------------------------------------------- */

/* For each output sample: its first input sample, how many, and as many weights. */
typedef struct axis {
    uint32_t *first, *count;
    int32_t *weights; /* [m][stride] */
    size_t stride;
} axis;

static double filter_scale(uint32_t n, uint32_t m)
{
    double scale = (double)n / m;
    return scale < 1 ? 1 : scale;
}

/* Most weights that one output can have. */
static size_t axis_stride(uint32_t n, uint32_t m)
{
    return (size_t)ceil(filter_scale(n, m)) * 2 + 1;
}

/* The triangle of half width f around c = (i + 0.5) n / m, sampled at the input pixels' centres
 * and normalised, in double; then rounded to 22 bits (docs/formats.md, "Resizing"). Pillow
 * multiplies by 1 / f where one would divide by f, and so must we. */
static void weigh_sample(axis *a, uint32_t i, uint32_t n, uint32_t m, double *raw)
{
    double scale = (double)n / m, f = filter_scale(n, m), inverse = 1.0 / f;
    double centre = (i + 0.5) * scale, low = centre - f + 0.5, high = centre + f + 0.5, sum = 0;
    uint32_t first = low < 0 ? 0 : (uint32_t)low;
    uint32_t last = high > n ? n : (uint32_t)high;
    uint32_t count = last - first;
    for (uint32_t j = 0; j < count; j++) {
        double distance = fabs(((double)(j + first) - centre + 0.5) * inverse);
        raw[j] = distance < 1 ? 1 - distance : 0;
        sum += raw[j];
    }
    for (uint32_t j = 0; j < count; j++) {
        double weight = sum != 0 ? raw[j] / sum : raw[j];
        a->weights[i * a->stride + j] = (int32_t)(0.5 + weight * (1 << WEIGHT_BITS));
    }
    a->first[i] = first;
    a->count[i] = count;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Where each table lies in the caller's scratch. */
typedef struct layout {
    size_t first_x, count_x, weights_x, first_y, count_y, weights_y;
    size_t raw;       /* doubles: one sample's weights before rounding */
    size_t strip_in;  /* [src_width up to 16][16] */
    size_t strip_out; /* [dst_width up to 16][16] */
    size_t middle;    /* [src_height][dst_width]: after the horizontal pass */
    size_t end;
} layout;

static bool take(size_t *end, size_t *place, size_t count, size_t size)
{
    size_t bytes;
    *place = *end;
    return tap_size_mul(count, size, &bytes) && tap_size_align(bytes, TAP_ALIGN, &bytes) &&
           tap_size_add(*end, bytes, end);
}

static bool plan_layout(layout *l, uint32_t src_width, uint32_t src_height, uint32_t dst_width,
                        uint32_t dst_height)
{
    size_t stride_x = axis_stride(src_width, dst_width), middle, weights_x, weights_y;
    size_t stride_y = axis_stride(src_height, dst_height);
    size_t most = stride_x > stride_y ? stride_x : stride_y;
    *l = (layout){0};
    return tap_size_mul(stride_x, dst_width, &weights_x) &&
           tap_size_mul(stride_y, dst_height, &weights_y) &&
           tap_size_mul(src_height, dst_width, &middle) &&
           take(&l->end, &l->first_x, dst_width, sizeof(uint32_t)) &&
           take(&l->end, &l->count_x, dst_width, sizeof(uint32_t)) &&
           take(&l->end, &l->weights_x, weights_x, sizeof(int32_t)) &&
           take(&l->end, &l->first_y, dst_height, sizeof(uint32_t)) &&
           take(&l->end, &l->count_y, dst_height, sizeof(uint32_t)) &&
           take(&l->end, &l->weights_y, weights_y, sizeof(int32_t)) &&
           take(&l->end, &l->raw, most, sizeof(double)) &&
           take(&l->end, &l->strip_in, (size_t)src_width + STRIP, STRIP) &&
           take(&l->end, &l->strip_out, (size_t)dst_width + STRIP, STRIP) &&
           take(&l->end, &l->middle, middle, 1);
}

bool tap_resize_scratch_bytes(uint32_t src_width, uint32_t src_height, uint32_t dst_width,
                              uint32_t dst_height, size_t *bytes)
{
    layout l;
    if (src_width == 0 || src_height == 0 || dst_width == 0 || dst_height == 0 ||
        !plan_layout(&l, src_width, src_height, dst_width, dst_height))
        return false;
    *bytes = l.end;
    return true;
}

/* ---- sums of rows ---------------------------------------------------------------------------- */

/* out[x] = (2^21 + sum_j weights[j] * in[j * width + x]) >> 22 for from <= x < width. The sum of
 * the weights may pass 2^22 by a rounding error each, hence the upper clamp; none is negative. */
static void sum_rest(uint8_t *out, const uint8_t *in, const int32_t *weights, size_t count,
                     size_t from, size_t width)
{
    for (size_t x = from; x < width; x++) {
        int32_t sum = 1 << (WEIGHT_BITS - 1);
        for (size_t j = 0; j < count; j++)
            sum += in[j * width + x] * weights[j];
        sum >>= WEIGHT_BITS;
        out[x] = (uint8_t)(sum > 255 ? 255 : sum);
    }
}

/* dst[m][width] from src[n][width], 16 columns at a time. */
typedef void (*row_summer)(uint8_t *dst, size_t m, const uint8_t *src, size_t width, const axis *a);

static void sum_rows_portable(uint8_t *dst, size_t m, const uint8_t *src, size_t width,
                              const axis *a)
{
    for (size_t i = 0; i < m; i++, dst += width) {
        const uint8_t *in = src + a->first[i] * width;
        const int32_t *weights = a->weights + i * a->stride;
        size_t x = 0, count = a->count[i];
        for (; x + STRIP <= width; x += STRIP) {
            words16 sum = (words16){0} + (1 << (WEIGHT_BITS - 1));
            for (size_t j = 0; j < count; j++) {
                bytes16 pixels;
                memcpy(&pixels, in + j * width + x, sizeof pixels);
                sum += __builtin_convertvector(pixels, words16) * weights[j];
            }
            sum >>= WEIGHT_BITS;
            words16 over = sum > 255;
            bytes16 result = __builtin_convertvector((over & 255) | (~over & sum), bytes16);
            memcpy(dst + x, &result, sizeof result);
        }
        sum_rest(dst, in, weights, count, x, width);
    }
}

#if defined(__x86_64__)
/* Two vectors of eight 32-bit sums; packing them saturates, which is the upper clamp. */
__attribute__((target("avx2"))) static inline __m128i
sum_16_avx2(const uint8_t *in, size_t width, const int32_t *weights, size_t count)
{
    __m256i low = _mm256_set1_epi32(1 << (WEIGHT_BITS - 1)), high = low;
    for (size_t j = 0; j < count; j++, in += width) {
        __m256i weight = _mm256_set1_epi32(weights[j]);
        __m128i pixels = _mm_loadu_si128((const __m128i *)(const void *)in);
        __m256i a = _mm256_cvtepu8_epi32(pixels);
        __m256i b = _mm256_cvtepu8_epi32(_mm_srli_si128(pixels, 8));
        low = _mm256_add_epi32(low, _mm256_mullo_epi32(a, weight));
        high = _mm256_add_epi32(high, _mm256_mullo_epi32(b, weight));
    }
    low = _mm256_srai_epi32(low, WEIGHT_BITS);
    high = _mm256_srai_epi32(high, WEIGHT_BITS);
    __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
    return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

/* The same sums with AVX2, which has the 32-bit product that SSE2 lacks. */
__attribute__((target("avx2"))) static void
sum_rows_avx2(uint8_t *dst, size_t m, const uint8_t *src, size_t width, const axis *a)
{
    for (size_t i = 0; i < m; i++, dst += width) {
        const uint8_t *in = src + a->first[i] * width;
        const int32_t *weights = a->weights + i * a->stride;
        size_t x = 0, count = a->count[i];
        for (; x + STRIP <= width; x += STRIP)
            _mm_storeu_si128((__m128i *)(void *)(dst + x),
                             sum_16_avx2(in + x, width, weights, count));
        sum_rest(dst, in, weights, count, x, width);
    }
}
#endif

static row_summer choose_summer(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return sum_rows_avx2;
#endif
    return sum_rows_portable;
}

/* ---- strips ---------------------------------------------------------------------------------- */

/* Four perfect shuffles of 16 registers transpose 16 x 16 bytes. */
static inline void transpose_block(bytes16 rows[STRIP])
{
    for (int round = 0; round < 4; round++) {
        bytes16 shuffled[STRIP];
        for (int i = 0; i < STRIP / 2; i++) {
            bytes16 a = rows[i], b = rows[i + STRIP / 2];
            shuffled[2 * i] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5,
                                                      21, 6, 22, 7, 23);
            shuffled[2 * i + 1] = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12,
                                                          28, 13, 29, 14, 30, 15, 31);
        }
        memcpy(rows, shuffled, sizeof shuffled);
    }
}

/* strip[x][r] = rows[r][x] for x < width, r < 16; rows past n_rows repeat the last. */
static void gather_strip(uint8_t *strip, const uint8_t *rows, size_t width, size_t n_rows)
{
    size_t x = 0;
    for (; x + STRIP <= width; x += STRIP) {
        bytes16 block[STRIP];
        for (size_t r = 0; r < STRIP; r++)
            memcpy(&block[r], rows + (r < n_rows ? r : n_rows - 1) * width + x, STRIP);
        transpose_block(block);
        memcpy(strip + x * STRIP, block, sizeof block);
    }
    for (; x < width; x++)
        for (size_t r = 0; r < STRIP; r++)
            strip[x * STRIP + r] = rows[(r < n_rows ? r : n_rows - 1) * width + x];
}

/* The way back, for n_rows rows. */
static void scatter_strip(uint8_t *rows, const uint8_t *strip, size_t width, size_t n_rows)
{
    size_t x = 0;
    for (; x + STRIP <= width; x += STRIP) {
        bytes16 block[STRIP];
        memcpy(block, strip + x * STRIP, sizeof block);
        transpose_block(block);
        for (size_t r = 0; r < n_rows; r++)
            memcpy(rows + r * width + x, &block[r], STRIP);
    }
    for (; x < width; x++)
        for (size_t r = 0; r < n_rows; r++)
            rows[r * width + x] = strip[x * STRIP + r];
}

/* dst[height][m] from src[height][n]. */
static void sum_columns(uint8_t *dst, size_t m, const uint8_t *src, size_t n, size_t height,
                        const axis *a, uint8_t *strip_in, uint8_t *strip_out, row_summer sum)
{
    for (size_t y = 0; y < height; y += STRIP) {
        size_t n_rows = height - y < STRIP ? height - y : STRIP;
        gather_strip(strip_in, src + y * n, n, n_rows);
        sum(strip_out, m, strip_in, STRIP, a);
        scatter_strip(dst + y * m, strip_out, m, n_rows);
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void resize(uint8_t *dst, uint32_t dst_width, uint32_t dst_height, const uint8_t *src,
                   uint32_t src_width, uint32_t src_height, void *scratch, row_summer sum)
{
    layout l;
    uint8_t *base = scratch;
    plan_layout(&l, src_width, src_height, dst_width, dst_height);
    double *raw = (double *)(void *)(base + l.raw);
    const uint8_t *middle = src;
    if (src_width != dst_width) {
        axis a = {(uint32_t *)(void *)(base + l.first_x), (uint32_t *)(void *)(base + l.count_x),
                  (int32_t *)(void *)(base + l.weights_x), axis_stride(src_width, dst_width)};
        for (uint32_t i = 0; i < dst_width; i++)
            weigh_sample(&a, i, src_width, dst_width, raw);
        uint8_t *to = src_height != dst_height ? base + l.middle : dst;
        sum_columns(to, dst_width, src, src_width, src_height, &a, base + l.strip_in,
                    base + l.strip_out, sum);
        middle = to;
    }
    if (src_height != dst_height) {
        axis a = {(uint32_t *)(void *)(base + l.first_y), (uint32_t *)(void *)(base + l.count_y),
                  (int32_t *)(void *)(base + l.weights_y), axis_stride(src_height, dst_height)};
        for (uint32_t i = 0; i < dst_height; i++)
            weigh_sample(&a, i, src_height, dst_height, raw);
        sum(dst, dst_height, middle, dst_width, &a);
    } else if (middle == src) {
        memcpy(dst, src, (size_t)src_width * src_height);
    }
}

void tap_resize_bilinear(uint8_t *dst, uint32_t dst_width, uint32_t dst_height, const uint8_t *src,
                         uint32_t src_width, uint32_t src_height, void *scratch)
{
    resize(dst, dst_width, dst_height, src, src_width, src_height, scratch, choose_summer());
}

void tap_resize_bilinear_portable(uint8_t *dst, uint32_t dst_width, uint32_t dst_height,
                                  const uint8_t *src, uint32_t src_width, uint32_t src_height,
                                  void *scratch)
{
    resize(dst, dst_width, dst_height, src, src_width, src_height, scratch, sum_rows_portable);
}
