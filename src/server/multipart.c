/* multipart/form-data (RFC 7578 on RFC 2046), whole in memory. */
#include "request.h"

#include "core/core.h"

#include <string.h>
#include <strings.h>

enum { MAX_HEAD_BYTES = 4096, MAX_NAME = 64 };

/* Skips spaces and tabs. */
static char *skip_blank(char *text)
{
    while (*text == ' ' || *text == '\t')
        text++;
    return text;
}

/* Reads one `; name=value` or `; name="value"` of a header in place; *text moves behind it. False
 * when there is none any more, or it is malformed. */
static bool next_parameter(char **text, char **name, char **value)
{
    char *at = skip_blank(*text);
    if (*at != ';')
        return false;
    *name = at = skip_blank(at + 1);
    while (*at != '\0' && strchr("=; \t\"", *at) == NULL)
        at++;
    if (*at != '=' || at == *name)
        return false;
    *at++ = '\0';
    if (*at != '"') {
        *value = at;
        while (*at != '\0' && *at != ';')
            at++;
        char *end = at;
        while (end > *value && (end[-1] == ' ' || end[-1] == '\t'))
            end--;
        /* The separator is still wanted, so only blanks can be overwritten here; the caller
         * terminates an unquoted value when it has read the next separator. */
        *text = at;
        if (end < at)
            *end = '\0';
        return true;
    }
    char *out = *value = ++at;
    while (*at != '\0' && *at != '"') {
        if (*at == '\\' && at[1] != '\0')
            at++;
        *out++ = *at++;
    }
    if (*at != '"')
        return false;
    *out = '\0';
    *text = at + 1;
    return true;
}

/* The parameter of this name in `type; a=b; c="d"`, or NULL. Writes into header. */
static char *find_parameter(char *header, const char *wanted)
{
    char *name, *value, *text = strchr(header, ';');
    if (text == NULL)
        return NULL;
    while (next_parameter(&text, &name, &value)) {
        bool ends = *text == ';';
        if (strcasecmp(name, wanted) == 0) {
            if (ends)
                *text = '\0';
            return value;
        }
    }
    return NULL;
}

tap_status tap_multipart_boundary(char out[TAP_BOUNDARY + 1], const char *content_type,
                                  tap_error *err)
{
    char header[512];
    size_t n = strlen(content_type);
    if (n >= sizeof header)
        return tap_fail(err, TAP_ERR_ARGUMENT, "Content-Type: %zu bytes long", n);
    memcpy(header, content_type, n + 1);
    const char *boundary = find_parameter(header, "boundary");
    if (boundary == NULL || boundary[0] == '\0')
        return tap_fail(err, TAP_ERR_ARGUMENT, "Content-Type: multipart without a boundary");
    if (strlen(boundary) > TAP_BOUNDARY)
        return tap_fail(err, TAP_ERR_ARGUMENT, "Content-Type: a boundary of over %d characters",
                        TAP_BOUNDARY);
    memcpy(out, boundary, strlen(boundary) + 1);
    return TAP_OK;
}

/* Reads a part's header lines, which end in CR LF and are followed by a NUL. */
static tap_status read_head(tap_part *part, char *head, size_t index, tap_error *err)
{
    part->name = NULL;
    for (char *line = head, *next; *line != '\0'; line = next) {
        char *end = strstr(line, "\r\n");
        next = end != NULL ? end + 2 : line + strlen(line);
        if (end != NULL)
            *end = '\0';
        if (strncasecmp(line, "content-transfer-encoding:", 26) == 0) {
            const char *value = skip_blank(line + 26);
            if (strcasecmp(value, "binary") != 0 && strcasecmp(value, "8bit") != 0 &&
                strcasecmp(value, "7bit") != 0)
                return tap_fail(err, TAP_ERR_ARGUMENT,
                                "multipart: part %zu is sent as %.32s; send it as it is", index,
                                value);
        }
        if (strncasecmp(line, "content-disposition:", 20) != 0)
            continue;
        const char *type = skip_blank(line + 20);
        if (strncasecmp(type, "form-data", 9) != 0 || strchr("; \t", type[9]) == NULL)
            return tap_fail(err, TAP_ERR_ARGUMENT, "multipart: part %zu is not form-data", index);
        part->name = find_parameter(line + 20, "name");
    }
    if (part->name == NULL || part->name[0] == '\0' || strlen(part->name) > MAX_NAME)
        return tap_fail(err, TAP_ERR_ARGUMENT, "multipart: part %zu has no name, or a long one",
                        index);
    return TAP_OK;
}

