#include "models.h"

#include <string.h>

enum {
    MAX_RADIUS = 32,
    MAX_WINDOW = 2 * MAX_RADIUS + 1,
    LINE = TAP_ALIGN / sizeof(float), /* rows of scratch begin at cache lines */
    /* A score is a float32 in (0, infinity): 31 bits, sorted in three digits. */
    LOW_BITS = 10,
    LOW_BINS = 1 << LOW_BITS,
    HIGH_SHIFT = 2 * LOW_BITS,
    HIGH_BINS = 1 << (31 - HIGH_SHIFT)
};

/* ---- scratch ------------------------------------------------------------------------------- */

struct candidate {
    uint32_t index; /* y * width + x */
    float score;
};

/* For n pixels, in bytes from the start:
 *   points    12 n  at last the answer; before, candidates (8 n) and the plane `keep` (4 n)
 *   sorted     8 n  candidates in order; before, two planes of n floats
 *   rows            the running maximum's rows */
struct layout {
    size_t sorted, rows, bytes;
};

static size_t padded(size_t n)
{
    return (n + LINE - 1) / LINE * LINE;
}

/* Three rows with a radius of zeros at either side, a row of prefixes, a window of rows. */
static bool make_layout(struct layout *layout, size_t width, size_t height)
{
    size_t n, points, sorted, wide, rows, block;
    if (!tap_size_mul(width, height, &n) || n > UINT32_MAX ||
        !tap_size_add(width, 2 * MAX_RADIUS + LINE, &wide))
        return false;
    if (!tap_size_mul(n, sizeof(tap_point), &points) ||
        !tap_size_align(points, TAP_ALIGN, &layout->sorted) ||
        !tap_size_mul(n, sizeof(struct candidate), &sorted) ||
        !tap_size_align(sorted, TAP_ALIGN, &sorted) ||
        !tap_size_add(layout->sorted, sorted, &layout->rows))
        return false;
    return tap_size_mul(padded(wide), 3 * sizeof(float), &rows) &&
           tap_size_mul(padded(width), (MAX_WINDOW + 1) * sizeof(float), &block) &&
           tap_size_add(rows, block, &rows) && tap_size_add(layout->rows, rows, &layout->bytes) &&
           layout->bytes <= PTRDIFF_MAX;
}

bool tap_points_scratch_bytes(size_t width, size_t height, size_t *bytes)
{
    struct layout layout;
    if (!make_layout(&layout, width, height))
        return false;
    *bytes = layout.bytes;
    return true;
}

/* ---- the running maximum ------------------------------------------------------------------- */

/* A comparison instead of fmaxf: it is the vector instruction's own rule, and scores are numbers.
 */
static void rows_maximum(float *restrict out, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = a[i] > b[i] ? a[i] : b[i];
}

static void row_raise(float *restrict out, const float *restrict a, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = a[i] > out[i] ? a[i] : out[i];
}

struct window {
    size_t width, height, radius;
    float *in;         /* a row between two runs of `radius` zeros */
    float *runs[2];    /* maxima over 2^k pixels */
    float *prefix;     /* maxima from the block's first row on */
    float *block;      /* [2 radius + 1] rows */
    size_t row_stride; /* of block */
};

static void window_init(struct window *window, size_t width, size_t height, size_t radius,
                        float *rows)
{
    size_t wide = padded(width + 2 * radius);
    *window = (struct window){.width = width,
                              .height = height,
                              .radius = radius,
                              .in = rows,
                              .runs = {rows + wide, rows + 2 * wide},
                              .prefix = rows + 3 * wide,
                              .block = rows + 3 * wide + padded(width),
                              .row_stride = padded(width)};
    memset(window->in, 0, wide * sizeof(float));
}

static float *block_row(const struct window *window, size_t i)
{
    return window->block + i * window->row_stride;
}

/* out[x] = max of plane[y][x - radius .. x + radius], by runs of 1, 2, 4, ... pixels, the last two
 * of which overlap. y counts from `radius` rows above the picture. Outside is 0, which no score
 * is below. */
