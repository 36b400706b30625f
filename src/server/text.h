/* Text that grows: what answers, metrics and log lines are written into. Private to the server. */
#ifndef TAP_SERVER_TEXT_H
#define TAP_SERVER_TEXT_H

#include "tapetum.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Starts as {0}. The first allocation that fails sticks: later calls do nothing, and
 * tap_text_take reports it. */
typedef struct tap_text {
    char *data;
    size_t size, capacity;
    bool failed;
} tap_text;

/* Room for n more bytes, which the caller fills and adds to size; NULL if there is none. */
char *tap_text_reserve(tap_text *text, size_t n);
void tap_text_add(tap_text *text, const char *bytes, size_t n);
void tap_text_puts(tap_text *text, const char *words);
__attribute__((format(printf, 2, 3))) void tap_text_printf(tap_text *text, const char *format, ...);

/* A JSON string in its quotes. Bytes that are no UTF-8 become U+FFFD. */
void tap_text_string(tap_text *text, const char *words, size_t n);
/* "name":value, with a comma in front unless an object or array has just begun. */
void tap_text_name(tap_text *text, const char *name);
void tap_text_field(tap_text *text, const char *name, const char *words); /* NULL: null */
void tap_text_field_bool(tap_text *text, const char *name, bool value);
void tap_text_field_u64(tap_text *text, const char *name, uint64_t value);
/* The shortest decimal that reads back to the same double; null if it is not finite. */
void tap_text_f64(tap_text *text, double value);
void tap_text_field_f64(tap_text *text, const char *name, double value);
void tap_text_f32(tap_text *text, float value); /* finite */
void tap_text_base64(tap_text *text, const uint8_t *bytes, size_t n);

/* Hands the NUL-terminated text over; the caller frees *data. */
tap_status tap_text_take(tap_text *text, char **data, size_t *size, tap_error *err);
void tap_text_free(tap_text *text);

enum { TAP_F32_CHARS = 24 };

/* The shortest decimal that reads back to the same float32, as a JSON number with a point or an
 * exponent ("610.0", "0.005", "1.5e-7"). value is finite. Returns the length, under
 * TAP_F32_CHARS; out is not terminated. */
size_t tap_f32_shortest(char *out, float value);

#endif
