/* /health, /info and /v1/models: what this server is, as spec and clients of the accelerator's
 * servers know it, with our own figures beside. With two models the first is described as if it
 * were alone, and "models" lists both. */
#include "exchange.h"

#include "core/core.h"

#include <math.h>
#include <string.h>

static void begin(tap_text *text, const char *name)
{
    if (name != NULL)
        tap_text_name(text, name);
    tap_text_puts(text, "{");
}

static void end(tap_text *text)
{
    tap_text_puts(text, "}");
}

static void write_list(tap_text *text, const char *name, const char *const *words, size_t n)
{
    tap_text_name(text, name);
    tap_text_puts(text, "[");
    for (size_t i = 0; i < n; i++) {
        tap_text_puts(text, i > 0 ? "," : "");
        tap_text_string(text, words[i], strlen(words[i]));
    }
    tap_text_puts(text, "]");
}

/* What is described: a model and where it runs. */
struct subject {
    const tap_server_options *options;
    const tap_server_model *model;
    const tap_served *served;
    const tap_model_info *info; /* all 0 before served->loaded */
};

typedef void (*part_fn)(tap_text *text, const struct subject *subject);

/* What /info says of a kind of model, in its order. */
struct describer {
    const char *word, *name, *repo;
    const char *const *routes; /* that are its alone */
    size_t n_routes;
    part_fn io, input, defaults, limits, path, rest;
};

static const struct describer *describer_of(const tap_server_model *model);

static struct subject subject_of(const tap_service *service, const tap_served *served, size_t i)
{
    return (struct subject){.options = service->options,
                            .model = &service->options->models[i],
                            .served = served,
                            .info = &served->models[i].info};
}

static const char *name_of(const tap_server_model *model)
{
    return model->name != NULL ? model->name : describer_of(model)->name;
}

static const char *repo_of(const tap_server_model *model)
{
    return model->repo != NULL ? model->repo : describer_of(model)->repo;
}

static const char *backend_of(const tap_served *served)
{
    return served->loaded ? served->engine.backend : "cpu";
}

static void write_routes(tap_text *text, const tap_server_model *model)
{
    const struct describer *describer = describer_of(model);
    write_list(text, "routes", describer->routes, describer->n_routes);
}

/* ---- /health and /v1/models ------------------------------------------------------------------ */

static void write_device(tap_text *text, const tap_service *service, const tap_served *served)
{
    begin(text, "device");
    tap_text_field(text, "arch", backend_of(served));
    tap_text_field_u64(text, "id", service->options->device_id);
    tap_text_field_bool(text, "open", served->loaded);
    end(text);
}

void tap_describe_health(tap_service *service, tap_text *text)
{
    const tap_server_options *options = service->options;
    tap_served served;
    tap_jobs_served(service->jobs, &served);
    const char *status = served.loaded ? "ok" : "starting";
    begin(text, NULL);
    tap_text_field(text, "status", status);
    tap_text_field(text, "model", name_of(&options->models[0]));
    write_device(text, service, &served);
    if (options->n_models > 1) {
        tap_text_name(text, "models");
        tap_text_puts(text, "[");
        for (size_t i = 0; i < options->n_models; i++) {
            tap_text_puts(text, i > 0 ? ",{" : "{");
            tap_text_field(text, "model", name_of(&options->models[i]));
            tap_text_field(text, "kind", describer_of(&options->models[i])->word);
            tap_text_field(text, "status", status);
            write_routes(text, &options->models[i]);
            end(text);
        }
        tap_text_puts(text, "]");
    }
    end(text);
}

void tap_describe_models(tap_service *service, tap_text *text)
{
    const tap_server_options *options = service->options;
    tap_text_puts(text, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < options->n_models; i++) {
        tap_text_puts(text, i > 0 ? ",{" : "{");
        tap_text_field(text, "id", repo_of(&options->models[i]));
        tap_text_field(text, "object", "model");
        tap_text_field(text, "owned_by", "changh95");
        end(text);
    }
    tap_text_puts(text, "]}");
}

/* ---- /info: what the process has ------------------------------------------------------------- */

