/* The kernels of one instruction set, as a table. Every table is the same source, kernels.inc,
 * compiled with that set's vectors (kernels_<isa>.c), so they differ in width, not in meaning.
 *
 * Layout. An activation is [rows][columns][channels], channels padded to a multiple of
 * TAP_PANEL with zeros; `step` is the distance between rows in floats. A weight matrix is packed
 * into panels of TAP_PANEL columns: [panel][k][TAP_PANEL]. */
#ifndef TAP_CPU_KERNELS_H
#define TAP_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

enum {
    TAP_PANEL = 16,
    TAP_TILE_IN = 6, /* Winograd F(4x4, 3x3): 6x6 in, 4x4 out */
    TAP_TILE_OUT = 4,
    TAP_PLANES = TAP_TILE_IN * TAP_TILE_IN
};

typedef struct tap_kernels {
    const char *name;

    /* c[rows][TAP_PANEL] = a[rows][k] * panel[k][TAP_PANEL]; rows of c lie ldc, of a lda floats
     * apart. Each element is one chain of fused multiply-adds in order of k, whatever the number
     * of rows: error <= k/2 ulp of sum |a b| (Higham 2002, 3.1). */
    void (*gemm)(float *c, size_t ldc, const float *a, size_t lda, const float *panel, size_t rows,
                 size_t k);

    /* y = max(y + bias, 0 if relu), over `rows` rows of n values, n a multiple of TAP_PANEL. */
    void (*bias_relu)(float *y, size_t step, const float *bias, size_t rows, size_t n, bool relu);

    /* Row y of the direct 3x3 convolution of one channel: out[columns][channels], weights
     * [9][channels]; x0, x1, x2 are the input's rows above, at and below, from one column to the
     * left of the first output. */
    void (*conv_one)(float *out, const float *x0, const float *x1, const float *x2,
                     const float *weights, const float *bias, size_t columns, size_t channels,
                     bool relu);

    /* v[plane][channels] of one 6x6 tile at x: B^T d B (Lavin and Gray 2016, arXiv:1509.09308). */
    void (*winograd_in)(float *v, size_t plane, const float *x, size_t step, size_t channels);

    /* y of one tile from m[plane][channels]: A^T m A + bias, then ReLU, then 2x2 maximum if asked.
     * rows, columns: how much of the 4x4 tile lies in the picture. y's pixels are pixel floats
     * apart. */
    void (*winograd_out)(float *y, size_t step, size_t pixel, const float *m, size_t plane,
                         const float *bias, size_t channels, size_t rows, size_t columns, bool relu,
                         bool pool);

    /* One cell: softmax over logits[cell * cell + 1], the last dropped, unfolded into
     * out[cell][cell], rows step floats apart. exp's error <= 2 ulp. logits is overwritten. */
    void (*cell_softmax)(float *out, size_t step, float *logits, size_t cell);

    /* y[n] = x[n] / max(|x|, 1e-12), n a multiple of TAP_PANEL; y and x may be the same. Writes
     * n_out values. */
    void (*l2_norm)(float *y, const float *x, size_t n, size_t n_out);
} tap_kernels;

extern const tap_kernels tap_kernels_scalar;
#if defined(__x86_64__)
extern const tap_kernels tap_kernels_avx2;
extern const tap_kernels tap_kernels_avx512;
#endif
#if defined(__aarch64__)
extern const tap_kernels tap_kernels_neon;
#endif

#endif
