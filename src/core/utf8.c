#include "core.h"

size_t tap_utf8_length(const uint8_t *text, size_t size)
{
    if (size == 0)
        return 0;
    uint8_t lead = text[0];
    if (lead < 0x80)
        return 1;
    size_t n = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    /* c0, c1 and f5.. never occur; the second byte rules out overlong forms (e0, f0), surrogates
     * (ed) and what lies over U+10FFFF (f4). */
    if (lead < 0xc2 || lead > 0xf4 || n > size)
        return 0;
    uint8_t least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    uint8_t most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (text[1] < least || text[1] > most)
        return 0;
    for (size_t i = 2; i < n; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    return n;
}
