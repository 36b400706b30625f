#include "kernels.h"

#include <stdio.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

const tap_kernels *tap_kernels_at(size_t i)
{
    static const tap_kernels *const tables[] = {
#if defined(__x86_64__)
#if defined(TAPETUM_AMX)
        &tap_kernels_amx,
#endif
        &tap_kernels_vnni,
        &tap_kernels_avx512,
        &tap_kernels_avx2,
#elif defined(__aarch64__)
        &tap_kernels_neon,
#endif
        &tap_kernels_scalar,
    };
    return i < sizeof tables / sizeof *tables ? tables[i] : NULL;
}

#if defined(__x86_64__)
/* CPUID leaf 1, ECX bit 29. Clang's __builtin_cpu_supports has no name for it. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

bool tap_kernels_runnable(const tap_kernels *kernels)
{
#if defined(__x86_64__)
    /* These checks include the operating system's support for the registers. */
    if (kernels == &tap_kernels_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
#if defined(TAPETUM_AMX)
    if (kernels == &tap_kernels_amx)
        return tap_kernels_runnable(&tap_kernels_vnni) && tap_amx_usable();
#endif
    if (kernels == &tap_kernels_vnni)
        return tap_kernels_runnable(&tap_kernels_avx512) && __builtin_cpu_supports("avx512vnni");
    if (kernels == &tap_kernels_avx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
#endif
    return kernels != NULL;
}

static void fill_gaps(tap_kernels *all, const tap_kernels *from)
{
#define FILL(entry)           \
    if ((all->entry) == NULL) \
    (all->entry) = from->entry
    FILL(gemm);
    FILL(winograd_input);
    FILL(winograd_output);
    FILL(winograd_output_pool);
    FILL(direct);
    FILL(bias);
    FILL(softmax);
    FILL(l2_norm);
    FILL(finish);
    FILL(layer_norm);
    FILL(widen);
    FILL(strassen_weights);
    FILL(strassen_combine);
    FILL(bytes);
#undef FILL
}

tap_kernels tap_kernels_complete(const tap_kernels *table)
{
    tap_kernels all = *table;
    for (const tap_kernels *base = table->base; base != NULL; base = base->base)
        fill_gaps(&all, base);
    fill_gaps(&all, &tap_kernels_scalar);
    return all;
}

/* The isa whose entry this is, after the tables' order. */
#define OWNER(table, entry)                                              \
    do {                                                                 \
        owner = &tap_kernels_scalar;                                     \
        for (const tap_kernels *at = (table); at != NULL; at = at->base) \
            if (at->entry != NULL) {                                     \
                owner = at;                                              \
                break;                                                   \
            }                                                            \
    } while (0)

void tap_kernels_print(const tap_kernels *table, char *text, size_t size)
{
    const tap_kernels *owner;
    size_t used = 0;
#define PRINT(name, entry) \
    OWNER(table, entry);   \
    if (used < size)       \
    used += (size_t)snprintf(text + used, size - used, "%-32s %s\n", name, owner->isa)
    PRINT("conv3x3 winograd input", winograd_input);
    PRINT("conv3x3 winograd output", winograd_output);
    PRINT("conv3x3 winograd output + pool", winograd_output_pool);
    PRINT("conv3x3 direct, few channels", direct);
    PRINT("matrix product", gemm);
    PRINT("bias + relu", bias);
    PRINT("softmax", softmax);
    PRINT("l2 norm", l2_norm);
    PRINT("bias + gelu + residual", finish);
    PRINT("layer norm", layer_norm);
    PRINT("half floats", widen);
    PRINT("strassen sums", strassen_weights);
    PRINT("8-bit products", bytes);
#undef PRINT
}
