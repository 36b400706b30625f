/* The kernel table: what an instruction set has to offer, one table in each kernels_<isa>.c.
 *
 * A NULL entry is taken from the table's base, at last from the portable table, which has them all.
 * Strides are in floats; memory needs no alignment unless it is said. Nothing reads or writes
 * outside what its comment names. Every kernel gives the same bits for a row, a tile or a position
 * whatever its neighbours, so work may be split over those at will. */
#ifndef TAP_CPU_KERNELS_H
#define TAP_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TAP_PANEL = 16,       /* columns of a packed panel; channel counts below are multiples of it */
    TAP_TILE = 4,         /* outputs of a Winograd tile along a side */
    TAP_TILE_INPUT = 6,   /* its inputs along a side */
    TAP_TILE_PLANES = 36, /* products of a tile */
};

/* c[m][n] = a[m][k] b, with b packed as [n / TAP_PANEL][k][TAP_PANEL]; n a multiple of TAP_PANEL.
 * Each element is a chain of k multiply-adds in order of k: its error is at most k rounding units
 * of the sum of the absolute products. */
typedef void (*tap_gemm_fn)(float *restrict c, size_t c_row, const float *restrict a, size_t a_row,
                            const float *restrict b, size_t m, size_t k, size_t n);

/* V = B^T d B of n_tiles tiles beside each other, F(4x4, 3x3) with the points 0, +-1, +-2
 * (Lavin and Gray, 2015, arXiv:1509.09308):
 * x [6][4 n_tiles + 2][channels], v plane p of tile t at v + p * v_plane + t * channels. */
typedef void (*tap_winograd_input_fn)(float *restrict v, size_t v_plane, const float *restrict x,
                                      size_t x_row, size_t x_pixel, size_t channels,
                                      size_t n_tiles);

/* y = A^T m A + bias, then max(y, 0) if relu, of n_tiles tiles beside each other; m as v above.
 * y [4][4 n_tiles][channels], or [2][2 n_tiles][channels] after 2x2 maxima for the pooling one. */
typedef void (*tap_winograd_output_fn)(float *restrict y, size_t y_row, size_t y_pixel,
                                       const float *restrict m, size_t m_plane,
                                       const float *restrict bias, size_t channels, size_t n_tiles,
                                       bool relu);

/* A 3x3 convolution of few channels, without padding: x [rows + 2][columns + 2][n_in],
 * weights [channels / TAP_PANEL][3][n_in][3][TAP_PANEL], y [rows][columns][channels]. */
typedef struct tap_direct {
    float *y;
    const float *x, *weights, *bias;
    size_t y_row, y_pixel, x_row;
    size_t rows, columns, n_in, channels;
    bool relu;
} tap_direct;
typedef void (*tap_direct_fn)(const tap_direct *direct);

/* y[m][n] = c[m][n] + bias[n], then max(y, 0) if relu; any n; y may be c. */
typedef void (*tap_bias_fn)(float *y, size_t y_row, const float *c, size_t c_row, const float *bias,
                            size_t m, size_t n, bool relu);

/* y[i] = exp(x[i] - max x) / sum over n values, any n > 0; y may be x. exp by a polynomial of
 * degree 6 after the reduction to |r| <= ln 2 / 2: relative error below 2e-7 for x in [-87, 0], and
 * values under -87 give at most 2e-38. */
typedef void (*tap_softmax_fn)(float *y, const float *x, size_t n);

/* y = x / max(|x|, 1e-12) over n values, any n > 0. */
typedef void (*tap_l2_norm_fn)(float *restrict y, const float *restrict x, size_t n);

/* y[m][n] = c[m][n] + bias[n]; then, if asked, gelu(y) = y / 2 (1 + erf(y / sqrt 2)), within 5e-7;
 * then + add[m][n], unless it is NULL. Any n. bias_row is 0 unless each row has a bias of its own.
 * y may be add. */
typedef struct tap_finish {
    float *y;
    const float *c, *bias, *add;
    size_t y_row, c_row, bias_row, add_row;
    size_t m, n;
    bool gelu;
} tap_finish;
typedef void (*tap_finish_fn)(const tap_finish *finish);

/* y = (x - mean) / sqrt(variance + epsilon) * weight + bias over n values, any n > 0. */
typedef void (*tap_layer_norm_fn)(float *restrict y, const float *restrict x,
                                  const float *restrict weight, const float *restrict bias,
                                  float epsilon, size_t n);

