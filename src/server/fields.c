#include "fields.h"

#include "core/core.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RADIUS = 32, MAX_SIDE = 8192, CELL = 8 };

/* ---- what a value is, in words --------------------------------------------------------------- */

static const char *describe(char *out, size_t size, const tap_value *value)
{
    switch (value->kind) {
    case TAP_VALUE_TEXT:
        snprintf(out, size, "\"%.40s\"", value->text);
        break;
    case TAP_VALUE_STRING:
        snprintf(out, size, "the string \"%.40s\"", value->text);
        break;
    case TAP_VALUE_INTEGER:
        snprintf(out, size, "%" PRId64, value->integer);
        break;
    case TAP_VALUE_DOUBLE:
        snprintf(out, size, "%.9g", value->real);
        break;
    case TAP_VALUE_BOOLEAN:
        snprintf(out, size, "%s", value->boolean ? "true" : "false");
        break;
    case TAP_VALUE_ARRAY:
        snprintf(out, size, "an array of %zu", value->count);
        break;
    case TAP_VALUE_OTHER:
        snprintf(out, size, "%s", value->text);
        break;
    }
    return out;
}

tap_status tap_field_refuse(const char *name, const char *wanted, const tap_value *value,
                            tap_error *err)
{
    char words[96];
    return tap_fail(err, TAP_ERR_ARGUMENT, "%s: must be %s, not %s", name, wanted,
                    describe(words, sizeof words, value));
}

/* ---- kinds of values ------------------------------------------------------------------------- */

bool tap_field_number(double *number, const tap_value *value)
{
    char *end;
    switch (value->kind) {
    case TAP_VALUE_INTEGER:
        *number = (double)value->integer;
        return true;
    case TAP_VALUE_DOUBLE:
        *number = value->real;
        return isfinite(value->real);
    case TAP_VALUE_TEXT:
        /* Decimal only: strtod would take "nan", "inf", "0x10" and leading blanks as well. */
        if (value->text[0] == '\0' || value->text[strspn(value->text, "0123456789+-.eE")] != '\0')
            return false;
        *number = strtod(value->text, &end);
        return *end == '\0' && isfinite(*number);
    default:
        return false;
    }
}

/* As pydantic reads an int: 5 and 5.0, but neither 5.5, "5", true nor null. */
static tap_status read_integer(int64_t *out, const char *name, int64_t low, int64_t high,
                               const tap_value *value, tap_error *err)
{
    char wanted[80];
    double number;
    snprintf(wanted, sizeof wanted, "an integer in %" PRId64 "..%" PRId64, low, high);
    if (!tap_field_number(&number, value) || number != floor(number) || number < (double)low ||
        number > (double)high)
        return tap_field_refuse(name, wanted, value, err);
    *out = (int64_t)number;
    return TAP_OK;
}

tap_status tap_field_real(double *out, const char *name, double low, double high,
                          const tap_value *value, tap_error *err)
{
    char wanted[80];
    double number;
    snprintf(wanted, sizeof wanted, "a number in [%g, %g]", low, high);
    if (!tap_field_number(&number, value) || !(number >= low && number <= high))
        return tap_field_refuse(name, wanted, value, err);
    *out = number;
    return TAP_OK;
}

static tap_status read_float(float *out, const char *name, double low, double high,
                             const tap_value *value, tap_error *err)
{
    double number = 0;
    TAP_TRY(tap_field_real(&number, name, low, high, value, err));
    *out = (float)number;
    return TAP_OK;
}

tap_status tap_field_boolean(bool *out, const char *name, const tap_value *value, tap_error *err)
{
    bool text = value->kind == TAP_VALUE_TEXT;
    if (value->kind == TAP_VALUE_BOOLEAN)
        *out = value->boolean;
    else if (text && (strcmp(value->text, "true") == 0 || strcmp(value->text, "1") == 0))
        *out = true;
    else if (text && (strcmp(value->text, "false") == 0 || strcmp(value->text, "0") == 0))
        *out = false;
    else
        return tap_field_refuse(name, "true or false", value, err);
    return TAP_OK;
}

tap_status tap_field_choice(bool *second, const char *name, const char *first_name,
                            const char *second_name, const tap_value *value, tap_error *err)
{
    char wanted[80];
    bool text = value->kind == TAP_VALUE_TEXT || value->kind == TAP_VALUE_STRING;
    *second = text && strcmp(value->text, second_name) == 0;
    if (*second || (text && strcmp(value->text, first_name) == 0))
        return TAP_OK;
    snprintf(wanted, sizeof wanted, "\"%s\" or \"%s\"", first_name, second_name);
    return tap_field_refuse(name, wanted, value, err);
}

/* ---- SuperPoint's fields --------------------------------------------------------------------- */

static tap_status set_max_keypoints(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                                    const tap_value *value, tap_error *err)
{
    int64_t n = 0;
    TAP_TRY(read_integer(&n, name, limits->min_max_keypoints, limits->max_keypoints, value, err));
    wish->superpoint.max_keypoints = (int32_t)n;
    return TAP_OK;
}

static tap_status set_threshold(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                                const tap_value *value, tap_error *err)
{
    (void)limits;
    return read_float(&wish->superpoint.keypoint_threshold, name, 0, 1, value, err);
}

