/* The hub's door behind a command line, for test_hub.py:
 *     hub_tool fetch|find ID REVISION MAX_BYTES FILE...
 * Prints the folder, or the status's name and the message; exits with the status. */
#include "hub/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILES = 4 };

static uint32_t number(const char *variable, uint32_t otherwise)
{
    const char *value = getenv(variable);
    return value != NULL ? (uint32_t)strtoul(value, NULL, 10) : otherwise;
}

static tap_status refuse(void *user, const char *path, tap_error *err)
{
    return tap_fail(err, TAP_ERR_FORMAT, "%s: %s", path, (const char *)user);
}

/* Progress of one file: it may begin anew once for each further attempt. */
struct count {
    uint64_t done;
    uint32_t attempts_left;
};

static void count(void *user, const char *file, uint64_t done, uint64_t total)
{
    (void)file;
    struct count *seen = user;
    bool anew = done <= seen->done;
    if ((total > 0 && done > total) || (anew && seen->attempts_left == 0)) {
        fprintf(stderr, "progress runs backwards or over\n");
        abort();
    }
    seen->attempts_left -= anew ? 1 : 0;
    seen->done = done;
}

int main(int argc, char **argv)
{
    tap_error err = {.message = ""};
    tap_hub_options options;
    tap_hub_file files[MAX_FILES] = {{0}};
    const char *names[MAX_FILES];
    char *folder = NULL;
    if (argc < 6 || argc > 5 + MAX_FILES)
        return 99;
    tap_hub_repo repo = {.id = argv[2], .revision = argv[3]};
    size_t n = (size_t)argc - 5;
    for (size_t i = 0; i < n; i++) {
        names[i] = argv[5 + i];
        files[i].name = names[i];
        files[i].max_bytes = strtoull(argv[4], NULL, 10);
        if (getenv("HUB_REFUSE") != NULL) {
            files[i].check = refuse;
            files[i].user = getenv("HUB_REFUSE");
        }
    }
    tap_hub_options_init(&options);
    options.stall_ms = number("HUB_STALL_MS", options.stall_ms);
    options.attempts = number("HUB_ATTEMPTS", options.attempts);
    options.retry_ms = number("HUB_RETRY_MS", 10);
    struct count seen = {.attempts_left = options.attempts - 1};
    if (n == 1) {
        options.progress = count;
        options.user = &seen;
    }
    tap_status status = strcmp(argv[1], "find") == 0
                            ? tap_hub_find(&folder, NULL, &repo, names, n, &err)
                            : tap_hub_fetch(&folder, &repo, files, n, &options, &err);
    if (status == TAP_OK)
        puts(folder);
    else
        printf("%s %s\n", tap_status_name(status), err.message);
    if (status != TAP_OK && folder != NULL)
        return 98; /* the door promises NULL */
    free(folder);
    return (int)status;
}
