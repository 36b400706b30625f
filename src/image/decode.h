/* decode: what the picture formats share, within the room. */
#ifndef TAP_IMAGE_DECODE_H
#define TAP_IMAGE_DECODE_H

#include "image/image.h"

/* Each decoder fills data, width, height and channels of zeroed pixels; after a failure the caller
 * frees what is there. It refuses pictures of more than max_pixels from the header alone. */
tap_status tap_decode_jpeg(tap_pixels *pixels, const uint8_t *bytes, size_t n_bytes,
                           uint64_t max_pixels, tap_error *err);
tap_status tap_decode_png(tap_pixels *pixels, const uint8_t *bytes, size_t n_bytes,
                          uint64_t max_pixels, tap_error *err);
tap_status tap_decode_webp(tap_pixels *pixels, const uint8_t *bytes, size_t n_bytes,
                           uint64_t max_pixels, tap_error *err);

/* TAP_ERR_LIMIT if a picture of this size, which is not zero, is larger than allowed. */
tap_status tap_decode_check_size(const char *format, uint32_t width, uint32_t height,
                                 uint64_t max_pixels, tap_error *err);

/* One chunk of a WebP file (RIFF: a name of four letters, a little-endian length, the bytes, a
 * padding byte after odd lengths) or of a part of one. */
typedef struct tap_riff_chunk {
    const uint8_t *name, *data;
    size_t size;
} tap_riff_chunk;

/* The chunk at *offset of bytes; moves *offset behind it. False at the end, or where the length
 * leads outside. */
bool tap_riff_next(const uint8_t *bytes, size_t n_bytes, size_t *offset, tap_riff_chunk *chunk);

/* Big-endian and little-endian numbers in files. */
static inline uint32_t tap_read_be32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline uint32_t tap_read_le32(const uint8_t *at)
{
    return (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0];
}

enum { TAP_PNG_SIGNATURE_BYTES = 8, TAP_PNG_CHUNK_OVERHEAD = 12, TAP_RIFF_HEADER_BYTES = 12 };

#endif
