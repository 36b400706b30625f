#include "fma_peak.h"

#include <string.h>

enum { SUMS = 12, ROUNDS = 20000 };

/* Twelve sums that depend on nothing but themselves hide the latency of any of them. Written as
 * assembly, since compilers fold, spill or reorder such a loop as they like. */
typedef void (*loop_fn)(void);

#define TWELVE(one)                                                                           \
    one("0") one("1") one("2") one("3") one("4") one("5") one("6") one("7") one("8") one("9") \
        one("10") one("11")

#if defined(__x86_64__)
#define CLOBBERS                                                                             \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
        "xmm11", "xmm12", "cc"
#define CLEAR(i)   "vxorps %%ymm" i ", %%ymm" i ", %%ymm" i "\n"
#define FMA_256(i) "vfmadd231ps %%ymm12, %%ymm12, %%ymm" i "\n"
#define FMA_512(i) "vfmadd231ps %%zmm12, %%zmm12, %%zmm" i "\n"
#define MUL_128(i) "mulps %%xmm12, %%xmm" i "\n"

static void loop_256(void)
{
    long rounds = ROUNDS;
    __asm__ volatile(TWELVE(CLEAR) CLEAR("12") "1:\n" TWELVE(FMA_256) "dec %0\njnz 1b\n"
                                                                      "vzeroupper\n"
                     : "+r"(rounds)
                     :
                     : CLOBBERS);
}

static void loop_512(void)
{
    long rounds = ROUNDS;
    __asm__ volatile(TWELVE(CLEAR) CLEAR("12") "1:\n" TWELVE(FMA_512) "dec %0\njnz 1b\n"
                                                                      "vzeroupper\n"
                     : "+r"(rounds)
                     :
                     : CLOBBERS);
}

/* SSE2 has no FMA: a multiplication and an addition for each. */
#define PAIR_128(i)  MUL_128(i) "addps %%xmm12, %%xmm" i "\n"
#define CLEAR_128(i) "xorps %%xmm" i ", %%xmm" i "\n"

static void loop_128(void)
{
    long rounds = ROUNDS;
    __asm__ volatile(TWELVE(CLEAR_128) CLEAR_128("12") "1:\n" TWELVE(PAIR_128) "dec %0\njnz 1b\n"
                     : "+r"(rounds)
                     :
                     : CLOBBERS);
}
#elif defined(__aarch64__)
#define FMA_128(i) "fmla v" i ".4s, v12.4s, v12.4s\n"

static void loop_128(void)
{
    long rounds = ROUNDS;
    __asm__ volatile("1:\n" TWELVE(FMA_128) "subs %0, %0, #1\nb.ne 1b\n"
                     : "+r"(rounds)
                     :
                     : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11",
                       "v12", "cc");
}
#endif

struct peak {
    loop_fn loop;
    double ms;
    double operations[256];
};

static void peak_item(void *context, size_t item, size_t worker)
{
    struct peak *peak = context;
    double start = tap_clock_ms(), rounds = 0, lanes = 4;
    (void)worker;
#if defined(__x86_64__)
    lanes = peak->loop == loop_512 ? 16 : peak->loop == loop_256 ? 8 : 4;
#endif
    double end = start;
    while ((end = tap_clock_ms()) - start < peak->ms) {
        peak->loop();
        rounds++;
    }
    peak->operations[item] = rounds * ROUNDS * SUMS * lanes * 2 / (end - start) * 1e-6;
}

double bench_fma_peak(tap_pool *pool, const char *isa, double ms)
{
    struct peak peak = {.loop = loop_128, .ms = ms};
#if defined(__x86_64__)
    if (strcmp(isa, "avx2") == 0)
        peak.loop = loop_256;
    if (strcmp(isa, "avx512") == 0)
        peak.loop = loop_512;
#else
    (void)isa;
#endif
    double sum = 0;
    size_t n = tap_pool_threads(pool);
    tap_pool_run(pool, n, peak_item, &peak);
    for (size_t i = 0; i < n; i++)
        sum += peak.operations[i];
    return sum;
}
