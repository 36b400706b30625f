/* One level of Strassen's algorithm in Winograd's form (Strassen, Gaussian elimination is not
 * optimal, 1969; Winograd, 1971): seven products of halves for eight, an eighth less work than any
 * plain product, for float32 and half-float weights.
 *
 * Rows, inputs and columns are each cut in two: of every 32 rows the first and the last 16, of a
 * block of inputs the first and the last half, of a panel its left and right 16 columns:
 *   S1 = A21 + A22  S2 = S1 - A11  S3 = A11 - A21  S4 = A12 - S2
 *   T1 = B12 - B11  T2 = B22 - T1  T3 = B22 - B12  T4 = T2 - B21
 *   P1 = A11 B11  P2 = A12 B21  P3 = S4 B22  P4 = A22 T4  P5 = S1 T1  P6 = S2 T2  P7 = S3 T3
 *   C11 = P1 + P2            C12 = P1 + P6 + P5 + P3
 *   C21 = P1 + P6 + P7 - P4  C22 = P1 + P6 + P7 + P5
 * with A [2][2] of rows and inputs, B of inputs and columns. The rows' sums are their form, made
 * once a layer; the weights' are made a block at a time into the cache, so that packed weights
 * take no more memory than plain ones. A result depends on the 32 rows that it is among and on no
 * others; rows that may not depend on each other are multiplied plainly. */
#include "product.h"

#include "core/core.h"

#include <string.h>

enum {
    BLOCK = 320, /* inputs: the form of 192 rows is 420 KiB then, for the second cache level */
    HALF_BLOCK = BLOCK / 2,
    HALF_ROWS = TAP_PRODUCT_ROWS / 2,
    COLUMNS = TAP_PANEL,
    QUAD = HALF_BLOCK * COLUMNS, /* floats of a quarter of a block of a panel */
    PART = 48,                   /* half-rows whose seven products are held at a time */
    STEP = 12,                   /* of them at once, a multiple of most kernels' rows */
    N_PRODUCTS = 7,
    LINE = 64
};

_Static_assert((int)TAP_PRODUCT_COLUMNS == 2 * (int)COLUMNS,
               "a panel's halves are kernels' panels");

