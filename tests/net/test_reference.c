/* The reference executor against results worked out by hand: everything else is compared with it,
 * and the golden sets (tests/models) compare it with another program. */
#include "check.h"

#include "net/net.h"

#include <math.h>

/* Runs one plan of one or two inputs and one output. */
static void run(const tap_plan *plan, const float *x, const float *second, float *y)
{
    tap_error err;
    assert_ok(tap_plan_finish(plan, &err), err);
    const float *inputs[] = {x, second};
    float *outputs[] = {y};
    assert_ok(tap_reference_run(plan, inputs, outputs, &err), err);
}

static tap_plan *new_plan(void)
{
    tap_plan *plan;
    tap_error err;
    assert_ok(tap_plan_create(&plan, &err), err);
    return plan;
}

/* One channel, 2x3 pixels, weights 1..9: each output is the sum over the window by hand. */
static void a_convolution_is_a_cross_correlation_with_zeros_outside(void **state)
{
    (void)state;
    const float x[] = {1, 2, 3, 4, 5, 6}, weight[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, bias[] = {0.5f};
    float y[6];
    tap_plan *plan = new_plan();
    tap_conv conv = {weight, bias, 1, 3, .relu = false, .pool = false};
    tap_plan_output(plan,
                    tap_plan_conv(plan, tap_plan_input(plan, (tap_shape){2, 3, 1}), "c", &conv));
    run(plan, x, NULL, y);
    /* x(0,0) is under the centre weight 5, so (0,0) is 1*5 + 2*6 + 4*8 + 5*9; and so on. */
    const float by_hand[] = {
        1 * 5 + 2 * 6 + 4 * 8 + 5 * 9,
        1 * 4 + 2 * 5 + 3 * 6 + 4 * 7 + 5 * 8 + 6 * 9,
        2 * 4 + 3 * 5 + 5 * 7 + 6 * 8,
        1 * 2 + 2 * 3 + 4 * 5 + 5 * 6,
        1 * 1 + 2 * 2 + 3 * 3 + 4 * 4 + 5 * 5 + 6 * 6,
        2 * 1 + 3 * 2 + 5 * 4 + 6 * 5,
    };
    for (size_t i = 0; i < 6; i++)
        assert_true(y[i] == by_hand[i] + 0.5f);
    tap_plan_free(plan);
}

/* Two channels in, two out, 1x1: o0 = x0 - x1, o1 = 10 x0 + x1 - 1, then ReLU and 2x2 maximum. */
static void channels_mix_then_relu_then_pool(void **state)
{
    (void)state;
    const float x[] = {1, 2, 3, 1, 0, 0, 5, 4}, weight[] = {1, -1, 10, 1}, bias[] = {0, -1};
    float y[2];
    tap_plan *plan = new_plan();
    tap_conv conv = {weight, bias, 2, 1, .relu = true, .pool = true};
    tap_plan_output(plan,
                    tap_plan_conv(plan, tap_plan_input(plan, (tap_shape){2, 2, 2}), "c", &conv));
    run(plan, x, NULL, y);
    assert_true(y[0] == 2 && y[1] == 53);
    const float dark[] = {0, 5, 0, 5, 0, 5, 0, 5};
    run(plan, dark, NULL, y);
    assert_true(y[0] == 0 && y[1] == 4);
    tap_plan_free(plan);
}

/* Cells of 2x2: logits ln 1, ln 2, ln 3, ln 4 and a dustbin of ln 10 give 0.05, 0.1, 0.15, 0.2. */
static void cells_unfold_by_rows_and_drop_the_dustbin(void **state)
{
    (void)state;
    float x[10], y[8];
    for (size_t cell = 0; cell < 2; cell++)
        for (size_t i = 0; i < 5; i++) /* the second cell is shifted by 90: the same softmax */
            x[cell * 5 + i] = logf(i < 4 ? (float)i + 1 : 10) + 90 * (float)cell;
    tap_plan *plan = new_plan();
    tap_plan_output(
        plan, tap_plan_cell_softmax(plan, tap_plan_input(plan, (tap_shape){1, 2, 5}), "s", 2));
    run(plan, x, NULL, y);
    const float wanted[] = {0.05f, 0.1f, 0.05f, 0.1f, 0.15f, 0.2f, 0.15f, 0.2f};
    for (size_t i = 0; i < 8; i++)
        assert_true(fabsf(y[i] - wanted[i]) < 2e-6f);
    tap_plan_free(plan);
}

static void vectors_get_unit_length_and_zero_stays_zero(void **state)
{
    (void)state;
    const float x[] = {3, 4, 0, 0};
    float y[4];
    tap_plan *plan = new_plan();
    tap_plan_output(plan, tap_plan_l2_norm(plan, tap_plan_input(plan, (tap_shape){1, 2, 2}), "n"));
    run(plan, x, NULL, y);
    assert_true(y[0] == 0.6f && y[1] == 0.8f && y[2] == 0 && y[3] == 0);
    tap_plan_free(plan);
}

static void similarity_is_every_row_by_every_row(void **state)
{
    (void)state;
    const float a[] = {1, 2, 3, 4}, b[] = {1, 0, 0, 1, 1, 1};
    float y[6];
    const float wanted[] = {1, 2, 3, 3, 4, 7};
    tap_plan *plan = new_plan();
    tap_buffer rows_a = tap_plan_input(plan, (tap_shape){1, 2, 2});
    tap_buffer rows_b = tap_plan_input(plan, (tap_shape){1, 3, 2});
    tap_plan_output(plan, tap_plan_similarity(plan, rows_a, rows_b, "m"));
    run(plan, a, b, y);
    for (size_t i = 0; i < 6; i++)
        assert_true(y[i] == wanted[i]);
    tap_plan_free(plan);
}

static void correlation_knows_its_edges(void **state)
{
    (void)state;
    const float a[] = {1, 2, 3}, b[] = {2, 4, 6}, c[] = {3, 2, 1}, flat[] = {1, 1, 1};
    const float other[] = {2, 2, 2}, broken[] = {1, NAN, 3};
    assert_true(fabs(tap_correlation(a, b, 3) - 1) < 1e-12);
    assert_true(fabs(tap_correlation(a, c, 3) + 1) < 1e-12);
    assert_true(tap_correlation(flat, flat, 3) == 1);
    assert_true(tap_correlation(flat, other, 3) == 0);
    assert_true(tap_correlation(flat, a, 3) == 0);
    assert_true(isnan(tap_correlation(a, broken, 3)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_convolution_is_a_cross_correlation_with_zeros_outside),
        cmocka_unit_test(channels_mix_then_relu_then_pool),
        cmocka_unit_test(cells_unfold_by_rows_and_drop_the_dustbin),
        cmocka_unit_test(vectors_get_unit_length_and_zero_stays_zero),
        cmocka_unit_test(similarity_is_every_row_by_every_row),
        cmocka_unit_test(correlation_knows_its_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
