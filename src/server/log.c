#include "log.h"
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = {"debug", "info", "warning"};
static const char *const level_words[] = {"DEBUG", "INFO", "WARNING"};

/* Begins a line with the time and the level. */
static void begin(tap_text *line, const tap_log *log, tap_log_level level)
{
    struct timespec now;
    struct tm utc;
    char time[32] = "";
    clock_gettime(CLOCK_REALTIME, &now);
    if (gmtime_r(&now.tv_sec, &utc) != NULL)
        strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%S", &utc);
    if (log->json)
        tap_text_printf(line, "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\"", time,
                        now.tv_nsec / 1000000, level_names[level]);
    else
        tap_text_printf(line, "%s.%03ldZ %s ", time, now.tv_nsec / 1000000, level_words[level]);
}

/* One write, so that lines of several threads do not mix. What the system refuses is lost: a
 * server must not stop for its log. */
static void end(tap_text *line, const tap_log *log)
{
    tap_text_puts(line, log->json ? "}\n" : "\n");
    if (!line->failed) {
        ssize_t written = write(log->fd, line->data, line->size);
        (void)written;
    }
    tap_text_free(line);
}

/* Control characters, those above U+007F as well, become '?', as in errors. */
static const char *tame(char *words)
{
    for (unsigned char *c = (unsigned char *)words; *c != '\0'; c++) {
        if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) {
            *c++ = '?';
            *c = '?';
        } else if (*c < 0x20 || *c == 0x7f) {
            *c = '?';
        }
    }
    return words;
}

void tap_log_line(const tap_log *log, tap_log_level level, const char *format, ...)
{
    char words[1024];
    va_list args;
    tap_text line = {0};
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    begin(&line, log, level);
    if (log->json)
        tap_text_field(&line, "message", words);
    else
        tap_text_puts(&line, tame(words));
    end(&line, log);
}

/* Text as it is if it is harmless, else as a JSON string. */
static void add_word(tap_text *line, const char *word)
{
    bool plain = *word != '\0';
    for (const char *c = word; *c != '\0'; c++)
        plain = plain && *c > 0x20 && *c < 0x7f && *c != '"' && *c != '\\';
    if (plain)
        tap_text_puts(line, word);
    else
        tap_text_string(line, word, strlen(word));
}

void tap_log_access(const tap_log *log, const tap_log_request *request)
{
    tap_text line = {0};
    char path[128];
    snprintf(path, sizeof path, "%s", request->path);
    begin(&line, log, TAP_LOG_INFO);
    if (log->json) {
        tap_text_field(&line, "message", "request");
        tap_text_field(&line, "method", request->method);
        tap_text_field(&line, "path", path);
        tap_text_field_u64(&line, "code", request->code);
        tap_text_printf(&line, ",\"ms\":%.3f", request->ms);
        tap_text_field_u64(&line, "bytes_in", request->bytes_in);
        tap_text_field_u64(&line, "bytes_out", request->bytes_out);
        tap_text_field(&line, "id", request->id);
    } else {
        tap_text_puts(&line, "request method=");
        add_word(&line, request->method);
        tap_text_puts(&line, " path=");
        add_word(&line, path);
        tap_text_printf(&line, " code=%u ms=%.3f bytes_in=%zu bytes_out=%zu id=", request->code,
                        request->ms, request->bytes_in, request->bytes_out);
        add_word(&line, request->id);
    }
    end(&line, log);
}
