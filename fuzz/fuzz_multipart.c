/* Bytes as a Content-Type, a NUL, and a multipart body. Parts that are accepted lie in the body, in
 * order and apart, each behind its name, and each is followed by the line break that ends it. */
#include "server/request.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_parts(const tap_part *parts, size_t n_parts, const uint8_t *body, size_t n_body)
{
    const uint8_t *after = body;
    if (n_parts > TAP_PARTS)
        abort();
    for (size_t i = 0; i < n_parts; i++) {
        const uint8_t *name = (const uint8_t *)parts[i].name;
        if (name < after || name + strlen(parts[i].name) >= parts[i].data || name[0] == '\0' ||
            parts[i].data + parts[i].size + 2 > body + n_body ||
            parts[i].data[parts[i].size] != '\r')
            abort();
        after = parts[i].data + parts[i].size;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char boundary[TAP_BOUNDARY + 1];
    tap_part parts[TAP_PARTS];
    size_t n_parts;
    tap_error err;
    const uint8_t *end = memchr(data, '\0', size);
    if (end == NULL || tap_multipart_boundary(boundary, (const char *)data, &err) != TAP_OK)
        return 0;
    if (boundary[0] == '\0' || memchr(boundary, '\0', sizeof boundary) == NULL)
        abort();
    size_t n_body = size - (size_t)(end + 1 - data);
    uint8_t *body = malloc(n_body + 1);
    if (body == NULL)
        return 0;
    memcpy(body, end + 1, n_body);
    if (tap_multipart_parse(parts, &n_parts, body, n_body, boundary, &err) == TAP_OK)
        check_parts(parts, n_parts, body, n_body);
    free(body);
    return 0;
}
