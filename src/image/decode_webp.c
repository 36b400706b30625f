/* decode_webp: libwebp, straight into RGB. Of an animation the first frame, on its canvas, as
 * Pillow opens it. */
#include "decode.h"

#include <string.h>

#ifndef TAP_WITH_WEBP

tap_status tap_decode_webp(tap_pixels *pixels, const uint8_t *bytes, size_t n_bytes,
                           uint64_t max_pixels, tap_error *err)
{
    (void)pixels, (void)bytes, (void)n_bytes, (void)max_pixels;
    return tap_fail(err, TAP_ERR_UNSUPPORTED,
                    "WebP: this program was built without it; configure with -DTAPETUM_WEBP=ON, or "
                    "save the picture as PNG");
}

#else

#include <webp/decode.h>

/* Where the bitstream is, and where its pixels go on the canvas. */
typedef struct frame {
    const uint8_t *bytes;
    size_t n_bytes;
    uint32_t x, y;
} frame;

static tap_status fail(VP8StatusCode code, size_t n_bytes, tap_error *err)
{
    switch (code) {
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
        return tap_fail(err, TAP_ERR_FORMAT,
                        "WebP: truncated: the picture's data ends early (%zu bytes)", n_bytes);
    case VP8_STATUS_OUT_OF_MEMORY:
    /* The parameters are right and nobody aborts: so libwebp names a decoder or a row buffer that
     * it could not make. */
    case VP8_STATUS_INVALID_PARAM:
    case VP8_STATUS_USER_ABORT:
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a WebP");
    case VP8_STATUS_UNSUPPORTED_FEATURE:
        return tap_fail(err, TAP_ERR_UNSUPPORTED, "WebP: a feature that libwebp does not read");
    default:
        return tap_fail(err, TAP_ERR_FORMAT, "WebP: damaged bitstream (%zu bytes)", n_bytes);
    }
}

/* The container says how long it is: shorter than that, the file was cut. */
static tap_status check_container(const uint8_t *bytes, size_t n_bytes, tap_error *err)
{
    if (memcmp(bytes, "RIFF", 4) != 0)
        return tap_fail(err, TAP_ERR_FORMAT, "WebP: the file does not begin with RIFF");
    uint64_t declared = (uint64_t)tap_read_le32(bytes + 4) + 8;
    if (declared > n_bytes)
        return tap_fail(err, TAP_ERR_FORMAT, "WebP: truncated after %zu of %llu bytes", n_bytes,
                        (unsigned long long)declared);
    return TAP_OK;
}

static uint32_t read_le24(const uint8_t *at)
{
    return (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

/* The first ANMF chunk: x and y halved, width and height less one, duration (3 bytes each), flags,
 * then the frame's own chunks (WebP container specification, "Animation"). */
static tap_status find_first_frame(frame *first, const uint8_t *bytes, size_t n_bytes,
                                   tap_error *err)
{
    enum { FRAME_HEADER_BYTES = 16 };
    size_t at = TAP_RIFF_HEADER_BYTES;
    tap_riff_chunk chunk;
    while (tap_riff_next(bytes, n_bytes, &at, &chunk)) {
        if (memcmp(chunk.name, "ANMF", 4) != 0)
            continue;
        if (chunk.size <= FRAME_HEADER_BYTES)
            break;
        *first = (frame){chunk.data + FRAME_HEADER_BYTES, chunk.size - FRAME_HEADER_BYTES,
                         2 * read_le24(chunk.data), 2 * read_le24(chunk.data + 3)};
        return TAP_OK;
    }
    return tap_fail(err, TAP_ERR_FORMAT, "WebP: an animation without a frame");
}

/* Decodes one bitstream into the canvas at the frame's place. */
static tap_status decode_frame(tap_pixels *canvas, const frame *f, tap_error *err)
{
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config))
        return tap_fail(err, TAP_ERR_INTERNAL, "WebP: libwebp is of another version");
    VP8StatusCode code = WebPGetFeatures(f->bytes, f->n_bytes, &config.input);
    if (code != VP8_STATUS_OK)
        return fail(code, f->n_bytes, err);
    uint32_t width = (uint32_t)config.input.width, height = (uint32_t)config.input.height;
    if (f->x > canvas->width || width > canvas->width - f->x || f->y > canvas->height ||
        height > canvas->height - f->y)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "WebP: a frame of %u x %u at (%u, %u) does not fit the canvas of %u x %u",
                        width, height, f->x, f->y, canvas->width, canvas->height);
    size_t stride = (size_t)canvas->width * 3, start = f->y * stride + (size_t)f->x * 3;
    config.output.colorspace = MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = canvas->data + start;
    config.output.u.RGBA.stride = (int)stride;
    config.output.u.RGBA.size = stride * canvas->height - start;
    code = WebPDecode(f->bytes, f->n_bytes, &config);
    WebPFreeDecBuffer(&config.output);
    return code == VP8_STATUS_OK ? TAP_OK : fail(code, f->n_bytes, err);
}

tap_status tap_decode_webp(tap_pixels *pixels, const uint8_t *bytes, size_t n_bytes,
                           uint64_t max_pixels, tap_error *err)
{
    TAP_TRY(check_container(bytes, n_bytes, err));
    WebPBitstreamFeatures features;
    VP8StatusCode code = WebPGetFeatures(bytes, n_bytes, &features);
    if (code != VP8_STATUS_OK)
        return fail(code, n_bytes, err);
    uint32_t width = (uint32_t)features.width, height = (uint32_t)features.height;
    TAP_TRY(tap_decode_check_size("WebP", width, height, max_pixels, err));
    frame whole = {bytes, n_bytes, 0, 0};
    if (features.has_animation)
        TAP_TRY(find_first_frame(&whole, bytes, n_bytes, err));
    TAP_TRY(tap_pixels_create(pixels, width, height, 3, err));
    if (features.has_animation)
        memset(pixels->data, 0, (size_t)width * height * 3);
    return decode_frame(pixels, &whole, err);
}

#endif
