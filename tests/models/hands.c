#include "hands.h"

#include <math.h>

const char *hamer_path(char *path, size_t size, const char *name)
{
    char below[200];
    snprintf(below, sizeof below, "golden/hamer/%s", name);
    return shared_path(path, size, below);
}

float *load_crops(void)
{
    static const double mean[] = {0.485, 0.456, 0.406}, deviation[] = {0.229, 0.224, 0.225};
    char path[300];
    struct array crops = load_npy(hamer_path(path, sizeof path, "crops_u8.npy"));
    assert_int_equal(crops.n, N_CROPS * N_CROP_VALUES);
    for (size_t i = 0; i < crops.n; i++)
        crops.values[i] = (float)((crops.values[i] - 255 * mean[i % 3]) / (255 * deviation[i % 3]));
    return crops.values;
}

tap_weights *open_synthetic(const tap_hamer_config *config)
{
    char path[] = "/tmp/tapetum_hamer_XXXXXX";
    tap_weights *weights;
    tap_error err;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_ok(tap_synth_hamer(path, config, &err), err);
    tap_status status = tap_weights_open(&weights, path, &err);
    assert_int_equal(unlink(path), 0);
    assert_ok(status, err);
    return weights;
}

void compare_crops(const float *ours, size_t stride, size_t n, const char *name, double tolerance)
{
    char path[300];
    struct array wanted = load_npy(hamer_path(path, sizeof path, name));
    double most = 0;
    assert_int_equal(wanted.n, N_CROPS * n);
    for (size_t i = 0; i < wanted.n; i++) {
        double value = ours[i / n * stride + i % n];
        double difference = fabs(value - (double)wanted.values[i]);
        most = difference > most || isnan(difference) ? difference : most;
    }
    printf("%s: largest difference %.2e\n", name, most);
    if (!(most <= tolerance))
        fail_msg("%s: %.3e is more than %.1e", name, most, tolerance);
    free_array(&wanted);
}

void compare_outputs(const float *outputs, const char *config, double tolerance)
{
    static const struct {
        const char *part;
        size_t first, n;
    } parts[] = {{"rot6d", 0, TAP_HAMER_POSE},
                 {"betas", TAP_HAMER_POSE, TAP_HAMER_BETAS},
                 {"cam", TAP_HAMER_POSE + TAP_HAMER_BETAS, TAP_HAMER_CAMERA}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s_%s.npy", config, parts[i].part);
        compare_crops(outputs + parts[i].first, TAP_HAMER_OUTPUTS, parts[i].n, name, tolerance);
    }
}
