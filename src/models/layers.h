/* The table of SuperPoint's convolutions, shared by the loader and the synthetic weights. */
#ifndef TAP_MODELS_LAYERS_H
#define TAP_MODELS_LAYERS_H

#include <stddef.h>

/* The widths that a network of this family may choose, and those it may not. */
typedef enum tap_superpoint_width {
    TAP_WIDTH_INPUT, /* one channel */
    TAP_WIDTH_BLOCK_0,
    TAP_WIDTH_BLOCK_1,
    TAP_WIDTH_BLOCK_2,
    TAP_WIDTH_BLOCK_3,
    TAP_WIDTH_HEAD,       /* inside both heads */
    TAP_WIDTH_CELL,       /* 65: the 64 pixels of a cell and "no point here" */
    TAP_WIDTH_DESCRIPTOR, /* 256 */
    TAP_SUPERPOINT_N_WIDTHS
} tap_superpoint_width;

typedef struct tap_superpoint_layer {
    const char *name;     /* Hugging Face's prefix of .weight and .bias; the plan's name */
    const char *original; /* Magic Leap's */
    tap_superpoint_width in, out;
    size_t kernel;
} tap_superpoint_layer;

enum {
    TAP_SUPERPOINT_N_LAYERS = 12,
    TAP_SUPERPOINT_N_DETECTOR = 10 /* the encoder's and the detector head's come first */
};

extern const tap_superpoint_layer tap_superpoint_layers[TAP_SUPERPOINT_N_LAYERS];

/* The published network's widths, which are also what config.json means by leaving a key out. */
extern const size_t tap_superpoint_widths[TAP_SUPERPOINT_N_WIDTHS];

#endif
