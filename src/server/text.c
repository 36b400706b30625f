#include "text.h"

#include "core/core.h"

#include <math.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *tap_text_reserve(tap_text *text, size_t n)
{
    size_t wanted;
    if (text->failed)
        return NULL;
    if (!tap_size_add(text->size, n, &wanted) || !tap_size_add(wanted, 1, &wanted)) {
        text->failed = true;
        return NULL;
    }
    if (wanted > text->capacity) {
        size_t capacity = text->capacity < 512 ? 512 : text->capacity;
        while (capacity < wanted)
            capacity = capacity > SIZE_MAX / 2 ? wanted : capacity * 2;
        char *data = realloc(text->data, capacity);
        if (data == NULL) {
            text->failed = true;
            return NULL;
        }
        text->data = data;
        text->capacity = capacity;
    }
    return text->data + text->size;
}

void tap_text_add(tap_text *text, const char *bytes, size_t n)
{
    char *room = tap_text_reserve(text, n);
    if (room == NULL)
        return;
    memcpy(room, bytes, n);
    text->size += n;
}

void tap_text_puts(tap_text *text, const char *words)
{
    tap_text_add(text, words, strlen(words));
}

void tap_text_printf(tap_text *text, const char *format, ...)
{
    va_list args;
    char small[256];
    va_start(args, format);
    int n = vsnprintf(small, sizeof small, format, args);
    va_end(args);
    if (n < 0) {
        text->failed = true;
        return;
    }
    if ((size_t)n < sizeof small) {
        tap_text_add(text, small, (size_t)n);
        return;
    }
    char *room = tap_text_reserve(text, (size_t)n);
    if (room == NULL)
        return;
    va_start(args, format);
    vsnprintf(room, (size_t)n + 1, format, args);
    va_end(args);
    text->size += (size_t)n;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void add_escaped(tap_text *text, uint8_t c)
{
    switch (c) {
    case '"':
        tap_text_puts(text, "\\\"");
        break;
    case '\\':
        tap_text_puts(text, "\\\\");
        break;
    case '\n':
        tap_text_puts(text, "\\n");
        break;
    case '\r':
        tap_text_puts(text, "\\r");
        break;
    case '\t':
        tap_text_puts(text, "\\t");
        break;
    default:
        tap_text_printf(text, "\\u%04x", c);
    }
}

void tap_text_string(tap_text *text, const char *words, size_t n)
{
    const uint8_t *bytes = (const uint8_t *)words;
    tap_text_add(text, "\"", 1);
    for (size_t i = 0; i < n;) {
        size_t length = tap_utf8_length(bytes + i, n - i);
        if (length == 0) {
            tap_text_puts(text, "\xef\xbf\xbd");
            length = 1;
        } else if (bytes[i] < 0x20 || bytes[i] == '"' || bytes[i] == '\\' || bytes[i] == 0x7f) {
            add_escaped(text, bytes[i]);
        } else if (bytes[i] == 0xc2 && bytes[i + 1] < 0xa0) {
            add_escaped(text, bytes[i + 1]); /* U+0080 to U+009F: terminals obey them */
        } else {
            tap_text_add(text, words + i, length);
        }
        i += length;
    }
    tap_text_add(text, "\"", 1);
}

void tap_text_name(tap_text *text, const char *name)
{
    if (text->size > 0 && strchr("{[", text->data[text->size - 1]) == NULL)
        tap_text_add(text, ",", 1);
    tap_text_string(text, name, strlen(name));
    tap_text_add(text, ":", 1);
}

void tap_text_field(tap_text *text, const char *name, const char *words)
{
    tap_text_name(text, name);
    if (words == NULL)
        tap_text_puts(text, "null");
    else
        tap_text_string(text, words, strlen(words));
}

void tap_text_field_bool(tap_text *text, const char *name, bool value)
{
    tap_text_name(text, name);
    tap_text_puts(text, value ? "true" : "false");
}

void tap_text_field_u64(tap_text *text, const char *name, uint64_t value)
{
    tap_text_name(text, name);
    tap_text_printf(text, "%llu", (unsigned long long)value);
}

void tap_text_f64(tap_text *text, double value)
{
    char digits[40];
    if (!isfinite(value)) {
        tap_text_puts(text, "null");
        return;
    }
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value)
            break;
    }
    tap_text_puts(text, digits);
    if (strpbrk(digits, ".e") == NULL)
        tap_text_puts(text, ".0");
}

void tap_text_field_f64(tap_text *text, const char *name, double value)
{
    tap_text_name(text, name);
    tap_text_f64(text, value);
}

void tap_text_f32(tap_text *text, float value)
{
    char *room = tap_text_reserve(text, TAP_F32_CHARS);
    if (room != NULL)
        text->size += tap_f32_shortest(room, value);
}

void tap_text_base64(tap_text *text, const uint8_t *bytes, size_t n)
{
    enum { PIECE = 3 << 20 }; /* EVP_EncodeBlock counts in int */
    for (size_t i = 0; i < n; i += PIECE) {
        size_t piece = n - i < PIECE ? n - i : PIECE;
        char *room = tap_text_reserve(text, (piece + 2) / 3 * 4);
        if (room == NULL)
            return;
        text->size += (size_t)EVP_EncodeBlock((unsigned char *)room, bytes + i, (int)piece);
    }
}

