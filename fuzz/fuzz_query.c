/* Bytes as a request's target: taken apart, and every field of the query read, as either model's.
 */
#include "server/request.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tap_wish_limits limits = {.max_keypoints = 307200,
                              .min_max_keypoints = -1,
                              .max_input_pixels = 2100000,
                              .max_hands = 16};
    tap_wish points = {0}, hands = {0};
    tap_query query;
    tap_error err;
    tap_wish_init(&points, TAP_SERVER_SUPERPOINT);
    tap_wish_init(&hands, TAP_SERVER_HAMER);
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
            (void)tap_wish_set_text(&points, &limits, name, value, &err);
            (void)tap_wish_set_text(&hands, &limits, name, value, &err);
            if (hands.hands.n_sides > limits.max_hands)
                abort();
        }
    }
    free(target);
    return 0;
}
