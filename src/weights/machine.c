#include "machine.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_SIZE = 64 << 10 };

struct tap_pickle_block {
    struct tap_pickle_block *next;
    size_t used, size;
    max_align_t data[];
};

tap_status tap_machine_fail(tap_machine *m, const char *what)
{
    return tap_fail(m->err, TAP_ERR_FORMAT, "%s: pickle, byte %zu: %s", m->file,
                    m->base + m->opcode, what);
}

/* ---- memory ------------------------------------------------------------------------------ */

static tap_status charge(tap_machine *m, size_t bytes)
{
    if (bytes > TAP_PICKLE_MAX_MEMORY - m->pickle->memory)
        return tap_fail(m->err, TAP_ERR_LIMIT, "%s: pickle, byte %zu: its values take over %d MiB",
                        m->file, m->base + m->opcode, TAP_PICKLE_MAX_MEMORY >> 20);
    m->pickle->memory += bytes;
    return TAP_OK;
}

static tap_status no_memory(tap_machine *m)
{
    return tap_fail(m->err, TAP_ERR_MEMORY, "%s: out of memory for its pickle", m->file);
}

/* Zeroed memory that lives as long as the pickle. */
static tap_status take(tap_machine *m, size_t bytes, void **memory)
{
    struct tap_pickle_block *block = m->pickle->blocks;
    bytes = (bytes + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (block == NULL || block->size - block->used < bytes) {
        size_t size = bytes > BLOCK_SIZE ? bytes : BLOCK_SIZE;
        TAP_TRY(charge(m, sizeof *block + size));
        block = calloc(1, sizeof *block + size);
        if (block == NULL)
            return no_memory(m);
        block->size = size;
        block->next = m->pickle->blocks;
        m->pickle->blocks = block;
    }
    *memory = (uint8_t *)block->data + block->used;
    block->used += bytes;
    return TAP_OK;
}

tap_status tap_machine_value(tap_machine *m, tap_pickle_kind kind, tap_pickle_value **value)
{
    void *memory = NULL;
    TAP_TRY(take(m, sizeof **value, &memory));
    *value = memory;
    (*value)->kind = kind;
    return TAP_OK;
}

tap_status tap_machine_reserve(tap_machine *m, tap_values *values, size_t capacity)
{
    if (capacity <= values->capacity)
        return TAP_OK;
    size_t larger = values->capacity == 0 ? 64 : values->capacity * 2;
    larger = larger > capacity ? larger : capacity;
    TAP_TRY(charge(m, (larger - values->capacity) * sizeof *values->data));
    tap_pickle_value **moved = realloc(values->data, larger * sizeof *moved);
    if (moved == NULL)
        return no_memory(m);
    memset(moved + values->capacity, 0, (larger - values->capacity) * sizeof *moved);
    values->data = moved;
    values->capacity = larger;
    return TAP_OK;
}

/* A doubled array leaves its old half behind in the block: at most as much again, and counted. */
tap_status tap_machine_append(tap_machine *m, tap_pickle_value *to, tap_pickle_value *const *items,
                              size_t n)
{
    size_t wanted = to->items.n + n;
    if (wanted > to->items.capacity) {
        void *memory = NULL;
        size_t capacity = to->items.capacity * 2;
        capacity = capacity > wanted ? capacity : wanted;
        TAP_TRY(take(m, capacity * sizeof *to->items.data, &memory));
        if (to->items.n > 0)
            memcpy(memory, to->items.data, to->items.n * sizeof *to->items.data);
        to->items.data = memory;
        to->items.capacity = capacity;
    }
    if (n > 0)
        memcpy(to->items.data + to->items.n, items, n * sizeof *items);
    to->items.n = wanted;
    return TAP_OK;
}

/* ---- stack ------------------------------------------------------------------------------- */

tap_status tap_machine_push(tap_machine *m, tap_pickle_value *value)
{
    TAP_TRY(tap_machine_reserve(m, &m->stack, m->stack.n + 1));
    m->stack.data[m->stack.n++] = value;
    return TAP_OK;
}

tap_status tap_machine_push_new(tap_machine *m, tap_pickle_kind kind, tap_pickle_value **value)
{
    TAP_TRY(tap_machine_value(m, kind, value));
    return tap_machine_push(m, *value);
}

size_t tap_machine_reach(const tap_machine *m)
{
    return m->stack.n - (m->n_marks > 0 ? m->marks[m->n_marks - 1] : 0);
}

tap_status tap_machine_top(tap_machine *m, tap_pickle_value **value)
{
    if (tap_machine_reach(m) == 0)
        return tap_machine_fail(m, "the stack holds too little");
    *value = m->stack.data[m->stack.n - 1];
    return TAP_OK;
}

tap_status tap_machine_pop(tap_machine *m, size_t n, tap_pickle_value ***items)
{
    if (tap_machine_reach(m) < n)
        return tap_machine_fail(m, "the stack holds too little");
    m->stack.n -= n;
    *items = m->stack.data + m->stack.n;
    return TAP_OK;
}

tap_status tap_machine_pop_mark(tap_machine *m, tap_pickle_value ***items, size_t *n)
{
    if (m->n_marks == 0)
        return tap_machine_fail(m, "no mark on the stack");
    *n = tap_machine_reach(m);
    m->n_marks--;
    return tap_machine_pop(m, *n, items);
}

/* ---- arguments in the byte stream -------------------------------------------------------- */

tap_status tap_machine_read_bytes(tap_machine *m, size_t n, const uint8_t **bytes)
{
    if (m->size - m->at < n)
        return tap_machine_fail(m, "ends inside an opcode's argument: the file is incomplete");
    *bytes = m->data + m->at;
    m->at += n;
    return TAP_OK;
}

tap_status tap_machine_read_uint(tap_machine *m, size_t n, uint64_t *value)
{
    const uint8_t *bytes = NULL;
    TAP_TRY(tap_machine_read_bytes(m, n, &bytes));
    *value = 0;
    memcpy(value, bytes, n);
    return TAP_OK;
}

tap_status tap_machine_read_line(tap_machine *m, const uint8_t **text, size_t *n)
{
    const uint8_t *first = m->data + m->at;
    const uint8_t *end = memchr(first, '\n', m->size - m->at);
    if (end == NULL)
        return tap_machine_fail(m, "a line without an end: the file is incomplete");
    *text = first;
    *n = (size_t)(end - first);
    m->at += *n + 1;
    return TAP_OK;
}

void tap_pickle_free(tap_pickle *pickle)
{
    for (struct tap_pickle_block *block = pickle->blocks; block != NULL;) {
        struct tap_pickle_block *next = block->next;
        free(block);
        block = next;
    }
    free(pickle->persistents);
    *pickle = (tap_pickle){0};
}
