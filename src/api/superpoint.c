/* SuperPoint from pixels to a result. */
#include "api.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SIDE = 8192, MAX_RADIUS = 32, MAX_FILE_BYTES = 1 << 30 };

/* ---- options ------------------------------------------------------------------------------- */

void tap_superpoint_options_init(tap_superpoint_options *options)
{
    *options = (tap_superpoint_options){.size = sizeof *options,
                                        .width = 640,
                                        .height = 480,
                                        .max_keypoints = 1024,
                                        .keypoint_threshold = 0.005f,
                                        .nms_radius = 4,
                                        .border = 4,
                                        .descriptors = true,
                                        .max_pixels = 64000000};
}

static tap_status check_size(const char *name, uint32_t side, tap_error *err)
{
    if (side < TAP_SUPERPOINT_CELL || side > MAX_SIDE || side % TAP_SUPERPOINT_CELL != 0)
        return tap_fail(err, TAP_ERR_ARGUMENT, "%s %u: must be a multiple of 8 in 8..%d", name,
                        side, MAX_SIDE);
    return TAP_OK;
}

/* Reads and checks the caller's options. */
static tap_status read_options(tap_superpoint_options *own, const tap_session *session,
                               const tap_superpoint_options *options, tap_error *err)
{
    tap_superpoint_options_init(own);
    TAP_TRY(tap_session_check(session, TAP_KIND_SUPERPOINT, err));
    if (!tap_options_read(own, sizeof *own, options))
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "tap_superpoint_options: size is not set; use "
                        "tap_superpoint_options_init");
    if (!own->native) {
        TAP_TRY(check_size("width", own->width, err));
        TAP_TRY(check_size("height", own->height, err));
    }
    if (own->max_keypoints < -1)
        return tap_fail(err, TAP_ERR_ARGUMENT, "max_keypoints %d: must be -1 (all) or more",
                        own->max_keypoints);
    if (!(own->keypoint_threshold >= 0 && own->keypoint_threshold <= 1))
        return tap_fail(err, TAP_ERR_ARGUMENT, "keypoint_threshold %g: must be in [0, 1]",
                        (double)own->keypoint_threshold);
    if (own->nms_radius > MAX_RADIUS)
        return tap_fail(err, TAP_ERR_ARGUMENT, "nms_radius %u: must be in 0..%d", own->nms_radius,
                        MAX_RADIUS);
    if (own->nms != TAP_NMS_SINGLE && own->nms != TAP_NMS_ITERATIVE)
        return tap_fail(err, TAP_ERR_ARGUMENT, "nms %d: no such kind", (int)own->nms);
    if (own->gray != TAP_GRAY_FIRST && own->gray != TAP_GRAY_LUMA)
        return tap_fail(err, TAP_ERR_ARGUMENT, "gray %d: no such kind", (int)own->gray);
    if (own->coordinates != TAP_COORDINATES_RATIO && own->coordinates != TAP_COORDINATES_CENTRES)
        return tap_fail(err, TAP_ERR_ARGUMENT, "coordinates %d: no such kind",
                        (int)own->coordinates);
    if (own->exif != TAP_EXIF_IGNORE && own->exif != TAP_EXIF_APPLY)
        return tap_fail(err, TAP_ERR_ARGUMENT, "exif %d: no such kind", (int)own->exif);
    if (own->descriptors && tap_superpoint_descriptor_dim(session->model->superpoint) == 0)
        return tap_fail(err, TAP_ERR_UNSUPPORTED,
                        "descriptors: %s is a detector without a descriptor head; ask for points "
                        "only, or load weights that have one",
                        session->model->path);
    return TAP_OK;
}

/* ---- the network --------------------------------------------------------------------------- */

