/* Bytes as a request's target: taken apart, and every field of the query read. */
#include "server/request.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tap_wish_limits limits = {
        .max_keypoints = 307200, .min_max_keypoints = -1, .max_input_pixels = 2100000};
    tap_wish wish = {0};
    tap_query query;
    tap_error err;
    tap_superpoint_options_init(&wish.superpoint);
    tap_match_options_init(&wish.match);
    char *target = malloc(size + 1);
    if (target == NULL)
        return 0;
    memcpy(target, data, size);
    target[size] = '\0';
    size_t n = strlen(target);
    if (tap_query_parse(&query, target, &err) == TAP_OK) {
        if (query.path < target || query.path > target + n || query.n_pairs > TAP_QUERY_PAIRS)
            abort();
        for (size_t i = 0; i < query.n_pairs; i++) {
            const char *name = query.pairs[i].name, *value = query.pairs[i].value;
            if (name < target || value < name || value + strlen(value) > target + n)
                abort();
            (void)tap_wish_set_text(&wish, &limits, name, value, &err);
        }
    }
    free(target);
    return 0;
}
