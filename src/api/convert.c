/* A model file to a clean one: its needed tensors alone. */
#include "api.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct conversion {
    const tap_weights *weights;
    const tap_tensor **tensors;
    tap_tensor_spec *specs;
    size_t n, at; /* the tensor whose values are in values, plus one */
    float *values;
    tap_progress_callback progress;
    void *progress_user;
    uint64_t done, total;
};

/* False: stop. */
static bool tell(struct conversion *conversion, const char *what, size_t n_elements)
{
    conversion->done += n_elements * sizeof(float);
    return conversion->progress == NULL ||
           conversion->progress(conversion->progress_user, what, conversion->done,
                                conversion->total);
}

/* Every value is looked at before the first is written, so that writing cannot fail for one. */
static tap_status check_values(struct conversion *conversion, bool half, tap_error *err)
{
    const char *file = tap_weights_file(conversion->weights);
    for (size_t i = 0; i < conversion->n; i++) {
        const tap_tensor *tensor = conversion->tensors[i];
        TAP_TRY(tap_tensor_to_f32(tensor, file, conversion->values, err));
        for (size_t j = 0; half && j < tensor->n_elements; j++)
            if (!isfinite(tap_f16_to_f32(tap_f32_to_f16(conversion->values[j]))))
                return tap_fail(err, TAP_ERR_ARGUMENT,
                                "%s: tensor %s: element %zu is %g, more than f16 holds; write f32",
                                file, tensor->name, j, (double)conversion->values[j]);
        if (!tell(conversion, "checking", tensor->n_elements))
            return tap_fail(err, TAP_ERR_CANCELLED, "%s: stopped, as was asked", file);
    }
    return TAP_OK;
}

static void fill(void *user, size_t tensor, size_t first, size_t n, float *dst)
{
    struct conversion *conversion = user;
    const tap_tensor *from = conversion->tensors[tensor];
    tap_error ignored; /* it was read before */
    if (conversion->at != tensor + 1) {
        tap_tensor_to_f32(from, tap_weights_file(conversion->weights), conversion->values,
                          &ignored);
        conversion->at = tensor + 1;
    }
    memcpy(dst, conversion->values + first, n * sizeof *dst);
    (void)tell(conversion, "writing", n); /* too late to stop */
}

/* HaMeR's needed tensors; a SuperPoint's file holds no other. */
static tap_status choose(struct conversion *conversion, bool hands, bool half, tap_error *err)
{
    size_t most = 0, n = 0;
    const tap_hamer_config *config = NULL;
    tap_hamer *hamer = NULL;
    if (hands) {
        TAP_TRY(tap_hamer_create(&hamer, conversion->weights, err));
        config = tap_hamer_describe(hamer);
    }
    conversion->n = hands ? tap_hamer_n_tensors(config) : tap_weights_count(conversion->weights);
    conversion->tensors = calloc(conversion->n + 1, sizeof(const tap_tensor *));
    conversion->specs = calloc(conversion->n + 1, sizeof *conversion->specs);
    for (size_t i = 0;
         conversion->tensors != NULL && conversion->specs != NULL && i < conversion->n; i++) {
        tap_hamer_tensor named;
        const tap_tensor *tensor = tap_weights_at(conversion->weights, i);
        if (hands) {
            tap_hamer_tensor_at(&named, config, i);
            tensor = tap_weights_find(conversion->weights, named.name);
        }
        tap_tensor_spec *spec = &conversion->specs[i];
        *spec = (tap_tensor_spec){.name = tensor->name, .rank = tensor->rank, .half = half};
        memcpy(spec->shape, tensor->shape, sizeof spec->shape);
        conversion->tensors[i] = tensor;
        conversion->total += 2 * tensor->n_elements * sizeof(float);
        most = tensor->n_elements > most ? tensor->n_elements : most;
        n++;
    }
    tap_hamer_free(hamer);
    if (n == conversion->n)
        conversion->values = tap_alloc(most, sizeof(float));
    return conversion->values != NULL ? TAP_OK
                                      : tap_fail(err, TAP_ERR_MEMORY, "out of memory to convert");
}

/* Renaming would replace what is being read. */
static bool is_same_file(const char *a, const char *b)
{
    struct stat first, second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

tap_status tap_model_convert(const char *from, const char *to, const char *dtype,
                             tap_progress_callback progress, void *progress_user, tap_error *err)
{
    static const char *const metadata[] = {"format", "pt"};
    bool half = dtype != NULL && strcmp(dtype, "f16") == 0, hands;
    struct conversion conversion = {.progress = progress, .progress_user = progress_user};
    tap_weights *weights;
    if (dtype != NULL && !half && strcmp(dtype, "f32") != 0)
        return tap_fail(err, TAP_ERR_ARGUMENT, "dtype '%s': is not one of f32, f16", dtype);
    if (from == NULL || from[0] == '\0' || to == NULL || to[0] == '\0')
        return tap_fail(err, TAP_ERR_ARGUMENT, "%s: is empty; name a file",
                        from == NULL || from[0] == '\0' ? "from" : "to");
    TAP_TRY(tap_model_open(&weights, &hands, from, NULL, err));
    conversion.weights = weights;
    tap_status status = TAP_OK;
    if (is_same_file(tap_weights_file(weights), to))
        status = tap_fail(err, TAP_ERR_ARGUMENT, "%s: is the file that is read; name another", to);
    if (status == TAP_OK && !hands)
        status = tap_model_check_points(weights, err);
    if (status == TAP_OK)
        status = choose(&conversion, hands, half, err);
    if (status == TAP_OK)
        status = check_values(&conversion, half, err);
    if (status == TAP_OK)
        status = tap_safetensors_write(to, conversion.specs, conversion.n, metadata, 2, fill,
                                       &conversion, err);
    free(conversion.values);
    free(conversion.specs);
    free(conversion.tensors);
    tap_weights_close(weights);
    return status;
}
