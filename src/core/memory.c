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

uint16_t tap_f32_to_f16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u) /* NaN: keep it quiet, keep what fits of the payload */
        return (uint16_t)(sign | 0x7e00 | (bits >> 13 & 0x3ff));
    if (bits >= 0x477ff000u) /* rounds to 65536 or more: infinity */
        return sign | 0x7c00;
    if (bits < 0x33000001u) /* at most half of the least subnormal: zero */
        return sign;
    int32_t exponent = (int32_t)(bits >> 23) - 127;
    uint32_t mantissa = (bits & 0x7fffffu) | 0x800000u;
    /* Below 2^-14 the unit in the last place stays 2^-24, so more bits fall off. */
    uint32_t drop = exponent < -14 ? (uint32_t)(-1 - exponent) : 13;
    uint32_t kept = mantissa >> drop, rest = mantissa & ((1u << drop) - 1), half = 1u << (drop - 1);
    if (rest > half || (rest == half && (kept & 1)))
        kept++;
    /* A carry out of the mantissa runs into the exponent, as it should. */
    if (exponent >= -14)
        kept += (uint32_t)(exponent + 14) << 10;
    return (uint16_t)(sign | kept);
}
