/* decode_jpeg: libjpeg-turbo with its defaults (slow integer DCT, smooth chroma upsampling), which
 * are Pillow's too, so the bytes are equal. */
#include "decode.h"
#include "jpeg_guard.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS_AT_A_TIME = 16 };

/* All that a decode owns: it must outlive a longjmp. */
typedef struct reader {
    tap_jpeg_guard guard;
    struct jpeg_decompress_struct codec;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    const uint8_t *bytes;
    size_t n_bytes;
    uint64_t max_pixels;
    long max_scans;
    tap_pixels *pixels;
    uint8_t *cmyk; /* ROWS_AT_A_TIME rows of a four-channel picture; else NULL */
} reader;

/* ---- source: the caller's bytes, and no more ------------------------------------------------ */

static void source_ignore(j_decompress_ptr codec)
{
    (void)codec;
}

static boolean source_refill(j_decompress_ptr codec)
{
    reader *r = codec->client_data;
    tap_jpeg_guard_leave((j_common_ptr)codec,
                         tap_fail(r->guard.err, TAP_ERR_FORMAT,
                                  "JPEG: truncated: the file ends after %zu bytes%s, in row %u of "
                                  "%u",
                                  r->n_bytes, codec->input_scan_number > 1 ? " within a scan" : "",
                                  codec->output_scanline, codec->image_height));
}

static void source_skip(j_decompress_ptr codec, long n)
{
    if (n <= 0)
        return;
    if ((size_t)n > codec->src->bytes_in_buffer)
        source_refill(codec);
    codec->src->next_input_byte += n;
    codec->src->bytes_in_buffer -= (size_t)n;
}

