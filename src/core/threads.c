/* The worker pool: an atomic counter hands out items, workers spin briefly and then sleep.
 *
 * Every run is an epoch. The caller publishes the job under the mutex, raises the epoch and wakes
 * the workers; each worker runs items until none are left, then counts itself out. The caller
 * returns when all workers are out, so the job's memory can lie on its stack. */
#include "core.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_THREADS = 256 };

struct worker {
    tap_pool *pool;
    size_t index;
    pthread_t thread;
};

struct tap_pool {
    size_t n_threads, n_started;
    _Atomic pid_t owner; /* the process whose threads these are; 0 while a child starts its own */
    size_t spin; /* rounds to spin before sleeping; 0 when there are more workers than CPUs */
    pthread_mutex_t turn; /* held by the caller whose job is running */
    pthread_mutex_t mutex;
    pthread_cond_t wake, done;
    _Atomic uint64_t epoch;
    _Atomic size_t next_item, n_working;
    _Atomic bool stop;
    size_t n_items;
    tap_pool_fn fn;
    void *context;
    struct worker workers[];
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void run_items(tap_pool *pool, size_t worker)
{
    for (;;) {
        size_t item = atomic_fetch_add_explicit(&pool->next_item, 1, memory_order_relaxed);
        if (item >= pool->n_items)
            return;
        pool->fn(pool->context, item, worker);
    }
}

/* Waits for an epoch other than seen; a network's layers follow each other within microseconds, so
 * spinning a little saves a sleep and a wake-up per layer. */
static uint64_t wait_for_epoch(tap_pool *pool, uint64_t seen)
{
    for (size_t i = 0; i < pool->spin; i++) {
        uint64_t now = atomic_load_explicit(&pool->epoch, memory_order_acquire);
        if (now != seen)
            return now;
        relax();
    }
    pthread_mutex_lock(&pool->mutex);
    while (atomic_load_explicit(&pool->epoch, memory_order_acquire) == seen)
        pthread_cond_wait(&pool->wake, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
    return atomic_load_explicit(&pool->epoch, memory_order_acquire);
}

static void *worker_main(void *argument)
{
    struct worker *self = argument;
    tap_pool *pool = self->pool;
    uint64_t seen = 0;
    for (;;) {
        seen = wait_for_epoch(pool, seen);
        if (atomic_load_explicit(&pool->stop, memory_order_relaxed))
            return NULL;
        run_items(pool, self->index);
        if (atomic_fetch_sub_explicit(&pool->n_working, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&pool->mutex);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->mutex);
        }
    }
}

static void raise_epoch(tap_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add_explicit(&pool->epoch, 1, memory_order_release);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
}

static void wait_for_workers(tap_pool *pool)
{
    for (size_t i = 0; i < pool->spin; i++) {
        if (atomic_load_explicit(&pool->n_working, memory_order_acquire) == 0)
            return;
        relax();
    }
    pthread_mutex_lock(&pool->mutex);
    while (atomic_load_explicit(&pool->n_working, memory_order_acquire) != 0)
        pthread_cond_wait(&pool->done, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}

static void set_up(tap_pool *pool)
{
    pthread_mutex_init(&pool->turn, NULL);
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->done, NULL);
    atomic_store_explicit(&pool->epoch, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->n_working, 0, memory_order_relaxed);
    pool->n_started = 0;
}

/* 0, or why a thread did not start; those before it did. */
static int start_workers(tap_pool *pool)
{
    int failed = 0;
    for (size_t i = 1; i < pool->n_threads && !failed; i++) {
        struct worker *worker = &pool->workers[i];
        *worker = (struct worker){.pool = pool, .index = i};
        failed = pthread_create(&worker->thread, NULL, worker_main, worker);
        pool->n_started += !failed;
    }
    return failed;
}

/* After fork() a child has the pool's memory but none of its threads, and a lock may be held by a
 * thread that is not there. The first of the child's callers starts afresh, with fewer threads if
 * the system refuses some; work is the same with any number. */
static void survive_fork(tap_pool *pool)
{
    pid_t self = getpid(), owner = atomic_load_explicit(&pool->owner, memory_order_acquire);
    while (owner != self) {
        if (owner != 0 && atomic_compare_exchange_strong(&pool->owner, &owner, 0)) {
            set_up(pool);
            (void)start_workers(pool);
            atomic_store_explicit(&pool->owner, self, memory_order_release);
            return;
        }
        sched_yield();
        owner = atomic_load_explicit(&pool->owner, memory_order_acquire);
    }
}

void tap_pool_run(tap_pool *pool, size_t n_items, tap_pool_fn fn, void *context)
{
    survive_fork(pool);
    if (pool->n_started == 0 || n_items <= 1) {
        /* Worker 0's scratch is the caller's, so even a small job waits for its turn. */
        pthread_mutex_lock(&pool->turn);
        for (size_t i = 0; i < n_items; i++)
            fn(context, i, 0);
        pthread_mutex_unlock(&pool->turn);
        return;
    }
    pthread_mutex_lock(&pool->turn);
    pool->n_items = n_items;
    pool->fn = fn;
    pool->context = context;
    atomic_store_explicit(&pool->next_item, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->n_working, pool->n_started, memory_order_relaxed);
    raise_epoch(pool);
    run_items(pool, 0);
    wait_for_workers(pool);
    pthread_mutex_unlock(&pool->turn);
}

tap_status tap_pool_create(tap_pool **out, size_t n_threads, tap_error *err)
{
    *out = NULL;
    if (n_threads == 0 || n_threads > MAX_THREADS)
        return tap_fail(err, TAP_ERR_ARGUMENT, "n_threads %zu: must be 1..%d", n_threads,
                        MAX_THREADS);
    tap_pool *pool = calloc(1, sizeof *pool + n_threads * sizeof pool->workers[0]);
    if (pool == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for %zu threads", n_threads);
    pool->n_threads = n_threads;
    /* About 50 us. A spinning worker that has no CPU of its own only steals the others'. */
    pool->spin = n_threads <= tap_cpus_allowed(NULL, 0) ? 2000 : 0;
    atomic_store_explicit(&pool->owner, getpid(), memory_order_relaxed);
    set_up(pool);
    int failed = start_workers(pool);
    if (failed) {
        tap_pool_free(pool);
        return tap_fail_errno(err, "threads", "cannot start one", failed);
    }
    *out = pool;
    return TAP_OK;
}

void tap_pool_free(tap_pool *pool)
{
    if (pool == NULL)
        return;
    if (atomic_load_explicit(&pool->owner, memory_order_acquire) != getpid()) {
        free(pool); /* in a child that never used it: there is nobody to join */
        return;
    }
    atomic_store_explicit(&pool->stop, true, memory_order_relaxed);
    raise_epoch(pool);
    for (size_t i = 1; i <= pool->n_started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    pthread_mutex_destroy(&pool->turn);
    pthread_mutex_destroy(&pool->mutex);
    pthread_cond_destroy(&pool->wake);
    pthread_cond_destroy(&pool->done);
    free(pool);
}

size_t tap_pool_threads(const tap_pool *pool)
{
    return pool->n_threads;
}

/* cgroup v2 "cpu.max": "QUOTA PERIOD" or "max PERIOD"; v1 has a file for each. 0: no limit. */
static double cgroup_quota(void)
{
    double quota = 0, period = 0;
    char word[32];
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (file != NULL) {
        if (fscanf(file, "%31s %lf", word, &period) == 2 && strcmp(word, "max") != 0)
            quota = strtod(word, NULL);
        fclose(file);
        return quota > 0 && period > 0 ? quota / period : 0;
    }
    file = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "re");
    if (file == NULL)
        return 0;
    int found = fscanf(file, "%lf", &quota);
    fclose(file);
    file = found == 1 && quota > 0 ? fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "re") : NULL;
    if (file == NULL)
        return 0;
    found = fscanf(file, "%lf", &period);
    fclose(file);
    return found == 1 && period > 0 ? quota / period : 0;
}

size_t tap_cpus_allowed(char *reason, size_t reason_size)
{
    cpu_set_t set;
    size_t allowed = 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        allowed = (size_t)CPU_COUNT(&set);
    double quota = cgroup_quota();
    /* The small tolerance keeps a quota of 200001 us per 100000 us at 2 CPUs. */
    size_t by_quota = quota > 0 && quota < 1e6 ? (size_t)(quota + 0.99) : 0;
    if (by_quota > 0 && by_quota < allowed) {
        if (reason != NULL)
            snprintf(reason, reason_size, "cgroup quota of %.3g CPUs", quota);
        return by_quota;
    }
    if (reason != NULL)
        snprintf(reason, reason_size, "%zu CPU%s allowed", allowed, allowed == 1 ? "" : "s");
    return allowed;
}
