/* cpu: the backend for any CPU. Its door is one table; see net/net.h for the verbs. */
#ifndef TAP_CPU_H
#define TAP_CPU_H

#include "net/net.h"

extern const tap_backend tap_cpu_backend;

#endif
