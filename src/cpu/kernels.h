/* The kernel table: what an instruction set has to offer, one table in each kernels_<isa>.c.
 *
 * A NULL entry is taken from the portable table, which has them all. Strides are in floats; memory
 * needs no alignment unless it is said. Nothing reads or writes outside what its comment names.
 * Every kernel gives the same bits for a row, a tile or a position whatever its neighbours, so work
 * may be split over those at will. */
#ifndef TAP_CPU_KERNELS_H
#define TAP_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

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

/* y[i] = exp(x[i] - max x) / sum over n values, any n > 0. exp by a polynomial of degree 6 after
 * the reduction to |r| <= ln 2 / 2: relative error below 2e-7 for x in [-87, 0], and values under
 * -87 give at most 2e-38. */
typedef void (*tap_softmax_fn)(float *restrict y, const float *restrict x, size_t n);

/* y = x / max(|x|, 1e-12) over n values, any n > 0. */
typedef void (*tap_l2_norm_fn)(float *restrict y, const float *restrict x, size_t n);

typedef struct tap_kernels {
    const char *isa;
    tap_gemm_fn gemm;
    tap_winograd_input_fn winograd_input;
    tap_winograd_output_fn winograd_output, winograd_output_pool;
    tap_direct_fn direct;
    tap_bias_fn bias;
    tap_softmax_fn softmax;
    tap_l2_norm_fn l2_norm;
} tap_kernels;

extern const tap_kernels tap_kernels_scalar;
#if defined(__x86_64__)
extern const tap_kernels tap_kernels_avx2, tap_kernels_avx512;
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
