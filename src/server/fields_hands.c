/* HaMeR's fields. A box is [x1, y1, x2, y2] or, as text, "x1,y1,x2,y2"; several are a list, or
 * boxes with semicolons between. Numbers of a box are judged when the picture's size is known, so
 * that the message can have both. */
#include "fields.h"

#include "core/core.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WHOLE_PIXELS = 1 << 24, /* beyond it a float32 skips pixels */
    NAME = 48,
    DIGITS = 64
};

static const char *const corner_names[4] = {"x1", "y1", "x2", "y2"};
static const char *const camera_names[4] = {"fx", "fy", "cx", "cy"};

/* ---- boxes ----------------------------------------------------------------------------------- */

/* "bbox", or "bbox[3]" in a list. */
static const char *box_name(char out[NAME], const char *name, bool list, size_t i)
{
    if (list)
        snprintf(out, NAME, "%s[%zu]", name, i);
    else
        snprintf(out, NAME, "%s", name);
    return out;
}

static void set_corner(tap_hand_box *box, size_t i, double number)
{
    float *const corners[4] = {&box->x1, &box->y1, &box->x2, &box->y2};
    *corners[i] = (float)fmax(-(double)FLT_MAX, fmin(number, (double)FLT_MAX));
}

static tap_status refuse_count(const char *name, size_t n, const tap_wish_limits *limits,
                               tap_error *err)
{
    return tap_fail(err, TAP_ERR_ARGUMENT,
                    "%s: %zu boxes are more than this server's %u in one request; send them in "
                    "several, or raise --max-hands",
                    name, n, limits->max_hands);
}

static tap_status read_box(tap_hand_box *box, const char *name, const tap_value *value,
                           tap_error *err)
{
    if (value->kind != TAP_VALUE_ARRAY || value->count != 4)
        return tap_field_refuse(name, "four numbers [x1, y1, x2, y2]", value, err);
    for (size_t i = 0; i < 4; i++) {
        tap_value item = value->item(value->array, i);
        char which[NAME + 4];
        double number;
        snprintf(which, sizeof which, "%s: %s", name, corner_names[i]);
        if (!tap_field_number(&number, &item))
            return tap_field_refuse(which, "a number", &item, err);
        set_corner(box, i, number);
    }
    return TAP_OK;
}

static tap_status read_array(tap_hands_wish *hands, const tap_wish_limits *limits, const char *name,
                             const tap_value *value, tap_error *err)
{
    bool list = value->count == 0 || value->item(value->array, 0).kind == TAP_VALUE_ARRAY;
    char own[NAME];
    hands->answer.list = list;
    hands->n_boxes = list ? value->count : 1;
    if (!list)
        return read_box(&hands->boxes[0], name, value, err);
    if (value->count > limits->max_hands)
        return refuse_count(name, value->count, limits, err);
    for (size_t i = 0; i < value->count; i++) {
        tap_value item = value->item(value->array, i);
        TAP_TRY(read_box(&hands->boxes[i], box_name(own, name, true, i), &item, err));
    }
    return TAP_OK;
}

/* One box of text, up to ';' or the end; *text moves behind it. */
static bool read_box_text(tap_hand_box *box, const char **text)
{
    for (size_t i = 0; i < 4; i++) {
        char digits[DIGITS];
        size_t n = strcspn(*text, ",;");
        tap_value value = {.kind = TAP_VALUE_TEXT, .text = digits};
        double number;
        if (n >= sizeof digits)
            return false;
        memcpy(digits, *text, n);
        digits[n] = '\0';
        *text += n;
        if (!tap_field_number(&number, &value) || (i < 3 && **text != ','))
            return false;
        set_corner(box, i, number);
        *text += i < 3;
    }
    return **text != ',';
}

static tap_status read_text(tap_hands_wish *hands, const tap_wish_limits *limits, const char *name,
                            const tap_value *value, tap_error *err)
{
    const char *text = value->text;
    size_t n = 1;
    char own[NAME];
    for (const char *c = text; *c != '\0'; c++)
        n += *c == ';';
    hands->answer.list = n > 1;
    hands->n_boxes = n;
    if (n > limits->max_hands)
        return refuse_count(name, n, limits, err);
    for (size_t i = 0; i < n; i++) {
        if (!read_box_text(&hands->boxes[i], &text))
            return tap_field_refuse(box_name(own, name, n > 1, i), "four numbers x1,y1,x2,y2",
                                    value, err);
        text += *text == ';';
    }
    return TAP_OK;
}