/* The program for this size; compiled again only when the size changes. */
static tap_status get_program(tap_compiled **out, tap_session *session, size_t width, size_t height,
                              bool descriptors, tap_error *err)
{
    tap_compiled *compiled = &session->points.compiled[descriptors];
    const tap_model *model = session->model;
    const tap_backend *backend = model->engine->backend;
    *out = compiled;
    if (compiled->program != NULL && compiled->width == width && compiled->height == height)
        return TAP_OK;
    if (compiled->program != NULL)
        backend->free_program(compiled->program);
    compiled->program = NULL;
    tap_plan *plan = NULL;
    const tap_compile_options options = {.share = model->base};
    TAP_TRY(tap_superpoint_plan(model->superpoint, width, height, descriptors, &plan, err));
    tap_status status =
        backend->compile(model->engine->state, plan, &options, &compiled->program, err);
    tap_plan_free(plan);
    if (status != TAP_OK)
        return status;
    tap_program_info info;
    backend->inspect(compiled->program, &info);
    compiled->width = width;
    compiled->height = height;
    compiled->scratch_bytes = info.scratch_bytes;
    return TAP_OK;
}

/* The image's one channel at the network's size, over 255, into session->input. */
static tap_status prepare_input(tap_session *session, const tap_image *image,
                                const tap_superpoint_options *options, uint32_t width,
                                uint32_t height, tap_error *err)
{
    uint32_t from_width = options->native ? width : image->width;
    uint32_t from_height = options->native ? height : image->height;
    size_t n = (size_t)width * height, bytes;
    TAP_TRY(tap_growing_reserve(&session->points.plane, from_width, from_height, "plane", err));
    TAP_TRY(tap_growing_reserve(&session->input, n, sizeof(float), "network input", err));
    tap_image_plane(session->points.plane.data, image, options->gray, from_width, from_height);
    const uint8_t *pixels = session->points.plane.data;
    if (from_width != width || from_height != height) {
        if (!tap_resize_scratch_bytes(from_width, from_height, width, height, &bytes))
            return tap_fail(err, TAP_ERR_LIMIT, "resizing %ux%u: too large", from_width,
                            from_height);
        TAP_TRY(tap_growing_reserve(&session->points.resize_scratch, bytes, 1, "resizing", err));
        TAP_TRY(tap_growing_reserve(&session->points.resized, n, 1, "resized plane", err));
        tap_resize_bilinear(session->points.resized.data, width, height, pixels, from_width,
                            from_height, session->points.resize_scratch.data);
        pixels = session->points.resized.data;
    }
    float *input = session->input.data;
    for (size_t i = 0; i < n; i++)
        input[i] = (float)pixels[i] / 255.0f;
    return TAP_OK;
}

/* Scores, and the descriptor map if asked for, into the session. */
static tap_status run_network(tap_session *session, size_t width, size_t height, bool descriptors,
                              tap_error *err)
{
    tap_compiled *compiled;
    size_t dim = tap_superpoint_descriptor_dim(session->model->superpoint);
    size_t cells = width / TAP_SUPERPOINT_CELL * (height / TAP_SUPERPOINT_CELL);
    TAP_TRY(get_program(&compiled, session, width, height, descriptors, err));
    TAP_TRY(tap_growing_reserve(&session->scratch, compiled->scratch_bytes, 1, "the network", err));
    TAP_TRY(
        tap_growing_reserve(&session->points.scores, width * height, sizeof(float), "scores", err));
    if (descriptors)
        TAP_TRY(tap_growing_reserve(&session->points.map, cells * dim, sizeof(float),
                                    "descriptor map", err));
    const float *inputs[] = {session->input.data};
    float *outputs[] = {session->points.scores.data, session->points.map.data};
    const tap_backend *backend = session->model->engine->backend;
    TAP_TRY(backend->run(compiled->program, session->scratch.data, inputs, outputs, NULL, err));
    const float *scores = session->points.scores.data;
    float sum = 0;
    for (size_t i = 0; i < width * height; i++)
        sum += scores[i]; /* NaN and infinity survive a sum of values in [0, 1] */
    if (!isfinite(sum))
        return tap_fail(err, TAP_ERR_INTERNAL,
                        "%s: the network's scores are not finite; its weights overflow",
                        session->model->path);
    return TAP_OK;
}

