/* crop: a square of a frame as HaMeR's network sees it, 256 x 256 or its middle 192 columns.
 * Upstream cuts with OpenCV's classic warpAffine and, when shrinking, smooths first; both are
 * followed here to the bit (8-bit pixels) or to the noise of double arithmetic (smoothed ones). */
#ifndef TAP_IMAGE_CROP_H
#define TAP_IMAGE_CROP_H

#include "core/core.h"

enum {
    TAP_CROP_SIDE = 256,   /* pixels a side of a crop */
    TAP_CROP_LEFT = 32,    /* the network's first column of it, */
    TAP_CROP_COLUMNS = 192 /* and how many it sees */
};

/* What to cut: a square around a centre, in the frame's pixels (centres are whole numbers). It may
 * lie partly or wholly outside the frame, which is black there. */
typedef struct tap_crop {
    double center_x, center_y, side; /* side: > 0 */
    bool mirror;                     /* a left hand: the crop is its mirror image */
    bool whole_levels; /* smoothed pixels rounded half up to whole grey levels (the `served`
                          policy); else as they are (`demo`). Others are whole anyway. */
} tap_crop;

/* The map from the frame (mirrored, if the crop is) to the crop: u = sx x + tx, v = sy y + ty; from
 * points in float32, as upstream makes it. Not finite where float32 cannot tell the square's
 * corners apart, so far away or so large it is: such crops are black. */
typedef struct tap_crop_map {
    double sx, tx, sy, ty;
} tap_crop_map;
tap_crop_map tap_crop_mapping(const tap_crop *crop, uint32_t frame_width);

/* The Gaussian that smooths the frame before it is shrunk; false where none does (sides up to
 * 563.2). Where it does, a radius of 0 leaves the pixels alone, but they are no longer rounded. The
 * radius is bounded by the frame's longer side: beyond, the frame is under one pixel of the crop.
 */
bool tap_crop_blur(const tap_crop *crop, uint32_t frame_width, uint32_t frame_height, double *sigma,
                   size_t *radius);

/* Scratch for a crop out of such a frame, 0 if it needs none: bounded by some rows of the frame,
 * whatever the crop. false on overflow. */
bool tap_crop_scratch_bytes(const tap_image *frame, const tap_crop *crop, size_t *bytes);

/* The crop [256][256][3], RGB: rounded (smoothed pixels half up), or in float32 as far as it has
 * been smoothed. frame is checked (tap_image_check), of any format; grey is taken three times.
 * scratch is TAP_ALIGN-aligned; NULL if 0 bytes are needed. Nothing is allocated. */
void tap_crop_bytes(uint8_t *out, const tap_image *frame, const tap_crop *crop, void *scratch);
void tap_crop_floats(float *out, const tap_image *frame, const tap_crop *crop, void *scratch);

/* The network's input [256][192][3], RGB: (p - 255 mean) / (255 std), columns 32..223 of the crop.
 */
void tap_crop_input(float *input, const tap_image *frame, const tap_crop *crop, void *scratch);

/* The same of a picture that is a crop already: 192 x 256 as it is, 256 x 256 without its sides.
 * Errors  TAP_ERR_ARGUMENT: another size. */
tap_status tap_crop_ready(float *input, const tap_image *picture, tap_error *err);

#endif
