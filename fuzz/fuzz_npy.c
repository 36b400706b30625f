/* Bytes as an NPY array. One that is accepted lies in the file and can be read. */
#include "weights/weights.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tap_tensor tensor;
    tap_error err;
    if (tap_npy_parse(&tensor, data, size, "fuzz", &err) != TAP_OK)
        return 0;
    if (tensor.n_elements > size)
        abort();
    float *values = malloc(tensor.n_elements * sizeof *values + 1);
    if (values != NULL)
        (void)tap_tensor_to_f32(&tensor, "fuzz", values, &err);
    free(values);
    return 0;
}
