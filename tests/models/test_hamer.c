/* HaMeR's network on the `tiny` synthetic weights, stage by stage, against the authors' code. The
 * tolerances are the reference data's noise between float32 and float64, times three. */
#include "models/hands.h"

#include "models/models.h"

#include <math.h>

/* An operation's output becomes one of the plan's as well. */
static void output_of(tap_plan *plan, const char *op)
{
    for (size_t i = 0; i < plan->n_ops; i++)
        if (strcmp(plan->ops[i].name, op) == 0) {
            tap_plan_output(plan, plan->ops[i].output);
            return;
        }
    fail_msg("no operation %s", op);
}

static void check_network(const tap_weights *weights)
{
    static const struct {
        const char *op, *file;
    } stages[] = {{"backbone.patch_embed.proj", "tiny_tokens.npy"},
                  {"backbone.blocks.0.mlp.fc2", "tiny_block0.npy"},
                  {"backbone.blocks.1.mlp.fc2", "tiny_block1.npy"},
                  {"backbone.last_norm", "tiny_features.npy"},
                  {"mano_head.transformer.transformer.layers.1.2.fn.net.3", "tiny_head_token.npy"}};
    enum { N_STAGES = sizeof stages / sizeof *stages };
    tap_hamer *model;
    tap_plan *plan;
    tap_error err;
    float *outputs[1 + N_STAGES];
    assert_ok(tap_hamer_create(&model, weights, &err), err);
    assert_ok(tap_hamer_read(model, &err), err);
    assert_memory_equal(tap_hamer_describe(model), &tap_hamer_tiny, sizeof tap_hamer_tiny);
    assert_ok(tap_hamer_plan(model, N_CROPS, &plan, &err), err);
    for (size_t i = 0; i < N_STAGES; i++)
        output_of(plan, stages[i].op);
    for (size_t i = 0; i < plan->n_outputs; i++)
        outputs[i] = malloc(tap_plan_elements(plan, plan->outputs[i]) * sizeof(float));
    float *crops = load_crops();
    const float *inputs[] = {crops};
    assert_ok(tap_reference_run(plan, inputs, outputs, &err), err);
    for (size_t i = 0; i < N_STAGES; i++) {
        tap_buffer buffer = plan->outputs[1 + i];
        size_t n = tap_plan_elements(plan, buffer) / N_CROPS;
        compare_crops(outputs[1 + i], n, n, stages[i].file, 6e-6);
    }
    compare_outputs(outputs[0], "tiny", 1e-6);
    for (size_t i = 0; i < plan->n_outputs; i++)
        free(outputs[i]);
    free(crops);
    tap_plan_free(plan);
    tap_hamer_free(model);
}

static void a_checkpoint_gives_the_authors_numbers(void **state)
{
    (void)state;
    char path[300];
    tap_weights *weights;
    tap_error err;
    hamer_path(path, sizeof path, "tiny.ckpt");
    /* Its configuration objects are refused where only tensors are expected. */
    assert_fails(tap_weights_open(&weights, path, &err), TAP_ERR_UNSUPPORTED, err, "yacs");
    assert_ok(tap_weights_open_checkpoint(&weights, path, &err), err);
    check_network(weights);
    tap_weights_close(weights);
}

static void synthetic_weights_are_the_generators(void **state)
{
    (void)state;
    char path[300];
    json_object *file = load_json(hamer_path(path, sizeof path, "generator.json"));
    json_object *tensors = json_at(file, "tiny");
    tap_weights *weights = open_synthetic(&tap_hamer_tiny);
    size_t n = json_object_array_length(tensors);
    assert_int_equal(n + 3, tap_weights_count(weights)); /* the mean parameters are apart */
    for (size_t i = 0; i < n; i++) {
        json_object *wanted = json_object_array_get_idx(tensors, i);
        const char *name = json_object_get_string(json_at(wanted, "name"));
        const tap_tensor *tensor = tap_weights_find(weights, name);
        if (tensor == NULL)
            fail_msg("no tensor %s", name);
        const float *values = (const void *)tensor->data;
        double sum = 0;
        for (size_t j = 0; j < tensor->n_elements; j++)
            sum += values[j];
        if (fabs(sum - json_number(wanted, "sum")) > 1e-9 * (double)tensor->n_elements ||
            (double)values[tensor->n_elements - 1] != json_number(wanted, "last") ||
            (double)values[0] !=
                json_object_get_double(json_object_array_get_idx(json_at(wanted, "first"), 0)))
            fail_msg("%s differs", name);
    }
    check_network(weights);
    tap_weights_close(weights);
    json_object_put(file);
}

/* 670,409,946 floats, 125,547,302,912 multiply-adds (both of the paper's network), less what is
 * worked out at load. */
static void the_full_network_has_the_published_size(void **state)
{
    (void)state;
    uint64_t n_values = 0;
    size_t n = tap_hamer_n_tensors(&tap_hamer_full);
    assert_int_equal(n, 503);
    for (size_t i = 0; i < n; i++) {
        tap_hamer_tensor tensor;
        uint64_t product = 1;
        tap_hamer_tensor_at(&tensor, &tap_hamer_full, i);
        for (size_t j = 0; j < tensor.rank; j++)
            product *= tensor.shape[j];
        n_values += product;
    }
    assert_int_equal(n_values, 670409946);
}

