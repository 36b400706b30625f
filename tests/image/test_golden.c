/* The network inputs of the reference data: decode, red plane, resize to 640 x 480. The numbers are
 * from golden/superpoint/real/expected.json, made with Pillow 9.4. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "image/image.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 640, HEIGHT = 480, N_PIXELS = WIDTH * HEIGHT, MAX_FILE = 1 << 24 };

typedef struct picture {
    const char *name;
    uint32_t width, height;
    const char *sha256; /* of the 307,200 input bytes */
} picture;

static const picture pictures[] = {
    {"china.jpg", 640, 427, "c52034854421a4f23a4879cebaf4acd679b6cb0e53f8319aaa8924af7bcb8c6c"},
    {"coffee.png", 600, 400, "bd4158935c83243f66d4096abf3cc09da5c5fa345700a8e0959a792f76d786b2"},
    {"rocket.jpg", 640, 427, "a78ec4e0d9df34e1fbf5a2dfcb090fbdfd23483d1ea2c737670bfe4fe1a8ee45"},
    {"gray.png", 321, 243, "862c298fbc48d461335219013e0e252e64ef5ddf03a23ef1c4f6fe500bc23e3c"},
    {"gray.jpg", 321, 243, "6c42fb608883d2f0767564a92dd40382dc2ce8248f54fffe31329426cadc77ec"},
    {"rgba.png", 200, 150, "a4de43ce7d27fe863f89723c6ada86a5f09da0f5648a79733b8366aa80f71c0b"},
    {"progressive.jpg", 200, 150,
     "698f731d390996bb89a9ae9640aa6ec893460e4244704c2965176c81f9d4f285"},
    {"exif6.jpg", 200, 150, "e25b16c8feb67de14f57841e2d3fe75bafabee309f384c3c25dbfb13a2775299"},
    {"palette.png", 200, 150, "f9437e7c33003886609984cf30d3448bc3afca38ea7fd20fe7116417c57731f5"},
    {"rgb16.png", 160, 120, "b8de52ef32970c8f5f56212bd15cae4f7b900b701723b2a76c5803008a4681b9"},
    {"gray16.png", 160, 120, "59018838c2a6f3ace0ae506fa4804b309141babe8778dce2d83ee6d391352c41"},
    {"tiny.png", 5, 7, "45d344cbd8480fda7c0366596c162eb0db4e0b5c9734c883140fb4b94ad666f8"},
    {"one.png", 1, 1, "46b3de672b35726b1a8b3461aa952555ca7687044eb89398e7e41c20cb6057b2"},
    {"wide.png", 2000, 12, "052db496b630c0e12b64c3f7d83f63cb47778aa91c2bdc7e5152a511edba64d3"},
    {"tall.png", 9, 1500, "8eb350d60fce18ea343d3647c51acfb62baa6cefa50062bc07c824d0046b068d"},
};

static bool decode_input(tap_pixels *pixels, const char *name)
{
    char path[4096];
    tap_bytes file;
    tap_error err;
    const char *shared = getenv("TAPETUM_SHARED");
    snprintf(path, sizeof path, "%s/golden/superpoint/inputs/%s",
             shared != NULL ? shared : "../shared", name);
    if (tap_bytes_read(&file, path, MAX_FILE, &err) != TAP_OK) {
        print_message("skipped: %s\n", err.message);
        return false;
    }
    if (tap_pixels_decode(pixels, file.data, file.size, TAP_EXIF_IGNORE, 64000000, &err) != TAP_OK)
        fail_msg("%s", err.message);
    tap_bytes_release(&file);
    return true;
}

/* What the network reads of a picture, malloc'd. */
static uint8_t *make_input(const tap_pixels *pixels)
{
    tap_image image = {pixels->data, pixels->width, pixels->height, 0,
                       pixels->channels == 1 ? TAP_PIXELS_GRAY : TAP_PIXELS_RGB};
    size_t scratch_bytes;
    assert_true(tap_resize_scratch_bytes(image.width, image.height, WIDTH, HEIGHT, &scratch_bytes));
    uint8_t *plane = malloc((size_t)image.width * image.height), *input = malloc(N_PIXELS);
    void *scratch = tap_alloc(scratch_bytes, 1);
    assert_true(plane != NULL && input != NULL && scratch != NULL);
    tap_image_plane(plane, &image, TAP_GRAY_FIRST, image.width, image.height);
    tap_resize_bilinear(input, WIDTH, HEIGHT, plane, image.width, image.height, scratch);
    free(scratch);
    free(plane);
    return input;
}

static void hash(char *hex, const uint8_t *bytes, size_t n)
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    SHA256(bytes, n, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

/* JPEG decoders may differ a little (3 levels anywhere, 0.05 on average, says the reference);
 * PNG leaves no such room. */
static void compare_with_stored(const char *name, const uint8_t *input)
{
    char stored_name[64];
    tap_pixels stored;
    snprintf(stored_name, sizeof stored_name, "netin_%s.png", name);
    *strchr(stored_name, '.') = '_';
    if (!decode_input(&stored, stored_name))
        skip();
    assert_int_equal(stored.channels, 1);
    assert_int_equal(stored.width, WIDTH);
    assert_int_equal(stored.height, HEIGHT);
    long sum = 0;
    int most = 0;
    for (size_t i = 0; i < N_PIXELS; i++) {
        int difference = abs(input[i] - stored.data[i]);
        most = difference > most ? difference : most;
        sum += difference;
    }
    tap_pixels_free(&stored);
    assert_in_range(most, 0, 3);
    assert_true((double)sum / N_PIXELS <= 0.05);
}

static void test_input(void **state)
{
    const picture *expected = *state;
    tap_pixels pixels;
    char hex[2 * SHA256_DIGEST_LENGTH + 1];
    if (!decode_input(&pixels, expected->name))
        skip();
    assert_int_equal(pixels.width, expected->width);
    assert_int_equal(pixels.height, expected->height);
    assert_int_equal(pixels.exif_orientation, strcmp(expected->name, "exif6.jpg") == 0 ? 6 : 1);
    assert_false(pixels.exif_applied);
    uint8_t *input = make_input(&pixels);
    hash(hex, input, N_PIXELS);
    if (strstr(expected->name, ".jpg") == NULL)
        assert_string_equal(hex, expected->sha256);
    else if (strcmp(hex, expected->sha256) != 0)
        compare_with_stored(expected->name, input);
    free(input);
    tap_pixels_free(&pixels);
}

int main(void)
{
    enum { N = sizeof pictures / sizeof *pictures };
    struct CMUnitTest tests[N];
    for (size_t i = 0; i < N; i++)
        tests[i] = (struct CMUnitTest){pictures[i].name, test_input, NULL, NULL,
                                       (void *)(uintptr_t)&pictures[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