static void across(float *out, const struct window *window, const float *plane, size_t y)
{
    size_t length = 2 * window->radius + 1, n = window->width + 2 * window->radius, run = 1;
    if (y < window->radius || y - window->radius >= window->height) {
        memset(out, 0, window->width * sizeof(float));
        return;
    }
    memcpy(window->in + window->radius, plane + (y - window->radius) * window->width,
           window->width * sizeof(float));
    const float *from = window->in;
    for (size_t turn = 0; 2 * run <= length; turn ^= 1, run *= 2) {
        n -= run;
        rows_maximum(window->runs[turn], from, from + run, n);
        from = window->runs[turn];
    }
    rows_maximum(out, from, from + length - run, window->width);
}

/* Row i of the block becomes the maximum of its rows i..last. */
static void accumulate_block(const struct window *window)
{
    for (size_t i = 2 * window->radius; i-- > 0;)
        row_raise(block_row(window, i), block_row(window, i + 1), window->width);
}

/* out[y][x] = max over the (2 radius + 1)^2 window around (x, y), cut at the picture's edge.
 * Down the columns by van Herk's method (1992): a window of as many rows as a block has is the end
 * of one block and the beginning of the next, three comparisons a pixel whatever the radius. */
static void window_maximum(float *out, const float *plane, const struct window *window)
{
    size_t length = 2 * window->radius + 1, width = window->width, height = window->height;
    for (size_t i = 0; i < length; i++)
        across(block_row(window, i), window, plane, i);
    accumulate_block(window);
    for (size_t base = 0; base < height; base += length) {
        size_t n = height - base < length ? height - base : length; /* rows to write */
        memcpy(out + base * width, block_row(window, 0), width * sizeof(float));
        memset(window->prefix, 0, width * sizeof(float));
        for (size_t i = 0; i + 1 < n; i++) {
            float *row = block_row(window, i); /* its suffix has been used */
            across(row, window, plane, base + length + i);
            row_raise(window->prefix, row, width);
            rows_maximum(out + (base + i + 1) * width, block_row(window, i + 1), window->prefix,
                         width);
        }
        if (n == length) {
            across(block_row(window, n - 1), window, plane, base + length + n - 1);
            accumulate_block(window);
        }
    }
}

/* ---- non-maximum suppression --------------------------------------------------------------- */

/* Hugging Face's flavour. peaks[i] becomes the score of what stays, -1 elsewhere. Two more rounds
 * look for maxima outside the windows of what is kept. A pixel of score 0 may join unnoticed in
 * theirs; it passes no threshold, and all it could suppress is 0 already. */
static void suppress_iteratively(float *restrict peaks, float *restrict rest, float *restrict keep,
                                 const float *restrict scores, const struct window *window)
{
    /* Each value is read before the choice, so that the compiler may choose with vectors. */
    size_t n = window->width * window->height;
    window_maximum(peaks, scores, window);
    for (size_t i = 0; i < n; i++)
        keep[i] = scores[i] == peaks[i] ? 1.0f : 0.0f;
    for (int round = 0; round < 2; round++) {
        window_maximum(peaks, keep, window);
        for (size_t i = 0; i < n; i++) {
            float score = scores[i];
            rest[i] = peaks[i] > 0 ? 0.0f : score;
        }
        window_maximum(peaks, rest, window);
        for (size_t i = 0; i < n; i++) {
            float fresh = rest[i] == peaks[i] ? rest[i] : 0.0f, kept = keep[i];
            keep[i] = fresh > 0 ? 1.0f : kept;
        }
    }
    for (size_t i = 0; i < n; i++) {
        float score = scores[i];
        peaks[i] = keep[i] > 0 ? score : -1.0f;
    }
}

/* ---- candidates ---------------------------------------------------------------------------- */

/* Pixels within the border that equal their peak and pass the threshold, row by row. Most runs of
 * RUN pixels have none, which vectors find out quickly. */
