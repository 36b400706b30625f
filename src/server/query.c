/* Request targets: application/x-www-form-urlencoded after the question mark. */
#include "request.h"

#include "core/core.h"

#include <string.h>
#include <strings.h>

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Decodes one name or value in place. */
static tap_status unescape(char *text, tap_error *err)
{
    char *out = text;
    for (const char *in = text; *in != '\0'; in++) {
        if (*in == '+') {
            *out++ = ' ';
        } else if (*in != '%') {
            *out++ = *in;
        } else {
            int high = hex_digit(in[1]), low = high < 0 ? -1 : hex_digit(in[2]);
            if (low < 0)
                return tap_fail(err, TAP_ERR_ARGUMENT, "query: \"%.3s\" is no escape (%%41 is)",
                                in);
            if (high == 0 && low == 0)
                return tap_fail(err, TAP_ERR_ARGUMENT, "query: a NUL (%%00) in it");
            *out++ = (char)(high << 4 | low);
            in += 2;
        }
    }
    *out = '\0';
    return TAP_OK;
}

static tap_status add_pair(tap_query *query, char *pair, tap_error *err)
{
    char *value = strchr(pair, '=');
    if (value != NULL)
        *value++ = '\0';
    else
        value = pair + strlen(pair);
    TAP_TRY(unescape(pair, err));
    TAP_TRY(unescape(value, err));
    for (size_t i = 0; i < query->n_pairs; i++)
        if (strcmp(query->pairs[i].name, pair) == 0)
            return tap_fail(err, TAP_ERR_ARGUMENT, "%.64s: given twice", pair);
    if (query->n_pairs == TAP_QUERY_PAIRS)
        return tap_fail(err, TAP_ERR_LIMIT, "query: more than %d fields", TAP_QUERY_PAIRS);
    query->pairs[query->n_pairs].name = pair;
    query->pairs[query->n_pairs++].value = value;
    return TAP_OK;
}

tap_status tap_query_parse(tap_query *query, char *target, tap_error *err)
{
    if (strncasecmp(target, "http://", 7) == 0) {
        target += 7;
        target += strcspn(target, "/?#");
    }
    *query = (tap_query){.path = target};
    char *fragment = strchr(target, '#');
    if (fragment != NULL)
        *fragment = '\0';
    char *rest = strchr(target, '?');
    if (rest == NULL)
        return TAP_OK;
    *rest++ = '\0';
    while (*rest != '\0') {
        char *next = strchr(rest, '&');
        if (next != NULL)
            *next++ = '\0';
        if (*rest != '\0')
            TAP_TRY(add_pair(query, rest, err));
        if (next == NULL)
            break;
        rest = next;
    }
    return TAP_OK;
}