static void set_source(reader *r)
{
    r->source = (struct jpeg_source_mgr){
        .next_input_byte = r->bytes,
        .bytes_in_buffer = r->n_bytes,
        .init_source = source_ignore,
        .fill_input_buffer = source_refill,
        .skip_input_data = source_skip,
        .resync_to_restart = jpeg_resync_to_restart,
        .term_source = source_ignore,
    };
    r->codec.src = &r->source;
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* A scan of a few bytes can make libjpeg walk over every coefficient of the picture. Real files
 * have about ten scans, and at most a few dozen. */
static void check_scans(j_common_ptr codec)
{
    reader *r = codec->client_data;
    int scan = ((j_decompress_ptr)codec)->input_scan_number;
    if (codec->is_decompressor && scan > r->max_scans)
        tap_jpeg_guard_leave(codec, tap_fail(r->guard.err, TAP_ERR_LIMIT,
                                             "JPEG: more than %ld scans; save it as a baseline "
                                             "JPEG",
                                             r->max_scans));
}

static tap_status set_limits(reader *r)
{
    enum { MOST_SCANS = 500, LEAST_SCANS = 64, BYTES_PER_PIXEL = 8, SLACK_BYTES = 64 << 20 };
    struct jpeg_decompress_struct *codec = &r->codec;
    uint64_t n_pixels = (uint64_t)codec->image_width * codec->image_height;
    TAP_TRY(tap_decode_check_size("JPEG", codec->image_width, codec->image_height, r->max_pixels,
                                  r->guard.err));
    /* Pixels times scans stay under 2^32, some seconds of work, unless that forbids common files.
     */
    uint64_t scans = ((uint64_t)1 << 32) / n_pixels;
    r->max_scans = (long)(scans > MOST_SCANS    ? MOST_SCANS
                          : scans < LEAST_SCANS ? LEAST_SCANS
                                                : scans);
    r->progress.progress_monitor = check_scans;
    codec->progress = &r->progress;
    /* A progressive picture keeps two bytes a coefficient, four components at most. */
    codec->mem->max_memory_to_use = (long)(BYTES_PER_PIXEL * n_pixels + SLACK_BYTES);
    return TAP_OK;
}

/* ---- colour ---------------------------------------------------------------------------------- */

/* Pillow takes every four-channel JPEG for inverted, as Adobe writes them, marker or not: v is
 * 255 minus the ink. Then RGB = (255 - K) - (255 - K) C / 255, rounded. */
static void cmyk_to_rgb(uint8_t *rgb, const uint8_t *cmyk, size_t n)
{
    for (size_t i = 0; i < n; i++, cmyk += 4, rgb += 3)
        for (int c = 0; c < 3; c++) {
            uint32_t product = (uint32_t)(255 - cmyk[c]) * cmyk[3] + 128;
            uint32_t rounded = ((product >> 8) + product) >> 8; /* product / 255 */
            rgb[c] = rounded > cmyk[3] ? 0 : (uint8_t)(cmyk[3] - rounded);
        }
}

static tap_status choose_colour(reader *r, uint32_t *channels)
{
    struct jpeg_decompress_struct *codec = &r->codec;
    switch (codec->num_components) {
    case 1:
        codec->out_color_space = JCS_GRAYSCALE;
        *channels = 1;
        return TAP_OK;
    case 3:
        codec->out_color_space = JCS_RGB;
        *channels = 3;
        return TAP_OK;
    case 4:
        codec->out_color_space = JCS_CMYK;
        *channels = 3;
        r->cmyk = tap_alloc((size_t)codec->image_width * 4, ROWS_AT_A_TIME);
        if (r->cmyk == NULL)
            return tap_fail(r->guard.err, TAP_ERR_MEMORY, "out of memory for a row of a JPEG");
        return TAP_OK;
    default:
        return tap_fail(r->guard.err, TAP_ERR_UNSUPPORTED,
                        "JPEG: %d colour components; 1, 3 and 4 are understood",
                        codec->num_components);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void read_rows(reader *r)
{
    struct jpeg_decompress_struct *codec = &r->codec;
    size_t width = codec->output_width, row_bytes = width * r->pixels->channels;
    JSAMPROW rows[ROWS_AT_A_TIME];
    while (codec->output_scanline < codec->output_height) {
        uint8_t *to = r->pixels->data + codec->output_scanline * row_bytes;
        JDIMENSION left = codec->output_height - codec->output_scanline;
        JDIMENSION n = left < ROWS_AT_A_TIME ? left : ROWS_AT_A_TIME;
        for (JDIMENSION i = 0; i < n; i++)
            rows[i] = r->cmyk != NULL ? r->cmyk + i * width * 4 : to + i * row_bytes;
        JDIMENSION got = jpeg_read_scanlines(codec, rows, n);
        if (r->cmyk != NULL)
            cmyk_to_rgb(to, r->cmyk, got * width);
    }
}

static tap_status decode_unguarded(reader *r)
{
    uint32_t channels = 0;
    set_source(r);
    jpeg_read_header(&r->codec, TRUE);
    TAP_TRY(set_limits(r));
    TAP_TRY(choose_colour(r, &channels));
    TAP_TRY(tap_pixels_create(r->pixels, r->codec.image_width, r->codec.image_height, channels,
                              r->guard.err));
    jpeg_start_decompress(&r->codec);
    read_rows(r);
    jpeg_finish_decompress(&r->codec); /* reads up to the end-of-image marker */
    return TAP_OK;
}

static tap_status decode_guarded(reader *r)
{
    if (setjmp(r->guard.escape) != 0)
        return r->guard.status;
    jpeg_create_decompress(&r->codec);
    return decode_unguarded(r);
}

tap_status tap_decode_jpeg(tap_pixels *pixels, const uint8_t *bytes, size_t n_bytes,
                           uint64_t max_pixels, tap_error *err)
{
    reader r = {.bytes = bytes, .n_bytes = n_bytes, .max_pixels = max_pixels, .pixels = pixels};
    tap_jpeg_guard_init(&r.guard, err);
    r.codec.err = &r.guard.errors;
    r.codec.client_data = &r;
    tap_status status = decode_guarded(&r);
    jpeg_destroy_decompress(&r.codec);
    free(r.cmyk);
    return status;
}