/* Splits one part at the empty line. */
static tap_status read_part(tap_part *part, uint8_t *start, uint8_t *end, size_t index,
                            tap_error *err)
{
    size_t n = (size_t)(end - start);
    size_t n_look = n < MAX_HEAD_BYTES ? n : MAX_HEAD_BYTES;
    uint8_t *blank = memmem(start, n_look, "\r\n\r\n", 4);
    bool bare = n >= 2 && memcmp(start, "\r\n", 2) == 0; /* the empty line comes first */
    if (blank == NULL || bare || memchr(start, '\0', (size_t)(blank - start)) != NULL)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "multipart: the head of part %zu does not end within %d bytes, is empty, "
                        "or has a NUL in it",
                        index, MAX_HEAD_BYTES);
    part->data = blank + 4;
    part->size = (size_t)(end - part->data);
    blank[2] = '\0';
    return read_head(part, (char *)start, index, err);
}

/* Behind a delimiter: true and *at on the next part, or false at the closing one. */
static tap_status after_delimiter(bool *more, uint8_t **at, const uint8_t *end, tap_error *err)
{
    uint8_t *text = *at;
    *more = false;
    if (end - text >= 2 && text[0] == '-' && text[1] == '-')
        return TAP_OK;
    while (text < end && (*text == ' ' || *text == '\t'))
        text++;
    if (end - text < 2 || text[0] != '\r' || text[1] != '\n')
        return tap_fail(err, TAP_ERR_ARGUMENT, "multipart: a line begins like the boundary");
    *at = text + 2;
    *more = true;
    return TAP_OK;
}

tap_status tap_multipart_parse(tap_part parts[TAP_PARTS], size_t *n_parts, uint8_t *body,
                               size_t n_body, const char *boundary, tap_error *err)
{
    char delimiter[TAP_BOUNDARY + 5] = "\r\n--";
    size_t n_delimiter = 4 + strlen(boundary);
    memcpy(delimiter + 4, boundary, n_delimiter - 4);
    uint8_t *at, *end = body + n_body;
    *n_parts = 0;
    if (n_body >= n_delimiter - 2 && memcmp(body, delimiter + 2, n_delimiter - 2) == 0)
        at = body + n_delimiter - 2;
    else if ((at = memmem(body, n_body, delimiter, n_delimiter)) != NULL)
        at += n_delimiter;
    else
        return tap_fail(err, TAP_ERR_ARGUMENT, "multipart: the boundary is not in the body");
    for (;;) {
        bool more;
        TAP_TRY(after_delimiter(&more, &at, end, err));
        if (!more)
            return TAP_OK;
        uint8_t *stop = memmem(at, (size_t)(end - at), delimiter, n_delimiter);
        if (stop == NULL)
            return tap_fail(err, TAP_ERR_ARGUMENT,
                            "multipart: the body ends within part %zu: it was cut", *n_parts + 1);
        if (*n_parts == TAP_PARTS)
            return tap_fail(err, TAP_ERR_LIMIT, "multipart: more than %d parts", TAP_PARTS);
        tap_part *part = &parts[*n_parts];
        TAP_TRY(read_part(part, at, stop, *n_parts + 1, err));
        for (size_t i = 0; i < *n_parts; i++)
            if (strcmp(parts[i].name, part->name) == 0)
                return tap_fail(err, TAP_ERR_ARGUMENT, "%s: given twice", part->name);
        ++*n_parts;
        at = stop + n_delimiter;
    }
}
