/* AVX2 with FMA: 8 floats, a 6 x 16 block in 12 of 16 registers. */
#include <immintrin.h>

enum { VL = 8, MR = 6 };
typedef __m256 vec;

#define load(p)        _mm256_loadu_ps(p)
#define store(p, v)    _mm256_storeu_ps(p, v)
#define set1(x)        _mm256_set1_ps(x)
#define add(a, b)      _mm256_add_ps(a, b)
#define sub(a, b)      _mm256_sub_ps(a, b)
#define mul(a, b)      _mm256_mul_ps(a, b)
#define max(a, b)      _mm256_max_ps(a, b)
#define madd(a, b, c)  _mm256_fmadd_ps(a, b, c)
#define nmadd(a, b, c) _mm256_fnmadd_ps(a, b, c)
#define keep(v)        __asm__("" : "+x"(v))
#define round_even(v)  _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

static inline vec exp2_int(vec n)
{
    __m256i bits = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 23));
}

#define TABLE tap_kernels_avx2
#define NAME  "avx2"
#include "kernels.inc"
