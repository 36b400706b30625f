#include "kernels.h"

#include <stdio.h>

const tap_kernels *tap_kernels_at(size_t i)
{
    static const tap_kernels *const tables[] = {
#if defined(__x86_64__)
        &tap_kernels_avx512,
        &tap_kernels_avx2,
#elif defined(__aarch64__)
        &tap_kernels_neon,
#endif
        &tap_kernels_scalar,
    };
    return i < sizeof tables / sizeof *tables ? tables[i] : NULL;
}

bool tap_kernels_runnable(const tap_kernels *kernels)
{
#if defined(__x86_64__)
    /* These checks include the operating system's support for the registers. */
    if (kernels == &tap_kernels_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
    if (kernels == &tap_kernels_avx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return kernels != NULL;
}

tap_kernels tap_kernels_complete(const tap_kernels *table)
{
    tap_kernels all = *table;
    const tap_kernels *portable = &tap_kernels_scalar;
#define FILL(entry)          \
    if ((all.entry) == NULL) \
    (all.entry) = portable->entry
    FILL(gemm);
    FILL(winograd_input);
    FILL(winograd_output);
    FILL(winograd_output_pool);
    FILL(direct);
    FILL(bias);
    FILL(softmax);
    FILL(l2_norm);
#undef FILL
    return all;
}

void tap_kernels_print(const tap_kernels *table, char *text, size_t size)
{
    const struct {
        const char *name;
        bool own;
    } entries[] = {
        {"conv3x3 winograd input", table->winograd_input != NULL},
        {"conv3x3 winograd output", table->winograd_output != NULL},
        {"conv3x3 winograd output + pool", table->winograd_output_pool != NULL},
        {"conv3x3 direct, few channels", table->direct != NULL},
        {"matrix product", table->gemm != NULL},
        {"bias + relu", table->bias != NULL},
        {"softmax", table->softmax != NULL},
        {"l2 norm", table->l2_norm != NULL},
    };
    size_t used = 0;
    for (size_t i = 0; i < sizeof entries / sizeof *entries && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%-32s %s\n", entries[i].name,
                                 entries[i].own ? table->isa : tap_kernels_scalar.isa);
}
