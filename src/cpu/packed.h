/* Packed weights: a convolution's weights in the order that its kernel reads them, made once and
 * shared by all programs of a model. */
#ifndef TAP_CPU_PACKED_H
#define TAP_CPU_PACKED_H

#include "cpu/cpu.h"
#include "product.h"

enum { TAP_PASS = 64 }; /* output channels whose Winograd products are kept at a time */

typedef enum tap_form {
    /* [pass][TAP_TILE_PLANES][panel][in_padded][TAP_PANEL], G g G^T; a pass is TAP_PASS columns,
     * the last one what is left. */
    TAP_FORM_WINOGRAD,
    TAP_FORM_DIRECT, /* [panel][3][in][3][TAP_PANEL] */
    TAP_FORM_MATRIX, /* [panel][in][TAP_PANEL], 1x1 */
    TAP_FORM_PANELS, /* of a product, each at a multiple of TAP_ALIGN bytes */
    TAP_FORM_VALUES  /* as they are */
} tap_form;

typedef struct tap_packed tap_packed;
struct tap_packed {
    char name[TAP_PLAN_NAME];
    tap_form form;
    const tap_product *product;   /* of panels */
    size_t in, out;               /* channels */
    size_t in_padded, out_padded; /* up to a multiple of the form's own, with zeros */
    size_t n_weights, n_biases;   /* bytes, a multiple of TAP_ALIGN; floats */
    size_t panel_bytes;
    size_t n_bytes; /* of weights and bias */
    float *weights, *bias;
    bool owned; /* the memory is ours, not a store's */
    _Atomic size_t n_references;
};

/* Which form a convolution of so many input channels takes. */
tap_form tap_packed_form(size_t kernel, size_t in);

/* What there is to pack of an operation. */
typedef struct tap_packing {
    tap_packed *packed;
    const tap_op *op;
} tap_packing;

/* Makes one with one reference and without memory, of the sizes that the operation needs. product:
 * of linear operations; NULL for others. n_tokens: of patch embedding, whose biases are a table. */
tap_status tap_packed_create(tap_packed **packed, const tap_op *op, size_t in, size_t out,
                             size_t n_tokens, const tap_product *product, tap_error *err);

/* Gives them memory, the store's or their own, and fills them from their operations, on all
 * workers. */
tap_status tap_packed_fill(const tap_packing *packings, size_t n,
                           const tap_compile_options *options, tap_pool *pool, tap_error *err);

tap_packed *tap_packed_retain(tap_packed *packed);
/* NULL is fine. */
void tap_packed_release(tap_packed *packed);

#endif
