/* A strict reader of RFC 8259 that hands out one token at a time and builds no tree. Private to
 * weights: safetensors headers and config.json. */
#ifndef TAP_WEIGHTS_JSON_H
#define TAP_WEIGHTS_JSON_H

#include "core/core.h"

enum { TAP_JSON_MAX_DEPTH = 16, TAP_JSON_MAX_NUMBER = 64 /* characters */ };

typedef enum tap_json_kind {
    TAP_JSON_OBJECT, /* { */
    TAP_JSON_OBJECT_END,
    TAP_JSON_ARRAY, /* [ */
    TAP_JSON_ARRAY_END,
    TAP_JSON_KEY, /* a member's name; its colon is read, too */
    TAP_JSON_STRING,
    TAP_JSON_NUMBER,
    TAP_JSON_TRUE,
    TAP_JSON_FALSE,
    TAP_JSON_NULL,
    TAP_JSON_END /* the text's end */
} tap_json_kind;

typedef enum tap_json_state {
    TAP_JSON_WANTS_VALUE,
    TAP_JSON_WANTS_VALUE_OR_END, /* just after [ */
    TAP_JSON_WANTS_KEY,
    TAP_JSON_WANTS_KEY_OR_END, /* just after { */
    TAP_JSON_WANTS_COMMA_OR_END,
    TAP_JSON_WANTS_NOTHING /* after the one value at the top */
} tap_json_state;

typedef struct tap_json_name {
    uint32_t offset, length; /* in names */
} tap_json_name;

typedef struct tap_json {
    /* The token. A key's string stays until its object ends, another string until the next token.
     * Both are decoded and NUL-terminated (and hold no other NUL); a number's is as written. */
    tap_json_kind kind;
    const char *string;
    size_t length;

    const uint8_t *text;
    size_t size, at;
    const char *file; /* for messages, */
    size_t base;      /* and where in it text begins */
    tap_json_state state;
    size_t depth;
    struct {
        bool object;
        size_t first_key, names_used;
    } levels[TAP_JSON_MAX_DEPTH];
    char *scratch;       /* [size + 1] */
    char *names;         /* [size + 1], keys of the open objects */
    tap_json_name *keys; /* [size / 4 + 1] */
    size_t names_used, n_keys;
} tap_json;

/* text (under 4 GiB) is borrowed until tap_json_close. */
tap_status tap_json_open(tap_json *json, const uint8_t *text, size_t size, const char *file,
                         size_t base, tap_error *err);
void tap_json_close(tap_json *json);

/* The next token. Errors TAP_ERR_FORMAT with the offset: grammar, invalid UTF-8, lone surrogates,
 * NUL, depth, and, at the object's end, a name that it holds twice. */
tap_status tap_json_next(tap_json *json, tap_error *err);

/* If the token opened an object or array, reads on to its end. */
tap_status tap_json_skip(tap_json *json, tap_error *err);

/* The number token as a whole number without sign, fraction or exponent; false otherwise. */
bool tap_json_to_size(const tap_json *json, size_t *value);

/* The number token; false where it is over what a double holds. */
bool tap_json_to_double(const tap_json *json, double *value);

/* TAP_ERR_FORMAT "file: byte N: problem" at the token just read. */
tap_status tap_json_fail(const tap_json *json, tap_error *err, const char *problem);

bool tap_utf8_is_valid(const uint8_t *text, size_t size);

#endif
