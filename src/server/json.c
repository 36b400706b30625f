/* A request's JSON object. One pass of ours counts values and depth, finds the pictures' strings
 * and refuses names given twice; what is left without the pictures, at most a megabyte, goes
 * through json-c. So a picture is never copied, and a tree is never built of hostile size. */
#include "fields.h"

#include "core/core.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_PICTURES = 2,
    NAME_SLOTS = 1 << 15, /* a power of two, over twice TAP_JSON_VALUES */
    MAX_NAME = 256
};

/* A string's place in the body: [start, end) between its quotes. */
struct span {
    size_t start, end;
};

struct scan {
    char *body;
    size_t n, at;
    size_t n_values, depth;
    const char *const *pictures;
    size_t n_pictures;
    struct span found[MAX_PICTURES]; /* end 0: absent */
    size_t picture;                  /* the key just read names this picture; else n_pictures */
    uint64_t *names;                 /* hashes of the object's names so far; 0: free */
};

/* ---- strings --------------------------------------------------------------------------------- */

static int hex4(const char *text, size_t n)
{
    int value = 0;
    if (n < 4)
        return -1;
    for (size_t i = 0; i < 4; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

/* A \u escape's value as UTF-8, never longer than the escape; halves of surrogate pairs one by one:
 * neither base64 nor a field's name has any, they need only stay apart from others. */
static size_t put_code(char *out, int code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    out[0] = (char)(0xe0 | code >> 12);
    out[1] = (char)(0x80 | (code >> 6 & 0x3f));
    out[2] = (char)(0x80 | (code & 0x3f));
    return 3;
}

/* Resolves escapes in place. False: a bad escape. */
static bool unescape(char *text, size_t *n)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    size_t out = 0;
    for (size_t i = 0; i < *n;) {
        if (text[i] != '\\') {
            text[out++] = text[i++];
            continue;
        }
        if (++i == *n)
            return false;
        const char *name = text[i] != '\0' ? strchr(names, text[i]) : NULL;
        int code = text[i] == 'u' ? hex4(text + i + 1, *n - i - 1) : -1;
        if (name != NULL)
            text[out++] = values[name - names];
        else if (code >= 0)
            out += put_code(text + out, code);
        else
            return false;
        i += name != NULL ? 1 : 5;
    }
    *n = out;
    return true;
}

/* Moves behind the string whose opening quote is at scan->at. */
static tap_status skip_string(struct scan *scan, struct span *span, tap_error *err)
{
    const char *body = scan->body;
    size_t at = scan->at + 1;
    span->start = at;
    while (at < scan->n && body[at] != '"') {
        unsigned char c = (unsigned char)body[at];
        size_t length = 1;
        if (c < 0x20)
            return tap_fail(err, TAP_ERR_ARGUMENT,
                            "not JSON: a control character in a string, at byte %zu", at);
        if (c >= 0x80) /* json-c lets overlong forms and surrogates pass */
            length = tap_utf8_length((const uint8_t *)body + at, scan->n - at);
        if (length == 0)
            return tap_fail(err, TAP_ERR_ARGUMENT, "not JSON: no UTF-8, at byte %zu", at);
        at += c == '\\' ? 2 : length;
    }
    if (at >= scan->n)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "not JSON: the string that begins at byte %zu does not end", span->start);
    span->end = at;
    scan->at = at + 1;
    return TAP_OK;
}

/* ---- one pass -------------------------------------------------------------------------------- */