/* A tiny HaMeR with one fault: tensor `missing` left out, `wide` with one column more, `bad` with a
 * NaN at its end; SIZE_MAX: none. */
struct faults {
    size_t missing, wide, bad;
};

struct faulty {
    tap_hamer_tensor tensors[200];
    tap_tensor_spec specs[200];
    size_t n, bad;
};

static void fill_faulty(void *user, size_t tensor, size_t first, size_t n, float *dst)
{
    const struct faulty *faulty = user;
    size_t n_elements = 1;
    for (size_t i = 0; i < faulty->specs[tensor].rank; i++)
        n_elements *= faulty->specs[tensor].shape[i];
    for (size_t i = 0; i < n; i++)
        dst[i] = tensor == faulty->bad && first + i + 1 == n_elements ? NAN : 0.5f;
}

static tap_weights *open_faulty(const struct faults *faults)
{
    char path[] = "/tmp/tapetum_hamer_XXXXXX";
    struct faulty *faulty = calloc(1, sizeof *faulty);
    tap_weights *weights;
    tap_error err;
    int fd = mkstemp(path);
    assert_true(fd >= 0 && faulty != NULL);
    close(fd);
    faulty->bad = SIZE_MAX;
    for (size_t i = 0; i < tap_hamer_n_tensors(&tap_hamer_tiny); i++) {
        tap_hamer_tensor *tensor = &faulty->tensors[faulty->n];
        tap_hamer_tensor_at(tensor, &tap_hamer_tiny, i);
        if (i == faults->missing)
            continue;
        if (i == faults->bad)
            faulty->bad = faulty->n;
        tensor->shape[tensor->rank - 1] += i == faults->wide;
        tap_tensor_spec *spec = &faulty->specs[faulty->n++];
        *spec = (tap_tensor_spec){.name = tensor->name, .rank = tensor->rank};
        memcpy(spec->shape, tensor->shape, sizeof tensor->shape);
    }
    assert_ok(
        tap_safetensors_write(path, faulty->specs, faulty->n, NULL, 0, fill_faulty, faulty, &err),
        err);
    assert_ok(tap_weights_open(&weights, path, &err), err);
    assert_int_equal(unlink(path), 0);
    free(faulty);
    return weights;
}

/* Each of the 80 or so tensors missing, misshapen, with a NaN: an error that names it. */
static void every_fault_names_its_tensor(void **state)
{
    (void)state;
    size_t n = tap_hamer_n_tensors(&tap_hamer_tiny);
    for (size_t i = 0; i < 3 * n; i++) {
        struct faults faults = {SIZE_MAX, SIZE_MAX, SIZE_MAX};
        *(i % 3 == 0 ? &faults.missing : i % 3 == 1 ? &faults.wide : &faults.bad) = i / 3;
        tap_weights *weights = open_faulty(&faults);
        tap_hamer_tensor tensor;
        tap_hamer *model = (void *)&tensor;
        tap_error err;
        tap_hamer_tensor_at(&tensor, &tap_hamer_tiny, i / 3);
        tap_status status = tap_hamer_create(&model, weights, &err);
        if (status != TAP_OK && model != NULL)
            fail_msg("%s, fault %zu: half a model", tensor.name, i % 3);
        if (status == TAP_OK) { /* the values are not looked at before */
            status = tap_hamer_read(model, &err);
            tap_hamer_free(model);
        }
        /* A tensor that a size is read from may leave none to be had, or another number of them, or
         * make its neighbours wrong. */
        if (status == TAP_ERR_FORMAT && i % 3 == 2 && strstr(err.message, tensor.name) == NULL)
            fail_msg("%s: \"%s\"", tensor.name, err.message);
        if (status != TAP_ERR_FORMAT && status != TAP_ERR_UNSUPPORTED)
            fail_msg("%s, fault %zu: %s", tensor.name, i % 3, tap_status_name(status));
        tap_weights_close(weights);
    }
    struct faults one = {tap_hamer_block(1) + TAP_BLOCK_FC2_BIAS, SIZE_MAX, SIZE_MAX};
    tap_weights *weights = open_faulty(&one);
    tap_hamer *model;
    tap_error err;
    assert_fails(tap_hamer_create(&model, weights, &err), TAP_ERR_FORMAT, err,
                 "'backbone.blocks.1.mlp.fc2.bias' is missing");
    tap_weights_close(weights);
}

static void another_model_is_refused(void **state)
{
    (void)state;
    tap_weights *weights;
    tap_hamer *model;
    tap_error err;
    char path[] = "/tmp/tapetum_other_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_ok(tap_synth_superpoint(path, &err), err);
    assert_ok(tap_weights_open(&weights, path, &err), err);
    assert_int_equal(unlink(path), 0);
    assert_fails(tap_hamer_create(&model, weights, &err), TAP_ERR_UNSUPPORTED, err, "not a HaMeR");
    tap_weights_close(weights);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_checkpoint_gives_the_authors_numbers),
                                       cmocka_unit_test(synthetic_weights_are_the_generators),
                                       cmocka_unit_test(the_full_network_has_the_published_size),
                                       cmocka_unit_test(every_fault_names_its_tensor),
                                       cmocka_unit_test(another_model_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