static tap_status set_boxes(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                            const tap_value *value, tap_error *err)
{
    wish->hands.boxes_given = true;
    if (value->kind == TAP_VALUE_TEXT)
        return read_text(&wish->hands, limits, name, value, err);
    if (value->kind == TAP_VALUE_ARRAY)
        return read_array(&wish->hands, limits, name, value, err);
    return tap_field_refuse(name, "[x1, y1, x2, y2], or a list of such", value, err);
}

/* ---- sides ----------------------------------------------------------------------------------- */

static tap_status read_sides(tap_hands_wish *hands, const tap_wish_limits *limits, const char *name,
                             const tap_value *value, tap_error *err)
{
    char own[NAME];
    if (value->count > limits->max_hands)
        return refuse_count(name, value->count, limits, err);
    hands->n_sides = value->count;
    for (size_t i = 0; i < value->count; i++) {
        tap_value item = value->item(value->array, i);
        TAP_TRY(tap_field_boolean(&hands->sides[i], box_name(own, name, true, i), &item, err));
    }
    return TAP_OK;
}

/* "true,false" */
static tap_status read_sides_text(tap_hands_wish *hands, const tap_wish_limits *limits,
                                  const char *name, const char *text, tap_error *err)
{
    hands->n_sides = 0;
    for (;;) {
        char word[8], own[NAME];
        size_t n = strcspn(text, ",");
        tap_value value = {.kind = TAP_VALUE_TEXT, .text = word};
        if (hands->n_sides == limits->max_hands)
            return refuse_count(name, hands->n_sides + 1, limits, err);
        snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), text);
        TAP_TRY(tap_field_boolean(&hands->sides[hands->n_sides],
                                  box_name(own, name, true, hands->n_sides), &value, err));
        hands->n_sides++;
        if (text[n] == '\0')
            return TAP_OK;
        text += n + 1;
    }
}

static tap_status set_sides(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                            const tap_value *value, tap_error *err)
{
    tap_hands_wish *hands = &wish->hands;
    hands->sides_list = true;
    if (value->kind == TAP_VALUE_ARRAY)
        return read_sides(hands, limits, name, value, err);
    if (value->kind == TAP_VALUE_TEXT && strchr(value->text, ',') != NULL)
        return read_sides_text(hands, limits, name, value->text, err);
    hands->sides_list = false;
    return tap_field_boolean(&hands->options.is_right, name, value, err);
}

/* ---- the others ------------------------------------------------------------------------------ */

static tap_status set_factor(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                             const tap_value *value, tap_error *err)
{
    (void)limits;
    double factor = 0;
    TAP_TRY(tap_field_real(&factor, name, 0.01, 100, value, err));
    wish->hands.options.rescale_factor = (float)factor;
    return TAP_OK;
}

static tap_status set_vertices(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                               const tap_value *value, tap_error *err)
{
    (void)limits;
    return tap_field_boolean(&wish->hands.answer.return_vertices, name, value, err);
}

static tap_status set_faces(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                            const tap_value *value, tap_error *err)
{
    (void)limits;
    return tap_field_boolean(&wish->hands.answer.return_faces, name, value, err);
}

static tap_status set_crop(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                           const tap_value *value, tap_error *err)
{
    (void)limits;
    bool demo;
    TAP_TRY(tap_field_choice(&demo, name, "served", "demo", value, err));
    wish->hands.options.policy = demo ? TAP_HAND_DEMO : TAP_HAND_SERVED;
    return TAP_OK;
}

static tap_status set_exif(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                           const tap_value *value, tap_error *err)
{
    (void)limits;
    bool apply;
    TAP_TRY(tap_field_choice(&apply, name, "ignore", "apply", value, err));
    wish->hands.options.exif = apply ? TAP_EXIF_APPLY : TAP_EXIF_IGNORE;
    return TAP_OK;
}

static tap_status set_rotations(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                                const tap_value *value, tap_error *err)
{
    (void)limits;
    return tap_field_choice(&wish->hands.answer.image_rotations, name, "network", "image", value,
                            err);
}

static tap_status set_camera(tap_wish *wish, const tap_wish_limits *limits, const char *name,
                             const tap_value *value, tap_error *err)
{
    (void)limits;
    tap_hand_camera *camera = &wish->hands.options.camera;
    double *const numbers[4] = {&camera->fx, &camera->fy, &camera->cx, &camera->cy};
    size_t i = 0;
    while (strcmp(name, camera_names[i]) != 0)
        i++;
    wish->hands.camera_given[i] = true;
    return tap_field_real(numbers[i], name, i < 2 ? 0.01 : -1e7, 1e7, value, err);
}