/* Notes a name of the object itself; refuses one that was there. */
static tap_status note_name(struct scan *scan, const struct span *span, tap_error *err)
{
    char name[MAX_NAME + 1];
    size_t n = span->end - span->start;
    n = n < MAX_NAME ? n : MAX_NAME;
    memcpy(name, scan->body + span->start, n);
    name[n] = '\0';
    if (span->end - span->start > MAX_NAME || !unescape(name, &n) || memchr(name, '\0', n) != NULL)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "not a field's name, at byte %zu: a bad escape, a NUL, or over %d bytes",
                        span->start, MAX_NAME);
    name[n] = '\0';
    uint64_t hash = tap_fnv1a64(name);
    hash += hash == 0;
    size_t slot = hash & (NAME_SLOTS - 1);
    for (; scan->names[slot] != 0; slot = (slot + 1) & (NAME_SLOTS - 1))
        if (scan->names[slot] == hash)
            return tap_fail(err, TAP_ERR_ARGUMENT, "%.64s: given twice", name);
    scan->names[slot] = hash;
    for (scan->picture = 0; scan->picture < scan->n_pictures; scan->picture++)
        if (strcmp(name, scan->pictures[scan->picture]) == 0)
            break;
    return TAP_OK;
}

/* A string: a name if a colon follows, else a value. */
static tap_status scan_string(struct scan *scan, tap_error *err)
{
    struct span span;
    TAP_TRY(skip_string(scan, &span, err));
    if (scan->depth != 1)
        return TAP_OK;
    size_t next = scan->at;
    while (next < scan->n && strchr(" \t\r\n", scan->body[next]) != NULL && scan->body[next] != 0)
        next++;
    if (next < scan->n && scan->body[next] == ':')
        return note_name(scan, &span, err);
    if (scan->picture < scan->n_pictures)
        scan->found[scan->picture] = span;
    scan->picture = scan->n_pictures;
    return TAP_OK;
}

/* Moves behind the digits at scan->at; false if there are none. */
static bool skip_digits(struct scan *scan)
{
    size_t start = scan->at;
    while (scan->at < scan->n && scan->body[scan->at] >= '0' && scan->body[scan->at] <= '9')
        scan->at++;
    return scan->at > start;
}

/* Moves behind one of these characters; false if none is at scan->at. */
static bool skip_one(struct scan *scan, const char *these)
{
    char c = scan->at < scan->n ? scan->body[scan->at] : '\0';
    bool found = c != '\0' && strchr(these, c) != NULL;
    scan->at += found;
    return found;
}

/* A number as RFC 8259, section 6, has it; json-c lets "00" and "-05" pass. */
static tap_status scan_number(struct scan *scan, tap_error *err)
{
    size_t start = scan->at;
    skip_one(scan, "-");
    bool right = skip_one(scan, "0") || skip_digits(scan);
    if (right && skip_one(scan, "."))
        right = skip_digits(scan);
    if (right && skip_one(scan, "eE")) {
        skip_one(scan, "+-");
        right = skip_digits(scan);
    }
    if (!right || (scan->at < scan->n && strchr(" \t\r\n,]}", scan->body[scan->at]) == NULL))
        return tap_fail(err, TAP_ERR_ARGUMENT, "not JSON: the number at byte %zu is none", start);
    return TAP_OK;
}

static tap_status scan_body(struct scan *scan, tap_error *err)
{
    while (scan->at < scan->n) {
        char c = scan->body[scan->at];
        if (c == '"') {
            TAP_TRY(scan_string(scan, err));
            continue;
        }
        if (c == '-' || (c >= '0' && c <= '9')) {
            TAP_TRY(scan_number(scan, err));
            continue;
        }
        /* Elsewhere JSON has only these; json-c would let "NaN" and comments pass. */
        if (c == '\0' || strchr(" \t\r\n{}[]:,truefalsn", c) == NULL)
            return tap_fail(err, TAP_ERR_ARGUMENT, "not JSON: byte 0x%02x at %zu", (unsigned char)c,
                            scan->at);
        if (c == '{' || c == '[')
            scan->depth++;
        if (c == '}' || c == ']')
            scan->depth -= scan->depth > 0;
        if (c == ',' || c == '}')
            scan->picture = scan->n_pictures;
        scan->n_values += strchr("{[,:", c) != NULL;
        if (scan->depth > TAP_JSON_DEPTH)
            return tap_fail(err, TAP_ERR_LIMIT, "JSON nested over %d deep, at byte %zu",
                            TAP_JSON_DEPTH, scan->at);
        if (scan->n_values > TAP_JSON_VALUES)
            return tap_fail(err, TAP_ERR_LIMIT, "JSON of over %d values", TAP_JSON_VALUES);
        scan->at++;
    }
    return TAP_OK;
}

