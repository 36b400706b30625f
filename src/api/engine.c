#include "api.h"
#include "cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)
#define VERSION  TEXT(TAP_VERSION_MAJOR) "." TEXT(TAP_VERSION_MINOR) "." TEXT(TAP_VERSION_PATCH)

#if defined(__x86_64__)
#define MACHINE "x86_64"
#elif defined(__aarch64__)
#define MACHINE "aarch64"
#else
#define MACHINE "another CPU"
#endif

#if defined(TAPETUM_WEBP)
#define CODECS "JPEG, PNG, WebP"
#else
#define CODECS "JPEG, PNG (built without WebP)"
#endif

/* The backends of this build, the default first. */
static const tap_backend *const backends[] = {&tap_cpu_backend};

const char *tap_version(void)
{
    return VERSION;
}

const char *tap_build_info(void)
{
#if defined(__clang__)
    return "tapetum " VERSION " (" MACHINE ", " __VERSION__ "; " CODECS ")";
#else
    return "tapetum " VERSION " (" MACHINE ", GCC " __VERSION__ "; " CODECS ")";
#endif
}

void tap_free(void *memory)
{
    free(memory);
}

bool tap_options_read(void *own, size_t own_size, const void *options)
{
    size_t size;
    if (options == NULL)
        return true;
    memcpy(&size, options, sizeof size);
    if (size < sizeof size || size > 4096) /* not initialised: no struct of ours is so large */
        return false;
    memcpy(own, options, size < own_size ? size : own_size);
    memcpy(own, &own_size, sizeof own_size);
    return true;
}

void tap_engine_log(const tap_engine *engine, tap_log_level level, const char *format, ...)
{
    if (engine->log == NULL)
        return;
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    engine->log(engine->log_user, level, message);
}

void tap_engine_options_init(tap_engine_options *options)
{
    *options = (tap_engine_options){.size = sizeof *options};
}

static const tap_backend *find_backend(const char *name)
{
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++)
        if (name == NULL || strcmp(name, backends[i]->name) == 0)
            return backends[i];
    return NULL;
}

tap_status tap_engine_open(tap_engine **out, const tap_engine_options *options, tap_error *err)
{
    tap_engine_options own;
    *out = NULL;
    tap_engine_options_init(&own);
    if (!tap_options_read(&own, sizeof own, options))
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "tap_engine_options: size is not set; use tap_engine_options_init");
    const tap_backend *backend = find_backend(own.backend);
    if (backend == NULL)
        return tap_fail(err, TAP_ERR_ARGUMENT, "backend '%s': this build has \"cpu\"", own.backend);
    tap_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for an engine");
    atomic_init(&engine->references, 1);
    engine->backend = backend;
    engine->log = own.log;
    engine->log_user = own.log_user;
    size_t n_threads = own.n_threads;
    if (n_threads == 0)
        n_threads = tap_cpus_allowed(engine->threads_reason, sizeof engine->threads_reason);
    else
        snprintf(engine->threads_reason, sizeof engine->threads_reason, "asked for");
    tap_status status = tap_pool_create(&engine->pool, n_threads, err);
    if (status == TAP_OK) {
        tap_backend_options to_backend = {.isa = own.isa, .pool = engine->pool};
        status = backend->open(&engine->state, &to_backend, err);
    }
    if (status != TAP_OK) {
        tap_engine_release(engine);
        return status;
    }
    backend->describe(engine->state, &engine->info);
    *out = engine;
    return TAP_OK;
}

tap_engine *tap_engine_retain(tap_engine *engine)
{
    atomic_fetch_add_explicit(&engine->references, 1, memory_order_relaxed);
    return engine;
}

void tap_engine_release(tap_engine *engine)
{
    if (engine == NULL ||
        atomic_fetch_sub_explicit(&engine->references, 1, memory_order_acq_rel) != 1)
        return;
    if (engine->state != NULL)
        engine->backend->close(engine->state);
    tap_pool_free(engine->pool);
    free(engine);
}

tap_status tap_engine_describe(const tap_engine *engine, tap_engine_info *info)
{
    tap_engine_info own = {.size = sizeof own,
                           .backend = engine->backend->name,
                           .isa = engine->info.isa,
                           .isa_reason = engine->info.isa_reason,
                           .kernels = engine->info.kernels,
                           .n_threads = (uint32_t)tap_pool_threads(engine->pool),
                           .threads_reason = engine->threads_reason};
    size_t size = info->size;
    if (size < sizeof size || size > sizeof own)
        return TAP_ERR_ARGUMENT;
    memcpy(info, &own, size);
    info->size = size;
    return TAP_OK;
}
