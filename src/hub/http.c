#include "http.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

enum { MAX_HOPS = 6, STALL_BYTES_PER_S = 1024 };

struct tap_http {
    CURL *curl;
    tap_hub_options options;
    bool loopback; /* plain http to this machine is allowed */
    char host[256];
    char detail[CURL_ERROR_SIZE];
};

/* One answer as it arrives. */
struct transfer {
    tap_http *http;
    tap_http_facts facts;
    int fd; /* -1: the body is not wanted */
    const char *file;
    uint64_t done, total, max_bytes;
    bool too_large;
    int write_errno;
};

/* ---- where we may go ----------------------------------------------------------------------- */

static bool is_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
           (strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == strlen(host));
}

/* https anywhere; http only to this machine, and only if the endpoint is there too: a hub's
 * redirect must not reach our own ports. */
static tap_status check_url(const char *url, bool allow_loopback, char host[256], tap_error *err)
{
    char *scheme = NULL, *name = NULL;
    CURLU *parts = curl_url();
    bool parsed = parts != NULL && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
                  curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                  curl_url_get(parts, CURLUPART_HOST, &name, 0) == CURLUE_OK && strlen(name) < 256;
    bool allowed = parsed && (strcmp(scheme, "https") == 0 ||
                              (strcmp(scheme, "http") == 0 && allow_loopback && is_loopback(name)));
    if (allowed)
        strcpy(host, name);
    curl_free(scheme);
    curl_free(name);
    curl_url_cleanup(parts);
    if (!parsed)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: is no address", url);
    if (!allowed)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: is not https; refused", url);
    return TAP_OK;
}

tap_status tap_http_open(tap_http **out, const tap_hub_options *options, tap_error *err)
{
    tap_http *http = calloc(1, sizeof *http);
    *out = NULL;
    if (http == NULL || (http->curl = curl_easy_init()) == NULL) {
        free(http);
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a connection");
    }
    http->options = *options;
    tap_status status = check_url(options->endpoint, true, http->host, err);
    http->loopback = strncmp(options->endpoint, "http:", 5) == 0;
    if (status != TAP_OK) {
        tap_http_close(http);
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "%s: the hub's address must be https, or http on a loopback address; "
                        "correct $HF_ENDPOINT",
                        options->endpoint);
    }
    *out = http;
    return TAP_OK;
}

void tap_http_close(tap_http *http)
{
    if (http == NULL)
        return;
    curl_easy_cleanup(http->curl);
    free(http);
}

/* ---- what comes back ----------------------------------------------------------------------- */

/* The value of a header line if it has this name; copied without white space, W/ and quotes. */
static void take_header(char *out, size_t room, const char *line, size_t n, const char *name)
{
    size_t length = strlen(name);
    if (n <= length || line[length] != ':' || strncasecmp(line, name, length) != 0)
        return;
    const char *from = line + length + 1, *end = line + n;
    while (from < end && (*from == ' ' || *from == '\t'))
        from++;
    while (end > from && strchr("\r\n \t", end[-1]) != NULL)
        end--;
    if (end - from > 2 && from[0] == 'W' && from[1] == '/')
        from += 2;
    if (end - from >= 2 && from[0] == '"' && end[-1] == '"')
        from++, end--;
    size_t size = (size_t)(end - from);
    if (size < room) {
        memcpy(out, from, size);
        out[size] = '\0';
    }
}

/* libcurl hands over one header line at a time. */
static size_t receive_header(char *line, size_t one, size_t n, void *user)
{
    tap_http_facts *facts = &((struct transfer *)user)->facts;
    char linked[sizeof facts->etag] = "", size[24] = "";
    take_header(linked, sizeof linked, line, n, "X-Linked-Etag");
    take_header(size, sizeof size, line, n, "X-Linked-Size");
    take_header(facts->commit, sizeof facts->commit, line, n, "X-Repo-Commit");
    take_header(facts->error, sizeof facts->error, line, n, "X-Error-Code");
    if (size[0] != '\0' && strspn(size, "0123456789") == strlen(size)) {
        errno = 0;
        facts->size = strtoull(size, NULL, 10);
        facts->has_size = errno == 0;
    }
    /* The linked etag is the content's; the plain one, of a redirect's own page. */
    if (linked[0] != '\0')
        memcpy(facts->etag, linked, sizeof linked);
    else if (facts->etag[0] == '\0')
        take_header(facts->etag, sizeof facts->etag, line, n, "ETag");
    return one * n;
}

