/* Synthetic HaMeR weights: a function of the tensors' names (docs/formats.md). */
#include "hamer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct generator {
    const tap_hamer_config *config;
    tap_hamer_tensor *tensors;
    tap_tensor_spec *specs;
    size_t n;
};

static bool ends_in(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);
    return n >= m && strcmp(name + n - m, ending) == 0;
}

/* u_i in [-1, 1): 24 bits of splitmix64's output i. */
static float uniform(uint64_t seed, uint64_t i)
{
    int64_t bits = (int64_t)(tap_splitmix64(seed, i) >> 40) - (1 << 23);
    return (float)bits / (float)(1 << 23);
}

/* Gains that keep the residual stream growing evenly, attention away from uniform, and outputs near
 * the mean hand. */
static double gain(const char *name)
{
    static const struct {
        const char *ending;
        double gain;
    } gains[] = {{"attn.proj.weight", 0.5}, {"mlp.fc2.weight", 0.5},  {"to_out.0.weight", 0.5},
                 {"net.3.weight", 0.5},     {"attn.qkv.weight", 1.2}, {"to_qkv.weight", 1.2},
                 {"to_q.weight", 1.2},      {"to_kv.weight", 1.2},    {"decpose.weight", 0.25},
                 {"decshape.weight", 0.25}, {"deccam.weight", 0.25}};
    for (size_t i = 0; i < sizeof gains / sizeof *gains; i++)
        if (ends_in(name, gains[i].ending))
            return gains[i].gain;
    return 1;
}

/* The mean parameters, which training would have measured. */
static void fill_mean(size_t tensor, size_t first, size_t n, float *dst)
{
    static const float identity[] = {1, 0, 0, 0, 1, 0}, camera[] = {0.9f, 0, 0};
    uint64_t seed = tap_fnv1a64(tensor == TAP_HAMER_INIT_POSE ? "mean.pose" : "mean.shape");
    for (size_t i = first; i < first + n; i++, dst++) {
        if (tensor == TAP_HAMER_INIT_CAMERA)
            *dst = camera[i];
        else if (tensor == TAP_HAMER_INIT_BETAS)
            *dst = 0.2f * uniform(seed, i + 1);
        else
            *dst = identity[i % 6] + 0.1f * uniform(seed, i + 1);
    }
}

static void fill_tensor(void *user, size_t tensor, size_t first, size_t n, float *dst)
{
    const struct generator *generator = user;
    const tap_tensor_spec *spec = &generator->specs[tensor];
    uint64_t seed = tap_fnv1a64(spec->name);
    if (tensor >= TAP_HAMER_INIT_POSE && tensor <= TAP_HAMER_INIT_CAMERA) {
        fill_mean(tensor, first, n, dst);
        return;
    }
    bool norm = strstr(spec->name, "norm") != NULL && ends_in(spec->name, ".weight");
    size_t fan_in = 1;
    for (size_t i = 1; i < spec->rank; i++)
        fan_in *= spec->shape[i];
    float scale = norm                            ? 0.2f
                  : ends_in(spec->name, "bias")   ? 0.1f
                  : tensor == TAP_HAMER_POS_EMBED ? 0.5f
                  : tensor == TAP_HAMER_TOKEN_POSITION
                      ? 1.0f
                      : (float)(gain(spec->name) * sqrt(3.0 / (double)fan_in));
    for (size_t i = 0; i < n; i++) {
        float value = scale * uniform(seed, first + i + 1);
        dst[i] = norm ? 1.0f + value : value;
    }
}

tap_status tap_synth_hamer(const char *path, const tap_hamer_config *config, tap_error *err)
{
    static const char *const metadata[] = {"format", "pt", "weights",
                                           "synthetic: a function of the tensors' names"};
    struct generator generator = {.config = config, .n = tap_hamer_n_tensors(config)};
    generator.tensors = calloc(generator.n, sizeof *generator.tensors);
    generator.specs = calloc(generator.n, sizeof *generator.specs);
    tap_status status = TAP_OK;
    if (generator.tensors == NULL || generator.specs == NULL)
        status = tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for the tensors' names", path);
    for (size_t i = 0; status == TAP_OK && i < generator.n; i++) {
        tap_hamer_tensor *tensor = &generator.tensors[i];
        tap_hamer_tensor_at(tensor, config, i);
        generator.specs[i] = (tap_tensor_spec){.name = tensor->name, .rank = tensor->rank};
        memcpy(generator.specs[i].shape, tensor->shape, sizeof tensor->shape);
    }
    if (status == TAP_OK)
        status =
            tap_safetensors_write(path, generator.specs, generator.n, metadata,
                                  sizeof metadata / sizeof *metadata, fill_tensor, &generator, err);
    free(generator.tensors);
    free(generator.specs);
    return status;
}
