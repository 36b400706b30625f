/* models: what a model is, apart from the hardware: tensor names to a plan, and the exact
 * post-processing around it. Meets a backend only through net's table. */
#ifndef TAP_MODELS_H
#define TAP_MODELS_H

#include "core/core.h"
#include "net/net.h"
#include "weights/weights.h"

#include "hamer.h"
#include "hand.h"
#include "mano.h"

/* ---- SuperPoint: the network (superpoint.c) ------------------------------------------------ */

/* The network's tensors, checked and widened to float32. Immutable. */
typedef struct tap_superpoint tap_superpoint;

enum { TAP_SUPERPOINT_CELL = 8 }; /* pixels a side of the cell that one descriptor covers */

/* Takes the tensors by Hugging Face's names or Magic Leap's; config may be NULL. A file without
 * the two descriptor convolutions (both absent) is a detector. The tensors are copied: weights may
 * be closed afterwards. Names may share a prefix that ends in a dot; widths are the tensors' own.
 * Errors  TAP_ERR_FORMAT names the file and the tensor: missing, extra, misshapen (with both
 * shapes), NaN; TAP_ERR_UNSUPPORTED: integers, another kind of model, a very old export, other
 * counts of blocks or score channels; TAP_ERR_LIMIT: over 1024 channels; TAP_ERR_MEMORY. */
tap_status tap_superpoint_create(tap_superpoint **model, const tap_weights *weights,
                                 const tap_config *config, tap_error *err);
void tap_superpoint_free(tap_superpoint *model);
/* 256, or 0 for a detector. */
size_t tap_superpoint_descriptor_dim(const tap_superpoint *model);
uint64_t tap_superpoint_parameters(const tap_superpoint *model);

/* Input [height][width][1] in [0, 1]; outputs: scores [height][width][1] (softmax, folded), and if
 * descriptors: [height / 8][width / 8][256], unit length. The plan borrows the model's tensors.
 * Errors  TAP_ERR_ARGUMENT (a side is no multiple of 8 in 8..8192), TAP_ERR_UNSUPPORTED
 * (descriptors of a detector), TAP_ERR_LIMIT, TAP_ERR_MEMORY. */
tap_status tap_superpoint_plan(const tap_superpoint *model, size_t width, size_t height,
                               bool descriptors, tap_plan **plan, tap_error *err);

/* ---- SuperPoint: scores to keypoints (keypoints.c), to descriptors (descriptors.c) ------------
 */

typedef struct tap_point {
    uint32_t x, y; /* network pixels */
    float score;
} tap_point;

/* Scratch for tap_points_select on a map of this size; false on overflow. */
bool tap_points_scratch_bytes(size_t width, size_t height, size_t *bytes);

/* Non-maximum suppression, threshold, border, order, limit, as docs/superpoint.md states them
 * (options: nms_radius, nms, keypoint_threshold, border, max_keypoints; ranges already checked).
 * scores [height][width], finite, >= 0, left as it is. *points lies in scratch, which is
 * TAP_ALIGN-aligned; *n is its length. Allocates nothing. */
void tap_points_select(const tap_point **points, size_t *n, const float *scores, size_t width,
                       size_t height, const tap_superpoint_options *options, void *scratch);

/* out[n][dim]: the map [map_height][map_width][dim] sampled bilinearly at each (x, y) of
 * xy [n][2], network pixels, then scaled to unit length; docs/superpoint.md, "Sampling". Outside
 * the map counts as zero. */
void tap_descriptors_sample(float *out, const float *xy, size_t n, const float *map,
                            size_t map_width, size_t map_height, size_t dim);

/* ---- matching (match.c) -------------------------------------------------------------------- */

/* Mutual nearest neighbours from the similarity matrix [n_a][n_b]; tapetum.h, tap_match. scratch:
 * at least 16 * (n_a + n_b) bytes. Returns the number of matches. */
size_t tap_match_mutual(tap_match_pair *matches, const float *similarity, size_t n_a, size_t n_b,
                        const tap_match_options *options, void *scratch);

/* ---- synthetic weights (synth.c) ----------------------------------------------------------- */

/* Writes SuperPoint's 24 tensors under Hugging Face's names, from the generator of
 * docs/formats.md, "Synthetic weights". */
tap_status tap_synth_superpoint(const char *path, tap_error *err);

#endif
