/* draw: discs, rings and lines on RGB pixels. A shape is a signed distance; a pixel is covered by
 * 0.5 - distance of its centre, cut to 0..1. Work is bounded by the picture, whatever the
 * coordinates: shapes that are not finite draw nothing. */
#include "image.h"

#include <math.h>
#include <string.h>

/* Dark violet to bright yellow; luma rises all the way (35, 65, 98, 149, 224), so that order is
 * seen without colours. */
tap_color tap_color_map(float t)
{
    static const uint8_t stops[5][3] = {
        {48, 18, 92}, {110, 28, 140}, {190, 48, 112}, {240, 120, 60}, {252, 236, 92}};
    if (!(t > 0))
        t = 0;
    else if (t > 1)
        t = 1;
    int i = t < 1 ? (int)(t * 4) : 3;
    float u = t * 4 - (float)i;
    uint8_t mixed[3];
    for (int c = 0; c < 3; c++)
        mixed[c] = (uint8_t)lrintf((1 - u) * stops[i][c] + u * stops[i + 1][c]);
    return (tap_color){mixed[0], mixed[1], mixed[2], 1.0f};
}

static void blend(tap_pixels *pixels, size_t x, size_t y, tap_color color, double coverage)
{
    if (!(coverage > 0))
        return;
    double alpha = (coverage < 1 ? coverage : 1) * color.alpha;
    uint8_t *at = pixels->data + (y * pixels->width + x) * 3;
    const uint8_t to[3] = {color.r, color.g, color.b};
    for (int c = 0; c < 3; c++)
        at[c] = (uint8_t)lrint(at[c] + (to[c] - at[c]) * alpha);
}

/* Whole numbers from..to-1 that are in [low, high] and in [0, n). */
typedef struct range {
    size_t from, to;
} range;

static range clip(double low, double high, uint32_t n)
{
    if (!(high >= 0) || !(low <= (double)n - 1) || !(low <= high))
        return (range){0, 0};
    return (range){low > 0 ? (size_t)ceil(low) : 0,
                   high < (double)n - 1 ? (size_t)floor(high) + 1 : n};
}

/* A colour to draw with: finite alpha, within 0..1. */
static bool fix_color(tap_color *color)
{
    if (!(color->alpha > 0))
        return false;
    if (color->alpha > 1)
        color->alpha = 1;
    return true;
}

/* A ring between radius - half and radius + half; a disc is one around radius 0. */
static void draw_round(tap_pixels *pixels, double x, double y, double radius, double half,
                       tap_color color)
{
    double reach = radius + half + 0.5;
    if (!isfinite(x) || !isfinite(y) || !isfinite(reach) || radius < 0 || half <= 0 ||
        !fix_color(&color))
        return;
    range rows = clip(y - reach, y + reach, pixels->height);
    range columns = clip(x - reach, x + reach, pixels->width);
    for (size_t row = rows.from; row < rows.to; row++)
        for (size_t column = columns.from; column < columns.to; column++) {
            double distance = hypot((double)column - x, (double)row - y);
            blend(pixels, column, row, color, half + 0.5 - fabs(distance - radius));
        }
}

void tap_draw_disc(tap_pixels *pixels, float x, float y, float radius, tap_color color)
{
    draw_round(pixels, x, y, 0, radius, color);
}

void tap_draw_ring(tap_pixels *pixels, float x, float y, float radius, float width, tap_color color)
{
    draw_round(pixels, x, y, radius, 0.5 * width, color);
}

typedef struct segment {
    double x, y, dx, dy, length2;
} segment;

static double distance_to(const segment *s, double x, double y)
{
    double px = x - s->x, py = y - s->y;
    double t = s->length2 > 0 ? (px * s->dx + py * s->dy) / s->length2 : 0;
    t = t > 0 ? (t < 1 ? t : 1) : 0;
    return hypot(px - t * s->dx, py - t * s->dy);
}

/* Walks along the longer axis and looks only at the pixels across the line there: at slope <= 1
 * these are within sqrt(2) times its half width. */
void tap_draw_line(tap_pixels *pixels, float x0, float y0, float x1, float y1, float width,
                   tap_color color)
{
    double half = 0.5 * width;
    segment s = {x0, y0, (double)x1 - x0, (double)y1 - y0, 0};
    s.length2 = s.dx * s.dx + s.dy * s.dy;
    if (!isfinite(s.length2) || !isfinite(half) || half <= 0 || !fix_color(&color))
        return;
    bool steep = fabs(s.dy) > fabs(s.dx);
    double start = steep ? s.y : s.x, along = steep ? s.dy : s.dx;
    double side = steep ? s.x : s.y, across = steep ? s.dx : s.dy;
    double slope = along != 0 ? across / along : 0, reach = half + 0.5;
    double spread = reach * 1.4143;
    range steps = clip(fmin(start, start + along) - reach, fmax(start, start + along) + reach,
                       steep ? pixels->height : pixels->width);
    for (size_t i = steps.from; i < steps.to; i++) {
        double centre = side + ((double)i - start) * slope;
        range span = clip(centre - spread, centre + spread, steep ? pixels->width : pixels->height);
        for (size_t j = span.from; j < span.to; j++) {
            size_t x = steep ? j : i, y = steep ? i : j;
            blend(pixels, x, y, color, reach - distance_to(&s, (double)x, (double)y));
        }
    }
}

void tap_draw_paste(tap_pixels *dst, const tap_pixels *src, uint32_t x, uint32_t y)
{
    for (uint32_t row = 0; row < src->height; row++)
        memcpy(dst->data + (((size_t)y + row) * dst->width + x) * 3,
               src->data + (size_t)row * src->width * 3, (size_t)src->width * 3);
}