/* A worker's memory. */
struct memory {
    float sums[4 * QUAD];  /* T1 to T4 */
    float quads[4 * QUAD]; /* widened weights */
    float products[N_PRODUCTS][PART * COLUMNS];
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t scratch_bytes(size_t k)
{
    (void)k;
    return sizeof(struct memory);
}

/* Half of seven quarters of a row. */
static size_t row_bytes(size_t k)
{
    return N_PRODUCTS * k;
}

_Static_assert(sizeof(float) == 4, "seven quarters of four bytes");

/* ---- weights: [block][B11, B12, B21, B22][inputs / 2][16] ----------------------------------- */

static size_t f32_panel_bytes(size_t k)
{
    return k * TAP_PRODUCT_COLUMNS * sizeof(float);
}

static size_t f16_panel_bytes(size_t k)
{
    return k * TAP_PRODUCT_COLUMNS * sizeof(uint16_t);
}

/* Weights in the order of the panel; element 0 of the panel is number 0. */
typedef void put_fn(void *panel, size_t i, float weight);

static void put_f32(void *panel, size_t i, float weight)
{
    ((float *)panel)[i] = weight;
}

static void put_f16(void *panel, size_t i, float weight)
{
    ((uint16_t *)panel)[i] = tap_f32_to_f16(weight);
}

static void pack(void *panel, const float *weight, size_t n, size_t k, put_fn *put)
{
    size_t k_padded = tap_product_pad(k, 2), at = 0;
    for (size_t first = 0; first < k_padded; first += BLOCK) {
        size_t half = smaller(BLOCK, k_padded - first) / 2;
        for (size_t quad = 0; quad < 4; quad++)
            for (size_t i = first + quad / 2 * half, end = i + half; i < end; i++)
                for (size_t j = 0; j < COLUMNS; j++) {
                    size_t column = quad % 2 * COLUMNS + j;
                    put(panel, at++, column < n && i < k ? weight[column * k + i] : 0);
                }
    }
}

static void f32_pack(void *panel, const float *weight, size_t n, size_t k)
{
    pack(panel, weight, n, k, put_f32);
}

static void f16_pack(void *panel, const float *weight, size_t n, size_t k)
{
    pack(panel, weight, n, k, put_f16);
}

/* ---- rows: [block][A11, A12, S4, A22, S1, S2, S3][half-row][inputs / 2] --------------------- */

/* One row's inputs of a block; zeros past the rows and past k. */
static void read_row(float *to, const float *x, size_t n, size_t padded)
{
    if (n > 0)
        memcpy(to, x, n * sizeof(float));
    memset(to + n, 0, (padded - n) * sizeof(float));
}

/* The operands of a row and its partner. */
static void sum_pair(float *restrict to, size_t operand, const float *restrict low,
                     const float *restrict high, size_t half)
{
    for (size_t i = 0; i < half; i++) {
        float a11 = low[i], a12 = low[half + i], a21 = high[i], a22 = high[half + i];
        float s1 = a21 + a22, s2 = s1 - a11;
        to[i] = a11;
        to[operand + i] = a12;
        to[2 * operand + i] = a12 - s2;
        to[3 * operand + i] = a22;
        to[4 * operand + i] = s1;
        to[5 * operand + i] = s2;
        to[6 * operand + i] = a11 - a21;
    }
}

static void rows(const tap_kernels *kernels, void *form, const float *x, size_t x_row, size_t first,
                 size_t n, size_t m, size_t k)
{
    size_t k_padded = tap_product_pad(k, 2), half_rows = tap_product_pad(m, TAP_PRODUCT_ROWS) / 2;
    float *to = (float *)form;
    float low[BLOCK], high[BLOCK];
    (void)kernels;
    for (size_t at = 0; at < k_padded; at += BLOCK) {
        size_t padded = smaller(BLOCK, k_padded - at), inputs = smaller(padded, k - at);
        size_t operand = half_rows * (padded / 2);
        for (size_t i = 0; i < HALF_ROWS; i++) {
            const float *row = x + i * x_row + at;
            read_row(low, row, i < n ? inputs : 0, padded);
            read_row(high, row + HALF_ROWS * x_row, i + HALF_ROWS < n ? inputs : 0, padded);
            sum_pair(to + (first / 2 + i) * (padded / 2), operand, low, high, padded / 2);
        }
        to += N_PRODUCTS * operand;
    }
}

/* ---- products ------------------------------------------------------------------------------- */

/* The block's weights as floats, and what is next to be fetched. */
struct block {
    const float *quads;         /* [4][half][16] */
    size_t first, inputs, half; /* half: with padding */
    const char *fetch;          /* the next block's weights, as they are stored */
    size_t n_fetch;             /* bytes */
};

/* The memory's latency passes while this block is multiplied. */
static void fetch_some(struct block *block, size_t bytes)
{
    for (bytes = smaller(bytes, block->n_fetch); bytes >= LINE; bytes -= LINE) {
        __builtin_prefetch(block->fetch, 0, 2);
        block->fetch += LINE;
        block->n_fetch -= LINE;
    }
}

static void multiply_pairs(const tap_multiply *multiply, struct memory *memory, struct block *block)
{
    size_t half_rows = tap_product_pad(multiply->m, TAP_PRODUCT_ROWS) / 2;
    size_t operand = half_rows * block->half;
    const float *form = (const float *)multiply->form + N_PRODUCTS * half_rows * (block->first / 2);
    size_t quad = block->half * COLUMNS;
    const float *t = memory->sums, *b = block->quads;
    const float *const weights[N_PRODUCTS] = {b, b + 2 * quad, b + 3 * quad, t + 3 * quad,
                                              t, t + quad,     t + 2 * quad};
    size_t steps = N_PRODUCTS * ((half_rows + STEP - 1) / STEP);
    size_t fetch = tap_product_pad(block->n_fetch / steps + 1, LINE);
    multiply->kernels->strassen_weights(memory->sums, block->quads, quad);
    for (size_t first = 0; first < half_rows; first += PART) {
        size_t part = smaller(PART, half_rows - first);
        for (size_t p = 0; p < N_PRODUCTS; p++)
            for (size_t i = 0; i < part; i += STEP) {
                fetch_some(block, fetch);
                multiply->kernels->gemm(memory->products[p] + i * COLUMNS, COLUMNS,
                                        form + p * operand + (first + i) * block->half, block->half,
                                        weights[p], smaller(STEP, part - i), block->half, COLUMNS);
            }
        for (size_t i = 0; i < part; i += HALF_ROWS)
            multiply->kernels->strassen_combine(multiply->c + 2 * (first + i) * TAP_PRODUCT_COLUMNS,
                                                memory->products[0] + i * COLUMNS, PART * COLUMNS,
                                                block->first > 0);
    }
}

/* c (+)= A1 B1 + A2 B2, by rows that know nothing of each other. */
static void multiply_rows(const tap_multiply *multiply, struct memory *memory, struct block *block)
{
    size_t low = smaller(block->half, block->inputs), high = block->inputs - low;
    size_t quad = block->half * COLUMNS;
    for (size_t first = 0; first < multiply->m; first += PART) {
        size_t part = smaller(PART, multiply->m - first);
        const float *x = multiply->x + first * multiply->x_row + block->first;
        for (size_t side = 0; side < 2; side++) {
            float *p1 = memory->products[0], *p2 = memory->products[1];
            multiply->kernels->gemm(p1, COLUMNS, x, multiply->x_row, block->quads + side * quad,
                                    part, low, COLUMNS);
            multiply->kernels->gemm(p2, COLUMNS, x + low, multiply->x_row,
                                    block->quads + (2 + side) * quad, part, high, COLUMNS);
            for (size_t i = 0; i < part; i++) {
                float *c = multiply->c + (first + i) * TAP_PRODUCT_COLUMNS + side * COLUMNS;
                for (size_t j = 0; j < COLUMNS; j++) {
                    float sum = p1[i * COLUMNS + j] + p2[i * COLUMNS + j];
                    c[j] = block->first > 0 ? c[j] + sum : sum;
                }
            }
        }
    }
}

/* One block; its weights in the next panel are fetched meanwhile. */
static void multiply_block(const tap_multiply *multiply, size_t weight_bytes)
{
    struct memory *memory = multiply->scratch;
    const char *at =
        (const char *)multiply->panel + multiply->first * TAP_PRODUCT_COLUMNS * weight_bytes;
    size_t n = multiply->n * TAP_PRODUCT_COLUMNS;
    struct block block = {.quads = (const float *)(const void *)at,
                          .first = multiply->first,
                          .inputs = smaller(multiply->n, multiply->inputs - multiply->first),
                          .half = multiply->n / 2,
                          .fetch = at + multiply->k * TAP_PRODUCT_COLUMNS * weight_bytes,
                          .n_fetch = n * weight_bytes};
    if (weight_bytes != sizeof(float)) {
        multiply->kernels->widen(memory->quads, (const uint16_t *)(const void *)at, n);
        block.quads = memory->quads;
    }
    if (multiply->paired)
        multiply_pairs(multiply, memory, &block);
    else
        multiply_rows(multiply, memory, &block);
}

static void f32_multiply(const tap_multiply *multiply)
{
    multiply_block(multiply, sizeof(float));
}

static void f16_multiply(const tap_multiply *multiply)
{
    multiply_block(multiply, sizeof(uint16_t));
}

const tap_product tap_product_strassen_f32 = {
    .name = "f32, one Strassen level",
    .precision = "f32",
    .k_step = 2,
    .k_block = BLOCK,
    .pairs = true,
    .panel_bytes = f32_panel_bytes,
    .row_bytes = row_bytes,
    .scratch_bytes = scratch_bytes,
    .pack = f32_pack,
    .rows = rows,
    .multiply = f32_multiply,
};

const tap_product tap_product_strassen_f16 = {
    .name = "f16 weights, one Strassen level",
    .precision = "f16",
    .k_step = 2,
    .k_block = BLOCK,
    .pairs = true,
    .panel_bytes = f16_panel_bytes,
    .row_bytes = row_bytes,
    .scratch_bytes = scratch_bytes,
    .pack = f16_pack,
    .rows = rows,
    .multiply = f16_multiply,
};
