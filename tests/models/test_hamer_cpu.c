/* HaMeR's network on the CPU backend, against the authors' code: `tiny` on every instruction set
 * this CPU runs and any number of threads, `full` once. */
#include "models/hands.h"

#include "cpu/cpu.h"

#include <stdlib.h>

/* The reference data's README: `full` in float32 with another order of summing may be 1e-4 off; the
 * issue wants 2e-5. */
static const double tiny_tolerance = 3e-6, full_tolerance = 2e-5;

struct machine {
    tap_pool *pool;
    tap_backend_state *state;
};

/* False where this CPU can't run the instruction set. */
static bool open_machine(struct machine *machine, const char *isa, size_t n_threads)
{
    tap_error err;
    assert_ok(tap_pool_create(&machine->pool, n_threads, &err), err);
    tap_backend_options options = {.isa = isa, .pool = machine->pool};
    if (tap_cpu_backend.open(&machine->state, &options, &err) == TAP_OK)
        return true;
    assert_int_equal(err.status, TAP_ERR_UNSUPPORTED);
    tap_pool_free(machine->pool);
    return false;
}

static void close_machine(struct machine *machine)
{
    tap_cpu_backend.close(machine->state);
    tap_pool_free(machine->pool);
}

/* Outputs [N_CROPS][109] of the two crops, which go through one program one after the other, or
 * through one of both at once. */
static void run(float *outputs, const struct machine *machine, const tap_hamer *model,
                const char *precision, size_t at_once)
{
    tap_plan *plan;
    tap_program *program;
    tap_program_info info;
    tap_error err;
    const tap_compile_options options = {.precision = precision};
    float *crops = load_crops();
    assert_ok(tap_hamer_plan(model, at_once, &plan, &err), err);
    assert_ok(tap_cpu_backend.compile(machine->state, plan, &options, &program, &err), err);
    tap_plan_free(plan);
    tap_cpu_backend.inspect(program, &info);
    void *scratch = tap_alloc(info.scratch_bytes, 1);
    for (size_t i = 0; i < N_CROPS; i += at_once) {
        const float *inputs[] = {crops + i * N_CROP_VALUES};
        float *to[] = {outputs + i * TAP_HAMER_OUTPUTS};
        assert_ok(tap_cpu_backend.run(program, scratch, inputs, to, NULL, &err), err);
    }
    tap_cpu_backend.free_program(program);
    free(scratch);
    free(crops);
}

static void tiny_gives_the_authors_numbers_everywhere(void **state)
{
    static const char *const isas[] = {"scalar", "avx2", "avx512", "avx512vnni", "amx", "neon"};
    (void)state;
    tap_error err;
    tap_hamer *model;
    char path[300];
    hamer_path(path, sizeof path, "tiny_rot6d.npy");
    tap_weights *weights = open_synthetic(&tap_hamer_tiny);
    assert_ok(tap_hamer_create(&model, weights, &err), err);
    assert_ok(tap_hamer_read(model, &err), err);
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        float first[N_CROPS * TAP_HAMER_OUTPUTS], again[N_CROPS * TAP_HAMER_OUTPUTS];
        for (size_t n_threads = 1; n_threads <= 3; n_threads++) {
            struct machine machine;
            if (!open_machine(&machine, isas[i], n_threads))
                break;
            run(n_threads == 1 ? first : again, &machine, model, "f32", n_threads == 2 ? 2 : 1);
            close_machine(&machine);
            if (n_threads > 1)
                assert_memory_equal(again, first, sizeof first);
            else
                printf("%s: ", isas[i]);
            if (n_threads == 3)
                compare_outputs(first, "tiny", tiny_tolerance);
        }
    }
    tap_hamer_free(model);
    tap_weights_close(weights);
}

/* A sanitizer's or a debug build takes minutes for the full network, and sees no code there that
 * the small one and the products' tests do not run too. */
#if defined(__SANITIZE_ADDRESS__) || !defined(NDEBUG)
enum { SLOW = 1 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
enum { SLOW = 1 };
#else
enum { SLOW = 0 };
#endif
#else
enum { SLOW = 0 };
#endif

/* Of each crop's 109 numbers with the reference's. */
static void check_correlation(const float *outputs, const char *precision, double least)
{
    static const struct {
        const char *file;
        size_t first, n;
    } parts[] = {{"full_rot6d.npy", 0, TAP_HAMER_POSE},
                 {"full_betas.npy", TAP_HAMER_POSE, TAP_HAMER_BETAS},
                 {"full_cam.npy", TAP_HAMER_POSE + TAP_HAMER_BETAS, TAP_HAMER_CAMERA}};
    float reference[N_CROPS * TAP_HAMER_OUTPUTS];
    char path[300];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct array part = load_npy(hamer_path(path, sizeof path, parts[i].file));
        assert_int_equal(part.n, N_CROPS * parts[i].n);
        for (size_t j = 0; j < part.n; j++)
            reference[j / parts[i].n * TAP_HAMER_OUTPUTS + parts[i].first + j % parts[i].n] =
                part.values[j];
        free_array(&part);
    }
    for (size_t i = 0; i < N_CROPS; i++) {
        double r = tap_correlation(outputs + i * TAP_HAMER_OUTPUTS,
                                   reference + i * TAP_HAMER_OUTPUTS, TAP_HAMER_OUTPUTS);
        printf("%s, crop %zu: correlation %.7f\n", precision, i, r);
        if (!(r >= least))
            fail_msg("%s, crop %zu: correlation %.7f is less than %g", precision, i, r, least);
    }
}

static void full_gives_the_authors_numbers(void **state)
{
    (void)state;
    struct machine machine;
    tap_error err;
    tap_hamer *model;
    float outputs[N_CROPS * TAP_HAMER_OUTPUTS];
    char path[300];
    if (SLOW) {
        printf("SKIP the full network: a sanitizer's or a debug build\n");
        skip();
    }
    hamer_path(path, sizeof path, "full_rot6d.npy");
    tap_weights *weights = open_synthetic(&tap_hamer_full);
    assert_ok(tap_hamer_create(&model, weights, &err), err);
    assert_ok(tap_hamer_read(model, &err), err);
    assert_true(open_machine(&machine, NULL, tap_cpus_allowed(NULL, 0)));
    run(outputs, &machine, model, "f32", 1);
    compare_outputs(outputs, "full", full_tolerance);
    run(outputs, &machine, model, "f16", 1);
    check_correlation(outputs, "f16", 0.99999);
    run(outputs, &machine, model, "int8", 1);
    check_correlation(outputs, "int8", 0.9999);
    close_machine(&machine);
    tap_hamer_free(model);
    tap_weights_close(weights);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny_gives_the_authors_numbers_everywhere),
        cmocka_unit_test(full_gives_the_authors_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
