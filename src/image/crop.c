/* crop: the warp is OpenCV's, in integers: positions in 1/32 pixel, weights of 5 + 5 bits. A tap
 * outside the frame gets weight 0 and any address inside, so that the loops have no branches. */
#include "crop.h"
#include "image.h"

#include <math.h>
#include <string.h>

enum { SIDE = TAP_CROP_SIDE, CHANNELS = 3 };

/* ImageNet's, for pixels in 0..1. */
static const double mean[CHANNELS] = {0.485, 0.456, 0.406};
static const double deviation[CHANNELS] = {0.229, 0.224, 0.225};

/* Two neighbours along one axis and their weights, which sum to 32 inside the frame. */
typedef struct pair {
    size_t at[2];
    int32_t weight[2];
} pair;

/* A pair after smoothing: elements start..start + n - 1 and their weights, which sum to 1 inside.
 */
typedef struct span {
    size_t start, n;
    double *weights;
} span;

typedef struct warp {
    const tap_image *frame;
    size_t bytes_per_pixel, channel[CHANNELS]; /* channel: the byte of R, G, B in a pixel */
    ptrdiff_t stride;
    pair columns[SIDE], rows[SIDE];
    /* Only where smoothing changes a pixel: */
    size_t radius;
    double *weights, *tails; /* [radius + 1]: of a tap at distance i; [radius + 2]: from i on */
    span across[SIDE], down; /* of the columns; of the row at hand */
    size_t first, end;       /* columns of the frame that are read */
    double *line;            /* a smoothed row of the frame, its bytes as doubles */
} warp;

tap_crop_map tap_crop_mapping(const tap_crop *crop, uint32_t frame_width)
{
    double center = crop->mirror ? (double)frame_width - 1 - crop->center_x : crop->center_x;
    float half = (float)(crop->side / 2);
    float x0 = (float)center, x1 = (float)(center + half);
    float y0 = (float)crop->center_y, y1 = (float)(crop->center_y + half);
    tap_crop_map map = {.sx = 128 / ((double)x1 - x0), .sy = 128 / ((double)y1 - y0)};
    map.tx = 128 - map.sx * x0;
    map.ty = 128 - map.sy * y0;
    return map;
}

bool tap_crop_blur(const tap_crop *crop, uint32_t frame_width, uint32_t frame_height, double *sigma,
                   size_t *radius)
{
    double shrink = crop->side / SIDE / 2;
    *sigma = 0;
    *radius = 0;
    if (!(shrink > 1.1))
        return false;
    double most = frame_width > frame_height ? frame_width : frame_height;
    *sigma = (shrink - 1) / 2;
    double wanted = floor(4 * *sigma + 0.5);
    *radius = (size_t)(wanted < most ? wanted : most);
    return true;
}

/* ---- the map ------------------------------------------------------------------------------ */

/* 1/1024 pixels, a whole number, to the nearest 1/32; what is far outside stays outside. */
static int64_t to_position(double value)
{
    const double far = 1125899906842624.0; /* 2^50 */
    return ((int64_t)(value > far ? far : value < -far ? -far : value) + 16) >> 5;
}

/* position: in 1/32 pixel. step: from one element of the axis to the next; mirrored, the axis is
 * counted from its other end. */
static pair find_pair(int64_t position, uint32_t n, size_t step, bool mirrored)
{
    int64_t from = position >> 5;
    int32_t fraction = (int32_t)(position & 31);
    const int32_t weight[2] = {32 - fraction, fraction};
    pair found = {{0, 0}, {0, 0}};
    for (int i = 0; i < 2; i++)
        if (from + i >= 0 && from + i < (int64_t)n) {
            size_t at = (size_t)(from + i);
            found.at[i] = (mirrored ? n - 1 - at : at) * step;
            found.weight[i] = weight[i];
        }
    return found;
}

/* OpenCV rounds the two terms of a column's position each on its own, a row's together. */
static void map_pixels(warp *w, const tap_crop *crop)
{
    tap_crop_map map = tap_crop_mapping(crop, w->frame->width);
    if (!(map.sx > 0) || !(map.sy > 0) || !isfinite(map.sx) || !isfinite(map.sy) ||
        !isfinite(map.tx) || !isfinite(map.ty)) {
        memset(w->columns, 0, sizeof w->columns);
        memset(w->rows, 0, sizeof w->rows);
        return;
    }
    double start = rint(-map.tx / map.sx * 1024);
    for (int i = 0; i < SIDE; i++) {
        int64_t x = to_position(rint(i * (1024 / map.sx)) + start);
        int64_t y = to_position(rint((i - map.ty) / map.sy * 1024));
        w->columns[i] = find_pair(x, w->frame->width, w->bytes_per_pixel, crop->mirror);
        w->rows[i] = find_pair(y, w->frame->height, 1, false);
    }
}

