#include "core.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

/* Large blocks ask for huge pages, where the system leaves that to programs: the network's memory
 * then takes tens of address translations, not ten thousand. It's advice, so it can't fail. */
void *tap_alloc(size_t count, size_t size)
{
    size_t bytes;
    if (!tap_size_mul(count, size, &bytes) || !tap_size_align(bytes, TAP_ALIGN, &bytes) ||
        bytes > PTRDIFF_MAX)
        return NULL;
    if (bytes < HUGE_PAGE)
        return aligned_alloc(TAP_ALIGN, bytes == 0 ? TAP_ALIGN : bytes);
    void *block = NULL;
    if (posix_memalign(&block, HUGE_PAGE, bytes) != 0)
        return NULL;
    madvise(block, bytes & ~((size_t)HUGE_PAGE - 1), MADV_HUGEPAGE);
    return block;
}

tap_status tap_arena_create(tap_arena *arena, size_t capacity, tap_error *err)
{
    *arena = (tap_arena){.base = tap_alloc(capacity, 1), .capacity = capacity};
    if (arena->base == NULL) {
        arena->capacity = 0;
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory: an arena of %zu bytes", capacity);
    }
    return TAP_OK;
}

void *tap_arena_take(tap_arena *arena, size_t count, size_t size)
{
    size_t bytes, end;
    if (!tap_size_mul(count, size, &bytes) || !tap_size_align(bytes, TAP_ALIGN, &bytes) ||
        !tap_size_add(arena->used, bytes, &end) || end > arena->capacity)
        return NULL;
    void *piece = arena->base + arena->used;
    arena->used = end;
    return piece;
}

void tap_arena_reset(tap_arena *arena)
{
    arena->used = 0;
}

void tap_arena_free(tap_arena *arena)
{
    free(arena->base);
    *arena = (tap_arena){0};
}

float tap_bf16_to_f32(uint16_t bf16)
{
    uint32_t bits = (uint32_t)bf16 << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float tap_f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = (half >> 10) & 0x1f, mantissa = half & 0x3ff, bits;
    if (exponent == 0x1f) { /* infinity, NaN */
        bits = sign | 0x7f800000u | mantissa << 13;
    } else if (exponent != 0) {
        bits = sign | (exponent + 112) << 23 | mantissa << 13;
    } else { /* zero and subnormals: mantissa * 2^-24, exact in float */
        float value = (float)mantissa * 0x1p-24f;
        memcpy(&bits, &value, sizeof bits);
        bits |= sign;
    }
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Three readings of the magnitude, of which one is right, so that a compiler can do several values
 * at once: 256 of them belong to every keypoint that is served. */
static inline uint16_t to_half(float value)
{
    uint32_t bits, low_bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t magnitude = bits & 0x7fffffffu;
    /* 13 bits fall off, half of them rounds up, and a tie to even. A carry out of the mantissa runs
     * into the exponent, as it should: from 65520 on into infinity's. */
    uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    /* Below 2^-14 the unit in the last place stays 2^-24, which is that of 0.5: the addition rounds
     * as it must. */
    float low;
    memcpy(&low, &magnitude, sizeof low);
    low += 0.5f;
    memcpy(&low_bits, &low, sizeof low_bits);
    uint32_t subnormal = low_bits - 0x3f000000u;
    /* Infinity, or a NaN that stays quiet and keeps what fits of its payload. */
    uint32_t special = magnitude > 0x7f800000u ? 0x7e00 | (magnitude >> 13 & 0x3ff) : 0x7c00;
    uint32_t half = magnitude < 0x38800000u    ? subnormal
                    : magnitude >= 0x47800000u ? special
                                               : normal;
    return (uint16_t)(bits >> 16 & 0x8000) | (uint16_t)half;
}

uint16_t tap_f32_to_f16(float value)
{
    return to_half(value);
}

void tap_f32_to_f16_row(uint16_t *halves, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        halves[i] = to_half(values[i]);
}
