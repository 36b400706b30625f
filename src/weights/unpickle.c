#include "machine.h"

#include "json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What runs an opcode. */
struct opcode {
    tap_status (*run)(tap_machine *m, const struct opcode *op);
    size_t n;
    tap_pickle_kind kind;
};

/* ---- plain values ------------------------------------------------------------------------ */

static tap_status run_new(tap_machine *m, const struct opcode *op)
{
    tap_pickle_value *value = NULL;
    return tap_machine_push_new(m, op->kind, &value);
}

static tap_status run_bool(tap_machine *m, const struct opcode *op)
{
    tap_pickle_value *value = NULL;
    TAP_TRY(tap_machine_push_new(m, TAP_PICKLE_BOOL, &value));
    value->truth = op->n != 0;
    return TAP_OK;
}

static tap_status run_int(tap_machine *m, const struct opcode *op)
{
    uint64_t bits = 0;
    tap_pickle_value *value = NULL;
    TAP_TRY(tap_machine_read_uint(m, op->n, &bits));
    TAP_TRY(tap_machine_push_new(m, TAP_PICKLE_INT, &value));
    value->integer = op->n == 4 ? (int32_t)(uint32_t)bits : (int64_t)bits;
    return TAP_OK;
}

static tap_status run_float(tap_machine *m, const struct opcode *op)
{
    const uint8_t *bytes = NULL;
    TAP_TRY(tap_machine_read_bytes(m, op->n, &bytes));
    return run_new(m, op);
}

/* Bytes behind their count of `width` bytes. */
static tap_status push_text(tap_machine *m, size_t width, tap_pickle_kind kind,
                            tap_pickle_value **value)
{
    uint64_t n = 0;
    const uint8_t *bytes = NULL;
    TAP_TRY(tap_machine_read_uint(m, width, &n));
    TAP_TRY(tap_machine_read_bytes(m, n, &bytes));
    if (kind == TAP_PICKLE_TEXT && !tap_utf8_is_valid(bytes, n))
        return tap_machine_fail(m, "a string that is not UTF-8");
    TAP_TRY(tap_machine_push_new(m, kind, value));
    (*value)->text.data = bytes;
    (*value)->text.size = n;
    return TAP_OK;
}

static tap_status run_text(tap_machine *m, const struct opcode *op)
{
    tap_pickle_value *value = NULL;
    return push_text(m, op->n, op->kind, &value);
}

/* A Python 2 string: names in old checkpoints, else bytes. */
static tap_status run_old_string(tap_machine *m, const struct opcode *op)
{
    tap_pickle_value *value = NULL;
    TAP_TRY(push_text(m, op->n, TAP_PICKLE_BYTES, &value));
    if (tap_utf8_is_valid(value->text.data, value->text.size))
        value->kind = TAP_PICKLE_TEXT;
    return TAP_OK;
}

/* LONG1, LONG4: two's complement, little-endian, of any length. */
static tap_status run_long(tap_machine *m, const struct opcode *op)
{
    tap_pickle_value *value = NULL;
    TAP_TRY(push_text(m, op->n, TAP_PICKLE_LONG, &value));
    size_t n = value->text.size;
    const uint8_t *bytes = value->text.data;
    if (n > sizeof value->integer)
        return TAP_OK;
    uint64_t bits = n > 0 && bytes[n - 1] >= 0x80 ? UINT64_MAX : 0;
    memcpy(&bits, bytes, n);
    value->kind = TAP_PICKLE_INT;
    memcpy(&value->integer, &bits, sizeof bits);
    return TAP_OK;
}

/* INT and LONG in decimal: "I01" and "I00" are true and false, "L5L" may end in an L. Protocol 1
 * writes them; its other opcodes are those of protocol 2. (Protocol 0 can't hold tensors.) */
