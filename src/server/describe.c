/* /health, /info and /v1/models: what this server is, as spec and clients of the accelerator's
 * server know it, with our own figures beside. */
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

static void write_device(tap_text *text, const tap_service *service, const tap_served *served)
{
    begin(text, "device");
    tap_text_field(text, "arch", served->loaded ? served->engine.backend : "cpu");
    tap_text_field_u64(text, "id", service->options->device_id);
    tap_text_field_bool(text, "open", served->loaded);
    end(text);
}

void tap_describe_health(tap_service *service, tap_text *text)
{
    tap_served served;
    tap_jobs_served(service->jobs, &served);
    begin(text, NULL);
    tap_text_field(text, "status", served.loaded ? "ok" : "starting");
    tap_text_field(text, "model", service->options->model);
    write_device(text, service, &served);
    end(text);
}

void tap_describe_models(tap_service *service, tap_text *text)
{
    tap_text_puts(text, "{\"object\":\"list\",\"data\":[{");
    tap_text_field(text, "id", service->options->repo);
    tap_text_field(text, "object", "model");
    tap_text_field(text, "owned_by", "changh95");
    tap_text_puts(text, "}]}");
}

static void write_weights(tap_text *text, const tap_server_options *options,
                          const tap_served *served)
{
    begin(text, "weights");
    tap_text_field(text, "repo", options->repo);
    tap_text_field(text, "revision", options->revision);
    tap_text_field(text, "local_dir", options->weights);
    tap_text_field_bool(text, "loaded", served->loaded);
    if (served->loaded) {
        tap_text_field(text, "file", served->model.path);
        tap_text_field(text, "format", served->model.format);
        tap_text_field_u64(text, "parameters", served->model.n_parameters);
        tap_text_field_bool(text, "descriptor_head", served->model.has_descriptors);
    }
    end(text);
}

static void write_defaults(tap_text *text)
{
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

static void write_limits(tap_text *text, const tap_server_options *options)
{
    begin(text, "limits");
    tap_text_puts(text, "\"max_keypoints\":[-1,307200],\"keypoint_threshold\":[0,1],"
                        "\"nms_radius\":[0,32]");
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
    end(text);
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

/* The accelerator's server says here which of its shortcuts are on; there are none on a CPU. */
static void write_serving_path(tap_text *text, const tap_served *served)
{
    begin(text, "serving_path");
    tap_text_puts(text, "\"traced\":false,\"device_nms\":false,\"nms_radius_traced\":null,"
                        "\"fused_stages\":null,\"trace_region_size\":0");
    tap_text_field(text, "backend", served->loaded ? served->engine.backend : "cpu");
    if (served->loaded) {
        tap_text_field(text, "isa", served->engine.isa);
        tap_text_field_u64(text, "threads", served->engine.n_threads);
    }
    end(text);
}

void tap_describe_info(tap_service *service, tap_text *text)
{
    const tap_server_options *options = service->options;
    tap_served served;
    tap_jobs_served(service->jobs, &served);
    begin(text, NULL);
    tap_text_field(text, "model", options->model);
    tap_text_field(text, "task", "keypoint-detection");
    tap_text_puts(text, ",\"io\":{\"input\":\"image\",\"output\":\"keypoints, scores, "
                        "descriptors\"}");
    write_hardware(text, &served);
    write_weights(text, options, &served);
    tap_text_puts(text, ",\"source\":{\"repo\":\"tapetum\",\"commit\":null}");
    tap_text_puts(text, ",\"input\":{\"height\":480,\"width\":640,\"batch\":1,\"preprocessing\":"
                        "\"decode to 8-bit RGB, alpha dropped, EXIF left alone; resize the first "
                        "channel to 640x480, bilinear with antialias, as Pillow; divide by 255\"}");
    write_defaults(text);
    write_limits(text, options);
    write_serving_path(text, &served);
    tap_text_puts(text, ",\"descriptors\":{\"format\":\"npz\",\"key\":\"descriptors\",\"dtype\":"
                        "\"float16\",\"shape\":[\"N\",256]}");
    tap_text_field_f64(text, "warmup_ms", served.warmup_ms);
    tap_text_field_f64(text, "ready_ms", served.ready_ms);
    tap_text_field_f64(text, "gate_correlation",
                       served.loaded ? served.model.gate_correlation : (double)NAN);
    tap_text_field(text, "license", served.loaded ? served.model.licence : NULL);
    tap_text_field(text, "version", tap_version());
    tap_text_field(text, "build", tap_build_info());
    end(text);
}
