/* hand_box: box to square. Pavlakos et al.'s demo and the model's server differ in one rule. */
#include "hand.h"

#include <math.h>

tap_status tap_hand_region_of(tap_hand_region *region, const float box[4], size_t number,
                              double rescale_factor, tap_hand_policy policy, tap_error *err)
{
    static const char *const names[4] = {"x1", "y1", "x2", "y2"};
    for (int i = 0; i < 4; i++)
        if (!isfinite(box[i]))
            return tap_fail(err, TAP_ERR_ARGUMENT,
                            "box %zu: %s is %g; x1, y1, x2, y2 must be finite pixels", number,
                            names[i], (double)box[i]);
    const double x1 = box[0], y1 = box[1], x2 = box[2], y2 = box[3];
    if (x2 <= x1 || y2 <= y1)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "box %zu [%g, %g, %g, %g]: %s; give the left, top, right and bottom edge",
                        number, x1, y1, x2, y2,
                        x2 <= x1 ? "x2 must be greater than x1" : "y2 must be greater than y1");
    if (!(rescale_factor > 0) || !isfinite(rescale_factor))
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "rescale_factor is %g, and must be finite and positive (2 by default)",
                        rescale_factor);
    double width = rescale_factor * (x2 - x1), height = rescale_factor * (y2 - y1);
    if (policy == TAP_HAND_DEMO)
        width = width * 256 / 192; /* the side of the smallest 192:256 box around it */
    double side = width > height ? width : height;
    if (!(side >= 1) || !isfinite(side))
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "box %zu [%g, %g, %g, %g]: times rescale_factor %g it is %g pixels wide; "
                        "a finite size of at least 1 is needed",
                        number, x1, y1, x2, y2, rescale_factor, side);
    *region = (tap_hand_region){(x1 + x2) / 2, (y1 + y2) / 2, side};
    return TAP_OK;
}

tap_hand_region tap_hand_region_center(uint32_t width, uint32_t height)
{
    return (tap_hand_region){width / 2.0, height / 2.0, width < height ? width : height};
}