static tap_status run_decimal(tap_machine *m, const struct opcode *op)
{
    const uint8_t *text = NULL;
    size_t n = 0;
    int64_t integer = 0;
    tap_pickle_value *value = NULL;
    TAP_TRY(tap_machine_read_line(m, &text, &n));
    if (op->kind == TAP_PICKLE_INT && n == 2 && text[0] == '0' && (text[1] | 1) == '1') {
        TAP_TRY(tap_machine_push_new(m, TAP_PICKLE_BOOL, &value));
        value->truth = text[1] == '1';
        return TAP_OK;
    }
    if (op->kind == TAP_PICKLE_LONG && n > 0 && text[n - 1] == 'L')
        n--;
    bool negative = n > 0 && text[0] == '-';
    for (size_t i = negative; i < n; i++) {
        int digit = text[i] - '0';
        if (digit < 0 || digit > 9 || __builtin_mul_overflow(integer, 10, &integer) ||
            __builtin_add_overflow(integer, negative ? -digit : digit, &integer))
            return tap_machine_fail(m, "not a whole number of 64 bits");
    }
    if (n <= negative)
        return tap_machine_fail(m, "not a whole number of 64 bits");
    TAP_TRY(tap_machine_push_new(m, TAP_PICKLE_INT, &value));
    value->integer = integer;
    return TAP_OK;
}

/* ---- globals and calls ------------------------------------------------------------------- */

static bool equals(const uint8_t *text, size_t n, const char *word)
{
    return n == strlen(word) && memcmp(text, word, n) == 0;
}

static tap_status push_global(tap_machine *m, const uint8_t *module, size_t n_module,
                              const uint8_t *name, size_t n_name)
{
    const tap_pickle_policy *policy = m->policy;
    size_t i = 0;
    while (i < policy->n_globals && (!equals(module, n_module, policy->globals[i].module) ||
                                     !equals(name, n_name, policy->globals[i].name)))
        i++;
    if (i == policy->n_globals && !policy->keep_foreign)
        return tap_fail(m->err, TAP_ERR_UNSUPPORTED,
                        "%s: pickle, byte %zu: it names the Python object %.*s.%.*s, which no "
                        "tensor needs and which is never loaded; %s",
                        m->file, m->base + m->opcode, n_module < 60 ? (int)n_module : 60, module,
                        n_name < 60 ? (int)n_name : 60, name, policy->advice);
    tap_pickle_value *value = NULL;
    TAP_TRY(tap_machine_push_new(m, TAP_PICKLE_GLOBAL, &value));
    value->global.known = i < policy->n_globals ? &policy->globals[i] : NULL;
    value->global.name = name;
    value->global.n_name = n_name;
    return TAP_OK;
}

/* Names are checked before they get into a message or a comparison. */
static tap_status check_names(tap_machine *m, const uint8_t *module, size_t n_module,
                              const uint8_t *name, size_t n_name)
{
    if (n_module == 0 || n_module > TAP_PICKLE_MAX_NAME || n_name == 0 ||
        n_name > TAP_PICKLE_MAX_NAME || !tap_utf8_is_valid(module, n_module) ||
        !tap_utf8_is_valid(name, n_name) || memchr(module, 0, n_module) != NULL ||
        memchr(name, 0, n_name) != NULL)
        return tap_machine_fail(m, "a global's name is empty, not text, or over 256 bytes");
    return push_global(m, module, n_module, name, n_name);
}

static tap_status run_global(tap_machine *m, const struct opcode *op)
{
    (void)op;
    const uint8_t *module = NULL, *name = NULL;
    size_t n_module = 0, n_name = 0;
    TAP_TRY(tap_machine_read_line(m, &module, &n_module));
    TAP_TRY(tap_machine_read_line(m, &name, &n_name));
    return check_names(m, module, n_module, name, n_name);
}

static tap_status run_stack_global(tap_machine *m, const struct opcode *op)
{
    (void)op;
    tap_pickle_value **names = NULL;
    TAP_TRY(tap_machine_pop(m, 2, &names));
    if (names[0]->kind != TAP_PICKLE_TEXT || names[1]->kind != TAP_PICKLE_TEXT)
        return tap_machine_fail(m, "a global's name is not a string");
    return check_names(m, names[0]->text.data, names[0]->text.size, names[1]->text.data,
                       names[1]->text.size);
}

/* OrderedDict([(key, value), ...]); Python 2 wrote the pairs as lists. */
static tap_status fill_dict(tap_machine *m, tap_pickle_value *dict,
                            const tap_pickle_value *arguments)
{
    if (arguments->items.n == 0)
        return TAP_OK;
    const tap_pickle_value *pairs = arguments->items.data[0];
    if (arguments->items.n > 1 || pairs->kind != TAP_PICKLE_LIST)
        return tap_machine_fail(m, "a dictionary made of something else than a list of pairs");
    for (size_t i = 0; i < pairs->items.n; i++) {
        const tap_pickle_value *pair = pairs->items.data[i];
        if ((pair->kind != TAP_PICKLE_TUPLE && pair->kind != TAP_PICKLE_LIST) || pair->items.n != 2)
            return tap_machine_fail(m, "a dictionary made of something else than a list of pairs");
        TAP_TRY(tap_machine_append(m, dict, pair->items.data, 2));
    }
    return TAP_OK;
}

