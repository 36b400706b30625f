/* base64 as clients send it (RFC 4648, sections 4 and 5). Ours rather than libcrypto's, because
 * that one knows neither the URL-safe alphabet nor positions nor working in place. */
#include "request.h"

#include "core/core.h"

#include <string.h>
#include <strings.h>

enum { SPACE = 0x40, PAD = 0x80, BAD = 0xc0 };

/* Six bits, or a class above them. */
static uint8_t classify(unsigned char c)
{
    if (c >= 'A' && c <= 'Z')
        return (uint8_t)(c - 'A');
    if (c >= 'a' && c <= 'z')
        return (uint8_t)(c - 'a' + 26);
    if (c >= '0' && c <= '9')
        return (uint8_t)(c - '0' + 52);
    if (c == '+' || c == '-')
        return 62;
    if (c == '/' || c == '_')
        return 63;
    if (c == ' ' || (c >= '\t' && c <= '\r'))
        return SPACE;
    return c == '=' ? PAD : BAD;
}

/* Bytes of a "data:image/png;base64," in front of the text; 0 if there is none. */
static tap_status data_url_length(size_t *length, const char *text, size_t n, tap_error *err)
{
    *length = 0;
    if (n < 5 || strncasecmp(text, "data:", 5) != 0)
        return TAP_OK;
    const char *comma = memchr(text, ',', n < 256 ? n : 256);
    if (comma == NULL)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "Only base64 data is allowed: a data: URL without a comma");
    size_t head = (size_t)(comma - text);
    if (head < 12 || strncasecmp(comma - 7, ";base64", 7) != 0)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "Only base64 data is allowed: the data: URL does not end in ;base64");
    *length = head + 1;
    return TAP_OK;
}

static tap_status refuse(unsigned char c, size_t position, tap_error *err)
{
    if (c > 0x20 && c < 0x7f)
        return tap_fail(err, TAP_ERR_FORMAT, "Only base64 data is allowed: '%c' at position %zu", c,
                        position);
    return tap_fail(err, TAP_ERR_FORMAT, "Only base64 data is allowed: byte 0x%02x at position %zu",
                    c, position);
}

/* The last one to three characters, and the padding. */
static tap_status finish(uint8_t **out, uint32_t bits, size_t n_left, size_t n_pads, bool spaces,
                         tap_error *err)
{
    if (n_left == 1)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "Only base64 data is allowed: one character is left over at the end; the "
                        "text was cut%s",
                        spaces ? ", or its plus signs became spaces on the way" : "");
    if (n_pads > 2 || (n_pads > 0 && n_left + n_pads > 4) || (n_left == 0 && n_pads > 0))
        return tap_fail(err, TAP_ERR_FORMAT,
                        "Only base64 data is allowed: %zu padding characters too many", n_pads);
    if (n_left >= 2)
        *(*out)++ = (uint8_t)(n_left == 2 ? bits >> 4 : bits >> 10);
    if (n_left == 3)
        *(*out)++ = (uint8_t)(bits >> 2);
    return TAP_OK;
}

tap_status tap_base64_decode(uint8_t *out, size_t *n_out, const char *text, size_t n,
                             tap_error *err)
{
    uint8_t table[256];
    for (int c = 0; c < 256; c++)
        table[c] = classify((unsigned char)c);
    const unsigned char *in = (const unsigned char *)text;
    uint8_t *start = out;
    uint32_t bits = 0;
    size_t i, n_left = 0, n_pads = 0;
    bool spaces = false;
    TAP_TRY(data_url_length(&i, text, n, err));
    while (i < n) {
        if (n_left == 0 && n_pads == 0 && n - i >= 4) {
            uint32_t a = table[in[i]], b = table[in[i + 1]], c = table[in[i + 2]],
                     d = table[in[i + 3]];
            if ((a | b | c | d) < SPACE) {
                /* Reading stays ahead of writing, so out may be text. */
                uint32_t word = a << 18 | b << 12 | c << 6 | d;
                out[0] = (uint8_t)(word >> 16);
                out[1] = (uint8_t)(word >> 8);
                out[2] = (uint8_t)word;
                out += 3;
                i += 4;
                continue;
            }
        }
        uint8_t value = table[in[i]];
        if (value == BAD || (n_pads > 0 && value < SPACE))
            return refuse(in[i], i, err);
        spaces |= in[i] == ' ';
        n_pads += value == PAD;
        if (value < SPACE) {
            bits = bits << 6 | value;
            if (++n_left == 4) {
                out[0] = (uint8_t)(bits >> 16);
                out[1] = (uint8_t)(bits >> 8);
                out[2] = (uint8_t)bits;
                out += 3;
                n_left = 0;
                bits = 0;
            }
        }
        i++;
    }
    TAP_TRY(finish(&out, bits, n_left, n_pads, spaces, err));
    *n_out = (size_t)(out - start);
    return TAP_OK;
}