static void prepare(warp *w, const tap_image *frame, const tap_crop *crop)
{
    static const uint8_t orders[7][CHANNELS] = {
        [TAP_PIXELS_RGB] = {0, 1, 2},
        [TAP_PIXELS_RGBA] = {0, 1, 2},
        [TAP_PIXELS_BGR] = {2, 1, 0},
        [TAP_PIXELS_BGRA] = {2, 1, 0},
    };
    w->frame = frame;
    (void)tap_image_check(frame, &w->bytes_per_pixel, &w->stride, NULL);
    for (int c = 0; c < CHANNELS; c++)
        w->channel[c] = orders[frame->format][c];
    map_pixels(w, crop);
}

/* ---- 8-bit pixels -------------------------------------------------------------------------- */

/* Sums of columns first..first + n - 1 of the crop's row v, 1024 times the pixels. */
static void sum_row(int32_t *out, const warp *w, size_t v, size_t first, size_t n)
{
    pair row = w->rows[v];
    const uint8_t *top = w->frame->data + (ptrdiff_t)row.at[0] * w->stride;
    const uint8_t *bottom = w->frame->data + (ptrdiff_t)row.at[1] * w->stride;
    const size_t r = w->channel[0], g = w->channel[1], b = w->channel[2];
    for (size_t u = 0; u < n; u++, out += CHANNELS) {
        const pair *column = &w->columns[first + u];
        int32_t w00 = column->weight[0] * row.weight[0], w10 = column->weight[1] * row.weight[0];
        int32_t w01 = column->weight[0] * row.weight[1], w11 = column->weight[1] * row.weight[1];
        const uint8_t *p00 = top + column->at[0], *p10 = top + column->at[1];
        const uint8_t *p01 = bottom + column->at[0], *p11 = bottom + column->at[1];
        out[0] = w00 * p00[r] + w10 * p10[r] + w01 * p01[r] + w11 * p11[r];
        out[1] = w00 * p00[g] + w10 * p10[g] + w01 * p01[g] + w11 * p11[g];
        out[2] = w00 * p00[b] + w10 * p10[b] + w01 * p01[b] + w11 * p11[b];
    }
}

/* ---- smoothed pixels: warp and Gaussian as one filter per axis ------------------------------- */

/* The range that a pair reads after smoothing; empty outside the frame. step: as in find_pair. */
static span find_span(const pair *p, size_t step, size_t radius, size_t n)
{
    size_t low = SIZE_MAX, high = 0;
    for (int i = 0; i < 2; i++)
        if (p->weight[i] > 0) {
            size_t at = p->at[i] / step;
            low = at < low ? at : low;
            high = at > high ? at : high;
        }
    if (low > high)
        return (span){0, 0, NULL};
    size_t start = low > radius ? low - radius : 0;
    size_t end = n - 1 - high > radius ? high + radius + 1 : n;
    return (span){start, end - start, NULL};
}

/* The weight of element i of an axis of n for a Gaussian around at: the border's elements stand for
 * all beyond them too. */
static double weight_of(const warp *w, size_t i, size_t at, size_t n)
{
    size_t distance = i > at ? i - at : at - i;
    double weight = distance <= w->radius ? w->weights[distance] : 0;
    if (i == 0 && at < w->radius)
        weight += w->tails[at + 1];
    if (i == n - 1 && n - 1 - at < w->radius)
        weight += w->tails[n - at];
    return weight;
}

static void fill_span(span *s, const warp *w, const pair *p, size_t step, size_t n)
{
    for (size_t i = 0; i < s->n; i++) {
        s->weights[i] = 0;
        for (int k = 0; k < 2; k++)
            if (p->weight[k] > 0)
                s->weights[i] +=
                    p->weight[k] / 32.0 * weight_of(w, s->start + i, p->at[k] / step, n);
    }
}

/* The weights of a Gaussian, which sum to 1. */
static void weigh(warp *w, double sigma)
{
    double sum = 0;
    for (size_t i = w->radius + 1; i-- > 0;) {
        double x = (double)i;
        w->weights[i] = exp(-x * x / (2 * sigma * sigma));
        sum += i > 0 ? 2 * w->weights[i] : w->weights[i];
    }
    w->tails[w->radius + 1] = 0;
    for (size_t i = w->radius + 1; i-- > 0;) {
        w->weights[i] /= sum;
        w->tails[i] = w->tails[i + 1] + w->weights[i];
    }
}

