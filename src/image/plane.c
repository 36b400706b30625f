/* plane: one 8-bit plane out of any image. */
#include "image.h"

#include <string.h>

static size_t bytes_per_pixel_of(tap_pixel_format format)
{
    switch (format) {
    case TAP_PIXELS_GRAY:
        return 1;
    case TAP_PIXELS_RGB:
    case TAP_PIXELS_BGR:
        return 3;
    case TAP_PIXELS_RGBA:
    case TAP_PIXELS_BGRA:
        return 4;
    }
    return 0;
}

tap_status tap_image_check(const tap_image *image, size_t *bytes_per_pixel, ptrdiff_t *stride,
                           tap_error *err)
{
    size_t row, span, distance;
    if (image == NULL || image->data == NULL)
        return tap_fail(err, TAP_ERR_ARGUMENT, "image: no pixels (NULL)");
    *bytes_per_pixel = bytes_per_pixel_of(image->format);
    if (*bytes_per_pixel == 0)
        return tap_fail(err, TAP_ERR_ARGUMENT, "image.format: %d is not a pixel format",
                        (int)image->format);
    if (image->width == 0 || image->height == 0)
        return tap_fail(err, TAP_ERR_ARGUMENT, "image: %u x %u pixels; sides must be at least 1",
                        image->width, image->height);
    if (!tap_size_mul(image->width, *bytes_per_pixel, &row) || row > PTRDIFF_MAX)
        return tap_fail(err, TAP_ERR_ARGUMENT, "image.width: %u is too large", image->width);
    *stride = image->stride_bytes != 0 ? image->stride_bytes : (ptrdiff_t)row;
    distance = *stride < 0 ? (size_t)0 - (size_t)*stride : (size_t)*stride;
    if (image->height > 1 && distance < row)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "image.stride_bytes: %td is shorter than a row of %zu bytes", *stride, row);
    if (!tap_size_mul(distance, image->height, &span) || span > PTRDIFF_MAX)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "image: %u rows of %td bytes are more than memory can hold", image->height,
                        *stride);
    return TAP_OK;
}

/* ITU-R 601 in 16 bits, as Pillow's convert("L") rounds it. */
static inline uint8_t luma(uint32_t r, uint32_t g, uint32_t b)
{
    return (uint8_t)((r * 19595 + g * 38470 + b * 7471 + 32768) >> 16);
}

/* Inlined with a constant step, so that the compiler can turn it into shuffles. */
static inline __attribute__((always_inline)) void take_row(uint8_t *restrict to,
                                                           const uint8_t *restrict from, size_t n,
                                                           size_t step, size_t red, bool weigh)
{
    for (size_t x = 0; x < n; x++, from += step)
        to[x] = weigh ? luma(from[red], from[1], from[2 - red]) : from[red];
}

typedef void (*row_taker)(uint8_t *restrict to, const uint8_t *restrict from, size_t n,
                          tap_pixel_format format, bool weigh);

static inline __attribute__((always_inline)) void take_row_as(uint8_t *restrict to,
                                                              const uint8_t *restrict from,
                                                              size_t n, tap_pixel_format format,
                                                              bool weigh)
{
    size_t red = format == TAP_PIXELS_BGR || format == TAP_PIXELS_BGRA ? 2 : 0;
    size_t step = bytes_per_pixel_of(format);
    if (step == 1)
        memcpy(to, from, n);
    else if (weigh && step == 3)
        take_row(to, from, n, 3, red, true);
    else if (weigh)
        take_row(to, from, n, 4, red, true);
    else if (step == 3)
        take_row(to, from + red, n, 3, 0, false);
    else
        take_row(to, from + red, n, 4, 0, false);
}

static void take_row_portable(uint8_t *restrict to, const uint8_t *restrict from, size_t n,
                              tap_pixel_format format, bool weigh)
{
    take_row_as(to, from, n, format, weigh);
}

#if defined(__x86_64__)
/* The same source for a machine with byte shuffles. */
__attribute__((target("avx2"))) static void take_row_avx2(uint8_t *restrict to,
                                                          const uint8_t *restrict from, size_t n,
                                                          tap_pixel_format format, bool weigh)
{
    take_row_as(to, from, n, format, weigh);
}
#endif

static row_taker choose_row_taker(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return take_row_avx2;
#endif
    return take_row_portable;
}

void tap_image_plane(uint8_t *dst, const tap_image *image, tap_gray gray, uint32_t crop_width,
                     uint32_t crop_height)
{
    ptrdiff_t stride = image->stride_bytes;
    if (stride == 0)
        stride = (ptrdiff_t)(image->width * bytes_per_pixel_of(image->format));
    row_taker take = choose_row_taker();
    for (uint32_t y = 0; y < crop_height; y++)
        take(dst + (size_t)y * crop_width, image->data + (ptrdiff_t)y * stride, crop_width,
             image->format, gray == TAP_GRAY_LUMA);
}