static void write_server_limits(tap_text *text, const tap_server_options *options)
{
    tap_text_field_u64(text, "max_body_bytes", options->max_body_bytes);
    tap_text_field_u64(text, "max_bodies_bytes", options->max_bodies_bytes);
    tap_text_field_u64(text, "max_answer_bytes", options->max_answer_bytes);
    tap_text_field_u64(text, "max_pixels", options->max_pixels);
    tap_text_field_u64(text, "max_input_pixels", options->max_input_pixels);
    tap_text_field_u64(text, "max_connections", options->max_connections);
    tap_text_field_u64(text, "max_connections_ip", options->max_connections_ip);
    tap_text_field_u64(text, "queue_length", options->queue_length);
    tap_text_field_u64(text, "header_timeout_ms", options->header_timeout_ms);
    tap_text_field_u64(text, "body_timeout_ms", options->body_timeout_ms);
    tap_text_field_u64(text, "answer_timeout_ms", options->answer_timeout_ms);
    tap_text_field_u64(text, "idle_timeout_ms", options->idle_timeout_ms);
    tap_text_field_u64(text, "drain_timeout_ms", options->drain_timeout_ms);
}

static void write_hardware(tap_text *text, const tap_served *served)
{
    begin(text, "hardware");
    tap_text_field(text, "device", "cpu");
    if (served->loaded) {
        tap_text_field(text, "isa", served->engine.isa);
        tap_text_field(text, "isa_reason", served->engine.isa_reason);
        tap_text_field_u64(text, "threads", served->engine.n_threads);
        tap_text_field(text, "threads_reason", served->engine.threads_reason);
        tap_text_field(text, "kernels", served->engine.kernels);
    }
    end(text);
}

static void write_weights(tap_text *text, const struct subject *subject)
{
    const tap_server_model *model = subject->model;
    const tap_served *served = subject->served;
    const tap_model_info *info = subject->info;
    begin(text, "weights");
    tap_text_field(text, "repo", repo_of(model));
    tap_text_field(text, "revision", model->revision);
    tap_text_field(text, "local_dir", model->weights);
    tap_text_field_bool(text, "loaded", served->loaded);
    if (served->loaded) {
        tap_text_field(text, "file", info->path);
        tap_text_field(text, "format", info->format);
        tap_text_field_u64(text, "parameters", info->n_parameters);
        if (model->kind == TAP_SERVER_SUPERPOINT)
            tap_text_field_bool(text, "descriptor_head", info->has_descriptors);
    }
    end(text);
}

/* ---- /info: SuperPoint ----------------------------------------------------------------------- */

static void write_points_defaults(tap_text *text, const struct subject *subject)
{
    (void)subject;
    tap_superpoint_options options;
    tap_superpoint_options_init(&options);
    begin(text, "defaults");
    tap_text_field_u64(text, "max_keypoints", (uint64_t)options.max_keypoints);
    tap_text_name(text, "keypoint_threshold");
    tap_text_f32(text, options.keypoint_threshold);
    tap_text_field_u64(text, "nms_radius", options.nms_radius);
    tap_text_field_u64(text, "border_removal_distance", options.border);
    tap_text_field_bool(text, "return_descriptors", options.descriptors);
    tap_text_field(text, "nms", "single");
    tap_text_field(text, "size", "640x480");
    tap_text_field(text, "gray", "first");
    tap_text_field(text, "exif", "ignore");
    tap_text_field(text, "coordinates", "ratio");
    end(text);
}

static void write_points_io(tap_text *text, const struct subject *subject)
{
    (void)subject;
    tap_text_field(text, "task", "keypoint-detection");
    tap_text_puts(text, ",\"io\":{\"input\":\"image\",\"output\":\"keypoints, scores, "
                        "descriptors\"}");
}

static void write_points_input(tap_text *text, const struct subject *subject)
{
    (void)subject;
    tap_text_puts(text, ",\"input\":{\"height\":480,\"width\":640,\"batch\":1,\"preprocessing\":"
                        "\"decode to 8-bit RGB, alpha dropped, EXIF left alone; resize the first "
                        "channel to 640x480, bilinear with antialias, as Pillow; divide by 255\"}");
}

static void write_points_limits(tap_text *text, const struct subject *subject)
{
    (void)subject;
    tap_text_puts(text, "\"max_keypoints\":[-1,307200],\"keypoint_threshold\":[0,1],"
                        "\"nms_radius\":[0,32]");
}

static void write_points_rest(tap_text *text, const struct subject *subject)
{
    (void)subject;
    tap_text_puts(text, ",\"descriptors\":{\"format\":\"npz\",\"key\":\"descriptors\",\"dtype\":"
                        "\"float16\",\"shape\":[\"N\",256]}");
}

