/* NEON (AArch64): 4 floats, a 6 x 16 block in 24 of 32 registers. */
#include <arm_neon.h>

enum { VL = 4, MR = 6 };
typedef float32x4_t vec;

#define load(p)        vld1q_f32(p)
#define store(p, v)    vst1q_f32(p, v)
#define set1(x)        vdupq_n_f32(x)
#define add(a, b)      vaddq_f32(a, b)
#define sub(a, b)      vsubq_f32(a, b)
#define mul(a, b)      vmulq_f32(a, b)
#define max(a, b)      vmaxq_f32(a, b)
#define madd(a, b, c)  vfmaq_f32(c, a, b)
#define nmadd(a, b, c) vfmsq_f32(c, a, b)
#define keep(v)        __asm__("" : "+w"(v))
#define round_even(v)  vrndnq_f32(v)

static inline vec exp2_int(vec n)
{
    int32x4_t bits = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
    return vreinterpretq_f32_s32(vshlq_n_s32(bits, 23));
}

#define TABLE tap_kernels_neon
#define NAME  "neon"
#include "kernels.inc"