static tap_status set_radius(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                             const tap_value *value, tap_error *err)
{
    (void)limits;
    int64_t n = 0;
    TAP_TRY(read_integer(&n, name, 0, MAX_RADIUS, value, err));
    wish->superpoint.nms_radius = (uint32_t)n;
    return TAP_OK;
}

static tap_status set_descriptors(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                                  const tap_value *value, tap_error *err)
{
    (void)limits;
    wish->descriptors_given = true;
    return tap_field_boolean(&wish->superpoint.descriptors, name, value, err);
}

static tap_status set_nms(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                          const tap_value *value, tap_error *err)
{
    (void)limits;
    bool iterative;
    TAP_TRY(tap_field_choice(&iterative, name, "single", "iterative", value, err));
    wish->superpoint.nms = iterative ? TAP_NMS_ITERATIVE : TAP_NMS_SINGLE;
    return TAP_OK;
}

static tap_status set_gray(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                           const tap_value *value, tap_error *err)
{
    (void)limits;
    bool luma;
    TAP_TRY(tap_field_choice(&luma, name, "first", "luma", value, err));
    wish->superpoint.gray = luma ? TAP_GRAY_LUMA : TAP_GRAY_FIRST;
    return TAP_OK;
}

static tap_status set_exif(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                           const tap_value *value, tap_error *err)
{
    (void)limits;
    bool apply;
    TAP_TRY(tap_field_choice(&apply, name, "ignore", "apply", value, err));
    wish->superpoint.exif = apply ? TAP_EXIF_APPLY : TAP_EXIF_IGNORE;
    return TAP_OK;
}

static tap_status set_coordinates(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                                  const tap_value *value, tap_error *err)
{
    (void)limits;
    bool centres;
    TAP_TRY(tap_field_choice(&centres, name, "ratio", "centres", value, err));
    wish->superpoint.coordinates = centres ? TAP_COORDINATES_CENTRES : TAP_COORDINATES_RATIO;
    return TAP_OK;
}

/* A side of "640x480": digits only, a multiple of 8 in 8..8192; 0 if it is none. */
static uint32_t read_side(const char **text)
{
    uint32_t side = 0;
    size_t n = strspn(*text, "0123456789");
    if (n == 0 || n > 4)
        return 0;
    for (size_t i = 0; i < n; i++)
        side = side * 10 + (uint32_t)((*text)[i] - '0');
    *text += n;
    return side % CELL == 0 && side <= MAX_SIDE ? side : 0;
}

static tap_status set_size(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                           const tap_value *value, tap_error *err)
{
    tap_superpoint_options *options = &wish->superpoint;
    const char *wanted = "\"native\" or \"WIDTHxHEIGHT\" with multiples of 8 in 8..8192";
    const char *text = value->text;
    if (value->kind != TAP_VALUE_TEXT && value->kind != TAP_VALUE_STRING)
        return tap_field_refuse(name, wanted, value, err);
    options->native = strcmp(text, "native") == 0;
    if (options->native)
        return TAP_OK;
    uint32_t width = read_side(&text);
    uint32_t height = width != 0 && *text == 'x' ? (text++, read_side(&text)) : 0;
    if (height == 0 || *text != '\0')
        return tap_field_refuse(name, wanted, value, err);
    if ((uint64_t)width * height > limits->max_input_pixels)
        return tap_fail(err, TAP_ERR_ARGUMENT, "%s: %ux%u is more than this server's %llu pixels",
                        name, width, height, (unsigned long long)limits->max_input_pixels);
    options->width = width;
    options->height = height;
    return TAP_OK;
}

static tap_status set_min_similarity(tap_wish *wish, const tap_wish_limits *limits,
                                     const char *name, const tap_value *value, tap_error *err)
{
    (void)limits;
    return read_float(&wish->match.min_similarity, name, -1, 1, value, err);
}

static tap_status set_ratio(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                            const tap_value *value, tap_error *err)
{
    (void)limits;
    return read_float(&wish->match.ratio, name, 0, 1, value, err);
}

static const tap_field points_fields[] = {
    {"max_keypoints", set_max_keypoints},
    {"keypoint_threshold", set_threshold},
    {"nms_radius", set_radius},
    {"return_descriptors", set_descriptors},
    {"nms", set_nms},
    {"size", set_size},
    {"gray", set_gray},
    {"exif", set_exif},
    {"coordinates", set_coordinates},
    {"min_similarity", set_min_similarity},
    {"ratio", set_ratio},
    {.name = NULL},
};

/* ---- any model's ----------------------------------------------------------------------------- */

void tap_wish_init(tap_wish *wish, tap_server_kind kind)
{
    wish->kind = kind;
    tap_superpoint_options_init(&wish->superpoint);
    tap_match_options_init(&wish->match);
    tap_hamer_options_init(&wish->hands.options);
    wish->hands.answer = (tap_hands_answer){.return_vertices = true};
}

tap_status tap_wish_set(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                        const tap_value *value, tap_error *err)
{
    const tap_field *field = wish->kind == TAP_SERVER_HAMER ? tap_hands_fields : points_fields;
    for (; field->name != NULL; field++)
        if (strcmp(field->name, name) == 0)
            return field->set(wish, limits, name, value, err);
    return TAP_OK;
}

tap_status tap_wish_set_text(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                             const char *text, tap_error *err)
{
    tap_value value = {.kind = TAP_VALUE_TEXT, .text = text};
    return tap_wish_set(wish, limits, name, &value, err);
}
