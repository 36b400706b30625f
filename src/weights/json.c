#include "json.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

bool tap_utf8_is_valid(const uint8_t *text, size_t size)
{
    for (size_t at = 0; at < size;) {
        size_t n = tap_utf8_length(text + at, size - at);
        if (n == 0)
            return false;
        at += n;
    }
    return true;
}

tap_status tap_json_open(tap_json *json, const uint8_t *text, size_t size, const char *file,
                         size_t base, tap_error *err)
{
    *json = (tap_json){.text = text, .size = size, .file = file, .base = base};
    if (size > UINT32_MAX)
        return tap_fail(err, TAP_ERR_LIMIT, "%s: JSON text of %zu bytes", file, size);
    /* Decoded text is never longer than its source, and a member takes 4 bytes at least, so
     * nothing has to grow. Pages that stay unused cost nothing. */
    json->scratch = malloc(size + 1);
    json->names = malloc(size + 1);
    json->keys = malloc((size / 4 + 1) * sizeof *json->keys);
    if (json->scratch == NULL || json->names == NULL || json->keys == NULL) {
        tap_json_close(json);
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for its JSON text", file);
    }
    return TAP_OK;
}

void tap_json_close(tap_json *json)
{
    free(json->scratch);
    free(json->names);
    free(json->keys);
    json->scratch = json->names = NULL;
    json->keys = NULL;
}

tap_status tap_json_fail(const tap_json *json, tap_error *err, const char *problem)
{
    return tap_fail(err, TAP_ERR_FORMAT, "%s: byte %zu: %s", json->file, json->base + json->at,
                    problem);
}

static void skip_space(tap_json *json)
{
    while (json->at < json->size) {
        uint8_t c = json->text[json->at];
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            return;
        json->at++;
    }
}

/* The next byte, or 0 at the end: no token begins with a NUL. */
static uint8_t peek(const tap_json *json)
{
    return json->at < json->size ? json->text[json->at] : 0;
}

static bool read_hex4(tap_json *json, uint32_t *value)
{
    if (json->size - json->at < 4)
        return false;
    *value = 0;
    for (int i = 0; i < 4; i++) {
        uint8_t c = json->text[json->at++];
        uint32_t digit = c >= '0' && c <= '9'   ? c - '0' + 0u
                         : c >= 'a' && c <= 'f' ? c - 'a' + 10u
                         : c >= 'A' && c <= 'F' ? c - 'A' + 10u
                                                : 16;
        if (digit == 16)
            return false;
        *value = *value << 4 | digit;
    }
    return true;
}

