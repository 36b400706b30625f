/* exif: one number out of a file's EXIF block. Reads each byte at most once or twice, follows one
 * offset only (that of IFD0), and takes anything odd for "no orientation". */
#include "decode.h"

#include <string.h>

/* A TIFF block: numbers in the byte order that its header names. */
typedef struct tiff {
    const uint8_t *data;
    size_t size;
    bool big_endian;
} tiff;

static uint32_t read_u16(const tiff *t, size_t at)
{
    const uint8_t *p = t->data + at;
    return t->big_endian ? (uint32_t)p[0] << 8 | p[1] : (uint32_t)p[1] << 8 | p[0];
}

static uint32_t read_u32(const tiff *t, size_t at)
{
    return t->big_endian ? tap_read_be32(t->data + at) : tap_read_le32(t->data + at);
}

/* The value of an entry of one BYTE (1), SHORT (3) or LONG (4), which lies in the entry itself,
 * left justified; 0 for other types. */
static uint32_t read_small_value(const tiff *t, size_t entry)
{
    if (read_u32(t, entry + 4) != 1)
        return 0;
    switch (read_u16(t, entry + 2)) {
    case 1:
        return t->data[entry + 8];
    case 3:
        return read_u16(t, entry + 8);
    case 4:
        return read_u32(t, entry + 8);
    default:
        return 0;
    }
}

/* TIFF 6.0, section 2: byte order, 42, the offset of IFD0; there a count and entries of 12 bytes:
 * tag, type, count, value. */
static int tiff_orientation(const uint8_t *data, size_t size)
{
    enum { HEADER_BYTES = 8, ENTRY_BYTES = 12, TAG_ORIENTATION = 0x0112 };
    tiff t = {data, size, false};
    if (size >= 6 && memcmp(data, "Exif\0\0", 6) == 0) {
        t.data += 6;
        t.size -= 6;
    }
    if (t.size < HEADER_BYTES)
        return 1;
    if (memcmp(t.data, "MM\0*", 4) == 0)
        t.big_endian = true;
    else if (memcmp(t.data, "II*\0", 4) != 0)
        return 1;
    size_t at = read_u32(&t, 4);
    if (at > t.size - 2)
        return 1;
    size_t n_entries = read_u16(&t, at);
    at += 2;
    for (size_t i = 0; i < n_entries && t.size - at >= ENTRY_BYTES; i++, at += ENTRY_BYTES) {
        if (read_u16(&t, at) != TAG_ORIENTATION)
            continue;
        uint32_t value = read_small_value(&t, at);
        return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

/* JPEG, ITU T.81 B.1.1: segments of 0xff, marker, big-endian length that counts itself. The first
 * APP1 that begins with "Exif\0" is the one; after SOS comes no more. */
static int jpeg_orientation(const uint8_t *bytes, size_t n_bytes)
{
    enum { SOI_BYTES = 2, APP1 = 0xe1, SOS = 0xda, EOI = 0xd9, TEM = 0x01 };
    size_t at = SOI_BYTES;
    while (at < n_bytes) {
        if (bytes[at] != 0xff) {
            at++; /* libjpeg steps over stray bytes as well */
            continue;
        }
        while (at < n_bytes && bytes[at] == 0xff)
            at++;
        if (at >= n_bytes)
            return 1;
        uint8_t marker = bytes[at++];
        if (marker == SOS || marker == EOI)
            return 1;
        if (marker == 0 || marker == TEM || (marker >= 0xd0 && marker <= 0xd8))
            continue; /* markers without a length */
        if (n_bytes - at < 2)
            return 1;
        size_t length = (size_t)bytes[at] << 8 | bytes[at + 1];
        if (length < 2 || length > n_bytes - at)
            return 1;
        if (marker == APP1 && length >= 8 && memcmp(bytes + at + 2, "Exif\0", 5) == 0)
            return tiff_orientation(bytes + at + 2, length - 2);
        at += length;
    }
    return 1;
}

/* PNG third edition, section 11.3.4.5: the eXIf chunk, anywhere between IHDR and IEND. */
static int png_orientation(const uint8_t *bytes, size_t n_bytes)
{
    size_t at = TAP_PNG_SIGNATURE_BYTES;
    while (n_bytes - at >= TAP_PNG_CHUNK_OVERHEAD) {
        size_t length = tap_read_be32(bytes + at);
        if (length > n_bytes - at - TAP_PNG_CHUNK_OVERHEAD)
            return 1;
        if (memcmp(bytes + at + 4, "eXIf", 4) == 0)
            return tiff_orientation(bytes + at + 8, length);
        if (memcmp(bytes + at + 4, "IEND", 4) == 0)
            return 1;
        at += length + TAP_PNG_CHUNK_OVERHEAD;
    }
    return 1;
}

bool tap_riff_next(const uint8_t *bytes, size_t n_bytes, size_t *offset, tap_riff_chunk *chunk)
{
    enum { CHUNK_HEADER_BYTES = 8 };
    if (n_bytes < CHUNK_HEADER_BYTES || *offset > n_bytes - CHUNK_HEADER_BYTES)
        return false;
    size_t size = tap_read_le32(bytes + *offset + 4);
    size_t left = n_bytes - *offset - CHUNK_HEADER_BYTES;
    if (size > left)
        return false;
    chunk->name = bytes + *offset;
    chunk->data = bytes + *offset + CHUNK_HEADER_BYTES;
    chunk->size = size;
    *offset += CHUNK_HEADER_BYTES + size + (size < left ? size & 1 : 0);
    return true;
}

static int webp_orientation(const uint8_t *bytes, size_t n_bytes)
{
    size_t at = TAP_RIFF_HEADER_BYTES;
    tap_riff_chunk chunk;
    while (tap_riff_next(bytes, n_bytes, &at, &chunk))
        if (memcmp(chunk.name, "EXIF", 4) == 0)
            return tiff_orientation(chunk.data, chunk.size);
    return 1;
}

int tap_exif_orientation(const uint8_t *bytes, size_t n_bytes)
{
    if (bytes == NULL || n_bytes < TAP_RIFF_HEADER_BYTES)
        return 1;
    if (bytes[0] == 0xff && bytes[1] == 0xd8)
        return jpeg_orientation(bytes, n_bytes);
    if (memcmp(bytes, "\x89PNG\r\n\x1a\n", TAP_PNG_SIGNATURE_BYTES) == 0)
        return png_orientation(bytes, n_bytes);
    if (memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0)
        return webp_orientation(bytes, n_bytes);
    return 1;
}
