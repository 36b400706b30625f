/* Drawing, limits and arguments of the image room. (Pixels are compared with Pillow's in
 * test_pillow.py and with the reference data in test_golden.c.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "image/image.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const tap_color white = {255, 255, 255, 1.0f};

static tap_pixels make_black(uint32_t width, uint32_t height)
{
    tap_pixels pixels;
    assert_int_equal(tap_pixels_create(&pixels, width, height, 3, NULL), TAP_OK);
    memset(pixels.data, 0, (size_t)width * height * 3);
    return pixels;
}

static int red_at(const tap_pixels *pixels, uint32_t x, uint32_t y)
{
    return pixels->data[((size_t)y * pixels->width + x) * 3];
}

/* All light in the picture, in white pixels: the area of what was drawn in white. */
static double area(const tap_pixels *pixels)
{
    double sum = 0;
    size_t n = (size_t)pixels->width * pixels->height * 3;
    for (size_t i = 0; i < n; i++)
        sum += pixels->data[i];
    return sum / (3 * 255);
}

/* ---- drawing --------------------------------------------------------------------------------- */

/* A soft edge one pixel wide adds pi / 12 to a disc: the integral of min(1, r + 0.5 - d).
 * Coverage from distance alone is off by some percent for the smallest, more where centres align.
 */
static void test_disc_has_the_area_of_a_disc(void **state)
{
    (void)state;
    static const float centres[][2] = {{50, 50}, {50.5f, 50.5f}, {49.3f, 50.9f}};
    for (size_t i = 0; i < 3; i++)
        for (float radius = 1; radius < 40; radius *= 1.7f) {
            tap_pixels pixels = make_black(101, 101);
            tap_draw_disc(&pixels, centres[i][0], centres[i][1], radius, white);
            double expected = M_PI * (radius * radius + 1.0 / 12);
            assert_true(fabs(area(&pixels) - expected) < 0.01 * expected + 0.45 / sqrt(radius));
            tap_pixels_free(&pixels);
        }
}

static void test_ring_has_the_area_of_a_ring(void **state)
{
    (void)state;
    for (float width = 1; width <= 5; width += 1) {
        tap_pixels pixels = make_black(101, 101);
        tap_draw_ring(&pixels, 50.2f, 49.7f, 30, width, white);
        double expected = 2 * M_PI * 30 * width;
        assert_true(fabs(area(&pixels) - expected) < 0.02 * expected);
        assert_int_equal(red_at(&pixels, 50, 50), 0);
        assert_int_equal(red_at(&pixels, 0, 0), 0);
        tap_pixels_free(&pixels);
    }
}

/* In every direction a line of length l and width w covers l w, and a half disc at each end. One
 * pixel wide and right along the diagonal it is 12 % heavier: coverage is told from distance. */
static void test_line_has_the_area_of_a_line(void **state)
{
    (void)state;
    for (int degrees = 0; degrees < 360; degrees += 7)
        for (float width = 1; width <= 7; width += 2) {
            double angle = degrees * M_PI / 180;
            float dx = (float)(40 * cos(angle)), dy = (float)(40 * sin(angle));
            tap_pixels pixels = make_black(101, 101);
            tap_draw_line(&pixels, 50, 50, 50 + dx, 50 + dy, width, white);
            double expected = 40 * width + M_PI * (width * width / 4 + 1.0 / 12);
            assert_true(fabs(area(&pixels) - expected) < (width > 1 ? 0.03 : 0.13) * expected);
            tap_pixels_free(&pixels);
        }
}

static void test_shapes_lie_where_they_should(void **state)
{
    (void)state;
    tap_pixels pixels = make_black(20, 10);
    tap_draw_disc(&pixels, 3, 5, 0.6f, white);
    assert_int_equal(red_at(&pixels, 3, 5), 255);
    assert_in_range(red_at(&pixels, 4, 5), 20, 30); /* coverage 0.6 + 0.5 - 1 */
    assert_int_equal(red_at(&pixels, 5, 3), 0);
    tap_draw_line(&pixels, 10, 2, 18, 2, 1, white);
    assert_int_equal(red_at(&pixels, 10, 2), 255);
    assert_int_equal(red_at(&pixels, 18, 2), 255);
    assert_int_equal(red_at(&pixels, 14, 3), 0);
    assert_int_equal(red_at(&pixels, 19, 2), 0);
    tap_draw_line(&pixels, 12, 7, 12, 7, 2, white); /* a point is a disc */
    assert_int_equal(red_at(&pixels, 12, 7), 255);
    tap_pixels_free(&pixels);
}