/* ---- the rest, through json-c ---------------------------------------------------------------- */

static tap_value value_of(json_object *object);

static tap_value item_of(const void *array, size_t i)
{
    return value_of(json_object_array_get_idx((const json_object *)array, i));
}

static tap_value value_of(json_object *object)
{
    tap_value value = {.kind = TAP_VALUE_OTHER};
    switch (json_object_get_type(object)) {
    case json_type_null:
        value.text = "null";
        break;
    case json_type_boolean:
        value.kind = TAP_VALUE_BOOLEAN;
        value.boolean = json_object_get_boolean(object);
        break;
    case json_type_double:
        value.kind = TAP_VALUE_DOUBLE;
        value.real = json_object_get_double(object);
        break;
    case json_type_int:
        value.kind = TAP_VALUE_INTEGER;
        value.integer = json_object_get_int64(object);
        break;
    case json_type_string:
        /* "single\u0000" is not "single". */
        value.text = json_object_get_string(object);
        if (strlen(value.text) == (size_t)json_object_get_string_len(object))
            value.kind = TAP_VALUE_STRING;
        else
            value.text = "a string with a NUL";
        break;
    case json_type_array:
        value.kind = TAP_VALUE_ARRAY;
        value.text = "an array";
        value.array = object;
        value.count = json_object_array_length(object);
        value.item = item_of;
        break;
    case json_type_object:
        value.text = "an object";
        break;
    }
    return value;
}

static tap_status read_fields(tap_wish *wish, const tap_wish_limits *limits,
                              const struct scan *scan, json_object *root, tap_error *err)
{
    if (!json_object_is_type(root, json_type_object))
        return tap_fail(err, TAP_ERR_ARGUMENT, "the body must be a JSON object");
    json_object_object_foreach(root, name, object)
    {
        tap_value value = value_of(object);
        for (size_t i = 0; i < scan->n_pictures; i++)
            if (strcmp(name, scan->pictures[i]) == 0 && value.kind != TAP_VALUE_STRING)
                return tap_fail(err, TAP_ERR_ARGUMENT, "%s: must be a base64 string, not %s", name,
                                value.text != NULL ? value.text : "a number or boolean");
        TAP_TRY(tap_wish_set(wish, limits, name, &value, err));
    }
    return TAP_OK;
}

/* A place in the text without the pictures, as a place in the body. */
static size_t place_in_body(const struct scan *scan, size_t at)
{
    size_t n = scan->n_pictures;
    bool swapped = n == 2 && scan->found[1].start < scan->found[0].start;
    for (size_t i = 0; i < n; i++) {
        const struct span *cut = &scan->found[swapped ? n - 1 - i : i];
        if (cut->end != 0 && at >= cut->start)
            at += cut->end - cut->start;
    }
    return at;
}

