/* Boxes of hands: from the command line, from JSON, from CSV. */
#include "cli.h"

#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_FILE_BYTES = 16 << 20, MAX_DEPTH = 8, CORNERS = 4 };

/* ---- one box ------------------------------------------------------------------------------- */

/* A decimal number up to a comma or the end: no hexadecimal, no infinity. */
static bool read_number(const char *text, double *value, const char **rest)
{
    char *end;
    text += strspn(text, " ");
    size_t n = strspn(text, "0123456789+-.eE");
    *value = strtod(text, &end);
    if (n == 0 || end != text + n || !isfinite(*value))
        return false;
    *rest = end + strspn(end, " ");
    return **rest == ',' || **rest == '\0';
}

/* n numbers; *rest is what follows the last: "" or ",...". */
static bool read_row(const char *text, double *values, size_t n, const char **rest)
{
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && *text++ != ',')
            return false;
        if (!read_number(text, &values[i], &text))
            return false;
    }
    *rest = text;
    return true;
}

bool tap_cli_read_numbers(const char *text, double *values, size_t n)
{
    const char *rest;
    return read_row(text, values, n, &rest) && *rest == '\0';
}

/* The file's other spellings are those that tables of hands come with. */
static bool read_side(const char *text, bool *is_right)
{
    static const char *const names[] = {"left", "right", "false", "true", "0", "1"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (strcasecmp(text, names[i]) == 0) {
            *is_right = i % 2 == 1;
            return true;
        }
    return false;
}

/* Takes a copy of file, which may be NULL. */
static tap_status add(tap_cli_boxes *boxes, const double corners[CORNERS], bool is_right,
                      const char *file, tap_error *err)
{
    tap_hand_box box = {(float)corners[0], (float)corners[1], (float)corners[2], (float)corners[3],
                        is_right};
    if (!isfinite(box.x1) || !isfinite(box.y1) || !isfinite(box.x2) || !isfinite(box.y2))
        return tap_fail(err, TAP_ERR_ARGUMENT, "the box has a number that is not finite");
    if (!(box.x2 > box.x1) || !(box.y2 > box.y1))
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "%g,%g,%g,%g is empty or reversed: x2 must be larger than x1, and y2 "
                        "larger than y1",
                        corners[0], corners[1], corners[2], corners[3]);
    if (boxes->n == boxes->capacity) {
        size_t capacity = boxes->capacity > 0 ? 2 * boxes->capacity : 16;
        tap_cli_box *moved = reallocarray(boxes->boxes, capacity, sizeof *moved);
        if (moved == NULL)
            return tap_fail(err, TAP_ERR_MEMORY, "out of memory for %zu boxes", capacity);
        boxes->boxes = moved;
        boxes->capacity = capacity;
    }
    char *name = file != NULL ? strdup(file) : NULL;
    if (file != NULL && name == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a box's file");
    boxes->boxes[boxes->n++] = (tap_cli_box){box, name};
    return TAP_OK;
}

tap_status tap_cli_boxes_add(tap_cli_boxes *boxes, const char *text, tap_error *err)
{
    double corners[CORNERS];
    const char *rest;
    bool is_right = boxes->is_right;
    if (!read_row(text, corners, CORNERS, &rest) ||
        (*rest != '\0' && !read_side(rest + 1, &is_right)))
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "'%s' is not x1,y1,x2,y2 in pixels, with or without ,left or ,right", text);
    return add(boxes, corners, is_right, NULL, err);
}

void tap_cli_boxes_free(tap_cli_boxes *boxes)
{
    for (size_t i = 0; i < boxes->n; i++)
        free(boxes->boxes[i].file);
    free(boxes->boxes);
    *boxes = (tap_cli_boxes){0};
}

/* ---- JSON ---------------------------------------------------------------------------------- */

/* What the values around a box have said of it. */
struct around {
    const char *file;
    struct json_object *is_right; /* NULL: nothing; a boolean, or an array of them */
};

static tap_status add_value(tap_cli_boxes *boxes, struct json_object *value, struct around around,
                            tap_error *err);

static bool is_number(struct json_object *value)
{
    return json_object_is_type(value, json_type_int) ||
           json_object_is_type(value, json_type_double);
}

static tap_status add_corners(tap_cli_boxes *boxes, struct json_object *array, struct around around,
                              tap_error *err)
{
    double corners[CORNERS];
    size_t n = json_object_array_length(array);
    bool is_right = boxes->is_right;
    for (size_t i = 0; i < n && i < CORNERS; i++) {
        struct json_object *number = json_object_array_get_idx(array, i);
        if (!is_number(number))
            return tap_fail(err, TAP_ERR_ARGUMENT, "a corner is no number");
        corners[i] = json_object_get_double(number);
    }
    if (n != CORNERS)
        return tap_fail(err, TAP_ERR_ARGUMENT, "%zu numbers, where a box has x1, y1, x2, y2", n);
    if (around.is_right != NULL && !json_object_is_type(around.is_right, json_type_boolean))
        return tap_fail(err, TAP_ERR_ARGUMENT, "is_right is neither true nor false");
    if (around.is_right != NULL)
        is_right = json_object_get_boolean(around.is_right);
    return add(boxes, corners, is_right, around.file, err);
}

