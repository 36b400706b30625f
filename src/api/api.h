/* api: the public functions, and the only room that sees every engine room: it hands models a
 * backend. This header is private to it. */
#ifndef TAP_API_H
#define TAP_API_H

#include "core/core.h"
#include "image/image.h"
#include "models/models.h"
#include "net/net.h"

#include <stdatomic.h>

struct tap_engine {
    _Atomic size_t references;
    tap_pool *pool;
    const tap_backend *backend;
    tap_backend_state *state;
    tap_backend_info info;
    tap_log_callback log;
    void *log_user;
    char threads_reason[64];
};

struct tap_model {
    _Atomic size_t references;
    tap_engine *engine;
    tap_superpoint *network;
    /* Compiled at the default size with all outputs; every session's program shares its packed
     * weights. */
    tap_program *base;
    size_t packed_bytes;
    double gate_correlation, load_ms;
    char *path;
    const char *format;
};

struct tap_picture {
    tap_pixels pixels;
};

struct tap_keypoints {
    size_t capacity, descriptor_capacity; /* points; floats */
    float *xy, *scores, *descriptors;
    tap_keypoints_view view;
};

/* A caller's options over the defaults that *own already holds: as many bytes as both know. The
 * caller's first field is its size. False if that can't be a size. */
bool tap_options_read(void *own, size_t own_size, const void *options);

/* Sends one line to the engine's log callback, if it has one. */
__attribute__((format(printf, 3, 4))) void
tap_engine_log(const tap_engine *engine, tap_log_level level, const char *format, ...);

tap_engine *tap_engine_retain(tap_engine *engine);

#endif
