/* yaml: libyaml's events to a tree, plain scalars resolved as YAML 1.1 has it. */
#include "document.h"

#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

/* Source: yaml.org/type, as PyYAML's resolver narrows it (a float needs a point, and a sign in its
 * exponent). Tried in this order; what none matches is a text. */
static const struct {
    tap_node_kind kind;
    const char *pattern;
} scalars[] = {
    {TAP_NODE_NULL, "^(~|null|Null|NULL|)$"},
    {TAP_NODE_BOOL,
     "^(yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$"},
    {TAP_NODE_INTEGER, "^[-+]?(0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+"
                       "|[1-9][0-9_]*(:[0-5]?[0-9])+)$"},
    {TAP_NODE_FLOAT,
     "^([-+]?[0-9][0-9_]*\\.[0-9_]*([eE][-+][0-9]+)?|\\.[0-9][0-9_]*([eE][-+][0-9]+)?"
     "|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+\\.[0-9_]*|[-+]?\\.(inf|Inf|INF)"
     "|\\.(nan|NaN|NAN))$"},
    {TAP_NODE_DATE,
     "^[0-9]{4}-[0-9]{2}-[0-9]{2}$|^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt]|[ \t]+)"
     "[0-9]{1,2}:[0-9]{2}:[0-9]{2}(\\.[0-9]*)?([ \t]*(Z|[-+][0-9]{1,2}(:[0-9]{2})?))?$"},
};

enum { N_SCALARS = sizeof scalars / sizeof *scalars };

struct reader {
    tap_document *document;
    const char *name;
    yaml_parser_t parser;
    regex_t patterns[N_SCALARS];
    size_t n_patterns;
    tap_error *err;
};

static tap_status fail_at(struct reader *reader, tap_status status, yaml_mark_t mark,
                          const char *what)
{
    return tap_fail(reader->err, status, "%s is not valid YAML: line %zu, column %zu: %s",
                    reader->name, mark.line + 1, mark.column + 1, what);
}

static tap_status no_room(struct reader *reader, yaml_mark_t mark)
{
    return fail_at(reader, TAP_ERR_LIMIT, mark, "over 20000 values, or out of memory");
}

static tap_status next(struct reader *reader, yaml_event_t *event)
{
    if (yaml_parser_parse(&reader->parser, event))
        return TAP_OK;
    const yaml_parser_t *parser = &reader->parser;
    if (parser->error == YAML_MEMORY_ERROR)
        return tap_fail(reader->err, TAP_ERR_MEMORY, "%s: out of memory", reader->name);
    return fail_at(reader, TAP_ERR_FORMAT, parser->problem_mark,
                   parser->problem != NULL ? parser->problem : "not text");
}

static tap_node_kind resolve(const struct reader *reader, const char *text)
{
    for (size_t i = 0; i < N_SCALARS; i++)
        if (regexec(&reader->patterns[i], text, 0, NULL, 0) == 0)
            return scalars[i].kind;
    return TAP_NODE_TEXT;
}

static tap_status read_scalar(struct reader *reader, const yaml_event_t *event, tap_node **out)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t size = event->data.scalar.length;
    if (event->data.scalar.tag != NULL)
        return fail_at(reader, TAP_ERR_FORMAT, event->start_mark, "tags (!) are not read");
    if (strlen(text) != size)
        return fail_at(reader, TAP_ERR_FORMAT, event->start_mark, "a zero byte");
    tap_node *node = tap_document_node(reader->document, TAP_NODE_TEXT);
    if (node == NULL || (node->text = tap_document_text(reader->document, text, size)) == NULL)
        return no_room(reader, event->start_mark);
    if (event->data.scalar.plain_implicit)
        node->kind = resolve(reader, text);
    *out = node;
    return TAP_OK;
}

static tap_status read_node(struct reader *reader, yaml_event_t *event, size_t depth,
                            tap_node **out);