/* y[i] = x[i] for IEEE 754 binary16, any n. */
typedef void (*tap_widen_fn)(float *restrict y, const uint16_t *restrict x, size_t n);

/* Of one level of Strassen's algorithm, as product_strassen.c has it: t [4][n] = T1 to T4 from b
 * [4] [n], the quarters; n is a multiple of TAP_PANEL. */
typedef void (*tap_strassen_weights_fn)(float *restrict t, const float *restrict b, size_t n);

/* c [32][2 TAP_PANEL] = (with add: +=) the sums of the seven products p [16][TAP_PANEL], p_next
 * from each other. */
typedef void (*tap_strassen_combine_fn)(float *restrict c, const float *restrict p, size_t p_next,
                                        bool add);

/* ---- 8-bit products ------------------------------------------------------------------------- */

enum {
    TAP_BYTE_COLUMNS = 32, /* of a panel [k / 4][TAP_BYTE_COLUMNS][4] */
    TAP_BYTE_STEP = 64,    /* inputs are padded to a multiple */
    TAP_BYTE_PAIR = 192,   /* most that two neighbouring weights of one sign come to */
    TAP_ROW_OUTLIERS = 6   /* values of a row that are kept apart at most */
};

/* In front of a row's bytes, which follow at TAP_BYTE_STEP: x[i] = least + step * byte[i], and of
 * the outliers that plus their rest. */
typedef struct tap_byte_row {
    float step, least;
    uint32_t n_outliers;
    uint16_t places[TAP_ROW_OUTLIERS];
    float rests[TAP_ROW_OUTLIERS];
} tap_byte_row;

typedef struct tap_bytes_kernels {
    /* x [k] to bytes 0..levels of their own, one scale a row; k_padded bytes are written, the last
     * ones 0. Values more than 4.5 standard deviations from the mean do not widen the scale, as far
     * as there is room for them. levels: 255, or 170 where sums of two products must fit 16 bits.
     */
    void (*quantize)(tap_byte_row *row, uint8_t *bytes, const float *x, size_t k, size_t k_padded);
    /* c [m][32] = rows of bytes, row_bytes from each other, times a panel of -127..127. m is padded
     * to a multiple of 32, and so are the rows. */
    void (*dot)(int32_t *restrict c, const uint8_t *restrict rows, size_t row_bytes,
                const int8_t *restrict panel, size_t m, size_t k);
    /* y [32] = scale (row's step * c + row's least * sums) of one row; sums: of a column's weights.
     */
    void (*scale)(float *restrict y, const int32_t *restrict c, const tap_byte_row *row,
                  const float *restrict scales, const float *restrict sums);
} tap_bytes_kernels;

typedef struct tap_kernels tap_kernels;
struct tap_kernels {
    const char *isa;
    const tap_kernels
        *base; /* whose kernels stand in for those that are NULL; NULL: the portable */
    tap_gemm_fn gemm;
    tap_winograd_input_fn winograd_input;
    tap_winograd_output_fn winograd_output, winograd_output_pool;
    tap_direct_fn direct;
    tap_bias_fn bias;
    tap_softmax_fn softmax;
    tap_l2_norm_fn l2_norm;
    tap_finish_fn finish;
    tap_layer_norm_fn layer_norm;
    tap_widen_fn widen;
    tap_strassen_weights_fn strassen_weights;
    tap_strassen_combine_fn strassen_combine;
    const tap_bytes_kernels *bytes;
};

extern const tap_kernels tap_kernels_scalar;
#if defined(__x86_64__)
extern const tap_kernels tap_kernels_avx2, tap_kernels_avx512, tap_kernels_vnni;
#if defined(TAPETUM_AMX) /* a compiler that knows it */
extern const tap_kernels tap_kernels_amx;
bool tap_amx_usable(void); /* asks the system for it, too */
#endif
#elif defined(__aarch64__)
extern const tap_kernels tap_kernels_neon;
#endif

/* The tables of this build, best first; i past the last gives NULL. */
const tap_kernels *tap_kernels_at(size_t i);
bool tap_kernels_runnable(const tap_kernels *kernels);
/* table with its gaps filled from the portable one. */
tap_kernels tap_kernels_complete(const tap_kernels *table);
/* A line an entry: its name and whose kernel it is. */
void tap_kernels_print(const tap_kernels *table, char *text, size_t size);

#endif
