#include "models/network.h"

#include "cpu/cpu.h"
#include "image/image.h"

const tap_superpoint_options network_defaults = {.size = sizeof network_defaults,
                                                 .max_keypoints = 1024,
                                                 .keypoint_threshold = 0.005f,
                                                 .nms_radius = 4,
                                                 .border = 4};

size_t pictures_to_see(size_t n)
{
    if (!SANITIZED || n <= 1)
        return n;
    printf("one picture of %zu: this is a sanitizer's build\n", n);
    return 1;
}

static void read_model(struct network *network, const char *path)
{
    tap_weights *weights;
    tap_error err;
    assert_ok(tap_weights_open(&weights, path, &err), err);
    assert_ok(tap_superpoint_create(&network->model, weights, NULL, &err), err);
    tap_weights_close(weights);
}

static bool is_output(const tap_plan *plan, tap_buffer buffer)
{
    for (size_t i = 0; i < plan->n_outputs; i++)
        if (plan->outputs[i] == buffer)
            return true;
    return false;
}

void network_open(struct network *network, const char *path, bool with_layers)
{
    const tap_backend *cpu = &tap_cpu_backend;
    tap_program_info info;
    tap_error err;
    size_t bytes;
    *network = (struct network){0};
    read_model(network, path);
    network->dim = tap_superpoint_descriptor_dim(network->model);
    assert_ok(tap_pool_create(&network->pool, tap_cpus_allowed(NULL, 0), &err), err);
    tap_backend_options options = {.pool = network->pool};
    assert_ok(cpu->open(&network->state, &options, &err), err);
    assert_ok(
        tap_superpoint_plan(network->model, WIDTH, HEIGHT, network->dim > 0, &network->plan, &err),
        err);
    tap_plan *plan = network->plan;
    for (size_t i = 0; with_layers && i < plan->n_ops; i++)
        if (!is_output(plan, plan->ops[i].output))
            tap_plan_output(plan, plan->ops[i].output);
    assert_ok(tap_plan_finish(plan, &err), err);
    assert_ok(cpu->compile(network->state, plan, NULL, &network->program, &err), err);
    cpu->inspect(network->program, &info);
    assert_true(tap_points_scratch_bytes(WIDTH, HEIGHT, &bytes));
    network->scratch = tap_alloc(info.scratch_bytes, 1);
    network->select_scratch = tap_alloc(bytes, 1);
    network->input = tap_alloc(N_PIXELS, sizeof(float));
    network->outputs = calloc(plan->n_outputs, sizeof *network->outputs);
    assert_true(network->scratch && network->select_scratch && network->input && network->outputs);
    for (size_t i = 0; i < plan->n_outputs; i++) {
        network->outputs[i] = tap_alloc(tap_plan_elements(plan, plan->outputs[i]), sizeof(float));
        assert_non_null(network->outputs[i]);
    }
}

void network_close(struct network *network)
{
    for (size_t i = 0; i < network->plan->n_outputs; i++)
        free(network->outputs[i]);
    free(network->outputs);
    free(network->input);
    free(network->scratch);
    free(network->select_scratch);
    tap_cpu_backend.free_program(network->program);
    tap_plan_free(network->plan);
    tap_cpu_backend.close(network->state);
    tap_pool_free(network->pool);
    tap_superpoint_free(network->model);
}

void network_run(struct network *network)
{
    tap_error err;
    const float *inputs[] = {network->input};
    assert_ok(tap_cpu_backend.run(network->program, network->scratch, inputs, network->outputs,
                                  NULL, &err),
              err);
}

const float *network_scores(const struct network *network)
{
    return network->outputs[0];
}

const float *network_map(const struct network *network)
{
    assert_true(network->dim > 0);
    return network->outputs[1];
}

const tap_point *network_points(struct network *network, const tap_superpoint_options *options,
                                size_t *n)
{
    const tap_point *points;
    tap_points_select(&points, n, network_scores(network), WIDTH, HEIGHT, options,
                      network->select_scratch);
    return points;
}

float *network_descriptors(const struct network *network, const tap_point *points, size_t n)
{
    float *xy = malloc((n + 1) * 2 * sizeof *xy);
    float *rows = malloc((n + 1) * network->dim * sizeof *rows);
    assert_true(xy != NULL && rows != NULL);
    for (size_t i = 0; i < n; i++) {
        xy[2 * i] = (float)points[i].x;
        xy[2 * i + 1] = (float)points[i].y;
    }
    tap_descriptors_sample(rows, xy, n, network_map(network), WIDTH / TAP_SUPERPOINT_CELL,
                           HEIGHT / TAP_SUPERPOINT_CELL, network->dim);
    free(xy);
    return rows;
}

void load_plane(uint8_t plane[N_PIXELS], const char *path)
{
    size_t size, scratch_bytes;
    tap_pixels pixels;
    tap_error err;
    unsigned char *bytes = load_bytes(path, &size);
    assert_ok(tap_pixels_decode(&pixels, bytes, size, TAP_EXIF_IGNORE, 64000000, &err), err);
    free(bytes);
    tap_image image = {.data = pixels.data,
                       .width = pixels.width,
                       .height = pixels.height,
                       .format = pixels.channels == 1 ? TAP_PIXELS_GRAY : TAP_PIXELS_RGB};
    uint8_t *red = tap_alloc((size_t)pixels.width * pixels.height, 1);
    assert_true(
        tap_resize_scratch_bytes(pixels.width, pixels.height, WIDTH, HEIGHT, &scratch_bytes));
    void *scratch = tap_alloc(scratch_bytes, 1);
    assert_true(red != NULL && scratch != NULL);
    tap_image_plane(red, &image, TAP_GRAY_FIRST, pixels.width, pixels.height);
    if (pixels.width == WIDTH && pixels.height == HEIGHT)
        memcpy(plane, red, N_PIXELS);
    else
        tap_resize_bilinear(plane, WIDTH, HEIGHT, red, pixels.width, pixels.height, scratch);
    free(scratch);
    free(red);
    tap_pixels_free(&pixels);
}

void network_set_input(struct network *network, const uint8_t plane[N_PIXELS])
{
    for (size_t i = 0; i < N_PIXELS; i++)
        network->input[i] = (float)plane[i] / 255.0f;
}
