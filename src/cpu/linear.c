/* Linear layers: rows times packed panels, then bias, GELU and residual while a panel's sums are in
 * the cache. And patch embedding, which is one over the patches' pixels. */
#include "program.h"

#include <string.h>

enum {
    NORMS_PER_ITEM = 16,
    LEAST_PAIRED = 16, /* rows: with fewer half of the work is with zeros */
    MAX_GROUP = 5,     /* panels of an item, for products whose rows come in blocks */
    PANEL_FLOATS = TAP_PRODUCT_COLUMNS
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* One linear layer of m rows, from wherever they lie. */
struct work {
    const tap_step_run *run;
    const tap_product *product;
    const float *x;
    size_t x_row, m, m_padded;
    void *form;
    size_t bias_rows; /* 1, or a row for each token */
    bool paired;
};

static size_t n_groups(const tap_step *step)
{
    size_t panels = step->weights->out_padded / TAP_PRODUCT_COLUMNS;
    return (panels + step->group - 1) / step->group;
}

/* Scratch for m rows; shared: beside what else the step shares. */
static bool plan_rows(tap_step *step, size_t m, size_t n_threads)
{
    const tap_packed *weights = step->weights;
    const tap_product *product = weights->product;
    size_t panels = weights->out_padded / TAP_PRODUCT_COLUMNS, sums, form, n;
    size_t m_padded = tap_product_pad(m, TAP_PRODUCT_ROWS);
    step->group = 1;
    if (product->k_block > 0 && weights->in_padded > product->k_block)
        step->group = smaller(MAX_GROUP, (panels + n_threads - 1) / n_threads);
    if (!tap_size_mul(m_padded, step->group * PANEL_FLOATS * sizeof(float), &sums) ||
        !tap_size_mul(m_padded, product->row_bytes(weights->in_padded), &form) ||
        !tap_size_add(step->shared_bytes, form, &step->shared_bytes))
        return false;
    return tap_size_align(product->scratch_bytes(weights->in_padded), TAP_ALIGN, &n) &&
           tap_size_add(sums, n, &step->worker_bytes);
}

static void form_item(void *context, size_t item, size_t worker)
{
    const struct work *work = context;
    size_t first = item * TAP_PRODUCT_ROWS;
    (void)worker;
    work->product->rows(work->run->kernels, work->form, work->x + first * work->x_row, work->x_row,
                        first, smaller(TAP_PRODUCT_ROWS, work->m - first), work->m,
                        work->run->step->weights->in);
}

static void finish_panel(const struct work *work, const float *sums, size_t panel)
{
    const tap_step *step = work->run->step;
    size_t first = panel * TAP_PRODUCT_COLUMNS, n = step->out.channels;
    size_t columns = smaller(TAP_PRODUCT_COLUMNS, n - first), rows = work->m;
    bool table = work->bias_rows > 1;
    if (table) /* picture by picture */
        rows = step->out.width;
    for (size_t row = 0; row < work->m; row += rows) {
        tap_finish finish = {.y = work->run->y + row * n + first,
                             .c = sums + row * PANEL_FLOATS,
                             .bias = step->weights->bias + first,
                             .y_row = n,
                             .c_row = PANEL_FLOATS,
                             .bias_row = table ? step->weights->out_padded : 0,
                             .add_row = n,
                             .m = rows,
                             .n = columns,
                             .gelu = step->gelu};
        if (work->run->second != NULL)
            finish.add = work->run->second + row * n + first;
        work->run->kernels->finish(&finish);
    }
}

/* Some panels: a block of inputs at a time, for which the rows' form stays in the second cache
 * level from panel to panel. */
static void group_item(void *context, size_t item, size_t worker)
{
    const struct work *work = context;
    const tap_step *step = work->run->step;
    const tap_packed *weights = step->weights;
    const tap_product *product = work->product;
    size_t first_panel = item * step->group;
    size_t panels = smaller(step->group, weights->out_padded / TAP_PRODUCT_COLUMNS - first_panel);
    size_t k = weights->in_padded, block = product->k_block > 0 ? product->k_block : k;
    float *sums = tap_step_worker(work->run, worker);
    size_t panel_sums = work->m_padded * PANEL_FLOATS;
    tap_multiply multiply = {.kernels = work->run->kernels,
                             .x = work->x,
                             .x_row = work->x_row,
                             .form = work->form,
                             .m = work->m,
                             .k = k,
                             .inputs = weights->in,
                             .paired = work->paired,
                             .scratch = sums + step->group * panel_sums};
    for (multiply.first = 0; multiply.first < k; multiply.first += multiply.n) {
        multiply.n = smaller(block, k - multiply.first);
        for (size_t i = 0; i < panels; i++) {
            multiply.c = sums + i * panel_sums;
            multiply.panel =
                (const uint8_t *)weights->weights + (first_panel + i) * weights->panel_bytes;
            product->multiply(&multiply);
        }
    }
    for (size_t i = 0; i < panels; i++)
        finish_panel(work, sums + i * panel_sums, first_panel + i);
}

/* Rows of one sequence may be paired, for what a picture's tokens become depends on all of them
 * anyway; those of different pictures may not: they would change with the batch. sequence: rows of
 * one. */
static void run_rows(struct work *work, size_t sequence, tap_pool *pool)
{
    const tap_step *step = work->run->step;
    work->product = step->weights->product;
    work->m_padded = tap_product_pad(work->m, TAP_PRODUCT_ROWS);
    work->paired = work->product->pairs && (sequence % TAP_PRODUCT_ROWS == 0 ||
                                            (work->m == sequence && sequence >= LEAST_PAIRED));
    if (work->product->rows != NULL && (work->paired || !work->product->pairs))
        tap_pool_run(pool, work->m_padded / TAP_PRODUCT_ROWS, form_item, work);
    tap_pool_run(pool, n_groups(step), group_item, work);
}

bool tap_linear_plan(tap_step *step, size_t n_threads)
{
    return plan_rows(step, step->in.height * step->in.width, n_threads);
}

void tap_linear_run(const tap_step_run *run, tap_pool *pool)
{
    struct work work = {.run = run,
                        .x = run->x,
                        .x_row = run->step->in.channels,
                        .m = run->step->in.height * run->step->in.width,
                        .form = run->shared,
                        .bias_rows = 1};
    run_rows(&work, run->step->in.width, pool);
}

/* ---- patches -------------------------------------------------------------------------------- */

/* The patches' pixels lie in front of the rows' form. */
static bool size_patches(const tap_step *step, size_t *bytes)
{
    return tap_size_mul(step->out.height * step->out.width, step->weights->in * sizeof(float),
                        bytes) &&
           tap_size_align(*bytes, TAP_ALIGN, bytes);
}

bool tap_patch_embed_plan(tap_step *step, size_t n_threads)
{
    return size_patches(step, &step->shared_bytes) &&
           plan_rows(step, step->out.height * step->out.width, n_threads);
}

/* One token's pixels, [channel][y][x] as the weights have them; outside the picture is 0. */
static void patch_item(void *context, size_t token, size_t worker)
{
    const tap_step_run *run = context;
    const tap_step *step = run->step;
    size_t kernel = step->kernel, height = step->picture_height, width = step->in.width;
    size_t across = (width + 2 * step->padding - kernel) / step->stride + 1;
    size_t picture = token / step->out.width, place = token % step->out.width;
    const float *pixels = run->x + picture * height * width * step->in.channels;
    float *to = run->shared + token * step->weights->in;
    (void)worker;
    for (size_t c = 0; c < step->in.channels; c++)
        for (size_t i = 0; i < kernel; i++)
            for (size_t j = 0; j < kernel; j++) {
                /* In front of the first they wrap. */
                size_t y = place / across * step->stride + i - step->padding;
                size_t x = place % across * step->stride + j - step->padding;
                *to++ =
                    y < height && x < width ? pixels[(y * width + x) * step->in.channels + c] : 0;
            }
}

void tap_patch_embed_run(const tap_step_run *run, tap_pool *pool)
{
    const tap_step *step = run->step;
    tap_step_run copy = *run;
    size_t bytes = 0;
    size_patches(step, &bytes); /* it did when it was planned */
    struct work work = {.run = run,
                        .x = run->shared,
                        .x_row = step->weights->in,
                        .m = step->out.height * step->out.width,
                        .form = (uint8_t *)run->shared + bytes,
                        .bias_rows = step->out.width};
    tap_pool_run(pool, work.m, patch_item, &copy);
    run_rows(&work, step->out.width, pool);
}

/* ---- rows ----------------------------------------------------------------------------------- */

static void norm_item(void *context, size_t item, size_t worker)
{
    const tap_step_run *run = context;
    const tap_step *step = run->step;
    size_t n = step->in.channels, m = step->in.height * step->in.width;
    (void)worker;
    for (size_t row = item * NORMS_PER_ITEM; row < m && row < (item + 1) * NORMS_PER_ITEM; row++)
        run->kernels->layer_norm(run->y + row * n, run->x + row * n, step->weights->weights,
                                 step->weights->bias, step->epsilon, n);
}

void tap_layer_norm_run(const tap_step_run *run, tap_pool *pool)
{
    tap_step_run copy = *run;
    size_t m = run->step->in.height * run->step->in.width;
    tap_pool_run(pool, (m + NORMS_PER_ITEM - 1) / NORMS_PER_ITEM, norm_item, &copy);
}

void tap_constant_run(const tap_step_run *run)
{
    size_t n = run->step->out.channels, m = run->step->out.height * run->step->out.width;
    for (size_t row = 0; row < m; row++)
        memcpy(run->y + row * n, run->step->weights->bias, n * sizeof(float));
}
