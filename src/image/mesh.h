/* mesh: triangle meshes before a camera, drawn over a picture and written to files; and what is
 * drawn of a hand without one. The camera looks along +z, x goes right, y down; pixel centres are
 * whole numbers. */
#ifndef TAP_IMAGE_MESH_H
#define TAP_IMAGE_MESH_H

#include "image.h"

/* Borrowed. A triangle's outside is where its corners turn clockwise to the eye, as seen with y
 * down (its normal by the right-hand rule, in these axes, points there). Corners that are not
 * finite hide their triangles. */
typedef struct tap_mesh {
    const float *vertices; /* [n_vertices][3], metres */
    size_t n_vertices;
    const uint32_t *faces; /* [n_faces][3], below n_vertices */
    size_t n_faces;
    float translation[3]; /* added to every vertex: into the camera's frame */
    tap_color color;
} tap_mesh;

/* Upstream's light blue. */
extern const tap_color tap_mesh_color;

/* Pixels: x = fx X / Z + cx. */
typedef struct tap_lens {
    double fx, fy, cx, cy;
} tap_lens;

/* Draws the meshes over an RGB picture: one z-buffer for all, smooth shading, 16 samples a pixel.
 * Triangles that reach behind the camera (nearer than 1 mm) are left out. Memory: 40 bytes a vertex
 * and a tile.
 * Errors  TAP_ERR_ARGUMENT (a corner that no vertex has, a lens that is not finite),
 * TAP_ERR_MEMORY; the picture is then as it was. */
tap_status tap_draw_meshes(tap_pixels *pixels, const tap_mesh *meshes, size_t n,
                           const tap_lens *lens, tap_error *err);

/* A new picture, white, of the meshes turned by 90 degrees: seen from their right (the camera's
 * +x), farther is to the right. They fill it. */
tap_status tap_mesh_side_view(tap_pixels *out, uint32_t width, uint32_t height,
                              const tap_mesh *meshes, size_t n, tap_error *err);

/* normals[n_vertices][3]: of unit length, the mean of the triangles around weighted by area; 0 for
 * a vertex of none. Corners are checked already. */
void tap_mesh_normals(float *normals, const tap_mesh *mesh);

/* Errors  TAP_ERR_ARGUMENT: a corner that no vertex has. number: of the mesh, from 1. */
tap_status tap_mesh_check(const tap_mesh *mesh, size_t number, tap_error *err);

/* A hand's 21 joints in OpenPose's order, xy [21][2] pixels, over an RGB picture: the wrist, and a
 * colour a finger from thumb to little finger. */
void tap_draw_skeleton(tap_pixels *pixels, const float *xy);

/* A box x1, y1, x2, y2 and from its middle the axes of a rotation [3][3] (its columns: red, green,
 * blue), seen without perspective; NULL: no axes. */
void tap_draw_hand_box(tap_pixels *pixels, const float box[4], const float *rotation);

/* Writes the meshes, each with its translation, to a file: .obj (text), .ply (binary) or .glb (glTF
 * 2.0, one node a mesh), as the name ends. In metres, turned as such files have it: y up, z towards
 * the viewer. The file appears whole or not at all.
 * Errors  TAP_ERR_ARGUMENT (another ending, a corner that no vertex has, a vertex that is not
 *         finite, a mesh without triangles, none at all), TAP_ERR_LIMIT (50,000,000 vertices or
 *         triangles), TAP_ERR_IO, TAP_ERR_MEMORY. */
tap_status tap_mesh_write(const char *path, const tap_mesh *meshes, size_t n, tap_error *err);

#endif
