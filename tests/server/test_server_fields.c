/* The fields of a request, from JSON and as text from query strings: what docs/server.md lets pass,
 * and nothing else. */
#include "body.h"

/* As JSON, and, where a query can say it, as text: the message begins with the field's name. */
static void wrong_values_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *name, *values[20];
    } wrong[] = {
        {"max_keypoints",
         {"-2", "307201", "5.5", "\"5\"", "true", "null", "[]", "{}", "1e300", "1e999",
          "9223372036854775808", "-9223372036854775809", "99999999999999999999999", "\"\""}},
        {"keypoint_threshold",
         {"-0.001", "1.001", "-1", "2", "\"0.1\"", "false", "null", "[0.1]", "1e999", "-1e999"}},
        {"nms_radius", {"-1", "33", "4.5", "\"4\"", "false", "null", "{}", "18446744073709551616"}},
        {"return_descriptors", {"\"true\"", "1", "0", "null", "[]", "1.0", "\"\""}},
        {"nms", {"\"double\"", "\"\"", "\"SINGLE\"", "1", "null", "true", "\"single\\u0000\""}},
        {"gray", {"\"red\"", "\"\"", "0", "null"}},
        {"exif", {"\"yes\"", "true", "1", "null"}},
        {"coordinates", {"\"pixel\"", "0", "null", "[]"}},
        {"size",
         {"\"640\"", "\"640x\"", "\"x480\"", "\"641x480\"", "\"640x481\"", "\"0x0\"", "\"8x-8\"",
          "\"8200x8\"", "\"4096x4096\"", "\"640X480\"", "\"640x480x3\"", "\"640x480 \"", "640",
          "null", "[640,480]", "\"Native\"", "\"4294967304x8\"", "\"640x480\\u0000\""}},
        {"min_similarity", {"-1.01", "1.01", "\"0\"", "true", "null"}},
        {"ratio", {"-0.01", "1.01", "\"0\"", "true", "null"}},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        for (size_t j = 0; j < 20 && wrong[i].values[j] != NULL; j++) {
            char fields[128], start[40];
            struct read read;
            snprintf(fields, sizeof fields, "\"%s\":%s", wrong[i].name, wrong[i].values[j]);
            snprintf(start, sizeof start, "%s: ", wrong[i].name);
            read_fields(&read, fields);
            if (read.status != TAP_ERR_ARGUMENT)
                fail_msg("%s: %s", fields, tap_status_name(read.status));
            if (strncmp(read.err.message, start, strlen(start)) != 0)
                fail_msg("%s: %s", fields, read.err.message);
            done(&read);
        }
}

static void right_values_arrive(void **state)
{
    (void)state;
    struct read read;
    read_fields(&read, "\"max_keypoints\":5.0,\"keypoint_threshold\":1e-2,\"nms_radius\":0.32e2,"
                       "\"return_descriptors\":false,\"nms\":\"iterative\",\"gray\":\"luma\","
                       "\"exif\":\"apply\",\"coordinates\":\"centres\",\"size\":\"64x48\","
                       "\"min_similarity\":-1,\"ratio\":1");
    assert_ok(read.status, read.err);
    const tap_superpoint_options *got = &read.wish.superpoint;
    assert_int_equal(got->max_keypoints, 5);
    assert_true(got->keypoint_threshold == 0.01f);
    assert_int_equal(got->nms_radius, 32);
    assert_false(got->descriptors);
    assert_true(read.wish.descriptors_given);
    assert_int_equal(got->nms, TAP_NMS_ITERATIVE);
    assert_int_equal(got->gray, TAP_GRAY_LUMA);
    assert_int_equal(got->exif, TAP_EXIF_APPLY);
    assert_int_equal(got->coordinates, TAP_COORDINATES_CENTRES);
    assert_int_equal(got->width, 64);
    assert_int_equal(got->height, 48);
    assert_false(got->native);
    assert_true(read.wish.match.min_similarity == -1 && read.wish.match.ratio == 1);
    done(&read);
    let_pass("\"max_keypoints\":-1,\"keypoint_threshold\":0,\"nms_radius\":0");
    let_pass("\"max_keypoints\":307200,\"keypoint_threshold\":1,\"nms_radius\":32");
    let_pass("\"keypoint_threshold\":1.0,\"min_similarity\":1,\"ratio\":0,\"size\":\"8192x8\"");
    let_pass("\"size\":\"native\",\"nms\":\"single\",\"gray\":\"first\",\"exif\":\"ignore\"");
    read_fields(&read, "");
    assert_ok(read.status, read.err);
    assert_int_equal(read.wish.superpoint.max_keypoints, 1024); /* the default stands */
    assert_false(read.wish.descriptors_given);
    done(&read);
}

