/* Replaying a program. Each step is split into items over positions; whatever worker takes an item,
 * its arithmetic is the same, so results do not depend on the number of threads. */
#include "program.h"

#include <string.h>

struct run {
    const tap_program *program;
    const struct step *step;
    uint8_t *scratch;
    const float *const *inputs;
    float *const *outputs;
};

/* A place as memory: pixel (y, x) is at origin + y * step + x * pixel. */
struct view {
    float *origin;
    size_t step, pixel;
    const struct place *place;
};

static struct view view_of(const struct run *run, size_t i)
{
    const struct place *place = &run->program->places[i];
    struct view view = {.place = place};
    if (place->port >= 0) {
        /* One of the two; a step writes only to outputs. */
        bool is_output = run->step->kind != STEP_IMPORT && i != run->step->input &&
                         !(run->step->kind == STEP_SIMILARITY && i == run->step->second);
        view.origin =
            is_output ? run->outputs[place->port] : (float *)(uintptr_t)run->inputs[place->port];
        view.pixel = place->channels;
        view.step = place->width * place->channels;
        return view;
    }
    view.pixel = place->padded;
    view.step = place->columns * place->padded;
    view.origin = (float *)(void *)(run->scratch + place->offset_bytes) + view.step + view.pixel;
    return view;
}

static float *worker_memory(const struct run *run, size_t worker)
{
    const tap_program *program = run->program;
    return (float *)(void *)(run->scratch + program->buffer_bytes + worker * program->worker_bytes);
}

/* The zeros around the picture, which another buffer may have overwritten since the last run. */
static void clear_ring(const struct view *view)
{
    const struct place *place = view->place;
    if (place->port >= 0)
        return;
    float *start = view->origin - view->step - view->pixel;
    size_t below = place->rows - 1 - place->height, right = place->columns - 1 - place->width;
    memset(start, 0, view->step * sizeof(float));
    for (size_t y = 0; y < place->height; y++) {
        float *row = start + (y + 1) * view->step;
        memset(row, 0, view->pixel * sizeof(float));
        memset(row + (place->width + 1) * view->pixel, 0, right * view->pixel * sizeof(float));
    }
    memset(start + (place->height + 1) * view->step, 0, below * view->step * sizeof(float));
}

/* ---- copies and pooling -------------------------------------------------------------------- */

static void import_row(void *context, size_t y, size_t worker)
{
    const struct run *run = context;
    struct view from = view_of(run, run->step->input), to = view_of(run, run->step->outputs[0]);
    size_t n = from.place->channels;
    (void)worker;
    if (to.pixel == n) {
        memcpy(to.origin + y * to.step, from.origin + y * from.step,
               from.place->width * n * sizeof(float));
        return;
    }
    for (size_t x = 0; x < from.place->width; x++) {
        float *pixel = to.origin + y * to.step + x * to.pixel;
        memcpy(pixel, from.origin + y * from.step + x * from.pixel, n * sizeof(float));
        memset(pixel + n, 0, (to.pixel - n) * sizeof(float));
    }
}

static void export_row(void *context, size_t y, size_t worker)
{
    const struct run *run = context;
    struct view from = view_of(run, run->step->input), to = view_of(run, run->step->outputs[0]);
    (void)worker;
    for (size_t x = 0; x < to.place->width; x++)
        memcpy(to.origin + y * to.step + x * to.pixel, from.origin + y * from.step + x * from.pixel,
               to.place->channels * sizeof(float));
}

static void pool_row(void *context, size_t y, size_t worker)
{
    const struct run *run = context;
    struct view from = view_of(run, run->step->input), to = view_of(run, run->step->outputs[0]);
    (void)worker;
    for (size_t x = 0; x < to.place->width; x++) {
        const float *a = from.origin + 2 * y * from.step + 2 * x * from.pixel, *b = a + from.step;
        float *out = to.origin + y * to.step + x * to.pixel;
        for (size_t i = 0; i < to.pixel; i++) {
            float top = a[i] > a[i + from.pixel] ? a[i] : a[i + from.pixel];
            float bottom = b[i] > b[i + from.pixel] ? b[i] : b[i + from.pixel];
            out[i] = top > bottom ? top : bottom;
        }
    }
}

/* ---- convolutions -------------------------------------------------------------------------- */