static tap_status fill_list(tap_machine *m, tap_pickle_value *list,
                            const tap_pickle_value *arguments)
{
    if (arguments->items.n == 0)
        return TAP_OK;
    const tap_pickle_value *items = arguments->items.data[0];
    if (arguments->items.n > 1 ||
        (items->kind != TAP_PICKLE_LIST && items->kind != TAP_PICKLE_TUPLE))
        return tap_machine_fail(m, "a set made of something else than a list");
    return tap_machine_append(m, list, items->items.data, items->items.n);
}

/* callee(*arguments), which gives a record of the call, or one of the containers. */
static tap_status call(tap_machine *m, tap_pickle_value *callee, tap_pickle_value *arguments)
{
    if (callee->kind != TAP_PICKLE_GLOBAL || arguments->kind != TAP_PICKLE_TUPLE)
        return tap_machine_fail(m, "a call of something that is not a global, or not with a tuple");
    const tap_pickle_global *known = callee->global.known;
    tap_pickle_value *value = NULL;
    switch (known != NULL ? known->makes : TAP_PICKLE_MAKES_OBJECT) {
    case TAP_PICKLE_MAKES_DICT:
        TAP_TRY(tap_machine_value(m, TAP_PICKLE_DICT, &value));
        TAP_TRY(fill_dict(m, value, arguments));
        return tap_machine_push(m, value);
    case TAP_PICKLE_MAKES_LIST:
        TAP_TRY(tap_machine_value(m, TAP_PICKLE_LIST, &value));
        TAP_TRY(fill_list(m, value, arguments));
        return tap_machine_push(m, value);
    case TAP_PICKLE_MAKES_NOTHING:
        return tap_fail(m->err, TAP_ERR_UNSUPPORTED, "%s: pickle, byte %zu: a call of %.*s",
                        m->file, m->base + m->opcode, (int)callee->global.n_name,
                        callee->global.name);
    default:
        TAP_TRY(tap_machine_value(m, TAP_PICKLE_OBJECT, &value));
        value->object.callee = callee;
        value->object.arguments = arguments;
        return tap_machine_push(m, value);
    }
}

/* REDUCE, NEWOBJ: callee, arguments. NEWOBJ_EX: keyword arguments, too, which are dropped. */
static tap_status run_call(tap_machine *m, const struct opcode *op)
{
    tap_pickle_value **items = NULL;
    TAP_TRY(tap_machine_pop(m, op->n, &items));
    if (op->n == 3 && items[2]->kind != TAP_PICKLE_DICT)
        return tap_machine_fail(m, "keyword arguments that are not a dictionary");
    return call(m, items[0], items[1]);
}

/* An object's state. An OrderedDict's is its attributes (_metadata), which are not its items. */
static tap_status run_build(tap_machine *m, const struct opcode *op)
{
    (void)op;
    tap_pickle_value **items = NULL;
    TAP_TRY(tap_machine_pop(m, 1, &items));
    tap_pickle_value *state = items[0], *object = NULL;
    TAP_TRY(tap_machine_top(m, &object));
    if (object->kind == TAP_PICKLE_OBJECT)
        object->object.state = state;
    else if (object->kind != TAP_PICKLE_DICT && object->kind != TAP_PICKLE_LIST)
        return tap_machine_fail(m, "state for something that has none");
    return TAP_OK;
}

/* ---- containers -------------------------------------------------------------------------- */

static tap_status push_items(tap_machine *m, tap_pickle_kind kind, tap_pickle_value **items,
                             size_t n)
{
    tap_pickle_value *value = NULL;
    if (kind == TAP_PICKLE_DICT && n % 2 != 0)
        return tap_machine_fail(m, "a key without a value");
    TAP_TRY(tap_machine_value(m, kind, &value));
    TAP_TRY(tap_machine_append(m, value, items, n));
    return tap_machine_push(m, value);
}

