/* encode: PNG through libspng, JPEG through libjpeg, to memory. */
#include "image.h"
#include "jpeg_guard.h"

#include <stdlib.h>

#include <spng.h>

/* ---- PNG ------------------------------------------------------------------------------------- */

static int encode_png(spng_ctx *codec, const tap_pixels *pixels, uint8_t **bytes, size_t *n_bytes)
{
    struct spng_ihdr header = {
        .width = pixels->width,
        .height = pixels->height,
        .bit_depth = 8,
        .color_type = pixels->channels == 1 ? SPNG_COLOR_TYPE_GRAYSCALE : SPNG_COLOR_TYPE_TRUECOLOR,
    };
    size_t size = (size_t)pixels->width * pixels->height * pixels->channels;
    /* Three times as fast as the defaults, on photographs, for files 6 % larger. */
    int code = spng_set_option(codec, SPNG_ENCODE_TO_BUFFER, 1);
    if (code == SPNG_OK)
        code = spng_set_option(codec, SPNG_IMG_COMPRESSION_LEVEL, 2);
    if (code == SPNG_OK)
        code = spng_set_option(codec, SPNG_FILTER_CHOICE, SPNG_FILTER_CHOICE_PAETH);
    if (code == SPNG_OK)
        code = spng_set_ihdr(codec, &header);
    if (code == SPNG_OK)
        code = spng_encode_image(codec, pixels->data, size, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
    if (code == SPNG_OK)
        *bytes = spng_get_png_buffer(codec, n_bytes, &code);
    return code;
}

tap_status tap_pixels_encode_png(const tap_pixels *pixels, uint8_t **bytes, size_t *n_bytes,
                                 tap_error *err)
{
    *bytes = NULL;
    *n_bytes = 0;
    spng_ctx *codec = spng_ctx_new(SPNG_CTX_ENCODER);
    int code = codec == NULL ? SPNG_EMEM : encode_png(codec, pixels, bytes, n_bytes);
    spng_ctx_free(codec);
    /* Want of memory has three names: zlib's is the second; a buffer that could not grow is told
     * only by the state that it leaves. */
    if (code == SPNG_EMEM || code == SPNG_EZLIB_INIT || code == SPNG_EBADSTATE)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory while writing a PNG");
    if (code != SPNG_OK)
        return tap_fail(err, TAP_ERR_INTERNAL, "writing a PNG: %s", spng_strerror(code));
    return TAP_OK;
}

/* ---- JPEG ------------------------------------------------------------------------------------ */

/* All that an encode owns: it must outlive a longjmp. */
typedef struct writer {
    tap_jpeg_guard guard;
    struct jpeg_compress_struct codec;
    struct jpeg_destination_mgr destination;
    const tap_pixels *pixels;
    int quality;
    uint8_t *bytes;
    size_t capacity, n_bytes;
} writer;

static void grow(writer *w, size_t used)
{
    enum { FIRST_BYTES = 1 << 16 };
    size_t capacity = w->capacity == 0 ? FIRST_BYTES : w->capacity * 2;
    uint8_t *larger = realloc(w->bytes, capacity);
    if (larger == NULL)
        tap_jpeg_guard_leave(
            (j_common_ptr)&w->codec,
            tap_fail(w->guard.err, TAP_ERR_MEMORY, "out of memory while writing a JPEG"));
    w->bytes = larger;
    w->capacity = capacity;
    w->destination.next_output_byte = larger + used;
    w->destination.free_in_buffer = capacity - used;
}

static void destination_begin(j_compress_ptr codec)
{
    grow(codec->client_data, 0);
}

static boolean destination_full(j_compress_ptr codec)
{
    writer *w = codec->client_data;
    grow(w, w->capacity);
    return TRUE;
}

static void destination_end(j_compress_ptr codec)
{
    writer *w = codec->client_data;
    w->n_bytes = w->capacity - w->destination.free_in_buffer;
}

static void encode_unguarded(writer *w)
{
    struct jpeg_compress_struct *codec = &w->codec;
    const tap_pixels *pixels = w->pixels;
    codec->dest = &w->destination;
    codec->image_width = pixels->width;
    codec->image_height = pixels->height;
    codec->input_components = (int)pixels->channels;
    codec->in_color_space = pixels->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(codec);
    jpeg_set_quality(codec, w->quality, TRUE);
    jpeg_start_compress(codec, TRUE);
    while (codec->next_scanline < codec->image_height) {
        size_t at = (size_t)codec->next_scanline * pixels->width * pixels->channels;
        JSAMPROW row = pixels->data + at;
        jpeg_write_scanlines(codec, &row, 1);
    }
    jpeg_finish_compress(codec);
}

static tap_status encode_guarded(writer *w)
{
    if (setjmp(w->guard.escape) != 0)
        return w->guard.status;
    jpeg_create_compress(&w->codec);
    encode_unguarded(w);
    return TAP_OK;
}

tap_status tap_pixels_encode_jpeg(const tap_pixels *pixels, int quality, uint8_t **bytes,
                                  size_t *n_bytes, tap_error *err)
{
    writer w = {.pixels = pixels, .quality = quality};
    *bytes = NULL;
    *n_bytes = 0;
    tap_jpeg_guard_init(&w.guard, err);
    w.codec.err = &w.guard.errors;
    w.codec.client_data = &w;
    w.destination = (struct jpeg_destination_mgr){
        .init_destination = destination_begin,
        .empty_output_buffer = destination_full,
        .term_destination = destination_end,
    };
    tap_status status = encode_guarded(&w);
    jpeg_destroy_compress(&w.codec);
    if (status != TAP_OK) {
        free(w.bytes);
        return status;
    }
    *bytes = w.bytes;
    *n_bytes = w.n_bytes;
    return TAP_OK;
}
