/* Bytes as the JSON body of SuperPoint's /predict or /match, or of HaMeR's /predict (the first byte
 * says which). Pictures that are
 * accepted lie in the body, and options are in their ranges. What is accepted json-c reads whole,
 * and its strings hold the same pictures. */
#include "server/request.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const one[] = {"image"}, *const two[] = {"image_a", "image_b"};

static void check_pictures(const tap_slice *slices, const char *const *names, size_t n_pictures,
                           const uint8_t *body, size_t n_body)
{
    json_tokener *tokener = json_tokener_new_ex(TAP_JSON_DEPTH + 1);
    json_object *root = json_tokener_parse_ex(tokener, (const char *)body, (int)n_body);
    if (!json_object_is_type(root, json_type_object))
        abort();
    for (size_t i = 0; i < n_pictures; i++) {
        json_object *text = json_object_object_get(root, names[i]);
        size_t n = (size_t)json_object_get_string_len(text), n_bytes;
        uint8_t *bytes = malloc(n + 1);
        tap_error err;
        if (!json_object_is_type(text, json_type_string) || bytes == NULL ||
            tap_base64_decode(bytes, &n_bytes, json_object_get_string(text), n, &err) != TAP_OK ||
            n_bytes != slices[i].size || memcmp(bytes, slices[i].data, n_bytes) != 0)
            abort();
        free(bytes);
    }
    json_object_put(root);
    json_tokener_free(tokener);
}

static void check_points(const tap_wish *wish, const tap_wish_limits *limits)
{
    const tap_superpoint_options *options = &wish->superpoint;
    if (options->max_keypoints < limits->min_max_keypoints ||
        options->max_keypoints > limits->max_keypoints || options->nms_radius > 32 ||
        !(options->keypoint_threshold >= 0 && options->keypoint_threshold <= 1) ||
        options->width % 8 != 0 || options->height % 8 != 0 || options->width == 0 ||
        options->height == 0 ||
        (uint64_t)options->width * options->height > limits->max_input_pixels)
        abort();
}

/* Boxes that pass lie in the picture, in part, and make squares that the crop can bear. */
static void check_hands(tap_wish *wish, const tap_wish_limits *limits)
{
    tap_error err;
    if (tap_wish_finish(wish, &err) != TAP_OK ||
        tap_wish_check_picture(wish, 600, 450, &err) != TAP_OK)
        return;
    tap_hamer_options options = tap_wish_hands(wish);
    if (options.n_boxes > limits->max_hands || (options.boxes == NULL && options.n_boxes > 0) ||
        !(options.rescale_factor >= 0.01f && options.rescale_factor <= 100) ||
        options.camera.fx < 0 || (options.camera.fx == 0) != (options.camera.fy == 0))
        abort();
    for (size_t i = 0; i < options.n_boxes; i++) {
        const tap_hand_box *box = &options.boxes[i];
        double width = (double)box->x2 - (double)box->x1;
        double height = (double)box->y2 - (double)box->y1;
        double side = (double)options.rescale_factor * (width > height ? width : height);
        if (!(width > 0 && height > 0 && box->x2 > -0.5f && box->x1 < 599.5f && side <= 32768))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    bool hands = data[0] & 2, match = !hands && data[0] & 1;
    tap_wish_limits limits = {.max_keypoints = match ? 8192 : 307200,
                              .min_max_keypoints = match ? 1 : -1,
                              .max_input_pixels = 2100000,
                              .max_hands = 16};
    tap_wish wish = {0};
    tap_slice slices[2] = {{0}};
    tap_error err;
    tap_wish_init(&wish, hands ? TAP_SERVER_HAMER : TAP_SERVER_SUPERPOINT);
    /* Exactly as large as it is, so that a byte too far is seen. */
    char *body = malloc(size - 1 > 0 ? size - 1 : 1);
    if (body == NULL)
        return 0;
    memcpy(body, data + 1, size - 1);
    if (tap_json_request(&wish, &limits, slices, match ? two : one, match ? 2 : 1, body, size - 1,
                         &err) == TAP_OK) {
        for (size_t i = 0; i < (match ? 2u : 1u); i++)
            if (slices[i].data < (uint8_t *)body ||
                slices[i].data + slices[i].size > (uint8_t *)body + size - 1)
                abort();
        if (hands)
            check_hands(&wish, &limits);
        else
            check_points(&wish, &limits);
        check_pictures(slices, match ? two : one, match ? 2 : 1, data + 1, size - 1);
    }
    free(body);
    return 0;
}
