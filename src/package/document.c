#include "document.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Blocks that are never moved, so that nodes and texts may be pointed at. */
struct block {
    struct block *next;
    size_t used;
    _Alignas(16) unsigned char bytes[];
};

enum { BLOCK_BYTES = 1 << 16 };

struct tap_document {
    struct block *blocks;
    size_t n_nodes;
};

tap_document *tap_document_create(void)
{
    return calloc(1, sizeof(tap_document));
}

void tap_document_free(tap_document *document)
{
    if (document == NULL)
        return;
    for (struct block *block = document->blocks, *next; block != NULL; block = next) {
        next = block->next;
        free(block);
    }
    free(document);
}

void *tap_document_take(tap_document *document, size_t size)
{
    size_t capacity = size > BLOCK_BYTES ? size : BLOCK_BYTES;
    struct block *block = document->blocks;
    if (!tap_size_align(size, 16, &size))
        return NULL;
    if (block == NULL || block->used + size > BLOCK_BYTES) {
        size_t bytes;
        if (!tap_size_add(sizeof *block + 16, capacity, &bytes) || (block = malloc(bytes)) == NULL)
            return NULL;
        *block = (struct block){.next = document->blocks};
        document->blocks = block;
    }
    void *memory = block->bytes + block->used;
    block->used += size;
    return memory;
}

tap_node *tap_document_node(tap_document *document, tap_node_kind kind)
{
    if (document->n_nodes >= TAP_DOCUMENT_NODES)
        return NULL;
    tap_node *node = tap_document_take(document, sizeof *node);
    if (node == NULL)
        return NULL;
    document->n_nodes++;
    *node = (tap_node){.kind = kind};
    return node;
}

const char *tap_document_text(tap_document *document, const char *bytes, size_t size)
{
    char *text = tap_document_take(document, size + 1);
    if (text == NULL)
        return NULL;
    memcpy(text, bytes, size);
    text[size] = '\0';
    return text;
}

void tap_node_append(tap_node *parent, tap_node *child)
{
    tap_node **at = &parent->first;
    if (parent->kind == TAP_NODE_MAP) {
        while (*at != NULL && strcmp((*at)->key, child->key) != 0)
            at = &(*at)->next;
    } else if (parent->last != NULL) {
        at = &parent->last->next;
    }
    if (*at == NULL)
        parent->n++;
    else
        child->next = (*at)->next;
    *at = child;
    if (child->next == NULL)
        parent->last = child;
}

const tap_node *tap_node_get(const tap_node *node, const char *key)
{
    if (node == NULL || node->kind != TAP_NODE_MAP)
        return NULL;
    for (const tap_node *entry = node->first; entry != NULL; entry = entry->next)
        if (strcmp(entry->key, key) == 0)
            return entry;
    return NULL;
}

const char *tap_node_text(const tap_node *node)
{
    return node != NULL && node->kind == TAP_NODE_TEXT ? node->text : NULL;
}

const char *tap_node_text_at(const tap_node *node, const char *key)
{
    return tap_node_text(tap_node_get(node, key));
}

const char *tap_node_kind_name(tap_node_kind kind)
{
    static const char *const names[] = {
        [TAP_NODE_NULL] = "null",        [TAP_NODE_BOOL] = "a boolean",
        [TAP_NODE_INTEGER] = "a number", [TAP_NODE_FLOAT] = "a number",
        [TAP_NODE_DATE] = "a date",      [TAP_NODE_TEXT] = "a string",
        [TAP_NODE_LIST] = "a list",      [TAP_NODE_MAP] = "a mapping"};
    return names[kind];
}

bool tap_node_integer(const tap_node *node, int64_t *value)
{
    if (node == NULL || (node->kind != TAP_NODE_INTEGER && node->kind != TAP_NODE_TEXT))
        return false;
    const char *text = node->text;
    size_t digits = strspn(text + (*text == '-' || *text == '+'), "0123456789");
    if (digits == 0 || text[(*text == '-' || *text == '+') + digits] != '\0')
        return false;
    errno = 0;
    *value = strtoll(text, NULL, 10);
    return errno == 0;
}
