/* mesh_view: a mesh from its side, and a hand as lines. */
#include "mesh.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- side view ------------------------------------------------------------------------------- */

static bool is_finite(const float *at, const float *translation)
{
    return isfinite(at[0] + translation[0]) && isfinite(at[1] + translation[1]) &&
           isfinite(at[2] + translation[2]);
}

/* The box around all vertices; false if there is none. */
static bool find_bounds(double low[3], double high[3], const tap_mesh *meshes, size_t n)
{
    for (int k = 0; k < 3; k++) {
        low[k] = DBL_MAX;
        high[k] = -DBL_MAX;
    }
    for (size_t m = 0; m < n; m++)
        for (size_t i = 0; i < meshes[m].n_vertices; i++) {
            const float *at = meshes[m].vertices + 3 * i;
            if (!is_finite(at, meshes[m].translation))
                continue;
            for (int k = 0; k < 3; k++) {
                double value = (double)at[k] + meshes[m].translation[k];
                low[k] = fmin(low[k], value);
                high[k] = fmax(high[k], value);
            }
        }
    return low[0] <= high[0];
}

/* Turns the meshes about the middle of the bounds; vertices has room for all of theirs. */
static void turn(tap_mesh *turned, float *vertices, const tap_mesh *meshes, size_t n,
                 const double middle[3], double distance)
{
    for (size_t m = 0; m < n; m++) {
        turned[m] = meshes[m];
        turned[m].vertices = vertices;
        turned[m].translation[0] = turned[m].translation[1] = 0;
        turned[m].translation[2] = (float)distance;
        for (size_t i = 0; i < meshes[m].n_vertices; i++, vertices += 3) {
            double at[3];
            for (int k = 0; k < 3; k++)
                at[k] =
                    (double)meshes[m].vertices[3 * i + k] + meshes[m].translation[k] - middle[k];
            vertices[0] = (float)at[2];
            vertices[1] = (float)at[1];
            vertices[2] = (float)-at[0];
        }
    }
}

static tap_status draw_side(tap_pixels *out, const tap_mesh *meshes, size_t n, tap_error *err)
{
    double low[3], high[3], middle[3], size = 1e-6;
    if (!find_bounds(low, high, meshes, n))
        return TAP_OK;
    for (int k = 0; k < 3; k++) {
        middle[k] = (low[k] + high[k]) / 2;
        size = fmax(size, high[k] - low[k]);
    }
    /* From ten times its size, scaled by what is nearest to fill nine tenths. */
    double distance = 10 * size + 1, scale = 0.9 * (distance - size / 2);
    double f = scale * fmin(out->width / fmax(high[2] - low[2], size * 1e-3),
                            out->height / fmax(high[1] - low[1], size * 1e-3));
    tap_lens lens = {f, f, (out->width - 1) / 2.0, (out->height - 1) / 2.0};
    size_t total = 0;
    for (size_t m = 0; m < n; m++)
        if (!tap_size_add(total, meshes[m].n_vertices, &total))
            return tap_fail(err, TAP_ERR_LIMIT, "too many vertices to draw");
    tap_mesh *turned = tap_alloc(n, sizeof *turned);
    float *vertices = tap_alloc(total, 3 * sizeof *vertices);
    tap_status status = TAP_ERR_MEMORY;
    if (turned != NULL && vertices != NULL) {
        turn(turned, vertices, meshes, n, middle, distance);
        status = tap_draw_meshes(out, turned, n, &lens, err);
    } else {
        tap_fail(err, status, "no memory to turn %zu meshes", n);
    }
    free(vertices), free(turned);
    return status;
}

tap_status tap_mesh_side_view(tap_pixels *out, uint32_t width, uint32_t height,
                              const tap_mesh *meshes, size_t n, tap_error *err)
{
    TAP_TRY(tap_pixels_create(out, width, height, 3, err));
    memset(out->data, 255, (size_t)width * height * 3);
    tap_status status = draw_side(out, meshes, n, err);
    if (status != TAP_OK)
        tap_pixels_free(out);
    return status;
}

