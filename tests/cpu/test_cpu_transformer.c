/* What transformers need: kernels of rows, the products of linear layers in every precision, and
 * the operations against the reference executor, on sizes that no block divides. */
#include "probe.h"

#include "cpu/product.h"

/* ---- kernels of rows ------------------------------------------------------------------------ */

static void check_finish(const tap_kernels *kernels, size_t m, size_t n, bool gelu, bool add,
                         bool table)
{
    size_t c_row = n + 2, y_row = n + 3, add_row = n + 1, bias_row = table ? n : 0;
    float *c = probe_values(m * c_row, 1), *bias = probe_values(m * n, 2),
          *y = probe_guarded(m * y_row);
    float *other = probe_values(m * add_row, 3);
    for (size_t i = 0; i < m * c_row; i++)
        c[i] *= 6;
    const tap_finish finish = {.y = y,
                               .c = c,
                               .bias = bias,
                               .add = add ? other : NULL,
                               .y_row = y_row,
                               .c_row = c_row,
                               .bias_row = bias_row,
                               .add_row = add_row,
                               .m = m,
                               .n = n,
                               .gelu = gelu};
    kernels->finish(&finish);
    double most = 0;
    for (size_t i = 0; i < m * n; i++) {
        size_t row = i / n, column = i % n;
        double wanted = (double)c[row * c_row + column] + (double)bias[row * bias_row + column];
        if (gelu)
            wanted = wanted / 2 * (1 + erf(wanted * sqrt(0.5)));
        if (add)
            wanted += (double)other[row * add_row + column];
        float got = y[row * y_row + column];
        most = fmax(most, isnan(got) ? INFINITY : fabs(wanted - (double)got));
    }
    /* GELU's own 5e-7, and roundings of values up to 8. */
    CHECK(most <= (gelu ? 1.2e-6 : 6e-7), "%s finish %zux%zu: error %g", kernels->isa, m, n, most);
    CHECK(probe_guards_whole(y, m * y_row) && isnan(y[n]), "%s finish wrote outside", kernels->isa);
    free(c);
    free(bias);
    free(other);
    probe_guarded_free(y);
}

/* From -12 to 12 in steps of 2^-10. */
static void check_gelu(const tap_kernels *kernels)
{
    enum { N = 24 << 10 };
    static float x[N], y[N], zeros[N];
    double most = 0;
    for (size_t i = 0; i < N; i++)
        x[i] = (float)i / 1024 - 12;
    const tap_finish finish = {.y = y, .c = x, .bias = zeros, .m = 1, .n = N, .gelu = true};
    kernels->finish(&finish);
    for (size_t i = 0; i < N; i++) {
        double wanted = (double)x[i] / 2 * (1 + erf((double)x[i] * sqrt(0.5)));
        /* Beside the formula's error the rounding of the result itself. */
        most = fmax(most, fabs(wanted - (double)y[i]) - fabs(wanted) * 1.2e-7);
    }
    CHECK(most <= 5e-7, "%s gelu: error %g", kernels->isa, most);
}

static void check_layer_norm(const tap_kernels *kernels, size_t n, float scale, float shift)
{
    float *x = probe_values(n, 4), *weight = probe_values(n, 5), *bias = probe_values(n, 6);
    float *y = probe_guarded(n);
    double mean = 0, variance = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        x[i] = x[i] * scale + shift;
        mean += (double)x[i] / (double)n;
    }
    for (size_t i = 0; i < n; i++)
        variance += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
    kernels->layer_norm(y, x, weight, bias, 1e-6f, n);
    for (size_t i = 0; i < n; i++) {
        double wanted =
            ((double)x[i] - mean) / sqrt(variance + 1e-6) * (double)weight[i] + (double)bias[i];
        most = fmax(most, isnan(y[i]) ? INFINITY : fabs(wanted - (double)y[i]));
    }
    /* A shift costs its own digits. */
    double bound = 2e-6 + 4e-7 * fabs((double)shift) / fmax((double)scale, 1e-3);
    CHECK(most <= bound, "%s layer norm of %zu: error %g", kernels->isa, n, most);
    CHECK(probe_guards_whole(y, n), "%s layer norm wrote outside", kernels->isa);
    free(x);
    free(weight);
    free(bias);
    probe_guarded_free(y);
}

