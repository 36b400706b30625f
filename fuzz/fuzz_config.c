/* Bytes as config.json: the strict JSON reader under everything. */
#include "weights/weights.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tap_config *config;
    tap_error err;
    double number;
    size_t sizes[4];
    if (tap_config_parse(&config, data, size, "fuzz", &err) != TAP_OK)
        return 0;
    (void)tap_config_string(config, "model_type");
    (void)tap_config_number(config, "max_keypoints", &number);
    (void)tap_config_sizes(config, "encoder_hidden_sizes", sizes, 4);
    tap_config_free(config);
    return 0;
}
