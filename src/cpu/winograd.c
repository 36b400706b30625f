/* 3x3 convolutions by Winograd's F(4x4, 3x3). An item is a block of tiles: input transform, 36
 * matrix products, output transform with bias, ReLU and pooling, all in the worker's scratch, which
 * fits the L2 cache. A first layer of few channels may be computed right into the block's input, so
 * that its output, the network's largest buffer, never exists. */
#include "program.h"

#include <string.h>

enum {
    TILE = TAP_TILE,
    SIDE = TAP_TILE_INPUT,
    PLANES = TAP_TILE_PLANES,
    LINE = TAP_ALIGN / sizeof(float),
    BLOCK_ROWS = 3, /* 30 tiles: a multiple of the 6 rows of a matrix product's block */
    BLOCK_COLUMNS = 10,
    FRONT_ROWS = 6, /* nearer to a square: less of the first layer is computed twice */
    FRONT_COLUMNS = 5
};

/* An item: its tiles, and its pieces of the worker's scratch. */
struct block {
    size_t row, column, n_rows, n_columns; /* tiles */
    size_t v_plane, m_plane;
    float *v, *m;   /* [PLANES][tile][channels] */
    float *strip;   /* the front's output; shares m's memory, which is used later */
    float *picture; /* the front's input with its border */
    float *patch;   /* a tile's input at an edge, or its output */
};

