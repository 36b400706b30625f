/* HaMeR's fields: what a request may ask for, and what is said to one that may not. */
#include "body.h"

#include <math.h>

/* Refused, with a message that begins so and has these words. */
static void refuse(const char *fields, const char *start, const char *words)
{
    struct read read;
    read_hands(&read, fields);
    if (read.status != TAP_ERR_ARGUMENT)
        fail_msg("%s: %s", fields, tap_status_name(read.status));
    if (strncmp(read.err.message, start, strlen(start)) != 0 ||
        strstr(read.err.message, words) == NULL)
        fail_msg("%s: \"%s\" is not \"%s... %s\"", fields, read.err.message, start, words);
    done(&read);
}

/* Well formed; and with a picture of 600x450 refused with these words, or NULL: fine. */
static void judge(const char *fields, const char *words)
{
    struct read read;
    read_hands(&read, fields);
    assert_ok(read.status, read.err);
    tap_status status = tap_wish_check_picture(&read.wish, 600, 450, &read.err);
    if (words == NULL) {
        if (status != TAP_OK)
            fail_msg("%s: %s", fields, read.err.message);
    } else if (status != TAP_ERR_ARGUMENT || strncmp(read.err.message, "bbox", 4) != 0 ||
               strstr(read.err.message, words) == NULL ||
               strstr(read.err.message, "the picture is 600x450") == NULL) {
        fail_msg("%s: \"%s\" does not say \"%s\"", fields,
                 status == TAP_OK ? "fine" : read.err.message, words);
    }
    done(&read);
}

/* ---- defaults and values ------------------------------------------------------------------- */

static void the_contracts_defaults(void **state)
{
    (void)state;
    struct read read;
    read_hands(&read, "");
    assert_ok(read.status, read.err);
    tap_hamer_options options = tap_wish_hands(&read.wish);
    assert_null(options.boxes);
    assert_true(options.is_right);
    assert_true(options.rescale_factor == 2);
    assert_int_equal(options.policy, TAP_HAND_SERVED);
    assert_int_equal(options.exif, TAP_EXIF_APPLY);
    assert_true(options.camera.fx == 0 && options.camera.cy == 0);
    assert_true(read.wish.hands.answer.return_vertices);
    assert_false(read.wish.hands.answer.return_faces);
    assert_false(read.wish.hands.answer.image_rotations);
    assert_false(read.wish.hands.answer.list);
    done(&read);
}

static void values_arrive(void **state)
{
    (void)state;
    struct read read;
    read_hands(&read, "\"bbox\":[218,38.5,3.78e2,-200],\"is_right\":false,\"rescale_factor\":2.5,"
                      "\"return_vertices\":false,\"return_faces\":true,\"crop\":\"demo\","
                      "\"exif\":\"ignore\",\"rotations\":\"image\",\"fx\":600,\"fy\":600.1,"
                      "\"cx\":-3,\"cy\":0");
    assert_ok(read.status, read.err);
    tap_hamer_options options = tap_wish_hands(&read.wish);
    assert_int_equal(options.n_boxes, 1);
    const tap_hand_box *box = &options.boxes[0];
    assert_true(box->x1 == 218 && box->y1 == 38.5f && box->x2 == 378 && box->y2 == -200);
    assert_false(box->is_right);
    assert_true(options.rescale_factor == 2.5f);
    assert_int_equal(options.policy, TAP_HAND_DEMO);
    assert_int_equal(options.exif, TAP_EXIF_IGNORE);
    assert_true(options.camera.fx == 600 && options.camera.fy == 600.1 && options.camera.cx == -3 &&
                options.camera.cy == 0);
    assert_false(read.wish.hands.answer.return_vertices);
    assert_true(read.wish.hands.answer.return_faces);
    assert_true(read.wish.hands.answer.image_rotations);
    assert_false(read.wish.hands.answer.list);
    done(&read);
}

