/* Products on AMX, whose tiles of 16 rows x 64 bytes multiply bfloat16 pairs and 8-bit quads.
 *
 * float32: x = x1 + x2 + x3 exactly but for the last bit, each part a bfloat16 (8 bits of the 24),
 * and so is w. Six of the nine products of parts reach the sum, from x1 w3, x2 w2, x3 w1, x1 w2, x2
 * w1 to x1 w1; the others lie 2^-24 and more below x1 w1, as float32's own rounding does. Sums are
 * kept in float32. The unit is sixteen times as fast as float32 multiply-adds, so six products pay.
 * Henry, Tang, Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For
 * Higher-Precision Computations", ARITH 2019, arXiv:1904.06376. */
#include "product.h"

#include <cpuid.h>
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LANES            16
#define VEC_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define VEC_MAX(a, b)    _mm512_max_ps(a, b)

#include "lanes.inc"

#include "bytes.inc"

enum {
    TILE_ROWS = 16,
    TILE_BYTES = 1024,
    PAIR = 2 * TILE_ROWS,                  /* rows and columns of the four sums */
    WORDS = TILE_BYTES / sizeof(uint16_t), /* of a tile */
    PARTS = 3,
    SPLIT_K = 32,         /* inputs of a tile of bfloat16 */
    SPLIT_BLOCK = 64,     /* inputs whose split weights lie in the first cache level, twice */
    SPLIT_K_BLOCK = 1280, /* 192 rows' form of so many inputs: 1.5 MB */
    SPLIT_LINES = SPLIT_BLOCK / 2 * 2, /* pairs of inputs in two tiles of columns */
    AHEAD = 128,                       /* lines of weights that are fetched before they are split */
    SPLIT_FLOATS = 32,                 /* weights of a line */
    QUADS_K = 64                       /* inputs of a tile of bytes */
};

_Static_assert((int)TAP_PRODUCT_ROWS == (int)PAIR && (int)TAP_PRODUCT_COLUMNS == (int)PAIR,
               "the four sums are 32 x 32");

/* Eight tiles of sixteen rows of 64 bytes. Set and released by every call, since nobody else's use
 * of the thread may find them set. */
static void open_tiles(void)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (size_t i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = TILE_ROWS;
    }
    _tile_loadconfig(&config);
}

/* ---- float32 -------------------------------------------------------------------------------- */

static inline __m512 widen(__m256i halves)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

static inline __m512i round_to_parts(__m512 left, __m512 right)
{
    return (__m512i)_mm512_cvtne2ps_pbh(right, left);
}

/* The three parts of 32 floats, those of left first. */
static inline void split(__m512i parts[PARTS], __m512 left, __m512 right)
{
    for (size_t i = 0; i < PARTS; i++) {
        parts[i] = round_to_parts(left, right);
        left = _mm512_sub_ps(left, widen(_mm512_castsi512_si256(parts[i])));
        right = _mm512_sub_ps(right, widen(_mm512_extracti64x4_epi64(parts[i], 1)));
    }
}

static size_t split_panel_bytes(size_t k)
{
    return k * TAP_PRODUCT_COLUMNS * sizeof(float);
}

static size_t split_row_bytes(size_t k)
{
    return k * PARTS * sizeof(uint16_t);
}

static size_t split_scratch_bytes(size_t k)
{
    (void)k;
    return 2 * (size_t)SPLIT_BLOCK * TAP_PRODUCT_COLUMNS * PARTS * sizeof(uint16_t);
}

/* [k / 2][2 tiles][16 columns][2 inputs], float32: a line of 32 becomes a row of each part's tile.
 */
static void split_pack(void *panel, const float *weight, size_t n, size_t k)
{
    float *to = panel;
    size_t k_padded = tap_product_pad(k, SPLIT_BLOCK);
    for (size_t i = 0; i < k_padded; i++)
        for (size_t column = 0; column < TAP_PRODUCT_COLUMNS; column++)
            to[(i / 2 * 2 + column / TILE_ROWS) * SPLIT_FLOATS + column % TILE_ROWS * 2 + i % 2] =
                i < k && column < n ? weight[column * k + i] : 0;
}