static tap_status add_array(tap_cli_boxes *boxes, struct json_object *array, struct around around,
                            tap_error *err)
{
    size_t n = json_object_array_length(array);
    if (n > 0 && is_number(json_object_array_get_idx(array, 0)))
        return add_corners(boxes, array, around, err);
    struct json_object *sides = around.is_right;
    bool listed = json_object_is_type(sides, json_type_array);
    if (listed && json_object_array_length(sides) != n)
        return tap_fail(err, TAP_ERR_ARGUMENT, "%zu boxes, but is_right has %zu values", n,
                        json_object_array_length(sides));
    for (size_t i = 0; i < n; i++) {
        if (listed)
            around.is_right = json_object_array_get_idx(sides, i);
        TAP_TRY(add_value(boxes, json_object_array_get_idx(array, i), around, err));
    }
    return TAP_OK;
}

/* One hand or several with their facts, or else pictures' names and their boxes. */
static tap_status add_object(tap_cli_boxes *boxes, struct json_object *object, struct around around,
                             tap_error *err)
{
    struct json_object *file, *inner;
    json_object_object_get_ex(object, "is_right", &inner);
    if (inner != NULL)
        around.is_right = inner;
    if (json_object_object_get_ex(object, "file", &file) ||
        json_object_object_get_ex(object, "image", &file)) {
        if (!json_object_is_type(file, json_type_string))
            return tap_fail(err, TAP_ERR_ARGUMENT, "file is no string");
        around.file = json_object_get_string(file);
    }
    if (json_object_object_get_ex(object, "bbox", &inner) ||
        json_object_object_get_ex(object, "hands", &inner)) {
        if (!json_object_is_type(inner, json_type_array))
            return tap_fail(err, TAP_ERR_ARGUMENT, "bbox is no list of numbers");
        return add_array(boxes, inner, around, err);
    }
    json_object_object_foreach(object, name, value)
    {
        if (!json_object_is_type(value, json_type_array))
            return tap_fail(err, TAP_ERR_ARGUMENT,
                            "an object has neither bbox nor hands, and its '%s' is no list of "
                            "a picture's boxes",
                            name);
        around.file = name;
        TAP_TRY(add_array(boxes, value, around, err));
    }
    return TAP_OK;
}

static tap_status add_value(tap_cli_boxes *boxes, struct json_object *value, struct around around,
                            tap_error *err)
{
    if (json_object_is_type(value, json_type_array))
        return add_array(boxes, value, around, err);
    if (json_object_is_type(value, json_type_object))
        return add_object(boxes, value, around, err);
    return tap_fail(err, TAP_ERR_ARGUMENT,
                    "neither a list of four numbers nor an object with bbox");
}

/* One value, or several one after another: the lines of --json are such a file. */
static tap_status read_json(tap_cli_boxes *boxes, const char *path, const char *text, size_t n,
                            tap_error *err)
{
    struct json_tokener *tokener = json_tokener_new_ex(MAX_DEPTH);
    tap_status status = TAP_OK;
    if (tokener == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", path);
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_ALLOW_TRAILING_CHARS);
    for (size_t at = 0; status == TAP_OK && at < n;) {
        tap_error inner;
        struct json_object *value = json_tokener_parse_ex(tokener, text + at, (int)(n - at));
        enum json_tokener_error error = json_tokener_get_error(tokener);
        at += json_tokener_get_parse_end(tokener);
        if (error != json_tokener_success)
            return json_tokener_free(tokener),
                   tap_fail(err, TAP_ERR_FORMAT, "%s: not JSON: %s, at byte %zu", path,
                            error == json_tokener_continue ? "it ends too early"
                                                           : json_tokener_error_desc(error),
                            at);
        status = add_value(boxes, value, (struct around){0}, &inner);
        json_object_put(value);
        if (status != TAP_OK)
            tap_fail(err, status, "%s: box %zu: %s", path, boxes->n + 1, inner.message);
        at += strspn(text + at, " \t\r\n");
    }
    json_tokener_free(tokener);
    return status;
}

/* ---- CSV ----------------------------------------------------------------------------------- */

enum column { X1, Y1, X2, Y2, SIDE, FILE_NAME, COLUMNS, MAX_FIELDS = 32 };

/* Splits a line in place, RFC 4180: a field in quotes may hold commas, and quotes twice. Returns
 * the number of fields; one more than MAX_FIELDS: too many. */
static size_t split(char *line, char *fields[MAX_FIELDS])
{
    size_t n = 0;
    char *from = line, *comma;
    do {
        from += strspn(from, " \t");
        char *to = from;
        if (n == MAX_FIELDS)
            return n + 1;
        fields[n++] = from;
        if (*from == '"') {
            for (from++; *from != '\0' && (*from != '"' || from[1] == '"'); from++) {
                from += *from == '"';
                *to++ = *from;
            }
            comma = strchr(from, ',');
        } else {
            comma = strchr(from, ',');
            to = comma != NULL ? comma : from + strlen(from);
            while (to > from && strchr(" \t\r", to[-1]) != NULL)
                to--;
        }
        from = comma != NULL ? comma + 1 : from;
        *to = '\0';
    } while (comma != NULL);
    return n;
}