static void test_colours_are_blended(void **state)
{
    (void)state;
    tap_pixels pixels = make_black(9, 9);
    tap_draw_disc(&pixels, 4, 4, 3, (tap_color){200, 100, 50, 0.5f});
    const uint8_t *middle = pixels.data + (4 * 9 + 4) * 3;
    assert_int_equal(middle[0], 100);
    assert_int_equal(middle[1], 50);
    assert_int_equal(middle[2], 25);
    tap_draw_disc(&pixels, 4, 4, 3, (tap_color){0, 0, 0, 2.0f}); /* alpha is cut to 1 */
    assert_int_equal(middle[0], 0);
    tap_draw_disc(&pixels, 4, 4, 3, (tap_color){255, 0, 0, NAN});
    tap_draw_disc(&pixels, 4, 4, 3, (tap_color){255, 0, 0, -1.0f});
    assert_int_equal(middle[0], 0);
    tap_pixels_free(&pixels);
}

/* Any mixture of wild numbers returns soon and writes inside (the sanitizers watch). */
static void test_wild_coordinates(void **state)
{
    (void)state;
    static const float wild[] = {NAN,    INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, 1e20f,
                                 -1e20f, 1e9f,     -1e9f,     -5,      0,        3.5f,
                                 63,     64,       70,        FLT_MIN, -0.5f,    4e9f};
    enum { N = sizeof wild / sizeof *wild };
    tap_pixels pixels = make_black(64, 32);
    double started = tap_clock_ms();
    for (size_t a = 0; a < N; a++)
        for (size_t b = 0; b < N; b++)
            for (size_t c = 0; c < N; c++) {
                tap_draw_disc(&pixels, wild[a], wild[b], wild[c], white);
                tap_draw_ring(&pixels, wild[a], wild[b], wild[c], wild[(a + b) % N], white);
                for (size_t d = 0; d < N; d += 3) {
                    tap_draw_line(&pixels, wild[a], wild[b], wild[c], wild[d], 2, white);
                    tap_draw_line(&pixels, wild[a], wild[b], wild[c], 3, wild[d], white);
                }
            }
    assert_true(tap_clock_ms() - started < 60000);
    tap_pixels_free(&pixels);
}

/* A shape that the edge cuts leaves the same pixels as in the middle of a larger picture. */
static void test_clipping(void **state)
{
    (void)state;
    tap_pixels small = make_black(30, 20), large = make_black(90, 80);
    static const float shapes[][4] = {{-2, 5, 10, 25}, {29, -1, 35, 21}, {15, 10, 200, -90}};
    for (size_t i = 0; i < 3; i++) {
        const float *s = shapes[i];
        tap_draw_disc(&small, s[0], s[1], 6, white);
        tap_draw_disc(&large, s[0] + 30, s[1] + 30, 6, white);
        tap_draw_ring(&small, s[0], s[1], 12, 2, white);
        tap_draw_ring(&large, s[0] + 30, s[1] + 30, 12, 2, white);
        tap_draw_line(&small, s[0], s[1], s[2], s[3], 3, white);
        tap_draw_line(&large, s[0] + 30, s[1] + 30, s[2] + 30, s[3] + 30, 3, white);
    }
    for (uint32_t y = 0; y < 20; y++)
        for (uint32_t x = 0; x < 30; x++)
            assert_int_equal(red_at(&small, x, y), red_at(&large, x + 30, y + 30));
    tap_pixels_free(&small);
    tap_pixels_free(&large);
}

static void test_colour_map_gets_brighter(void **state)
{
    (void)state;
    double before = -1;
    for (int i = 0; i <= 100; i++) {
        tap_color color = tap_color_map((float)i / 100);
        double luma = 0.299 * color.r + 0.587 * color.g + 0.114 * color.b;
        assert_true(luma > before);
        assert_true(color.alpha == 1.0f);
        before = luma;
    }
    tap_color first = tap_color_map(0), last = tap_color_map(1);
    tap_color odd[] = {tap_color_map(NAN), tap_color_map(-INFINITY), tap_color_map(INFINITY)};
    assert_memory_equal(&odd[0], &first, 3);
    assert_memory_equal(&odd[1], &first, 3);
    assert_memory_equal(&odd[2], &last, 3);
    assert_true(first.b > first.r && last.r > 200 && last.g > 200); /* violet, yellow */
}

/* ---- pixels ---------------------------------------------------------------------------------- */

static void test_paste_and_make_rgb(void **state)
{
    (void)state;
    tap_pixels gray, wide = make_black(7, 5);
    assert_int_equal(tap_pixels_create(&gray, 2, 2, 1, NULL), TAP_OK);
    memcpy(gray.data, "\x0a\x14\x1e\x28", 4);
    gray.exif_orientation = 6;
    assert_int_equal(tap_pixels_make_rgb(&gray, NULL), TAP_OK);
    assert_int_equal(gray.channels, 3);
    assert_int_equal(gray.exif_orientation, 6);
    assert_memory_equal(gray.data, "\x0a\x0a\x0a\x14\x14\x14\x1e\x1e\x1e\x28\x28\x28", 12);
    assert_int_equal(tap_pixels_make_rgb(&gray, NULL), TAP_OK); /* already is */
    tap_draw_paste(&wide, &gray, 5, 3);
    assert_int_equal(red_at(&wide, 5, 3), 10);
    assert_int_equal(red_at(&wide, 6, 4), 40);
    assert_true(fabs(area(&wide) * 255 - 100) < 1e-6);
    tap_pixels_free(&gray);
    tap_pixels_free(&wide);
    tap_pixels_free(&wide); /* once more does nothing */
}

