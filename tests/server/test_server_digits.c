/* float32 to decimal, against the exact decimals that the C library prints: no decimal of fewer
 * digits, be it the one below or the one above, reads back, and of those as short ours is nearest.
 */
#include "check.h"

#include "server/text.h"

#include "core/core.h"

#include <json-c/json.h>
#include <math.h>

enum { MAX_DIGITS = 9 };

/* The decimal of n digits next below (or at) value > 0, and the one next above. */
static void neighbours(char *below, char *above, size_t size, double value, int n)
{
    char exact[160], digits[MAX_DIGITS + 2] = "0";
    /* A float32 has at most 112 significant digits. */
    snprintf(exact, sizeof exact, "%.120e", value);
    int exponent = atoi(strchr(exact, 'e') + 1);
    digits[1] = exact[0];
    memcpy(digits + 2, exact + 2, (size_t)n - 1);
    digits[n + 1] = '\0';
    snprintf(below, size, "%se%d", digits, exponent - n + 1);
    int i = n;
    for (; digits[i] == '9'; i--)
        digits[i] = '0';
    digits[i]++;
    snprintf(above, size, "%se%d", digits, exponent - n + 1);
}

/* JSON's grammar of numbers, with a fraction or an exponent. */
static bool is_json_fraction(const char *text)
{
    text += *text == '-';
    size_t n = strspn(text, "0123456789"), n_fraction = 0;
    if (n == 0 || (text[0] == '0' && n > 1))
        return false;
    text += n;
    if (*text == '.') {
        n_fraction = strspn(++text, "0123456789");
        if (n_fraction == 0)
            return false;
        text += n_fraction;
    }
    if (*text == '\0')
        return n_fraction > 0;
    if (*text++ != 'e')
        return false;
    text += *text == '-';
    n = strspn(text, "0123456789");
    return n > 0 && text[n] == '\0';
}

/* Digits from the first to the last that is not 0. */
static int count_digits(const char *text)
{
    int n = 0, last = 0;
    for (; *text != '\0' && *text != 'e'; text++) {
        if (*text < '0' || *text > '9' || (n == 0 && *text == '0'))
            continue;
        n++;
        last = *text != '0' ? n : last;
    }
    return last;
}

static void check_shortest(float value)
{
    char text[TAP_F32_CHARS + 1], below[40], above[40];
    size_t length = tap_f32_shortest(text, value);
    assert_true(length < TAP_F32_CHARS);
    text[length] = '\0';
    float back = strtof(text, NULL);
    if (memcmp(&back, &value, sizeof back) != 0 || !is_json_fraction(text))
        fail_msg("%a became %s", (double)value, text);
    if (value == 0)
        return;
    int n = count_digits(text);
    float size = fabsf(value);
    for (int fewer = 1; fewer < n; fewer++) {
        neighbours(below, above, sizeof below, size, fewer);
        if (strtof(below, NULL) == size || strtof(above, NULL) == size)
            fail_msg("%a became %s; %s or %s is shorter", (double)value, text, below, above);
    }
    neighbours(below, above, sizeof below, size, n);
    /* Distances to 64 bits; a tie may go either way. */
    long double ours = fabsl(strtold(text, NULL) - (long double)value);
    for (int i = 0; i < 2; i++) {
        const char *other = i == 0 ? below : above;
        long double distance = fabsl(strtold(other, NULL) - (long double)size);
        if (strtof(other, NULL) == size && distance < ours * 0.999L)
            fail_msg("%a became %s; %s is nearer", (double)value, text, other);
    }
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Powers of two, whose neighbour below is nearer than the one above, powers of ten, and theirs. */
static void at_the_powers(void **state)
{
    (void)state;
    for (uint32_t exponent = 0; exponent < 255; exponent++)
        for (uint32_t around = 0; around < 5; around++) {
            uint32_t bits = (exponent << 23) + around - 2;
            if (isfinite(from_bits(bits)))
                check_shortest(from_bits(bits));
        }
    for (uint32_t bit = 0; bit < 23; bit++) /* subnormal */
        check_shortest(from_bits(1u << bit));
    for (int exponent = -45; exponent <= 38; exponent++)
        for (int digit = 1; digit < 10; digit++) {
            char text[16];
            snprintf(text, sizeof text, "%de%d", digit, exponent);
            float value = strtof(text, NULL);
            if (!isfinite(value) || value == 0)
                continue;
            check_shortest(value);
            check_shortest(-value);
            check_shortest(nextafterf(value, 0));
            check_shortest(nextafterf(value, 1e38f));
        }
    check_shortest(0.0f);
    check_shortest(-0.0f);
    check_shortest(from_bits(0x7f7fffff)); /* the largest */
    check_shortest(from_bits(0x00000001)); /* the smallest */
    check_shortest(from_bits(0x007fffff)); /* the largest subnormal */
}

static void anywhere(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 200000; i++) {
        float value = from_bits((uint32_t)tap_splitmix64(11, i));
        if (isfinite(value))
            check_shortest(value);
    }
}