/* columns outputs of the one-channel convolution, from (y, x) of the picture on. */
static void conv_one_run(const tap_kernels *kernels, float *out, const struct view *from, size_t y,
                         size_t x, size_t columns, const struct packed *packed, bool relu)
{
    const float *row = from->origin + y * from->step + x - 1;
    kernels->conv_one(out, row - from->step, row, row + from->step, packed->weight, packed->bias,
                      columns, padded_channels(packed->out_channels), relu);
}

static void conv_one_row(void *context, size_t y, size_t worker)
{
    const struct run *run = context;
    const struct step *step = run->step;
    struct view from = view_of(run, step->input), to = view_of(run, step->outputs[0]);
    (void)worker;
    conv_one_run(run->program->kernels, to.origin + y * to.step, &from, y, 0, to.place->width,
                 step->packed[0], step->relu[0]);
}

/* The part of the first layer's result that n tiles of row ty from column tx on read: 6 rows of
 * 4 n + 2 pixels, zeros outside the picture. */
static void make_strip(const struct run *run, float *strip, const struct view *from, size_t ty,
                       size_t tx, size_t n)
{
    const struct step *step = run->step;
    size_t channels = padded_channels(step->first->out_channels), columns = strip_columns(n);
    size_t width = from->place->width, height = from->place->height;
    size_t left = tx == 0, x = tx * TAP_TILE_OUT + left - 1; /* the first column in the picture */
    size_t inside = columns - left < width - x ? columns - left : width - x;
    for (size_t i = 0; i < TAP_TILE_IN; i++) {
        float *row = strip + i * columns * channels;
        size_t y = ty * TAP_TILE_OUT + i - 1; /* above the picture it wraps to a huge number */
        if (y >= height) {
            memset(row, 0, columns * channels * sizeof(float));
            continue;
        }
        memset(row, 0, left * channels * sizeof(float));
        conv_one_run(run->program->kernels, row + left * channels, from, y, x, inside, step->first,
                     step->first_relu);
        memset(row + (left + inside) * channels, 0,
               (columns - left - inside) * channels * sizeof(float));
    }
}

/* The input transform of tiles first..first + n - 1. */
static void transform_tiles(const struct run *run, float *v, size_t plane, float *strip,
                            size_t channels, size_t first, size_t n)
{
    const tap_kernels *kernels = run->program->kernels;
    struct view from = view_of(run, run->step->input);
    size_t across = tiles_of(from.place->width);
    for (size_t t = 0; t < n;) {
        size_t ty = (first + t) / across, tx = (first + t) % across, together = 1;
        if (run->step->first == NULL) {
            const float *x = from.origin + ty * TAP_TILE_OUT * from.step - from.step +
                             tx * TAP_TILE_OUT * from.pixel - from.pixel;
            kernels->winograd_in(v + t * channels, plane, x, from.step, channels);
        } else {
            together = n - t < across - tx ? n - t : across - tx;
            together = together < STRIP_TILES ? together : STRIP_TILES;
            make_strip(run, strip, &from, ty, tx, together);
            for (size_t i = 0; i < together; i++)
                kernels->winograd_in(v + (t + i) * channels, plane,
                                     strip + i * TAP_TILE_OUT * channels,
                                     strip_columns(together) * channels, channels);
        }
        t += together;
    }
}

/* The 36 products and the output transform for channels c..c + n_channels - 1 of one output. */
static void finish_tiles(const struct run *run, size_t i_output, const float *v, size_t v_plane,
                         float *m, size_t in, size_t first, size_t n, size_t c, size_t n_channels)
{
    const struct step *step = run->step;
    const tap_kernels *kernels = run->program->kernels;
    const struct packed *packed = step->packed[i_output];
    size_t n_panels = padded_channels(packed->out_channels) / TAP_PANEL;
    size_t m_plane = plane_stride(step->tiles * n_channels);
    for (size_t p = 0; p < TAP_PLANES; p++)
        for (size_t j = 0; j < n_channels; j += TAP_PANEL)
            kernels->gemm(m + p * m_plane + j, n_channels, v + p * v_plane, in,
                          packed->weight + (p * n_panels + (c + j) / TAP_PANEL) * in * TAP_PANEL, n,
                          in);
    struct view from = view_of(run, step->input), to = view_of(run, step->outputs[i_output]);
    bool pool = step->pool[i_output];
    size_t width = from.place->width, height = from.place->height, across = tiles_of(width);
    size_t side = pool ? TAP_TILE_OUT / 2 : TAP_TILE_OUT;
    for (size_t t = 0; t < n; t++) {
        size_t ty = (first + t) / across, tx = (first + t) % across;
        size_t rows = height - ty * TAP_TILE_OUT, columns = width - tx * TAP_TILE_OUT;
        kernels->winograd_out(to.origin + ty * side * to.step + tx * side * to.pixel + c, to.step,
                              to.pixel, m + t * n_channels, m_plane, packed->bias + c, n_channels,
                              rows < TAP_TILE_OUT ? rows : TAP_TILE_OUT,
                              columns < TAP_TILE_OUT ? columns : TAP_TILE_OUT, step->relu[i_output],
                              pool);
    }
}

