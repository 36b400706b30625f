/* Predictions against ground truth. */
#include "api.h"

#include <math.h>
#include <string.h>

static tap_status check_points(const char *name, const float *points, size_t n_hands,
                               size_t n_points, tap_error *err)
{
    if (points == NULL)
        return tap_fail(err, TAP_ERR_ARGUMENT, "%s: is NULL", name);
    for (size_t i = 0; i < n_hands * n_points * 3; i++)
        if (!isfinite(points[i]))
            return tap_fail(err, TAP_ERR_ARGUMENT,
                            "%s: hand %zu, point %zu holds a value that is not finite", name,
                            i / 3 / n_points, i / 3 % n_points);
    return TAP_OK;
}

tap_status tap_hand_evaluate(const float *predicted, const float *truth, size_t n_hands,
                             size_t n_points, tap_hand_errors *errors, tap_error *err)
{
    tap_hand_errors own = {.size = sizeof own, .n_hands = n_hands};
    size_t size = errors->size, n;
    if (size < sizeof size || size > sizeof own)
        return tap_fail(err, TAP_ERR_ARGUMENT, "tap_hand_errors: size is not set");
    if (n_hands == 0 || n_points < 3)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "%zu hands of %zu points: at least one hand of three points is needed",
                        n_hands, n_points);
    if (!tap_size_mul(n_hands, n_points, &n) || !tap_size_mul(n, 3 * sizeof(float), &n))
        return tap_fail(err, TAP_ERR_LIMIT, "%zu hands of %zu points: too many", n_hands, n_points);
    TAP_TRY(check_points("predicted", predicted, n_hands, n_points, err));
    TAP_TRY(check_points("truth", truth, n_hands, n_points, err));
    for (size_t i = 0; i < n_hands; i++) {
        double aligned, fitted;
        tap_hand_distances(&aligned, &fitted, predicted + i * n_points * 3,
                           truth + i * n_points * 3, n_points);
        own.mpjpe_mm += 1000 * aligned / (double)n_hands;
        own.pa_mpjpe_mm += 1000 * fitted / (double)n_hands;
    }
    memcpy(errors, &own, size);
    errors->size = size;
    return TAP_OK;
}
