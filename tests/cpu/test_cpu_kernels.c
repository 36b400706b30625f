/* Every kernel of every table that this CPU can run, by itself, against plain loops in double:
 * sizes from 1 to twice its block and more, with NaN behind every buffer. */
#include "probe.h"

#include "cpu/kernels.h"

enum { MAX_BLOCK = 12 }; /* rows of the largest block of a product, AVX-512's */

/* The values in a guarded block. */
static float *guarded_values(size_t n, uint64_t seed)
{
    float *values = probe_values(n, seed), *block = probe_guarded(n);
    memcpy(block, values, n * sizeof *values);
    free(values);
    return block;
}

static void check_gemm(const tap_kernels *kernels, size_t m, size_t k, size_t n)
{
    size_t a_row = k + 3, c_row = n + 5; /* what lies between rows must stay */
    float *a = guarded_values(m * a_row, 1), *b = guarded_values(k * n, 2);
    float *c = probe_guarded(m * c_row);
    double most = 0;
    kernels->gemm(c, c_row, a, a_row, b, m, k, n);
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < c_row; j++) {
            double sum = 0;
            if (j >= n) {
                bool last = i + 1 == m && j >= c_row;
                CHECK(last || isnan(c[i * c_row + j]), "%s gemm %zux%zux%zu wrote past row %zu",
                      kernels->isa, m, k, n, i);
                continue;
            }
            for (size_t l = 0; l < k; l++)
                sum += (double)a[i * a_row + l] *
                       (double)b[(j / TAP_PANEL * k + l) * TAP_PANEL + j % TAP_PANEL];
            most = fmax(most, fabs(sum - (double)c[i * c_row + j]));
        }
    /* k products below 1, each rounded twice at 2^-24 of a partial sum of about sqrt(k) / 3. */
    double bound = 6e-8 * (1 + sqrt((double)k)) * (1 + sqrt((double)k));
    CHECK(most <= bound, "%s gemm %zux%zux%zu: error %g, bound %g", kernels->isa, m, k, n, most,
          bound);
    CHECK(probe_guards_whole(c, m * c_row), "%s gemm %zux%zux%zu wrote outside c", kernels->isa, m,
          k, n);
    /* A row's bits don't depend on how many come with it. */
    float *alone = probe_guarded(n);
    for (size_t i = 0; i < m; i++) {
        kernels->gemm(alone, n, a + i * a_row, a_row, b, 1, k, n);
        CHECK(memcmp(alone, c + i * c_row, n * sizeof *alone) == 0,
              "%s gemm %zux%zux%zu: row %zu alone differs", kernels->isa, m, k, n, i);
    }
    probe_guarded_free(a);
    probe_guarded_free(b);
    probe_guarded_free(c);
    probe_guarded_free(alone);
}

static void products(const tap_kernels *kernels)
{
    for (size_t m = 1; m <= 2 * MAX_BLOCK + 1; m++)
        for (size_t k = 1; k <= 9; k++)
            for (size_t n = TAP_PANEL; n <= 3 * TAP_PANEL; n += TAP_PANEL)
                check_gemm(kernels, m, k, n);
    check_gemm(kernels, 30, 64, 64);
    check_gemm(kernels, 31, 128, 64);
    check_gemm(kernels, 48, 256, 256);
    check_gemm(kernels, 48, 257, 80);
}

/* Convolves n_tiles tiles by the Winograd kernels, with identity channels: weights g on the channel
 * itself, so that no product kernel is needed: m = U v with U = G g G^T. */