static void lists_of_boxes(void **state)
{
    (void)state;
    struct read read;
    /* In any order of the fields. */
    read_hands(&read, "\"is_right\":[true,false],\"bbox\":[[1,2,3,4],[5,6,7,8]]");
    assert_ok(read.status, read.err);
    tap_hamer_options options = tap_wish_hands(&read.wish);
    assert_int_equal(options.n_boxes, 2);
    assert_true(options.boxes[0].is_right && !options.boxes[1].is_right);
    assert_true(options.boxes[1].x1 == 5 && options.boxes[1].y2 == 8);
    assert_true(read.wish.hands.answer.list);
    done(&read);
    read_hands(&read, "\"bbox\":[[1,2,3,4]],\"is_right\":false");
    assert_ok(read.status, read.err);
    assert_true(read.wish.hands.answer.list);
    assert_int_equal(read.wish.hands.n_boxes, 1);
    assert_false(read.wish.hands.boxes[0].is_right);
    done(&read);
    static const char *const empty[] = {"\"bbox\":[]", "\"bbox\":[],\"is_right\":[]",
                                        "\"bbox\":[],\"is_right\":true"};
    for (size_t i = 0; i < 3; i++) {
        read_hands(&read, empty[i]);
        assert_ok(read.status, read.err);
        options = tap_wish_hands(&read.wish);
        assert_non_null(options.boxes); /* no boxes, which is not "no box given" */
        assert_int_equal(options.n_boxes, 0);
        assert_true(read.wish.hands.answer.list);
        done(&read);
    }
}

/* ---- wrong ones ---------------------------------------------------------------------------- */

static void boxes_that_are_none(void **state)
{
    (void)state;
    refuse("\"bbox\":[1,2,3]", "bbox: ", "an array of 3");
    refuse("\"bbox\":[1,2,3,4,5]", "bbox: ", "an array of 5");
    refuse("\"bbox\":[1]", "bbox: ", "an array of 1");
    refuse("\"bbox\":[\"1\",\"2\",\"3\",\"4\"]", "bbox: x1: ", "the string \"1\"");
    refuse("\"bbox\":[1,2,3,\"4\"]", "bbox: y2: ", "the string \"4\"");
    refuse("\"bbox\":[1,true,3,4]", "bbox: y1: ", "true");
    refuse("\"bbox\":[1,2,null,4]", "bbox: x2: ", "null");
    refuse("\"bbox\":[1,2,[3],4]", "bbox: x2: ", "an array of 1");
    refuse("\"bbox\":[1,2,{},4]", "bbox: x2: ", "an object");
    refuse("\"bbox\":[1,2,1e999,4]", "bbox: x2: ", "inf");
    refuse("\"bbox\":[1,2,-1e999,4]", "bbox: x2: ", "-inf");
    refuse("\"bbox\":[NaN,2,3,4]", "not JSON", "");
    refuse("\"bbox\":null", "bbox: ", "null");
    refuse("\"bbox\":5", "bbox: ", "5");
    refuse("\"bbox\":true", "bbox: ", "true");
    refuse("\"bbox\":\"1,2,3,4\"", "bbox: ", "the string \"1,2,3,4\"");
    refuse("\"bbox\":{\"x1\":1}", "bbox: ", "an object");
    refuse("\"bbox\":[[]]", "bbox[0]: ", "an array of 0");
    refuse("\"bbox\":[[1,2,3,4],[1,2,3]]", "bbox[1]: ", "an array of 3");
    refuse("\"bbox\":[[1,2,3,4],5]", "bbox[1]: ", "5");
    refuse("\"bbox\":[[1,2,3,4],null]", "bbox[1]: ", "null");
    refuse("\"bbox\":[[1,2,3,4],[1,2,3,\"4\"]]", "bbox[1]: y2: ", "the string");
    refuse("\"bbox\":[[[1,2,3,4]]]", "bbox[0]: ", "an array of 1");
}

