/* check: what its two halves share. Private to the verb. */
#ifndef TAP_CLI_CHECK_H
#define TAP_CLI_CHECK_H

#include "cli.h"

typedef struct tap_cli_check_settings {
    tap_cli_model_settings model;
    tap_cli_boxes boxes;
    const char *reference, *save, *server;
    uint32_t n_requests;
    bool json;
} tap_cli_check_settings;

/* Sends the picture n_requests times, one after another, and prints the percentiles of each stage
 * of the answers' timing_ms and of the round trip (check_server.c). Returns the exit status. */
int tap_cli_check_server(const tap_verb *verb, const tap_cli_check_settings *settings,
                         const char *picture);

#endif
