/* product: how a linear layer's rows meet its weights, y[row][o] = sum over i of x[row][i] w[o][i].
 * One table for each precision and kind of arithmetic; linear.c is the step around them.
 *
 * Rows are first brought into a form of the product's own, by all workers, 32 rows at a time; then
 * each item multiplies all rows by a panel of columns. Every row's result is the same to the bit
 * whatever the other rows are, or, where rows are paired, whatever rows there are beside its own
 * 32. Packed weights hold no
 * addresses: they may lie in a mapped file. Private to the room. */
#ifndef TAP_CPU_PRODUCT_H
#define TAP_CPU_PRODUCT_H

#include "kernels.h"

enum {
    TAP_PRODUCT_COLUMNS = 32, /* of a panel */
    TAP_PRODUCT_ROWS = 32 /* rows are padded to a multiple; the padding's results are not used, and
                             are brought into their form so many at a time */
};

/* One panel's work. */
typedef struct tap_multiply {
    const tap_kernels *kernels;
    float *c;          /* [m padded][TAP_PRODUCT_COLUMNS], dense */
    const float *x;    /* the rows as they are, x_row floats from each other; */
    size_t x_row;      /* for a product without a form */
    const void *form;  /* else their form */
    const void *panel; /* packed weights */
    size_t m, k;       /* k is padded; */
    size_t inputs;     /* so many does a row have */
    bool paired;       /* rows of the same 32 may enter each other's sums */
    size_t first, n;   /* inputs of a block: all, unless the product has a k_block; */
    void *scratch;     /* of any block but the first the sums are added to c */
} tap_multiply;

typedef struct tap_product {
    const char *name;      /* for people: "f32", "f32 in 3 x bf16", "int8" */
    const char *precision; /* "f32", "f16", "int8" */
    const char *isa;       /* the table of kernels.h that it belongs to; NULL: to all */
    size_t k_step;         /* inputs are padded to a multiple, with zeros */
    size_t k_block;        /* 0, or inputs for which the rows' form fits the second cache level */
    bool pairs; /* the form is for paired rows only; others are read as they are, to the bit of a
                   row alone */

    /* Bytes of a packed panel, of the rows' form for one row, and of scratch for one worker; k is
     * padded. A product without a form reads the rows as they are: row_bytes gives 0. */
    size_t (*panel_bytes)(size_t k);
    size_t (*row_bytes)(size_t k);
    size_t (*scratch_bytes)(size_t k);

    /* A panel from weights [n][k], n <= TAP_PRODUCT_COLUMNS; missing columns are zeros. */
    void (*pack)(void *panel, const float *weight, size_t n, size_t k);
    /* Rows first .. first + n of m, x [n][k] at x_row floats from each other, into their form;
     * first is a multiple of TAP_PRODUCT_ROWS, and so is n but for the last. */
    void (*rows)(const tap_kernels *kernels, void *form, const float *x, size_t x_row, size_t first,
                 size_t n, size_t m, size_t k);
    void (*multiply)(const tap_multiply *multiply);
} tap_product;

extern const tap_product tap_product_strassen_f32, tap_product_strassen_f16;
#if defined(TAPETUM_AMX)
extern const tap_product tap_product_amx_f32;
#endif

/* A line a precision: which product it is with these kernels. */
void tap_products_print(const tap_kernels *kernels, char *text, size_t size);

/* The product for this precision with these kernels; NULL: there is none. */
const tap_product *tap_product_find(const tap_kernels *kernels, const char *precision);

/* n up to a multiple of step; sizes here are those of plans, far from overflow. */
static inline size_t tap_product_pad(size_t n, size_t step)
{
    return (n + step - 1) / step * step;
}

#endif
