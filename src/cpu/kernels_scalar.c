/* Portable C: four floats in a struct, which any compiler keeps in whatever it has. Products and
 * sums are rounded one by one, so its results differ from the other tables' in the last bits. */
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { VL = 4, MR = 4 };
typedef struct vec {
    float lane[VL];
} vec;

static inline vec load(const float *p)
{
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void store(float *p, vec v)
{
    memcpy(p, &v, sizeof v);
}

#define LANES(expression)           \
    vec out;                        \
    for (int i = 0; i < VL; i++)    \
        out.lane[i] = (expression); \
    return out

static inline vec set1(float x)
{
    LANES(x);
}

static inline vec add(vec a, vec b)
{
    LANES(a.lane[i] + b.lane[i]);
}

static inline vec sub(vec a, vec b)
{
    LANES(a.lane[i] - b.lane[i]);
}

static inline vec mul(vec a, vec b)
{
    LANES(a.lane[i] * b.lane[i]);
}

static inline vec max(vec a, vec b)
{
    LANES(a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]);
}

static inline vec madd(vec a, vec b, vec c)
{
    LANES(a.lane[i] * b.lane[i] + c.lane[i]);
}

static inline vec nmadd(vec a, vec b, vec c)
{
    LANES(c.lane[i] - a.lane[i] * b.lane[i]);
}

static inline vec round_even(vec v)
{
    LANES(nearbyintf(v.lane[i]));
}

static inline float power_of_two(float n)
{
    uint32_t bits = (uint32_t)((int32_t)n + 127) << 23;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline vec exp2_int(vec n)
{
    LANES(power_of_two(n.lane[i]));
}

#define keep(v) (void)0

#define TABLE tap_kernels_scalar
#define NAME  "scalar"
#include "kernels.inc"