/* ---- the result ---------------------------------------------------------------------------- */

tap_status tap_keypoints_create(tap_keypoints **keypoints, tap_error *err)
{
    *keypoints = calloc(1, sizeof **keypoints);
    if (*keypoints == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a result");
    return TAP_OK;
}

void tap_keypoints_free(tap_keypoints *keypoints)
{
    if (keypoints == NULL)
        return;
    free(keypoints->xy);
    free(keypoints->scores);
    free(keypoints->descriptors);
    free(keypoints);
}

tap_status tap_keypoints_get(const tap_keypoints *keypoints, tap_keypoints_view *view)
{
    size_t size = view->size;
    if (size < sizeof size || size > sizeof *view)
        return TAP_ERR_ARGUMENT;
    memcpy(view, &keypoints->view, size);
    view->size = size;
    return TAP_OK;
}

static tap_status reserve_points(tap_keypoints *keypoints, size_t n, size_t dim, tap_error *err)
{
    size_t n_values;
    if (n > keypoints->capacity) {
        free(keypoints->xy);
        free(keypoints->scores);
        keypoints->xy = tap_alloc(n * 2, sizeof(float));
        keypoints->scores = tap_alloc(n, sizeof(float));
        keypoints->capacity = keypoints->xy != NULL && keypoints->scores != NULL ? n : 0;
        if (keypoints->capacity == 0)
            return tap_fail(err, TAP_ERR_MEMORY, "out of memory for %zu points", n);
    }
    if (!tap_size_mul(n, dim, &n_values))
        return tap_fail(err, TAP_ERR_LIMIT, "%zu descriptors: too many", n);
    if (n_values > keypoints->descriptor_capacity) {
        free(keypoints->descriptors);
        keypoints->descriptors = tap_alloc(n_values, sizeof(float));
        keypoints->descriptor_capacity = keypoints->descriptors != NULL ? n_values : 0;
        if (keypoints->descriptor_capacity == 0)
            return tap_fail(err, TAP_ERR_MEMORY, "out of memory for %zu descriptors", n);
    }
    return TAP_OK;
}

/* From score map to the result's arrays; xy in network pixels until map_coordinates. */
static tap_status extract(tap_session *session, tap_keypoints *keypoints, size_t width,
                          size_t height, const tap_superpoint_options *options, tap_error *err)
{
    size_t bytes, n;
    size_t dim =
        options->descriptors ? tap_superpoint_descriptor_dim(session->model->superpoint) : 0;
    if (!tap_points_scratch_bytes(width, height, &bytes))
        return tap_fail(err, TAP_ERR_LIMIT, "%zux%zu: too large", width, height);
    TAP_TRY(
        tap_growing_reserve(&session->points.select_scratch, bytes, 1, "selecting points", err));
    const tap_point *points;
    tap_points_select(&points, &n, session->points.scores.data, width, height, options,
                      session->points.select_scratch.data);
    TAP_TRY(reserve_points(keypoints, n, dim, err));
    for (size_t i = 0; i < n; i++) {
        keypoints->xy[2 * i] = (float)points[i].x;
        keypoints->xy[2 * i + 1] = (float)points[i].y;
        keypoints->scores[i] = points[i].score;
    }
    if (dim > 0)
        tap_descriptors_sample(keypoints->descriptors, keypoints->xy, n, session->points.map.data,
                               width / TAP_SUPERPOINT_CELL, height / TAP_SUPERPOINT_CELL, dim);
    keypoints->view.count = n;
    keypoints->view.xy = keypoints->xy;
    keypoints->view.scores = keypoints->scores;
    keypoints->view.descriptors = dim > 0 ? keypoints->descriptors : NULL;
    keypoints->view.descriptor_dim = (uint32_t)dim;
    return TAP_OK;
}

/* Network pixels to the original picture's. */
static void map_coordinates(tap_keypoints *keypoints, tap_coordinates coordinates)
{
    const tap_keypoints_view *view = &keypoints->view;
    double shift = coordinates == TAP_COORDINATES_CENTRES ? 0.5 : 0;
    for (size_t i = 0; i < view->count; i++) {
        float *xy = keypoints->xy + 2 * i;
        xy[0] = (float)((xy[0] + shift) * view->scale_x - shift);
        xy[1] = (float)((xy[1] + shift) * view->scale_y - shift);
    }
}

/* ---- the calls ----------------------------------------------------------------------------- */

/* The network's size for this image. */
static tap_status input_size(const tap_image *image, const tap_superpoint_options *options,
                             uint32_t *width, uint32_t *height, tap_error *err)
{
    *width = options->width;
    *height = options->height;
    if (!options->native)
        return TAP_OK;
    if (image->width < TAP_SUPERPOINT_CELL || image->height < TAP_SUPERPOINT_CELL)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "native size: the picture is %ux%u and must be at least 8x8; give a size",
                        image->width, image->height);
    *width = image->width / TAP_SUPERPOINT_CELL * TAP_SUPERPOINT_CELL;
    *height = image->height / TAP_SUPERPOINT_CELL * TAP_SUPERPOINT_CELL;
    if (*width > MAX_SIDE || *height > MAX_SIDE)
        return tap_fail(err, TAP_ERR_LIMIT,
                        "native size: the picture is %ux%u, over %d; give a size", image->width,
                        image->height, MAX_SIDE);
    return TAP_OK;
}