/* The accelerator's server says here which of its shortcuts are on; there are none on a CPU. */
static void write_points_path(tap_text *text, const struct subject *subject)
{
    const tap_served *served = subject->served;
    begin(text, "serving_path");
    tap_text_puts(text, "\"traced\":false,\"device_nms\":false,\"nms_radius_traced\":null,"
                        "\"fused_stages\":null,\"trace_region_size\":0");
    tap_text_field(text, "backend", backend_of(served));
    if (served->loaded) {
        tap_text_field(text, "isa", served->engine.isa);
        tap_text_field_u64(text, "threads", served->engine.n_threads);
    }
    end(text);
}

/* ---- /info: HaMeR ---------------------------------------------------------------------------- */

/* OpenPose's order, and MANO's. A finger's last joint is its tip, which turns with the one before.
 */
static const char *const joint_names[TAP_HAND_JOINTS] = {
    "wrist",     "thumb_cmc", "thumb_mcp",  "thumb_ip",   "thumb_tip",  "index_mcp",  "index_pip",
    "index_dip", "index_tip", "middle_mcp", "middle_pip", "middle_dip", "middle_tip", "ring_mcp",
    "ring_pip",  "ring_dip",  "ring_tip",   "little_mcp", "little_pip", "little_dip", "little_tip"};
static const char *const rotation_names[TAP_HAND_ROTATIONS] = {
    "wrist",      "index_mcp",  "index_pip",  "index_dip",  "middle_mcp", "middle_pip",
    "middle_dip", "little_mcp", "little_pip", "little_dip", "ring_mcp",   "ring_pip",
    "ring_dip",   "thumb_cmc",  "thumb_mcp",  "thumb_ip"};

static void write_hands_io(tap_text *text, const struct subject *subject)
{
    (void)subject;
    tap_text_field(text, "task", "hand-mesh-recovery");
    tap_text_puts(text, ",\"io\":{\"input\":\"image, box, side\",\"output\":\"rotations, shape, "
                        "camera; with MANO joints, vertices, keypoints\"}");
}

static void write_hands_input(tap_text *text, const struct subject *subject)
{
    (void)subject;
    tap_text_puts(text,
                  ",\"input\":{\"height\":256,\"width\":192,\"batch\":1,\"preprocessing\":"
                  "\"decode to 8-bit RGB, alpha dropped, EXIF applied; the square of "
                  "rescale_factor times the box's longer side around its middle, left hands "
                  "mirrored, smoothed if it shrinks, to 256x256, bilinear; its middle 192 columns; "
                  "(p / 255 - mean) / std\"}");
}

static void write_hands_defaults(tap_text *text, const struct subject *subject)
{
    (void)subject;
    tap_hamer_options options;
    tap_hamer_options_init(&options);
    begin(text, "defaults");
    tap_text_field(text, "bbox", NULL);
    tap_text_field_bool(text, "is_right", options.is_right);
    tap_text_name(text, "rescale_factor");
    tap_text_f32(text, options.rescale_factor);
    tap_text_puts(text, ",\"return_vertices\":true,\"return_faces\":false,\"crop\":\"served\","
                        "\"exif\":\"apply\",\"rotations\":\"network\",\"fx\":null,\"fy\":null,"
                        "\"cx\":null,\"cy\":null");
    end(text);
}

static void write_hands_limits(tap_text *text, const struct subject *subject)
{
    tap_text_puts(text, "\"rescale_factor\":[0.01,100]");
    tap_text_field_u64(text, "max_hands", subject->options->max_hands);
    tap_text_field_u64(text, "max_picture_side", TAP_HANDS_PICTURE_SIDE);
    tap_text_field_u64(text, "max_square_side", TAP_HANDS_SQUARE_SIDE);
}

static void write_hands_rest(tap_text *text, const struct subject *subject)
{
    const tap_served *served = subject->served;
    const tap_model_info *info = subject->info;
    uint64_t now, peak;
    tap_memory_resident(&now, &peak);
    tap_text_field(text, "backend", backend_of(served));
    tap_text_field(text, "precision", served->loaded ? info->precision : NULL);
    /* The accelerator's own; a CPU has none of them. */
    tap_text_puts(text, ",\"dispatch\":null,\"num_command_queues\":null,\"grid\":null,"
                        "\"trace_active\":false");
    begin(text, "mano");
    tap_text_field_bool(text, "available", served->loaded && info->mano_available);
    tap_text_field(text, "path", served->loaded ? info->mano_path : NULL);
    tap_text_field(text, "license", served->loaded ? info->mano_licence : NULL);
    end(text);
    write_list(text, "joints", joint_names, TAP_HAND_JOINTS);
    write_list(text, "rotations", rotation_names, TAP_HAND_ROTATIONS);
    begin(text, "memory");
    tap_text_field_u64(text, "resident_bytes", now);
    tap_text_field_u64(text, "peak_bytes", peak);
    tap_text_field_u64(text, "weights_bytes", served->loaded ? info->packed_bytes : 0);
    tap_text_field_bool(text, "weights_mapped", served->loaded && info->cached);
    end(text);
}