/* H10: what is wrong with a box is said with it and with the picture's size. */
static void boxes_that_show_nothing(void **state)
{
    (void)state;
    judge("\"bbox\":[218,38,378,200]", NULL);
    judge("\"bbox\":[-80,-60,60,90]", NULL);       /* over the corner */
    judge("\"bbox\":[-100,-100,700,550]", NULL);   /* around all */
    judge("\"bbox\":[599,449,700,500]", NULL);     /* the last pixel */
    judge("\"bbox\":[0.25,0.25,0.75,0.75]", NULL); /* inside one pixel, twice its side is one */
    judge("\"bbox\":[5,5,5,9]", "bbox: [5, 5, 5, 9] is empty");
    judge("\"bbox\":[5,5,9,5]", "bbox: [5, 5, 9, 5] is empty");
    judge("\"bbox\":[5,5,5,5]", "is empty");
    judge("\"bbox\":[300,38,218,200]", "bbox: [300, 38, 218, 200] is empty");
    judge("\"bbox\":[218,200,300,38]", "is empty");
    judge("\"bbox\":[700,500,900,700]", "bbox: [700, 500, 900, 700] lies wholly outside");
    judge("\"bbox\":[600,0,610,10]", "lies wholly outside");
    judge("\"bbox\":[0,450,10,460]", "lies wholly outside");
    judge("\"bbox\":[-50,10,-1,20]", "lies wholly outside");
    judge("\"bbox\":[10,-50,20,-1]", "lies wholly outside");
    judge("\"bbox\":[1e30,1e30,1e31,1e31]", "reaches further than 16777216");
    judge("\"bbox\":[0,0,1e30,1e30]", "reaches further than 16777216");
    judge("\"bbox\":[-1e300,0,10,10]", "reaches further than 16777216");
    judge("\"bbox\":[0,0,1,9223372036854775807]", "reaches further than 16777216");
    judge("\"bbox\":[0,0,20000,10]", "over 32768 pixels");
    judge("\"bbox\":[0,0,13000,10],\"crop\":\"demo\"", "over 32768 pixels");
    judge("\"bbox\":[0,0,16000,10]", NULL);
    judge("\"bbox\":[10,10,20,20],\"rescale_factor\":0.05", "under one pixel");
    judge("\"bbox\":[[218,38,378,200],[5,5,5,9]]", "bbox[1]: [5, 5, 5, 9] is empty");
    judge("\"bbox\":[]", NULL);
    judge("", NULL);
}

static void pictures_that_are_too_long(void **state)
{
    (void)state;
    struct read read;
    read_hands(&read, "");
    assert_ok(read.status, read.err);
    assert_ok(tap_wish_check_picture(&read.wish, 65535, 65535, &read.err), read.err);
    assert_fails(tap_wish_check_picture(&read.wish, 65536, 1, &read.err), TAP_ERR_ARGUMENT,
                 read.err, "image: the picture is 65536x1");
    assert_fails(tap_wish_check_picture(&read.wish, 1, 65536, &read.err), TAP_ERR_ARGUMENT,
                 read.err, "65535");
    done(&read);
}

static void too_many_boxes(void **state)
{
    (void)state;
    struct read read;
    char *fields = malloc(16 * 1000 + 64);
    assert_non_null(fields);
    for (size_t n = 16; n < 1001; n += 984 / 2) {
        char *at = fields + sprintf(fields, "\"bbox\":[");
        for (size_t i = 0; i < n; i++)
            at += sprintf(at, "%s[0,0,9,9]", i > 0 ? "," : "");
        strcpy(at, "]");
        if (n > 16) {
            refuse(fields, "bbox: ", "more than this server's 16");
            continue;
        }
        read_hands(&read, fields);
        assert_ok(read.status, read.err);
        assert_int_equal(read.wish.hands.n_boxes, 16);
        done(&read);
    }
    char *at = fields + sprintf(fields, "\"is_right\":[");
    for (size_t i = 0; i < 300; i++)
        at += sprintf(at, "%strue", i > 0 ? "," : "");
    strcpy(at, "]");
    refuse(fields, "is_right: ", "more than this server's 16");
    free(fields);
}

