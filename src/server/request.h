/* What a client sends, taken apart: base64, query strings, multipart bodies, JSON bodies, and the
 * fields that all of them carry. Everything here works in the caller's memory, in one pass, and
 * trusts nothing. Private to the server. */
#ifndef TAP_SERVER_REQUEST_H
#define TAP_SERVER_REQUEST_H

#include "server.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- base64 -------------------------------------------------------------------------------- */

/* Decodes n characters to out, which may be text itself. Understood: the standard and the URL-safe
 * alphabet, white space anywhere, "=" or none at the end, a "data:...;base64," in front.
 * Errors  TAP_ERR_FORMAT: "Only base64 data is allowed: ..." with the position. */
tap_status tap_base64_decode(uint8_t *out, size_t *n_out, const char *text, size_t n,
                             tap_error *err);

/* ---- query strings ------------------------------------------------------------------------- */

enum { TAP_QUERY_PAIRS = 32 };

typedef struct tap_query {
    const char *path; /* as sent, up to the question mark */
    size_t n_pairs;
    struct tap_query_pair {
        const char *name, *value;
    } pairs[TAP_QUERY_PAIRS];
} tap_query;

/* Takes a request target ("/predict?nms=single&size=64x64", or the absolute form) apart in place.
 * "+" is a space, "%41" an A. Errors: TAP_ERR_ARGUMENT: a bad escape, a NUL, a name twice;
 * TAP_ERR_LIMIT: too many pairs. */
tap_status tap_query_parse(tap_query *query, char *target, tap_error *err);

/* ---- multipart ----------------------------------------------------------------------------- */

enum { TAP_PARTS = 32, TAP_BOUNDARY = 70 };

typedef struct tap_part {
    const char *name; /* in the body's memory */
    uint8_t *data;
    size_t size;
} tap_part;

/* The boundary of a multipart/form-data content type. */
tap_status tap_multipart_boundary(char out[TAP_BOUNDARY + 1], const char *content_type,
                                  tap_error *err);

/* Takes a multipart/form-data body apart (RFC 7578): at most TAP_PARTS parts, names not twice.
 * Writes NULs into the parts' headers. */
tap_status tap_multipart_parse(tap_part parts[TAP_PARTS], size_t *n_parts, uint8_t *body,
                               size_t n_body, const char *boundary, tap_error *err);

/* ---- fields -------------------------------------------------------------------------------- */

enum {
    /* HaMeR: a picture's longest side, and the square's that is cut out of it. They bound the time
     * and the memory that smoothing takes. */
    TAP_HANDS_PICTURE_SIDE = 65535,
    TAP_HANDS_SQUARE_SIDE = 32768
};

/* HaMeR's part of a wish. */
typedef struct tap_hands_wish {
    tap_hamer_options options; /* tap_wish_hands has it whole */
    tap_hands_answer answer;
    size_t n_boxes, n_sides;
    bool boxes_given, sides_list; /* bbox is there; is_right is a list */
    bool camera_given[4];         /* fx, fy, cx, cy */
    tap_hand_box boxes[TAP_HANDS_MAX];
    bool sides[TAP_HANDS_MAX];
} tap_hands_wish;

/* What a request asks for. */
typedef struct tap_wish {
    tap_server_kind kind; /* whose fields are read */
    tap_superpoint_options superpoint;
    tap_match_options match;
    bool descriptors_given; /* return_descriptors was in the request */
    tap_hands_wish hands;
} tap_wish;

typedef struct tap_wish_limits {
    int32_t max_keypoints;     /* 307200; less for /match */
    int32_t min_max_keypoints; /* -1; 1 for /match */
    uint64_t max_input_pixels;
    uint32_t max_hands;
} tap_wish_limits;

/* The defaults of all fields. */
void tap_wish_init(tap_wish *wish, tap_server_kind kind);

/* True if it is a field of ours, and then the value's text is read into *wish. Errors:
 * TAP_ERR_ARGUMENT, the message begins with the field's name. Unknown names are TAP_OK. */
tap_status tap_wish_set_text(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                             const char *value, tap_error *err);

/* With all fields set: do they go together? */
tap_status tap_wish_finish(tap_wish *wish, tap_error *err);

/* HaMeR's boxes and the picture go together. Errors: TAP_ERR_ARGUMENT, with the box and the
 * picture's size. */
tap_status tap_wish_check_picture(const tap_wish *wish, uint32_t width, uint32_t height,
                                  tap_error *err);

/* The options of the call; the boxes are borrowed from the wish. */
tap_hamer_options tap_wish_hands(const tap_wish *wish);

/* ---- JSON ---------------------------------------------------------------------------------- */

enum {
    TAP_JSON_VALUES = 10000, /* a tree parser multiplies hostile input 36 times */
    TAP_JSON_DEPTH = 16,
    TAP_JSON_REST = 1 << 20 /* bytes beside the pictures */
};

typedef struct tap_slice {
    uint8_t *data; /* NULL: absent */
    size_t size;
} tap_slice;

/* Reads a request's JSON object: the string fields named in pictures are base64, decoded in place
 * (in body's memory) and returned as slices; the others go to *wish; unknown ones are ignored.
 * A field twice is an error. Errors: TAP_ERR_ARGUMENT (not JSON, where; a field, why),
 * TAP_ERR_LIMIT (values, depth, bytes), TAP_ERR_FORMAT ("bad image: ..."), TAP_ERR_MEMORY. */
tap_status tap_json_request(tap_wish *wish, const tap_wish_limits *limits, tap_slice *slices,
                            const char *const *pictures, size_t n_pictures, char *body,
                            size_t n_body, tap_error *err);

#endif
