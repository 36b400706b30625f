/* mesh: a rasteriser. The picture is drawn in tiles, each with its own small buffer of depths and
 * colours at 4 x 4 samples a pixel; a sample belongs to a triangle if none of its barycentric
 * coordinates is negative. */
#include "mesh.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SAMPLES = 4, /* along a pixel's side */
    TILE = 32,   /* pixels */
    TILE_SAMPLES = TILE * SAMPLES
};

static const double nearest = 0.001; /* metres; what is nearer is not drawn */

const tap_color tap_mesh_color = {166, 189, 219, 1};

typedef struct vertex {
    double x, y;    /* pixels */
    float nearness; /* 1 / z; 0: not to be drawn */
    float light[2]; /* on the outside, on the inside; 1: as bright as the colour */
    float place[3]; /* before the camera, for the side that a triangle shows */
} vertex;

typedef struct sample {
    float nearness; /* 0: nothing here */
    uint8_t color[3];
    uint8_t alpha;
} sample;

/* Pixels [from, to) of one axis. */
typedef struct extent {
    double low, high;
} extent;

typedef struct tile {
    uint32_t x, y, width, height; /* pixels */
    sample samples[TILE_SAMPLES][TILE_SAMPLES];
} tile;

tap_status tap_mesh_check(const tap_mesh *mesh, size_t number, tap_error *err)
{
    for (size_t i = 0; i < 3 * mesh->n_faces; i++)
        if (mesh->faces[i] >= mesh->n_vertices)
            return tap_fail(err, TAP_ERR_ARGUMENT,
                            "mesh %zu: triangle %zu has vertex %u, and there are %zu", number,
                            i / 3, mesh->faces[i], mesh->n_vertices);
    return TAP_OK;
}

void tap_mesh_normals(float *normals, const tap_mesh *mesh)
{
    memset(normals, 0, mesh->n_vertices * 3 * sizeof *normals);
    for (size_t f = 0; f < mesh->n_faces; f++) {
        const uint32_t *face = mesh->faces + 3 * f;
        const float *a = mesh->vertices + 3 * (size_t)face[0];
        const float *b = mesh->vertices + 3 * (size_t)face[1];
        const float *c = mesh->vertices + 3 * (size_t)face[2];
        const float u[3] = {b[0] - a[0], b[1] - a[1], b[2] - a[2]};
        const float v[3] = {c[0] - a[0], c[1] - a[1], c[2] - a[2]};
        const float cross[3] = {u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2],
                                u[0] * v[1] - u[1] * v[0]};
        if (!isfinite(cross[0]) || !isfinite(cross[1]) || !isfinite(cross[2]))
            continue;
        for (int k = 0; k < 3; k++)
            for (int i = 0; i < 3; i++)
                normals[3 * (size_t)face[k] + i] += cross[i];
    }
    for (size_t i = 0; i < mesh->n_vertices; i++) {
        float *n = normals + 3 * i;
        double length = sqrt((double)n[0] * n[0] + (double)n[1] * n[1] + (double)n[2] * n[2]);
        for (int k = 0; k < 3; k++)
            n[k] = length > 0 ? (float)(n[k] / length) : 0;
    }
}

/* ---- into the picture ----------------------------------------------------------------------- */

/* Light from the upper left of the eye, a weaker one from the right, one from the eye, and some
 * from everywhere: no side is so dark that its shape is lost. side: 1, or -1 for the normal's back.
 */
static float find_light(const float normal[3], float side)
{
    static const float key[3] = {-0.40f, -0.58f, -0.71f}, fill[3] = {0.80f, 0.05f, -0.60f};
    float a = side * (key[0] * normal[0] + key[1] * normal[1] + key[2] * normal[2]);
    float b = side * (fill[0] * normal[0] + fill[1] * normal[1] + fill[2] * normal[2]);
    float c = side * -normal[2];
    return 0.40f + 0.50f * fmaxf(a, 0) + 0.16f * fmaxf(b, 0) + 0.22f * fmaxf(c, 0);
}

static void project(vertex *out, const tap_mesh *mesh, const float *normals, const tap_lens *lens)
{
    for (size_t i = 0; i < mesh->n_vertices; i++, out++) {
        double at[3];
        for (int k = 0; k < 3; k++) {
            at[k] = (double)mesh->vertices[3 * i + k] + mesh->translation[k];
            out->place[k] = (float)at[k];
        }
        out->light[0] = find_light(normals + 3 * i, 1);
        out->light[1] = find_light(normals + 3 * i, -1);
        out->nearness = 0;
        if (!(at[2] >= nearest) || !isfinite(at[2]))
            continue;
        out->x = lens->fx * at[0] / at[2] + lens->cx;
        out->y = lens->fy * at[1] / at[2] + lens->cy;
        if (isfinite(out->x) && isfinite(out->y))
            out->nearness = (float)(1 / at[2]);
    }
}

