/* The thermometer: how many multiply-adds this machine gives right now. */
#ifndef TAP_BENCH_FMA_PEAK_H
#define TAP_BENCH_FMA_PEAK_H

#include "core/core.h"

/* 10^9 floating-point operations a second (a multiply-add is two) of a loop of independent FMAs in
 * registers, on all the pool's threads at once, for about ms milliseconds. With AVX2 or AVX-512 as
 * isa says; 128-bit vectors otherwise. */
double bench_fma_peak(tap_pool *pool, const char *isa, double ms);

#endif
