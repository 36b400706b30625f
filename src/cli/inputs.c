/* The pictures that a command line names, and where their results go. */
#include "cli.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static bool is_picture(const char *name)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".png", ".webp"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot != NULL && dot != name && i < sizeof endings / sizeof *endings; i++)
        if (strcasecmp(dot, endings[i]) == 0)
            return true;
    return false;
}

/* Takes path over. */
static tap_status add_path(tap_inputs *inputs, char *path, tap_error *err)
{
    if (path != NULL && inputs->n == inputs->capacity) {
        size_t capacity = inputs->capacity > 0 ? 2 * inputs->capacity : 16;
        char **moved = reallocarray(inputs->paths, capacity, sizeof *moved);
        if (moved == NULL) {
            free(path);
            path = NULL;
        } else {
            inputs->paths = moved;
            inputs->capacity = capacity;
        }
    }
    if (path == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for the list of pictures");
    inputs->paths[inputs->n++] = path;
    return TAP_OK;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static tap_status add_folder(tap_inputs *inputs, const char *folder, tap_error *err)
{
    size_t before = inputs->n, length = strlen(folder);
    const char *slash = length > 0 && folder[length - 1] == '/' ? "" : "/";
    DIR *stream = opendir(folder);
    if (stream == NULL)
        return tap_fail_errno(err, folder, "cannot read the folder", errno);
    tap_status status = TAP_OK;
    for (struct dirent *entry; status == TAP_OK && (entry = readdir(stream)) != NULL;) {
        if (!is_picture(entry->d_name))
            continue;
        char *path = NULL;
        struct stat info;
        if (asprintf(&path, "%s%s%s", folder, slash, entry->d_name) < 0)
            path = NULL;
        if (path != NULL && stat(path, &info) == 0 && S_ISDIR(info.st_mode))
            free(path);
        else
            status = add_path(inputs, path, err);
    }
    closedir(stream);
    TAP_TRY(status);
    if (inputs->n == before)
        return tap_fail(err, TAP_ERR_NOT_FOUND,
                        "%s: the folder has no picture: name one with .jpg, .jpeg, .png or .webp",
                        folder);
    qsort(inputs->paths + before, inputs->n - before, sizeof *inputs->paths, compare_paths);
    return TAP_OK;
}

tap_status tap_inputs_add(tap_inputs *inputs, const char *path, tap_error *err)
{
    struct stat info;
    if (strcmp(path, "-") != 0 && stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return add_folder(inputs, path, err);
    return add_path(inputs, strdup(path), err);
}

void tap_inputs_free(tap_inputs *inputs)
{
    for (size_t i = 0; i < inputs->n; i++)
        free(inputs->paths[i]);
    free(inputs->paths);
    *inputs = (tap_inputs){0};
}

int tap_inputs_gather(tap_inputs *inputs, const tap_verb *verb, int argc, char **argv, int operand)
{
    tap_error err;
    size_t n_stdin = 0;
    if (operand == argc)
        return tap_cli_usage(verb, "no picture is given");
    inputs->several = argc - operand > 1;
    for (int i = operand; i < argc; i++) {
        size_t before = inputs->n;
        n_stdin += strcmp(argv[i], "-") == 0;
        if (tap_inputs_add(inputs, argv[i], &err) != TAP_OK) {
            tap_cli_complain("%s", err.message);
            inputs->failed = true;
        } else if (inputs->n - before > 1 || strcmp(inputs->paths[before], argv[i]) != 0) {
            inputs->several = true; /* a folder, even of one picture */
        }
    }
    if (n_stdin > 1)
        return tap_cli_usage(verb, "-: standard input can be read once only");
    return -1;
}

int tap_inputs_run(const tap_inputs *inputs, bool quiet,
                   bool (*one)(void *user, tap_progress *progress, const char *input), void *user)
{
    tap_progress progress;
    bool failed = inputs->failed;
    tap_progress_begin(&progress, inputs->n, inputs->several && !quiet);
    for (size_t i = 0; i < inputs->n; i++) {
        tap_progress_show(&progress, i, inputs->paths[i]);
        if (!one(user, &progress, inputs->paths[i]))
            failed = true;
        if (ferror(stdout))
            break; /* nobody would read the rest */
    }
    tap_progress_clear(&progress);
    return tap_cli_finish(failed ? TAP_EXIT_FAILED : TAP_EXIT_OK);
}

bool tap_inputs_complain(tap_progress *progress, const char *input, bool named,
                         const tap_error *err)
{
    tap_progress_clear(progress);
    if (named)
        tap_cli_complain("%s", err->message);
    else
        tap_cli_complain("%s: %s", strcmp(input, "-") == 0 ? "standard input" : input,
                         err->message);
    return false;
}

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strcmp(path, "-") == 0 ? "stdin" : slash != NULL ? slash + 1 : path;
}

tap_status tap_inputs_target(char **path, const char *target, bool several, const char *input,
                             const char *suffix, tap_error *err)
{
    size_t length = strlen(target);
    int written;
    if (several)
        written = asprintf(path, "%s%s%s%s", target, target[length - 1] == '/' ? "" : "/",
                           last_name(input), suffix);
    else
        written = asprintf(path, "%s", target);
    if (written < 0) {
        *path = NULL;
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a path");
    }
    return TAP_OK;
}

int tap_cli_check_target(const tap_verb *verb, const char *target, bool several)
{
    struct stat info;
    bool exists = target != NULL && stat(target, &info) == 0;
    if (target == NULL)
        return -1;
    if (several && (!exists || !S_ISDIR(info.st_mode)))
        return tap_cli_usage(verb, "%s: several pictures need a folder that exists", target);
    if (!several && exists && !S_ISREG(info.st_mode))
        return tap_cli_usage(verb, "%s: exists and is no regular file; name another", target);
    return -1;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(last_name(*(char *const *)a), last_name(*(char *const *)b));
}

/* Several inputs of one last name would overwrite one another. */
static tap_status check_names(const tap_inputs *inputs, tap_error *err)
{
    if (inputs->n < 2)
        return TAP_OK;
    char **sorted = reallocarray(NULL, inputs->n, sizeof *sorted);
    if (sorted == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for the list of pictures");
    memcpy(sorted, inputs->paths, inputs->n * sizeof *sorted);
    qsort(sorted, inputs->n, sizeof *sorted, compare_names);
    tap_status status = TAP_OK;
    for (size_t i = 1; i < inputs->n && status == TAP_OK; i++)
        if (compare_names(&sorted[i - 1], &sorted[i]) == 0)
            status = tap_fail(err, TAP_ERR_ARGUMENT,
                              "%s and %s: their results would have one name: run them apart",
                              sorted[i - 1], sorted[i]);
    free(sorted);
    return status;
}

int tap_inputs_check_targets(const tap_inputs *inputs, const tap_verb *verb,
                             const char *const *targets, size_t n_targets)
{
    tap_error err;
    int status = -1;
    for (size_t i = 0; i < n_targets && status < 0; i++) {
        status = tap_cli_check_target(verb, targets[i], inputs->several);
        if (status < 0 && targets[i] != NULL && check_names(inputs, &err) != TAP_OK)
            status = tap_cli_usage(verb, "%s", err.message);
    }
    return status;
}