static void test_wrong_sizes(void **state)
{
    (void)state;
    tap_pixels pixels;
    tap_error err;
    size_t bytes;
    assert_int_equal(tap_pixels_create(&pixels, 0, 5, 3, &err), TAP_ERR_ARGUMENT);
    assert_int_equal(tap_pixels_create(&pixels, 5, 0, 3, &err), TAP_ERR_ARGUMENT);
    assert_int_equal(tap_pixels_create(&pixels, 5, 5, 2, &err), TAP_ERR_ARGUMENT);
    assert_int_equal(tap_pixels_create(&pixels, UINT32_MAX, UINT32_MAX, 3, &err), TAP_ERR_LIMIT);
    assert_null(pixels.data);
    assert_false(tap_resize_scratch_bytes(0, 1, 1, 1, &bytes));
    assert_false(tap_resize_scratch_bytes(1, 1, 1, 0, &bytes));
    assert_true(tap_resize_scratch_bytes(65535, 65535, 640, 480, &bytes));
}

static void test_image_check(void **state)
{
    (void)state;
    uint8_t pixel[4] = {0};
    size_t bytes_per_pixel;
    ptrdiff_t stride;
    tap_error err;
    tap_image image = {pixel, 1, 1, 0, TAP_PIXELS_RGBA};
    assert_int_equal(tap_image_check(&image, &bytes_per_pixel, &stride, &err), TAP_OK);
    assert_int_equal(bytes_per_pixel, 4);
    assert_int_equal(stride, 4);
    assert_int_equal(tap_image_check(NULL, &bytes_per_pixel, &stride, &err), TAP_ERR_ARGUMENT);
    image.data = NULL;
    assert_int_equal(tap_image_check(&image, &bytes_per_pixel, &stride, &err), TAP_ERR_ARGUMENT);
    image = (tap_image){pixel, 1, UINT32_MAX, PTRDIFF_MAX / 2, TAP_PIXELS_GRAY};
    assert_int_equal(tap_image_check(&image, &bytes_per_pixel, &stride, &err), TAP_ERR_ARGUMENT);
    image = (tap_image){pixel, 1, 3, PTRDIFF_MIN, TAP_PIXELS_GRAY};
    assert_int_equal(tap_image_check(&image, &bytes_per_pixel, &stride, &err), TAP_ERR_ARGUMENT);
    image = (tap_image){pixel, 1, 1, -1, TAP_PIXELS_GRAY}; /* one row: its stride is not used */
    assert_int_equal(tap_image_check(&image, &bytes_per_pixel, &stride, &err), TAP_OK);
}

static void test_no_bytes(void **state)
{
    (void)state;
    tap_pixels pixels;
    tap_error err;
    assert_int_equal(tap_pixels_decode(&pixels, NULL, 0, TAP_EXIF_IGNORE, 100, &err),
                     TAP_ERR_FORMAT);
    assert_non_null(strstr(err.message, "empty"));
    assert_int_equal(tap_pixels_decode(&pixels, NULL, 0, TAP_EXIF_IGNORE, 100, NULL),
                     TAP_ERR_FORMAT); /* err may be NULL */
    assert_int_equal(tap_exif_orientation(NULL, 0), 1);
}

static void test_jpeg_too_large_to_write(void **state)
{
    (void)state;
    tap_pixels pixels;
    tap_error err;
    uint8_t *bytes = (uint8_t *)1;
    size_t n;
    assert_int_equal(tap_pixels_create(&pixels, 70000, 1, 1, &err), TAP_OK);
    memset(pixels.data, 0, 70000);
    assert_int_equal(tap_pixels_encode_jpeg(&pixels, 92, &bytes, &n, &err), TAP_ERR_LIMIT);
    assert_null(bytes);
    tap_pixels_free(&pixels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_disc_has_the_area_of_a_disc),
        cmocka_unit_test(test_ring_has_the_area_of_a_ring),
        cmocka_unit_test(test_line_has_the_area_of_a_line),
        cmocka_unit_test(test_shapes_lie_where_they_should),
        cmocka_unit_test(test_colours_are_blended),
        cmocka_unit_test(test_wild_coordinates),
        cmocka_unit_test(test_clipping),
        cmocka_unit_test(test_colour_map_gets_brighter),
        cmocka_unit_test(test_paste_and_make_rgb),
        cmocka_unit_test(test_wrong_sizes),
        cmocka_unit_test(test_image_check),
        cmocka_unit_test(test_no_bytes),
        cmocka_unit_test(test_jpeg_too_large_to_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
