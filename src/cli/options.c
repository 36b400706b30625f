/* One table a verb: parsed here, printed here. */
#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPTIONS = 48, LONG_ONLY = 256, HELP_CODE = 1 };

/* "-k" or "--max-keypoints", as people know it. */
static const char *shown_name(const tap_option *option, char text[64])
{
    snprintf(text, 64, "--%s", option->name);
    return text;
}

/* A whole number in decimal, nothing before or after it. */
static bool read_whole(const char *text, long long *value)
{
    const char *digits = text + (*text == '-' || *text == '+');
    if (*digits == '\0' || strspn(digits, "0123456789") != strlen(digits))
        return false;
    errno = 0;
    *value = strtoll(text, NULL, 10);
    return errno == 0;
}

/* A decimal number: no hexadecimal, no infinity. */
static bool read_real(const char *text, double *value)
{
    char *end;
    if (*text == '\0' || strspn(text, "0123456789+-.eE") != strlen(text))
        return false;
    *value = strtod(text, &end);
    return *end == '\0' && end != text && isfinite(*value);
}

static int fail_range(const tap_verb *verb, const tap_option *option, const char *value,
                      const char *what)
{
    char name[64];
    return tap_cli_usage(verb, "%s: '%s' is no %s from %.10g to %.10g", shown_name(option, name),
                         value, what, option->least, option->most);
}

static int set_whole(const tap_verb *verb, const tap_option *option, const char *value, void *field)
{
    long long number;
    if (!read_whole(value, &number) || (double)number < option->least ||
        (double)number > option->most)
        return fail_range(verb, option, value, "whole number");
    switch (option->kind) {
    case TAP_OPTION_I32:
        *(int32_t *)field = (int32_t)number;
        break;
    case TAP_OPTION_U32:
        *(uint32_t *)field = (uint32_t)number;
        break;
    case TAP_OPTION_MIB:
        *(size_t *)field = (size_t)number << 20;
        break;
    default:
        *(uint64_t *)field = (uint64_t)number;
    }
    return -1;
}

static int set_real(const tap_verb *verb, const tap_option *option, const char *value, void *field)
{
    double number;
    if (!read_real(value, &number) || number < option->least || number > option->most)
        return fail_range(verb, option, value, "number");
    if (option->kind == TAP_OPTION_SECONDS)
        *(uint32_t *)field = (uint32_t)llround(number * 1000);
    else
        *(float *)field = (float)number;
    return -1;
}

static int set_choice(const tap_verb *verb, const tap_option *option, const char *value,
                      void *field)
{
    char name[64], list[128] = "";
    for (unsigned i = 0; option->choices[i] != NULL; i++) {
        if (strcmp(option->choices[i], value) == 0) {
            memcpy(field, &i, sizeof i); /* an enum of ours is as wide as unsigned */
            return -1;
        }
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i > 0 ? ", " : "", option->choices[i]);
    }
    return tap_cli_usage(verb, "%s: '%s' is not one of: %s", shown_name(option, name), value, list);
}

static int take(const tap_verb *verb, const tap_option *option, const char *value, void *settings)
{
    tap_error err;
    char name[64];
    if (verb->take(settings, option->name, value, &err) == TAP_OK)
        return -1;
    return tap_cli_usage(verb, "%s: %s", shown_name(option, name), err.message);
}

static int set(const tap_verb *verb, const tap_option *option, const char *value, void *field)
{
    switch (option->kind) {
    case TAP_OPTION_ON:
        *(bool *)field = true;
        return -1;
    case TAP_OPTION_OFF:
        *(bool *)field = false;
        return -1;
    case TAP_OPTION_TEXT:
        if (value[0] == '\0') {
            char name[64];
            return tap_cli_usage(verb, "%s: its value is empty", shown_name(option, name));
        }
        *(const char **)field = value;
        return -1;
    case TAP_OPTION_F32:
    case TAP_OPTION_SECONDS:
        return set_real(verb, option, value, field);
    case TAP_OPTION_CHOICE:
        return set_choice(verb, option, value, field);
    case TAP_OPTION_I32:
    case TAP_OPTION_U32:
    case TAP_OPTION_U64:
    case TAP_OPTION_MIB:
    case TAP_OPTION_OWN:
        break;
    }
    return set_whole(verb, option, value, field);
}

/* The verb's row i, counted through its groups, and where its group's settings begin; NULL after
 * the last one. */
