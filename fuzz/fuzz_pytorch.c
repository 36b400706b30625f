/* Bytes as a PyTorch file of either format, and as the pickle in one, run under both policies (a
 * zip's CRCs keep a fuzzer from its pickle). Every tensor that is accepted can be read. */
#include "weights/unpickle.h"
#include "weights/weights.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_file(const uint8_t *data, size_t size)
{
    tap_weights *weights;
    tap_error err;
    if (tap_pytorch_parse(&weights, data, size, "fuzz", &err) != TAP_OK)
        return;
    for (size_t i = 0; i < tap_weights_count(weights); i++) {
        const tap_tensor *tensor = tap_weights_at(weights, i);
        if (tensor->n_elements > size)
            abort();
        float *values = malloc(tensor->n_elements * sizeof *values + 1);
        if (values != NULL)
            (void)tap_tensor_to_f32(tensor, "fuzz", values, &err);
        free(values);
    }
    tap_weights_close(weights);
}

static void run_pickle(const uint8_t *data, size_t size, bool keep_foreign)
{
    static const tap_pickle_global globals[] = {
        {"collections", "OrderedDict", TAP_PICKLE_MAKES_DICT, 0},
        {"builtins", "set", TAP_PICKLE_MAKES_LIST, 0},
        {"torch", "FloatStorage", TAP_PICKLE_MAKES_NOTHING, 0},
        {"torch._utils", "_rebuild_tensor_v2", TAP_PICKLE_MAKES_OBJECT, 0}};
    tap_pickle_policy policy = {.globals = globals,
                                .n_globals = sizeof globals / sizeof *globals,
                                .keep_foreign = keep_foreign,
                                .advice = "do without it",
                                .writers = "PyTorch's files"};
    tap_pickle pickle;
    tap_error err;
    if (tap_pickle_run(&pickle, data, size, &policy, "fuzz", 0, &err) != TAP_OK)
        return;
    if (pickle.consumed > size || pickle.result == NULL)
        abort();
    if (pickle.result->kind == TAP_PICKLE_DICT)
        (void)tap_pickle_get(pickle.result, "state_dict");
    tap_pickle_free(&pickle);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_file(data, size);
    run_pickle(data, size, false);
    run_pickle(data, size, true);
    return 0;
}