/* Everything over the mark as one new value. */
static tap_status run_collect(tap_machine *m, const struct opcode *op)
{
    tap_pickle_value **items = NULL;
    size_t n = 0;
    TAP_TRY(tap_machine_pop_mark(m, &items, &n));
    return push_items(m, op->kind, items, n);
}

static tap_status run_tuple(tap_machine *m, const struct opcode *op)
{
    tap_pickle_value **items = NULL;
    TAP_TRY(tap_machine_pop(m, op->n, &items));
    return push_items(m, TAP_PICKLE_TUPLE, items, op->n);
}

/* n values onto the container under them. A foreign object may be a list or dictionary of another
 * class; what it would hold is dropped. */
static tap_status extend(tap_machine *m, tap_pickle_kind kind, tap_pickle_value **items, size_t n)
{
    tap_pickle_value *to = NULL;
    TAP_TRY(tap_machine_top(m, &to));
    if (to->kind == TAP_PICKLE_OBJECT && to->object.callee->global.known == NULL)
        return TAP_OK;
    if (to->kind != kind)
        return tap_machine_fail(m, kind == TAP_PICKLE_DICT
                                       ? "items for something that is not a dictionary"
                                       : "items for something that is not a list");
    if (kind == TAP_PICKLE_DICT && n % 2 != 0)
        return tap_machine_fail(m, "a key without a value");
    return tap_machine_append(m, to, items, n);
}

static tap_status run_extend(tap_machine *m, const struct opcode *op)
{
    tap_pickle_value **items = NULL;
    TAP_TRY(tap_machine_pop(m, op->n, &items));
    return extend(m, op->kind, items, op->n);
}

static tap_status run_extend_marked(tap_machine *m, const struct opcode *op)
{
    tap_pickle_value **items = NULL;
    size_t n = 0;
    TAP_TRY(tap_machine_pop_mark(m, &items, &n));
    return extend(m, op->kind, items, n);
}

/* ---- memo, marks, the rest --------------------------------------------------------------- */

static tap_status put(tap_machine *m, uint64_t index)
{
    tap_pickle_value *value = NULL;
    if (index >= TAP_PICKLE_MAX_MEMO)
        return tap_fail(m->err, TAP_ERR_LIMIT,
                        "%s: pickle, byte %zu: memo entry %" PRIu64 ", over %d", m->file,
                        m->base + m->opcode, index, TAP_PICKLE_MAX_MEMO);
    TAP_TRY(tap_machine_top(m, &value));
    TAP_TRY(tap_machine_reserve(m, &m->memo, index + 1));
    m->memo.data[index] = value;
    if (m->memo.n <= index)
        m->memo.n = index + 1;
    return TAP_OK;
}

static tap_status run_put(tap_machine *m, const struct opcode *op)
{
    uint64_t index = 0;
    TAP_TRY(tap_machine_read_uint(m, op->n, &index));
    return put(m, index);
}

static tap_status run_memoize(tap_machine *m, const struct opcode *op)
{
    (void)op;
    return put(m, m->memo.n);
}

static tap_status run_get(tap_machine *m, const struct opcode *op)
{
    uint64_t index = 0;
    TAP_TRY(tap_machine_read_uint(m, op->n, &index));
    if (index >= m->memo.n || m->memo.data[index] == NULL)
        return tap_machine_fail(m, "a memo entry that was never put");
    return tap_machine_push(m, m->memo.data[index]);
}

static tap_status run_mark(tap_machine *m, const struct opcode *op)
{
    (void)op;
    if (m->n_marks == TAP_PICKLE_MAX_MARKS)
        return tap_fail(m->err, TAP_ERR_LIMIT, "%s: pickle, byte %zu: over %d marks", m->file,
                        m->base + m->opcode, TAP_PICKLE_MAX_MARKS);
    m->marks[m->n_marks++] = m->stack.n;
    return TAP_OK;
}

static tap_status run_pop_mark(tap_machine *m, const struct opcode *op)
{
    (void)op;
    tap_pickle_value **items = NULL;
    size_t n = 0;
    return tap_machine_pop_mark(m, &items, &n);
}

/* A mark counts as a value here. */
static tap_status run_pop(tap_machine *m, const struct opcode *op)
{
    tap_pickle_value **items = NULL;
    if (tap_machine_reach(m) == 0)
        return run_pop_mark(m, op);
    return tap_machine_pop(m, 1, &items);
}

