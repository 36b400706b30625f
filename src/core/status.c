#include "core.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* A hostile file chooses its tensor names; terminals and log readers must survive them. Cuts a
 * multi-byte character that vsnprintf left incomplete at the end. */
static void clean_text(char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f)
            text[i] = '?';
    }
    size_t back = n;
    while (back > 0 && n - back < 4 && ((unsigned char)text[back - 1] & 0xc0) == 0x80)
        back--;
    if (back > 0 && ((unsigned char)text[back - 1] & 0xc0) == 0xc0) {
        unsigned char lead = (unsigned char)text[back - 1];
        size_t want = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
        if (n - back + 1 < want)
            text[back - 1] = '\0';
    }
}

tap_status tap_fail(tap_error *err, tap_status status, const char *format, ...)
{
    if (err != NULL) {
        va_list args;
        va_start(args, format);
        err->status = status;
        if (vsnprintf(err->message, sizeof err->message, format, args) < 0)
            err->message[0] = '\0';
        va_end(args);
        clean_text(err->message);
    }
    return status;
}

/* What the user can do about the errors that are theirs to mend. */
static const char *advice(int errno_value)
{
    switch (errno_value) {
    case ENOENT:
    case ENOTDIR:
        return "; check the path";
    case EACCES:
    case EPERM:
    case EROFS:
        return "; check who may read and write there";
    case ENOSPC:
    case EDQUOT:
        return "; make room, or write elsewhere";
    case EMFILE:
    case ENFILE:
        return "; close files, or raise `ulimit -n`";
    default:
        return "";
    }
}

tap_status tap_fail_errno(tap_error *err, const char *path, const char *what, int errno_value)
{
    char memory[128];
    const char *reason = strerror_r(errno_value, memory, sizeof memory); /* the GNU form */
    tap_status status = errno_value == ENOENT || errno_value == ENOTDIR ? TAP_ERR_NOT_FOUND
                        : errno_value == ENOMEM                         ? TAP_ERR_MEMORY
                                                                        : TAP_ERR_IO;
    return tap_fail(err, status, "%s: %s: %s%s", path, what, reason, advice(errno_value));
}

const char *tap_status_name(tap_status status)
{
    switch (status) {
    case TAP_OK:
        return "TAP_OK";
    case TAP_ERR_ARGUMENT:
        return "TAP_ERR_ARGUMENT";
    case TAP_ERR_FORMAT:
        return "TAP_ERR_FORMAT";
    case TAP_ERR_LIMIT:
        return "TAP_ERR_LIMIT";
    case TAP_ERR_UNSUPPORTED:
        return "TAP_ERR_UNSUPPORTED";
    case TAP_ERR_NOT_FOUND:
        return "TAP_ERR_NOT_FOUND";
    case TAP_ERR_IO:
        return "TAP_ERR_IO";
    case TAP_ERR_MEMORY:
        return "TAP_ERR_MEMORY";
    case TAP_ERR_DEVICE:
        return "TAP_ERR_DEVICE";
    case TAP_ERR_CANCELLED:
        return "TAP_ERR_CANCELLED";
    case TAP_ERR_INTERNAL:
        return "TAP_ERR_INTERNAL";
    }
    return "TAP_ERR_UNKNOWN";
}

double tap_clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

uint64_t tap_fnv1a64(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text != '\0'; text++)
        hash = (hash ^ (uint8_t)*text) * 0x100000001b3u;
    return hash;
}

uint64_t tap_splitmix64(uint64_t seed, uint64_t i)
{
    uint64_t s = seed + i * 0x9e3779b97f4a7c15u;
    s = (s ^ (s >> 30)) * 0xbf58476d1ce4e5b9u;
    s = (s ^ (s >> 27)) * 0x94d049bb133111ebu;
    return s ^ (s >> 31);
}
