#include "models.h"

#include <math.h>

enum { LANES = 16 }; /* independent sums, so that the compiler may use vectors */

/* One coordinate in network pixels to a position among n cells. The steps and the 8n - 4.5 are
 * those of the class that defined the weights' use (docs/superpoint.md, "Sampling"); in float32,
 * as there. */
static float cell_position(float pixel, size_t n)
{
    const float cell = TAP_SUPERPOINT_CELL;
    float unit = (pixel - 3.5f) / ((float)n * cell - 4.5f);
    float grid = unit * 2 - 1;
    return (grid + 1) / 2 * (float)(n - 1);
}

/* The two cells around a position and their weights; a cell outside weighs nothing. */
static void neighbours(float position, size_t n, size_t cell[2], float weight[2])
{
    cell[0] = cell[1] = 0;
    weight[0] = weight[1] = 0;
    if (!(position > -1 && position < (float)n)) /* NaN too */
        return;
    float low = floorf(position), fraction = position - low;
    if (low >= 0) {
        cell[0] = (size_t)low;
        weight[0] = 1 - fraction;
    }
    if (low + 1 < (float)n) {
        cell[1] = (size_t)(low + 1);
        weight[1] = fraction;
    }
}

static void blend(float *restrict out, const float *const corner[4], const float weight[4],
                  size_t dim)
{
    const float *a = corner[0], *b = corner[1], *c = corner[2], *d = corner[3];
    for (size_t i = 0; i < dim; i++)
        out[i] = a[i] * weight[0] + b[i] * weight[1] + c[i] * weight[2] + d[i] * weight[3];
}

static void scale_to_unit(float *v, size_t dim)
{
    float lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= dim; i += LANES)
        for (size_t lane = 0; lane < LANES; lane++)
            lanes[lane] += v[i + lane] * v[i + lane];
    for (; i < dim; i++)
        lanes[0] += v[i] * v[i];
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t lane = 0; lane < half; lane++)
            lanes[lane] += lanes[lane + half];
    float length = sqrtf(lanes[0]);
    float inverse = 1 / (length > 1e-12f ? length : 1e-12f);
    for (i = 0; i < dim; i++)
        v[i] *= inverse;
}

void tap_descriptors_sample(float *out, const float *xy, size_t n, const float *map,
                            size_t map_width, size_t map_height, size_t dim)
{
    for (size_t i = 0; i < n; i++) {
        size_t column[2], row[2];
        float across[2], down[2], weight[4];
        const float *corner[4];
        neighbours(cell_position(xy[2 * i], map_width), map_width, column, across);
        neighbours(cell_position(xy[2 * i + 1], map_height), map_height, row, down);
        for (size_t k = 0; k < 4; k++) {
            corner[k] = map + (row[k / 2] * map_width + column[k % 2]) * dim;
            weight[k] = down[k / 2] * across[k % 2];
        }
        blend(out + i * dim, corner, weight, dim);
        scale_to_unit(out + i * dim, dim);
    }
}