/* After a list's or a map's opening, to its closing. */
static tap_status read_entries(struct reader *reader, tap_node *parent, size_t depth)
{
    for (;;) {
        yaml_event_t event;
        tap_node *key = NULL, *child = NULL;
        TAP_TRY(next(reader, &event));
        if (event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&event);
            return TAP_OK;
        }
        if (parent->kind == TAP_NODE_MAP) {
            yaml_mark_t mark = event.start_mark;
            TAP_TRY(read_node(reader, &event, depth + 1, &key));
            if (key->kind != TAP_NODE_TEXT)
                return fail_at(reader, TAP_ERR_FORMAT, mark,
                               "a key must be a string: quote it if it looks like something else");
            TAP_TRY(next(reader, &event));
        }
        TAP_TRY(read_node(reader, &event, depth + 1, &child));
        child->key = key != NULL ? key->text : NULL;
        tap_node_append(parent, child);
    }
}

/* Takes the event over. */
static tap_status read_node(struct reader *reader, yaml_event_t *event, size_t depth,
                            tap_node **out)
{
    yaml_mark_t mark = event->start_mark;
    tap_status status = TAP_OK;
    if (depth > TAP_DOCUMENT_DEPTH) {
        status = fail_at(reader, TAP_ERR_LIMIT, mark, "nested over 32 deep");
    } else if (event->type == YAML_SCALAR_EVENT) {
        status = read_scalar(reader, event, out);
    } else if (event->type == YAML_ALIAS_EVENT) {
        status =
            fail_at(reader, TAP_ERR_FORMAT, mark, "aliases (*) are not read: write the value out");
    } else {
        bool list = event->type == YAML_SEQUENCE_START_EVENT;
        const void *tag = list ? event->data.sequence_start.tag : event->data.mapping_start.tag;
        *out = tap_document_node(reader->document, list ? TAP_NODE_LIST : TAP_NODE_MAP);
        if (tag != NULL)
            status = fail_at(reader, TAP_ERR_FORMAT, mark, "tags (!) are not read");
        else if (*out == NULL)
            status = no_room(reader, mark);
        else
            status = read_entries(reader, *out, depth);
    }
    if (status == TAP_OK) {
        (*out)->line = (uint32_t)mark.line + 1;
        (*out)->column = (uint32_t)mark.column + 1;
    }
    yaml_event_delete(event);
    return status;
}

/* The stream's and the document's own events around the one root. */
static tap_status read_stream(struct reader *reader, const tap_node **root)
{
    yaml_event_t event;
    tap_node *node = NULL;
    *root = NULL;
    for (;;) {
        TAP_TRY(next(reader, &event));
        yaml_event_type_t type = event.type;
        if (type == YAML_STREAM_START_EVENT || type == YAML_DOCUMENT_END_EVENT) {
            yaml_event_delete(&event);
        } else if (type == YAML_STREAM_END_EVENT) {
            yaml_event_delete(&event);
            break;
        } else if (type == YAML_DOCUMENT_START_EVENT) {
            yaml_mark_t mark = event.start_mark;
            yaml_event_delete(&event);
            if (node != NULL)
                return fail_at(reader, TAP_ERR_FORMAT, mark, "a second document begins");
        } else {
            TAP_TRY(read_node(reader, &event, 0, &node));
        }
    }
    if (node == NULL && (node = tap_document_node(reader->document, TAP_NODE_NULL)) == NULL)
        return tap_fail(reader->err, TAP_ERR_MEMORY, "%s: out of memory", reader->name);
    *root = node;
    return TAP_OK;
}

tap_status tap_document_read_yaml(tap_document *document, const char *name, const tap_bytes *bytes,
                                  const tap_node **root, tap_error *err)
{
    struct reader reader = {.document = document, .name = name, .err = err};
    tap_status status = TAP_OK;
    if (bytes->size > TAP_DOCUMENT_BYTES)
        return tap_fail(err, TAP_ERR_LIMIT, "%s: %zu bytes, at most %d are read", name, bytes->size,
                        TAP_DOCUMENT_BYTES);
    for (; reader.n_patterns < N_SCALARS; reader.n_patterns++)
        if (regcomp(&reader.patterns[reader.n_patterns], scalars[reader.n_patterns].pattern,
                    REG_EXTENDED | REG_NOSUB) != 0)
            break;
    if (reader.n_patterns < N_SCALARS || !yaml_parser_initialize(&reader.parser)) {
        status = tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", name);
    } else {
        yaml_parser_set_input_string(&reader.parser, bytes->data, bytes->size);
        status = read_stream(&reader, root);
        yaml_parser_delete(&reader.parser);
    }
    while (reader.n_patterns > 0)
        regfree(&reader.patterns[--reader.n_patterns]);
    return status;
}