/* [k / 32][m / 16][parts][16 rows][32 inputs] */
static void split_rows(const tap_kernels *kernels, void *form, const float *x, size_t x_row,
                       size_t first, size_t n, size_t m, size_t k)
{
    (void)kernels;
    size_t tiles = tap_product_pad(m, PAIR) / TILE_ROWS, k_padded = tap_product_pad(k, SPLIT_BLOCK);
    for (size_t row = first; row < first + n; row++, x += x_row)
        for (size_t i = 0; i < k_padded; i += SPLIT_K) {
            __m512i parts[PARTS];
            size_t left = k > i ? k - i : 0;
            uint32_t have = left >= SPLIT_K ? UINT32_MAX : (1u << left) - 1;
            split(parts, _mm512_maskz_loadu_ps((__mmask16)have, x + i),
                  _mm512_maskz_loadu_ps((__mmask16)(have >> 16), x + i + 16));
            uint16_t *to =
                (uint16_t *)form +
                ((i / SPLIT_K * tiles + row / TILE_ROWS) * PARTS * TILE_ROWS + row % TILE_ROWS) *
                    SPLIT_K;
            for (size_t part = 0; part < PARTS; part++)
                _mm512_storeu_si512(to + part * WORDS, parts[part]);
        }
}

/* Line i of a block of weights into its row of the three parts' tiles:
 * [block / 32][parts][2 tiles][16 rows][32]. */
static inline void split_line(uint16_t *block, const float *weights, size_t i)
{
    __m512i parts[PARTS];
    size_t pair = i / 2;
    uint16_t *to =
        block + ((pair / TILE_ROWS * PARTS * 2 + i % 2) * TILE_ROWS + pair % TILE_ROWS) * SPLIT_K;
    _mm_prefetch((const char *)(weights + (i + AHEAD) * SPLIT_FLOATS), _MM_HINT_T1);
    _mm_prefetch((const char *)(weights + (i + AHEAD) * SPLIT_FLOATS + 16), _MM_HINT_T1);
    split(parts, _mm512_loadu_ps(weights + i * SPLIT_FLOATS),
          _mm512_loadu_ps(weights + i * SPLIT_FLOATS + 16));
    for (size_t part = 0; part < PARTS; part++)
        _mm512_storeu_si512(to + part * 2 * WORDS, parts[part]);
}

#define LOAD_ROWS(part)                                \
    _tile_loadd(4, rows + (part) * (size_t)WORDS, 64); \
    _tile_loadd(5, rows + (PARTS + (part)) * (size_t)WORDS, 64)
#define LOAD_COLUMNS(part)                                  \
    _tile_loadd(6, block + 2 * (part) * (size_t)WORDS, 64); \
    _tile_loadd(7, block + (2 * (part) + 1) * (size_t)WORDS, 64)
#define MULTIPLY(dot) \
    dot(0, 4, 6);     \
    dot(1, 4, 7);     \
    dot(2, 5, 6);     \
    dot(3, 5, 7)
/* A line of the next block's weights is split while the tiles multiply. */
#define SPLIT_NEXT                            \
    do {                                      \
        if (*done < limit) {                  \
            split_line(next, weights, *done); \
            ++*done;                          \
        }                                     \
    } while (0)

/* The six products of 32 inputs, the smallest first. */
static inline void split_step(const uint16_t *rows, const uint16_t *block, uint16_t *next,
                              const float *weights, size_t *done, size_t limit)
{
    LOAD_ROWS(0);
    LOAD_COLUMNS(2);
    MULTIPLY(_tile_dpbf16ps);
    SPLIT_NEXT;
    LOAD_COLUMNS(1);
    MULTIPLY(_tile_dpbf16ps);
    SPLIT_NEXT;
    LOAD_ROWS(1);
    MULTIPLY(_tile_dpbf16ps);
    SPLIT_NEXT;
    LOAD_COLUMNS(0);
    MULTIPLY(_tile_dpbf16ps);
    SPLIT_NEXT;
    LOAD_ROWS(2);
    MULTIPLY(_tile_dpbf16ps);
    SPLIT_NEXT;
    LOAD_ROWS(0);
    MULTIPLY(_tile_dpbf16ps);
    SPLIT_NEXT;
}

#define EACH_SUM(call, at, row)            \
    call(0, at, row);                      \
    call(1, (at) + TILE_ROWS, row);        \
    call(2, (at) + TILE_ROWS * PAIR, row); \
    call(3, (at) + TILE_ROWS * PAIR + TILE_ROWS, row)

