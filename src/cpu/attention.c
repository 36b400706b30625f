/* Attention, a head at a time: keys and values are packed as the matrix product wants them, then a
 * few queries at a time get their scores, softmax and sums while those lie in the first cache
 * levels. The whole matrix of scores is never stored. */
#include "program.h"

#include <math.h>
#include <string.h>

enum { QUERIES = 24 }; /* at a time: a multiple of every kernel's row block but NEON's */

static size_t pad(size_t n)
{
    return (n + TAP_PANEL - 1) / TAP_PANEL * TAP_PANEL;
}

/* Sizes of one head's work, in floats, in the order in which they lie in a worker's memory. */
struct sizes {
    size_t d, n_keys, d_padded, keys_padded;
    size_t keys, values, scores, sums, total;
};

static struct sizes measure(const tap_step *step)
{
    struct sizes s = {.d = step->out.channels / step->n_heads,
                      .n_keys = step->second >= 0 ? step->second_shape.width : step->in.width};
    s.d_padded = pad(s.d);
    s.keys_padded = pad(s.n_keys);
    s.keys = s.values = s.keys_padded * s.d_padded;
    s.scores = QUERIES * s.keys_padded;
    s.sums = QUERIES * s.d_padded;
    s.total = s.keys + s.values + s.scores + s.sums;
    return s;
}

bool tap_attention_plan(tap_step *step)
{
    enum { MOST = 1 << 24 }; /* with it the products above stay far below SIZE_MAX */
    struct sizes s = measure(step);
    return s.d <= MOST && s.n_keys <= MOST &&
           tap_size_mul(s.total, sizeof(float), &step->worker_bytes);
}

/* Keys as columns, [keys / panel][d][panel], over the square root of d; values as rows,
 * [d / panel][keys][panel]. What is padded is 0. */
static void pack_head(float *keys, float *values, const float *k, const float *v, size_t row,
                      const struct sizes *s)
{
    const float scale = (float)(1 / sqrt((double)s->d));
    for (size_t j = 0; j < s->keys_padded; j++)
        for (size_t i = 0; i < s->d; i++)
            keys[(j / TAP_PANEL * s->d + i) * TAP_PANEL + j % TAP_PANEL] =
                j < s->n_keys ? k[j * row + i] * scale : 0;
    for (size_t i = 0; i < s->d_padded; i++)
        for (size_t j = 0; j < s->n_keys; j++)
            values[(i / TAP_PANEL * s->n_keys + j) * TAP_PANEL + i % TAP_PANEL] =
                i < s->d ? v[j * row + i] : 0;
}

/* One head of one sequence. */
static void head_item(void *context, size_t item, size_t worker)
{
    const tap_step_run *run = context;
    const tap_step *step = run->step;
    const struct sizes s = measure(step);
    size_t inner = step->out.channels, sequence = item / step->n_heads;
    size_t channel = item % step->n_heads * s.d, m = step->in.width;
    bool apart = step->second >= 0;
    size_t row = apart ? step->second_shape.channels : step->in.channels;
    const float *other = (apart ? run->second : run->x) + sequence * s.n_keys * row +
                         (apart ? step->second_channel : inner) + channel;
    float *keys = tap_step_worker(run, worker), *values = keys + s.keys;
    float *scores = values + s.values, *sums = scores + s.scores;
    pack_head(keys, values, other, other + inner, row, &s);
    for (size_t first = 0; first < m; first += QUERIES) {
        size_t n = m - first < QUERIES ? m - first : QUERIES, at = sequence * m + first;
        const float *q = run->x + at * step->in.channels + channel;
        run->kernels->gemm(scores, s.keys_padded, q, step->in.channels, keys, n, s.d,
                           s.keys_padded);
        for (size_t i = 0; i < n; i++)
            run->kernels->softmax(scores + i * s.keys_padded, scores + i * s.keys_padded, s.n_keys);
        run->kernels->gemm(sums, s.d_padded, scores, s.keys_padded, values, n, s.n_keys,
                           s.d_padded);
        for (size_t i = 0; i < n; i++)
            memcpy(run->y + (at + i) * inner + channel, sums + i * s.d_padded, s.d * sizeof(float));
    }
}

void tap_attention_run(const tap_step_run *run, tap_pool *pool)
{
    tap_step_run copy = *run;
    tap_pool_run(pool, run->step->in.height * run->step->n_heads, head_item, &copy);
}
