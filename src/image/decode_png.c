/* decode_png: libspng inflates and unfilters; the rest is here. libspng sees only the chunks that
 * make pixels (IHDR, PLTE, IDAT, IEND): what else a file carries (profiles, text, tRNS, whose alpha
 * we drop) is stepped over unread, so that no compressed side chunk can ask for memory. */
#include "decode.h"

#include <stdlib.h>
#include <string.h>

#include <spng.h>

/* ---- the file without its side chunks -------------------------------------------------------- */

typedef struct chunk_stream {
    const uint8_t *bytes;
    size_t n_bytes, at;
    bool cut;         /* the last chunk is longer than the file */
    size_t shown_end; /* bytes up to here may be handed out; then a chunk header follows */
} chunk_stream;

/* Section 5.4 of the PNG specification: bit 5 of a chunk type's first letter is set for chunks
 * that a reader may ignore. A palette is only a hint unless the picture is indexed. */
static bool is_hidden(const chunk_stream *stream, const uint8_t *type)
{
    enum { COLOR_TYPE_AT = 25 };
    if ((type[0] & 0x20) != 0)
        return true;
    return memcmp(type, "PLTE", 4) == 0 && stream->n_bytes > COLOR_TYPE_AT &&
           stream->bytes[COLOR_TYPE_AT] != SPNG_COLOR_TYPE_INDEXED;
}

/* Moves to the next chunk worth showing; false at the end of the file. */
static bool show_next_chunk(chunk_stream *stream)
{
    for (;;) {
        size_t left = stream->n_bytes - stream->at;
        if (left < 8)
            return false;
        const uint8_t *header = stream->bytes + stream->at;
        size_t size = (size_t)tap_read_be32(header) + TAP_PNG_CHUNK_OVERHEAD;
        bool cut = size > left;
        if (!is_hidden(stream, header + 4)) {
            stream->cut = cut;
            stream->shown_end = cut ? stream->n_bytes : stream->at + size;
            return true;
        }
        if (cut)
            return false;
        stream->at += size;
    }
}

static int read_stream(spng_ctx *codec, void *user, void *to, size_t n)
{
    chunk_stream *stream = user;
    uint8_t *out = to;
    (void)codec;
    while (n > 0) {
        if (stream->at == stream->shown_end && !show_next_chunk(stream))
            return SPNG_IO_EOF;
        size_t left = stream->shown_end - stream->at, take = n < left ? n : left;
        if (take == 0)
            return SPNG_IO_EOF;
        memcpy(out, stream->bytes + stream->at, take);
        stream->at += take;
        out += take;
        n -= take;
    }
    return SPNG_OK;
}

/* ---- errors ---------------------------------------------------------------------------------- */

