/* HaMeR's network: checkpoint tensors to a plan.
 * Pavlakos et al., "Reconstructing Hands in 3D with Transformers", CVPR 2024, arXiv:2312.05251. */
#ifndef TAP_MODELS_HAMER_H
#define TAP_MODELS_HAMER_H

#include "net/net.h"
#include "weights/weights.h"

enum {
    TAP_HAMER_HEIGHT = 256, /* of the network's input */
    TAP_HAMER_WIDTH = 192,
    TAP_HAMER_TOKENS = 192, /* 16 rows of 12 */
    TAP_HAMER_POSE = 96,    /* 16 rotations of six numbers */
    TAP_HAMER_BETAS = 10,
    TAP_HAMER_CAMERA = 3, /* s, tx, ty */
    TAP_HAMER_OUTPUTS = TAP_HAMER_POSE + TAP_HAMER_BETAS + TAP_HAMER_CAMERA
};

/* The sizes that a network of this family may choose. */
typedef struct tap_hamer_config {
    size_t dim, depth, heads, mlp;                                 /* ViT */
    size_t head_dim, head_depth, head_heads, head_inner, head_mlp; /* the MANO head */
} tap_hamer_config;

extern const tap_hamer_config tap_hamer_full, tap_hamer_tiny;

typedef struct tap_hamer tap_hamer;

/* Finds the tensors by the authors' names; every size is read from them. discriminator.*, mano.*
 * (licensed data that training saved along) and any other name are left alone. weights must outlive
 * the model. No value is read yet: that is for those who have them packed already.
 * Errors  TAP_ERR_UNSUPPORTED (another kind of model, widths whose number of heads is not known),
 *         TAP_ERR_FORMAT (a tensor missing or misshapen: file and tensor are named), TAP_ERR_LIMIT,
 *         TAP_ERR_MEMORY. */
tap_status tap_hamer_create(tap_hamer **model, const tap_weights *weights, tap_error *err);
/* Reads all values, float32 where they lie, others into copies, and works out what no image
 * changes. Errors: TAP_ERR_FORMAT (a NaN or an infinity: file and tensor are named),
 * TAP_ERR_UNSUPPORTED (integers), TAP_ERR_MEMORY. */
tap_status tap_hamer_read(tap_hamer *model, tap_error *err);
/* Gives back the memory of what has been read, once a backend has packed it. */
void tap_hamer_forget(tap_hamer *model);
void tap_hamer_free(tap_hamer *model); /* NULL is fine */
const tap_hamer_config *tap_hamer_describe(const tap_hamer *model);
uint64_t tap_hamer_parameters(const tap_hamer *model);

/* n crops above each other [n * 256][192][3], RGB, normalised, to [n][1][109]: the pose (rot6d, 16
 * x 6), the betas, the camera. The plan borrows the model's tensors, whose values it may look at
 * only between tap_hamer_read and tap_hamer_forget. */
tap_status tap_hamer_plan(const tap_hamer *model, size_t n, tap_plan **plan, tap_error *err);

/* The same network on a picture of two rows of patches, [32][192][3]: every weight, an eighth of
 * the work. For the warm-up gate, since the reference executor takes a minute for a whole crop. */
tap_status tap_hamer_gate_plan(const tap_hamer *model, tap_plan **plan, tap_error *err);

/* Writes the synthetic weights of docs/formats.md under the checkpoint's names. */
tap_status tap_synth_hamer(const char *path, const tap_hamer_config *config, tap_error *err);

/* ---- the tensors (hamer_tensors.c) ----------------------------------------------------------- */

/* Numbers of the tensors, in the order of tap_hamer_tensor. */
enum {
    TAP_HAMER_POS_EMBED,
    TAP_HAMER_PATCH_WEIGHT,
    TAP_HAMER_PATCH_BIAS,
    TAP_HAMER_LAST_NORM_WEIGHT,
    TAP_HAMER_LAST_NORM_BIAS,
    TAP_HAMER_INIT_POSE,
    TAP_HAMER_INIT_BETAS,
    TAP_HAMER_INIT_CAMERA,
    TAP_HAMER_TOKEN_POSITION,
    TAP_HAMER_TOKEN_WEIGHT, /* multiplied by the token, which is 0 */
    TAP_HAMER_TOKEN_BIAS,
    TAP_HAMER_POSE_WEIGHT,
    TAP_HAMER_POSE_BIAS,
    TAP_HAMER_BETAS_WEIGHT,
    TAP_HAMER_BETAS_BIAS,
    TAP_HAMER_CAMERA_WEIGHT,
    TAP_HAMER_CAMERA_BIAS,
    TAP_HAMER_N_FIXED
};
/* Of a block, counted from its first. */
enum {
    TAP_BLOCK_NORM1_WEIGHT,
    TAP_BLOCK_NORM1_BIAS,
    TAP_BLOCK_QKV_WEIGHT,
    TAP_BLOCK_QKV_BIAS,
    TAP_BLOCK_PROJ_WEIGHT,
    TAP_BLOCK_PROJ_BIAS,
    TAP_BLOCK_NORM2_WEIGHT,
    TAP_BLOCK_NORM2_BIAS,
    TAP_BLOCK_FC1_WEIGHT,
    TAP_BLOCK_FC1_BIAS,
    TAP_BLOCK_FC2_WEIGHT,
    TAP_BLOCK_FC2_BIAS,
    TAP_BLOCK_N
};
/* Of a decoder layer. */
enum {
    TAP_LAYER_SELF_NORM_WEIGHT,
    TAP_LAYER_SELF_NORM_BIAS,
    TAP_LAYER_SELF_QKV,
    TAP_LAYER_SELF_OUT_WEIGHT,
    TAP_LAYER_SELF_OUT_BIAS,
    TAP_LAYER_CROSS_NORM_WEIGHT,
    TAP_LAYER_CROSS_NORM_BIAS,
    TAP_LAYER_CROSS_KV,
    TAP_LAYER_CROSS_Q,
    TAP_LAYER_CROSS_OUT_WEIGHT,
    TAP_LAYER_CROSS_OUT_BIAS,
    TAP_LAYER_MLP_NORM_WEIGHT,
    TAP_LAYER_MLP_NORM_BIAS,
    TAP_LAYER_MLP_IN_WEIGHT,
    TAP_LAYER_MLP_IN_BIAS,
    TAP_LAYER_MLP_OUT_WEIGHT,
    TAP_LAYER_MLP_OUT_BIAS,
    TAP_LAYER_N
};

enum { TAP_HAMER_NAME = 96 };

size_t tap_hamer_n_tensors(const tap_hamer_config *config); /* 503 */
size_t tap_hamer_block(size_t block);
size_t tap_hamer_layer(const tap_hamer_config *config, size_t layer);

/* Name and shape of tensor i. */
typedef struct tap_hamer_tensor {
    char name[TAP_HAMER_NAME];
    size_t rank, shape[4];
} tap_hamer_tensor;
void tap_hamer_tensor_at(tap_hamer_tensor *tensor, const tap_hamer_config *config, size_t i);

#endif