static void rows(const tap_kernels *kernels)
{
    for (size_t n = 1; n <= 67; n++) {
        check_finish(kernels, 1 + n % 3, n, n % 2 != 0, n % 3 != 0, n % 5 == 0);
        check_finish(kernels, 1 + n % 3, n, n % 2 == 0, n % 3 == 0, n % 5 != 0);
        check_layer_norm(kernels, n, 1, 0);
    }
    check_gelu(kernels);
    check_layer_norm(kernels, 1280, 1, 0);
    check_layer_norm(kernels, 1280, 1e3f, 0);
    check_layer_norm(kernels, 1280, 0.1f, 3);
}

/* ---- products ------------------------------------------------------------------------------- */

struct layer {
    const tap_product *product;
    size_t m, k, n, k_padded, m_padded, panel_bytes, n_panels;
    bool paired;
    float *x, *weight;
    uint8_t *panels, *form, *scratch;
    float *c; /* [panels][m padded][columns] */
};

static void run_layer(const tap_kernels *kernels, struct layer *layer)
{
    const tap_product *product = layer->product;
    if (product->rows != NULL) /* in two parts */
        for (size_t first = 0, n; first < layer->m; first += n) {
            n = layer->m - first < TAP_PRODUCT_ROWS ? layer->m - first : TAP_PRODUCT_ROWS;
            product->rows(kernels, layer->form, layer->x + first * layer->k, layer->k, first, n,
                          layer->m, layer->k);
        }
    size_t block = product->k_block > 0 ? product->k_block : layer->k_padded;
    for (size_t panel = 0; panel < layer->n_panels; panel++)
        for (size_t first = 0, n; first < layer->k_padded; first += n) {
            n = layer->k_padded - first < block ? layer->k_padded - first : block;
            const tap_multiply multiply = {.kernels = kernels,
                                           .c = layer->c +
                                                panel * layer->m_padded * TAP_PRODUCT_COLUMNS,
                                           .x = layer->x,
                                           .x_row = layer->k,
                                           .form = layer->form,
                                           .panel = layer->panels + panel * layer->panel_bytes,
                                           .m = layer->m,
                                           .k = layer->k_padded,
                                           .inputs = layer->k,
                                           .paired = layer->paired,
                                           .first = first,
                                           .n = n,
                                           .scratch = layer->scratch};
            product->multiply(&multiply);
        }
}

static struct layer make_layer(const tap_product *product, size_t m, size_t k, size_t n)
{
    struct layer layer = {.product = product,
                          .m = m,
                          .k = k,
                          .n = n,
                          .k_padded = tap_product_pad(k, product->k_step),
                          .m_padded = tap_product_pad(m, TAP_PRODUCT_ROWS),
                          .n_panels =
                              tap_product_pad(n, TAP_PRODUCT_COLUMNS) / TAP_PRODUCT_COLUMNS};
    layer.panel_bytes = tap_product_pad(product->panel_bytes(layer.k_padded), TAP_ALIGN);
    layer.x = probe_values(m * k, 7);
    layer.weight = probe_values(n * k, 8);
    layer.panels = tap_alloc(layer.n_panels, layer.panel_bytes);
    layer.form = tap_alloc(layer.m_padded, product->row_bytes(layer.k_padded));
    layer.scratch = tap_alloc(product->scratch_bytes(layer.k_padded), 1);
    layer.c = tap_alloc(layer.n_panels * layer.m_padded * TAP_PRODUCT_COLUMNS, sizeof(float));
    memset(layer.form, 0, layer.m_padded * product->row_bytes(layer.k_padded));
    for (size_t panel = 0; panel < layer.n_panels; panel++) {
        size_t first = panel * TAP_PRODUCT_COLUMNS, left = n - first;
        product->pack(layer.panels + panel * layer.panel_bytes, layer.weight + first * k,
                      left < TAP_PRODUCT_COLUMNS ? left : TAP_PRODUCT_COLUMNS, k);
    }
    return layer;
}

static void free_layer(struct layer *layer)
{
    free(layer->x);
    free(layer->weight);
    free(layer->panels);
    free(layer->form);
    free(layer->scratch);
    free(layer->c);
}

static float at(const struct layer *layer, size_t row, size_t column)
{
    size_t panel = column / TAP_PRODUCT_COLUMNS;
    return layer
        ->c[(panel * layer->m_padded + row) * TAP_PRODUCT_COLUMNS + column % TAP_PRODUCT_COLUMNS];
}

/* Root mean square of the error over that of the result. */
static double relative_error(const struct layer *layer)
{
    double errors = 0, squares = 0;
    for (size_t row = 0; row < layer->m; row++)
        for (size_t column = 0; column < layer->n; column++) {
            double sum = 0;
            for (size_t i = 0; i < layer->k; i++)
                sum += (double)layer->x[row * layer->k + i] *
                       (double)layer->weight[column * layer->k + i];
            double error = sum - (double)at(layer, row, column);
            errors += error * error;
            squares += sum * sum;
        }
    return sqrt(errors / squares);
}

