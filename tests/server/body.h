/* JSON bodies for the tests, each in memory of exactly its size, so that a sanitizer sees a byte
 * too far. */
#ifndef TAP_TESTS_SERVER_BODY_H
#define TAP_TESTS_SERVER_BODY_H

#include "check.h"

#include "server/request.h"

static const char *const one[] = {"image"};
static const char *const two[] = {"image_a", "image_b"};
static const tap_wish_limits predict = {
    .max_keypoints = 307200, .min_max_keypoints = -1, .max_input_pixels = 2100000};
static const tap_wish_limits match = {
    .max_keypoints = 8192, .min_max_keypoints = 1, .max_input_pixels = 2100000};
static const tap_wish_limits hands = {.max_hands = 16};

/* A request's result; the body is kept for the slices. */
struct read {
    tap_status status;
    tap_wish wish;
    tap_slice slices[2];
    tap_error err;
    char *body;
    size_t n_body;
};

static inline void read_body(struct read *read, const char *body, size_t n, bool pair)
{
    *read = (struct read){.body = malloc(n > 0 ? n : 1), .n_body = n};
    assert_non_null(read->body);
    memcpy(read->body, body, n);
    tap_superpoint_options_init(&read->wish.superpoint);
    tap_match_options_init(&read->wish.match);
    read->status = tap_json_request(&read->wish, pair ? &match : &predict, read->slices,
                                    pair ? two : one, pair ? 2 : 1, read->body, n, &read->err);
}

/* {"image":"Zm9v", fields}, read as /hamer/predict does. */
static inline void read_hands(struct read *read, const char *fields)
{
    size_t size = strlen(fields) + 32;
    read->body = malloc(size);
    assert_non_null(read->body);
    int n =
        snprintf(read->body, size, "{\"image\":\"Zm9v\"%s%s}", *fields != '\0' ? "," : "", fields);
    read->wish = (tap_wish){0};
    read->n_body = (size_t)n;
    tap_wish_init(&read->wish, TAP_SERVER_HAMER);
    read->status = tap_json_request(&read->wish, &hands, read->slices, one, 1, read->body,
                                    read->n_body, &read->err);
    if (read->status == TAP_OK)
        read->status = tap_wish_finish(&read->wish, &read->err);
}

static inline void read_text(struct read *read, const char *body)
{
    read_body(read, body, strlen(body), false);
}

static inline void done(struct read *read)
{
    free(read->body);
}

/* {"image":"Zm9v", fields}, read as /predict does. */
static inline void read_fields(struct read *read, const char *fields)
{
    char body[512];
    int n =
        snprintf(body, sizeof body, "{\"image\":\"Zm9v\"%s%s}", *fields != '\0' ? "," : "", fields);
    assert_true(n > 0 && (size_t)n < sizeof body);
    read_body(read, body, (size_t)n, false);
}

static inline void let_pass(const char *fields)
{
    struct read read;
    read_fields(&read, fields);
    if (read.status != TAP_OK)
        fail_msg("%s: %s", fields, read.err.message);
    assert_int_equal(read.slices[0].size, 3);
    assert_memory_equal(read.slices[0].data, "foo", 3);
    done(&read);
}

#endif