static void winograd_block(void *context, size_t item, size_t worker)
{
    const struct run *run = context;
    const struct step *step = run->step;
    const struct place *from = &run->program->places[step->input];
    size_t in = step->first != NULL ? padded_channels(step->first->out_channels) : from->padded;
    size_t n_tiles = tiles_of(from->height) * tiles_of(from->width), first = item * step->tiles;
    size_t n = n_tiles - first < step->tiles ? n_tiles - first : step->tiles;
    size_t v_plane = plane_stride(step->tiles * in);
    float *v = worker_memory(run, worker), *m = v + TAP_PLANES * v_plane;
    float *strip = m + TAP_PLANES * plane_stride(step->tiles * CHANNELS_PER_PASS);
    transform_tiles(run, v, v_plane, strip, in, first, n);
    for (size_t i = 0; i < step->n_outputs; i++) {
        size_t channels = padded_channels(step->packed[i]->out_channels);
        for (size_t c = 0; c < channels; c += CHANNELS_PER_PASS) {
            size_t pass = channels - c < CHANNELS_PER_PASS ? channels - c : CHANNELS_PER_PASS;
            finish_tiles(run, i, v, v_plane, m, in, first, n, c, pass);
        }
    }
}

static void pointwise_row(void *context, size_t y, size_t worker)
{
    const struct run *run = context;
    const struct step *step = run->step;
    const tap_kernels *kernels = run->program->kernels;
    const struct packed *packed = step->packed[0];
    struct view from = view_of(run, step->input), to = view_of(run, step->outputs[0]);
    const float *x = from.origin + y * from.step;
    float *out = to.origin + y * to.step;
    size_t panel = padded_channels(from.place->channels) * TAP_PANEL;
    (void)worker;
    for (size_t j = 0; j < to.pixel; j += TAP_PANEL)
        kernels->gemm(out + j, to.pixel, x, from.pixel, packed->weight + j / TAP_PANEL * panel,
                      from.place->width, from.pixel);
    kernels->bias_relu(out, to.pixel, packed->bias, to.place->width, to.pixel, step->relu[0]);
}

/* ---- softmax, norm, matcher ---------------------------------------------------------------- */

static void softmax_row(void *context, size_t y, size_t worker)
{
    const struct run *run = context;
    size_t cell = run->step->cell, n = cell * cell + 1;
    struct view from = view_of(run, run->step->input), to = view_of(run, run->step->outputs[0]);
    float *logits = worker_memory(run, worker);
    for (size_t x = 0; x < from.place->width; x++) {
        memcpy(logits, from.origin + y * from.step + x * from.pixel, n * sizeof(float));
        run->program->kernels->cell_softmax(to.origin + y * cell * to.step + x * cell * to.pixel,
                                            to.step, logits, cell);
    }
}

static void norm_row(void *context, size_t y, size_t worker)
{
    const struct run *run = context;
    struct view from = view_of(run, run->step->input), to = view_of(run, run->step->outputs[0]);
    size_t n = from.place->padded;
    (void)worker;
    for (size_t x = 0; x < from.place->width; x++) {
        const float *v = from.origin + y * from.step + x * from.pixel;
        float *out = to.origin + y * to.step + x * to.pixel;
        float lone[TAP_PANEL] = {0};
        if (n == 1) { /* a picture: its pixels lie side by side */
            lone[0] = v[0];
            v = lone;
        }
        run->program->kernels->l2_norm(out, v, n == 1 ? TAP_PANEL : n, to.place->channels);
        memset(out + to.place->channels, 0, (to.pixel - to.place->channels) * sizeof(float));
    }
}

