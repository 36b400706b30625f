/* AVX-512F: 16 floats, a 12 x 16 block. */
#include <immintrin.h>

enum { VL = 16, MR = 12 };
typedef __m512 vec;

#define load(p)        _mm512_loadu_ps(p)
#define store(p, v)    _mm512_storeu_ps(p, v)
#define set1(x)        _mm512_set1_ps(x)
#define add(a, b)      _mm512_add_ps(a, b)
#define sub(a, b)      _mm512_sub_ps(a, b)
#define mul(a, b)      _mm512_mul_ps(a, b)
#define max(a, b)      _mm512_max_ps(a, b)
#define madd(a, b, c)  _mm512_fmadd_ps(a, b, c)
#define nmadd(a, b, c) _mm512_fnmadd_ps(a, b, c)
#define keep(v)        __asm__("" : "+v"(v))
#define round_even(v)  _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

static inline vec exp2_int(vec n)
{
    __m512i bits = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 23));
}

#define TABLE tap_kernels_avx512
#define NAME  "avx512"
#include "kernels.inc"
