/* hand_camera: the network's weak-perspective camera (s, tx, ty) of a 256-pixel crop, in which a
 * point's pixel is 128 + 128 s (x + tx), as a place before a perspective camera. All in double, so
 * that what is rounded is only the answer. */
#include "hand.h"

#include <math.h>

static const double focal_length = 5000, crop_side = 256;

tap_hand_camera tap_hand_camera_assumed(uint32_t width, uint32_t height)
{
    double f = focal_length / crop_side * (width > height ? width : height);
    return (tap_hand_camera){f, f, width / 2.0, height / 2.0};
}

tap_status tap_hand_camera_check(const tap_hand_camera *camera, tap_error *err)
{
    static const char *const names[4] = {"fx", "fy", "cx", "cy"};
    const double values[4] = {camera->fx, camera->fy, camera->cx, camera->cy};
    for (int i = 0; i < 4; i++)
        if (!isfinite(values[i]) || (i < 2 && values[i] <= 0))
            return tap_fail(err, TAP_ERR_ARGUMENT, "camera: %s is %g, and must be finite%s",
                            names[i], values[i], i < 2 ? " and positive" : "");
    return TAP_OK;
}

/* A divisor that may come out as 0 for a hand that is none. */
static double not_zero(double value)
{
    return value == 0 ? 1e-9 : value;
}

void tap_hand_crop_translation(float translation[3], const float cam[3])
{
    translation[0] = cam[1];
    translation[1] = cam[2];
    translation[2] = (float)(2 * focal_length / not_zero(crop_side * (double)cam[0] + 1e-9));
}

void tap_hand_translation(float translation[3], const float cam[3], const tap_hand_region *region,
                          const tap_hand_camera *camera, bool is_right)
{
    double f = camera->fx == camera->fy ? camera->fx : sqrt(camera->fx * camera->fy);
    double k = not_zero(region->side * (double)cam[0] + 1e-9);
    double tx = is_right ? cam[1] : -cam[1], ty = cam[2];
    translation[0] = (float)((2 * (region->center_x - camera->cx) / k + tx) * (f / camera->fx));
    translation[1] = (float)((2 * (region->center_y - camera->cy) / k + ty) * (f / camera->fy));
    translation[2] = (float)(2 * f / k);
}

void tap_hand_project(float *xy, const float *xyz, size_t n, const float translation[3],
                      const tap_hand_camera *camera)
{
    for (size_t i = 0; i < n; i++, xyz += 3, xy += 2) {
        double z = not_zero((double)xyz[2] + translation[2]);
        xy[0] = (float)(camera->fx * ((double)xyz[0] + translation[0]) / z + camera->cx);
        xy[1] = (float)(camera->fy * ((double)xyz[1] + translation[1]) / z + camera->cy);
    }
}

void tap_hand_project_crop(float *xy, const float *xyz, size_t n, const float translation[3])
{
    const tap_hand_camera crop = {focal_length / crop_side, focal_length / crop_side, 0, 0};
    tap_hand_project(xy, xyz, n, translation, &crop);
}

void tap_hand_affine(float *xy, const float *crop_xy, size_t n, const tap_hand_region *region,
                     bool is_right)
{
    double sign = is_right ? 1 : -1;
    for (size_t i = 0; i < n; i++) {
        xy[2 * i] = (float)(region->center_x + sign * region->side * crop_xy[2 * i]);
        xy[2 * i + 1] = (float)(region->center_y + region->side * crop_xy[2 * i + 1]);
    }
}
