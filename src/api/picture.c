/* Pictures: decoding for the caller, drawing results, writing files. */
#include "api.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { JPEG_QUALITY = 92 };

void tap_decode_options_init(tap_decode_options *options)
{
    *options = (tap_decode_options){.size = sizeof *options, .max_pixels = 64000000};
}

static tap_status create_picture(tap_picture **picture, tap_error *err)
{
    *picture = calloc(1, sizeof **picture);
    if (*picture == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a picture");
    return TAP_OK;
}

/* Hands the picture over, or frees it after a failure. */
static tap_status finish_picture(tap_status status, tap_picture **picture)
{
    if (status != TAP_OK) {
        tap_picture_free(*picture);
        *picture = NULL;
    }
    return status;
}

tap_status tap_picture_decode(tap_picture **picture, const void *bytes, size_t n_bytes,
                              const tap_decode_options *options, tap_error *err)
{
    tap_decode_options own;
    *picture = NULL;
    tap_decode_options_init(&own);
    if (!tap_options_read(&own, sizeof own, options))
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "tap_decode_options: size is not set; use tap_decode_options_init");
    TAP_TRY(create_picture(picture, err));
    return finish_picture(
        tap_pixels_decode(&(*picture)->pixels, bytes, n_bytes, own.exif, own.max_pixels, err),
        picture);
}

tap_status tap_picture_copy(tap_picture **picture, const tap_image *image, tap_error *err)
{
    size_t bytes_per_pixel;
    ptrdiff_t stride;
    *picture = NULL;
    TAP_TRY(tap_image_check(image, &bytes_per_pixel, &stride, err));
    TAP_TRY(create_picture(picture, err));
    tap_pixels *pixels = &(*picture)->pixels;
    tap_status status = tap_pixels_create(pixels, image->width, image->height, 3, err);
    if (status != TAP_OK)
        return finish_picture(status, picture);
    pixels->exif_orientation = 1;
    bool reversed = image->format == TAP_PIXELS_BGR || image->format == TAP_PIXELS_BGRA;
    bool gray = image->format == TAP_PIXELS_GRAY;
    size_t red = reversed ? 2 : 0, green = gray ? 0 : 1, blue = gray || reversed ? 0 : 2;
    uint8_t *to = pixels->data;
    for (uint32_t y = 0; y < image->height; y++) {
        const uint8_t *from = image->data + (ptrdiff_t)y * stride;
        for (uint32_t x = 0; x < image->width; x++, from += bytes_per_pixel, to += 3) {
            to[0] = from[red];
            to[1] = from[green];
            to[2] = from[blue];
        }
    }
    return TAP_OK;
}

void tap_picture_free(tap_picture *picture)
{
    if (picture == NULL)
        return;
    tap_pixels_free(&picture->pixels);
    free(picture);
}

tap_image tap_picture_view(const tap_picture *picture)
{
    const tap_pixels *pixels = &picture->pixels;
    return (tap_image){.data = pixels->data,
                       .width = pixels->width,
                       .height = pixels->height,
                       .stride_bytes = (ptrdiff_t)pixels->width * pixels->channels,
                       .format = pixels->channels == 1 ? TAP_PIXELS_GRAY : TAP_PIXELS_RGB};
}

int tap_picture_orientation(const tap_picture *picture)
{
    return picture->pixels.exif_orientation;
}

tap_status tap_picture_encode(const tap_picture *picture, tap_encoding encoding, uint8_t **bytes,
                              size_t *n_bytes, tap_error *err)
{
    *bytes = NULL;
    *n_bytes = 0;
    if (encoding == TAP_ENCODING_PNG)
        return tap_pixels_encode_png(&picture->pixels, bytes, n_bytes, err);
    if (encoding == TAP_ENCODING_JPEG)
        return tap_pixels_encode_jpeg(&picture->pixels, JPEG_QUALITY, bytes, n_bytes, err);
    return tap_fail(err, TAP_ERR_ARGUMENT, "encoding %d: no such kind", (int)encoding);
}

tap_status tap_picture_write(const tap_picture *picture, const char *path, tap_error *err)
{
    uint8_t *bytes = NULL;
    size_t n_bytes;
    tap_encoding encoding = TAP_ENCODING_PNG;
    const char *dot = strrchr(path, '.');
    if (dot != NULL && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0))
        encoding = TAP_ENCODING_JPEG;
    else if (dot == NULL || strcasecmp(dot, ".png") != 0)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "%s: a picture's name must end in .png, .jpg or .jpeg", path);
    TAP_TRY(tap_picture_encode(picture, encoding, &bytes, &n_bytes, err));
    tap_status status = tap_file_write(path, bytes, n_bytes, err);
    free(bytes);
    return status;
}

