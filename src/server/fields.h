/* The fields of a request, one table a model for JSON, query strings and multipart. Private. */
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
    TAP_VALUE_ARRAY,
    TAP_VALUE_OTHER /* null, an object */
} tap_value_kind;

typedef struct tap_value {
    tap_value_kind kind;
    const char *text; /* TEXT, STRING: NUL-terminated; ARRAY, OTHER: its type's name */
    int64_t integer;  /* INTEGER; clamped to what fits */
    double real;      /* DOUBLE */
    bool boolean;     /* BOOLEAN */
    /* ARRAY: item(array, i) for i < count. */
    const void *array;
    size_t count;
    struct tap_value (*item)(const void *array, size_t i);
} tap_value;

tap_status tap_wish_set(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                        const tap_value *value, tap_error *err);

/* ---- for the tables -------------------------------------------------------------------------- */

typedef tap_status (*tap_field_fn)(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                                   const tap_value *value, tap_error *err);

/* The last row has no name. */
typedef struct tap_field {
    const char *name;
    tap_field_fn set;
} tap_field;

extern const tap_field tap_hands_fields[]; /* fields_hands.c */

/* TAP_ERR_ARGUMENT: "<name>: must be <wanted>, not <value>". */
tap_status tap_field_refuse(const char *name, const char *wanted, const tap_value *value,
                            tap_error *err);

/* A finite number, from a JSON number or from text that is one whole. */
bool tap_field_number(double *number, const tap_value *value);
tap_status tap_field_real(double *out, const char *name, double low, double high,
                          const tap_value *value, tap_error *err);
tap_status tap_field_boolean(bool *out, const char *name, const tap_value *value, tap_error *err);

/* One of two names. */
tap_status tap_field_choice(bool *second, const char *name, const char *first_name,
                            const char *second_name, const tap_value *value, tap_error *err);

#endif
