#include "check.h"

#include "net/net.h"

static const float zeros[64 * 64 * 9];

static tap_conv conv_of(size_t out, size_t kernel, bool pool)
{
    return (tap_conv){zeros, zeros, out, kernel, .relu = true, .pool = pool};
}

static void shapes_follow_the_operations(void **state)
{
    (void)state;
    tap_plan *plan;
    tap_error err;
    assert_ok(tap_plan_create(&plan, &err), err);
    tap_buffer x = tap_plan_input(plan, (tap_shape){16, 24, 1});
    tap_conv pooled = conv_of(64, 3, true), head = conv_of(65, 1, false);
    tap_buffer a = tap_plan_conv(plan, x, "a", &pooled);
    tap_buffer logits = tap_plan_conv(plan, a, "head", &head);
    tap_buffer scores = tap_plan_cell_softmax(plan, logits, "softmax", 8);
    tap_buffer unit = tap_plan_l2_norm(plan, a, "norm");
    tap_plan_output(plan, scores);
    tap_plan_output(plan, unit);
    assert_ok(tap_plan_finish(plan, &err), err);
    assert_int_equal(tap_plan_elements(plan, a), 8 * 12 * 64);
    assert_int_equal(tap_plan_elements(plan, scores), 64 * 96);
    assert_int_equal(tap_plan_elements(plan, unit), 8 * 12 * 64);
    assert_int_equal(tap_plan_macs(plan, &plan->ops[0]), 16 * 24 * 64 * 9);
    assert_int_equal(tap_plan_macs(plan, &plan->ops[1]), 8 * 12 * 64 * 65);
    assert_int_equal(tap_plan_last_use(plan, a), 3);
    assert_int_equal(tap_plan_last_use(plan, logits), 2);
    assert_int_equal(tap_plan_last_use(plan, scores), 4);
    char *text;
    assert_ok(tap_plan_print(plan, &text, &err), err);
    assert_non_null(strstr(text, "conv3x3+relu+pool  [16, 24, 1] -> [8, 12, 64]"));
    assert_non_null(strstr(text, "4 operations, 0.6 MMAC"));
    free(text);
    tap_plan_free(plan);
}

/* Builds one wrong operation and returns what finish says. */
static tap_status finish_wrong(int which, tap_error *err)
{
    tap_plan *plan;
    assert_ok(tap_plan_create(&plan, err), *err);
    tap_buffer x = tap_plan_input(plan, (tap_shape){7, 8, 64}), y = x;
    tap_conv conv = conv_of(8, 3, which == 0);
    if (which == 1)
        conv.kernel = 5;
    if (which == 2)
        conv.weight = NULL;
    if (which <= 2)
        y = tap_plan_conv(plan, x, "wrong", &conv);
    if (which == 3)
        y = tap_plan_cell_softmax(plan, x, "wrong", 8);
    if (which == 4)
        y = tap_plan_l2_norm(plan, 17, "wrong");
    if (which == 5)
        y = tap_plan_input(plan, (tap_shape){SIZE_MAX / 4, 8, 64});
    if (which == 6)
        y = tap_plan_similarity(plan, x, x, "wrong");
    /* Nothing after the first failure changes what is reported. */
    y = tap_plan_l2_norm(plan, y, "later");
    if (which != 7)
        tap_plan_output(plan, y);
    tap_status status = tap_plan_finish(plan, err);
    tap_plan_free(plan);
    return status;
}

static void the_first_failure_is_reported(void **state)
{
    (void)state;
    tap_error err;
    assert_fails(finish_wrong(0, &err), TAP_ERR_ARGUMENT, err, "wrong: pooling needs even sides");
    assert_fails(finish_wrong(1, &err), TAP_ERR_UNSUPPORTED, err, "wrong: a 5x5 convolution");
    assert_fails(finish_wrong(2, &err), TAP_ERR_UNSUPPORTED, err, "wrong: a 3x3 convolution");
    assert_fails(finish_wrong(3, &err), TAP_ERR_ARGUMENT, err, "65 channels, has 64");
    assert_fails(finish_wrong(4, &err), TAP_ERR_INTERNAL, err, "no buffer of this plan");
    assert_fails(finish_wrong(5, &err), TAP_ERR_LIMIT, err, "does not fit a plan");
    assert_fails(finish_wrong(6, &err), TAP_ERR_ARGUMENT, err, "wrong: rows of");
    assert_fails(finish_wrong(7, &err), TAP_ERR_INTERNAL, err, "no output");
}

static void a_plan_has_a_ceiling(void **state)
{
    (void)state;
    tap_plan *plan;
    tap_error err;
    assert_ok(tap_plan_create(&plan, &err), err);
    tap_buffer x = tap_plan_input(plan, (tap_shape){1, 1, 1});
    for (int i = 0; i < TAP_PLAN_MAX_OPS + 5; i++)
        x = tap_plan_l2_norm(plan, x, "again");
    assert_int_equal(x, -1);
    assert_fails(tap_plan_finish(plan, &err), TAP_ERR_LIMIT, err, "more than 512 operations");
    tap_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_follow_the_operations),
        cmocka_unit_test(the_first_failure_is_reported),
        cmocka_unit_test(a_plan_has_a_ceiling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
