/* Bytes as what training wrote: as the file, and as the pickle in its zip (whose CRCs keep a fuzzer
 * from it) with every storage there, of zeros. What is accepted is offered to HaMeR, which makes a
 * small network of it or an error, and takes no memory for what is not there. */
#include "file.h"
#include "models/models.h"
#include "weights/pytorch.h"

enum { MAX_STORAGE = 4 << 20, MAX_PARAMETERS = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void plan(const tap_hamer *model)
{
    tap_plan *plan;
    tap_error err;
    if (tap_hamer_plan(model, 2, &plan, &err) == TAP_OK)
        tap_plan_free(plan);
    if (tap_hamer_gate_plan(model, &plan, &err) == TAP_OK)
        tap_plan_free(plan);
}

static void offer(const tap_weights *weights)
{
    tap_hamer *model;
    tap_error err;
    if (tap_hamer_create(&model, weights, &err) != TAP_OK)
        return;
    if (tap_hamer_parameters(model) <= MAX_PARAMETERS && tap_hamer_read(model, &err) == TAP_OK) {
        plan(model);
        tap_hamer_forget(model);
    }
    tap_hamer_free(model);
}

static void read_file(const uint8_t *data, size_t size)
{
    char path[FUZZ_PATH];
    tap_weights *weights;
    tap_error err;
    int fd = fuzz_file(path, data, size);
    if (tap_weights_open_checkpoint(&weights, path, &err) == TAP_OK) {
        offer(weights);
        tap_weights_close(weights);
    }
    close(fd);
}

static tap_status find(void *context, const tap_torch_reference *reference, const uint8_t **data,
                       tap_error *err)
{
    static const uint8_t zeros[MAX_STORAGE];
    (void)context;
    *data = zeros;
    return reference->n_bytes <= MAX_STORAGE ? TAP_OK : tap_fail(err, TAP_ERR_LIMIT, "a storage");
}

static void run_pickle(const uint8_t *data, size_t size)
{
    tap_pickle pickle;
    tap_weights *weights;
    tap_error err;
    if (tap_pickle_run(&pickle, data, size, &tap_torch_checkpoint_policy, "fuzz", 0, &err) !=
        TAP_OK)
        return;
    if (tap_weights_create(&weights, "fuzz", "pickle", &err) == TAP_OK &&
        tap_torch_collect(weights, pickle.result, find, NULL, &err) == TAP_OK)
        offer(weights);
    tap_weights_close(weights);
    tap_pickle_free(&pickle);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_file(data, size);
    run_pickle(data, size);
    return 0;
}
