/* The synthetic weights are, byte for byte, those of the reference data. */
#include "models/arrays.h"

#include "models/models.h"

static void remove_file(const char *path)
{
    assert_int_equal(unlink(path), 0);
}

static void check_tensor(const tap_tensor *tensor, json_object *wanted)
{
    char hex[65];
    json_object *shape = json_at(wanted, "shape"), *first = json_at(wanted, "first");
    assert_int_equal(tensor->dtype, TAP_DTYPE_F32);
    assert_int_equal(tensor->rank, json_object_array_length(shape));
    for (size_t i = 0; i < tensor->rank; i++)
        assert_int_equal(tensor->shape[i],
                         json_object_get_int64(json_object_array_get_idx(shape, i)));
    for (size_t i = 0; i < 4; i++) {
        float value;
        memcpy(&value, tensor->data + 4 * i, 4);
        assert_true((double)value == json_object_get_double(json_object_array_get_idx(first, i)));
    }
    sha256_hex(hex, tensor->data, tensor->n_elements * 4);
    assert_string_equal(hex, json_object_get_string(json_at(wanted, "sha256")));
}

static void every_tensor_has_the_reference_hash(void **state)
{
    (void)state;
    char path[] = "/tmp/tapetum_synth_XXXXXX";
    tap_weights *weights;
    tap_error err;
    json_object *file = load_json(GOLDEN "synthetic_weights.json");
    json_object *tensors = json_at(file, "tensors");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_ok(tap_synth_superpoint(path, &err), err);
    assert_ok(tap_weights_open(&weights, path, &err), err);
    assert_int_equal(tap_weights_count(weights), 24);
    assert_int_equal(json_object_object_length(tensors), 24);
    json_object_object_foreach(tensors, name, wanted)
    {
        const tap_tensor *tensor = tap_weights_find(weights, name);
        if (tensor == NULL)
            fail_msg("no tensor %s", name);
        check_tensor(tensor, wanted);
    }
    tap_weights_close(weights);
    json_object_put(file);
    remove_file(path);
}

/* The published network's figures: 1,300,865 parameters, 26.05 GMAC at 640 x 480. */
static void the_synthetic_file_is_the_published_network(void **state)
{
    (void)state;
    char path[] = "/tmp/tapetum_synth_XXXXXX";
    tap_weights *weights;
    tap_superpoint *model;
    tap_plan *plan;
    tap_error err;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_ok(tap_synth_superpoint(path, &err), err);
    assert_ok(tap_weights_open(&weights, path, &err), err);
    assert_ok(tap_superpoint_create(&model, weights, NULL, &err), err);
    tap_weights_close(weights);
    remove_file(path);
    assert_int_equal(tap_superpoint_parameters(model), 1300865);
    assert_int_equal(tap_superpoint_descriptor_dim(model), 256);
    assert_ok(tap_superpoint_plan(model, 640, 480, true, &plan, &err), err);
    uint64_t macs = 0;
    for (size_t i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].kind == TAP_OP_CONV)
            macs += tap_plan_macs(plan, &plan->ops[i]);
    assert_true(macs > 26045000000 && macs < 26055000000);
    tap_shape scores = plan->shapes[plan->outputs[0]], map = plan->shapes[plan->outputs[1]];
    assert_true(scores.height == 480 && scores.width == 640 && scores.channels == 1);
    assert_true(map.height == 60 && map.width == 80 && map.channels == 256);
    tap_plan_free(plan);
    tap_superpoint_free(model);
}

static void a_folder_that_is_not_there_is_an_error(void **state)
{
    (void)state;
    tap_error err;
    assert_int_not_equal(tap_synth_superpoint("/nonexistent/folder/x.safetensors", &err), TAP_OK);
    assert_non_null(strstr(err.message, "/nonexistent/folder"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_has_the_reference_hash),
        cmocka_unit_test(the_synthetic_file_is_the_published_network),
        cmocka_unit_test(a_folder_that_is_not_there_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
