#include "check.h"

#include "core/core.h"

#include <math.h>

static void sizes_that_overflow_are_refused(void **state)
{
    (void)state;
    size_t out;
    assert_true(tap_size_mul(3, 5, &out) && out == 15);
    assert_false(tap_size_mul(SIZE_MAX / 2, 3, &out));
    assert_true(tap_size_add(SIZE_MAX - 1, 1, &out) && out == SIZE_MAX);
    assert_false(tap_size_add(SIZE_MAX, 1, &out));
    assert_true(tap_size_align(65, 64, &out) && out == 128);
    assert_true(tap_size_align(0, 64, &out) && out == 0);
    assert_false(tap_size_align(SIZE_MAX, 64, &out));
    assert_null(tap_alloc(SIZE_MAX / 2, 3));
    assert_null(tap_alloc(SIZE_MAX, 1));
}

static void arenas_align_and_end(void **state)
{
    (void)state;
    tap_arena arena;
    tap_error err;
    assert_ok(tap_arena_create(&arena, 256, &err), err);
    uint8_t *a = tap_arena_take(&arena, 1, 1), *b = tap_arena_take(&arena, 16, 8);
    assert_true((uintptr_t)a % TAP_ALIGN == 0 && b == a + 64);
    memset(b, 1, 128);
    assert_non_null(tap_arena_take(&arena, 64, 1));
    assert_null(tap_arena_take(&arena, 1, 1));
    assert_null(tap_arena_take(&arena, SIZE_MAX, 2));
    tap_arena_reset(&arena);
    assert_ptr_equal(tap_arena_take(&arena, 1, 1), a);
    tap_arena_free(&arena);
    assert_fails(tap_arena_create(&arena, SIZE_MAX - 63, &err), TAP_ERR_MEMORY, err, "memory");
}

/* The value of each of the 65,536 halves from the format's definition: IEEE 754-2019, 3.4. */
static float half_by_definition(uint16_t half)
{
    int exponent = half >> 10 & 31, mantissa = half & 1023;
    float value = exponent == 31  ? (mantissa ? NAN : INFINITY)
                  : exponent == 0 ? ldexpf((float)mantissa, -24)
                                  : ldexpf((float)(1024 + mantissa), exponent - 25);
    return half & 0x8000 ? -value : value;
}

static void all_halves_convert_and_return(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t half = (uint16_t)i;
        float value = tap_f16_to_f32(half), wanted = half_by_definition(half);
        if (isnan(wanted)) {
            assert_true(isnan(value) && isnan(tap_f16_to_f32(tap_f32_to_f16(value))));
            continue;
        }
        assert_true(value == wanted && signbit(value) == signbit(wanted));
        assert_int_equal(tap_f32_to_f16(value), half);
    }
}

/* Between neighbours: the nearer one; in the middle: the even one. */
static void floats_round_to_the_nearest_half(void **state)
{
    (void)state;
    for (uint16_t half = 0; half < 0x7bff; half++) {
        float low = half_by_definition(half), high = half_by_definition(half + 1);
        float middle = (low + high) / 2; /* exact: one more bit than a half has */
        assert_int_equal(tap_f32_to_f16(middle), half + (half & 1));
        assert_int_equal(tap_f32_to_f16(nextafterf(middle, 0)), half);
        assert_int_equal(tap_f32_to_f16(nextafterf(middle, INFINITY)), half + 1);
        assert_int_equal(tap_f32_to_f16(-nextafterf(middle, 0)), half | 0x8000);
    }
    assert_int_equal(tap_f32_to_f16(65504.0f), 0x7bff);
    assert_int_equal(tap_f32_to_f16(65519.99f), 0x7bff);
    assert_int_equal(tap_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(tap_f32_to_f16(INFINITY), 0x7c00);
    assert_int_equal(tap_f32_to_f16(1e30f), 0x7c00);
    assert_int_equal(tap_f32_to_f16(-0.0f), 0x8000);
    assert_int_equal(tap_f32_to_f16(1e-45f), 0);
}

static void bfloat_is_the_upper_half_of_a_float(void **state)
{
    (void)state;
    assert_true(tap_bf16_to_f32(0x3f80) == 1.0f && tap_bf16_to_f32(0xc000) == -2.0f);
    assert_true(isinf(tap_bf16_to_f32(0x7f80)) && isnan(tap_bf16_to_f32(0x7fc0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(arenas_align_and_end),
        cmocka_unit_test(all_halves_convert_and_return),
        cmocka_unit_test(floats_round_to_the_nearest_half),
        cmocka_unit_test(bfloat_is_the_upper_half_of_a_float),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
