#include "mano_file.h"

#include <math.h>

enum { VERTICES = 778, JOINTS = 16, FACES = 1538, BASIS = 20 };

static double unit(size_t seed, size_t i)
{
    uint64_t z = (uint64_t)seed * 0x9e3779b97f4a7c15u + (uint64_t)i * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)(z >> 11) / 9007199254740992.0 - 0.5;
}

double mano_template(size_t i)
{
    return 0.2 * unit(1, i);
}

double mano_shape(size_t i)
{
    return 0.01 * unit(2, i);
}

double mano_pose(size_t i)
{
    return 0.01 * unit(3, i);
}

/* Four vertices a joint. */
double mano_regressor(size_t joint, size_t vertex)
{
    return vertex % JOINTS == joint && vertex < 4 * JOINTS ? 0.25 : 0;
}

/* Two joints a vertex. */
double mano_weight(size_t vertex, size_t joint)
{
    double share = 0.5 + unit(4, vertex);
    return joint == vertex % JOINTS ? share : joint == (vertex + 1) % JOINTS ? 1 - share : 0;
}

/* ---- writing opcodes ------------------------------------------------------------------------ */

struct writer {
    struct mano_file file;
    size_t capacity;
    enum mano_form form;
    enum mano_fault fault;
};

static void put(struct writer *writer, const void *bytes, size_t n)
{
    while (writer->file.size + n > writer->capacity) {
        writer->capacity = writer->capacity == 0 ? 1 << 20 : 2 * writer->capacity;
        writer->file.bytes = realloc(writer->file.bytes, writer->capacity);
    }
    memcpy(writer->file.bytes + writer->file.size, bytes, n);
    writer->file.size += n;
}

static void put_byte(struct writer *writer, int byte)
{
    unsigned char value = (unsigned char)byte;
    put(writer, &value, 1);
}

static void put_number(struct writer *writer, uint64_t value, size_t n)
{
    put(writer, &value, n); /* little-endian */
}

static bool is_python_2(const struct writer *writer)
{
    return writer->form == MANO_ORIGINAL || writer->form == MANO_PLAIN;
}

static bool is_new(const struct writer *writer)
{
    return writer->form >= MANO_PROTOCOL_4;
}

static void put_text(struct writer *writer, const char *text)
{
    size_t n = strlen(text);
    if (is_python_2(writer)) {
        put_byte(writer, 'U');
        put_number(writer, n, 1);
    } else if (is_new(writer)) {
        put_byte(writer, 0x8c);
        put_number(writer, n, 1);
    } else {
        put_byte(writer, 'X');
        put_number(writer, n, 4);
    }
    put(writer, text, n);
}

static void put_global(struct writer *writer, const char *module, const char *name)
{
    if (is_new(writer)) {
        put_text(writer, module);
        put_text(writer, name);
        put_byte(writer, 0x93);
        return;
    }
    put_byte(writer, 'c');
    put(writer, module, strlen(module));
    put_byte(writer, '\n');
    put(writer, name, strlen(name));
    put_byte(writer, '\n');
}

static void put_int(struct writer *writer, int64_t value)
{
    put_byte(writer, 'J');
    put_number(writer, (uint64_t)value, 4);
}

/* The array's bytes. */
static void put_bytes(struct writer *writer, const unsigned char *bytes, size_t n)
{
    if (is_python_2(writer)) {
        put_byte(writer, 'T');
        put_number(writer, n, 4);
        put(writer, bytes, n);
    } else if (is_new(writer)) {
        put_byte(writer, writer->form == MANO_PROTOCOL_5 ? 0x96 : 'B');
        put_number(writer, n, writer->form == MANO_PROTOCOL_5 ? 8 : 4);
        put(writer, bytes, n);
    } else { /* _codecs.encode(text, 'latin1') */
        size_t n_text = n;
        for (size_t i = 0; i < n; i++)
            n_text += bytes[i] >= 0x80;
        put_global(writer, "_codecs", "encode");
        put_byte(writer, 'X');
        put_number(writer, n_text, 4);
        for (size_t i = 0; i < n; i++) {
            if (bytes[i] >= 0x80)
                put_byte(writer, 0xc0 | bytes[i] >> 6);
            put_byte(writer, bytes[i] >= 0x80 ? 0x80 | (bytes[i] & 0x3f) : bytes[i]);
        }
        put_text(writer, "latin1");
        put_byte(writer, 0x86);
        put_byte(writer, 'R');
    }
}

static void put_shape(struct writer *writer, const size_t *shape, size_t rank)
{
    put_byte(writer, '(');
    for (size_t i = 0; i < rank; i++)
        put_int(writer, (int64_t)shape[i]);
    put_byte(writer, 't');
}