static void write_hands_path(tap_text *text, const struct subject *subject)
{
    const tap_served *served = subject->served;
    begin(text, "serving_path");
    tap_text_field_bool(text, "traced", false);
    tap_text_field(text, "backend", backend_of(served));
    if (served->loaded) {
        tap_text_field(text, "isa", served->engine.isa);
        tap_text_field_u64(text, "threads", served->engine.n_threads);
        tap_text_field(text, "precision", subject->info->precision);
    }
    end(text);
}

/* ---- /info ----------------------------------------------------------------------------------- */

static const char *const points_routes[] = {"/superpoint/predict", "/superpoint/match"};
static const char *const hands_routes[] = {"/hamer/predict"};

static const struct describer describers[] = {
    [TAP_SERVER_SUPERPOINT] = {.word = "superpoint",
                               .name = "superpoint-p150",
                               .repo = "magic-leap-community/superpoint",
                               .routes = points_routes,
                               .n_routes = 2,
                               .io = write_points_io,
                               .input = write_points_input,
                               .defaults = write_points_defaults,
                               .limits = write_points_limits,
                               .path = write_points_path,
                               .rest = write_points_rest},
    [TAP_SERVER_HAMER] = {.word = "hamer",
                          .name = "hamer-p150",
                          .repo = "changh95/hamer-weights",
                          .routes = hands_routes,
                          .n_routes = 1,
                          .io = write_hands_io,
                          .input = write_hands_input,
                          .defaults = write_hands_defaults,
                          .limits = write_hands_limits,
                          .path = write_hands_path,
                          .rest = write_hands_rest}};

static const struct describer *describer_of(const tap_server_model *model)
{
    return &describers[model->kind];
}

/* One model's fields. whole: of /info itself, with what the process has in between. */
static void write_model(tap_text *text, const struct subject *subject, double warmup_ms, bool whole)
{
    const struct describer *describer = describer_of(subject->model);
    const tap_served *served = subject->served;
    tap_text_field(text, "model", name_of(subject->model));
    if (!whole) {
        tap_text_field(text, "kind", describer->word);
        write_routes(text, subject->model);
    }
    describer->io(text, subject);
    if (whole)
        write_hardware(text, served);
    write_weights(text, subject);
    tap_text_puts(text, ",\"source\":{\"repo\":\"tapetum\",\"commit\":null}");
    describer->input(text, subject);
    describer->defaults(text, subject);
    begin(text, "limits");
    describer->limits(text, subject);
    if (whole)
        write_server_limits(text, subject->options);
    end(text);
    describer->path(text, subject);
    describer->rest(text, subject);
    tap_text_field_f64(text, "warmup_ms", warmup_ms);
    if (whole)
        tap_text_field_f64(text, "ready_ms", served->ready_ms);
    tap_text_field_f64(text, "gate_correlation",
                       served->loaded ? subject->info->gate_correlation : (double)NAN);
    tap_text_field(text, "license", served->loaded ? subject->info->licence : NULL);
}

void tap_describe_info(tap_service *service, tap_text *text)
{
    tap_served served;
    tap_jobs_served(service->jobs, &served);
    struct subject subject = subject_of(service, &served, 0);
    begin(text, NULL);
    write_model(text, &subject, served.models[0].warmup_ms, true);
    tap_text_field(text, "version", tap_version());
    tap_text_field(text, "build", tap_build_info());
    if (service->options->n_models > 1) {
        tap_text_name(text, "models");
        tap_text_puts(text, "[");
        for (size_t i = 0; i < service->options->n_models; i++) {
            subject = subject_of(service, &served, i);
            tap_text_puts(text, i > 0 ? ",{" : "{");
            write_model(text, &subject, served.models[i].warmup_ms, false);
            end(text);
        }
        tap_text_puts(text, "]");
    }
    end(text);
}
