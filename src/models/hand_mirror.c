/* hand_mirror: what becomes of a left hand, which the network saw as a right one; its rotations;
 * and the lid on its wrist. */
#include "hand.h"

#include <math.h>

const uint32_t tap_hand_wrist[TAP_HAND_WRIST][3] = {
    {92, 38, 234},   {234, 38, 239},  {38, 122, 239},  {239, 122, 279}, {122, 118, 279},
    {279, 118, 215}, {118, 117, 215}, {215, 117, 214}, {117, 119, 214}, {214, 119, 121},
    {119, 120, 121}, {121, 120, 78},  {120, 108, 78},  {78, 108, 79}};

void tap_hand_mirror_points(float *xyz, size_t n)
{
    for (size_t i = 0; i < n; i++)
        xyz[3 * i] = -xyz[3 * i];
}

void tap_hand_mirror_faces(uint32_t *faces, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t second = faces[3 * i + 1];
        faces[3 * i + 1] = faces[3 * i + 2];
        faces[3 * i + 2] = second;
    }
}

void tap_hand_mirror_rotation(float rotation[9])
{
    static const int changing[4] = {1, 2, 3, 6};
    for (int i = 0; i < 4; i++)
        rotation[changing[i]] = -rotation[changing[i]];
}

/* By way of the quaternion, from its largest component (Shepperd, "Quaternion from rotation
 * matrix", J. Guidance and Control 1, 1978): no divisor is small, and atan2 is exact near 0 and pi.
 */
void tap_hand_axis_angle(float vector[3], const float rotation[9])
{
    const double trace = (double)rotation[0] + rotation[4] + rotation[8];
    double w, axis[3];
    int most = rotation[4] > rotation[0] ? 1 : 0;
    most = rotation[8] > rotation[4 * most] ? 2 : most;
    if (trace > rotation[4 * most]) {
        double root = sqrt(1 + trace), share = 0.5 / root;
        w = 0.5 * root;
        axis[0] = share * ((double)rotation[7] - rotation[5]);
        axis[1] = share * ((double)rotation[2] - rotation[6]);
        axis[2] = share * ((double)rotation[3] - rotation[1]);
    } else {
        int i = most, j = (i + 1) % 3, k = (i + 2) % 3;
        double root = sqrt(fmax(0, 1 + 2 * (double)rotation[4 * i] - trace));
        double share = root > 0 ? 0.5 / root : 0;
        axis[i] = 0.5 * root;
        axis[j] = share * ((double)rotation[3 * i + j] + rotation[3 * j + i]);
        axis[k] = share * ((double)rotation[3 * i + k] + rotation[3 * k + i]);
        w = share * ((double)rotation[3 * k + j] - rotation[3 * j + k]);
    }
    double sine = sqrt(axis[0] * axis[0] + axis[1] * axis[1] + axis[2] * axis[2]);
    /* The quaternion and its opposite are one rotation: take the one of the smaller angle. */
    double angle = w < 0 ? -2 * atan2(sine, -w) : 2 * atan2(sine, w);
    double scale = sine > 0 ? angle / sine : 2;
    for (int i = 0; i < 3; i++)
        vector[i] = (float)(scale * axis[i]);
}
