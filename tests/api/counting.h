/* Our allocations, counted, one of them failing on demand: a test that links counting.c with the
 * options of CMakeLists.txt sends them all here. */
#ifndef TAP_TESTS_COUNTING_H
#define TAP_TESTS_COUNTING_H

#include <stdatomic.h>
#include <stddef.h>

extern _Atomic size_t n_allocations;
extern _Atomic size_t fail_at; /* the allocation that fails, counted from 1; 0: none */

#endif
