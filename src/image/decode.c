/* decode: tells the format by its first bytes, hands over, and turns upright when asked. */
#include "decode.h"

#include <string.h>

typedef tap_status (*decoder)(tap_pixels *pixels, const uint8_t *bytes, size_t n_bytes,
                              uint64_t max_pixels, tap_error *err);

typedef struct signature {
    const char *name;
    size_t offset, size;
    const char *magic;
    decoder decode; /* NULL: known by name only */
} signature;

static const signature signatures[] = {
    {"JPEG", 0, 3, "\xff\xd8\xff", tap_decode_jpeg},
    {"PNG", 0, 8, "\x89PNG\r\n\x1a\n", tap_decode_png},
    {"WebP", 8, 4, "WEBP", tap_decode_webp},
    {"GIF", 0, 4, "GIF8", NULL},
    {"BMP", 0, 2, "BM", NULL},
    {"TIFF", 0, 4, "II*\0", NULL},
    {"TIFF", 0, 4, "MM\0*", NULL},
    {"AVIF", 4, 8, "ftypavif", NULL},
    {"HEIC", 4, 8, "ftyphei", NULL},
    {"JPEG XL", 0, 2, "\xff\x0a", NULL},
};

static const signature *find_signature(const uint8_t *bytes, size_t n_bytes)
{
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++) {
        const signature *s = &signatures[i];
        if (n_bytes >= s->offset + s->size && memcmp(bytes + s->offset, s->magic, s->size) == 0)
            return s;
    }
    return NULL;
}

/* The start of a signature and nothing behind it: a picture cut within its first bytes. */
static bool is_cut_signature(const uint8_t *bytes, size_t n_bytes)
{
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++) {
        const signature *s = &signatures[i];
        if (s->decode != NULL && s->offset == 0 && n_bytes < s->size &&
            memcmp(bytes, s->magic, n_bytes) == 0)
            return true;
    }
    return n_bytes < TAP_RIFF_HEADER_BYTES && memcmp(bytes, "RIFF", n_bytes < 4 ? n_bytes : 4) == 0;
}

static tap_status find_decoder(decoder *decode, const uint8_t *bytes, size_t n_bytes,
                               tap_error *err)
{
    if (bytes == NULL || n_bytes == 0)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "the picture is empty: 0 bytes, where a JPEG, PNG or WebP was expected");
    const signature *found = find_signature(bytes, n_bytes);
    if (found == NULL && is_cut_signature(bytes, n_bytes))
        return tap_fail(err, TAP_ERR_FORMAT, "truncated: a picture of %zu bytes ends in its name",
                        n_bytes);
    if (found == NULL)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "not a picture we know: neither JPEG, PNG nor WebP (%zu bytes, the first "
                        "are %02x %02x %02x %02x)",
                        n_bytes, bytes[0], n_bytes > 1 ? bytes[1] : 0, n_bytes > 2 ? bytes[2] : 0,
                        n_bytes > 3 ? bytes[3] : 0);
    if (found->decode == NULL)
        return tap_fail(err, TAP_ERR_UNSUPPORTED,
                        "a %s picture, which this program does not read; save it as PNG, JPEG or "
                        "WebP",
                        found->name);
    *decode = found->decode;
    return TAP_OK;
}

tap_status tap_decode_check_size(const char *format, uint32_t width, uint32_t height,
                                 uint64_t max_pixels, tap_error *err)
{
    if ((uint64_t)width * height > max_pixels)
        return tap_fail(err, TAP_ERR_LIMIT,
                        "%s: %u x %u pixels are more than the limit of %llu; shrink the picture or "
                        "raise max_pixels",
                        format, width, height, (unsigned long long)max_pixels);
    return TAP_OK;
}

static tap_status decode_upright(tap_pixels *pixels, decoder decode, const uint8_t *bytes,
                                 size_t n_bytes, tap_exif exif, uint64_t max_pixels, tap_error *err)
{
    TAP_TRY(decode(pixels, bytes, n_bytes, max_pixels, err));
    pixels->exif_orientation = tap_exif_orientation(bytes, n_bytes);
    if (exif != TAP_EXIF_APPLY || pixels->exif_orientation == 1)
        return TAP_OK;
    TAP_TRY(tap_pixels_turn(pixels, pixels->exif_orientation, err));
    pixels->exif_applied = true;
    return TAP_OK;
}

tap_status tap_pixels_decode(tap_pixels *pixels, const uint8_t *bytes, size_t n_bytes,
                             tap_exif exif, uint64_t max_pixels, tap_error *err)
{
    decoder decode = NULL;
    *pixels = (tap_pixels){.exif_orientation = 1};
    TAP_TRY(find_decoder(&decode, bytes, n_bytes, err));
    tap_status status = decode_upright(pixels, decode, bytes, n_bytes, exif, max_pixels, err);
    if (status != TAP_OK)
        tap_pixels_free(pixels);
    return status;
}
