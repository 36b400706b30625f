/* Runs a fuzz target once on every file of the folders given: the corpus as an ordinary test, for
 * compilers without libFuzzer. */
#include "core/core.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    tap_bytes bytes;
    tap_error err;
    if (tap_bytes_read(&bytes, path, (size_t)1 << 30, &err) != TAP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    LLVMFuzzerTestOneInput(bytes.data, bytes.size);
    tap_bytes_release(&bytes);
    return 0;
}

int main(int argc, char **argv)
{
    size_t n_files = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (folder == NULL) {
            perror(argv[i]);
            return 1;
        }
        for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
            char path[4096];
            if (entry->d_name[0] == '.')
                continue;
            snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
            if (replay_file(path) != 0)
                return 1;
            n_files++;
        }
        closedir(folder);
    }
    printf("replayed %zu files\n", n_files);
    return n_files > 0 ? 0 : 1; /* an empty corpus tests nothing */
}
