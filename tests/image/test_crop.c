/* Crops against those of upstream's own data loader (golden/hamer/README.md): 8-bit ones equal,
 * smoothed ones to the noise of double arithmetic. The sides and centres are the ones written
 * there, not computed by us. */
#include "models/arrays.h"

#include "image/crop.h"
#include "image/image.h"

#include <math.h>

enum { SIDE = TAP_CROP_SIDE, N_BYTES = SIDE * SIDE * 3, N_INPUT = SIDE * TAP_CROP_COLUMNS * 3 };

typedef struct golden_case {
    const char *image;
    double center_x, center_y, demo_side, served_side; /* served_side 0: no file for it */
    bool is_right, blur;
    double sigma;
    size_t radius;
    double map[4]; /* sx, tx, sy, ty */
} golden_case;

/* golden/hamer/cases.json. */
static const golden_case cases[] = {
    {"test2.jpg",
     298,
     119,
     1280.0 / 3,
     324,
     true,
     false,
     0,
     0,
     {0.6000000572204646, -50.80001705169841, 0.6000000572204646, 56.59999319076471}},
    {"test2.jpg",
     429,
     346,
     592,
     444,
     false,
     true,
     0.078125,
     0,
     {0.4324324324324324, 54.4864864864865, 0.43243243243243235, -21.621621621621614}},
    {"test1.jpg",
     319,
     251,
     376,
     376,
     true,
     false,
     0,
     0,
     {0.6808510638297872, -89.19148936170212, 0.6808510638297874, -42.893617021276626}},
    {"test3.jpg",
     470,
     375,
     1133.3333333333333,
     925,
     false,
     true,
     0.6067708333333333,
     2,
     {0.22588232050173476, 3.087076762540677, 0.22588234483131517, 43.29412068825682}},
    {"test2.jpg",
     -10,
     15,
     373.3333333333333,
     0,
     false,
     false,
     0,
     0,
     {0.6857142109773677, -289.5999544852169, 0.6857142670300548, 117.71428599454917}},
    {"test2.jpg",
     800,
     600,
     266.6666666666667,
     0,
     true,
     false,
     0,
     0,
     {0.9600001464843979, -640.0001171875184, 0.9600001464843974, -448.0000878906385}},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static tap_crop crop_of(const golden_case *c, bool served)
{
    return (tap_crop){c->center_x, c->center_y, served ? c->served_side : c->demo_side,
                      !c->is_right, served};
}

static const char *hamer_path(char *path, size_t size, const char *name)
{
    char below[200];
    snprintf(below, sizeof below, "golden/hamer/%s", name);
    return shared_path(path, size, below);
}

static tap_pixels decode(const char *name)
{
    char path[300];
    size_t size;
    tap_pixels pixels;
    tap_error err;
    unsigned char *bytes = load_bytes(hamer_path(path, sizeof path, name), &size);
    assert_ok(tap_pixels_decode(&pixels, bytes, size, TAP_EXIF_APPLY, 1 << 24, &err), err);
    free(bytes);
    return pixels;
}

static tap_image view(const tap_pixels *pixels)
{
    return (tap_image){pixels->data, pixels->width, pixels->height, 0,
                       pixels->channels == 1 ? TAP_PIXELS_GRAY : TAP_PIXELS_RGB};
}

static void *scratch_for(const tap_image *frame, const tap_crop *crop)
{
    size_t bytes;
    assert_true(tap_crop_scratch_bytes(frame, crop, &bytes));
    void *scratch = tap_alloc(bytes, 1);
    assert_non_null(scratch);
    return scratch;
}

static void test_maps_and_blurs(void **state)
{
    (void)state;
    static const uint32_t sizes[][2] = {{600, 450},  {600, 450}, {848, 565},
                                        {1024, 683}, {600, 450}, {600, 450}};
    for (size_t i = 0; i < N_CASES; i++) {
        tap_crop crop = crop_of(&cases[i], false);
        tap_crop_map map = tap_crop_mapping(&crop, sizes[i][0]);
        const double ours[4] = {map.sx, map.tx, map.sy, map.ty};
        for (int k = 0; k < 4; k++)
            assert_true(fabs(ours[k] - cases[i].map[k]) <= 1e-11 * (1 + fabs(cases[i].map[k])));
        double sigma;
        size_t radius;
        assert_int_equal(tap_crop_blur(&crop, sizes[i][0], sizes[i][1], &sigma, &radius),
                         cases[i].blur);
        assert_true(fabs(sigma - cases[i].sigma) < 1e-12);
        assert_int_equal(radius, cases[i].radius);
    }
}

/* The crop's floats and bytes against the file; which of them are equal to it depends on the
 * policy. */
static void compare(const golden_case *c, const char *file, bool served)
{
    char path[300];
    hamer_path(path, sizeof path, file);
    tap_pixels pixels = decode(c->image);
    struct array wanted = load_npy(path);
    assert_int_equal(wanted.n, N_BYTES);
    tap_image frame = view(&pixels);
    tap_crop crop = crop_of(c, served);
    void *scratch = scratch_for(&frame, &crop);
    uint8_t *bytes = malloc(N_BYTES);
    float *floats = malloc(N_BYTES * sizeof *floats), *input = malloc(N_INPUT * sizeof *input);
    assert_true(bytes && floats && input);
    tap_crop_bytes(bytes, &frame, &crop, scratch);
    tap_crop_floats(floats, &frame, &crop, scratch);
    tap_crop_input(input, &frame, &crop, scratch);
    bool whole = served || !c->blur;
    double most = 0, most_input = 0;
    for (size_t i = 0; i < N_BYTES; i++) {
        most = fmax(most, fabs((double)floats[i] - (double)wanted.values[i]));
        assert_true(fabs(bytes[i] - (double)wanted.values[i]) <= (whole ? 0 : 0.5 + 1e-4));
    }
    static const double mean[] = {0.485, 0.456, 0.406}, deviation[] = {0.229, 0.224, 0.225};
    for (size_t i = 0; i < N_INPUT; i++) {
        size_t row = i / (TAP_CROP_COLUMNS * 3), at = i % (TAP_CROP_COLUMNS * 3);
        double value = (double)wanted.values[(row * SIDE + TAP_CROP_LEFT) * 3 + at] / 255;
        most_input = fmax(most_input, fabs(input[i] - (value - mean[i % 3]) / deviation[i % 3]));
    }
    printf("%s: largest difference %.2e grey levels, %.2e normalised\n", file, most, most_input);
    assert_true(most <= (whole ? 0 : 1e-4));
    assert_true(most_input <= 3e-6);
    free(input), free(floats), free(bytes), free(scratch);
    free_array(&wanted);
    tap_pixels_free(&pixels);
}

static void test_demo_crops(void **state)
{
    (void)state;
    static const char *const files[] = {"crop0.npy", "crop1.npy", "crop2.npy", "crop3.npy",
                                        "crop4.npy"};
    for (size_t i = 0; i < 5; i++)
        compare(&cases[i], files[i], false);
}

static void test_served_crops(void **state)
{
    (void)state;
    static const char *const files[] = {"crop_served0.npy", "crop_served1.npy", "crop_served2.npy",
                                        "crop_served3.npy"};
    for (size_t i = 0; i < 4; i++)
        compare(&cases[i], files[i], true);
}

/* The last case: a box beside the picture. */
static void test_outside_is_black(void **state)
{
    (void)state;
    tap_pixels pixels = decode(cases[N_CASES - 1].image);
    tap_image frame = view(&pixels);
    tap_crop crop = crop_of(&cases[N_CASES - 1], false);
    uint8_t *bytes = malloc(N_BYTES);
    assert_non_null(bytes);
    tap_crop_bytes(bytes, &frame, &crop, NULL);
    for (size_t i = 0; i < N_BYTES; i++)
        assert_int_equal(bytes[i], 0);
    free(bytes);
    tap_pixels_free(&pixels);
}

/* A pattern without symmetry, sharp. */
static uint8_t *make_frame(uint32_t width, uint32_t height, size_t bytes_per_pixel)
{
    uint64_t state = 7;
    size_t n = (size_t)width * height * bytes_per_pixel;
    uint8_t *data = malloc(n);
    assert_non_null(data);
    for (size_t i = 0; i < n; i++)
        data[i] = (uint8_t)(random_unit(&state) * 256);
    return data;
}

static void cut(uint8_t *out, const tap_image *frame, const tap_crop *crop)
{
    void *scratch = scratch_for(frame, crop);
    tap_crop_bytes(out, frame, crop, scratch);
    free(scratch);
}

/* Every layout of the same pixels gives the same crop, upside down in memory too. */
static void test_formats_and_strides(void **state)
{
    (void)state;
    enum { W = 90, H = 70 };
    uint8_t *rgb = make_frame(W, H, 3), *other = malloc(W * H * 4);
    uint8_t *wanted = malloc(N_BYTES), *got = malloc(N_BYTES);
    assert_true(other && wanted && got);
    static const tap_pixel_format formats[] = {TAP_PIXELS_RGBA, TAP_PIXELS_BGR, TAP_PIXELS_BGRA};
    static const double sides[] = {60, 700, 3000};
    for (size_t s = 0; s < 3; s++) {
        tap_crop crop = {41.3, 30.2, sides[s], s == 1, true};
        tap_image frame = {rgb, W, H, 0, TAP_PIXELS_RGB};
        cut(wanted, &frame, &crop);
        for (size_t f = 0; f < 3; f++) {
            size_t step = formats[f] == TAP_PIXELS_BGR ? 3 : 4;
            bool swap = formats[f] != TAP_PIXELS_RGBA;
            for (size_t i = 0; i < (size_t)W * H; i++) {
                size_t to = ((H - 1 - i / W) * W + i % W) * step;
                for (size_t c = 0; c < 3; c++)
                    other[to + (swap ? 2 - c : c)] = rgb[i * 3 + c];
            }
            ptrdiff_t stride = -(ptrdiff_t)(W * step);
            tap_image turned = {other + (H - 1) * W * step, W, H, stride, formats[f]};
            cut(got, &turned, &crop);
            assert_memory_equal(got, wanted, N_BYTES);
        }
    }
    tap_image gray = {rgb, W, H, 0, TAP_PIXELS_GRAY};
    tap_crop crop = {40, 30, 50, false, true};
    cut(got, &gray, &crop);
    for (size_t i = 0; i < SIDE * SIDE; i++)
        assert_true(got[3 * i] == got[3 * i + 1] && got[3 * i] == got[3 * i + 2]);
    assert_int_equal(got[(128 * SIDE + 128) * 3], rgb[30 * W + 40]);
    free(rgb), free(other), free(wanted), free(got);
}

/* A mirrored crop equals the plain crop of a mirrored frame around the mirrored centre. */
static void test_mirror(void **state)
{
    (void)state;
    enum { W = 200, H = 120 };
    uint8_t *frame = make_frame(W, H, 3), *mirrored = malloc(W * H * 3);
    uint8_t *left = malloc(N_BYTES), *right = malloc(N_BYTES);
    assert_true(mirrored && left && right);
    for (size_t y = 0; y < H; y++)
        for (size_t x = 0; x < W; x++)
            memcpy(mirrored + (y * W + W - 1 - x) * 3, frame + (y * W + x) * 3, 3);
    tap_crop a = {150.5, 33.25, 111.7, true, true}, b = {W - 1 - 150.5, 33.25, 111.7, false, true};
    cut(left, &(tap_image){frame, W, H, 0, TAP_PIXELS_RGB}, &a);
    cut(right, &(tap_image){mirrored, W, H, 0, TAP_PIXELS_RGB}, &b);
    assert_memory_equal(left, right, N_BYTES);
    free(frame), free(mirrored), free(left), free(right);
}

/* One axis smoothed as the rule says: the neighbours beyond the border are the border. */
static void smooth_axis(double *out, const double *in, long n, long step, double sigma, long radius)
{
    for (long i = 0; i < n; i++) {
        double sum = 0, all = 0;
        for (long k = -radius; k <= radius; k++) {
            long at = i + k < 0 ? 0 : i + k >= n ? n - 1 : i + k;
            double weight = exp(-(double)(k * k) / (2 * sigma * sigma));
            sum += weight * in[at * step];
            all += weight;
        }
        out[i * step] = sum / all;
    }
}

/* Pixel (x, y) of a smoothed frame, black outside. */
static double tap_at(const double *frame, long width, long height, long x, long y)
{
    return x < 0 || y < 0 || x >= width || y >= height ? 0 : frame[y * width + x];
}

/* Smoothed crops of a small frame, whose borders count most, against the rule done step by step:
 * the whole frame first, then the warp. */
static void test_smoothing_step_by_step(void **state)
{
    (void)state;
    enum { W = 83, H = 61 };
    static const double sides[] = {650, 900, 2600, 6000};
    uint8_t *frame = make_frame(W, H, 1);
    double down[W * H], both[W * H], whole[W * H];
    float *ours = malloc(N_BYTES * sizeof *ours);
    assert_non_null(ours);
    for (size_t s = 0; s < 4; s++) {
        tap_image gray = {frame, W, H, 0, TAP_PIXELS_GRAY};
        tap_crop crop = {30.7, 20.1, sides[s], false, false};
        double sigma = (sides[s] / 512 - 1) / 2;
        long radius = (long)floor(4 * sigma + 0.5);
        for (long i = 0; i < W * H; i++)
            whole[i] = frame[i];
        for (long x = 0; x < W; x++)
            smooth_axis(down + x, whole + x, H, W, sigma, radius);
        for (long y = 0; y < H; y++)
            smooth_axis(both + y * W, down + y * W, W, 1, sigma, radius);
        void *scratch = scratch_for(&gray, &crop);
        tap_crop_floats(ours, &gray, &crop, scratch);
        free(scratch);
        tap_crop_map map = tap_crop_mapping(&crop, W);
        for (long v = 0; v < SIDE; v++)
            for (long u = 0; u < SIDE; u++) {
                double ax = rint((double)u * 1024 / map.sx) + rint(-map.tx / map.sx * 1024) + 16;
                double ay = rint(((double)v - map.ty) / map.sy * 1024) + 16;
                double px = floor(ax / 32) / 32, py = floor(ay / 32) / 32;
                long x = (long)floor(px), y = (long)floor(py);
                double kx = px - (double)x, ky = py - (double)y;
                double wanted = (1 - kx) * (1 - ky) * tap_at(both, W, H, x, y) +
                                kx * (1 - ky) * tap_at(both, W, H, x + 1, y) +
                                (1 - kx) * ky * tap_at(both, W, H, x, y + 1) +
                                kx * ky * tap_at(both, W, H, x + 1, y + 1);
                assert_true(fabs(ours[(v * SIDE + u) * 3 + 1] - wanted) < 2e-5);
            }
    }
    free(ours), free(frame);
}

/* Smoothing keeps a plain frame plain, with the frame's borders far inside the crop or outside it.
 */
static void test_plain_stays_plain(void **state)
{
    (void)state;
    uint8_t *frame = malloc(64 * 48 * 3), *out = malloc(N_BYTES);
    assert_true(frame && out);
    memset(frame, 201, 64 * 48 * 3);
    static const double sides[] = {600, 2000, 9000};
    for (size_t s = 0; s < 3; s++) {
        tap_crop crop = {30, 20, sides[s], false, true};
        cut(out, &(tap_image){frame, 64, 48, 0, TAP_PIXELS_RGB}, &crop);
        const uint8_t *center = out + (128 * SIDE + 128) * 3;
        for (size_t c = 0; c < 3; c++)
            assert_int_equal(center[c], 201);
        assert_int_equal(out[0], 0);
    }
    free(frame), free(out);
}

/* However large, far or narrow: bounded time and memory, black where there is no frame. */
static void test_wild_squares(void **state)
{
    (void)state;
    enum { W = 300, H = 20 };
    uint8_t *frame = make_frame(W, H, 3), *out = malloc(N_BYTES);
    assert_non_null(out);
    static const double centers[] = {-1e300, -3e9, -1e6, 0, 150, 1e6, 3e38, 1e300, INFINITY, NAN};
    static const double sides[] = {1, 600, 5e4, 1e7, 1e12, 1e38, 1e300};
    tap_image view_of = {frame, W, H, 0, TAP_PIXELS_RGB};
    for (size_t c = 0; c < sizeof centers / sizeof *centers; c++)
        for (size_t s = 0; s < sizeof sides / sizeof *sides; s++) {
            tap_crop crop = {centers[c], 10, sides[s], c % 2 == 0, true};
            size_t bytes;
            assert_true(tap_crop_scratch_bytes(&view_of, &crop, &bytes));
            assert_true(bytes <= (3 * W + 2 * W + 3 + H + 8 * W) * sizeof(double));
            memset(out, 77, N_BYTES);
            cut(out, &view_of, &crop);
            bool seen = false;
            for (size_t i = 0; i < N_BYTES; i++)
                seen = seen || out[i] != 0;
            if (!(fabs(centers[c] - 150) < sides[s] / 2 + 151))
                assert_false(seen);
        }
    free(frame), free(out);
}

static void test_ready_crops(void **state)
{
    (void)state;
    uint8_t *square = make_frame(SIDE, SIDE, 3), *narrow = malloc(SIDE * TAP_CROP_COLUMNS * 3);
    float *a = malloc(N_INPUT * sizeof *a), *b = malloc(N_INPUT * sizeof *b);
    assert_true(narrow && a && b);
    for (size_t y = 0; y < SIDE; y++)
        memcpy(narrow + y * TAP_CROP_COLUMNS * 3, square + (y * SIDE + TAP_CROP_LEFT) * 3,
               TAP_CROP_COLUMNS * 3);
    tap_error err;
    assert_ok(tap_crop_ready(a, &(tap_image){square, SIDE, SIDE, 0, TAP_PIXELS_RGB}, &err), err);
    assert_ok(
        tap_crop_ready(b, &(tap_image){narrow, TAP_CROP_COLUMNS, SIDE, 0, TAP_PIXELS_RGB}, &err),
        err);
    assert_memory_equal(a, b, N_INPUT * sizeof *a);
    for (size_t i = 0; i < N_INPUT; i += 3)
        assert_true(fabs((double)a[i] - (narrow[i] / 255.0 - 0.485) / 0.229) < 1e-6);
    assert_fails(tap_crop_ready(a, &(tap_image){square, SIDE, 200, 0, TAP_PIXELS_RGB}, &err),
                 TAP_ERR_ARGUMENT, err, "256 x 200");
    free(square), free(narrow), free(a), free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maps_and_blurs),
        cmocka_unit_test(test_demo_crops),
        cmocka_unit_test(test_served_crops),
        cmocka_unit_test(test_formats_and_strides),
        cmocka_unit_test(test_mirror),
        cmocka_unit_test(test_outside_is_black),
        cmocka_unit_test(test_smoothing_step_by_step),
        cmocka_unit_test(test_plain_stays_plain),
        cmocka_unit_test(test_wild_squares),
        cmocka_unit_test(test_ready_crops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