/* A header's names, in any order and among others. */
static bool read_header(char *const *fields, size_t n, int columns[COLUMNS])
{
    static const char *const names[COLUMNS][3] = {
        {"x1"}, {"y1"}, {"x2"}, {"y2"}, {"side", "is_right", "hand"}, {"file", "image"}};
    for (size_t c = 0; c < COLUMNS; c++) {
        columns[c] = -1;
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < 3 && names[c][k] != NULL; k++)
                if (strcasecmp(fields[i], names[c][k]) == 0)
                    columns[c] = (int)i;
    }
    return columns[X1] >= 0 && columns[Y1] >= 0 && columns[X2] >= 0 && columns[Y2] >= 0;
}

static tap_status add_fields(tap_cli_boxes *boxes, char *const *fields, size_t n,
                             const int columns[COLUMNS], tap_error *err)
{
    double corners[CORNERS];
    bool is_right = boxes->is_right;
    const char *file = NULL;
    for (int c = 0; c < COLUMNS; c++) {
        const char *rest,
            *field = columns[c] >= 0 && (size_t)columns[c] < n ? fields[columns[c]] : "";
        if (c < CORNERS && (!read_number(field, &corners[c], &rest) || *rest != '\0'))
            return tap_fail(err, TAP_ERR_ARGUMENT,
                            "'%s' is no number; a line is x1,y1,x2,y2 with "
                            "or without a side and a file",
                            field);
        if (c == SIDE && field[0] != '\0' && !read_side(field, &is_right))
            return tap_fail(err, TAP_ERR_ARGUMENT, "'%s' is neither left nor right", field);
        if (c == FILE_NAME && field[0] != '\0')
            file = field;
    }
    return add(boxes, corners, is_right, file, err);
}

/* text is changed and has a NUL after its end. */
static tap_status read_csv(tap_cli_boxes *boxes, const char *path, char *text, tap_error *err)
{
    int columns[COLUMNS] = {X1, Y1, X2, Y2, SIDE, FILE_NAME};
    bool first = true;
    size_t number = 1;
    for (char *line = text, *next; line != NULL; line = next, number++) {
        char *fields[MAX_FIELDS];
        tap_error inner;
        double ignored;
        const char *rest;
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        line[strcspn(line, "\r")] = '\0';
        if (line[strspn(line, " \t")] == '\0' || line[0] == '#')
            continue;
        size_t n = split(line, fields);
        if (n > MAX_FIELDS)
            return tap_fail(err, TAP_ERR_LIMIT, "%s: line %zu: more than %d fields", path, number,
                            MAX_FIELDS);
        bool header = first && !read_number(fields[0], &ignored, &rest);
        first = false;
        if (header && !read_header(fields, n, columns))
            return tap_fail(err, TAP_ERR_FORMAT,
                            "%s: line %zu: neither numbers x1,y1,x2,y2 nor a header with these "
                            "names",
                            path, number);
        if (header)
            continue;
        tap_status status = add_fields(boxes, fields, n, columns, &inner);
        if (status != TAP_OK)
            return tap_fail(err, status, "%s: line %zu: %s", path, number, inner.message);
    }
    return TAP_OK;
}

/* ---- files --------------------------------------------------------------------------------- */

tap_status tap_cli_boxes_read(tap_cli_boxes *boxes, const char *path, tap_error *err)
{
    tap_bytes bytes;
    TAP_TRY(tap_bytes_read(&bytes, path, MAX_FILE_BYTES, err));
    char *text = malloc(bytes.size + 1);
    if (text != NULL) {
        memcpy(text, bytes.data, bytes.size);
        text[bytes.size] = '\0';
    }
    size_t n = bytes.size;
    tap_bytes_release(&bytes);
    if (text == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", path);
    tap_status status;
    size_t start = strspn(text, " \t\r\n");
    if (strlen(text) != n)
        status = tap_fail(err, TAP_ERR_FORMAT, "%s: is neither JSON nor CSV", path);
    else if (text[start] == '[' || text[start] == '{')
        status = read_json(boxes, path, text, n, err);
    else
        status = read_csv(boxes, path, text, err);
    free(text);
    return status;
}

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

size_t tap_cli_boxes_of(const tap_cli_boxes *boxes, const char *input,
                        tap_hand_box found[TAP_HANDS_MAX])
{
    size_t n = 0;
    for (size_t i = 0; i < boxes->n; i++) {
        const char *file = boxes->boxes[i].file;
        if (file != NULL && strcmp(file, input) != 0 && strcmp(file, last_name(input)) != 0)
            continue;
        if (n < TAP_HANDS_MAX)
            found[n] = boxes->boxes[i].box;
        n++;
    }
    return n;
}
