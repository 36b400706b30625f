#include "layers.h"
#include "models.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N_TENSORS = TAP_SUPERPOINT_N_LAYERS * 2 };

struct generator {
    char names[N_TENSORS][64];
    tap_tensor_spec specs[N_TENSORS];
    float scales[N_TENSORS];
};

/* value_i = scale * u_i in float32, where u_i in [-1, 1) is 24 bits of splitmix64's output i,
 * seeded by FNV-1a-64 of the tensor's name. */
static void fill_tensor(void *user, size_t tensor, size_t first, size_t n, float *dst)
{
    const struct generator *generator = user;
    uint64_t seed = tap_fnv1a64(generator->names[tensor]);
    float scale = generator->scales[tensor];
    for (size_t i = 0; i < n; i++) {
        int64_t bits = (int64_t)(tap_splitmix64(seed, first + i + 1) >> 40) - (1 << 23);
        dst[i] = scale * ((float)bits / (float)(1 << 23));
    }
}

/* Weights keep the variance from layer to layer under ReLU (He et al. 2015): uniform in
 * +-gain sqrt(3 / fan_in). The score head's gain of 4 spreads the softmax. */
static float weight_scale(const tap_superpoint_layer *layer, size_t fan_in)
{
    double gain = layer->out == TAP_WIDTH_CELL ? 4 : sqrt(2);
    return (float)(gain * sqrt(3.0 / (double)fan_in));
}

static void describe_tensors(struct generator *generator)
{
    for (size_t i = 0; i < N_TENSORS; i++) {
        const tap_superpoint_layer *layer = &tap_superpoint_layers[i / 2];
        tap_tensor_spec *spec = &generator->specs[i];
        bool bias = i % 2 != 0;
        size_t in = tap_superpoint_widths[layer->in], k = layer->kernel;
        snprintf(generator->names[i], sizeof generator->names[i], "%s%s", layer->name,
                 bias ? ".bias" : ".weight");
        *spec = (tap_tensor_spec){.name = generator->names[i],
                                  .rank = bias ? 1 : 4,
                                  .shape = {tap_superpoint_widths[layer->out]}};
        if (!bias) {
            spec->shape[1] = in;
            spec->shape[2] = spec->shape[3] = k;
        }
        generator->scales[i] = bias ? 0.1f : weight_scale(layer, in * k * k);
    }
}

tap_status tap_synth_superpoint(const char *path, tap_error *err)
{
    static const char *const metadata[] = {"format", "pt", "weights",
                                           "synthetic: a function of the tensors' names"};
    struct generator generator;
    describe_tensors(&generator);
    return tap_safetensors_write(path, generator.specs, N_TENSORS, metadata,
                                 sizeof metadata / sizeof *metadata, fill_tensor, &generator, err);
}