static inline void clear_sums(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

/* Weights are split a block ahead. */
static void split_multiply(const tap_multiply *multiply)
{
    enum {
        ROW_BYTES = TAP_PRODUCT_COLUMNS * sizeof(float),
        BLOCK_WORDS = SPLIT_LINES * PARTS * 32
    };
    const float *weights = (const float *)multiply->panel + multiply->first * TAP_PRODUCT_COLUMNS;
    uint16_t *block = multiply->scratch, *next = block + BLOCK_WORDS;
    size_t tiles = tap_product_pad(multiply->m, PAIR) / TILE_ROWS;
    size_t steps = tiles / 2 * (SPLIT_BLOCK / SPLIT_K), end = multiply->first + multiply->n;
    open_tiles();
    for (size_t i = 0; i < SPLIT_LINES; i++)
        split_line(block, weights, i);
    for (size_t first = multiply->first; first < end; first += SPLIT_BLOCK) {
        bool more = first + SPLIT_BLOCK < end;
        size_t done = 0, step = 0;
        weights += SPLIT_LINES * SPLIT_FLOATS;
        for (size_t tile = 0; tile < tiles; tile += 2) {
            float *sums = multiply->c + tile * TILE_ROWS * PAIR;
            if (first == 0)
                clear_sums();
            else {
                EACH_SUM(_tile_loadd, sums, ROW_BYTES);
            }
            for (size_t i = 0; i < SPLIT_BLOCK / SPLIT_K; i++) {
                const uint16_t *rows = (const uint16_t *)multiply->form +
                                       ((first / SPLIT_K + i) * tiles + tile) * PARTS * WORDS;
                size_t limit = more ? ++step * SPLIT_LINES / steps : 0;
                split_step(rows, block + i * PARTS * 2 * WORDS, next, weights, &done, limit);
            }
            EACH_SUM(_tile_stored, sums, ROW_BYTES);
        }
        for (; more && done < SPLIT_LINES; done++)
            split_line(next, weights, done);
        uint16_t *other = block;
        block = next;
        next = other;
    }
    _tile_release();
}

const tap_product tap_product_amx_f32 = {
    .name = "f32 in 3 x bf16",
    .precision = "f32",
    .isa = "amx",
    .k_block = SPLIT_K_BLOCK,
    .k_step = SPLIT_BLOCK,
    .panel_bytes = split_panel_bytes,
    .row_bytes = split_row_bytes,
    .scratch_bytes = split_scratch_bytes,
    .pack = split_pack,
    .rows = split_rows,
    .multiply = split_multiply,
};

/* ---- 8 bits --------------------------------------------------------------------------------- */

static void quantize(tap_byte_row *row, uint8_t *bytes, const float *x, size_t k, size_t k_padded)
{
    quantize_levels(row, bytes, x, k, k_padded, 255);
}

/* A panel's line of four inputs holds both tiles' columns; a block of inputs whose weights stay in
 * the first cache level goes through all rows. */
static void dot(int32_t *restrict c, const uint8_t *restrict rows, size_t row_bytes,
                const int8_t *restrict panel, size_t m, size_t k)
{
    enum {
        BLOCK = 640,
        LINE = 4 * TAP_BYTE_COLUMNS,
        SUM_BYTES = TAP_BYTE_COLUMNS * sizeof(int32_t)
    };
    open_tiles();
    for (size_t first = 0; first < k; first += BLOCK) {
        size_t end = k - first < BLOCK ? k : first + BLOCK;
        for (size_t row = 0; row < m; row += PAIR) {
            int32_t *sums = c + row * TAP_BYTE_COLUMNS;
            const uint8_t *from = rows + row * row_bytes;
            if (first == 0)
                clear_sums();
            else {
                EACH_SUM(_tile_loadd, sums, SUM_BYTES);
            }
            for (size_t i = first; i < end; i += QUADS_K) {
                const int8_t *weights = panel + i / 4 * LINE;
                _tile_loadd(4, from + i, row_bytes);
                _tile_loadd(6, weights, LINE);
                _tile_loadd(7, weights + LINE / 2, LINE);
                _tile_loadd(5, from + TILE_ROWS * row_bytes + i, row_bytes);
                MULTIPLY(_tile_dpbusd);
            }
            EACH_SUM(_tile_stored, sums, SUM_BYTES);
        }
    }
    _tile_release();
}

static const tap_bytes_kernels bytes = {quantize, dot, scale_sums};

/* ---- the table ------------------------------------------------------------------------------ */

/* Linux gives a process the tiles' registers only when it asks. */
bool tap_amx_usable(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18, LEAF = 7 };
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25 }; /* of EDX */
    const unsigned wanted = AMX_BF16 | AMX_TILE | AMX_INT8;
    unsigned a, b, c, d;
    if (!__builtin_cpu_supports("avx512bf16") || !__get_cpuid_count(LEAF, 0, &a, &b, &c, &d))
        return false;
    return (d & wanted) == wanted &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

const tap_kernels tap_kernels_amx = {.isa = "amx", .base = &tap_kernels_vnni, .bytes = &bytes};