static tap_status run_dup(tap_machine *m, const struct opcode *op)
{
    (void)op;
    tap_pickle_value *value = NULL;
    TAP_TRY(tap_machine_top(m, &value));
    return tap_machine_push(m, value);
}

static tap_status run_persistent(tap_machine *m, const struct opcode *op)
{
    (void)op;
    tap_pickle_value **items = NULL, *value = NULL;
    TAP_TRY(tap_machine_pop(m, 1, &items));
    tap_pickle_value *id = items[0];
    TAP_TRY(tap_machine_value(m, TAP_PICKLE_PERSISTENT, &value));
    value->object.arguments = id;
    TAP_TRY(tap_machine_reserve(m, &m->persistents, m->persistents.n + 1));
    m->persistents.data[m->persistents.n++] = value;
    return tap_machine_push(m, value);
}

static tap_status run_protocol(tap_machine *m, const struct opcode *op)
{
    (void)op;
    uint64_t protocol = 0;
    TAP_TRY(tap_machine_read_uint(m, 1, &protocol));
    if (m->opcode != 0)
        return tap_machine_fail(m, "a protocol number in the middle");
    if (protocol > 5)
        return tap_fail(m->err, TAP_ERR_UNSUPPORTED, "%s: pickle protocol %d (0 to 5 are read)",
                        m->file, (int)protocol);
    return TAP_OK;
}

/* A frame says how many bytes the reader may fetch at once, which does not matter here; but one
 * that reaches over the end says that something is missing. */
static tap_status run_frame(tap_machine *m, const struct opcode *op)
{
    (void)op;
    uint64_t length = 0;
    TAP_TRY(tap_machine_read_uint(m, 8, &length));
    return length <= m->size - m->at ? TAP_OK
                                     : tap_machine_fail(m, "a frame that reaches over the end");
}

/* ---- the machine ------------------------------------------------------------------------- */

/* Every opcode that is run. n: the width of its argument, or how many values it takes. */
static const struct opcode opcodes[256] = {
    [0x80] = {run_protocol, 0, 0},
    [0x95] = {run_frame, 0, 0},
    ['N'] = {run_new, 0, TAP_PICKLE_NONE},
    [0x88] = {run_bool, 1, 0},
    [0x89] = {run_bool, 0, 0},
    ['I'] = {run_decimal, 0, TAP_PICKLE_INT},
    ['L'] = {run_decimal, 0, TAP_PICKLE_LONG},
    ['K'] = {run_int, 1, 0},
    ['M'] = {run_int, 2, 0},
    ['J'] = {run_int, 4, 0},
    [0x8a] = {run_long, 1, 0},
    [0x8b] = {run_long, 4, 0},
    ['G'] = {run_float, 8, TAP_PICKLE_FLOAT},
    [0x8c] = {run_text, 1, TAP_PICKLE_TEXT},
    ['X'] = {run_text, 4, TAP_PICKLE_TEXT},
    [0x8d] = {run_text, 8, TAP_PICKLE_TEXT},
    ['C'] = {run_text, 1, TAP_PICKLE_BYTES},
    ['B'] = {run_text, 4, TAP_PICKLE_BYTES},
    [0x8e] = {run_text, 8, TAP_PICKLE_BYTES},
    [0x96] = {run_text, 8, TAP_PICKLE_BYTES}, /* a bytearray */
    ['U'] = {run_old_string, 1, 0},
    ['T'] = {run_old_string, 4, 0},
    [')'] = {run_tuple, 0, 0},
    [0x85] = {run_tuple, 1, 0},
    [0x86] = {run_tuple, 2, 0},
    [0x87] = {run_tuple, 3, 0},
    ['t'] = {run_collect, 0, TAP_PICKLE_TUPLE},
    [']'] = {run_new, 0, TAP_PICKLE_LIST},
    ['l'] = {run_collect, 0, TAP_PICKLE_LIST},
    ['a'] = {run_extend, 1, TAP_PICKLE_LIST},
    ['e'] = {run_extend_marked, 0, TAP_PICKLE_LIST},
    ['}'] = {run_new, 0, TAP_PICKLE_DICT},
    ['d'] = {run_collect, 0, TAP_PICKLE_DICT},
    ['s'] = {run_extend, 2, TAP_PICKLE_DICT},
    ['u'] = {run_extend_marked, 0, TAP_PICKLE_DICT},
    [0x8f] = {run_new, 0, TAP_PICKLE_LIST}, /* a set, here and in the next two */
    [0x90] = {run_extend_marked, 0, TAP_PICKLE_LIST},
    [0x91] = {run_collect, 0, TAP_PICKLE_LIST},
    ['c'] = {run_global, 0, 0},
    [0x93] = {run_stack_global, 0, 0},
    ['R'] = {run_call, 2, 0},
    [0x81] = {run_call, 2, 0},
    [0x92] = {run_call, 3, 0},
    ['b'] = {run_build, 0, 0},
    ['Q'] = {run_persistent, 0, 0},
    ['q'] = {run_put, 1, 0},
    ['r'] = {run_put, 4, 0},
    [0x94] = {run_memoize, 0, 0},
    ['h'] = {run_get, 1, 0},
    ['j'] = {run_get, 4, 0},
    ['('] = {run_mark, 0, 0},
    ['0'] = {run_pop, 0, 0},
    ['1'] = {run_pop_mark, 0, 0},
    ['2'] = {run_dup, 0, 0},
};