static void pack_rows(void *context, size_t panel, size_t worker)
{
    const struct run *run = context;
    struct view from = view_of(run, run->step->input);
    const struct place *to = &run->program->places[run->step->outputs[0]];
    size_t k = from.place->channels, n = from.place->width;
    float *out = (float *)(void *)(run->scratch + to->offset_bytes) + panel * k * (size_t)TAP_PANEL;
    (void)worker;
    for (size_t j = 0; j < TAP_PANEL; j++) {
        size_t row = panel * TAP_PANEL + j;
        for (size_t i = 0; i < k; i++)
            out[i * TAP_PANEL + j] = row < n ? from.origin[row * from.pixel + i] : 0;
    }
}

static void similarity_rows(void *context, size_t item, size_t worker)
{
    const struct run *run = context;
    const tap_kernels *kernels = run->program->kernels;
    struct view a = view_of(run, run->step->input), to = view_of(run, run->step->outputs[0]);
    const struct place *panels = &run->program->places[run->step->second];
    const float *b = (const float *)(const void *)(run->scratch + panels->offset_bytes);
    size_t k = a.place->channels, first = item * SIMILARITY_ROWS, n = to.place->channels;
    size_t rows =
        a.place->width - first < SIMILARITY_ROWS ? a.place->width - first : SIMILARITY_ROWS;
    const float *x = a.origin + first * a.pixel;
    float *out = to.origin + first * to.pixel, *edge = worker_memory(run, worker);
    for (size_t j = 0; j < n; j += TAP_PANEL) {
        const float *panel = b + j * k;
        if (j + TAP_PANEL <= to.pixel) {
            kernels->gemm(out + j, to.pixel, x, a.pixel, panel, rows, k);
            continue;
        }
        kernels->gemm(edge, TAP_PANEL, x, a.pixel, panel, rows, k);
        for (size_t i = 0; i < rows; i++)
            memcpy(out + i * to.pixel + j, edge + i * TAP_PANEL, (n - j) * sizeof(float));
    }
}

/* ---- the whole ----------------------------------------------------------------------------- */

static void run_step(struct run *run)
{
    const struct step *step = run->step;
    const struct place *from = &run->program->places[step->input];
    const struct place *to = &run->program->places[step->outputs[0]];
    tap_pool *pool = run->program->pool;
    if (step->kind != STEP_PACK_ROWS)
        for (size_t i = 0; i < step->n_outputs; i++) {
            struct view view = view_of(run, step->outputs[i]);
            clear_ring(&view);
        }
    switch (step->kind) {
    case STEP_IMPORT:
        tap_pool_run(pool, from->height, import_row, run);
        return;
    case STEP_EXPORT:
        tap_pool_run(pool, from->height, export_row, run);
        return;
    case STEP_POOL:
        tap_pool_run(pool, to->height, pool_row, run);
        return;
    case STEP_CONV_ONE:
        tap_pool_run(pool, from->height, conv_one_row, run);
        return;
    case STEP_WINOGRAD: {
        size_t n_tiles = tiles_of(from->height) * tiles_of(from->width);
        tap_pool_run(pool, (n_tiles + step->tiles - 1) / step->tiles, winograd_block, run);
        return;
    }
    case STEP_POINTWISE:
        tap_pool_run(pool, from->height, pointwise_row, run);
        return;
    case STEP_SOFTMAX:
        tap_pool_run(pool, from->height, softmax_row, run);
        return;
    case STEP_NORM:
        tap_pool_run(pool, from->height, norm_row, run);
        return;
    case STEP_PACK_ROWS:
        tap_pool_run(pool, to->height, pack_rows, run);
        return;
    case STEP_SIMILARITY:
        tap_pool_run(pool, (from->width + SIMILARITY_ROWS - 1) / SIMILARITY_ROWS, similarity_rows,
                     run);
        return;
    }
}

tap_status tap_cpu_run(const tap_program *program, void *scratch, const float *const *inputs,
                       float *const *outputs, double *step_ms, tap_error *err)
{
    (void)err;
    for (size_t i = 0; i < program->n_steps; i++) {
        struct run run = {program, &program->steps[i], scratch, inputs, outputs};
        double start = step_ms != NULL ? tap_clock_ms() : 0;
        run_step(&run);
        if (step_ms != NULL)
            step_ms[i] = tap_clock_ms() - start;
    }
    return TAP_OK;
}
