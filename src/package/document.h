/* document: the small tree that YAML and JSON are read into, with where each value stands. */
#ifndef TAP_PACKAGE_DOCUMENT_H
#define TAP_PACKAGE_DOCUMENT_H

#include "core/core.h"

typedef enum tap_node_kind {
    TAP_NODE_NULL,
    TAP_NODE_BOOL,
    TAP_NODE_INTEGER,
    TAP_NODE_FLOAT,
    TAP_NODE_DATE, /* YAML 1.1 has them, unquoted */
    TAP_NODE_TEXT,
    TAP_NODE_LIST,
    TAP_NODE_MAP
} tap_node_kind;

typedef struct tap_node tap_node;
struct tap_node {
    tap_node_kind kind;
    uint32_t line, column; /* from 1; 0 in JSON */
    const char *key;       /* of a map's entry, else NULL */
    const char *text;      /* a scalar as it was written; a text's value */
    size_t n;              /* entries of a list or a map */
    tap_node *first, *last, *next;
};

typedef struct tap_document tap_document;

enum { TAP_DOCUMENT_BYTES = 1 << 20, TAP_DOCUMENT_NODES = 20000, TAP_DOCUMENT_DEPTH = 32 };

/* An empty one; its memory comes from malloc and goes with it. */
tap_document *tap_document_create(void);
void tap_document_free(tap_document *document); /* NULL is fine */

/* YAML 1.1 as PyYAML's safe loader resolves it: unquoted 5.1 is a float, yes a bool, 2026-01-02 a
 * date; a key given twice keeps the last. Stricter than it: no aliases, no tags, keys are texts, no
 * zero byte. name is for messages. *root is the document's.
 * Errors  TAP_ERR_FORMAT with line and column, TAP_ERR_LIMIT, TAP_ERR_MEMORY. */
tap_status tap_document_read_yaml(tap_document *document, const char *name, const tap_bytes *bytes,
                                  const tap_node **root, tap_error *err);

/* JSON (RFC 8259), nothing after it; a key given twice keeps the last. */
tap_status tap_document_read_json(tap_document *document, const char *name, const tap_bytes *bytes,
                                  const tap_node **root, tap_error *err);

/* For the readers and for merging: a node, a copy of size bytes as a text; NULL when out of memory
 * or over the limit. */
tap_node *tap_document_node(tap_document *document, tap_node_kind kind);
void *tap_document_take(tap_document *document, size_t size); /* 16-aligned, the document's */
const char *tap_document_text(tap_document *document, const char *bytes, size_t size);
/* Appends to a list, or to a map under child->key, where it takes an earlier one's place. */
void tap_node_append(tap_node *parent, tap_node *child);

/* The entry of a map; NULL if there is none, or node is NULL or no map. */
const tap_node *tap_node_get(const tap_node *node, const char *key);
/* A text's value; NULL of anything else. */
const char *tap_node_text(const tap_node *node);
/* Of a map's entry. */
const char *tap_node_text_at(const tap_node *node, const char *key);
/* "a number", "a list", ... for messages. */
const char *tap_node_kind_name(tap_node_kind kind);
/* Of an integer, or of a text that looks like a decimal one; false of all else. */
bool tap_node_integer(const tap_node *node, int64_t *value);

#endif
