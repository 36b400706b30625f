/* What a file is, from its first bytes, for errors that name what was found. Private to weights. */
#ifndef TAP_WEIGHTS_SNIFF_H
#define TAP_WEIGHTS_SNIFF_H

#include "core/core.h"

typedef enum tap_format {
    TAP_FORMAT_SAFETENSORS,
    TAP_FORMAT_ZIP,    /* PyTorch since 1.6, or another zip: its members tell */
    TAP_FORMAT_PICKLE, /* PyTorch before 1.6, or another pickle */
    TAP_FORMAT_OTHER   /* nothing that is read here */
} tap_format;

/* What is wanted where weights are. */
#define TAP_WEIGHTS_WANTED "a safetensors or PyTorch file"

/* Errors TAP_ERR_FORMAT or TAP_ERR_UNSUPPORTED for TAP_FORMAT_OTHER: what it is, what is wanted. */
tap_status tap_format_sniff(tap_format *format, const uint8_t *data, size_t size,
                            const char *wanted, const char *file, tap_error *err);

#endif
