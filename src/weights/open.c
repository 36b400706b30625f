#include "pytorch.h"
#include "sniff.h"
#include "table.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    /* A file up to this size is read, so that another process may cut it short without harm; a
     * larger one is mapped. */
    READ_UP_TO = 64 << 20,
    MAX_LISTED = 4
};

static const size_t max_file = (size_t)16 << 30;

static tap_status parse(tap_weights **weights, const tap_bytes *bytes, const char *path,
                        bool checkpoint, tap_error *err)
{
    tap_format format;
    TAP_TRY(tap_format_sniff(&format, bytes->data, bytes->size, TAP_WEIGHTS_WANTED, path, err));
    if (format == TAP_FORMAT_SAFETENSORS)
        return tap_safetensors_parse(weights, bytes->data, bytes->size, path, err);
    if (format == TAP_FORMAT_ZIP && checkpoint)
        return tap_pytorch_zip_parse(weights, bytes->data, bytes->size, path,
                                     &tap_torch_checkpoint_policy, err);
    return tap_pytorch_parse(weights, bytes->data, bytes->size, path, err);
}

static tap_status open_file(tap_weights **weights, const char *path, bool checkpoint,
                            tap_error *err)
{
    struct stat status;
    tap_bytes bytes;
    /* "-" would be standard input to tap_bytes_read; here it is a file of that name. */
    bool small = strcmp(path, "-") != 0 && stat(path, &status) == 0 && status.st_size <= READ_UP_TO;
    TAP_TRY(small ? tap_bytes_read(&bytes, path, max_file, err)
                  : tap_bytes_map(&bytes, path, max_file, err));
    tap_status result = parse(weights, &bytes, path, checkpoint, err);
    if (result == TAP_OK)
        tap_weights_keep(*weights, &bytes);
    else
        tap_bytes_release(&bytes);
    return result;
}

static char *join(const char *folder, const char *name)
{
    size_t n = strlen(folder) + strlen(name) + 2;
    char *path = malloc(n);
    if (path != NULL)
        snprintf(path, n, "%s/%s", folder, name);
    return path;
}

static bool ends_in(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);
    return n > m && strcmp(name + n - m, ending) == 0;
}

/* Weights of a folder without model.safetensors: the only *.safetensors, else the only PyTorch
 * file. */
struct candidates {
    char first[256];
    char list[256]; /* the first few, for the message */
    size_t n;
};

static void add_candidate(struct candidates *candidates, const char *name)
{
    if (candidates->n == 0)
        snprintf(candidates->first, sizeof candidates->first, "%s", name);
    size_t used = strlen(candidates->list);
    if (candidates->n < MAX_LISTED)
        snprintf(candidates->list + used, sizeof candidates->list - used, "%s%.60s",
                 used > 0 ? ", " : "", name);
    candidates->n++;
}

static tap_status list_folder(const char *folder, struct candidates *safetensors,
                              struct candidates *pytorch, tap_error *err)
{
    static const char *const endings[] = {".pth", ".pt", ".ckpt", ".bin"};
    DIR *stream = opendir(folder);
    if (stream == NULL)
        return tap_fail_errno(err, folder, "cannot list", errno);
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        if (ends_in(entry->d_name, ".safetensors"))
            add_candidate(safetensors, entry->d_name);
        for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
            if (ends_in(entry->d_name, endings[i]))
                add_candidate(pytorch, entry->d_name);
    }
    closedir(stream);
    return TAP_OK;
}

/* Malloced into *path. */
static tap_status find_in_folder(char **path, const char *folder, tap_error *err)
{
    *path = join(folder, "model.safetensors");
    if (*path == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", folder);
    struct stat status;
    if (lstat(*path, &status) == 0)
        return TAP_OK;
    free(*path);
    *path = NULL;
    struct candidates safetensors = {0}, pytorch = {0};
    TAP_TRY(list_folder(folder, &safetensors, &pytorch, err));
    const struct candidates *found = safetensors.n > 0 ? &safetensors : &pytorch;
    if (found->n == 0)
        return tap_fail(err, TAP_ERR_NOT_FOUND,
                        "%s: no weights in this folder: looked for model.safetensors, "
                        "*.safetensors, *.pth, *.pt, *.ckpt, *.bin",
                        folder);
    if (found->n > 1)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "%s: %zu files in this folder could be the weights (%s%s); name one of "
                        "them",
                        folder, found->n, found->list, found->n > MAX_LISTED ? ", ..." : "");
    *path = join(folder, found->first);
    return *path != NULL ? TAP_OK : tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", folder);
}

static tap_status open_path(tap_weights **weights, const char *path, bool checkpoint,
                            tap_error *err)
{
    struct stat status;
    *weights = NULL;
    if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode))
        return open_file(weights, path, checkpoint, err); /* which says what is wrong with it */
    char *file;
    TAP_TRY(find_in_folder(&file, path, err));
    tap_status result = open_file(weights, file, checkpoint, err);
    free(file);
    return result;
}

tap_status tap_weights_open(tap_weights **weights, const char *path, tap_error *err)
{
    return open_path(weights, path, false, err);
}

tap_status tap_weights_open_checkpoint(tap_weights **weights, const char *path, tap_error *err)
{
    return open_path(weights, path, true, err);
}
