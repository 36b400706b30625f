/* What the programs of tests/cpu share. They are plain programs, since cmocka isn't there for
 * every architecture that they are cross-compiled to. */
#ifndef TAP_TESTS_CPU_PROBE_H
#define TAP_TESTS_CPU_PROBE_H

#include "cpu/cpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Counts and reports a check that failed; the program goes on. */
#define CHECK(condition, ...)                                               \
    do {                                                                    \
        if (!(condition)) {                                                 \
            printf("%s:%d: %s is false: ", __FILE__, __LINE__, #condition); \
            printf(__VA_ARGS__);                                            \
            printf("\n");                                                   \
            probe_failures++;                                               \
        }                                                                   \
    } while (0)

extern int probe_failures;

/* n reproducible values in [-1, 1), another series for every seed; from malloc. */
float *probe_values(size_t n, uint64_t seed);

/* n floats with canaries in front and behind, filled with NaN of another kind. */
float *probe_guarded(size_t n);
/* Whether the canaries of a guarded block of n floats are whole. */
bool probe_guards_whole(const float *block, size_t n);
void probe_guarded_free(float *block);

/* The backend, or NULL with a line "SKIP avx512: not on this CPU". */
tap_backend_state *probe_open(const char *isa, tap_pool *pool);

/* The instruction sets by name; NULL after the last. */
extern const char *const probe_isas[];

/* Largest |a - b|, and the first place where one is NaN and the other isn't counts as infinity. */
double probe_distance(const float *a, const float *b, size_t n);

#endif