bool tap_crop_scratch_bytes(const tap_image *frame, const tap_crop *crop, size_t *bytes)
{
    double sigma;
    warp w;
    size_t pixel_bytes, doubles;
    ptrdiff_t stride;
    *bytes = 0;
    if (tap_image_check(frame, &pixel_bytes, &stride, NULL) != TAP_OK)
        return false;
    if (!tap_crop_blur(crop, frame->width, frame->height, &sigma, &w.radius) || w.radius == 0)
        return true;
    prepare(&w, frame, crop);
    /* What smooth_prepare deals out. */
    if (!tap_size_mul(frame->width, pixel_bytes, &doubles) ||
        !tap_size_add(doubles, 2 * w.radius + 3 + frame->height, &doubles))
        return false;
    for (int u = 0; u < SIDE; u++) {
        span seen = find_span(&w.columns[u], pixel_bytes, w.radius, frame->width);
        if (!tap_size_add(doubles, seen.n, &doubles))
            return false;
    }
    return tap_size_mul(doubles, sizeof(double), bytes);
}

/* Deals out the scratch and makes the columns' filters. */
static void smooth_prepare(warp *w, double sigma, double *scratch)
{
    w->weights = scratch;
    w->tails = w->weights + w->radius + 1;
    w->down.weights = w->tails + w->radius + 2;
    w->line = w->down.weights + w->frame->height;
    double *next = w->line + w->frame->width * w->bytes_per_pixel;
    weigh(w, sigma);
    w->first = w->frame->width;
    w->end = 0;
    for (int u = 0; u < SIDE; u++) {
        span *s = &w->across[u];
        *s = find_span(&w->columns[u], w->bytes_per_pixel, w->radius, w->frame->width);
        s->weights = next;
        next += s->n;
        fill_span(s, w, &w->columns[u], w->bytes_per_pixel, w->frame->width);
        if (s->n > 0) {
            w->first = s->start < w->first ? s->start : w->first;
            w->end = s->start + s->n > w->end ? s->start + s->n : w->end;
        }
    }
    if (w->end == 0) /* no column meets the frame */
        w->first = 0;
}

/* The line under the crop's row v: the frame filtered downwards, as far as the crop sees it. */
static void smooth_down(warp *w, size_t v)
{
    double *weights = w->down.weights;
    w->down = find_span(&w->rows[v], 1, w->radius, w->frame->height);
    w->down.weights = weights;
    fill_span(&w->down, w, &w->rows[v], 1, w->frame->height);
    size_t from = w->first * w->bytes_per_pixel, to = w->end * w->bytes_per_pixel;
    memset(w->line + from, 0, (to - from) * sizeof *w->line);
    /* Two rows at a time: half the traffic. An odd one goes with itself, at weight 0. */
    for (size_t j = 0; j < w->down.n; j += 2) {
        const bool two = j + 1 < w->down.n;
        const double weight0 = weights[j], weight1 = two ? weights[j + 1] : 0;
        const uint8_t *row0 = w->frame->data + (ptrdiff_t)(w->down.start + j) * w->stride;
        const uint8_t *row1 = two ? row0 + w->stride : row0;
        double *line = w->line;
        for (size_t i = from; i < to; i++)
            line[i] += weight0 * row0[i] + weight1 * row1[i];
    }
}

static void smooth_row(double *out, warp *w, size_t v, size_t first, size_t n)
{
    smooth_down(w, v);
    for (size_t u = 0; u < n; u++) {
        const span *s = &w->across[first + u];
        double sum[CHANNELS] = {0, 0, 0};
        for (size_t i = 0; i < s->n; i++) {
            const double *pixel = w->line + (s->start + i) * w->bytes_per_pixel;
            for (int c = 0; c < CHANNELS; c++)
                sum[c] += s->weights[i] * pixel[w->channel[c]];
        }
        memcpy(out + u * CHANNELS, sum, sizeof sum);
    }
}

/* ---- outputs -------------------------------------------------------------------------------- */

/* A crop being cut, row by row. */
typedef struct cutter {
    warp w;
    bool smooth, whole; /* whole: rows come in bytes, else in values */
    int32_t sums[SIDE * CHANNELS];
    double values[SIDE * CHANNELS];
    uint8_t bytes[SIDE * CHANNELS];
} cutter;