static const tap_option *row(const tap_verb *verb, size_t i, size_t *offset)
{
    for (const tap_option_group *group = verb->groups; group->options != NULL; group++)
        for (const tap_option *option = group->options; option->name != NULL; option++)
            if (i-- == 0) {
                *offset = group->offset;
                return option;
            }
    return NULL;
}

/* The tables in getopt_long's terms. */
static void translate(const tap_verb *verb, struct option longs[MAX_OPTIONS + 2],
                      char shorts[2 * MAX_OPTIONS + 4])
{
    char *next = shorts;
    const tap_option *option;
    size_t n = 0, offset;
    *next++ = ':'; /* a missing argument gives ':', not '?' */
    *next++ = 'h';
    for (; (option = row(verb, n, &offset)) != NULL; n++) {
        int has = option->argument != NULL ? required_argument : no_argument;
        if (n == MAX_OPTIONS)
            abort(); /* our tables outgrew the room: the first run of any test sees it */
        longs[n] = (struct option){option->name, has, NULL, LONG_ONLY + (int)n};
        if (option->letter != 0) {
            *next++ = option->letter;
            if (has == required_argument)
                *next++ = ':';
        }
    }
    *next = '\0';
    longs[n] = (struct option){"help", no_argument, NULL, HELP_CODE};
    longs[n + 1] = (struct option){0};
}

/* The row that getopt_long's code stands for. */
static const tap_option *find_row(const tap_verb *verb, int code, size_t *offset)
{
    if (code >= LONG_ONLY)
        return row(verb, (size_t)(code - LONG_ONLY), offset);
    const tap_option *option;
    for (size_t i = 0; (option = row(verb, i, offset)) != NULL; i++)
        if (option->letter == code)
            break;
    return option;
}

int tap_cli_parse(const tap_verb *verb, int argc, char **argv, void *settings, int *operands)
{
    struct option longs[MAX_OPTIONS + 2];
    char shorts[2 * MAX_OPTIONS + 4];
    translate(verb, longs, shorts);
    opterr = 0;
    optind = 0; /* glibc: start anew */
    for (;;) {
        int code = getopt_long(argc, argv, shorts, longs, NULL);
        if (code == -1)
            break;
        if (code == 'h' || code == HELP_CODE) {
            tap_cli_help(verb);
            return tap_cli_finish(TAP_EXIT_OK);
        }
        if (code == ':')
            return tap_cli_usage(verb, "%s: needs a value", argv[optind - 1]);
        if (code == '?' && optopt != 0 && optopt < LONG_ONLY && optopt != HELP_CODE)
            return tap_cli_usage(verb, "-%c: is no option", optopt);
        if (code == '?')
            return tap_cli_usage(verb, "%s: is no option, is ambiguous, or takes no value",
                                 argv[optind - 1]);
        size_t offset;
        const tap_option *option = find_row(verb, code, &offset);
        int status = option->kind == TAP_OPTION_OWN
                         ? take(verb, option, optarg, settings)
                         : set(verb, option, optarg, (char *)settings + offset + option->offset);
        if (status >= 0)
            return status;
    }
    *operands = optind;
    return -1;
}

int tap_cli_usage(const tap_verb *verb, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tap_cli_complain("%s: %s: see 'tapetum %s --help'", verb->name, text, verb->name);
    return TAP_EXIT_USAGE;
}

static void print_row(const tap_option *option)
{
    char head[48];
    snprintf(head, sizeof head, "--%s%s%s", option->name, option->argument != NULL ? " " : "",
             option->argument != NULL ? option->argument : "");
    if (option->letter != 0)
        printf("  -%c, %-22s ", option->letter, head);
    else
        printf("      %-22s ", head);
    const char *end;
    for (const char *line = option->help; line != NULL; line = end) {
        if (line != option->help)
            printf("%29s", "");
        end = strchr(line, '\n');
        printf("%.*s\n", end != NULL ? (int)(end - line) : (int)strlen(line), line);
        if (end != NULL)
            end++;
    }
}

void tap_cli_help(const tap_verb *verb)
{
    const tap_option *option;
    size_t offset;
    printf("%s.\n\n%s\nUsage: tapetum %s %s%s[options]\n\nOptions:\n", verb->summary,
           verb->examples, verb->name, verb->operands, verb->operands[0] != '\0' ? " " : "");
    for (size_t i = 0; (option = row(verb, i, &offset)) != NULL; i++)
        print_row(option);
    printf("  -h, %-22s this text\n", "--help");
    if (verb->notes != NULL)
        printf("\n%s", verb->notes);
}
