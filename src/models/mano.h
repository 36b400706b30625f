/* mano: the hand model that turns HaMeR's rotations and shape into a mesh, from the user's own
 * file. Romero, Tzionas, Black, "Embodied Hands: Modeling and Capturing Hands and Bodies Together",
 * ACM Transactions on Graphics 36(6), 2017; linear blend skinning with pose correctives as in Loper
 * and others, "SMPL", 2015. */
#ifndef TAP_MODELS_MANO_H
#define TAP_MODELS_MANO_H

#include "core/core.h"

/* Immutable. */
typedef struct tap_mano tap_mano;

/* Where the file is: option; else $TAPETUM_MANO; else MANO_RIGHT.pkl or .npz where the model's
 * package keeps it (~/.cache/tt-model/hamer-p150/weights) or in our cache. "" is none. *path is
 * released with free(), NULL where there is none.
 * Errors  TAP_ERR_NOT_FOUND (named, but not there), TAP_ERR_MEMORY. */
tap_status tap_mano_find(char **path, const char *option, tap_error *err);

/* Reads MANO_RIGHT.pkl as its makers give it, or a copy of its arrays (docs/hamer.md, "MANO").
 * Errors  those of tap_weights_open_arrays; TAP_ERR_UNSUPPORTED (the left hand's file, by its name;
 *         a body's or a face's model, by its size); TAP_ERR_FORMAT (an array missing, misshapen,
 * not finite or out of range: named). */
tap_status tap_mano_load(tap_mano **mano, const char *path, tap_error *err);
void tap_mano_free(tap_mano *mano); /* NULL is fine */

/* [1538][3], of the right hand. */
const uint32_t *tap_mano_faces(const tap_mano *mano);

/* vertices [778][3] and joints [21][3], in OpenPose's order, in metres in the hand's own frame, of
 * rotations [16][3][3] and betas [10]. Allocates nothing. */
void tap_mano_pose(const tap_mano *mano, float *vertices, float *joints, const float *rotmats,
                   const float *betas);

#endif
