/* The steps that are no Winograd convolutions: few-channel 3x3, 1x1, softmax, norm, similarity. */
#include "program.h"

#include <string.h>

enum {
    PANEL = TAP_PANEL,
    DIRECT_ROWS = 8, /* of an item's output */
    DIRECT_COLUMNS = 32,
    MATRIX_ROWS = 48, /* positions of an item: a multiple of every kernel's row block */
    NORM_POSITIONS = 256
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t blocks(size_t size, size_t block)
{
    return (size + block - 1) / block;
}

void tap_max_pool(float *y, size_t y_row, size_t y_pixel, const float *x, size_t x_row,
                  size_t x_pixel, size_t rows, size_t columns, size_t n)
{
    for (size_t row = 0; row < rows / 2; row++)
        for (size_t column = 0; column < columns / 2; column++) {
            const float *a = x + 2 * row * x_row + 2 * column * x_pixel, *b = a + x_row;
            float *to = y + row * y_row + column * y_pixel;
            for (size_t i = 0; i < n; i++) {
                float top = a[i] > a[i + x_pixel] ? a[i] : a[i + x_pixel];
                float bottom = b[i] > b[i + x_pixel] ? b[i] : b[i + x_pixel];
                to[i] = top > bottom ? top : bottom;
            }
        }
}

/* ---- 3x3, few channels --------------------------------------------------------------------- */

bool tap_direct_plan(tap_step *step)
{
    size_t picture = (size_t)(DIRECT_ROWS + 2) * (DIRECT_COLUMNS + 2) * step->weights->in;
    size_t block = (size_t)DIRECT_ROWS * DIRECT_COLUMNS * step->weights->out_padded;
    step->block_rows = DIRECT_ROWS;
    step->block_columns = DIRECT_COLUMNS;
    return tap_size_mul(picture + block, sizeof(float), &step->worker_bytes);
}

static void direct_item(void *context, size_t item, size_t worker)
{
    const tap_step_run *run = context;
    const tap_step *step = run->step;
    size_t across = blocks(step->in.width, DIRECT_COLUMNS), n_in = step->weights->in;
    size_t row = item / across * DIRECT_ROWS, column = item % across * DIRECT_COLUMNS;
    size_t rows = smaller(DIRECT_ROWS, step->in.height - row);
    size_t columns = smaller(DIRECT_COLUMNS, step->in.width - column);
    size_t padded = step->weights->out_padded, n = step->out.channels;
    float *block = tap_step_worker(run, worker);
    float *picture = block + DIRECT_ROWS * DIRECT_COLUMNS * padded, *to = picture;
    for (size_t i = 0; i < rows + 2; i++)
        for (size_t j = 0; j < columns + 2; j++, to += n_in) {
            size_t y = row + i - 1, x = column + j - 1; /* in front of the first they wrap */
            bool inside = y < step->in.height && x < step->in.width;
            for (size_t c = 0; c < n_in; c++)
                to[c] = inside ? run->x[(y * step->in.width + x) * n_in + c] : 0;
        }
    const tap_direct direct = {.y = block,
                               .x = picture,
                               .weights = step->weights->weights,
                               .bias = step->weights->bias,
                               .y_row = columns * padded,
                               .y_pixel = padded,
                               .x_row = (columns + 2) * n_in,
                               .rows = rows,
                               .columns = columns,
                               .n_in = n_in,
                               .channels = padded,
                               .relu = step->relu};
    run->kernels->direct(&direct);
    size_t y_row = step->out.width * n;
    if (step->pool)
        tap_max_pool(run->y + row / 2 * y_row + column / 2 * n, y_row, n, block, columns * padded,
                     padded, rows, columns, n);
    else
        for (size_t i = 0; i < rows * columns; i++)
            memcpy(run->y + (row + i / columns) * y_row + (column + i % columns) * n,
                   block + i * padded, n * sizeof(float));
}

void tap_direct_run(const tap_step_run *run, tap_pool *pool)
{
    tap_step_run copy = *run;
    tap_pool_run(pool,
                 blocks(run->step->in.height, DIRECT_ROWS) *
                     blocks(run->step->in.width, DIRECT_COLUMNS),
                 direct_item, &copy);
}

/* ---- 1x1 ----------------------------------------------------------------------------------- */

/* Without pooling the picture is one long row; with it, items are pieces of two rows. */
bool tap_matrix_plan(tap_step *step)
{
    return tap_size_mul((size_t)MATRIX_ROWS * step->weights->out_padded, sizeof(float),
                        &step->worker_bytes);
}

static void matrix_item(void *context, size_t item, size_t worker)
{
    const tap_step_run *run = context;
    const tap_step *step = run->step;
    const tap_packed *weights = step->weights;
    size_t first = item * MATRIX_ROWS, n = weights->out, n_in = weights->in;
    size_t rows = smaller(MATRIX_ROWS, step->in.height * step->in.width - first);
    float *c = tap_step_worker(run, worker);
    run->kernels->gemm(c, weights->out_padded, run->x + first * n_in, n_in, weights->weights, rows,
                       n_in, weights->out_padded);
    run->kernels->bias(run->y + first * n, n, c, weights->out_padded, weights->bias, rows, n,
                       step->relu);
}

static void matrix_pool_item(void *context, size_t item, size_t worker)
{
    const tap_step_run *run = context;
    const tap_step *step = run->step;
    const tap_packed *weights = step->weights;
    enum { COLUMNS = MATRIX_ROWS / 2 };
    size_t across = blocks(step->in.width, COLUMNS), n = weights->out, n_in = weights->in;
    size_t row = item / across * 2, column = item % across * COLUMNS;
    size_t columns = smaller(COLUMNS, step->in.width - column), padded = weights->out_padded;
    float *c = tap_step_worker(run, worker);
    for (size_t i = 0; i < 2; i++)
        run->kernels->gemm(c + i * columns * padded, padded,
                           run->x + ((row + i) * step->in.width + column) * n_in, n_in,
                           weights->weights, columns, n_in, padded);
    run->kernels->bias(c, padded, c, padded, weights->bias, 2 * columns, padded, step->relu);
    tap_max_pool(run->y + (row / 2 * step->out.width + column / 2) * n, step->out.width * n, n, c,
                 columns * padded, padded, 2, columns, n);
}

void tap_matrix_run(const tap_step_run *run, tap_pool *pool)
{
    tap_step_run copy = *run;
    const tap_step *step = run->step;
    if (step->pool)
        tap_pool_run(pool, step->in.height / 2 * blocks(step->in.width, MATRIX_ROWS / 2),
                     matrix_pool_item, &copy);
    else
        tap_pool_run(pool, blocks(step->in.height * step->in.width, MATRIX_ROWS), matrix_item,
                     &copy);
}

/* ---- softmax over cells -------------------------------------------------------------------- */

/* A row of cells. */
static void softmax_item(void *context, size_t item, size_t worker)
{
    const tap_step_run *run = context;
    const tap_step *step = run->step;
    size_t r = step->cell, n = step->in.channels, y_row = step->out.width;
    float *values = tap_step_worker(run, worker);
    for (size_t column = 0; column < step->in.width; column++) {
        const float *x = run->x + (item * step->in.width + column) * n;
        run->kernels->softmax(values, x, n);
        for (size_t i = 0; i < r; i++)
            memcpy(run->y + (item * r + i) * y_row + column * r, values + i * r,
                   r * sizeof *values);
    }
}

void tap_cell_softmax_run(const tap_step_run *run, tap_pool *pool)
{
    tap_step_run copy = *run;
    tap_pool_run(pool, run->step->in.height, softmax_item, &copy);
}

/* ---- norm ---------------------------------------------------------------------------------- */

static void norm_item(void *context, size_t item, size_t worker)
{
    const tap_step_run *run = context;
    size_t n = run->step->in.channels, n_positions = run->step->in.height * run->step->in.width;
    size_t end = smaller((item + 1) * NORM_POSITIONS, n_positions);
    (void)worker;
    for (size_t i = item * NORM_POSITIONS; i < end; i++)
        run->kernels->l2_norm(run->y + i * n, run->x + i * n, n);
}

void tap_l2_norm_run(const tap_step_run *run, tap_pool *pool)
{
    tap_step_run copy = *run;
    tap_pool_run(pool, blocks(run->step->in.height * run->step->in.width, NORM_POSITIONS),
                 norm_item, &copy);
}

/* ---- similarity ---------------------------------------------------------------------------- */

bool tap_similarity_plan(tap_step *step)
{
    size_t padded, n;
    step->worker_bytes = (size_t)MATRIX_ROWS * PANEL * sizeof(float);
    return tap_size_align(step->n_second, PANEL, &padded) &&
           tap_size_mul(padded, step->in.channels, &n) &&
           tap_size_mul(n, sizeof(float), &step->shared_bytes);
}

/* Sixteen rows of b become a panel. */
static void transpose_item(void *context, size_t item, size_t worker)
{
    const tap_step_run *run = context;
    size_t k = run->step->in.channels, first = item * PANEL;
    size_t n = smaller(PANEL, run->step->n_second - first);
    float *to = run->shared + item * k * PANEL;
    (void)worker;
    for (size_t i = 0; i < k; i++, to += PANEL)
        for (size_t column = 0; column < PANEL; column++)
            to[column] = column < n ? run->second[(first + column) * k + i] : 0;
}

static void similarity_item(void *context, size_t item, size_t worker)
{
    const tap_step_run *run = context;
    size_t k = run->step->in.channels, n = run->step->n_second, whole = n - n % PANEL;
    size_t first = item * MATRIX_ROWS, rows = smaller(MATRIX_ROWS, run->step->in.width - first);
    const float *x = run->x + first * k;
    float *y = run->y + first * n, *last = tap_step_worker(run, worker);
    run->kernels->gemm(y, n, x, k, run->shared, rows, k, whole);
    if (whole == n)
        return;
    run->kernels->gemm(last, PANEL, x, k, run->shared + whole * k, rows, k, PANEL);
    for (size_t i = 0; i < rows; i++)
        memcpy(y + i * n + whole, last + i * PANEL, (n - whole) * sizeof *y);
}

void tap_similarity_run(const tap_step_run *run, tap_pool *pool)
{
    tap_step_run copy = *run;
    tap_pool_run(pool, blocks(run->step->n_second, PANEL), transpose_item, &copy);
    tap_pool_run(pool, blocks(run->step->in.width, MATRIX_ROWS), similarity_item, &copy);
}
