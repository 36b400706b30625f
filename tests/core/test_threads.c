#include "check.h"

#include "core/core.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

struct counted {
    _Atomic unsigned *items;
    _Atomic bool worker_out_of_range;
    size_t n_threads;
};

static void count(void *context, size_t item, size_t worker)
{
    struct counted *counted = context;
    atomic_fetch_add(&counted->items[item], 1);
    if (worker >= counted->n_threads)
        atomic_store(&counted->worker_out_of_range, true);
}

static void check_runs(tap_pool *pool, size_t n_runs)
{
    enum { MAX_ITEMS = 300 };
    for (size_t run = 0; run < n_runs; run++) {
        _Atomic unsigned items[MAX_ITEMS] = {0};
        struct counted counted = {.items = items, .n_threads = tap_pool_threads(pool)};
        size_t n = run % MAX_ITEMS;
        tap_pool_run(pool, n, count, &counted);
        for (size_t i = 0; i < MAX_ITEMS; i++)
            assert_int_equal(items[i], i < n);
        assert_false(counted.worker_out_of_range);
    }
}

static void every_item_runs_once(void **state)
{
    (void)state;
    for (size_t n_threads = 1; n_threads <= 8; n_threads++) {
        tap_pool *pool;
        tap_error err;
        assert_ok(tap_pool_create(&pool, n_threads, &err), err);
        assert_int_equal(tap_pool_threads(pool), n_threads);
        check_runs(pool, 600);
        tap_pool_free(pool);
    }
}

static void *run_from_another_thread(void *pool)
{
    check_runs(pool, 300);
    return NULL;
}

static void callers_take_turns(void **state)
{
    (void)state;
    tap_pool *pool;
    tap_error err;
    pthread_t threads[4];
    assert_ok(tap_pool_create(&pool, 3, &err), err);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_from_another_thread, pool), 0);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    tap_pool_free(pool);
}

static void counts_out_of_range_are_refused(void **state)
{
    (void)state;
    tap_pool *pool;
    tap_error err;
    assert_fails(tap_pool_create(&pool, 0, &err), TAP_ERR_ARGUMENT, err, "1..256");
    assert_fails(tap_pool_create(&pool, 257, &err), TAP_ERR_ARGUMENT, err, "1..256");
    tap_pool_free(NULL);
}

static void allowed_cpus_follow_the_affinity(void **state)
{
    (void)state;
    cpu_set_t old, one;
    char reason[64];
    size_t before = tap_cpus_allowed(reason, sizeof reason);
    assert_true(before >= 1 && reason[0] != '\0');
    assert_int_equal(sched_getaffinity(0, sizeof old, &old), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &old))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(tap_cpus_allowed(NULL, 0), 1);
    sched_setaffinity(0, sizeof old, &old);
}

static void the_clock_goes_forward(void **state)
{
    (void)state;
    double before = tap_clock_ms();
    struct timespec nap = {.tv_nsec = 2000000};
    nanosleep(&nap, NULL);
    double passed = tap_clock_ms() - before;
    assert_true(passed >= 1.9 && passed < 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_runs_once),
        cmocka_unit_test(callers_take_turns),
        cmocka_unit_test(counts_out_of_range_are_refused),
        cmocka_unit_test(allowed_cpus_follow_the_affinity),
        cmocka_unit_test(the_clock_goes_forward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