static tap_status detect(tap_session *session, const tap_image *image,
                         const tap_superpoint_options *options, tap_keypoints *keypoints,
                         tap_error *err)
{
    tap_keypoints_view *view = &keypoints->view;
    double start = tap_clock_ms();
    TAP_TRY(input_size(image, options, &view->input_width, &view->input_height, err));
    uint32_t width = view->input_width, height = view->input_height;
    view->original_width = image->width;
    view->original_height = image->height;
    view->scale_x = options->native ? 1 : (double)image->width / width;
    view->scale_y = options->native ? 1 : (double)image->height / height;
    TAP_TRY(prepare_input(session, image, options, width, height, err));
    double prepared = tap_clock_ms();
    TAP_TRY(run_network(session, width, height, options->descriptors, err));
    double ran = tap_clock_ms();
    TAP_TRY(extract(session, keypoints, width, height, options, err));
    map_coordinates(keypoints, options->coordinates);
    double end = tap_clock_ms();
    view->preprocess_ms = prepared - start;
    view->forward_ms = ran - prepared;
    view->postprocess_ms = end - ran;
    view->total_ms = view->decode_ms + end - start;
    return TAP_OK;
}

/* Whatever failed, the result is empty, never the previous picture's. */
static tap_status finish(tap_status status, tap_keypoints *keypoints)
{
    if (status != TAP_OK)
        keypoints->view = (tap_keypoints_view){.size = sizeof keypoints->view};
    return status;
}

tap_status tap_superpoint_pixels(tap_session *session, const tap_image *image,
                                 const tap_superpoint_options *options, tap_keypoints *keypoints,
                                 tap_error *err)
{
    tap_superpoint_options own;
    size_t bytes_per_pixel;
    ptrdiff_t stride;
    keypoints->view = (tap_keypoints_view){.size = sizeof keypoints->view, .exif_orientation = 1};
    tap_status status = read_options(&own, session, options, err);
    if (status == TAP_OK)
        status = tap_image_check(image, &bytes_per_pixel, &stride, err);
    if (status == TAP_OK)
        status = detect(session, image, &own, keypoints, err);
    return finish(status, keypoints);
}