static void check_winograd(const tap_kernels *kernels, size_t channels, size_t n_tiles, bool pool,
                           bool relu)
{
    static const double g_matrix[6][3] = {{1.0 / 4, 0, 0},
                                          {-1.0 / 6, -1.0 / 6, -1.0 / 6},
                                          {-1.0 / 6, 1.0 / 6, -1.0 / 6},
                                          {1.0 / 24, 1.0 / 12, 1.0 / 6},
                                          {1.0 / 24, -1.0 / 12, 1.0 / 6},
                                          {0, 0, 1}};
    size_t columns = n_tiles * TAP_TILE + 2, plane = n_tiles * channels + 16;
    size_t side = pool ? 2 : 4, y_pixel = channels + 3, y_row = n_tiles * side * y_pixel + 7;
    size_t n_v = TAP_TILE_PLANES * plane, n_y = side * y_row;
    float *x = guarded_values(6 * columns * channels, 3), *v = probe_guarded(n_v);
    float *y = probe_guarded(n_y), *bias = guarded_values(channels, 4), *g = probe_values(9, 5);
    kernels->winograd_input(v, plane, x, columns * channels, channels, channels, n_tiles);
    CHECK(probe_guards_whole(v, n_v), "%s winograd input wrote outside", kernels->isa);
    for (size_t p = 0; p < TAP_TILE_PLANES; p++) {
        double u = 0;
        for (size_t i = 0; i < 9; i++)
            u += g_matrix[p / 6][i / 3] * (double)g[i] * g_matrix[p % 6][i % 3];
        for (size_t i = 0; i < n_tiles * channels; i++)
            v[p * plane + i] *= (float)u;
        CHECK(isnan(v[p * plane + n_tiles * channels]), "%s winograd input wrote between planes",
              kernels->isa);
    }
    (pool ? kernels->winograd_output_pool
          : kernels->winograd_output)(y, y_row, y_pixel, v, plane, bias, channels, n_tiles, relu);
    CHECK(probe_guards_whole(y, n_y), "%s winograd output wrote outside", kernels->isa);
    double most = 0;
    for (size_t row = 0; row < side; row++)
        for (size_t column = 0; column < n_tiles * side; column++)
            for (size_t c = 0; c < channels; c++) {
                size_t step = pool ? 2 : 1;
                double best = -INFINITY;
                for (size_t q = 0; q < step * step; q++) {
                    double sum = (double)bias[c];
                    for (size_t i = 0; i < 9; i++) {
                        size_t from = row * step + q / step + i / 3;
                        size_t at = column * step + q % step + i % 3;
                        sum += (double)g[i] * (double)x[(from * columns + at) * channels + c];
                    }
                    best = fmax(best, relu ? fmax(sum, 0) : sum);
                }
                float got = y[row * y_row + column * y_pixel + c];
                most = fmax(most, isnan(got) ? INFINITY : fabs(best - (double)got));
            }
    /* Nine products below 1; the transforms enlarge 2^-24 by up to their row sums, about 100. */
    CHECK(most <= 6e-6, "%s winograd %zu channels, %zu tiles%s: error %g", kernels->isa, channels,
          n_tiles, pool ? ", pool" : "", most);
    probe_guarded_free(x);
    probe_guarded_free(v);
    probe_guarded_free(y);
    probe_guarded_free(bias);
    free(g);
}

static void transforms(const tap_kernels *kernels)
{
    for (size_t channels = TAP_PANEL; channels <= 4 * TAP_PANEL; channels += TAP_PANEL)
        for (size_t n_tiles = 1; n_tiles <= 12; n_tiles++) {
            check_winograd(kernels, channels, n_tiles, false, n_tiles % 2 != 0);
            check_winograd(kernels, channels, n_tiles, true, n_tiles % 2 != 0);
        }
}

static void check_direct(const tap_kernels *kernels, size_t rows, size_t columns, size_t n_in,
                         size_t channels)
{
    size_t x_row = (columns + 2) * n_in, n_weights = channels * 9 * n_in;
    float *x = guarded_values((rows + 2) * x_row, 6), *weights = guarded_values(n_weights, 7);
    float *bias = guarded_values(channels, 8), *y = probe_guarded(rows * columns * channels);
    tap_direct direct = {.y = y,
                         .x = x,
                         .weights = weights,
                         .bias = bias,
                         .y_row = columns * channels,
                         .y_pixel = channels,
                         .x_row = x_row,
                         .rows = rows,
                         .columns = columns,
                         .n_in = n_in,
                         .channels = channels,
                         .relu = columns % 2 != 0};
    double most = 0;
    kernels->direct(&direct);
    for (size_t i = 0; i < rows * columns * channels; i++) {
        size_t c = i % channels, column = i / channels % columns, row = i / channels / columns;
        double sum = (double)bias[c];
        for (size_t u = 0; u < 3; u++)
            for (size_t j = 0; j < n_in; j++)
                for (size_t w = 0; w < 3; w++) {
                    size_t line = ((c / TAP_PANEL * 3 + u) * n_in + j) * 3 + w;
                    sum += (double)weights[line * TAP_PANEL + c % TAP_PANEL] *
                           (double)x[(row + u) * x_row + (column + w) * n_in + j];
                }
        if (direct.relu)
            sum = fmax(sum, 0);
        most = fmax(most, isnan(y[i]) ? INFINITY : fabs(sum - (double)y[i]));
    }
    CHECK(most <= 3e-6, "%s direct %zux%zu %zu->%zu: error %g", kernels->isa, rows, columns, n_in,
          channels, most);
    CHECK(probe_guards_whole(y, rows * columns * channels), "%s direct wrote outside",
          kernels->isa);
    probe_guarded_free(x);
    probe_guarded_free(weights);
    probe_guarded_free(bias);
    probe_guarded_free(y);
}