static void cutter_open(cutter *cut, const tap_image *frame, const tap_crop *crop, bool whole,
                        void *scratch)
{
    double sigma;
    bool blur = tap_crop_blur(crop, frame->width, frame->height, &sigma, &cut->w.radius);
    prepare(&cut->w, frame, crop);
    cut->smooth = cut->w.radius > 0;
    cut->whole = whole || crop->whole_levels || !blur;
    if (cut->smooth)
        smooth_prepare(&cut->w, sigma, scratch);
}

/* Ties go up, those too that the sums' rounding (some 1e-13) has put below. */
static uint8_t round_half_up(double value)
{
    return (uint8_t)(value < 255 ? value + 0.5 + 1e-12 : 255);
}

static void cutter_row(cutter *cut, size_t v, size_t first, size_t n)
{
    if (cut->smooth) {
        smooth_row(cut->values, &cut->w, v, first, n);
        for (size_t i = 0; cut->whole && i < n * CHANNELS; i++)
            cut->bytes[i] = round_half_up(cut->values[i]);
        return;
    }
    sum_row(cut->sums, &cut->w, v, first, n);
    if (cut->whole)
        for (size_t i = 0; i < n * CHANNELS; i++)
            cut->bytes[i] = (uint8_t)((cut->sums[i] + 512) >> 10);
    else
        for (size_t i = 0; i < n * CHANNELS; i++)
            cut->values[i] = cut->sums[i] / 1024.0;
}

void tap_crop_bytes(uint8_t *out, const tap_image *frame, const tap_crop *crop, void *scratch)
{
    cutter cut;
    cutter_open(&cut, frame, crop, true, scratch);
    for (size_t v = 0; v < SIDE; v++, out += SIDE * CHANNELS) {
        cutter_row(&cut, v, 0, SIDE);
        memcpy(out, cut.bytes, sizeof cut.bytes);
    }
}

void tap_crop_floats(float *out, const tap_image *frame, const tap_crop *crop, void *scratch)
{
    cutter cut;
    cutter_open(&cut, frame, crop, false, scratch);
    for (size_t v = 0; v < SIDE; v++, out += SIDE * CHANNELS) {
        cutter_row(&cut, v, 0, SIDE);
        for (size_t i = 0; i < (size_t)SIDE * CHANNELS; i++)
            out[i] = cut.whole ? cut.bytes[i] : (float)cut.values[i];
    }
}

static float normalize(double value, size_t channel)
{
    return (float)((value - 255 * mean[channel]) / (255 * deviation[channel]));
}

/* What each grey level becomes. */
typedef struct levels {
    float of[256][CHANNELS];
} levels;

static void fill_levels(levels *table)
{
    for (int i = 0; i < 256; i++)
        for (size_t c = 0; c < CHANNELS; c++)
            table->of[i][c] = normalize(i, c);
}

static void look_up(float *input, const levels *table, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < CHANNELS; c++)
            input[i * CHANNELS + c] = table->of[bytes[i * CHANNELS + c]][c];
}

void tap_crop_input(float *input, const tap_image *frame, const tap_crop *crop, void *scratch)
{
    enum { N = TAP_CROP_COLUMNS };
    cutter cut;
    levels table;
    cutter_open(&cut, frame, crop, false, scratch);
    fill_levels(&table);
    for (size_t v = 0; v < SIDE; v++, input += N * CHANNELS) {
        cutter_row(&cut, v, TAP_CROP_LEFT, N);
        if (cut.whole)
            look_up(input, &table, cut.bytes, N);
        else
            for (size_t i = 0; i < (size_t)N * CHANNELS; i++)
                input[i] = normalize(cut.values[i], i % CHANNELS);
    }
}

tap_status tap_crop_ready(float *input, const tap_image *picture, tap_error *err)
{
    size_t pixel_bytes;
    ptrdiff_t stride;
    TAP_TRY(tap_image_check(picture, &pixel_bytes, &stride, err));
    if (picture->height != SIDE || (picture->width != SIDE && picture->width != TAP_CROP_COLUMNS))
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "a crop is 192 x 256 or 256 x 256 pixels, this picture %u x %u: give the "
                        "hand's box to have it cut",
                        picture->width, picture->height);
    /* A square of the picture's own scale: its columns from `left` on, weights all in one tap. */
    double left = picture->width == SIDE ? 0 : TAP_CROP_LEFT;
    tap_crop crop = {.center_x = 128 - left, .center_y = 128, .side = SIDE};
    tap_crop_input(input, picture, &crop, NULL);
    return TAP_OK;
}