static size_t collect(struct candidate *candidates, const float *scores, const float *peaks,
                      size_t width, size_t height, size_t border, float threshold)
{
    enum { RUN = 32 };
    size_t n = 0;
    if (width <= 2 * border || height <= 2 * border)
        return 0;
    for (size_t y = border; y < height - border; y++) {
        const float *row = scores + y * width, *peak = peaks + y * width;
        for (size_t x = border; x < width - border; x += RUN) {
            size_t end = x + RUN < width - border ? x + RUN : width - border;
            int any = 0;
            for (size_t i = x; i < end; i++)
                any |= (row[i] == peak[i]) & (row[i] > threshold);
            for (size_t i = x; any && i < end; i++) {
                candidates[n] = (struct candidate){(uint32_t)(y * width + i), row[i]};
                n += (row[i] == peak[i]) & (row[i] > threshold);
            }
        }
    }
    return n;
}

/* Larger floats above 0 have larger bits. */
static uint32_t score_bits(float score)
{
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    return bits;
}

/* Drops what surely lies behind the first `limit`: candidates whose leading bits are below those
 * of that many others. The order stays. */
static size_t discard_low(struct candidate *candidates, size_t n, size_t limit)
{
    uint32_t counts[HIGH_BINS] = {0};
    for (size_t i = 0; i < n; i++)
        counts[score_bits(candidates[i].score) >> HIGH_SHIFT]++;
    uint32_t least = HIGH_BINS;
    for (size_t above = 0; least > 0 && above < limit;)
        above += counts[--least];
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        candidates[kept] = candidates[i];
        kept += score_bits(candidates[i].score) >> HIGH_SHIFT >= least;
    }
    return kept;
}

/* One pass of the radix sort: stable, larger digits first. */
static void sort_digit(struct candidate *restrict to, const struct candidate *restrict from,
                       size_t n, uint32_t shift, uint32_t n_bins)
{
    uint32_t starts[HIGH_BINS] = {0}, next = 0;
    for (size_t i = 0; i < n; i++)
        starts[score_bits(from[i].score) >> shift & (n_bins - 1)]++;
    for (uint32_t bin = n_bins; bin-- > 0;) {
        uint32_t count = starts[bin];
        starts[bin] = next;
        next += count;
    }
    for (size_t i = 0; i < n; i++)
        to[starts[score_bits(from[i].score) >> shift & (n_bins - 1)]++] = from[i];
}

void tap_points_select(const tap_point **points, size_t *n, const float *scores, size_t width,
                       size_t height, const tap_superpoint_options *options, void *scratch)
{
    struct layout layout;
    unsigned char *base = scratch;
    *points = scratch;
    *n = 0;
    if (options->max_keypoints == 0 || !make_layout(&layout, width, height))
        return;
    size_t n_pixels = width * height;
    struct candidate *candidates = scratch, *sorted = (void *)(base + layout.sorted);
    float *planes = (void *)(base + layout.sorted);
    const float *peaks = scores;
    if (options->nms_radius > 0) {
        struct window window;
        window_init(&window, width, height, options->nms_radius, (void *)(base + layout.rows));
        if (options->nms == TAP_NMS_ITERATIVE)
            suppress_iteratively(planes, planes + n_pixels,
                                 (void *)(base + n_pixels * sizeof(struct candidate)), scores,
                                 &window);
        else
            window_maximum(planes, scores, &window);
        peaks = planes;
    }
    size_t found = collect(candidates, scores, peaks, width, height, options->border,
                           options->keypoint_threshold);
    size_t limit = options->max_keypoints < 0 ? found : (size_t)options->max_keypoints;
    if (limit < found)
        found = discard_low(candidates, found, limit);
    sort_digit(sorted, candidates, found, 0, LOW_BINS);
    sort_digit(candidates, sorted, found, LOW_BITS, LOW_BINS);
    sort_digit(sorted, candidates, found, HIGH_SHIFT, HIGH_BINS);
    *n = found < limit ? found : limit;
    tap_point *answer = scratch;
    for (size_t i = 0; i < *n; i++)
        answer[i] = (tap_point){.x = (uint32_t)(sorted[i].index % width),
                                .y = (uint32_t)(sorted[i].index / width),
                                .score = sorted[i].score};
}
