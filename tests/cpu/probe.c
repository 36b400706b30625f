#include "probe.h"

int probe_failures;
const char *const probe_isas[] = {"scalar", "avx2", "avx512", "avx512vnni", "amx", "neon", NULL};

enum { GUARD = 32 };
static const uint32_t canary = 0x7fc0beef, unwritten = 0x7fc0dead;

float *probe_values(size_t n, uint64_t seed)
{
    float *values = malloc((n + 1) * sizeof *values);
    for (size_t i = 0; values != NULL && i < n; i++) {
        int64_t high = (int64_t)(tap_splitmix64(seed, i + 1) >> 40);
        values[i] = (float)(high - (1 << 23)) / (float)(1 << 23);
    }
    return values;
}

float *probe_guarded(size_t n)
{
    uint32_t *block = malloc((n + 2 * GUARD) * sizeof *block);
    if (block == NULL)
        abort();
    for (size_t i = 0; i < n + 2 * GUARD; i++)
        block[i] = i < GUARD || i >= n + GUARD ? canary : unwritten;
    return (float *)(void *)(block + GUARD);
}

bool probe_guards_whole(const float *block, size_t n)
{
    for (size_t i = 0; i < GUARD; i++)
        if (memcmp(block - 1 - i, &canary, sizeof canary) != 0 ||
            memcmp(block + n + i, &canary, sizeof canary) != 0)
            return false;
    return true;
}

void probe_guarded_free(float *block)
{
    if (block != NULL)
        free(block - GUARD);
}

tap_backend_state *probe_open(const char *isa, tap_pool *pool)
{
    tap_backend_state *state;
    tap_error err;
    tap_backend_options options = {.isa = isa, .pool = pool};
    tap_status status = tap_cpu_backend.open(&state, &options, &err);
    if (status == TAP_ERR_UNSUPPORTED) {
        printf("SKIP %s: not on this CPU\n", isa);
        return NULL;
    }
    CHECK(status == TAP_OK, "%s: %s", isa, err.message);
    return state;
}

double probe_distance(const float *a, const float *b, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        double distance = fabs((double)a[i] - (double)b[i]);
        if (isnan(a[i]) != isnan(b[i]))
            return INFINITY;
        if (distance > most)
            most = distance;
    }
    return most;
}
