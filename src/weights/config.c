#include "json.h"
#include "weights.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_TEXT = 1 << 20,
    MAX_SIZES = 64 /* whole numbers in a list; a longer one is of no use to a model */
};

struct member {
    char *key;
    enum { OTHER, STRING, NUMBER, SIZES } kind;
    char *string;
    double number;
    size_t *sizes;
    size_t n_sizes;
};

struct tap_config {
    struct member *members;
    size_t n, capacity;
};

void tap_config_free(tap_config *config)
{
    if (config == NULL)
        return;
    for (size_t i = 0; i < config->n; i++) {
        free(config->members[i].key);
        free(config->members[i].string);
        free(config->members[i].sizes);
    }
    free(config->members);
    free(config);
}

static const struct member *find(const tap_config *config, const char *key)
{
    for (size_t i = 0; i < config->n; i++)
        if (strcmp(config->members[i].key, key) == 0)
            return &config->members[i];
    return NULL;
}

bool tap_config_has(const tap_config *config, const char *key)
{
    return find(config, key) != NULL;
}

const char *tap_config_string(const tap_config *config, const char *key)
{
    const struct member *member = find(config, key);
    return member != NULL && member->kind == STRING ? member->string : NULL;
}

bool tap_config_number(const tap_config *config, const char *key, double *value)
{
    const struct member *member = find(config, key);
    if (member == NULL || member->kind != NUMBER)
        return false;
    *value = member->number;
    return true;
}

size_t tap_config_sizes(const tap_config *config, const char *key, size_t *values, size_t capacity)
{
    const struct member *member = find(config, key);
    if (member == NULL || member->kind != SIZES)
        return 0;
    for (size_t i = 0; i < member->n_sizes && i < capacity; i++)
        values[i] = member->sizes[i];
    return member->n_sizes;
}

static tap_status no_memory(const tap_json *json, tap_error *err)
{
    return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", json->file);
}

/* A new member of that name at the end of the list, which grows. */
static tap_status add_member(tap_config *config, const tap_json *json, tap_error *err)
{
    if (config->n == config->capacity) {
        size_t larger = config->capacity == 0 ? 32 : config->capacity * 2;
        struct member *moved = realloc(config->members, larger * sizeof *moved);
        if (moved == NULL)
            return no_memory(json, err);
        config->members = moved;
        config->capacity = larger;
    }
    char *key = strdup(json->string);
    if (key == NULL)
        return no_memory(json, err);
    config->members[config->n++] = (struct member){.key = key};
    return TAP_OK;
}

/* After [: a list of whole numbers is kept, any other only checked. */
static tap_status read_list(struct member *member, tap_json *json, tap_error *err)
{
    size_t values[MAX_SIZES], n = 0;
    bool sizes = true;
    for (;;) {
        TAP_TRY(tap_json_next(json, err));
        if (json->kind == TAP_JSON_ARRAY_END)
            break;
        sizes = sizes && n < MAX_SIZES && tap_json_to_size(json, &values[n]);
        n++;
        TAP_TRY(tap_json_skip(json, err));
    }
    if (!sizes || n == 0)
        return TAP_OK;
    member->sizes = malloc(n * sizeof *values);
    if (member->sizes == NULL)
        return no_memory(json, err);
    memcpy(member->sizes, values, n * sizeof *values);
    member->n_sizes = n;
    member->kind = SIZES;
    return TAP_OK;
}

static tap_status read_member(struct member *member, tap_json *json, tap_error *err)
{
    TAP_TRY(tap_json_next(json, err));
    switch (json->kind) {
    case TAP_JSON_STRING:
        member->kind = STRING;
        member->string = strdup(json->string);
        return member->string != NULL ? TAP_OK : no_memory(json, err);
    case TAP_JSON_NUMBER:
        member->kind = NUMBER;
        if (!tap_json_to_double(json, &member->number))
            return tap_json_fail(json, err, "a number too large for a double");
        return TAP_OK;
    case TAP_JSON_ARRAY:
        return read_list(member, json, err);
    default:
        return tap_json_skip(json, err);
    }
}

static tap_status read_object(tap_config *config, tap_json *json, tap_error *err)
{
    TAP_TRY(tap_json_next(json, err));
    if (json->kind != TAP_JSON_OBJECT)
        return tap_json_fail(json, err, "a configuration is one JSON object");
    for (;;) {
        TAP_TRY(tap_json_next(json, err));
        if (json->kind == TAP_JSON_OBJECT_END)
            return tap_json_next(json, err); /* nothing but space follows */
        TAP_TRY(add_member(config, json, err));
        TAP_TRY(read_member(&config->members[config->n - 1], json, err));
    }
}

tap_status tap_config_parse(tap_config **config, const uint8_t *text, size_t size, const char *file,
                            tap_error *err)
{
    tap_json json;
    *config = NULL;
    if (size > MAX_TEXT)
        return tap_fail(err, TAP_ERR_LIMIT, "%s: %zu bytes of configuration, over %d", file, size,
                        MAX_TEXT);
    TAP_TRY(tap_json_open(&json, text, size, file, 0, err));
    tap_config *made = calloc(1, sizeof *made);
    tap_status status = made != NULL ? read_object(made, &json, err) : no_memory(&json, err);
    tap_json_close(&json);
    if (status != TAP_OK)
        tap_config_free(made);
    else
        *config = made;
    return status;
}

tap_status tap_config_open(tap_config **config, const char *path, tap_error *err)
{
    tap_bytes bytes;
    *config = NULL;
    TAP_TRY(tap_bytes_read(&bytes, path, MAX_TEXT, err));
    tap_status status = tap_config_parse(config, bytes.data, bytes.size, path, err);
    tap_bytes_release(&bytes);
    return status;
}
