/* A made-up MANO file as its makers' program writes it: a pickle of Python 2, protocol 2, with
 * chumpy's and SciPy's objects; and copies of it as others save it. For tests that have no other.
 */
#ifndef TAP_TESTS_MANO_FILE_H
#define TAP_TESTS_MANO_FILE_H

#include "check.h"

#include <stdbool.h>

enum mano_form {
    MANO_ORIGINAL, /* protocol 2; shapedirs a chumpy selection, J_regressor sparse */
    MANO_PLAIN,    /* protocol 2, arrays only */
    MANO_PYTHON_3, /* protocol 2 by Python 3: bytes are _codecs.encode of text */
    MANO_PROTOCOL_4,
    MANO_PROTOCOL_5,
    MANO_FORMS
};

/* What is wrong with it; MANO_SOUND: nothing. */
enum mano_fault {
    MANO_SOUND,
    MANO_NO_WEIGHTS, /* an array is missing */
    MANO_SMPL,       /* 6890 vertices */
    MANO_SMPL_X,     /* 10475 */
    MANO_FLAME,      /* 5023 */
    MANO_NAN,        /* in v_template */
    MANO_HUGE,       /* 1e30 there */
    MANO_FACE,       /* a corner past the last vertex */
    MANO_PARENT,     /* a joint's parent after it */
    MANO_INDEX,      /* a selection's index outside */
    MANO_POINTER,    /* a sparse matrix's indptr that descends */
    MANO_ROW,        /* a row outside */
    MANO_SHORT,      /* an array of fewer bytes than its shape */
    MANO_SYSTEM,     /* os.system, called */
    MANO_BIG_ENDIAN,
    MANO_FAULTS
};

struct mano_file {
    unsigned char *bytes; /* from malloc */
    size_t size;
};

struct mano_file make_mano(enum mano_form form, enum mano_fault fault);

/* The made-up numbers: element i of an array, counted in C order. */
double mano_template(size_t i);
double mano_shape(size_t i); /* of [778][3][20], of which the first ten count */
double mano_pose(size_t i);
double mano_regressor(size_t joint, size_t vertex);
double mano_weight(size_t vertex, size_t joint);

#endif
