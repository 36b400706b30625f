/* Bytes as a dictionary of arrays: a pickle as NumPy writes it, or a .npz. Every array that is
 * accepted is within bounds and can be read. */
#include "weights/weights.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 64 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_array(const tap_tensor *tensor)
{
    tap_error err;
    size_t width = tap_dtype_size(tensor->dtype), last = 0;
    uint8_t element[8];
    if (tensor->n_elements > MAX_BYTES / width)
        abort();
    for (size_t d = 0; d < tensor->rank; d++)
        last += tensor->n_elements > 0 ? (tensor->shape[d] - 1) * tensor->strides[d] : 0;
    if (tensor->n_elements > 0) { /* the address sanitizer looks on */
        if (last >= tensor->n_elements)
            abort();
        memcpy(element, tensor->data, width);
        memcpy(element, tensor->data + last * width, width);
    }
    float *values = malloc(tensor->n_elements * sizeof *values + 1);
    if (values != NULL)
        (void)tap_tensor_to_f32(tensor, "fuzz", values, &err);
    free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tap_weights *weights;
    tap_error err;
    if (tap_arrays_parse(&weights, data, size, "fuzz", &err) != TAP_OK)
        return 0;
    for (size_t i = 0; i < tap_weights_count(weights); i++)
        read_array(tap_weights_at(weights, i));
    tap_weights_close(weights);
    return 0;
}
