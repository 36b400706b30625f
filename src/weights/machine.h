/* The unpickler's stack, memory and byte stream, all bounded; its opcodes stand on it. Private to
 * weights. */
#ifndef TAP_WEIGHTS_MACHINE_H
#define TAP_WEIGHTS_MACHINE_H

#include "unpickle.h"

/* A growing array of values; its memory counts against the pickle's. */
typedef struct tap_values {
    tap_pickle_value **data;
    size_t n, capacity;
} tap_values;

typedef struct tap_machine {
    tap_pickle *pickle;
    const tap_pickle_policy *policy;
    const uint8_t *data;
    size_t size, at, opcode; /* opcode: where it stands, for messages */
    const char *file;
    size_t base;
    tap_values stack, memo, persistents;
    size_t marks[TAP_PICKLE_MAX_MARKS], n_marks; /* stack heights */
    tap_error *err;
} tap_machine;

/* TAP_ERR_FORMAT, at the opcode that is being run. */
tap_status tap_machine_fail(tap_machine *m, const char *what);

/* A value, all zero but its kind, that lives as long as the pickle. */
tap_status tap_machine_value(tap_machine *m, tap_pickle_kind kind, tap_pickle_value **value);

/* Room for capacity values; new ones are NULL. */
tap_status tap_machine_reserve(tap_machine *m, tap_values *values, size_t capacity);

/* Appends to a tuple, list or dict. */
tap_status tap_machine_append(tap_machine *m, tap_pickle_value *to, tap_pickle_value *const *items,
                              size_t n);

tap_status tap_machine_push(tap_machine *m, tap_pickle_value *value);
tap_status tap_machine_push_new(tap_machine *m, tap_pickle_kind kind, tap_pickle_value **value);

/* How many values stand over the last mark: no opcode but those that take the mark reaches under
 * it. */
size_t tap_machine_reach(const tap_machine *m);

/* The value on top, which stays. */
tap_status tap_machine_top(tap_machine *m, tap_pickle_value **value);

/* The top n values. They stay readable until the next push. */
tap_status tap_machine_pop(tap_machine *m, size_t n, tap_pickle_value ***items);

/* What stands over the last mark, and the mark. */
tap_status tap_machine_pop_mark(tap_machine *m, tap_pickle_value ***items, size_t *n);

/* The next n bytes of the stream, in place. */
tap_status tap_machine_read_bytes(tap_machine *m, size_t n, const uint8_t **bytes);

/* n <= 8 bytes of it, little-endian, without a sign. */
tap_status tap_machine_read_uint(tap_machine *m, size_t n, uint64_t *value);

/* Up to a line feed, which is taken, too. */
tap_status tap_machine_read_line(tap_machine *m, const uint8_t **text, size_t *n);

#endif