static void check_product(const tap_kernels *kernels, const tap_product *product, size_t m,
                          size_t k, size_t n, double bound)
{
    struct layer layer = make_layer(product, m, k, n);
    run_layer(kernels, &layer);
    double error = relative_error(&layer);
    CHECK(error <= bound, "%s %s %zux%zux%zu: relative error %g", kernels->isa, product->name, m, k,
          n, error);
    /* A row alone has the same bits. */
    struct layer alone = make_layer(product, 1, k, n);
    for (size_t row = 0; row < m; row += 1 + m / 3) {
        memcpy(alone.x, layer.x + row * k, k * sizeof(float));
        run_layer(kernels, &alone);
        for (size_t column = 0; column < n; column++)
            CHECK(at(&alone, 0, column) == at(&layer, row, column),
                  "%s %s %zux%zux%zu: row %zu alone differs", kernels->isa, product->name, m, k, n,
                  row);
    }
    free_layer(&layer);
    free_layer(&alone);
}

/* Rows that may enter each other's sums: as near as rows alone, and the same bits whatever lies
 * beside their own 32. */
static void check_pairs(const tap_kernels *kernels, const tap_product *product, size_t m, size_t k,
                        size_t n, double bound)
{
    struct layer layer = make_layer(product, m, k, n);
    layer.paired = true;
    run_layer(kernels, &layer);
    double error = relative_error(&layer);
    CHECK(error <= bound, "%s %s %zux%zux%zu: relative error %g in pairs", kernels->isa,
          product->name, m, k, n, error);
    if (m >= 2 * TAP_PRODUCT_ROWS) {
        struct layer alone = make_layer(product, TAP_PRODUCT_ROWS, k, n);
        alone.paired = true;
        memcpy(alone.x, layer.x + TAP_PRODUCT_ROWS * k, TAP_PRODUCT_ROWS * k * sizeof(float));
        run_layer(kernels, &alone);
        for (size_t i = 0; i < TAP_PRODUCT_ROWS * n; i++)
            CHECK(at(&alone, i / n, i % n) == at(&layer, TAP_PRODUCT_ROWS + i / n, i % n),
                  "%s %s %zux%zux%zu: row %zu differs without the first 32", kernels->isa,
                  product->name, m, k, n, i / n);
        free_layer(&alone);
    }
    free_layer(&layer);
}

static void products(const tap_kernels *kernels)
{
    static const size_t sizes[][3] = {{1, 1, 1},      {1, 64, 32},   {2, 3, 33},    {5, 65, 31},
                                      {17, 48, 109},  {32, 96, 64},  {33, 127, 65}, {192, 64, 40},
                                      {12, 1280, 40}, {40, 2600, 33}};
    static const struct {
        const char *precision;
        double bound; /* the sum of so many roundings, of 2^-24; of 2^-12; of 8 bits */
    } precisions[] = {{"f32", 2e-6}, {"f16", 5e-4}, {"int8", 2e-2}};
    for (size_t p = 0; p < sizeof precisions / sizeof *precisions; p++) {
        const tap_product *product = tap_product_find(kernels, precisions[p].precision);
        if (product == NULL)
            continue;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            check_product(kernels, product, sizes[i][0], sizes[i][1], sizes[i][2],
                          precisions[p].bound);
            if (product->pairs)
                check_pairs(kernels, product, sizes[i][0], sizes[i][1], sizes[i][2],
                            precisions[p].bound);
        }
    }
}

/* ---- operations ----------------------------------------------------------------------------- */

/* Two pictures of patches, a block of every operation, and a second sequence that reads the first:
 * what HaMeR's plan is made of, at odd sizes. */
