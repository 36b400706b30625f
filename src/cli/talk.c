/* What the program says besides its results: complaints and a progress bar, both on stderr. */
#include "cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BAR_CELLS = 24, REDRAW_MS = 100 };

void tap_cli_complain(const char *format, ...)
{
    char text[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    /* A file's name must not move the cursor or forge a line. */
    for (char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    fprintf(stderr, "tapetum: %s\n", text);
}

int tap_cli_finish(int status)
{
    bool lost = ferror(stdout) != 0;
    errno = 0;
    if (fflush(stdout) != 0 || lost) {
        tap_cli_complain("standard output: cannot write: %s: free some space or choose another "
                         "place, then run again",
                         errno != 0 ? strerror(errno) : "an earlier write failed");
        return TAP_EXIT_FAILED;
    }
    return status;
}

void tap_progress_begin(tap_progress *progress, uint64_t total, bool wanted)
{
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    *progress = (tap_progress){.total = total};
    progress->active = wanted && isatty(STDERR_FILENO) && !(term != NULL && !strcmp(term, "dumb"));
    progress->color = no_color == NULL || no_color[0] == '\0';
    progress->shown_ms = -REDRAW_MS;
}

void tap_progress_show(tap_progress *progress, uint64_t done, const char *name)
{
    double now = tap_clock_ms();
    if (!progress->active || (now - progress->shown_ms < REDRAW_MS && done < progress->total))
        return;
    progress->shown_ms = now;
    progress->done = done;
    double share = progress->total > 0 ? (double)done / (double)progress->total : 0;
    int cells = share < 1 ? (int)(share * BAR_CELLS) : BAR_CELLS;
    char bar[BAR_CELLS + 1], shown[41];
    memset(bar, '-', BAR_CELLS);
    memset(bar, '#', (size_t)cells);
    bar[BAR_CELLS] = '\0';
    snprintf(shown, sizeof shown, "%s", name);
    for (char *c = shown; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    fprintf(stderr, "\r\033[K%s[%s]%s %3.0f %%  %s", progress->color ? "\033[36m" : "", bar,
            progress->color ? "\033[0m" : "", share * 100, shown);
    fflush(stderr);
}

void tap_progress_clear(tap_progress *progress)
{
    if (!progress->active)
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    progress->shown_ms = -REDRAW_MS;
}
