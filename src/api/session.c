/* A session: the memory of one run at a time. */
#include "api.h"

#include <stdlib.h>

tap_status tap_growing_reserve(tap_growing *growing, size_t count, size_t size, const char *what,
                               tap_error *err)
{
    size_t bytes;
    if (!tap_size_mul(count, size, &bytes))
        return tap_fail(err, TAP_ERR_LIMIT, "%s: too large", what);
    if (bytes <= growing->capacity)
        return TAP_OK;
    free(growing->data);
    growing->data = tap_alloc(bytes, 1);
    growing->capacity = growing->data == NULL ? 0 : bytes;
    if (growing->data == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for %zu bytes", what, bytes);
    return TAP_OK;
}

tap_status tap_session_create(tap_session **session, tap_model *model, tap_error *err)
{
    *session = calloc(1, sizeof **session);
    if (*session == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a session");
    (*session)->model = tap_model_retain(model);
    return TAP_OK;
}

void tap_session_free(tap_session *session)
{
    if (session == NULL)
        return;
    for (size_t i = 0; i < 2; i++)
        if (session->points.compiled[i].program != NULL)
            session->model->engine->backend->free_program(session->points.compiled[i].program);
    tap_growing *all[] = {&session->scratch,
                          &session->input,
                          &session->points.plane,
                          &session->points.resized,
                          &session->points.resize_scratch,
                          &session->points.scores,
                          &session->points.map,
                          &session->points.select_scratch,
                          &session->hands.crop_scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]->data);
    tap_model_release(session->model);
    free(session);
}

tap_status tap_session_check(const tap_session *session, tap_kind kind, tap_error *err)
{
    if (session->model->kind == kind)
        return TAP_OK;
    return tap_fail(err, TAP_ERR_UNSUPPORTED,
                    kind == TAP_KIND_HAMER
                        ? "%s: is a SuperPoint, which finds points; hands need a HaMeR"
                        : "%s: is a HaMeR, which finds hands; points need a SuperPoint",
                    session->model->path);
}