tap_status tap_superpoint_encoded(tap_session *session, const void *bytes, size_t n_bytes,
                                  const tap_superpoint_options *options, tap_keypoints *keypoints,
                                  tap_error *err)
{
    tap_superpoint_options own;
    tap_pixels pixels = {0};
    keypoints->view = (tap_keypoints_view){.size = sizeof keypoints->view};
    tap_status status = read_options(&own, session, options, err);
    double start = tap_clock_ms();
    if (status == TAP_OK)
        status = tap_pixels_decode(&pixels, bytes, n_bytes, own.exif, own.max_pixels, err);
    if (status == TAP_OK) {
        keypoints->view.decode_ms = tap_clock_ms() - start;
        keypoints->view.exif_orientation = pixels.exif_orientation;
        keypoints->view.exif_applied = pixels.exif_applied;
        tap_image image = {.data = pixels.data,
                           .width = pixels.width,
                           .height = pixels.height,
                           .format = pixels.channels == 1 ? TAP_PIXELS_GRAY : TAP_PIXELS_RGB};
        status = detect(session, &image, &own, keypoints, err);
    }
    tap_pixels_free(&pixels);
    return finish(status, keypoints);
}

tap_status tap_superpoint_file(tap_session *session, const char *path,
                               const tap_superpoint_options *options, tap_keypoints *keypoints,
                               tap_error *err)
{
    tap_bytes bytes;
    tap_status status = tap_bytes_read(&bytes, path, MAX_FILE_BYTES, err);
    if (status != TAP_OK)
        return finish(status, keypoints);
    status = tap_superpoint_encoded(session, bytes.data, bytes.size, options, keypoints, err);
    tap_bytes_release(&bytes);
    if (status != TAP_OK && status != TAP_ERR_ARGUMENT && err != NULL) {
        tap_error inner = *err;
        tap_fail(err, status, "%s: %s", path, inner.message);
    }
    return status;
}

/* ---- NPZ ----------------------------------------------------------------------------------- */

tap_status tap_keypoints_npz(const tap_keypoints *keypoints, unsigned fields, uint8_t **bytes,
                             size_t *n_bytes, tap_error *err)
{
    const tap_keypoints_view *view = &keypoints->view;
    tap_npz_array arrays[3];
    size_t n_arrays = 0, dim = view->descriptor_dim, n_values = view->count * dim;
    uint16_t *halves = NULL;
    *bytes = NULL;
    if ((fields & TAP_NPZ_DESCRIPTORS) && dim == 0)
        return tap_fail(err, TAP_ERR_ARGUMENT, "descriptors: the result has none");
    if (fields & TAP_NPZ_KEYPOINTS)
        arrays[n_arrays++] = (tap_npz_array){.name = "keypoints",
                                             .dtype = TAP_DTYPE_F32,
                                             .rank = 2,
                                             .shape = {view->count, 2},
                                             .data = view->xy};
    if (fields & TAP_NPZ_SCORES)
        arrays[n_arrays++] = (tap_npz_array){.name = "scores",
                                             .dtype = TAP_DTYPE_F32,
                                             .rank = 1,
                                             .shape = {view->count},
                                             .data = view->scores};
    if (fields & TAP_NPZ_DESCRIPTORS) {
        arrays[n_arrays] = (tap_npz_array){.name = "descriptors",
                                           .dtype = TAP_DTYPE_F32,
                                           .rank = 2,
                                           .shape = {view->count, dim},
                                           .data = view->descriptors};
        if (fields & TAP_NPZ_HALF) {
            halves = tap_alloc(n_values, sizeof *halves);
            if (halves == NULL)
                return tap_fail(err, TAP_ERR_MEMORY, "out of memory for %zu halves", n_values);
            tap_f32_to_f16_row(halves, view->descriptors, n_values);
            arrays[n_arrays].dtype = TAP_DTYPE_F16;
            arrays[n_arrays].data = halves;
        }
        n_arrays++;
    }
    tap_status status = tap_npz_write(bytes, n_bytes, arrays, n_arrays, err);
    free(halves);
    return status;
}

tap_status tap_keypoints_write_npz(const tap_keypoints *keypoints, unsigned fields,
                                   const char *path, tap_error *err)
{
    uint8_t *bytes;
    size_t n_bytes;
    TAP_TRY(tap_keypoints_npz(keypoints, fields, &bytes, &n_bytes, err));
    tap_status status = tap_file_write(path, bytes, n_bytes, err);
    free(bytes);
    return status;
}