static size_t tiles(size_t size)
{
    return (size + TILE - 1) / TILE;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Output channels per pass. */
static size_t columns_at_a_time(const tap_step *step)
{
    return smaller(step->weights->out_padded, TAP_PASS);
}

/* An odd number of cache lines, so that the 36 planes of a tile lie in different cache sets. */
static size_t plane_size(size_t n_tiles, size_t channels)
{
    size_t lines = n_tiles * channels / LINE;
    return (lines | 1) * LINE;
}

static size_t block_tiles(const tap_step *step)
{
    return step->block_rows * step->block_columns;
}

static size_t strip_pixels(const tap_step *step)
{
    return (step->block_rows * TILE + 2) * (step->block_columns * TILE + 2);
}

static size_t picture_size(const tap_step *step)
{
    if (step->front == NULL)
        return 0;
    size_t n = (step->block_rows * TILE + 4) * (step->block_columns * TILE + 4) * step->front->in;
    return (n + LINE - 1) / LINE * LINE;
}

static size_t m_size(const tap_step *step)
{
    size_t n = PLANES * plane_size(block_tiles(step), columns_at_a_time(step));
    size_t strip = step->front == NULL ? 0 : strip_pixels(step) * step->weights->in_padded;
    return n > strip ? n : strip;
}

static size_t patch_size(const tap_step *step)
{
    size_t n_in = (size_t)SIDE * SIDE * step->weights->in_padded;
    size_t n_out = (size_t)TILE * TILE * columns_at_a_time(step);
    return n_in > n_out ? n_in : n_out;
}

bool tap_winograd_plan(tap_step *step, size_t n_threads)
{
    size_t rows = tiles(step->in.height), columns = tiles(step->in.width);
    step->block_rows = smaller(rows, step->front == NULL ? BLOCK_ROWS : FRONT_ROWS);
    step->block_columns = smaller(columns, step->front == NULL ? BLOCK_COLUMNS : FRONT_COLUMNS);
    /* A small network on many threads: smaller blocks, for all to have some. */
    while (step->block_columns > 2 &&
           (rows + step->block_rows - 1) / step->block_rows *
                   ((columns + step->block_columns - 1) / step->block_columns) <
               2 * n_threads)
        step->block_columns = (step->block_columns + 1) / 2;
    /* All of these are at most some thousand times a channel count, which a buffer's size that has
     * been checked contains. */
    size_t v = PLANES * plane_size(block_tiles(step), step->weights->in_padded);
    return tap_size_mul(v + m_size(step) + picture_size(step) + patch_size(step), sizeof(float),
                        &step->worker_bytes);
}

/* ---- input --------------------------------------------------------------------------------- */

/* A tile's 6x6 inputs with zeros outside the picture and past the last channel. */
static void gather_patch(float *patch, const tap_step_run *run, size_t tile_row, size_t tile_column)
{
    const tap_step *step = run->step;
    size_t channels = step->in.channels, padded = step->weights->in_padded;
    for (size_t i = 0; i < SIDE; i++)
        for (size_t j = 0; j < SIDE; j++, patch += padded) {
            /* Row and column less one: in front of the first they wrap, past the last edge. */
            size_t row = tile_row * TILE + i - 1, column = tile_column * TILE + j - 1;
            if (row >= step->in.height || column >= step->in.width) {
                memset(patch, 0, padded * sizeof *patch);
                continue;
            }
            memcpy(patch, run->x + (row * step->in.width + column) * channels,
                   channels * sizeof *patch);
            memset(patch + channels, 0, (padded - channels) * sizeof *patch);
        }
}

/* How many tiles of a row, from the given one on, have all their inputs inside the picture. */
static size_t inner_tiles(const tap_step *step, size_t row, size_t column, size_t end)
{
    if (step->in.channels != step->weights->in_padded || row == 0 ||
        row * TILE + TILE + 1 > step->in.height || column == 0)
        return 0;
    size_t n = 0;
    while (column + n < end && (column + n) * TILE + TILE + 1 <= step->in.width)
        n++;
    return n;
}

static void transform_input(const tap_step_run *run, const struct block *block)
{
    const tap_step *step = run->step;
    size_t channels = step->weights->in_padded, x_row = step->in.width * step->in.channels;
    float *v = block->v;
    for (size_t i = 0; i < block->n_rows; i++)
        for (size_t j = 0; j < block->n_columns;) {
            size_t row = block->row + i, column = block->column + j;
            size_t n = inner_tiles(step, row, column, block->column + block->n_columns);
            if (n > 0) {
                const float *x = run->x + (row * TILE - 1) * x_row + (column * TILE - 1) * channels;
                run->kernels->winograd_input(v, block->v_plane, x, x_row, channels, channels, n);
            } else {
                n = 1;
                gather_patch(block->patch, run, row, column);
                run->kernels->winograd_input(v, block->v_plane, block->patch, SIDE * channels,
                                             channels, channels, 1);
            }
            v += n * channels;
            j += n;
        }
}

/* ---- the front ----------------------------------------------------------------------------- */

/* The picture around the block, two pixels more on every side, zeros outside. */
static void gather_picture(const tap_step_run *run, const struct block *block)
{
    const tap_step *step = run->step;
    size_t n_in = step->front->in, columns = block->n_columns * TILE + 4;
    float *to = block->picture;
    for (size_t i = 0; i < block->n_rows * TILE + 4; i++)
        for (size_t j = 0; j < columns; j++, to += n_in) {
            size_t row = block->row * TILE + i - 2, column = block->column * TILE + j - 2;
            bool inside = row < step->in.height && column < step->in.width;
            size_t from = inside ? (row * step->in.width + column) * n_in : 0;
            for (size_t c = 0; c < n_in; c++)
                to[c] = inside ? run->x[from + c] : 0;
        }
}

/* What lies outside the picture is the second layer's padding: zeros, not the first layer's
 * values there. */
static void clear_outside(const tap_step *step, const struct block *block, size_t rows,
                          size_t columns)
{
    size_t channels = step->weights->in_padded;
    for (size_t i = 0; i < rows; i++) {
        bool outside = block->row * TILE + i - 1 >= step->in.height;
        for (size_t j = 0; j < columns; j++)
            if (outside || block->column * TILE + j - 1 >= step->in.width)
                memset(block->strip + (i * columns + j) * channels, 0, channels * sizeof(float));
    }
}

static void transform_front(const tap_step_run *run, const struct block *block)
{
    const tap_step *step = run->step;
    size_t channels = step->weights->in_padded, n_in = step->front->in;
    size_t rows = block->n_rows * TILE + 2, columns = block->n_columns * TILE + 2;
    gather_picture(run, block);
    const tap_direct direct = {.y = block->strip,
                               .x = block->picture,
                               .weights = step->front->weights,
                               .bias = step->front->bias,
                               .y_row = columns * channels,
                               .y_pixel = channels,
                               .x_row = (columns + 2) * n_in,
                               .rows = rows,
                               .columns = columns,
                               .n_in = n_in,
                               .channels = channels,
                               .relu = step->front_relu};
    run->kernels->direct(&direct);
    if (block->row == 0 || block->column == 0 ||
        (block->row + block->n_rows) * TILE + 1 > step->in.height ||
        (block->column + block->n_columns) * TILE + 1 > step->in.width)
        clear_outside(step, block, rows, columns);
    for (size_t i = 0; i < block->n_rows; i++)
        run->kernels->winograd_input(block->v + i * block->n_columns * channels, block->v_plane,
                                     block->strip + i * TILE * columns * channels,
                                     columns * channels, channels, channels, block->n_columns);
}

/* ---- output -------------------------------------------------------------------------------- */

/* The output channels of one pass. */
struct pass {
    size_t first, n, n_padded;
};

/* A tile that the output's edge cuts, or whose channels are not whole panels. */
static void put_patch(const tap_step_run *run, const struct block *block, const struct pass *pass,
                      size_t tile_row, size_t tile_column, size_t side)
{
    const tap_step *step = run->step;
    tap_shape out = step->out;
    for (size_t i = 0; i < side && tile_row * side + i < out.height; i++)
        for (size_t j = 0; j < side && tile_column * side + j < out.width; j++) {
            size_t pixel = (tile_row * side + i) * out.width + tile_column * side + j;
            memcpy(run->y + pixel * out.channels + pass->first,
                   block->patch + (i * side + j) * pass->n_padded, pass->n * sizeof(float));
        }
}

/* How many tiles of a row, from the given one on, are whole in the output. */
static size_t whole_tiles(const tap_step *step, const struct pass *pass, size_t row, size_t column,
                          size_t end, size_t side)
{
    if (pass->n != pass->n_padded || (row + 1) * side > step->out.height)
        return 0;
    size_t inside = step->out.width / side;
    end = smaller(end, inside);
    return end > column ? end - column : 0;
}

static void transform_output(const tap_step_run *run, const struct block *block,
                             const struct pass *pass)
{
    const tap_step *step = run->step;
    size_t side = step->pool ? TILE / 2 : TILE;
    size_t y_pixel = step->out.channels, y_row = step->out.width * y_pixel;
    const float *bias = step->weights->bias + pass->first, *m = block->m;
    tap_winograd_output_fn kernel =
        step->pool ? run->kernels->winograd_output_pool : run->kernels->winograd_output;
    for (size_t i = 0; i < block->n_rows; i++)
        for (size_t j = 0; j < block->n_columns;) {
            size_t row = block->row + i, column = block->column + j;
            size_t n = whole_tiles(step, pass, row, column, block->column + block->n_columns, side);
            if (n > 0) {
                float *y = run->y + row * side * y_row + column * side * y_pixel + pass->first;
                kernel(y, y_row, y_pixel, m, block->m_plane, bias, pass->n_padded, n, step->relu);
            } else {
                n = 1;
                kernel(block->patch, side * pass->n_padded, pass->n_padded, m, block->m_plane, bias,
                       pass->n_padded, 1, step->relu);
                put_patch(run, block, pass, row, column, side);
            }
            m += n * pass->n_padded;
            j += n;
        }
}

/* ---- fetching ahead ------------------------------------------------------------------------- */

/* Lines of memory that will be wanted soon: rows of row_size floats. */
struct lines {
    const float *first;
    size_t n_rows, row_stride, row_size;
    bool write;
};

/* While the products keep the arithmetic busy, memory is idle: each of the 36 fetches its part of
 * what would be waited for afterwards. */
static void fetch(const struct lines *lines, size_t plane)
{
    size_t per_row = (lines->row_size + LINE - 1) / LINE, n = lines->n_rows * per_row;
    for (size_t i = n * plane / PLANES; i < n * (plane + 1) / PLANES; i++) {
        const float *line = lines->first + i / per_row * lines->row_stride + i % per_row * LINE;
        if (lines->write)
            __builtin_prefetch(line, 1, 2);
        else
            __builtin_prefetch(line, 0, 2);
    }
}

/* Where the block's output goes. */
static struct lines output_lines(const tap_step_run *run, const struct block *block)
{
    const tap_step *step = run->step;
    size_t side = step->pool ? TILE / 2 : TILE, n = step->out.channels;
    size_t row = block->row * side, column = block->column * side;
    return (struct lines){.first = run->y + (row * step->out.width + column) * n,
                          .n_rows = smaller(block->n_rows * side, step->out.height - row),
                          .row_stride = step->out.width * n,
                          .row_size =
                              smaller(block->n_columns * side, step->out.width - column) * n,
                          .write = true};
}

/* The input of a block, but for its border. */
static struct lines input_lines(const tap_step_run *run, const struct block *block)
{
    const tap_step *step = run->step;
    size_t n = step->in.channels, row = block->row * TILE, column = block->column * TILE;
    return (struct lines){.first = run->x + (row * step->in.width + column) * n,
                          .n_rows = smaller(block->n_rows * TILE, step->in.height - row),
                          .row_stride = step->in.width * n,
                          .row_size =
                              smaller(block->n_columns * TILE, step->in.width - column) * n};
}

/* ---- the step ------------------------------------------------------------------------------ */

static size_t n_items(const tap_step *step)
{
    size_t down = (tiles(step->in.height) + step->block_rows - 1) / step->block_rows;
    size_t across = (tiles(step->in.width) + step->block_columns - 1) / step->block_columns;
    return down * across;
}

static struct block make_block(const tap_step_run *run, size_t item, size_t worker)
{
    const tap_step *step = run->step;
    size_t rows = tiles(step->in.height), columns = tiles(step->in.width);
    size_t across = (columns + step->block_columns - 1) / step->block_columns;
    struct block block = {.row = item / across * step->block_rows,
                          .column = item % across * step->block_columns};
    block.n_rows = smaller(step->block_rows, rows - block.row);
    block.n_columns = smaller(step->block_columns, columns - block.column);
    block.v_plane = plane_size(block_tiles(step), step->weights->in_padded);
    block.v = tap_step_worker(run, worker);
    block.m = block.v + PLANES * block.v_plane;
    block.strip = block.m;
    block.picture = block.m + m_size(step);
    block.patch = block.picture + picture_size(step);
    return block;
}

/* The input of the item that this worker will probably take next: the workers go on together. */
static struct lines next_lines(const tap_step_run *run, size_t item, size_t worker)
{
    const tap_step *step = run->step;
    size_t next = item + run->n_workers;
    if (step->front != NULL || next >= n_items(step))
        return (struct lines){0};
    struct block block = make_block(run, next, worker);
    return input_lines(run, &block);
}

static void run_item(void *context, size_t item, size_t worker)
{
    const tap_step_run *run = context;
    const tap_packed *weights = run->step->weights;
    struct block block = make_block(run, item, worker);
    size_t n_tiles = block.n_rows * block.n_columns, n_in = weights->in_padded;
    const struct lines output = output_lines(run, &block), next = next_lines(run, item, worker);
    if (run->step->front != NULL)
        transform_front(run, &block);
    else
        transform_input(run, &block);
    for (size_t first = 0; first < weights->out_padded; first += TAP_PASS) {
        struct pass pass = {.first = first,
                            .n = smaller(weights->out - first, TAP_PASS),
                            .n_padded = smaller(weights->out_padded - first, TAP_PASS)};
        block.m_plane = plane_size(block_tiles(run->step), pass.n_padded);
        for (size_t plane = 0; plane < PLANES; plane++) {
            if (first == 0)
                fetch(&output, plane);
            if (first + TAP_PASS >= weights->out_padded)
                fetch(&next, plane);
            run->kernels->gemm(block.m + plane * block.m_plane, pass.n_padded,
                               block.v + plane * block.v_plane, n_in,
                               weights->weights + (first * PLANES + plane * pass.n_padded) * n_in,
                               n_tiles, n_in, pass.n_padded);
        }
        transform_output(run, &block, &pass);
    }
}

void tap_winograd_run(const tap_step_run *run, tap_pool *pool)
{
    tap_step_run copy = *run;
    tap_pool_run(pool, n_items(run->step), run_item, &copy);
}