static tap_status refuse_opcode(tap_machine *m, uint8_t opcode)
{
    static const struct {
        uint8_t opcode;
        const char *name;
    } known[] = {
        {'P', "PERSID"},
        {'S', "STRING"},
        {'V', "UNICODE"},
        {'F', "FLOAT"},
        {'g', "GET"},
        {'p', "PUT"},
        {'i', "INST"},
        {'o', "OBJ"},
        {0x82, "EXT1"},
        {0x83, "EXT2"},
        {0x84, "EXT4"},
        {0x97, "NEXT_BUFFER"},
        {0x98, "READONLY_BUFFER"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].opcode == opcode)
            return tap_fail(m->err, TAP_ERR_UNSUPPORTED,
                            "%s: pickle, byte %zu: opcode %s, which %s never write", m->file,
                            m->base + m->opcode, known[i].name, m->policy->writers);
    return tap_fail(m->err, TAP_ERR_FORMAT, "%s: pickle, byte %zu: %02x is no opcode", m->file,
                    m->base + m->opcode, opcode);
}

static tap_status run(tap_machine *m)
{
    TAP_TRY(tap_machine_reserve(m, &m->stack, 64));
    for (;;) {
        m->opcode = m->at;
        if (m->at == m->size)
            return tap_machine_fail(
                m, "ends without its STOP: the file is incomplete, or its pickle over 16 MiB");
        uint8_t code = m->data[m->at++];
        if (code == '.')
            break;
        if (opcodes[code].run == NULL)
            return refuse_opcode(m, code);
        TAP_TRY(opcodes[code].run(m, &opcodes[code]));
    }
    if (m->stack.n != 1 || m->n_marks != 0)
        return tap_machine_fail(m, "stops with something else than one value on its stack");
    m->pickle->result = m->stack.data[0];
    m->pickle->consumed = m->at;
    return TAP_OK;
}

tap_status tap_pickle_run(tap_pickle *pickle, const uint8_t *data, size_t size,
                          const tap_pickle_policy *policy, const char *file, size_t base,
                          tap_error *err)
{
    *pickle = (tap_pickle){0};
    tap_machine machine = {.pickle = pickle,
                           .policy = policy,
                           .data = data,
                           .size = size,
                           .file = file,
                           .base = base,
                           .err = err};
    tap_status status = run(&machine);
    free(machine.stack.data);
    free(machine.memo.data);
    pickle->persistents = machine.persistents.data;
    pickle->n_persistents = machine.persistents.n;
    if (status != TAP_OK)
        tap_pickle_free(pickle);
    return status;
}

bool tap_pickle_is_text(const tap_pickle_value *value, const char *text)
{
    return value->kind == TAP_PICKLE_TEXT && equals(value->text.data, value->text.size, text);
}

tap_pickle_value *tap_pickle_get(const tap_pickle_value *dict, const char *key)
{
    for (size_t i = dict->items.n; i >= 2; i -= 2)
        if (tap_pickle_is_text(dict->items.data[i - 2], key))
            return dict->items.data[i - 1];
    return NULL;
}