static size_t encode_utf8(char *dst, uint32_t c)
{
    if (c < 0x80) {
        dst[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        dst[0] = (char)(0xc0 | c >> 6);
        dst[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        dst[0] = (char)(0xe0 | c >> 12);
        dst[1] = (char)(0x80 | (c >> 6 & 0x3f));
        dst[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    dst[0] = (char)(0xf0 | c >> 18);
    dst[1] = (char)(0x80 | (c >> 12 & 0x3f));
    dst[2] = (char)(0x80 | (c >> 6 & 0x3f));
    dst[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* What follows a backslash. A pair of \u escapes (12 characters) gives 4 bytes, one (6) gives 3 at
 * most, so dst never overtakes the source. */
static tap_status read_escape(tap_json *json, char *dst, size_t *n, tap_error *err)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    uint8_t c = peek(json);
    const char *found = c != 0 ? strchr(letters, c) : NULL;
    if (found != NULL) {
        json->at++;
        dst[(*n)++] = meanings[found - letters];
        return TAP_OK;
    }
    uint32_t high, low;
    if (c != 'u')
        return tap_json_fail(json, err, "not an escape that JSON has");
    json->at++;
    if (!read_hex4(json, &high))
        return tap_json_fail(json, err, "\\u wants four hexadecimal digits");
    if (high == 0)
        return tap_json_fail(json, err, "a NUL character in a string");
    if (high >= 0xd800 && high < 0xe000) {
        if (high >= 0xdc00 || json->size - json->at < 6 || json->text[json->at] != '\\' ||
            json->text[json->at + 1] != 'u')
            return tap_json_fail(json, err, "half of a surrogate pair");
        json->at += 2;
        if (!read_hex4(json, &low) || low < 0xdc00 || low > 0xdfff)
            return tap_json_fail(json, err, "half of a surrogate pair");
        high = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    }
    *n += encode_utf8(dst + *n, high);
    return TAP_OK;
}

/* A string, from its opening quote, decoded to dst. */
static tap_status read_string(tap_json *json, char *dst, tap_error *err)
{
    size_t n = 0;
    json->at++;
    for (;;) {
        if (json->at == json->size)
            return tap_json_fail(json, err, "the text ends inside a string");
        uint8_t c = json->text[json->at];
        if (c == '"')
            break;
        if (c < 0x20)
            return tap_json_fail(json, err, "a control character in a string");
        if (c == '\\') {
            json->at++;
            TAP_TRY(read_escape(json, dst, &n, err));
            continue;
        }
        size_t length = tap_utf8_length(json->text + json->at, json->size - json->at);
        if (length == 0)
            return tap_json_fail(json, err, "not UTF-8");
        memcpy(dst + n, json->text + json->at, length);
        n += length;
        json->at += length;
    }
    json->at++;
    dst[n] = '\0';
    json->string = dst;
    json->length = n;
    return TAP_OK;
}

static size_t skip_digits(tap_json *json)
{
    size_t first = json->at;
    while (peek(json) >= '0' && peek(json) <= '9')
        json->at++;
    return json->at - first;
}

static tap_status read_number(tap_json *json, tap_error *err)
{
    size_t first = json->at;
    if (peek(json) == '-')
        json->at++;
    bool zero = peek(json) == '0';
    size_t whole = skip_digits(json);
    bool good = whole > 0 && (!zero || whole == 1);
    if (good && peek(json) == '.') {
        json->at++;
        good = skip_digits(json) > 0;
    }
    if (good && (peek(json) == 'e' || peek(json) == 'E')) {
        json->at++;
        if (peek(json) == '+' || peek(json) == '-')
            json->at++;
        good = skip_digits(json) > 0;
    }
    if (!good)
        return tap_json_fail(json, err, "not a number as JSON writes them");
    json->kind = TAP_JSON_NUMBER;
    json->string = (const char *)json->text + first;
    json->length = json->at - first;
    if (json->length > TAP_JSON_MAX_NUMBER)
        return tap_json_fail(json, err, "a number of more than 64 characters");
    return TAP_OK;
}

static tap_status open_level(tap_json *json, bool object, tap_error *err)
{
    if (json->depth == TAP_JSON_MAX_DEPTH)
        return tap_json_fail(json, err, "nested more than 16 deep");
    json->levels[json->depth].object = object;
    json->levels[json->depth].first_key = json->n_keys;
    json->levels[json->depth].names_used = json->names_used;
    json->depth++;
    json->at++;
    json->kind = object ? TAP_JSON_OBJECT : TAP_JSON_ARRAY;
    json->state = object ? TAP_JSON_WANTS_KEY_OR_END : TAP_JSON_WANTS_VALUE_OR_END;
    return TAP_OK;
}

static int compare_keys(const void *a, const void *b, void *names)
{
    const tap_json_name *x = a, *y = b;
    if (x->length != y->length)
        return x->length < y->length ? -1 : 1;
    return memcmp((char *)names + x->offset, (char *)names + y->offset, x->length);
}

/* Sorting finds a repeated name in n log n, whatever names a hostile file has chosen. */
static tap_status close_level(tap_json *json, tap_error *err)
{
    size_t first = json->levels[json->depth - 1].first_key, n = json->n_keys - first;
    tap_json_name *keys = json->keys + first;
    if (n > 1)
        qsort_r(keys, n, sizeof *keys, compare_keys, json->names);
    for (size_t i = 1; i < n; i++)
        if (compare_keys(&keys[i - 1], &keys[i], json->names) == 0)
            return tap_fail(err, TAP_ERR_FORMAT, "%s: \"%s\" is there twice in one JSON object",
                            json->file, json->names + keys[i].offset);
    json->kind = json->levels[json->depth - 1].object ? TAP_JSON_OBJECT_END : TAP_JSON_ARRAY_END;
    json->n_keys = first;
    json->names_used = json->levels[json->depth - 1].names_used;
    json->depth--;
    json->at++;
    json->state = json->depth == 0 ? TAP_JSON_WANTS_NOTHING : TAP_JSON_WANTS_COMMA_OR_END;
    return TAP_OK;
}

static tap_status read_key(tap_json *json, tap_error *err)
{
    if (peek(json) != '"')
        return tap_json_fail(json, err, "a name in double quotes is wanted");
    char *name = json->names + json->names_used;
    TAP_TRY(read_string(json, name, err));
    json->keys[json->n_keys++] =
        (tap_json_name){.offset = (uint32_t)json->names_used, .length = (uint32_t)json->length};
    json->names_used += json->length + 1;
    skip_space(json);
    if (peek(json) != ':')
        return tap_json_fail(json, err, "a colon is wanted");
    json->at++;
    json->kind = TAP_JSON_KEY;
    json->state = TAP_JSON_WANTS_VALUE;
    return TAP_OK;
}

static tap_status read_word(tap_json *json, const char *word, tap_json_kind kind, tap_error *err)
{
    size_t n = strlen(word);
    if (json->size - json->at < n || memcmp(json->text + json->at, word, n) != 0)
        return tap_json_fail(json, err, "not a JSON value");
    json->at += n;
    json->kind = kind;
    return TAP_OK;
}

static tap_status read_value(tap_json *json, tap_error *err)
{
    json->state = json->depth == 0 ? TAP_JSON_WANTS_NOTHING : TAP_JSON_WANTS_COMMA_OR_END;
    switch (peek(json)) {
    case '{':
        return open_level(json, true, err);
    case '[':
        return open_level(json, false, err);
    case '"':
        json->kind = TAP_JSON_STRING;
        return read_string(json, json->scratch, err);
    case 't':
        return read_word(json, "true", TAP_JSON_TRUE, err);
    case 'f':
        return read_word(json, "false", TAP_JSON_FALSE, err);
    case 'n':
        return read_word(json, "null", TAP_JSON_NULL, err);
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9':
        return read_number(json, err);
    default:
        return tap_json_fail(json, err, "not a JSON value");
    }
}

tap_status tap_json_next(tap_json *json, tap_error *err)
{
    skip_space(json);
    if (json->state == TAP_JSON_WANTS_NOTHING) {
        if (json->at < json->size)
            return tap_json_fail(json, err, "text after the JSON value's end");
        json->kind = TAP_JSON_END;
        return TAP_OK;
    }
    if (json->at == json->size)
        return tap_json_fail(json, err, "the JSON text ends too early");
    bool inside = json->depth > 0, object = inside && json->levels[json->depth - 1].object;
    bool may_close = json->state == TAP_JSON_WANTS_COMMA_OR_END ||
                     json->state == TAP_JSON_WANTS_KEY_OR_END ||
                     json->state == TAP_JSON_WANTS_VALUE_OR_END;
    if (may_close && peek(json) == (object ? '}' : ']'))
        return close_level(json, err);
    if (json->state == TAP_JSON_WANTS_COMMA_OR_END) {
        if (peek(json) != ',')
            return tap_json_fail(json, err,
                                 object ? "a comma or } is wanted" : "a comma or ] is wanted");
        json->at++;
        skip_space(json);
        json->state = object ? TAP_JSON_WANTS_KEY : TAP_JSON_WANTS_VALUE;
    }
    if (json->state == TAP_JSON_WANTS_KEY || json->state == TAP_JSON_WANTS_KEY_OR_END)
        return read_key(json, err);
    return read_value(json, err);
}

tap_status tap_json_skip(tap_json *json, tap_error *err)
{
    if (json->kind != TAP_JSON_OBJECT && json->kind != TAP_JSON_ARRAY)
        return TAP_OK;
    size_t outside = json->depth - 1;
    while (json->depth > outside)
        TAP_TRY(tap_json_next(json, err));
    return TAP_OK;
}

bool tap_json_to_size(const tap_json *json, size_t *value)
{
    *value = 0;
    for (size_t i = 0; i < json->length; i++) {
        char c = json->string[i];
        if (c < '0' || c > '9' || !tap_size_mul(*value, 10, value) ||
            !tap_size_add(*value, (size_t)(c - '0'), value))
            return false;
    }
    return json->kind == TAP_JSON_NUMBER;
}

bool tap_json_to_double(const tap_json *json, double *value)
{
    char text[TAP_JSON_MAX_NUMBER + 1];
    if (json->kind != TAP_JSON_NUMBER)
        return false;
    memcpy(text, json->string, json->length);
    text[json->length] = '\0';
    /* The program around us may have set a locale whose decimal point is a comma. */
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0)
        return false;
    *value = strtod_l(text, NULL, plain);
    freelocale(plain);
    return *value - *value == 0; /* finite */
}