/* dtype(name, 0, 1) with its state (3, '<', None, None, None, -1, -1, 0). */
static void put_dtype(struct writer *writer, const char *name)
{
    put_global(writer, "numpy", "dtype");
    put_text(writer, name);
    put(writer, "K\0K\1\x87R(K\3", 9);
    put_text(writer, writer->fault == MANO_BIG_ENDIAN ? ">" : "<");
    put(writer, "NNN", 3);
    put_int(writer, -1);
    put_int(writer, -1);
    put(writer, "K\0tb", 4);
}

/* dtype "f8", "u4", "i4" or "i8"; numbers are in the order in which they are stored. */
static void put_array(struct writer *writer, const double *numbers, const size_t *shape,
                      size_t rank, const char *dtype, bool fortran)
{
    size_t n = 1, width = (size_t)(dtype[1] - '0');
    for (size_t i = 0; i < rank; i++)
        n *= shape[i];
    unsigned char *bytes = malloc(n * width);
    for (size_t i = 0; i < n; i++) {
        int64_t whole = dtype[0] == 'f' ? 0 : (int64_t)numbers[i];
        memcpy(bytes + i * width, dtype[0] == 'f' ? (const void *)&numbers[i] : &whole, width);
    }
    bool from_buffer = writer->form == MANO_PROTOCOL_5;
    if (from_buffer) { /* _frombuffer(bytes, dtype, shape, order) */
        put_global(writer, "numpy._core.numeric", "_frombuffer");
        put_byte(writer, '(');
        put_bytes(writer, bytes, n * width - (writer->fault == MANO_SHORT));
    } else { /* _reconstruct(ndarray, (0,), 'b') and its state (1, shape, dtype, order, bytes) */
        put_global(writer, "numpy.core.multiarray", "_reconstruct");
        put_global(writer, "numpy", "ndarray");
        put(writer, "K\0\x85", 3);
        put_text(writer, "b");
        put(writer, "\x87R(K\1", 5);
        put_shape(writer, shape, rank);
    }
    put_dtype(writer, dtype);
    if (from_buffer) {
        put_shape(writer, shape, rank);
        put_text(writer, fortran ? "F" : "C");
        put(writer, "tR", 2);
    } else {
        put_byte(writer, fortran ? 0x88 : 0x89);
        put_bytes(writer, bytes, n * width - (writer->fault == MANO_SHORT));
        put(writer, "tb", 2);
    }
    free(bytes);
}

static void begin_object(struct writer *writer, const char *module, const char *name)
{
    put_global(writer, module, name);
    put_byte(writer, ')');
    put_byte(writer, 0x81);
    put_byte(writer, '}');
    put_byte(writer, '(');
}

static void end_object(struct writer *writer)
{
    put_byte(writer, 'u');
    put_byte(writer, 'b');
}

/* ---- MANO's arrays -------------------------------------------------------------------------- */

static void put_shapedirs(struct writer *writer)
{
    enum { ALL = VERTICES * 3 * BASIS, USED = VERTICES * 3 * 10 };
    static double numbers[ALL], indices[USED];
    const size_t whole[] = {VERTICES, 3, BASIS}, part[] = {VERTICES, 3, 10}, flat[] = {USED};
    for (size_t i = 0; i < ALL; i++)
        numbers[i] = mano_shape(i);
    for (size_t i = 0; i < USED; i++)
        indices[i] = (double)(i / 10 * BASIS + i % 10);
    put_text(writer, "shapedirs");
    if (writer->form != MANO_ORIGINAL) {
        for (size_t i = 0; i < USED; i++)
            numbers[i] = mano_shape((size_t)indices[i]);
        put_array(writer, numbers, part, 3, "f8", false);
        return;
    }
    if (writer->fault == MANO_INDEX)
        indices[USED / 2] = ALL;
    begin_object(writer, "chumpy.reordering", "Select");
    put_text(writer, "a");
    begin_object(writer, "chumpy.ch", "Ch");
    put_text(writer, "x");
    put_array(writer, numbers, whole, 3, "f8", false);
    put_text(writer, "_dirty_vars");
    put_global(writer, "__builtin__", "set");
    put_byte(writer, ']');
    put_byte(writer, 0x85);
    put_byte(writer, 'R');
    end_object(writer);
    put_text(writer, "idxs");
    put_array(writer, indices, flat, 1, "i8", false);
    put_text(writer, "preferred_shape");
    put_shape(writer, part, 3);
    end_object(writer);
}