static void sides_that_do_not_fit(void **state)
{
    (void)state;
    refuse("\"bbox\":[[1,2,3,4],[5,6,7,8]],\"is_right\":[true]",
           "is_right: ", "a list of 1, and bbox one of 2");
    refuse("\"bbox\":[[1,2,3,4]],\"is_right\":[true,false]", "is_right: ", "a list of 2");
    refuse("\"bbox\":[],\"is_right\":[true]", "is_right: ", "one of 0");
    refuse("\"bbox\":[1,2,3,4],\"is_right\":[true]", "is_right: ", "bbox is one box");
    refuse("\"is_right\":[true]", "is_right: ", "bbox is missing");
    refuse("\"is_right\":\"true\"", "is_right: ", "the string");
    refuse("\"is_right\":1", "is_right: ", "1");
    refuse("\"is_right\":null", "is_right: ", "null");
    refuse("\"bbox\":[[1,2,3,4]],\"is_right\":[1]", "is_right[0]: ", "1");
    refuse("\"bbox\":[[1,2,3,4]],\"is_right\":[\"left\"]", "is_right[0]: ", "the string");
    refuse("\"bbox\":[[1,2,3,4]],\"is_right\":[[true]]", "is_right[0]: ", "an array");
}

static void wrong_values_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *values[12];
    } wrong[] = {
        {"rescale_factor",
         {"0", "-1", "0.009", "100.1", "1e300", "\"2\"", "true", "null", "[]", "[2]", "{}"}},
        {"return_vertices", {"\"true\"", "1", "0", "null", "[]", "[true]", "1.0"}},
        {"return_faces", {"\"false\"", "1", "0", "null", "{}"}},
        {"crop", {"\"Demo\"", "\"\"", "0", "null", "[]", "true"}},
        {"exif", {"\"yes\"", "\"\"", "1", "null", "true"}},
        {"rotations", {"\"matrix\"", "\"\"", "1", "null"}},
        {"fx", {"0", "-600", "\"600\"", "null", "[600]", "1e30", "true", "1e999"}},
        {"fy", {"0", "-600", "\"600\"", "null", "1e-3"}},
        {"cx", {"\"0\"", "null", "1e30", "-1e30", "{}"}},
        {"cy", {"\"0\"", "null", "[0]"}},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        for (size_t j = 0; j < 12 && wrong[i].values[j] != NULL; j++) {
            char fields[128], start[40];
            snprintf(fields, sizeof fields, "\"%s\":%s", wrong[i].name, wrong[i].values[j]);
            snprintf(start, sizeof start, "%s: must be ", wrong[i].name);
            refuse(fields, start, ", not ");
        }
    refuse("\"fx\":600", "fy: missing", "go together");
    refuse("\"fx\":600,\"fy\":600,\"cx\":1", "cy: missing", "go together");
    refuse("\"cy\":0", "fx: missing", "go together");
    refuse("\"bbox\":[1,2,3,4],\"bbox\":[1,2,3,4]", "bbox: given twice", "");
}

/* ---- queries and forms --------------------------------------------------------------------- */

static tap_status set_text(tap_wish *wish, const char *name, const char *value, tap_error *err)
{
    *wish = (tap_wish){0};
    tap_wish_init(wish, TAP_SERVER_HAMER);
    return tap_wish_set_text(wish, &hands, name, value, err);
}