/* ---- drawing results ----------------------------------------------------------------------- */

/* Line width that suits the picture: 1 on a 640-pixel one. */
static float drawing_scale(const tap_pixels *pixels)
{
    uint32_t side = pixels->width > pixels->height ? pixels->width : pixels->height;
    return fmaxf(1.0f, (float)side / 640.0f);
}

/* Points at (dx, dy): best last, so that they lie on top. Scores fall off steeply; the square root
 * spreads them over the colours. */
static void draw_points(tap_pixels *pixels, const tap_keypoints_view *view, float dx, float dy,
                        float scale)
{
    float best = view->count > 0 ? view->scores[0] : 0;
    for (size_t i = view->count; i-- > 0;) {
        float t = best > 0 ? sqrtf(view->scores[i] / best) : 0;
        float x = view->xy[2 * i] + dx, y = view->xy[2 * i + 1] + dy;
        float radius = scale * (1.6f + 2.4f * t);
        tap_color color = tap_color_map(0.15f + 0.85f * t);
        tap_draw_disc(pixels, x, y, radius + 0.8f * scale, (tap_color){0, 0, 0, 0.6f});
        tap_draw_disc(pixels, x, y, radius, color);
    }
}

tap_status tap_draw_keypoints(tap_picture *picture, const tap_keypoints_view *view, tap_error *err)
{
    TAP_TRY(tap_pixels_make_rgb(&picture->pixels, err));
    draw_points(&picture->pixels, view, 0, 0, drawing_scale(&picture->pixels));
    return TAP_OK;
}

static tap_status check_matches(const tap_keypoints_view *a, const tap_keypoints_view *b,
                                const tap_match_pair *matches, size_t n, tap_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (matches[i].a >= a->count || matches[i].b >= b->count)
            return tap_fail(err, TAP_ERR_ARGUMENT,
                            "match %zu: points %u and %u, of %zu and %zu there are", i,
                            matches[i].a, matches[i].b, a->count, b->count);
    return TAP_OK;
}

/* src's pixels as RGB, at (x, 0) of dst. */
static tap_status paste(tap_pixels *dst, const tap_picture *src, uint32_t x, tap_error *err)
{
    tap_picture *rgb;
    tap_image view = tap_picture_view(src);
    TAP_TRY(tap_picture_copy(&rgb, &view, err));
    tap_draw_paste(dst, &rgb->pixels, x, 0);
    tap_picture_free(rgb);
    return TAP_OK;
}

tap_status tap_draw_matches(tap_picture **out, const tap_picture *a,
                            const tap_keypoints_view *view_a, const tap_picture *b,
                            const tap_keypoints_view *view_b, const tap_match_pair *matches,
                            size_t n_matches, tap_error *err)
{
    *out = NULL;
    TAP_TRY(check_matches(view_a, view_b, matches, n_matches, err));
    uint32_t width, left = a->pixels.width;
    uint32_t height = a->pixels.height > b->pixels.height ? a->pixels.height : b->pixels.height;
    if (__builtin_add_overflow(left, b->pixels.width, &width))
        return tap_fail(err, TAP_ERR_LIMIT, "the two pictures are too wide to lie side by side");
    TAP_TRY(create_picture(out, err));
    tap_pixels *pixels = &(*out)->pixels;
    tap_status status = tap_pixels_create(pixels, width, height, 3, err);
    if (status == TAP_OK) {
        memset(pixels->data, 0, (size_t)width * height * 3);
        status = paste(pixels, a, 0, err);
    }
    if (status == TAP_OK)
        status = paste(pixels, b, left, err);
    if (status != TAP_OK)
        return finish_picture(status, out);
    pixels->exif_orientation = 1;
    float scale = drawing_scale(&a->pixels), dx = (float)left;
    for (size_t i = 0; i < n_matches; i++) {
        const float *from = view_a->xy + 2 * (size_t)matches[i].a;
        const float *to = view_b->xy + 2 * (size_t)matches[i].b;
        tap_color color = tap_color_map(fmaxf(0, matches[i].similarity));
        color.alpha = 0.75f;
        tap_draw_line(pixels, from[0], from[1], to[0] + dx, to[1], scale, color);
        tap_draw_disc(pixels, from[0], from[1], 2 * scale, color);
        tap_draw_disc(pixels, to[0] + dx, to[1], 2 * scale, color);
    }
    return TAP_OK;
}
