#include "answer.h"
#include "server.h"

#include "core/core.h"

#include <math.h>
#include <stdlib.h>

/* A point in JSON: "[1234.56789,1234.56789]," and its score: never more than this. */
enum { POINT_BYTES = 64, HEAD_BYTES = 4096 };

size_t tap_answer_max_points(size_t max_bytes, bool descriptors, uint32_t dim, bool npz)
{
    size_t halves = descriptors ? (size_t)dim * sizeof(uint16_t) : 0;
    size_t per_point = npz ? 3 * sizeof(float) + halves : POINT_BYTES + (halves + 2) / 3 * 4;
    return max_bytes > HEAD_BYTES ? (max_bytes - HEAD_BYTES) / per_point : 0;
}

/* A number of the network that is no number would make the whole answer unreadable. */
static tap_status check_finite(const float *values, size_t n, size_t per_point, const char *what,
                               tap_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(values[i]))
            return tap_fail(err, TAP_ERR_INTERNAL,
                            "the %s of point %zu is %s; the weights or the machine are at fault",
                            what, i / per_point, isnan(values[i]) ? "not a number" : "infinite");
    return TAP_OK;
}

static void write_size(tap_text *text, const char *name, uint32_t width, uint32_t height)
{
    tap_text_name(text, name);
    tap_text_printf(text, "{\"height\":%u,\"width\":%u}", height, width);
}

/* What one picture gave, as fields of the object that has been begun. */
static tap_status write_result(tap_text *text, const tap_keypoints_view *view, tap_error *err)
{
    size_t n = view->count;
    TAP_TRY(check_finite(view->xy, 2 * n, 2, "position", err));
    TAP_TRY(check_finite(view->scores, n, 1, "score", err));
    tap_text_field_u64(text, "num_keypoints", n);
    tap_text_name(text, "keypoints");
    tap_text_add(text, "[", 1);
    for (size_t i = 0; i < n; i++) {
        char *room = tap_text_reserve(text, 2 * TAP_F32_CHARS + 4);
        if (room == NULL)
            break; /* tap_text_take says so */
        char *at = room;
        if (i > 0)
            *at++ = ',';
        *at++ = '[';
        at += tap_f32_shortest(at, view->xy[2 * i]);
        *at++ = ',';
        at += tap_f32_shortest(at, view->xy[2 * i + 1]);
        *at++ = ']';
        text->size += (size_t)(at - room);
    }
    tap_text_add(text, "]", 1);
    tap_text_name(text, "scores");
    tap_text_add(text, "[", 1);
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            tap_text_add(text, ",", 1);
        tap_text_f32(text, view->scores[i]);
    }
    tap_text_add(text, "]", 1);
    write_size(text, "original_size", view->original_width, view->original_height);
    write_size(text, "image_size", view->input_width, view->input_height);
    tap_text_name(text, "scale");
    tap_text_add(text, "{", 1);
    tap_text_field_f64(text, "x", view->scale_x);
    tap_text_field_f64(text, "y", view->scale_y);
    tap_text_add(text, "}", 1);
    tap_text_field_u64(text, "exif_orientation", (uint64_t)view->exif_orientation);
    tap_text_field_bool(text, "exif_applied", view->exif_applied);
    return TAP_OK;
}

static void write_params(tap_text *text, const tap_superpoint_options *asked)
{
    tap_text_name(text, "params");
    tap_text_printf(text, "{\"max_keypoints\":%d,\"keypoint_threshold\":", asked->max_keypoints);
    tap_text_f32(text, asked->keypoint_threshold);
    tap_text_printf(text, ",\"nms_radius\":%u,\"border_removal_distance\":%u", asked->nms_radius,
                    asked->border);
    tap_text_field(text, "nms", asked->nms == TAP_NMS_ITERATIVE ? "iterative" : "single");
    tap_text_field(text, "gray", asked->gray == TAP_GRAY_LUMA ? "luma" : "first");
    tap_text_field(text, "coordinates",
                   asked->coordinates == TAP_COORDINATES_CENTRES ? "centres" : "ratio");
}

static void write_serving_path(tap_text *text, const tap_engine_info *engine)
{
    tap_text_name(text, "serving_path");
    tap_text_puts(text, "{\"device_nms\":false");
    tap_text_field(text, "backend", engine->backend);
    tap_text_field(text, "isa", engine->isa);
    tap_text_field_u64(text, "threads", engine->n_threads);
    tap_text_add(text, "}", 1);
}

tap_status tap_answer_points(tap_text *text, const char *file, const tap_keypoints_view *view,
                             const tap_superpoint_options *asked, const uint8_t *npz, size_t n_npz,
                             const tap_engine_info *engine, tap_error *err)
{
    tap_text_add(text, "{", 1);
    if (file != NULL)
        tap_text_field(text, "file", file);
    TAP_TRY(write_result(text, view, err));
    write_params(text, asked);
    tap_text_add(text, "}", 1);
    tap_text_name(text, "timing_ms");
    tap_text_printf(text,
                    "{\"preprocess\":%.3f,\"device_forward\":%.3f,\"postprocess\":%.3f,"
                    "\"total\":%.3f}",
                    view->decode_ms + view->preprocess_ms, view->forward_ms, view->postprocess_ms,
                    view->total_ms);
    if (npz != NULL) {
        TAP_TRY(check_finite(view->descriptors, view->count * view->descriptor_dim,
                             view->descriptor_dim, "descriptor", err));
        tap_text_name(text, "descriptors");
        tap_text_printf(text,
                        "{\"format\":\"npz\",\"key\":\"descriptors\",\"dtype\":\"float16\","
                        "\"shape\":[%zu,%u],\"data\":\"",
                        view->count, view->descriptor_dim);
        tap_text_base64(text, npz, n_npz);
        tap_text_puts(text, "\"}");
    }
    write_serving_path(text, engine);
    tap_text_add(text, "}", 1);
    return TAP_OK;
}