static void put_regressor(struct writer *writer)
{
    enum { N = 4 * JOINTS };
    static double dense[JOINTS * VERTICES];
    double data[N], rows[N], pointers[VERTICES + 1];
    const size_t shape[] = {JOINTS, VERTICES}, flat[] = {N}, ends[] = {VERTICES + 1};
    put_text(writer, "J_regressor");
    if (writer->form != MANO_ORIGINAL) {
        for (size_t i = 0; i < JOINTS * VERTICES; i++)
            dense[i] = mano_regressor(i / VERTICES, i % VERTICES);
        put_array(writer, dense, shape, 2, "f8", false);
        return;
    }
    for (size_t i = 0; i < N; i++) {
        data[i] = 0.25;
        rows[i] = (double)(i % JOINTS);
    }
    for (size_t i = 0; i <= VERTICES; i++)
        pointers[i] = i < N ? (double)i : N;
    if (writer->fault == MANO_POINTER)
        pointers[7] = 20;
    if (writer->fault == MANO_ROW)
        rows[9] = JOINTS;
    begin_object(writer, "scipy.sparse.csc", "csc_matrix");
    put_text(writer, "_shape");
    put_shape(writer, shape, 2);
    put_text(writer, "data");
    put_array(writer, data, flat, 1, "f8", false);
    put_text(writer, "indices");
    put_array(writer, rows, flat, 1, "i4", false);
    put_text(writer, "indptr");
    put_array(writer, pointers, ends, 1, "i4", false);
    put_text(writer, "format");
    put_text(writer, "csc");
    put_text(writer, "maxprint");
    put_int(writer, 50);
    end_object(writer);
}

static void put_plain_arrays(struct writer *writer)
{
    static double numbers[VERTICES * 3 * 135], big[10475 * 3];
    const size_t vertices[] = {VERTICES, 3}, pose[] = {VERTICES, 3, 135};
    const size_t weights[] = {VERTICES, JOINTS}, tree[] = {2, JOINTS}, faces[] = {FACES, 3};
    const size_t body[] = {writer->fault == MANO_SMPL     ? 6890
                           : writer->fault == MANO_SMPL_X ? 10475
                                                          : 5023,
                           3};
    bool other =
        writer->fault == MANO_SMPL || writer->fault == MANO_SMPL_X || writer->fault == MANO_FLAME;
    for (size_t i = 0; i < VERTICES * 3; i++)
        numbers[i] = mano_template(i);
    if (writer->fault == MANO_NAN)
        numbers[100] = (double)NAN;
    if (writer->fault == MANO_HUGE)
        numbers[100] = 1e30;
    put_text(writer, "v_template");
    put_array(writer, other ? big : numbers, other ? body : vertices, 2, "f8", false);
    for (size_t i = 0; i < VERTICES * 3 * 135; i++)
        numbers[i] = mano_pose(i);
    put_text(writer, "posedirs");
    put_array(writer, numbers, pose, 3, "f8", false);
    for (size_t i = 0; i < VERTICES * JOINTS; i++) /* in Fortran's order, as real ones are */
        numbers[i] = mano_weight(i % VERTICES, i / VERTICES);
    if (writer->fault != MANO_NO_WEIGHTS) {
        put_text(writer, "weights");
        put_array(writer, numbers, weights, 2, "f8", true);
    }
    static const int parents[JOINTS] = {-1, 0, 1, 2, 0, 4, 5, 0, 7, 8, 0, 10, 11, 0, 13, 14};
    for (size_t i = 0; i < 2 * JOINTS; i++)
        numbers[i] = i == 0 ? 4294967295.0 : i < JOINTS ? parents[i] : (double)(i - JOINTS);
    if (writer->fault == MANO_PARENT)
        numbers[3] = 9;
    put_text(writer, "kintree_table");
    put_array(writer, numbers, tree, 2, writer->form == MANO_ORIGINAL ? "u4" : "i8", false);
    for (size_t i = 0; i < FACES * 3; i++)
        numbers[i] = (double)(i * 7 % VERTICES);
    if (writer->fault == MANO_FACE)
        numbers[1000] = VERTICES;
    put_text(writer, "f");
    put_array(writer, numbers, faces, 2, "u4", false);
}

struct mano_file make_mano(enum mano_form form, enum mano_fault fault)
{
    static const int protocols[] = {2, 2, 2, 4, 5};
    struct writer writer = {.form = form, .fault = fault};
    put_byte(&writer, 0x80);
    put_byte(&writer, protocols[form]);
    put_byte(&writer, '}');
    put_byte(&writer, '(');
    put_text(&writer, "bs_style");
    put_text(&writer, "lbs");
    if (fault == MANO_SYSTEM) {
        put_text(&writer, "v_shaped");
        put_global(&writer, "posix", "system");
        put_text(&writer, "touch /tmp/tapetum_was_here");
        put_byte(&writer, 0x85);
        put_byte(&writer, 'R');
    }
    put_plain_arrays(&writer);
    put_shapedirs(&writer);
    put_regressor(&writer);
    put_byte(&writer, 'u');
    put_byte(&writer, '.');
    return writer.file;
}
