/* pixels: owning them, and turning them upright. */
#include "image.h"

#include <stdlib.h>
#include <string.h>

tap_status tap_pixels_create(tap_pixels *pixels, uint32_t width, uint32_t height, uint32_t channels,
                             tap_error *err)
{
    size_t row, size;
    *pixels = (tap_pixels){.exif_orientation = 1};
    if (width == 0 || height == 0 || (channels != 1 && channels != 3))
        return tap_fail(err, TAP_ERR_ARGUMENT, "pixels: %u x %u x %u is not a picture", width,
                        height, channels);
    if (!tap_size_mul(width, channels, &row) || !tap_size_mul(row, height, &size) ||
        size > PTRDIFF_MAX)
        return tap_fail(err, TAP_ERR_LIMIT,
                        "a picture of %u x %u pixels has more bytes than a "
                        "size can hold",
                        width, height);
    pixels->data = tap_alloc(size, 1);
    if (pixels->data == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a picture of %u x %u pixels", width,
                        height);
    pixels->width = width;
    pixels->height = height;
    pixels->channels = channels;
    return TAP_OK;
}

void tap_pixels_free(tap_pixels *pixels)
{
    free(pixels->data);
    *pixels = (tap_pixels){.exif_orientation = 1};
}

/* Puts new pixels in the place of old ones and keeps what is known about the file. */
static void replace(tap_pixels *old, tap_pixels *new)
{
    new->exif_orientation = old->exif_orientation;
    new->exif_applied = old->exif_applied;
    free(old->data);
    *old = *new;
}

tap_status tap_pixels_make_rgb(tap_pixels *pixels, tap_error *err)
{
    tap_pixels rgb;
    if (pixels->channels == 3)
        return TAP_OK;
    TAP_TRY(tap_pixels_create(&rgb, pixels->width, pixels->height, 3, err));
    size_t n = (size_t)pixels->width * pixels->height;
    for (size_t i = 0; i < n; i++)
        memset(rgb.data + 3 * i, pixels->data[i], 3);
    replace(pixels, &rgb);
    return TAP_OK;
}

/* Where the pixel at the result's (0, 0) comes from, and how far apart in the source the result's
 * horizontal and vertical neighbours are. */
typedef struct walk {
    size_t start;
    ptrdiff_t right, down;
} walk;

/* EXIF 2.32, tag 0x0112: 2 mirrored, 3 turned by 180 degrees, 4 flipped, 5 transposed, 6 to be
 * turned clockwise, 7 transposed along the other diagonal, 8 to be turned anticlockwise. */
static walk plan_turn(uint32_t width, uint32_t height, int orientation)
{
    ptrdiff_t row = (ptrdiff_t)width;
    size_t right_end = width - 1, last_row = (size_t)width * (height - 1);
    switch (orientation) {
    case 2:
        return (walk){right_end, -1, row};
    case 3:
        return (walk){last_row + right_end, -1, -row};
    case 4:
        return (walk){last_row, 1, -row};
    case 5:
        return (walk){0, row, 1};
    case 6:
        return (walk){last_row, -row, 1};
    case 7:
        return (walk){last_row + right_end, -row, -1};
    case 8:
        return (walk){right_end, row, -1};
    default:
        return (walk){0, 1, row};
    }
}

tap_status tap_pixels_turn(tap_pixels *pixels, int orientation, tap_error *err)
{
    tap_pixels turned;
    bool swaps = orientation >= 5;
    uint32_t width = swaps ? pixels->height : pixels->width;
    uint32_t height = swaps ? pixels->width : pixels->height;
    TAP_TRY(tap_pixels_create(&turned, width, height, pixels->channels, err));
    walk from = plan_turn(pixels->width, pixels->height, orientation);
    ptrdiff_t channels = (ptrdiff_t)pixels->channels;
    uint8_t *to = turned.data;
    for (uint32_t y = 0; y < height; y++) {
        const uint8_t *line =
            pixels->data + channels * ((ptrdiff_t)from.start + (ptrdiff_t)y * from.down);
        for (uint32_t x = 0; x < width; x++, to += channels) {
            const uint8_t *pixel = line + channels * ((ptrdiff_t)x * from.right);
            to[0] = pixel[0];
            if (channels == 3) {
                to[1] = pixel[1];
                to[2] = pixel[2];
            }
        }
    }
    replace(pixels, &turned);
    return TAP_OK;
}
