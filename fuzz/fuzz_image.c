/* Bytes as a picture: decode, turn, take a plane, resize. What decodes must have the size it says
 * (the sanitizers watch the reads) and keep within the limit. */
#include "image/image.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PIXELS = 1 << 18, WIDTH = 40, HEIGHT = 24 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const tap_pixels *pixels)
{
    uint8_t input[WIDTH * HEIGHT];
    size_t scratch_bytes;
    tap_image image = {pixels->data, pixels->width, pixels->height, 0,
                       pixels->channels == 1 ? TAP_PIXELS_GRAY : TAP_PIXELS_RGB};
    if (!tap_resize_scratch_bytes(image.width, image.height, WIDTH, HEIGHT, &scratch_bytes))
        abort();
    uint8_t *plane = malloc((size_t)image.width * image.height);
    void *scratch = tap_alloc(scratch_bytes, 1);
    if (plane != NULL && scratch != NULL) {
        tap_image_plane(plane, &image, TAP_GRAY_LUMA, image.width, image.height);
        tap_resize_bilinear(input, WIDTH, HEIGHT, plane, image.width, image.height, scratch);
    }
    free(scratch);
    free(plane);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tap_pixels pixels;
    tap_error err = {.status = TAP_OK};
    tap_status status = tap_pixels_decode(&pixels, data, size, TAP_EXIF_APPLY, MAX_PIXELS, &err);
    if (status != TAP_OK) {
        if (pixels.data != NULL || err.status != status || err.message[0] == '\0')
            abort(); /* a failure leaves nothing behind but words */
        return 0;
    }
    if ((uint64_t)pixels.width * pixels.height > MAX_PIXELS || pixels.exif_orientation < 1 ||
        pixels.exif_orientation > 8)
        abort();
    use(&pixels);
    tap_pixels_free(&pixels);
    return 0;
}