static void widen(extent *e, double value)
{
    e->low = value < e->low ? value : e->low;
    e->high = value > e->high ? value : e->high;
}

/* Which samples of a tile's axis of n pixels from `start` lie in an extent: from..to - 1. */
static void find_samples(extent e, uint32_t start, uint32_t n, size_t *from, size_t *to)
{
    double low = (e.low - start + 0.5) * SAMPLES - 0.5,
           high = (e.high - start + 0.5) * SAMPLES - 0.5;
    double last = (double)n * SAMPLES - 1;
    *from = low > 0 ? (size_t)ceil(fmin(low, last + 1)) : 0;
    *to = high < 0 ? 0 : (size_t)floor(fmin(high, last)) + 1;
}

static double sample_at(uint32_t start, size_t i)
{
    return start - 0.5 + ((double)i + 0.5) / SAMPLES;
}

/* Whether the eye sees the triangle's outside. */
static bool is_front(const vertex *a, const vertex *b, const vertex *c)
{
    double u[3], v[3];
    for (int k = 0; k < 3; k++) {
        u[k] = (double)b->place[k] - a->place[k];
        v[k] = (double)c->place[k] - a->place[k];
    }
    return (u[1] * v[2] - u[2] * v[1]) * a->place[0] + (u[2] * v[0] - u[0] * v[2]) * a->place[1] +
               (u[0] * v[1] - u[1] * v[0]) * a->place[2] <
           0;
}

static void fill_triangle(tile *t, const vertex *a, const vertex *b, const vertex *c,
                          tap_color color)
{
    extent across = {a->x, a->x}, down = {a->y, a->y};
    widen(&across, b->x), widen(&across, c->x);
    widen(&down, b->y), widen(&down, c->y);
    size_t x_from, x_to, y_from, y_to;
    find_samples(across, t->x, t->width, &x_from, &x_to);
    find_samples(down, t->y, t->height, &y_from, &y_to);
    double ux = b->x - a->x, uy = b->y - a->y, vx = c->x - a->x, vy = c->y - a->y;
    double area = ux * vy - vx * uy;
    if (x_from >= x_to || y_from >= y_to || area == 0 || !isfinite(1 / area))
        return;
    const int side = is_front(a, b, c) ? 0 : 1;
    const float alpha = fminf(fmaxf(color.alpha, 0), 1) * 255 + 0.5f;
    const double over = 1 / area;
    for (size_t row = y_from; row < y_to; row++) {
        double dy = sample_at(t->y, row) - a->y;
        for (size_t column = x_from; column < x_to; column++) {
            double dx = sample_at(t->x, column) - a->x;
            double wb = (dx * vy - vx * dy) * over, wc = (ux * dy - dx * uy) * over;
            double wa = 1 - wb - wc;
            if (wa < 0 || wb < 0 || wc < 0)
                continue;
            sample *at = &t->samples[row][column];
            float pa = (float)wa, pb = (float)wb, pc = (float)wc;
            float nearness = pa * a->nearness + pb * b->nearness + pc * c->nearness;
            if (!(nearness > at->nearness))
                continue;
            float light = pa * a->light[side] + pb * b->light[side] + pc * c->light[side];
            at->nearness = nearness;
            at->color[0] = (uint8_t)fminf(color.r * light + 0.5f, 255);
            at->color[1] = (uint8_t)fminf(color.g * light + 0.5f, 255);
            at->color[2] = (uint8_t)fminf(color.b * light + 0.5f, 255);
            at->alpha = (uint8_t)alpha;
        }
    }
}

/* Mixes the tile's samples into its pixels. */
static void resolve(tap_pixels *pixels, const tile *t)
{
    enum { FULL = SAMPLES * SAMPLES * 255 };
    for (uint32_t y = 0; y < t->height; y++)
        for (uint32_t x = 0; x < t->width; x++) {
            uint32_t sum[3] = {0, 0, 0}, cover = 0;
            for (size_t i = 0; i < (size_t)SAMPLES * SAMPLES; i++) {
                const sample *s = &t->samples[y * SAMPLES + i / SAMPLES][x * SAMPLES + i % SAMPLES];
                if (!(s->nearness > 0))
                    continue;
                for (int k = 0; k < 3; k++)
                    sum[k] += (uint32_t)s->color[k] * s->alpha;
                cover += s->alpha;
            }
            if (cover == 0)
                continue;
            uint8_t *to = pixels->data + (((size_t)t->y + y) * pixels->width + t->x + x) * 3;
            for (int k = 0; k < 3; k++)
                to[k] = (uint8_t)((to[k] * (FULL - cover) + sum[k] + FULL / 2) / FULL);
        }
}

/* ---- a scene --------------------------------------------------------------------------------- */