/* How a number looks: what JavaScript and Python print for the same value, with a fraction. */
static void as_people_write_them(void **state)
{
    (void)state;
    static const struct {
        float value;
        const char *text;
    } known[] = {{0, "0.0"},
                 {-0.0f, "-0.0"},
                 {1, "1.0"},
                 {-1.5f, "-1.5"},
                 {0.1f, "0.1"},
                 {610, "610.0"},
                 {0.005f, "0.005"},
                 {1e-5f, "0.00001"},
                 {1.5e-7f, "1.5e-7"},
                 {16777216, "16777216.0"},
                 {1e9f, "1000000000.0"},
                 {3.4028235e38f, "3.4028235e38"},
                 {1e-45f, "1e-45"},
                 {0.33333334f, "0.33333334"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char text[TAP_F32_CHARS + 1];
        text[tap_f32_shortest(text, known[i].value)] = '\0';
        assert_string_equal(text, known[i].text);
    }
}

/* The same digits for a double as for the C library's own shortest search, valid JSON. */
static void doubles_are_shortest_too(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 50000; i++) {
        uint64_t bits = tap_splitmix64(13, i);
        double value;
        memcpy(&value, &bits, sizeof value);
        value = i % 2 == 0 ? value : (double)(bits >> 40) / 480;
        if (!isfinite(value))
            continue;
        tap_text text = {0};
        tap_error err;
        char *data = NULL;
        tap_text_add(&text, "{", 1);
        tap_text_field_f64(&text, "x", value);
        tap_text_add(&text, "}", 1);
        assert_ok(tap_text_take(&text, &data, NULL, &err), err);
        json_object *object = json_tokener_parse(data);
        json_object *x = json_object_object_get(object, "x");
        assert_true(json_object_is_type(x, json_type_double));
        double back = json_object_get_double(x);
        assert_memory_equal(&back, &value, sizeof value);
        /* Fewer digits do not read back, unless 15, the first tried, are more than are needed. */
        int n = count_digits(data + 5);
        char fewer[40];
        snprintf(fewer, sizeof fewer, "%.*e", n > 1 ? n - 2 : 0, value);
        if (n > 15)
            assert_true(strtod(fewer, NULL) != value);
        json_object_put(object);
        free(data);
    }
}

/* Known base64 of all bytes in order, and of more than is encoded in one go. */
static void base64_of_everything(void **state)
{
    (void)state;
    enum { PIECE = 3 << 20 };
    uint8_t *ones = malloc(PIECE + 1);
    tap_text text = {0};
    tap_error err;
    char *data = NULL;
    size_t n;
    assert_non_null(ones);
    for (int i = 0; i < 256; i++)
        ones[i] = (uint8_t)i;
    tap_text_base64(&text, ones, 256);
    assert_ok(tap_text_take(&text, &data, &n, &err), err);
    assert_string_equal(
        data, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+"
              "P0BBQkNERUZHSElKS0xNTk9QUVJTVFVWV1hZWltcXV5fYGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6e3x9"
              "fn+AgYKDhIWGh4iJiouMjY6PkJGSk5SVlpeYmZqbnJ2en6ChoqOkpaanqKmqq6ytrq+wsbKztLW2t7i5uru8"
              "vb6/wMHCw8TFxsfIycrLzM3Oz9DR0tPU1dbX2Nna29zd3t/g4eLj5OXm5+jp6uvs7e7v8PHy8/T19vf4+fr7"
              "/P3+/w==");
    free(data);
    memset(ones, 0xff, PIECE + 1);
    tap_text_base64(&text, ones, PIECE + 1);
    assert_ok(tap_text_take(&text, &data, &n, &err), err);
    assert_int_equal(n, PIECE / 3 * 4 + 4);
    assert_int_equal(strspn(data, "/"), PIECE / 3 * 4 + 1);
    assert_string_equal(data + PIECE / 3 * 4, "/w==");
    free(data);
    free(ones);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(at_the_powers), cmocka_unit_test(anywhere),
                                       cmocka_unit_test(as_people_write_them),
                                       cmocka_unit_test(doubles_are_shortest_too),
                                       cmocka_unit_test(base64_of_everything)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
