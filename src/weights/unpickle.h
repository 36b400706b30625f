/* A pickle is a program for a stack machine. This one runs the opcodes that build plain values and
 * nothing else: a global is looked up in a closed list and becomes an inert mark, a call of one
 * becomes an inert record of its arguments. No name in a file ever reaches code. Private to
 * weights.
 * Source: Python's pickletools.py, which documents every opcode of protocols 0 to 5. */
#ifndef TAP_WEIGHTS_UNPICKLE_H
#define TAP_WEIGHTS_UNPICKLE_H

#include "core/core.h"

enum {
    TAP_PICKLE_MAX_SIZE = 16 << 20,    /* bytes; 4,096 tensors take under 1 MiB */
    TAP_PICKLE_MAX_MEMORY = 192 << 20, /* of values, stack and memo together */
    TAP_PICKLE_MAX_MARKS = 256,        /* tuples, lists, ... open inside one another */
    TAP_PICKLE_MAX_MEMO = 1 << 20,
    TAP_PICKLE_MAX_NAME = 256 /* of a module or a global */
};

typedef enum tap_pickle_kind {
    TAP_PICKLE_NONE,
    TAP_PICKLE_BOOL,
    TAP_PICKLE_INT,       /* fits int64_t */
    TAP_PICKLE_LONG,      /* a longer one, as its little-endian bytes in text */
    TAP_PICKLE_FLOAT,     /* its value is of no use here */
    TAP_PICKLE_TEXT,      /* UTF-8, or a Python 2 string */
    TAP_PICKLE_BYTES,     /* bytes, bytearray */
    TAP_PICKLE_TUPLE,     /* items */
    TAP_PICKLE_LIST,      /* items; sets, too */
    TAP_PICKLE_DICT,      /* items: key, value, key, value, ... */
    TAP_PICKLE_GLOBAL,    /* global */
    TAP_PICKLE_OBJECT,    /* callee (a GLOBAL) called with arguments (a TUPLE) */
    TAP_PICKLE_PERSISTENT /* a reference to something outside: arguments is its id, any value */
} tap_pickle_kind;

/* A global that may occur, and what a call of it gives. tag is for whoever reads the result. */
typedef struct tap_pickle_global {
    const char *module, *name;
    enum {
        TAP_PICKLE_MAKES_OBJECT,
        TAP_PICKLE_MAKES_DICT,   /* of no argument, or of a list of pairs */
        TAP_PICKLE_MAKES_LIST,   /* of no argument, or of a list: set() */
        TAP_PICKLE_MAKES_NOTHING /* may be named, not called */
    } makes;
    int tag;
} tap_pickle_global;

typedef struct tap_pickle_value tap_pickle_value;

struct tap_pickle_value {
    tap_pickle_kind kind;
    union {
        bool truth;
        int64_t integer;
        struct {
            const uint8_t *data; /* in the pickle itself */
            size_t size;
        } text;
        struct {
            const tap_pickle_global *known; /* NULL: foreign */
            const uint8_t *name;
            size_t n_name;
        } global;
        struct {
            tap_pickle_value **data;
            size_t n, capacity;
        } items;
        struct {
            tap_pickle_value *callee, *arguments, *state; /* state: of BUILD, or NULL */
        } object;
    };
};

typedef struct tap_pickle_policy {
    const tap_pickle_global *globals;
    size_t n_globals;
    bool keep_foreign;  /* true: a global outside of the list is kept as an inert mark and its calls
                           as inert records, for checkpoints that hold more than tensors; false: it
                           is refused by name */
    const char *advice; /* of that error: what to do */
    const char *writers; /* who "never write" an opcode that is not run */
} tap_pickle_policy;

typedef struct tap_pickle {
    tap_pickle_value *result;
    tap_pickle_value **persistents; /* every persistent reference, in order of appearance */
    size_t n_persistents;
    size_t consumed; /* bytes up to and with STOP */

    struct tap_pickle_block *blocks;
    size_t memory;
} tap_pickle;

/* Runs data up to its STOP. data must outlive the values. file is for messages, base the offset of
 * data in it. Errors TAP_ERR_FORMAT, TAP_ERR_UNSUPPORTED (a global, an opcode: by name),
 * TAP_ERR_LIMIT; nothing needs freeing then. */
tap_status tap_pickle_run(tap_pickle *pickle, const uint8_t *data, size_t size,
                          const tap_pickle_policy *policy, const char *file, size_t base,
                          tap_error *err);
void tap_pickle_free(tap_pickle *pickle);

/* The value of a text key, or NULL; the last, where a key is there several times, as in Python. */
tap_pickle_value *tap_pickle_get(const tap_pickle_value *dict, const char *key);

bool tap_pickle_is_text(const tap_pickle_value *value, const char *text);

#endif
