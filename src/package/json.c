/* json: json-c's tree to ours. */
#include "document.h"

#include <json-c/json.h>
#include <math.h>
#include <string.h>

/* json-c bounds the depth before this runs. */
static tap_node *copy(tap_document *document, struct json_object *value)
{
    static const tap_node_kind kinds[] = {
        [json_type_null] = TAP_NODE_NULL,    [json_type_boolean] = TAP_NODE_BOOL,
        [json_type_double] = TAP_NODE_FLOAT, [json_type_int] = TAP_NODE_INTEGER,
        [json_type_object] = TAP_NODE_MAP,   [json_type_array] = TAP_NODE_LIST,
        [json_type_string] = TAP_NODE_TEXT};
    tap_node *node = tap_document_node(document, kinds[json_object_get_type(value)]);
    if (node == NULL)
        return NULL;
    if (node->kind == TAP_NODE_MAP) {
        json_object_object_foreach(value, key, entry)
        {
            tap_node *child = copy(document, entry);
            if (child == NULL ||
                (child->key = tap_document_text(document, key, strlen(key))) == NULL)
                return NULL;
            tap_node_append(node, child);
        }
    } else if (node->kind == TAP_NODE_LIST) {
        for (size_t i = 0; i < json_object_array_length(value); i++) {
            tap_node *child = copy(document, json_object_array_get_idx(value, i));
            if (child == NULL)
                return NULL;
            tap_node_append(node, child);
        }
    } else {
        if (node->kind == TAP_NODE_FLOAT && !isfinite(json_object_get_double(value)))
            return NULL; /* json-c reads NaN and Infinity, which JSON has not */
        const char *text = node->kind == TAP_NODE_TEXT ? json_object_get_string(value)
                                                       : json_object_to_json_string(value);
        size_t size =
            node->kind == TAP_NODE_TEXT ? (size_t)json_object_get_string_len(value) : strlen(text);
        if (strlen(text) != size || (node->text = tap_document_text(document, text, size)) == NULL)
            return NULL;
    }
    return node;
}

tap_status tap_document_read_json(tap_document *document, const char *name, const tap_bytes *bytes,
                                  const tap_node **root, tap_error *err)
{
    *root = NULL;
    if (bytes->size > TAP_DOCUMENT_BYTES)
        return tap_fail(err, TAP_ERR_LIMIT, "%s: %zu bytes, at most %d are read", name, bytes->size,
                        TAP_DOCUMENT_BYTES);
    struct json_tokener *tokener = json_tokener_new_ex(TAP_DOCUMENT_DEPTH);
    if (tokener == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", name);
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    struct json_object *value =
        json_tokener_parse_ex(tokener, (const char *)bytes->data, (int)bytes->size);
    enum json_tokener_error error = json_tokener_get_error(tokener);
    size_t end = json_tokener_get_parse_end(tokener);
    tap_status status = TAP_OK;
    if (error != json_tokener_success)
        status = tap_fail(err, TAP_ERR_FORMAT, "%s is not valid JSON: byte %zu: %s", name, end,
                          error == json_tokener_continue ? "it ends early"
                                                         : json_tokener_error_desc(error));
    else if ((*root = copy(document, value)) == NULL)
        status = tap_fail(err, TAP_ERR_LIMIT,
                          "%s: over %d values, a zero byte, a number that is not finite, or out "
                          "of memory",
                          name, TAP_DOCUMENT_NODES);
    json_object_put(value);
    json_tokener_free(tokener);
    return status;
}