static tap_plan *make_plan(float *values, size_t pictures)
{
    enum { PIXELS = 23, HEIGHT = 29, KERNEL = 8, STRIDE = 7, PADDING = 1, DIM = 36, HEADS = 3 };
    enum { ROWS = (HEIGHT + 2 * PADDING - KERNEL) / STRIDE + 1 };
    enum { COLUMNS = (PIXELS + 2 * PADDING - KERNEL) / STRIDE + 1, INNER = 18, OUT = 41 };
    tap_plan *plan;
    if (tap_plan_create(&plan, NULL) != TAP_OK)
        abort();
    tap_patch_embed embed = {values, values + 9000, values + 9100, DIM,
                             KERNEL, STRIDE,        PADDING,       HEIGHT};
    tap_buffer x = tap_plan_input(plan, (tap_shape){pictures * HEIGHT, PIXELS, 3});
    x = tap_plan_patch_embed(plan, x, "embed", &embed);
    tap_buffer y = tap_plan_layer_norm(plan, x, "norm", values + 50, values + 100, 1e-6f);
    tap_linear qkv = {values + 11, values + 5, 3 * DIM, false, false, -1};
    y = tap_plan_linear(plan, y, "qkv", &qkv);
    y = tap_plan_attention(plan, y, -1, 0, "attention", HEADS);
    tap_linear project = {values + 77, values + 6, DIM, false, false, x};
    x = tap_plan_linear(plan, y, "project", &project);
    tap_linear up = {values + 99, values + 7, OUT, true, false, -1};
    y = tap_plan_linear(plan, x, "up", &up);
    tap_linear kv = {values + 111, NULL, 3 + 2 * INNER, false, false, -1};
    y = tap_plan_linear(plan, y, "kv", &kv);
    tap_buffer query = tap_plan_constant(plan, "query", values + 300, pictures, INNER);
    y = tap_plan_attention(plan, query, y, 3, "cross", 2);
    tap_linear out = {values + 222, values + 8, OUT, false, false, -1};
    tap_plan_output(plan, tap_plan_linear(plan, y, "out", &out));
    tap_plan_output(plan, x);
    return plan;
}

static void check_operations(const char *isa, const float *values, size_t pictures)
{
    float *first[2] = {NULL, NULL};
    tap_error err;
    for (size_t n_threads = 1; n_threads <= 3; n_threads++) {
        tap_pool *pool;
        tap_program *program;
        tap_program_info info;
        if (tap_pool_create(&pool, n_threads, NULL) != TAP_OK)
            abort();
        tap_backend_state *state = probe_open(isa, pool);
        if (state == NULL) {
            tap_pool_free(pool);
            return;
        }
        tap_plan *plan = make_plan((float *)(uintptr_t)values, pictures);
        CHECK(tap_cpu_backend.compile(state, plan, NULL, &program, &err) == TAP_OK, "%s",
              err.message);
        tap_cpu_backend.inspect(program, &info);
        void *scratch = tap_alloc(info.scratch_bytes, 1);
        float *ours[2], *reference[2];
        const float *inputs[] = {values + 1000};
        for (size_t i = 0; i < 2; i++) {
            ours[i] = tap_alloc(tap_plan_elements(plan, plan->outputs[i]), sizeof(float));
            reference[i] = tap_alloc(tap_plan_elements(plan, plan->outputs[i]), sizeof(float));
        }
        CHECK(tap_cpu_backend.run(program, scratch, inputs, ours, NULL, &err) == TAP_OK, "%s",
              err.message);
        CHECK(tap_reference_run(plan, inputs, reference, &err) == TAP_OK, "%s", err.message);
        for (size_t i = 0; i < 2; i++) {
            size_t n = tap_plan_elements(plan, plan->outputs[i]);
            double distance = probe_distance(ours[i], reference[i], n);
            /* Six sums of some tens of products, one after the other. */
            double largest = 0;
            for (size_t j = 0; j < n; j++)
                largest = fmax(largest, fabs((double)reference[i][j]));
            CHECK(distance <= 2e-6 * largest, "%s, %zu threads, output %zu: %g from the reference",
                  isa, n_threads, i, distance);
            if (n_threads == 1)
                first[i] = ours[i];
            else {
                CHECK(memcmp(first[i], ours[i], n * sizeof(float)) == 0,
                      "%s: %zu threads give other bits", isa, n_threads);
                free(ours[i]);
            }
            free(reference[i]);
        }
        free(scratch);
        tap_cpu_backend.free_program(program);
        tap_plan_free(plan);
        tap_cpu_backend.close(state);
        tap_pool_free(pool);
    }
    free(first[0]);
    free(first[1]);
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
        rows(&kernels);
        products(&kernels);
        printf("%s: done\n", kernels.isa);
    }
    float *values = probe_values(12000, 9);
    for (size_t i = 0; i < 12000; i++)
        values[i] *= 0.3f; /* so that attention does not settle on one key */
    for (size_t i = 0; probe_isas[i] != NULL; i++)
        for (size_t pictures = 1; pictures <= 2; pictures++)
            check_operations(probe_isas[i], values, pictures);
    free(values);
    return probe_failures != 0;
}