tap_status tap_answer_match(tap_text *text, const tap_keypoints_view views[2],
                            const tap_superpoint_options *asked, const tap_match_options *match,
                            const tap_match_pair *pairs, size_t n_pairs, double match_ms,
                            const tap_engine_info *engine, tap_error *err)
{
    const tap_keypoints_view *a = &views[0], *b = &views[1];
    tap_text_add(text, "{", 1);
    tap_text_field_u64(text, "num_matches", n_pairs);
    tap_text_name(text, "matches");
    tap_text_add(text, "[", 1);
    for (size_t i = 0; i < n_pairs; i++)
        tap_text_printf(text, "%s[%u,%u]", i > 0 ? "," : "", pairs[i].a, pairs[i].b);
    tap_text_add(text, "]", 1);
    tap_text_name(text, "similarity");
    tap_text_add(text, "[", 1);
    for (size_t i = 0; i < n_pairs; i++) {
        TAP_TRY(check_finite(&pairs[i].similarity, 1, 1, "similarity", err));
        tap_text_puts(text, i > 0 ? "," : "");
        tap_text_f32(text, pairs[i].similarity);
    }
    tap_text_add(text, "]", 1);
    for (size_t i = 0; i < 2; i++) {
        tap_text_name(text, i == 0 ? "a" : "b");
        tap_text_add(text, "{", 1);
        TAP_TRY(write_result(text, &views[i], err));
        tap_text_add(text, "}", 1);
    }
    write_params(text, asked);
    tap_text_name(text, "min_similarity");
    tap_text_f32(text, match->min_similarity);
    tap_text_name(text, "ratio");
    tap_text_f32(text, match->ratio);
    tap_text_add(text, "}", 1);
    tap_text_name(text, "timing_ms");
    tap_text_printf(text,
                    "{\"preprocess\":%.3f,\"device_forward\":%.3f,\"postprocess\":%.3f,"
                    "\"match\":%.3f,\"total\":%.3f}",
                    a->decode_ms + a->preprocess_ms + b->decode_ms + b->preprocess_ms,
                    a->forward_ms + b->forward_ms, a->postprocess_ms + b->postprocess_ms, match_ms,
                    a->total_ms + b->total_ms + match_ms);
    write_serving_path(text, engine);
    tap_text_add(text, "}", 1);
    return TAP_OK;
}

void tap_answer_detail(tap_text *text, const char *words)
{
    tap_text_add(text, "{", 1);
    tap_text_field(text, "detail", words);
    tap_text_add(text, "}", 1);
}

tap_status tap_answer_superpoint(char **text, size_t *n_text, const char *file,
                                 const tap_keypoints *keypoints,
                                 const tap_superpoint_options *options, const tap_engine *engine,
                                 tap_error *err)
{
    tap_keypoints_view view = {.size = sizeof view};
    tap_engine_info info = {.size = sizeof info};
    tap_superpoint_options asked;
    tap_text out = {0};
    uint8_t *npz = NULL;
    size_t n_npz = 0;
    tap_superpoint_options_init(&asked);
    if (options != NULL)
        asked = *options;
    if (tap_keypoints_get(keypoints, &view) != TAP_OK ||
        tap_engine_describe(engine, &info) != TAP_OK)
        return tap_fail(err, TAP_ERR_INTERNAL, "the result or the engine cannot be read");
    if (view.descriptor_dim > 0)
        TAP_TRY(
            tap_keypoints_npz(keypoints, TAP_NPZ_DESCRIPTORS | TAP_NPZ_HALF, &npz, &n_npz, err));
    tap_status status = tap_answer_points(&out, file, &view, &asked, npz, n_npz, &info, err);
    tap_free(npz);
    if (status == TAP_OK)
        return tap_text_take(&out, text, n_text, err);
    tap_text_free(&out);
    return status;
}

tap_status tap_answer_pairs(char **text, size_t *n_text, const tap_keypoints *const keypoints[2],
                            const tap_superpoint_options *options, const tap_match_options *match,
                            const tap_match_pair *pairs, size_t n_pairs, double match_ms,
                            const tap_engine *engine, tap_error *err)
{
    tap_keypoints_view views[2] = {{.size = sizeof *views}, {.size = sizeof *views}};
    tap_engine_info info = {.size = sizeof info};
    tap_text out = {0};
    if (tap_keypoints_get(keypoints[0], &views[0]) != TAP_OK ||
        tap_keypoints_get(keypoints[1], &views[1]) != TAP_OK ||
        tap_engine_describe(engine, &info) != TAP_OK)
        return tap_fail(err, TAP_ERR_INTERNAL, "the results or the engine cannot be read");
    tap_status status =
        tap_answer_match(&out, views, options, match, pairs, n_pairs, match_ms, &info, err);
    if (status == TAP_OK)
        return tap_text_take(&out, text, n_text, err);
    tap_text_free(&out);
    return status;
}