static tap_status set_text(tap_wish *wish, const char *name, const char *value, tap_error *err)
{
    tap_superpoint_options_init(&wish->superpoint);
    tap_match_options_init(&wish->match);
    return tap_wish_set_text(wish, &predict, name, value, err);
}

static void queries_carry_the_same_fields(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {{"max_keypoints", ""},
                                           {"max_keypoints", "five"},
                                           {"max_keypoints", "5.5"},
                                           {"max_keypoints", "-2"},
                                           {"max_keypoints", "307201"},
                                           {"max_keypoints", " 5"},
                                           {"max_keypoints", "5 "},
                                           {"max_keypoints", "0x10"},
                                           {"max_keypoints", "nan"},
                                           {"max_keypoints", "1e999"},
                                           {"max_keypoints", "true"},
                                           {"max_keypoints", "--5"},
                                           {"max_keypoints", "5,0"},
                                           {"max_keypoints", "e"},
                                           {"keypoint_threshold", "inf"},
                                           {"keypoint_threshold", "1,5"},
                                           {"keypoint_threshold", "."},
                                           {"keypoint_threshold", "-0.1"},
                                           {"keypoint_threshold", "NAN"},
                                           {"nms_radius", "33"},
                                           {"nms_radius", "-1"},
                                           {"return_descriptors", "yes"},
                                           {"return_descriptors", "2"},
                                           {"return_descriptors", ""},
                                           {"return_descriptors", "True"},
                                           {"nms", ""},
                                           {"size", ""},
                                           {"size", "native "},
                                           {"size", "640"},
                                           {"gray", "LUMA"},
                                           {"exif", "2"},
                                           {"coordinates", "center"},
                                           {"min_similarity", "1.1"},
                                           {"ratio", "-1"}};
    tap_wish wish = {0};
    tap_error err;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        size_t n = strlen(wrong[i][0]);
        if (set_text(&wish, wrong[i][0], wrong[i][1], &err) != TAP_ERR_ARGUMENT)
            fail_msg("%s=%s is let pass", wrong[i][0], wrong[i][1]);
        if (strncmp(err.message, wrong[i][0], n) != 0 || strncmp(err.message + n, ": ", 2) != 0)
            fail_msg("%s=%s: %s", wrong[i][0], wrong[i][1], err.message);
    }
    assert_ok(set_text(&wish, "max_keypoints", "5.0", &err), err);
    assert_int_equal(wish.superpoint.max_keypoints, 5);
    assert_ok(set_text(&wish, "max_keypoints", "-1", &err), err);
    assert_int_equal(wish.superpoint.max_keypoints, -1);
    assert_ok(set_text(&wish, "keypoint_threshold", "1e-2", &err), err);
    assert_true(wish.superpoint.keypoint_threshold == 0.01f);
    assert_ok(set_text(&wish, "return_descriptors", "0", &err), err);
    assert_true(!wish.superpoint.descriptors && wish.descriptors_given);
    assert_ok(set_text(&wish, "return_descriptors", "true", &err), err);
    assert_true(wish.superpoint.descriptors);
    assert_ok(set_text(&wish, "size", "native", &err), err);
    assert_true(wish.superpoint.native);
    assert_ok(set_text(&wish, "no_field_of_ours", "anything", &err), err);
}

static void a_pair_has_limits_of_its_own(void **state)
{
    (void)state;
    static const char *const wrong[] = {"0", "-1", "8193"};
    struct read read;
    char body[128];
    for (size_t i = 0; i < 3; i++) {
        int n =
            snprintf(body, sizeof body,
                     "{\"image_a\":\"Zm9v\",\"image_b\":\"Zm9v\",\"max_keypoints\":%s}", wrong[i]);
        read_body(&read, body, (size_t)n, true);
        assert_fails(read.status, TAP_ERR_ARGUMENT, read.err, "max_keypoints: ");
        done(&read);
    }
    /* In this order and in the other, each finds its own. */
    static const char *const both[] = {"{\"image_a\":\"Zm9v\",\"image_b\":\"YmFy\"}",
                                       "{\"image_b\":\"YmFy\",\"image\":3,\"image_a\":\"Zm9v\"}"};
    for (size_t i = 0; i < 2; i++) {
        read_body(&read, both[i], strlen(both[i]), true);
        assert_ok(read.status, read.err);
        assert_memory_equal(read.slices[0].data, "foo", 3);
        assert_memory_equal(read.slices[1].data, "bar", 3);
        done(&read);
    }
    static const char alone[] = "{\"image_a\":\"Zm9v\"}";
    read_body(&read, alone, sizeof alone - 1, true);
    assert_fails(read.status, TAP_ERR_ARGUMENT, read.err, "image_b: missing");
    done(&read);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(wrong_values_are_named),
                                       cmocka_unit_test(right_values_arrive),
                                       cmocka_unit_test(queries_carry_the_same_fields),
                                       cmocka_unit_test(a_pair_has_limits_of_its_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