tap_status tap_text_take(tap_text *text, char **data, size_t *size, tap_error *err)
{
    char *end = tap_text_reserve(text, 0);
    if (end == NULL) {
        size_t had = text->size;
        tap_text_free(text);
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for an answer of over %zu bytes", had);
    }
    *end = '\0';
    *data = text->data;
    if (size != NULL)
        *size = text->size;
    *text = (tap_text){0};
    return TAP_OK;
}

void tap_text_free(tap_text *text)
{
    free(text->data);
    *text = (tap_text){0};
}

/* ---- float32 to decimal ---------------------------------------------------------------------- */

/* A float is digits * 10^(exponent - n_digits + 1): "d.ddd" times 10^exponent. */
struct decimal {
    uint32_t digits;
    int n_digits, exponent;
};

/* Powers of ten that a double holds exactly. */
static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
enum { LAST_POWER = 22, MAX_DIGITS = 9 };

/* v * 10^shift with one rounding. |shift| <= LAST_POWER. */
static double scale(double v, int shift)
{
    return shift >= 0 ? v * powers[shift] : v / powers[-shift];
}

/* True if decimal digits * 10^-shift reads as value. digits < 2^53 and the power are exact, so one
 * division or product rounds once, to 53 bits; rounding that to 24 is right too unless it fell
 * exactly between two floats, which *unsure reports. */
static bool reads_back(uint32_t digits, int shift, float value, bool *unsure)
{
    double read = scale(digits, -shift);
    uint64_t bits;
    memcpy(&bits, &read, sizeof bits);
    if ((bits & 0x1fffffff) == 0x10000000)
        *unsure = true;
    return (float)read == value;
}

/* By trying 1, 2, ... digits. False where doubles can't prove the answer: very small and very
 * large numbers, and decimals that fall between two floats. */
static bool shortest_by_doubles(struct decimal *decimal, float value)
{
    double v = value;
    if (!(v >= 1e-13 && v < 1e22))
        return false;
    int exponent = (int)floor(ilogb(v) * 0.30102999566398120);
    while (exponent < LAST_POWER && v >= scale(1, exponent + 1))
        exponent++;
    bool unsure = false;
    for (int n = 1; n <= MAX_DIGITS; n++) {
        int shift = n - 1 - exponent;
        double scaled = scale(v, shift);
        uint32_t near = (uint32_t)(scaled + 0.5);
        /* At a power of two the gap below is half the gap above, so that the second nearest decimal
         * may read back where the nearest doesn't. */
        uint32_t other = near > scaled ? near - 1 : near + 1;
        bool found = reads_back(near, shift, value, &unsure);
        if (!found && reads_back(other, shift, value, &unsure)) {
            near = other;
            found = true;
        }
        if (unsure)
            return false;
        if (found) {
            *decimal = (struct decimal){near, n, exponent};
            return true;
        }
    }
    return false;
}

static void shortest_by_printing(struct decimal *decimal, float value)
{
    char text[32];
    for (int n = 1; n <= MAX_DIGITS; n++) {
        uint32_t digits = 0;
        snprintf(text, sizeof text, "%.*e", n - 1, (double)value);
        for (const char *c = text; *c != 'e'; c++)
            if (*c >= '0' && *c <= '9')
                digits = digits * 10 + (uint32_t)(*c - '0');
        int exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
        *decimal = (struct decimal){digits, n, exponent};
        if (strtof(text, NULL) == value)
            return;
        /* At a power of two, the next above as well, as in shortest_by_doubles. */
        snprintf(text, sizeof text, "%ue%d", digits + 1, exponent - n + 1);
        if (strtof(text, NULL) == value) {
            decimal->digits++;
            return;
        }
    }
}

size_t tap_f32_shortest(char *out, float value)
{
    char *start = out;
    if (signbit(value)) {
        *out++ = '-';
        value = -value;
    }
    if (value == 0) {
        memcpy(out, "0.0", 3);
        return (size_t)(out + 3 - start);
    }
    struct decimal decimal;
    if (!shortest_by_doubles(&decimal, value))
        shortest_by_printing(&decimal, value);
    char digits[16];
    int n = decimal.n_digits, exponent = decimal.exponent;
    int n_printed = snprintf(digits, sizeof digits, "%u", decimal.digits);
    exponent += n_printed - n; /* 9.99 rounded up to 10.0 */
    n = n_printed;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    bool plain = exponent >= -5 && exponent < 10;
    if (plain && exponent < 0) {
        memcpy(out, "0.0000", 6);
        out += 1 - exponent;
    }
    int point = plain ? exponent : 0; /* index of the last digit before the point */
    for (int i = 0; i < n || (plain && i <= point); i++) {
        *out++ = i < n ? digits[i] : '0';
        if (i == point && (i + 1 < n || plain))
            *out++ = '.';
    }
    if (out[-1] == '.')
        *out++ = '0';
    if (!plain)
        out += snprintf(out, 8, "e%d", exponent);
    return (size_t)(out - start);
}