static void first_layers(const tap_kernels *kernels)
{
    for (size_t columns = 1; columns <= 27; columns++)
        for (size_t n_in = 1; n_in <= 4; n_in++)
            check_direct(kernels, 1 + columns % 3, columns, n_in, TAP_PANEL * (1 + columns % 4));
}

/* exp(x - max) / sum over n values between low and high. */
static void check_softmax(const tap_kernels *kernels, size_t n, float low, float high)
{
    float *x = guarded_values(n, n), *y = probe_guarded(n);
    double top = -INFINITY, sum = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        x[i] = low + (high - low) * (x[i] + 1) / 2;
        top = fmax(top, (double)x[i]);
    }
    for (size_t i = 0; i < n; i++)
        sum += exp((double)x[i] - top);
    kernels->softmax(y, x, n);
    for (size_t i = 0; i < n; i++) {
        double wanted = exp((double)x[i] - top) / sum;
        /* Relative, down to where exp leaves float's range. */
        double error = fabs(wanted - (double)y[i]) / fmax(wanted, 1e-30);
        most = fmax(most, isnan(y[i]) ? INFINITY : error);
    }
    CHECK(most <= 6e-7, "%s softmax of %zu in [%g, %g]: relative error %g", kernels->isa, n,
          (double)low, (double)high, most);
    CHECK(probe_guards_whole(y, n), "%s softmax wrote outside", kernels->isa);
    probe_guarded_free(x);
    probe_guarded_free(y);
}

static void check_norm(const tap_kernels *kernels, size_t n, float scale)
{
    float *x = guarded_values(n, n), *y = probe_guarded(n);
    double sum = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        x[i] *= scale;
        sum += (double)x[i] * (double)x[i];
    }
    kernels->l2_norm(y, x, n);
    for (size_t i = 0; i < n; i++) {
        double error = fabs((double)x[i] / fmax(sqrt(sum), 1e-12) - (double)y[i]);
        most = fmax(most, isnan(y[i]) ? INFINITY : error);
    }
    CHECK(most <= 2e-7, "%s l2 norm of %zu times %g: error %g", kernels->isa, n, (double)scale,
          most);
    CHECK(probe_guards_whole(y, n), "%s l2 norm wrote outside", kernels->isa);
    probe_guarded_free(x);
    probe_guarded_free(y);
}

static void check_bias(const tap_kernels *kernels, size_t m, size_t n, bool relu)
{
    size_t c_row = n + 2, y_row = n + 1;
    float *c = guarded_values(m * c_row, 9), *bias = guarded_values(n, 10);
    float *y = probe_guarded(m * y_row);
    kernels->bias(y, y_row, c, c_row, bias, m, n, relu);
    for (size_t i = 0; i < m * n; i++) {
        float wanted = c[i / n * c_row + i % n] + bias[i % n];
        if (relu && wanted < 0)
            wanted = 0;
        CHECK(y[i / n * y_row + i % n] == wanted, "%s bias %zux%zu", kernels->isa, m, n);
    }
    CHECK(probe_guards_whole(y, m * y_row) && isnan(y[n]), "%s bias wrote outside", kernels->isa);
    probe_guarded_free(c);
    probe_guarded_free(bias);
    probe_guarded_free(y);
}

static void rows(const tap_kernels *kernels)
{
    static const float scales[] = {1, 1e-20f, 1e-13f, 1e-12f, 1e-6f, 1e6f, 1e20f, 1e37f};
    for (size_t n = 1; n <= 67; n++) {
        check_softmax(kernels, n, -1, 1);
        check_softmax(kernels, n, -90, 90);
        check_softmax(kernels, n, -1e30f, 1e30f);
        check_softmax(kernels, n, 88, 90);
        check_bias(kernels, 1 + n % 4, n, n % 2 != 0);
        for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
            check_norm(kernels, n, scales[i]);
    }
    check_norm(kernels, 256, 1);
    check_norm(kernels, 256, 0);
}

int main(void)
{
    const tap_kernels *table;
    for (size_t i = 0; (table = tap_kernels_at(i)) != NULL; i++) {
        if (!tap_kernels_runnable(table)) {
            printf("SKIP %s: not on this CPU\n", table->isa);
            continue;
        }
        tap_kernels kernels = tap_kernels_complete(table);
        products(&kernels);
        transforms(&kernels);
        first_layers(&kernels);
        rows(&kernels);
        printf("%s: done\n", kernels.isa);
    }
    return probe_failures != 0;
}
