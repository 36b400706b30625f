/* The fields of a request, one table for JSON, query strings and multipart. Private. */
#ifndef TAP_SERVER_FIELDS_H
#define TAP_SERVER_FIELDS_H

#include "request.h"

/* A value as it arrived: what kind, and its text (a number's digits, a string's bytes). */
typedef enum tap_value_kind {
    TAP_VALUE_TEXT, /* query or multipart: the field decides how to read it */
    TAP_VALUE_STRING,
    TAP_VALUE_INTEGER,
    TAP_VALUE_DOUBLE,
    TAP_VALUE_BOOLEAN,
    TAP_VALUE_OTHER /* null, an array, an object */
} tap_value_kind;

typedef struct tap_value {
    tap_value_kind kind;
    const char *text; /* TEXT, STRING: NUL-terminated; OTHER: its type's name */
    int64_t integer;  /* INTEGER; clamped to what fits */
    double real;      /* DOUBLE */
    bool boolean;     /* BOOLEAN */
} tap_value;

tap_status tap_wish_set(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                        const tap_value *value, tap_error *err);

#endif
