#include "check.h"

#include "core/core.h"

#include <errno.h>

static tap_status fails_inside(tap_error *err)
{
    TAP_TRY(tap_fail(err, TAP_ERR_FORMAT, "%s: tensor '%s': bad", "a.safetensors", "x"));
    return TAP_OK;
}

static void message_and_status(void **state)
{
    (void)state;
    tap_error err;
    assert_fails(fails_inside(&err), TAP_ERR_FORMAT, err, "a.safetensors: tensor 'x': bad");
    assert_int_equal(tap_fail(NULL, TAP_ERR_IO, "nobody listens"), TAP_ERR_IO);
}

static void hostile_names_are_cleaned(void **state)
{
    (void)state;
    tap_error err;
    tap_fail(&err, TAP_ERR_FORMAT, "%s", "a\x1b[2J\nb\x7f");
    assert_string_equal(err.message, "a?[2J?b?");
}

static void long_messages_end_between_characters(void **state)
{
    (void)state;
    tap_error err;
    char text[2000];
    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'a', shift);
        for (size_t i = shift; i + 4 < sizeof text; i += 3)
            memcpy(text + i, "\xe4\xb8\xad", 4); /* a three-byte character */
        tap_fail(&err, TAP_ERR_FORMAT, "%s", text);
        size_t length = strlen(err.message);
        assert_true(length > 500 && length < sizeof err.message);
        assert_int_equal((length - shift) % 3, 0);
    }
}

static void errno_becomes_a_status(void **state)
{
    (void)state;
    tap_error err;
    assert_fails(tap_fail_errno(&err, "f", "cannot open", ENOENT), TAP_ERR_NOT_FOUND, err,
                 "f: cannot open: No such file");
    assert_fails(tap_fail_errno(&err, "f", "cannot write", ENOSPC), TAP_ERR_IO, err, "No space");
    assert_fails(tap_fail_errno(&err, "f", "cannot map", ENOMEM), TAP_ERR_MEMORY, err, "memory");
}

static void every_status_has_its_name(void **state)
{
    (void)state;
    assert_string_equal(tap_status_name(TAP_OK), "TAP_OK");
    for (int i = 0; i <= TAP_ERR_INTERNAL; i++) {
        assert_string_not_equal(tap_status_name((tap_status)i), "TAP_ERR_UNKNOWN");
        for (int j = 0; j < i; j++)
            assert_string_not_equal(tap_status_name((tap_status)i), tap_status_name((tap_status)j));
    }
    assert_string_equal(tap_status_name((tap_status)99), "TAP_ERR_UNKNOWN");
}

/* FNV-1a of "" and "a" from its authors' page; splitmix64 seeded with 1234567 from the reference
 * program's published outputs; both together from the golden generator's check values. */
static void hashes_match_their_published_values(void **state)
{
    (void)state;
    assert_true(tap_fnv1a64("") == 0xcbf29ce484222325u);
    assert_true(tap_fnv1a64("a") == 0xaf63dc4c8601ec8cu);
    assert_true(tap_splitmix64(1234567, 1) == 6457827717110365317u);
    assert_true(tap_splitmix64(1234567, 2) == 3203168211198807973u);
    assert_true(tap_fnv1a64("backbone.pos_embed") == 0x2cc5c2f44729a5e2u);
    int64_t u = (int64_t)(tap_splitmix64(0x2cc5c2f44729a5e2u, 1) >> 40) - (1 << 23);
    assert_true((double)u / (1 << 23) == 0.3008154630661011);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(message_and_status),
        cmocka_unit_test(hostile_names_are_cleaned),
        cmocka_unit_test(long_messages_end_between_characters),
        cmocka_unit_test(errno_becomes_a_status),
        cmocka_unit_test(every_status_has_its_name),
        cmocka_unit_test(hashes_match_their_published_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
