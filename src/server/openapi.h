/* The files in openapi/, as embedded by the build. Private to the server. */
#ifndef TAP_SERVER_OPENAPI_H
#define TAP_SERVER_OPENAPI_H

#include <stddef.h>

typedef struct tap_document {
    const char *text; /* JSON, not terminated */
    size_t size;
} tap_document;

extern const tap_document tap_openapi_common, tap_openapi_superpoint, tap_openapi_hamer;

#endif