static size_t receive_body(char *data, size_t one, size_t n, void *user)
{
    struct transfer *transfer = user;
    long code = 0;
    curl_easy_getinfo(transfer->http->curl, CURLINFO_RESPONSE_CODE, &code);
    if (transfer->fd < 0 || code != 200)
        return one * n;
    if (n > transfer->max_bytes - transfer->done) {
        transfer->too_large = true;
        return 0;
    }
    for (size_t at = 0; at < n;) {
        ssize_t written = write(transfer->fd, data + at, n - at);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0) {
            transfer->write_errno = errno;
            return 0;
        }
        at += (size_t)written;
    }
    transfer->done += n;
    const tap_hub_options *options = &transfer->http->options;
    if (options->progress != NULL)
        options->progress(options->user, transfer->file, transfer->done, transfer->total);
    return n;
}

/* ---- one request, its redirects, its repetitions --------------------------------------------- */

static CURLcode set_up(tap_http *http, const char *url, bool head, const char *host,
                       struct curl_slist *headers, struct transfer *transfer)
{
    CURL *curl = http->curl;
    const tap_hub_options *options = &http->options;
    long stall_s = ((long)options->stall_ms + 999) / 1000;
    CURLcode bad = CURLE_OK;
    curl_easy_reset(curl);
    http->detail[0] = '\0';
#define SET(option, value)                                          \
    do {                                                            \
        CURLcode set_code_ = curl_easy_setopt(curl, option, value); \
        if (set_code_ != CURLE_OK)                                  \
            bad = set_code_;                                        \
    } while (0)
    SET(CURLOPT_URL, url);
    SET(CURLOPT_NOBODY, head ? 1L : 0L);
    SET(CURLOPT_PROTOCOLS_STR, http->loopback ? "http,https" : "https");
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(CURLOPT_USERAGENT, "tapetum/" TAP_HUB_VERSION);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)options->connect_ms);
    SET(CURLOPT_LOW_SPEED_LIMIT, (long)STALL_BYTES_PER_S);
    SET(CURLOPT_LOW_SPEED_TIME, stall_s);
    SET(CURLOPT_ERRORBUFFER, http->detail);
    SET(CURLOPT_HEADERFUNCTION, receive_header);
    SET(CURLOPT_HEADERDATA, transfer);
    SET(CURLOPT_WRITEFUNCTION, receive_body);
    SET(CURLOPT_WRITEDATA, transfer);
    if (is_loopback(host))
        SET(CURLOPT_PROXY, "");
    if (headers != NULL && strcmp(host, http->host) == 0)
        SET(CURLOPT_HTTPHEADER, headers);
#undef SET
    return bad;
}

/* What went wrong below HTTP, and whether another attempt could help. */
static tap_status fail_transfer(const struct transfer *transfer, CURLcode code, const char *url,
                                bool *again, tap_error *err)
{
    const char *detail = transfer->http->detail;
    if (transfer->too_large)
        return tap_fail(err, TAP_ERR_LIMIT, "%s: is larger than the %llu bytes it may have", url,
                        (unsigned long long)transfer->max_bytes);
    if (transfer->write_errno != 0)
        return tap_fail_errno(err, transfer->file, "cannot write the download",
                              transfer->write_errno);
    *again = code == CURLE_OPERATION_TIMEDOUT || code == CURLE_PARTIAL_FILE ||
             code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR || code == CURLE_GOT_NOTHING;
    if (code == CURLE_OUT_OF_MEMORY)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for a connection", url);
    return tap_fail(err, TAP_ERR_IO, "%s: the transfer failed: %s; check the network and try again",
                    url, detail[0] != '\0' ? detail : curl_easy_strerror(code));
}