static void queries_carry_boxes_too(void **state)
{
    (void)state;
    tap_wish wish;
    tap_error err;
    assert_ok(set_text(&wish, "bbox", "218,38.5,3.78e2,-200", &err), err);
    assert_int_equal(wish.hands.n_boxes, 1);
    assert_false(wish.hands.answer.list);
    const tap_hand_box *box = &wish.hands.boxes[0];
    assert_true(box->x1 == 218 && box->y1 == 38.5f && box->x2 == 378 && box->y2 == -200);
    assert_ok(set_text(&wish, "bbox", "1,2,3,4;5,6,7,8", &err), err);
    assert_ok(tap_wish_set_text(&wish, &hands, "is_right", "false,true", &err), err);
    assert_ok(tap_wish_finish(&wish, &err), err);
    assert_int_equal(wish.hands.n_boxes, 2);
    assert_true(wish.hands.answer.list);
    assert_true(wish.hands.boxes[1].x1 == 5 && wish.hands.boxes[1].y2 == 8);
    assert_true(!wish.hands.boxes[0].is_right && wish.hands.boxes[1].is_right);
    assert_ok(set_text(&wish, "is_right", "0", &err), err);
    assert_false(wish.hands.options.is_right);
    assert_ok(set_text(&wish, "fx", "6e2", &err), err);
    assert_true(wish.hands.options.camera.fx == 600);
    static const char *const wrong[][2] = {{"bbox", ""},
                                           {"bbox", "1"},
                                           {"bbox", "1,2,3"},
                                           {"bbox", "1,2,3,"},
                                           {"bbox", "1,2,3,4,"},
                                           {"bbox", "1,2,3,4,5"},
                                           {"bbox", ",1,2,3"},
                                           {"bbox", "1,2,3,4;"},
                                           {"bbox", ";1,2,3,4"},
                                           {"bbox", "1,2;3,4"},
                                           {"bbox", "1,2,3,4;5,6,7"},
                                           {"bbox", "1,2,3,nan"},
                                           {"bbox", "1,2,3,inf"},
                                           {"bbox", "1,2,3,1e999"},
                                           {"bbox", "1,2,3,0x4"},
                                           {"bbox", "1 ,2,3,4"},
                                           {"bbox", "1, 2, 3, 4"},
                                           {"bbox", "[1,2,3,4]"},
                                           {"bbox", "a,b,c,d"},
                                           {"bbox", "1;2;3;4"},
                                           {"is_right", ""},
                                           {"is_right", "left"},
                                           {"is_right", "true,"},
                                           {"is_right", ",true"},
                                           {"is_right", "true;false"},
                                           {"is_right", "true,falsey"},
                                           {"is_right", "true,trueeeeeeeeeee"},
                                           {"rescale_factor", "two"},
                                           {"return_faces", "yes"},
                                           {"crop", "Served"},
                                           {"fx", "-1"},
                                           {"cx", ""}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        size_t n = strlen(wrong[i][0]);
        if (set_text(&wish, wrong[i][0], wrong[i][1], &err) != TAP_ERR_ARGUMENT)
            fail_msg("%s=%s is let pass", wrong[i][0], wrong[i][1]);
        if (strncmp(err.message, wrong[i][0], n) != 0 || strchr(":[", err.message[n]) == NULL)
            fail_msg("%s=%s: %s", wrong[i][0], wrong[i][1], err.message);
    }
    /* Longer than any number, and more than there may be. */
    char text[4096];
    memset(text, '1', sizeof text);
    memcpy(text + sizeof text - 7, ",2,3,4", 7);
    assert_fails(set_text(&wish, "bbox", text, &err), TAP_ERR_ARGUMENT, err, "four numbers");
    memset(text, ';', sizeof text - 1);
    assert_fails(set_text(&wish, "bbox", text, &err), TAP_ERR_ARGUMENT, err, "this server's 16");
    for (size_t i = 0; i + 2 < sizeof text; i += 2)
        memcpy(text + i, "1,", 2);
    text[sizeof text - 1] = '\0';
    assert_fails(set_text(&wish, "is_right", text, &err), TAP_ERR_ARGUMENT, err,
                 "this server's 16");
}

/* A model's fields are unknown to the other, and unknown ones are nobody's fault. */
static void models_have_fields_of_their_own(void **state)
{
    (void)state;
    struct read read;
    read_hands(&read, "\"max_keypoints\":\"many\",\"nms\":5,\"size\":[]");
    assert_ok(read.status, read.err);
    done(&read);
    read_fields(&read, "\"bbox\":\"none\",\"is_right\":7,\"fx\":-1,\"crop\":0");
    assert_ok(read.status, read.err);
    assert_ok(tap_wish_finish(&read.wish, &read.err), read.err);
    assert_ok(tap_wish_check_picture(&read.wish, 1, 100000, &read.err), read.err);
    done(&read);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_contracts_defaults),
                                       cmocka_unit_test(values_arrive),
                                       cmocka_unit_test(lists_of_boxes),
                                       cmocka_unit_test(boxes_that_are_none),
                                       cmocka_unit_test(boxes_that_show_nothing),
                                       cmocka_unit_test(pictures_that_are_too_long),
                                       cmocka_unit_test(too_many_boxes),
                                       cmocka_unit_test(sides_that_do_not_fit),
                                       cmocka_unit_test(wrong_values_are_named),
                                       cmocka_unit_test(queries_carry_boxes_too),
                                       cmocka_unit_test(models_have_fields_of_their_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