static tap_status fail(const chunk_stream *stream, int code, tap_error *err)
{
    switch (code) {
    case SPNG_IO_EOF:
    case SPNG_EOF:
    case SPNG_EIDAT_TOO_SHORT:
        return tap_fail(err, TAP_ERR_FORMAT,
                        "PNG: truncated: the picture's data ends at byte %zu of %zu", stream->at,
                        stream->n_bytes);
    case SPNG_ECHUNK_CRC:
        return tap_fail(err, TAP_ERR_FORMAT,
                        "PNG: a chunk's CRC is wrong, near byte %zu of %zu: the file is damaged",
                        stream->at, stream->n_bytes);
    case SPNG_EMEM:
    case SPNG_EZLIB_INIT: /* inflateInit fails for want of memory only */
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a PNG");
    case SPNG_ECHUNK_LIMITS:
    case SPNG_EUSER_WIDTH:
    case SPNG_EUSER_HEIGHT:
    case SPNG_EOVERFLOW:
        return tap_fail(err, TAP_ERR_LIMIT, "PNG: %s", spng_strerror(code));
    default:
        return tap_fail(err, TAP_ERR_FORMAT, "PNG: %s, near byte %zu of %zu", spng_strerror(code),
                        stream->at, stream->n_bytes);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* How a file's samples become ours. */
typedef struct row_format {
    uint32_t depth, samples; /* bits a sample; samples a pixel in the file, alpha included */
    uint32_t channels;       /* kept: 1 or 3 */
    bool indexed;
    uint8_t table[256][3]; /* indexed: the colours; grey of less than 8 bits: [v][0] */
} row_format;

/* Samples of 1, 2, 4 or 8 bits, the first in the highest bits, looked up. */
static void expand_table(uint8_t *to, const uint8_t *from, uint32_t width, const row_format *format)
{
    uint32_t depth = format->depth, mask = (1u << depth) - 1;
    for (uint32_t x = 0; x < width; x++, to += format->channels) {
        uint32_t bit = x % (8 / depth) * depth;
        uint32_t sample = from[x / (8 / depth)] >> (8 - depth - bit) & mask;
        memcpy(to, format->table[sample], format->channels);
    }
}

/* 8-bit samples, or the high bytes of 16-bit ones; alpha, the last sample, is left behind. */
static void expand_bytes(uint8_t *to, const uint8_t *from, uint32_t width, const row_format *format)
{
    uint32_t step = format->depth / 8, channels = format->channels;
    if (step == 1 && format->samples == channels) {
        memcpy(to, from, (size_t)width * channels);
        return;
    }
    for (uint32_t x = 0; x < width; x++, from += step * format->samples, to += channels)
        for (uint32_t c = 0; c < channels; c++)
            to[c] = from[step * c];
}

static void expand(uint8_t *to, const uint8_t *from, uint32_t width, const row_format *format)
{
    if (format->indexed || format->depth < 8)
        expand_table(to, from, width, format);
    else
        expand_bytes(to, from, width, format);
}

/* An index that the palette lacks stands for a grey of that value: Pillow's palettes begin as a
 * ramp. */
static int plan_rows(row_format *format, spng_ctx *codec, const struct spng_ihdr *header)
{
    static const uint8_t samples[7] = {[0] = 1, [2] = 3, [3] = 1, [4] = 2, [6] = 4};
    format->depth = header->bit_depth;
    format->samples = samples[header->color_type];
    format->indexed = header->color_type == SPNG_COLOR_TYPE_INDEXED;
    format->channels = format->indexed || format->samples >= 3 ? 3 : 1;
    if (!format->indexed) {
        uint32_t levels = format->depth < 8 ? 1u << format->depth : 0;
        for (uint32_t v = 0; v < levels; v++)
            format->table[v][0] = (uint8_t)(v * 255 / (levels - 1));
        return SPNG_OK;
    }
    for (int v = 0; v < 256; v++)
        memset(format->table[v], v, 3);
    struct spng_plte palette;
    int code = spng_get_plte(codec, &palette);
    for (uint32_t v = 0; code == SPNG_OK && v < palette.n_entries; v++) {
        format->table[v][0] = palette.entries[v].red;
        format->table[v][1] = palette.entries[v].green;
        format->table[v][2] = palette.entries[v].blue;
    }
    return code;
}

/* Section 8.1: the seven passes of an interlaced picture are pictures of every so many pixels. */
static const uint8_t pass_x[7] = {0, 4, 0, 2, 0, 1, 0}, pass_step[7] = {8, 8, 4, 4, 2, 2, 1};

static void scatter(uint8_t *row, const uint8_t *from, uint32_t width, uint32_t channels, int pass)
{
    for (uint32_t x = pass_x[pass]; x < width; x += pass_step[pass], from += channels)
        memcpy(row + (size_t)x * channels, from, channels);
}

/* Two rows of scratch: the file's bytes and, for interlaced pictures, a pass's pixels. */
static int decode_rows(tap_pixels *pixels, spng_ctx *codec, const row_format *format,
                       bool interlaced, uint8_t *raw, size_t raw_bytes, uint8_t *line)
{
    size_t row_bytes = (size_t)pixels->width * pixels->channels;
    int code = spng_decode_image(codec, NULL, 0, SPNG_FMT_RAW, SPNG_DECODE_PROGRESSIVE);
    while (code == SPNG_OK) {
        struct spng_row_info info;
        code = spng_get_row_info(codec, &info);
        if (code != SPNG_OK)
            return code;
        code = spng_decode_scanline(codec, raw, raw_bytes);
        if (code != SPNG_OK && code != SPNG_EOI)
            return code;
        uint8_t *row = pixels->data + info.row_num * row_bytes;
        if (!interlaced) {
            expand(row, raw, pixels->width, format);
            continue;
        }
        uint32_t x0 = pass_x[info.pass], step = pass_step[info.pass];
        expand(line, raw, (pixels->width - x0 + step - 1) / step, format);
        scatter(row, line, pixels->width, pixels->channels, info.pass);
    }
    /* What remains up to IEND: CRCs, and whether it is there at all. */
    return code == SPNG_EOI ? spng_decode_chunks(codec) : code;
}

static tap_status decode_pixels(tap_pixels *pixels, spng_ctx *codec, chunk_stream *stream,
                                const struct spng_ihdr *header, tap_error *err)
{
    row_format format = {0};
    /* Makes libspng read up to the first IDAT. */
    int code = spng_decode_chunks(codec);
    if (code == SPNG_OK)
        code = plan_rows(&format, codec, header);
    if (code != SPNG_OK)
        return fail(stream, code, err);
    TAP_TRY(tap_pixels_create(pixels, header->width, header->height, format.channels, err));
    size_t raw_bytes = ((size_t)header->width * format.samples * format.depth + 7) / 8;
    size_t line_bytes = (size_t)header->width * format.channels;
    uint8_t *scratch = tap_alloc(raw_bytes + line_bytes, 1);
    if (scratch == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a row of a PNG");
    code = decode_rows(pixels, codec, &format, header->interlace_method != 0, scratch, raw_bytes,
                       scratch + raw_bytes);
    free(scratch);
    /* libspng forgives an IEND without the end of its CRC. */
    if (code == SPNG_OK && stream->cut)
        code = SPNG_IO_EOF;
    return code == SPNG_OK ? TAP_OK : fail(stream, code, err);
}

tap_status tap_decode_png(tap_pixels *pixels, const uint8_t *bytes, size_t n_bytes,
                          uint64_t max_pixels, tap_error *err)
{
    enum { MAX_SIDE = 1 << 20 };
    chunk_stream stream = {
        .bytes = bytes, .n_bytes = n_bytes, .shown_end = TAP_PNG_SIGNATURE_BYTES};
    spng_ctx *codec = spng_ctx_new(0);
    if (codec == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a PNG");
    struct spng_ihdr header;
    spng_set_image_limits(codec, MAX_SIDE, MAX_SIDE);
    int code = spng_set_png_stream(codec, read_stream, &stream);
    if (code == SPNG_OK)
        code = spng_get_ihdr(codec, &header);
    tap_status status =
        code == SPNG_OK ? tap_decode_check_size("PNG", header.width, header.height, max_pixels, err)
                        : fail(&stream, code, err);
    if (status == TAP_OK)
        status = decode_pixels(pixels, codec, &stream, &header, err);
    spng_ctx_free(codec);
    return status;
}