/* Follows redirects from start to the answer. *again is set where the failure may pass. */
static tap_status request_once(tap_http *http, const char *start, bool head,
                               struct transfer *transfer, struct curl_slist *headers, bool *again,
                               tap_error *err)
{
    char host[256];
    char *url = strdup(start);
    tap_status status = TAP_OK;
    for (int hop = 0; status == TAP_OK; hop++) {
        if (url == NULL)
            return tap_fail(err, TAP_ERR_MEMORY, "out of memory for an address");
        if (hop == MAX_HOPS) {
            status = tap_fail(err, TAP_ERR_FORMAT, "%s: more than %d redirects", start, MAX_HOPS);
            break;
        }
        status = check_url(url, http->loopback, host, err);
        if (status != TAP_OK)
            break;
        transfer->facts.etag[0] = '\0';
        CURLcode code = set_up(http, url, head, host, headers, transfer);
        if (code == CURLE_OK)
            code = curl_easy_perform(http->curl);
        curl_easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, &transfer->facts.code);
        if (code != CURLE_OK) {
            status = fail_transfer(transfer, code, url, again, err);
            break;
        }
        long answer = transfer->facts.code;
        char *next = NULL; /* absolute; belongs to the handle */
        curl_easy_getinfo(http->curl, CURLINFO_REDIRECT_URL, &next);
        bool known = head && strlen(transfer->facts.etag) >= 40 && transfer->facts.has_size;
        if (answer == 429 || answer >= 500) {
            *again = true;
            status =
                tap_fail(err, TAP_ERR_IO, "%s: the hub answers %ld; try again later", url, answer);
        }
        if (status != TAP_OK || next == NULL || known)
            break;
        char *copy = strdup(next);
        free(url);
        url = copy;
    }
    free(url);
    return status;
}

/* As often as options allow. */
static tap_status request(tap_http *http, const char *url, bool head, struct transfer *transfer,
                          tap_error *err)
{
    struct curl_slist *headers = NULL;
    char *authorization = NULL;
    if (http->options.token != NULL) {
        if (asprintf(&authorization, "Authorization: Bearer %s", http->options.token) < 0)
            return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a header");
        headers = curl_slist_append(NULL, authorization);
        free(authorization);
        if (headers == NULL)
            return tap_fail(err, TAP_ERR_MEMORY, "out of memory for a header");
    }
    tap_status status = TAP_OK;
    uint32_t wait_ms = http->options.retry_ms;
    for (uint32_t attempt = 1;; attempt++, wait_ms *= 2) {
        bool again = false;
        transfer->facts = (tap_http_facts){0};
        transfer->done = 0;
        if (transfer->fd >= 0 &&
            (ftruncate(transfer->fd, 0) != 0 || lseek(transfer->fd, 0, SEEK_SET) != 0))
            status = tap_fail_errno(err, transfer->file, "cannot begin the download anew", errno);
        else
            status = request_once(http, url, head, transfer, headers, &again, err);
        if (status == TAP_OK || !again || attempt >= http->options.attempts)
            break;
        struct timespec pause = {wait_ms / 1000, (long)(wait_ms % 1000) * 1000000};
        nanosleep(&pause, NULL);
    }
    curl_slist_free_all(headers);
    return status;
}

tap_status tap_http_head(tap_http *http, const char *url, tap_http_facts *facts, tap_error *err)
{
    struct transfer transfer = {.http = http, .fd = -1};
    tap_status status = request(http, url, true, &transfer, err);
    *facts = transfer.facts;
    return status;
}

tap_status tap_http_get(tap_http *http, const char *url, int fd, uint64_t max_bytes,
                        const char *file, uint64_t total, tap_error *err)
{
    struct transfer transfer = {
        .http = http, .fd = fd, .file = file, .max_bytes = max_bytes, .total = total};
    TAP_TRY(request(http, url, false, &transfer, err));
    if (transfer.facts.code != 200)
        return tap_fail(err, TAP_ERR_IO, "%s: the answer is %ld, not the file", url,
                        transfer.facts.code);
    return TAP_OK;
}
