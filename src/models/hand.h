/* hand: what stands around HaMeR's network: from a box to the square it looks at, from its camera
 * to the frame's. Pure functions.
 *
 * Frames    the camera looks along +z, x goes right, y down; metres. Pixel centres are whole
 *           numbers.
 * Left hands  are mirrored before the network, which knows right ones only. What it gives (cam,
 *           vertices, joints, rotations) is the mirrored hand's; the functions below lead back. */
#ifndef TAP_MODELS_HAND_H
#define TAP_MODELS_HAND_H

#include "core/core.h"

/* ---- boxes (hand_box.c) ---------------------------------------------------------------------- */

/* A square in the frame, unmirrored; it may lie outside. */
typedef struct tap_hand_region {
    double center_x, center_y, side;
} tap_hand_region;

/* The square around a box (x1, y1, x2, y2) in the frame's pixels. number: which box it is, from 1,
 * for the message.
 * Errors  TAP_ERR_ARGUMENT: a number that is not finite, x2 <= x1, y2 <= y1, a factor that is not
 *         finite and positive, a square of under one pixel or of infinite side. */
tap_status tap_hand_region_of(tap_hand_region *region, const float box[4], size_t number,
                              double rescale_factor, tap_hand_policy policy, tap_error *err);

/* Without a box: the largest square in the middle of the frame. What the camera says is not to be
 * trusted then. */
tap_hand_region tap_hand_region_center(uint32_t width, uint32_t height);

/* ---- camera (hand_camera.c) ------------------------------------------------------------------ */

/* The one that HaMeR assumes: focal length 5000 / 256 times the longer side, around the middle. */
tap_hand_camera tap_hand_camera_assumed(uint32_t width, uint32_t height);

/* Errors  TAP_ERR_ARGUMENT: not finite, or a focal length <= 0; names the field. */
tap_status tap_hand_camera_check(const tap_hand_camera *camera, tap_error *err);

/* The hand's place before the crop's own camera (focal length 5000, around the middle of its 256
 * pixels), upstream's pred_cam_t. Not mirrored back. cam: s, tx, ty of the network. */
void tap_hand_crop_translation(float translation[3], const float cam[3]);

/* The hand's place before the frame's camera, cam_t_full: where it covers the pixels that cam says.
 * Mirrored back. The depth is 2 f / (side s) with f = fx = fy, or sqrt(fx fy), which keeps the
 * hand's area. */
void tap_hand_translation(float translation[3], const float cam[3], const tap_hand_region *region,
                          const tap_hand_camera *camera, bool is_right);

/* xyz [n][3] to pixels xy [n][2] of the frame. Points and translation mirrored back. */
void tap_hand_project(float *xy, const float *xyz, size_t n, const float translation[3],
                      const tap_hand_camera *camera);

/* xyz [n][3], not mirrored back, to the crop, -0.5..0.5 from edge to edge: upstream's
 * pred_keypoints_2d. translation: tap_hand_crop_translation's. */
void tap_hand_project_crop(float *xy, const float *xyz, size_t n, const float translation[3]);

/* Those to pixels of the frame as upstream's evaluation does (an affine map; up to half a pixel
 * from tap_hand_project's for a hand's depth). */
void tap_hand_affine(float *xy, const float *crop_xy, size_t n, const tap_hand_region *region,
                     bool is_right);

/* ---- left hands, rotations, the wrist (hand_mirror.c) ------------------------------------------
 */

/* A mirrored hand back into a left one, in place: points [n][3] and triangles [n][3], whose outside
 * stays outside. */
void tap_hand_mirror_points(float *xyz, size_t n);
void tap_hand_mirror_faces(uint32_t *faces, size_t n);

/* The rotation [3][3] that six numbers stand for: a1, then a2, its first two columns before they
 * are made orthonormal (Zhou and others, "On the Continuity of Rotation Representations in Neural
 * Networks", CVPR 2019). Never NaN for finite numbers; zeros give zeros. */
void tap_hand_rotation_6d(float rotation[9], const float six[6]);

/* A rotation [3][3] of the mirrored hand as one of the left hand, M R M with M = diag(-1, 1, 1); in
 * place. */
void tap_hand_mirror_rotation(float rotation[9]);

/* The mean distances of predicted points [n][3] from the true ones: with their first points brought
 * together, and after the rotation, scale and shift that fit them best (Procrustes' problem; Horn,
 * "Closed-form solution of absolute orientation using unit quaternions", 1987: never a reflection).
 * In the points' unit. */
void tap_hand_distances(double *aligned, double *fitted, const float *predicted, const float *truth,
                        size_t n);

/* A rotation [3][3] as axis times angle, the angle in 0..pi. Stable near both ends; at pi one of
 * the two axes. */
void tap_hand_axis_angle(float vector[3], const float rotation[9]);

/* Triangles of MANO's vertices that close the hole at the wrist, for pictures and solid meshes; of
 * the right hand, and not among MANO's own 1538. */
enum { TAP_HAND_WRIST = 14 };
extern const uint32_t tap_hand_wrist[TAP_HAND_WRIST][3];

#endif
