/* Bytes as a safetensors file. Every tensor that is accepted lies in the file and can be read. */
#include "weights/weights.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tap_weights *weights;
    tap_error err;
    if (tap_safetensors_parse(&weights, data, size, "fuzz", &err) != TAP_OK)
        return 0;
    for (size_t i = 0; i < tap_weights_count(weights); i++) {
        const tap_tensor *tensor = tap_weights_at(weights, i);
        if (tensor->n_elements > size || tap_weights_find(weights, tensor->name) != tensor)
            abort();
        float *values = malloc(tensor->n_elements * sizeof *values + 1);
        if (values != NULL)
            (void)tap_tensor_to_f32(tensor, "fuzz", values, &err);
        free(values);
    }
    tap_weights_close(weights);
    return 0;
}
