/* Bytes as a file, for readers that take a path. */
#ifndef TAP_FUZZ_FILE_H
#define TAP_FUZZ_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FUZZ_PATH = 32 };

/* A file in memory, which closing fd removes. */
static inline int fuzz_file(char path[FUZZ_PATH], const uint8_t *data, size_t size)
{
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, FUZZ_PATH, "/proc/self/fd/%d", fd);
    return fd;
}

#endif
