/* The image room behind a pipe, for test_pillow.py: binary requests on standard input, answers on
 * standard output, all numbers little-endian as this machine has them. One letter, then:
 *
 *   D  exif u32, max_pixels u64, n u32, n bytes: decode
 *   R  sw sh dw dh u32, sw * sh bytes: resize, by both code paths, which must agree
 *   P  format gray w h cw ch u32, stride i32, n u32, n bytes: a plane (with a negative stride the
 *      first row is the last in memory)
 *   J  w h restart arithmetic progressive u32, w * h * 3 bytes: a JPEG by libjpeg's own means, in
 *      forms that Pillow can't write
 *   E  kind (0 PNG, 1 JPEG) w h channels u32, pixels: encode
 *
 * An answer is a u32 status, a u32 count of numbers, those as u32, a u32 length, as many bytes;
 * the bytes of a failure are its message. */
#include "image/image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

static void get(void *to, size_t n)
{
    if (n != 0 && fread(to, 1, n, stdin) != n)
        exit(2);
}

static uint32_t get_u32(void)
{
    uint32_t v;
    get(&v, sizeof v);
    return v;
}

static void *get_bytes(size_t n)
{
    void *bytes = malloc(n != 0 ? n : 1); /* exact, so that sanitizers see reads past the end */
    if (bytes == NULL)
        exit(3);
    get(bytes, n);
    return bytes;
}

static void answer(tap_status status, const uint32_t *numbers, uint32_t count, const void *bytes,
                   size_t n)
{
    uint32_t head[2] = {(uint32_t)status, count}, length = (uint32_t)n;
    fwrite(head, sizeof head, 1, stdout);
    fwrite(numbers, sizeof *numbers, count, stdout);
    fwrite(&length, sizeof length, 1, stdout);
    fwrite(bytes, 1, n, stdout);
    fflush(stdout);
}

static void answer_failure(const tap_error *err)
{
    uint32_t none = 0;
    answer(err->status, &none, 0, err->message, strlen(err->message));
}

static void serve_decode(void)
{
    uint64_t max_pixels;
    tap_error err;
    tap_pixels pixels;
    uint32_t exif = get_u32();
    get(&max_pixels, sizeof max_pixels);
    uint32_t n = get_u32();
    uint8_t *bytes = get_bytes(n);
    if (tap_pixels_decode(&pixels, bytes, n, (tap_exif)exif, max_pixels, &err) == TAP_OK) {
        uint32_t numbers[5] = {pixels.width, pixels.height, pixels.channels,
                               (uint32_t)pixels.exif_orientation, pixels.exif_applied};
        answer(TAP_OK, numbers, 5, pixels.data,
               (size_t)pixels.width * pixels.height * pixels.channels);
        tap_pixels_free(&pixels);
    } else {
        answer_failure(&err);
    }
    free(bytes);
}

static void serve_resize(void)
{
    uint32_t sw = get_u32(), sh = get_u32(), dw = get_u32(), dh = get_u32(), none = 0;
    size_t n = (size_t)dw * dh, scratch_bytes;
    uint8_t *src = get_bytes((size_t)sw * sh), *dst = malloc(2 * n);
    if (!tap_resize_scratch_bytes(sw, sh, dw, dh, &scratch_bytes) || dst == NULL)
        exit(4);
    void *scratch = tap_alloc(scratch_bytes, 1);
    tap_resize_bilinear(dst, dw, dh, src, sw, sh, scratch);
    tap_resize_bilinear_portable(dst + n, dw, dh, src, sw, sh, scratch);
    answer(memcmp(dst, dst + n, n) == 0 ? TAP_OK : TAP_ERR_INTERNAL, &none, 0, dst, n);
    free(scratch);
    free(dst);
    free(src);
}

static void serve_plane(void)
{
    tap_error err;
    tap_image image = {0};
    size_t bytes_per_pixel;
    uint32_t none = 0;
    image.format = (tap_pixel_format)get_u32();
    tap_gray gray = (tap_gray)get_u32();
    image.width = get_u32();
    image.height = get_u32();
    uint32_t crop_width = get_u32(), crop_height = get_u32();
    image.stride_bytes = (int32_t)get_u32();
    uint32_t n = get_u32();
    uint8_t *bytes = get_bytes(n);
    image.data = bytes;
    if (image.stride_bytes < 0)
        image.data += (size_t)(-image.stride_bytes) * (image.height - 1);
    if (tap_image_check(&image, &bytes_per_pixel, &image.stride_bytes, &err) != TAP_OK) {
        answer_failure(&err);
    } else {
        uint8_t *plane = get_bytes(0);
        plane = realloc(plane, (size_t)crop_width * crop_height);
        tap_image_plane(plane, &image, gray, crop_width, crop_height);
        answer(TAP_OK, &none, 0, plane, (size_t)crop_width * crop_height);
        free(plane);
    }
    free(bytes);
}

static void serve_encode(void)
{
    tap_error err;
    tap_pixels pixels = {.exif_orientation = 1};
    uint8_t *bytes;
    size_t n;
    uint32_t kind = get_u32(), none = 0;
    pixels.width = get_u32();
    pixels.height = get_u32();
    pixels.channels = get_u32();
    pixels.data = get_bytes((size_t)pixels.width * pixels.height * pixels.channels);
    tap_status status = kind == 0 ? tap_pixels_encode_png(&pixels, &bytes, &n, &err)
                                  : tap_pixels_encode_jpeg(&pixels, 92, &bytes, &n, &err);
    if (status == TAP_OK) {
        answer(TAP_OK, &none, 0, bytes, n);
        free(bytes);
    } else {
        answer_failure(&err);
    }
    tap_pixels_free(&pixels);
}

/* Codes RGB with restart markers, arithmetically, in progressive scans. */
static void serve_jpeg(void)
{
    uint32_t width = get_u32(), height = get_u32(), restart = get_u32(), arithmetic = get_u32();
    uint32_t progressive = get_u32(), none = 0;
    uint8_t *pixels = get_bytes((size_t)width * height * 3), *bytes = NULL;
    unsigned long n = 0;
    struct jpeg_compress_struct codec;
    struct jpeg_error_mgr errors;
    codec.err = jpeg_std_error(&errors);
    jpeg_create_compress(&codec);
    jpeg_mem_dest(&codec, &bytes, &n);
    codec.image_width = width;
    codec.image_height = height;
    codec.input_components = 3;
    codec.in_color_space = JCS_RGB;
    jpeg_set_defaults(&codec);
    codec.restart_interval = restart;
    codec.arith_code = arithmetic != 0;
    if (progressive != 0)
        jpeg_simple_progression(&codec);
    jpeg_start_compress(&codec, TRUE);
    while (codec.next_scanline < height) {
        JSAMPROW row = pixels + (size_t)codec.next_scanline * width * 3;
        jpeg_write_scanlines(&codec, &row, 1);
    }
    jpeg_finish_compress(&codec);
    jpeg_destroy_compress(&codec);
    answer(TAP_OK, &none, 0, bytes, n);
    free(bytes);
    free(pixels);
}

int main(void)
{
    for (int request; (request = getchar()) != EOF;)
        switch (request) {
        case 'D':
            serve_decode();
            break;
        case 'R':
            serve_resize();
            break;
        case 'P':
            serve_plane();
            break;
        case 'J':
            serve_jpeg();
            break;
        case 'E':
            serve_encode();
            break;
        default:
            return 1;
        }
    return 0;
}