static tap_status parse_rest(tap_wish *wish, const tap_wish_limits *limits, const struct scan *scan,
                             const char *rest, size_t n_rest, tap_error *err)
{
    json_tokener *tokener = json_tokener_new_ex(TAP_JSON_DEPTH + 1);
    if (tokener == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a request");
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
    /* The final NUL tells json-c that the text ends: a number could go on. */
    json_object *root = json_tokener_parse_ex(tokener, rest, (int)n_rest + 1);
    enum json_tokener_error error = json_tokener_get_error(tokener);
    size_t end = json_tokener_get_parse_end(tokener);
    tap_status status = TAP_OK;
    if (error != json_tokener_success)
        status = tap_fail(err, TAP_ERR_ARGUMENT, "not JSON: %s, at byte %zu",
                          error == json_tokener_continue ? "it ends too early"
                                                         : json_tokener_error_desc(error),
                          place_in_body(scan, end < n_rest ? end : n_rest));
    else if (end < n_rest && end + strspn(rest + end, " \t\r\n") < n_rest)
        status = tap_fail(err, TAP_ERR_ARGUMENT, "not JSON: something follows the object");
    else
        status = read_fields(wish, limits, scan, root, err);
    json_object_put(root);
    json_tokener_free(tokener);
    return status;
}

/* The body without the pictures' text, NUL-terminated. */
static tap_status cut_pictures(char **rest, size_t *n_rest, const struct scan *scan, tap_error *err)
{
    struct span cuts[MAX_PICTURES];
    size_t n_cuts = 0, n = scan->n;
    for (size_t i = 0; i < scan->n_pictures; i++)
        if (scan->found[i].end != 0) {
            cuts[n_cuts++] = scan->found[i];
            n -= scan->found[i].end - scan->found[i].start;
        }
    if (n_cuts == 2 && cuts[1].start < cuts[0].start) {
        struct span swap = cuts[0];
        cuts[0] = cuts[1];
        cuts[1] = swap;
    }
    if (n > TAP_JSON_REST)
        return tap_fail(err, TAP_ERR_LIMIT, "%zu bytes of JSON beside the picture; at most %d", n,
                        TAP_JSON_REST);
    char *out = *rest = malloc(n + 1);
    if (out == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a request");
    size_t at = 0;
    for (size_t i = 0; i < n_cuts; i++) {
        memcpy(out, scan->body + at, cuts[i].start - at);
        out += cuts[i].start - at;
        at = cuts[i].end;
    }
    memcpy(out, scan->body + at, scan->n - at);
    (*rest)[n] = '\0';
    *n_rest = n;
    return TAP_OK;
}

static tap_status decode_picture(tap_slice *slice, const struct scan *scan, size_t i,
                                 tap_error *err)
{
    struct span span = scan->found[i];
    if (span.end == 0)
        return tap_fail(err, TAP_ERR_ARGUMENT, "%s: missing (a base64 picture)", scan->pictures[i]);
    char *text = scan->body + span.start;
    size_t n = span.end - span.start;
    if (memchr(text, '\\', n) != NULL && !unescape(text, &n))
        return tap_fail(err, TAP_ERR_ARGUMENT, "not JSON: a bad escape in %s", scan->pictures[i]);
    tap_error own;
    slice->data = (uint8_t *)text;
    tap_status status = tap_base64_decode(slice->data, &slice->size, text, n, &own);
    if (status != TAP_OK)
        return tap_fail(err, status, "bad image: %s: %s", scan->pictures[i], own.message);
    return TAP_OK;
}

tap_status tap_json_request(tap_wish *wish, const tap_wish_limits *limits, tap_slice *slices,
                            const char *const *pictures, size_t n_pictures, char *body,
                            size_t n_body, tap_error *err)
{
    struct scan scan = {.body = body,
                        .n = n_body,
                        .pictures = pictures,
                        .n_pictures = n_pictures,
                        .picture = n_pictures};
    char *rest = NULL;
    size_t n_rest = 0;
    scan.names = calloc(NAME_SLOTS, sizeof *scan.names);
    if (scan.names == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a request");
    tap_status status = scan_body(&scan, err);
    free(scan.names);
    if (status == TAP_OK)
        status = cut_pictures(&rest, &n_rest, &scan, err);
    if (status == TAP_OK)
        status = parse_rest(wish, limits, &scan, rest, n_rest, err);
    free(rest);
    for (size_t i = 0; i < n_pictures && status == TAP_OK; i++)
        status = decode_picture(&slices[i], &scan, i, err);
    return status;
}
