/* image: bytes to pixels and back. Decodes JPEG, PNG and WebP as PIL's convert("RGB") does,
 * resamples as Pillow does to the bit, draws, encodes. Knows no network. */
#ifndef TAP_IMAGE_H
#define TAP_IMAGE_H

#include "core/core.h"

/* Owned pixels: 1 channel (grey) or 3 (RGB), rows dense. */
typedef struct tap_pixels {
    uint8_t *data; /* [height][width][channels], from tap_alloc */
    uint32_t width, height, channels;
    int exif_orientation; /* as found in the file: 1..8 */
    bool exif_applied;    /* turned upright (only if asked, and the orientation was not 1) */
} tap_pixels;

/* JPEG, PNG or WebP by content, as PIL's convert("RGB") gives them; grey stays one channel. pixels
 * need not be initialised; it owns memory only after TAP_OK. The pixel limit is checked from the
 * header, before memory is taken.
 * Conventions  alpha and tRNS dropped; 16 bits keep the high byte, grey too; an index past the
 *              palette is a grey of that value; four-channel JPEGs are taken for inverted (Adobe),
 *              RGB = K - (255 - C) K / 255; a WebP animation gives its first frame.
 * Errors       TAP_ERR_FORMAT: cut or damaged anywhere, even where other readers fill in grey: a
 *              JPEG without its end marker or with bad codes, a PNG without IEND or with a wrong
 *              CRC in a chunk that makes pixels. TAP_ERR_LIMIT: pixels; 64 to 500 JPEG scans,
 *              fewer for larger pictures. TAP_ERR_UNSUPPORTED: GIF, TIFF and such by name;
 *              12-bit, lossless and two-channel JPEG; WebP if built without. TAP_ERR_MEMORY. */
tap_status tap_pixels_decode(tap_pixels *pixels, const uint8_t *bytes, size_t n_bytes,
                             tap_exif exif, uint64_t max_pixels, tap_error *err);
void tap_pixels_free(tap_pixels *pixels);

/* Turns the pixels upright from an EXIF orientation, 1..8; 5..8 swap the sides. */
tap_status tap_pixels_turn(tap_pixels *pixels, int orientation, tap_error *err);

/* The EXIF orientation in a JPEG's, PNG's or WebP's bytes: 1..8; 1 if absent, damaged or outside
 * 1..8. Bounded reads, no allocation. */
int tap_exif_orientation(const uint8_t *bytes, size_t n_bytes);

/* Checks a caller's image: NULL, zero sides, unknown format, a stride that is shorter than a row,
 * sizes that overflow. *bytes_per_pixel is filled; stride 0 is resolved into *stride. */
tap_status tap_image_check(const tap_image *image, size_t *bytes_per_pixel, ptrdiff_t *stride,
                           tap_error *err);

/* One 8-bit plane out of an image: its red channel (or grey), or PIL's luma,
 * (19595 R + 38470 G + 7471 B + 32768) >> 16. dst is dense [height][width] of the image, or of its
 * top left crop_width x crop_height. */
void tap_image_plane(uint8_t *dst, const tap_image *image, tap_gray gray, uint32_t crop_width,
                     uint32_t crop_height);

/* Scratch that tap_resize_bilinear needs for these sizes; false on overflow. */
bool tap_resize_scratch_bytes(uint32_t src_width, uint32_t src_height, uint32_t dst_width,
                              uint32_t dst_height, size_t *bytes);

/* Pillow's resize(..., BILINEAR) on an 8-bit plane, bit for bit: a triangle filter stretched when
 * shrinking, 22-bit weights, horizontal pass first with an 8-bit result
 * (docs/formats.md, "Resizing"). Planes are dense; src and dst do not overlap; scratch is
 * TAP_ALIGN-aligned. Allocates nothing. */
void tap_resize_bilinear(uint8_t *dst, uint32_t dst_width, uint32_t dst_height, const uint8_t *src,
                         uint32_t src_width, uint32_t src_height, void *scratch);

/* The same without this CPU's vector instructions, for tests: the bytes are equal. */
void tap_resize_bilinear_portable(uint8_t *dst, uint32_t dst_width, uint32_t dst_height,
                                  const uint8_t *src, uint32_t src_width, uint32_t src_height,
                                  void *scratch);

/* ---- drawing: on RGB pixels, clipped, anti-aliased ---------------------------------------- */

typedef struct tap_color {
    uint8_t r, g, b;
    float alpha; /* 0..1 */
} tap_color;

/* 0 -> dark violet ... 1 -> bright yellow, evenly readable, distinguishable without colour sight.
 */
tap_color tap_color_map(float t);
tap_status tap_pixels_make_rgb(tap_pixels *pixels, tap_error *err);
tap_status tap_pixels_create(tap_pixels *pixels, uint32_t width, uint32_t height, uint32_t channels,
                             tap_error *err);
/* Copies src's top left into dst at (x, y), which must fit; both RGB. */
void tap_draw_paste(tap_pixels *dst, const tap_pixels *src, uint32_t x, uint32_t y);
/* Pixel centres are whole numbers. */
void tap_draw_disc(tap_pixels *pixels, float x, float y, float radius, tap_color color);
void tap_draw_ring(tap_pixels *pixels, float x, float y, float radius, float width,
                   tap_color color);
void tap_draw_line(tap_pixels *pixels, float x0, float y0, float x1, float y1, float width,
                   tap_color color);

/* ---- encoding ---------------------------------------------------------------------------- */

/* *bytes is released with free(). RGB or grey. */
tap_status tap_pixels_encode_png(const tap_pixels *pixels, uint8_t **bytes, size_t *n_bytes,
                                 tap_error *err);
tap_status tap_pixels_encode_jpeg(const tap_pixels *pixels, int quality, uint8_t **bytes,
                                  size_t *n_bytes, tap_error *err);

#include "crop.h"
#include "mesh.h"

#endif
