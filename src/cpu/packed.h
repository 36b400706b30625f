/* Packed weights: a convolution's weights in the order that its kernel reads them, made once and
 * shared by all programs of a model. */
#ifndef TAP_CPU_PACKED_H
#define TAP_CPU_PACKED_H

#include "cpu/cpu.h"
#include "kernels.h"

enum { TAP_PASS = 64 }; /* output channels whose Winograd products are kept at a time */

typedef enum tap_form {
    /* [pass][TAP_TILE_PLANES][panel][in_padded][TAP_PANEL], G g G^T; a pass is TAP_PASS columns,
     * the last one what is left. */
    TAP_FORM_WINOGRAD,
    TAP_FORM_DIRECT, /* [panel][3][in][3][TAP_PANEL] */
    TAP_FORM_MATRIX  /* [panel][in][TAP_PANEL], 1x1 */
} tap_form;

typedef struct tap_packed tap_packed;
struct tap_packed {
    char name[TAP_PLAN_NAME];
    tap_form form;
    size_t in, out;               /* channels */
    size_t in_padded, out_padded; /* up to a multiple of TAP_PANEL, with zeros */
    size_t n_bytes;               /* of weights and bias */
    float *weights, *bias;        /* bias [out_padded] */
    _Atomic size_t n_references;
};

/* Which form a convolution of so many input channels takes. */
tap_form tap_packed_form(size_t kernel, size_t in);

/* Makes an empty one with one reference; tap_packed_fill gives it its values. */
tap_status tap_packed_create(tap_packed **packed, const tap_op *op, size_t in, size_t out,
                             tap_error *err);

/* Fills several at once from their operations, on all workers. */
typedef struct tap_packing {
    tap_packed *packed;
    const tap_op *op;
} tap_packing;
void tap_packed_fill(const tap_packing *packings, size_t n, tap_pool *pool);

tap_packed *tap_packed_retain(tap_packed *packed);
/* NULL is fine. */
void tap_packed_release(tap_packed *packed);

#endif