const tap_field tap_hands_fields[] = {
    {"bbox", set_boxes},
    {"is_right", set_sides},
    {"rescale_factor", set_factor},
    {"return_vertices", set_vertices},
    {"return_faces", set_faces},
    {"crop", set_crop},
    {"exif", set_exif},
    {"rotations", set_rotations},
    {"fx", set_camera},
    {"fy", set_camera},
    {"cx", set_camera},
    {"cy", set_camera},
    {.name = NULL},
};

/* ---- together -------------------------------------------------------------------------------- */

static tap_status finish_sides(tap_hands_wish *hands, tap_error *err)
{
    if (hands->sides_list && !hands->answer.list)
        return tap_fail(err, TAP_ERR_ARGUMENT, "is_right: is a list, and bbox is %s",
                        hands->boxes_given ? "one box" : "missing");
    if (hands->sides_list && hands->n_sides != hands->n_boxes)
        return tap_fail(err, TAP_ERR_ARGUMENT, "is_right: is a list of %zu, and bbox one of %zu",
                        hands->n_sides, hands->n_boxes);
    for (size_t i = 0; i < hands->n_boxes; i++)
        hands->boxes[i].is_right = hands->sides_list ? hands->sides[i] : hands->options.is_right;
    return TAP_OK;
}

tap_status tap_wish_finish(tap_wish *wish, tap_error *err)
{
    tap_hands_wish *hands = &wish->hands;
    if (wish->kind != TAP_SERVER_HAMER)
        return TAP_OK;
    size_t n_camera = 0;
    for (size_t i = 0; i < 4; i++)
        n_camera += hands->camera_given[i];
    for (size_t i = 0; i < 4 && n_camera > 0; i++)
        if (!hands->camera_given[i])
            return tap_fail(err, TAP_ERR_ARGUMENT, "%s: missing; fx, fy, cx, cy go together",
                            camera_names[i]);
    return finish_sides(hands, err);
}

tap_hamer_options tap_wish_hands(const tap_wish *wish)
{
    tap_hamer_options options = wish->hands.options;
    options.boxes = wish->hands.boxes_given ? wish->hands.boxes : NULL;
    options.n_boxes = wish->hands.n_boxes;
    return options;
}

/* What is wrong with a box, in words; NULL: nothing. */
static const char *box_fault(const tap_hand_box *box, const tap_hamer_options *options,
                             uint32_t width, uint32_t height)
{
    const double x1 = box->x1, y1 = box->y1, x2 = box->x2, y2 = box->y2;
    const double corners[4] = {x1, y1, x2, y2};
    for (size_t i = 0; i < 4; i++)
        if (fabs(corners[i]) > WHOLE_PIXELS)
            return "reaches further than 16777216 pixels";
    if (!(x2 > x1) || !(y2 > y1))
        return "is empty: x2 must be greater than x1, and y2 than y1";
    /* A pixel reaches from half before to half behind its place. */
    if (!(x2 > -0.5 && y2 > -0.5 && x1 < width - 0.5 && y1 < height - 0.5))
        return "lies wholly outside the picture";
    double wide = options->policy == TAP_HAND_DEMO ? (x2 - x1) * 4 / 3 : x2 - x1;
    double side = (double)options->rescale_factor * fmax(wide, y2 - y1);
    if (side < 1)
        return "times rescale_factor is under one pixel";
    return side > TAP_HANDS_SQUARE_SIDE ? "times rescale_factor is over 32768 pixels" : NULL;
}

tap_status tap_wish_check_picture(const tap_wish *wish, uint32_t width, uint32_t height,
                                  tap_error *err)
{
    const tap_hands_wish *hands = &wish->hands;
    if (wish->kind != TAP_SERVER_HAMER)
        return TAP_OK;
    if (width > TAP_HANDS_PICTURE_SIDE || height > TAP_HANDS_PICTURE_SIDE)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "image: the picture is %ux%u, and no side may be over %d", width, height,
                        TAP_HANDS_PICTURE_SIDE);
    for (size_t i = 0; i < hands->n_boxes; i++) {
        const tap_hand_box *box = &hands->boxes[i];
        const char *fault = box_fault(box, &hands->options, width, height);
        char name[NAME];
        if (fault != NULL)
            return tap_fail(err, TAP_ERR_ARGUMENT, "%s: [%g, %g, %g, %g] %s (the picture is %ux%u)",
                            box_name(name, "bbox", hands->answer.list, i), (double)box->x1,
                            (double)box->y1, (double)box->x2, (double)box->y2, fault, width,
                            height);
    }
    return TAP_OK;
}