/* ---- lines ----------------------------------------------------------------------------------- */

enum { JOINTS = 21, FINGERS = 5, FINGER_JOINTS = 4 };

/* A hand's size in the picture gives the width of its lines. */
static float line_width(const tap_pixels *pixels, double size)
{
    double most =
        fmax(3, (pixels->width > pixels->height ? pixels->width : pixels->height) / 100.0);
    return (float)fmin(fmax(size / 50, 1.5), most);
}

static void draw_stroke(tap_pixels *pixels, const float *from, const float *to, float width,
                        tap_color color)
{
    static const tap_color rim = {0, 0, 0, 0.55f};
    tap_draw_line(pixels, from[0], from[1], to[0], to[1], width + 2, rim);
    tap_draw_line(pixels, from[0], from[1], to[0], to[1], width, color);
}

void tap_draw_skeleton(tap_pixels *pixels, const float *xy)
{
    /* Told apart without full colour sight: Okabe and Ito, "Color Universal Design", 2008. */
    static const tap_color colors[FINGERS] = {{213, 94, 0, 1},
                                              {240, 228, 66, 1},
                                              {0, 158, 115, 1},
                                              {86, 180, 233, 1},
                                              {204, 121, 167, 1}};
    static const tap_color white = {255, 255, 255, 1};
    double low[2] = {DBL_MAX, DBL_MAX}, high[2] = {-DBL_MAX, -DBL_MAX};
    for (size_t i = 0; i < 2 * (size_t)JOINTS; i++)
        if (isfinite(xy[i])) {
            low[i % 2] = fmin(low[i % 2], xy[i]);
            high[i % 2] = fmax(high[i % 2], xy[i]);
        }
    float width = line_width(pixels, fmax(high[0] - low[0], high[1] - low[1]));
    for (size_t f = 0; f < FINGERS; f++) {
        const float *last = xy;
        for (size_t j = 0; j < FINGER_JOINTS; j++) {
            const float *at = xy + 2 * (1 + f * FINGER_JOINTS + j);
            draw_stroke(pixels, last, at, width, colors[f]);
            last = at;
        }
        for (size_t j = 0; j < FINGER_JOINTS; j++) {
            const float *at = xy + 2 * (1 + f * FINGER_JOINTS + j);
            tap_draw_disc(pixels, at[0], at[1], width, colors[f]);
        }
    }
    tap_draw_disc(pixels, xy[0], xy[1], 1.3f * width, white);
}

void tap_draw_hand_box(tap_pixels *pixels, const float box[4], const float *rotation)
{
    static const tap_color frame = {255, 220, 60, 1};
    static const tap_color axes[3] = {{230, 60, 60, 1}, {60, 190, 80, 1}, {70, 120, 255, 1}};
    const double size = fmin((double)box[2] - box[0], (double)box[3] - box[1]);
    const float width = line_width(pixels, size);
    const float corners[4][2] = {
        {box[0], box[1]}, {box[2], box[1]}, {box[2], box[3]}, {box[0], box[3]}};
    for (int i = 0; i < 4; i++)
        draw_stroke(pixels, corners[i], corners[(i + 1) % 4], 0.7f * width, frame);
    if (rotation == NULL)
        return;
    /* The farthest first. */
    int order[3] = {0, 1, 2};
    for (int i = 0; i < 3; i++)
        for (int j = i + 1; j < 3; j++)
            if (rotation[6 + order[j]] > rotation[6 + order[i]]) {
                int other = order[i];
                order[i] = order[j];
                order[j] = other;
            }
    const float middle[2] = {(box[0] + box[2]) / 2, (box[1] + box[3]) / 2};
    for (int i = 0; i < 3; i++) {
        float length = (float)(0.4 * size);
        const float tip[2] = {middle[0] + length * rotation[order[i]],
                              middle[1] + length * rotation[3 + order[i]]};
        draw_stroke(pixels, middle, tip, width, axes[order[i]]);
        tap_draw_disc(pixels, tip[0], tip[1], 1.3f * width, axes[order[i]]);
    }
}