/* The meshes' vertices one after another, and where each mesh lies in the picture. */
typedef struct scene {
    const tap_mesh *meshes;
    size_t n;
    vertex *vertices;
    extent *across, *down; /* [n] */
    extent all_across, all_down;
    tile *tile;
} scene;

static const extent nowhere = {DBL_MAX, -DBL_MAX};

static bool meets(extent e, double low, double high)
{
    return e.low <= high && e.high >= low;
}

static void draw_tile(const scene *s)
{
    tile *t = s->tile;
    memset(t->samples, 0, sizeof t->samples);
    const double left = t->x - 0.5, right = left + t->width;
    const double top = t->y - 0.5, bottom = top + t->height;
    const vertex *vertices = s->vertices;
    for (size_t m = 0; m < s->n; vertices += s->meshes[m].n_vertices, m++) {
        const tap_mesh *mesh = &s->meshes[m];
        if (!meets(s->across[m], left, right) || !meets(s->down[m], top, bottom))
            continue;
        for (size_t f = 0; f < mesh->n_faces; f++) {
            const vertex *a = vertices + mesh->faces[3 * f];
            const vertex *b = vertices + mesh->faces[3 * f + 1];
            const vertex *c = vertices + mesh->faces[3 * f + 2];
            if (a->nearness > 0 && b->nearness > 0 && c->nearness > 0)
                fill_triangle(t, a, b, c, mesh->color);
        }
    }
}

/* The first pixel, a multiple of TILE, and the end of an extent in an axis of n pixels. */
static void find_tiles(extent e, uint32_t n, uint32_t *from, uint32_t *to)
{
    *from = e.low > 0 ? (uint32_t)fmin(e.low, n) / TILE * TILE : 0;
    *to = e.high > -1 ? (uint32_t)fmin(e.high + 2, n) : 0;
}

static void draw_tiles(tap_pixels *pixels, const scene *s)
{
    uint32_t x_from, x_to, y_from, y_to;
    find_tiles(s->all_across, pixels->width, &x_from, &x_to);
    find_tiles(s->all_down, pixels->height, &y_from, &y_to);
    tile *t = s->tile;
    for (t->y = y_from; t->y < y_to; t->y += TILE) {
        t->height = y_to - t->y < TILE ? y_to - t->y : TILE;
        for (t->x = x_from; t->x < x_to; t->x += TILE) {
            t->width = x_to - t->x < TILE ? x_to - t->x : TILE;
            draw_tile(s);
            resolve(pixels, t);
        }
    }
}

static void place(scene *s, float *normals, const tap_lens *lens)
{
    vertex *vertices = s->vertices;
    s->all_across = s->all_down = nowhere;
    for (size_t m = 0; m < s->n; vertices += s->meshes[m].n_vertices, m++) {
        tap_mesh_normals(normals, &s->meshes[m]);
        project(vertices, &s->meshes[m], normals, lens);
        s->across[m] = s->down[m] = nowhere;
        for (size_t i = 0; i < s->meshes[m].n_vertices; i++)
            if (vertices[i].nearness > 0) {
                widen(&s->across[m], vertices[i].x);
                widen(&s->down[m], vertices[i].y);
            }
        if (s->across[m].low <= s->across[m].high) {
            widen(&s->all_across, s->across[m].low), widen(&s->all_across, s->across[m].high);
            widen(&s->all_down, s->down[m].low), widen(&s->all_down, s->down[m].high);
        }
    }
}

tap_status tap_draw_meshes(tap_pixels *pixels, const tap_mesh *meshes, size_t n,
                           const tap_lens *lens, tap_error *err)
{
    size_t total = 0, most = 0;
    if (!isfinite(lens->fx) || !isfinite(lens->fy) || !isfinite(lens->cx) || !isfinite(lens->cy))
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "the camera's focal length and centre must be "
                        "finite");
    for (size_t m = 0; m < n; m++) {
        TAP_TRY(tap_mesh_check(&meshes[m], m + 1, err));
        if (!tap_size_add(total, meshes[m].n_vertices, &total))
            return tap_fail(err, TAP_ERR_LIMIT, "too many vertices to draw");
        most = meshes[m].n_vertices > most ? meshes[m].n_vertices : most;
    }
    scene s = {.meshes = meshes, .n = n};
    s.vertices = tap_alloc(total, sizeof *s.vertices);
    s.across = tap_alloc(n, sizeof *s.across);
    s.down = tap_alloc(n, sizeof *s.down);
    s.tile = tap_alloc(1, sizeof *s.tile);
    float *normals = tap_alloc(most, 3 * sizeof *normals);
    bool enough = s.vertices && s.across && s.down && s.tile && normals;
    if (enough) {
        place(&s, normals, lens);
        draw_tiles(pixels, &s);
    }
    free(normals), free(s.tile), free(s.down), free(s.across), free(s.vertices);
    return enough ? TAP_OK : tap_fail(err, TAP_ERR_MEMORY, "no memory to draw %zu meshes", n);
}
