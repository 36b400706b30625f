/* hand_rotation: six numbers to a rotation. */
#include "hand.h"

#include <math.h>

/* v / max(|v|, 1e-12) */
static void normalize(float to[3], const float v[3])
{
    float length = sqrtf(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    for (int i = 0; i < 3; i++)
        to[i] = v[i] / fmaxf(length, 1e-12f);
}

void tap_hand_rotation_6d(float rotation[9], const float six[6])
{
    float first[3], second[3], rest[3];
    normalize(first, six);
    float along = first[0] * six[3] + first[1] * six[4] + first[2] * six[5];
    for (int i = 0; i < 3; i++)
        rest[i] = six[3 + i] - along * first[i];
    normalize(second, rest);
    for (int i = 0; i < 3; i++) {
        int j = (i + 1) % 3, k = (i + 2) % 3;
        rotation[3 * i] = first[i];
        rotation[3 * i + 1] = second[i];
        rotation[3 * i + 2] = first[j] * second[k] - first[k] * second[j];
    }
}
