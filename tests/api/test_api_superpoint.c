/* SuperPoint through the public functions: the same answer whatever way the pixels came, however
 * many threads worked, whatever ran before. tests/models compares the answer itself with other
 * programs'. */
#include "scene.h"

#include <math.h>
#include <pthread.h>

enum { WIDTH = 200, HEIGHT = 144 };

static char weights[64];
static tap_engine *engine;
static tap_model *model;
static uint8_t gray[WIDTH * HEIGHT];

static int set_up(void **state)
{
    (void)state;
    model = load_model(&engine, 2, make_weights(weights));
    fill_scene(gray, WIDTH, HEIGHT);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tap_model_release(model);
    tap_engine_release(engine);
    return unlink(weights);
}

/* A session, a result, and options for the picture's own size. */
struct run {
    tap_session *session;
    tap_keypoints *points;
    tap_superpoint_options options;
    tap_error err;
};

static struct run begin(void)
{
    struct run run;
    assert_ok(tap_session_create(&run.session, model, &run.err), run.err);
    assert_ok(tap_keypoints_create(&run.points, &run.err), run.err);
    tap_superpoint_options_init(&run.options);
    run.options.native = true;
    return run;
}

static void end(struct run *run)
{
    tap_session_free(run->session);
    tap_keypoints_free(run->points);
}

static void detect(struct run *run, const tap_image *image)
{
    assert_ok(tap_superpoint_pixels(run->session, image, &run->options, run->points, &run->err),
              run->err);
}

static tap_image gray_image(void)
{
    return (tap_image){gray, WIDTH, HEIGHT, 0, TAP_PIXELS_GRAY};
}

/* The scene's values in every channel but the unread ones, which hold something else. */
static void every_format_and_stride_gives_the_same(void **state)
{
    (void)state;
    static const struct {
        tap_pixel_format format;
        size_t bytes, red;
    } formats[] = {{TAP_PIXELS_RGB, 3, 0},
                   {TAP_PIXELS_RGBA, 4, 0},
                   {TAP_PIXELS_BGR, 3, 2},
                   {TAP_PIXELS_BGRA, 4, 2}};
    struct run wanted = begin(), run = begin();
    tap_image image = gray_image();
    detect(&wanted, &image);
    assert_true(view_of(wanted.points).count > 50);
    uint8_t *pixels = malloc((size_t)(WIDTH + 9) * 4 * HEIGHT);
    for (size_t i = 0; i < 4; i++)
        for (size_t upside_down = 0; upside_down < 2; upside_down++) {
            size_t n = formats[i].bytes;
            ptrdiff_t stride = (ptrdiff_t)((WIDTH + 9) * n);
            memset(pixels, 77, (size_t)stride * HEIGHT);
            for (size_t y = 0; y < HEIGHT; y++)
                for (size_t x = 0; x < WIDTH; x++) {
                    size_t row = upside_down ? HEIGHT - 1 - y : y;
                    pixels[row * (size_t)stride + x * n + formats[i].red] = gray[y * WIDTH + x];
                }
            image = (tap_image){pixels, WIDTH, HEIGHT, stride, formats[i].format};
            if (upside_down) {
                image.data += stride * (HEIGHT - 1);
                image.stride_bytes = -stride;
            }
            detect(&run, &image);
            assert_same_result(wanted.points, run.points);
        }
    free(pixels);
    end(&wanted), end(&run);
}

static void every_number_of_threads_gives_the_same(void **state)
{
    (void)state;
    tap_image image = gray_image();
    struct run wanted = begin();
    detect(&wanted, &image);
    for (uint32_t n_threads = 1; n_threads <= 5; n_threads++) {
        tap_engine *other_engine;
        tap_model *other = load_model(&other_engine, n_threads, weights);
        struct run run = begin();
        tap_session_free(run.session);
        assert_ok(tap_session_create(&run.session, other, &run.err), run.err);
        for (size_t repeat = 0; repeat < 2; repeat++) {
            detect(&run, &image);
            assert_same_result(wanted.points, run.points);
        }
        end(&run);
        tap_model_release(other);
        tap_engine_release(other_engine);
    }
    end(&wanted);
}

static void *detect_in_a_thread(void *wanted)
{
    tap_image image = gray_image();
    struct run run = begin();
    for (size_t i = 0; i < 4; i++) {
        detect(&run, &image);
        assert_same_result(wanted, run.points);
    }
    end(&run);
    return NULL;
}

static void sessions_of_one_model_run_at_once(void **state)
{
    (void)state;
    tap_image image = gray_image();
    pthread_t threads[4];
    struct run wanted = begin();
    detect(&wanted, &image);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, detect_in_a_thread, wanted.points), 0);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    end(&wanted);
}

/* What ran before, at another size or without descriptors, leaves no trace. */
static void earlier_runs_leave_no_trace(void **state)
{
    (void)state;
    struct run wanted = begin(), run = begin();
    tap_image image = gray_image(), small = {gray, 64, 40, WIDTH, TAP_PIXELS_GRAY};
    detect(&wanted, &image);
    for (size_t i = 0; i < 3; i++) {
        run.options.native = i != 1;
        run.options.width = 96;
        run.options.height = 64;
        run.options.descriptors = i == 2;
        detect(&run, &small);
        tap_keypoints_view view = view_of(run.points);
        assert_int_equal(view.input_width, i == 1 ? 96 : 64);
        assert_int_equal(view.original_height, 40);
        assert_true((view.descriptors != NULL) == (i == 2));
        tap_superpoint_options_init(&run.options);
        run.options.native = true;
        detect(&run, &image);
        assert_same_result(wanted.points, run.points);
    }
    end(&wanted), end(&run);
}

static void coordinates_map_back_by_ratio_or_centres(void **state)
{
    (void)state;
    struct run network = begin(), ratio = begin(), centres = begin();
    tap_image image = {gray, 192, 128, WIDTH, TAP_PIXELS_GRAY};
    ratio.options.native = centres.options.native = false;
    ratio.options.width = centres.options.width = 96;
    ratio.options.height = centres.options.height = 64;
    centres.options.coordinates = TAP_COORDINATES_CENTRES;
    detect(&ratio, &image), detect(&centres, &image);
    tap_keypoints_view r = view_of(ratio.points), c = view_of(centres.points);
    assert_true(r.count > 5 && r.count == c.count && r.scale_x == 2 && r.scale_y == 2);
    for (size_t i = 0; i < r.count; i++) {
        assert_true(r.xy[2 * i] / 2 == floorf(r.xy[2 * i] / 2));
        assert_true(c.xy[2 * i] == r.xy[2 * i] + 0.5f && c.xy[2 * i + 1] == r.xy[2 * i + 1] + 0.5f);
    }
    end(&network), end(&ratio), end(&centres);
}

static void native_sizes_cut_down_to_cells(void **state)
{
    (void)state;
    static const uint32_t sizes[][2] = {{9, 9}, {8, 8}, {199, 131}, {64, 15}};
    struct run run = begin();
    for (size_t i = 0; i < 4; i++) {
        tap_image image = {gray, sizes[i][0], sizes[i][1], WIDTH, TAP_PIXELS_GRAY};
        detect(&run, &image);
        tap_keypoints_view view = view_of(run.points);
        assert_int_equal(view.input_width, sizes[i][0] / 8 * 8);
        assert_int_equal(view.input_height, sizes[i][1] / 8 * 8);
        for (size_t j = 0; j < view.count; j++)
            assert_true(view.xy[2 * j] < (float)view.input_width - 4 &&
                        view.xy[2 * j + 1] < (float)view.input_height - 4);
    }
    tap_image image = {gray, 7, 64, WIDTH, TAP_PIXELS_GRAY};
    assert_fails(tap_superpoint_pixels(run.session, &image, &run.options, run.points, &run.err),
                 TAP_ERR_ARGUMENT, run.err, "7x64");
    assert_int_equal(view_of(run.points).count, 0);
    end(&run);
}

/* Fails, names the option, and leaves nothing of the run before. */
static void refuse(struct run *run, const tap_image *image, const char *words)
{
    tap_superpoint_options options;
    tap_superpoint_options_init(&options);
    options.native = true;
    assert_ok(tap_superpoint_pixels(run->session, image, &options, run->points, &run->err),
              run->err);
    assert_true(view_of(run->points).count > 0);
    assert_fails(tap_superpoint_pixels(run->session, image, &run->options, run->points, &run->err),
                 TAP_ERR_ARGUMENT, run->err, words);
    tap_keypoints_view view = view_of(run->points);
    assert_true(view.count == 0 && view.xy == NULL);
    run->options = options;
}

static void options_out_of_range_are_named(void **state)
{
    (void)state;
    struct run run = begin();
    tap_image image = gray_image();
    run.options.native = false, run.options.width = 637, refuse(&run, &image, "width 637");
    run.options.native = false, run.options.height = 0, refuse(&run, &image, "height 0");
    run.options.native = false, run.options.width = 8200, refuse(&run, &image, "8..8192");
    run.options.max_keypoints = -2, refuse(&run, &image, "max_keypoints -2");
    run.options.keypoint_threshold = NAN, refuse(&run, &image, "keypoint_threshold nan");
    run.options.keypoint_threshold = 1.01f, refuse(&run, &image, "keypoint_threshold 1.01");
    run.options.nms_radius = 33, refuse(&run, &image, "nms_radius 33");
    run.options.nms = (tap_nms)9, refuse(&run, &image, "nms 9");
    run.options.gray = (tap_gray)9, refuse(&run, &image, "gray 9");
    run.options.coordinates = (tap_coordinates)9, refuse(&run, &image, "coordinates 9");
    run.options.exif = (tap_exif)9, refuse(&run, &image, "exif 9");
    run.options.size = 0, refuse(&run, &image, "_init");
    end(&run);
}

static void wrong_images_are_named(void **state)
{
    (void)state;
    struct run run = begin();
    static const struct {
        tap_image image;
    } wrong[] = {
        {{NULL, 8, 8, 0, TAP_PIXELS_GRAY}},     {{gray, 0, 8, 0, TAP_PIXELS_GRAY}},
        {{gray, 8, 0, 0, TAP_PIXELS_GRAY}},     {{gray, 8, 8, 7, TAP_PIXELS_GRAY}},
        {{gray, 8, 8, -7, TAP_PIXELS_GRAY}},    {{gray, 8, 8, 16, TAP_PIXELS_RGB}},
        {{gray, 8, 8, 0, (tap_pixel_format)2}},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_fails(
            tap_superpoint_pixels(run.session, &wrong[i].image, &run.options, run.points, &run.err),
            TAP_ERR_ARGUMENT, run.err, "");
    assert_fails(tap_superpoint_encoded(run.session, "GIF89a..........", 16, &run.options,
                                        run.points, &run.err),
                 TAP_ERR_UNSUPPORTED, run.err, "GIF");
    assert_fails(tap_superpoint_encoded(run.session, "no picture at all", 17, &run.options,
                                        run.points, &run.err),
                 TAP_ERR_FORMAT, run.err, "");
    assert_fails(
        tap_superpoint_file(run.session, "/nowhere.jpg", &run.options, run.points, &run.err),
        TAP_ERR_NOT_FOUND, run.err, "/nowhere.jpg");
    end(&run);
}

/* A picture written and decoded again is the same picture; a file, its bytes and its pixels give
 * the same points. */
static void files_bytes_and_pixels_agree(void **state)
{
    (void)state;
    struct run wanted = begin(), run = begin();
    tap_error err;
    tap_picture *picture;
    tap_image image = gray_image();
    char path[64];
    snprintf(path, sizeof path, "/tmp/tap-test-%ld.png", (long)getpid());
    detect(&wanted, &image);
    assert_ok(tap_picture_copy(&picture, &image, &err), err);
    assert_ok(tap_picture_write(picture, path, &err), err);
    assert_ok(tap_superpoint_file(run.session, path, &run.options, run.points, &err), err);
    assert_same_result(wanted.points, run.points);
    assert_true(view_of(run.points).exif_orientation == 1 && !view_of(run.points).exif_applied);
    image = tap_picture_view(picture);
    assert_true(image.format == TAP_PIXELS_RGB && tap_picture_orientation(picture) == 1);
    detect(&run, &image);
    assert_same_result(wanted.points, run.points);
    tap_keypoints_view view = view_of(run.points);
    assert_ok(tap_draw_keypoints(picture, &view, &err), err);
    image = tap_picture_view(picture);
    size_t changed = 0;
    for (size_t i = 0; i < (size_t)WIDTH * HEIGHT; i++)
        changed += image.data[3 * i + 1] != gray[i];
    assert_true(changed > view.count);
    assert_fails(tap_picture_write(picture, "/tmp/x.bmp", &err), TAP_ERR_ARGUMENT, err, ".png");
    tap_picture_free(picture);
    unlink(path);
    end(&wanted), end(&run);
}

static void limits_and_thresholds_cut_the_list(void **state)
{
    (void)state;
    struct run all = begin(), run = begin();
    tap_image image = gray_image();
    all.options.max_keypoints = -1;
    detect(&all, &image);
    tap_keypoints_view a = view_of(all.points);
    for (size_t i = 1; i < a.count; i++)
        assert_true(a.scores[i] <= a.scores[i - 1]);
    run.options.max_keypoints = 10;
    detect(&run, &image);
    tap_keypoints_view r = view_of(run.points);
    assert_int_equal(r.count, 10);
    assert_memory_equal(r.xy, a.xy, 20 * sizeof(float));
    run.options.max_keypoints = -1;
    run.options.keypoint_threshold = a.scores[9];
    detect(&run, &image);
    r = view_of(run.points);
    assert_true(r.count <= 9 && r.scores[r.count - 1] > a.scores[9]);
    run.options.max_keypoints = 0;
    detect(&run, &image);
    assert_int_equal(view_of(run.points).count, 0);
    end(&all), end(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_and_stride_gives_the_same),
        cmocka_unit_test(every_number_of_threads_gives_the_same),
        cmocka_unit_test(sessions_of_one_model_run_at_once),
        cmocka_unit_test(earlier_runs_leave_no_trace),
        cmocka_unit_test(coordinates_map_back_by_ratio_or_centres),
        cmocka_unit_test(native_sizes_cut_down_to_cells),
        cmocka_unit_test(options_out_of_range_are_named),
        cmocka_unit_test(wrong_images_are_named),
        cmocka_unit_test(files_bytes_and_pixels_agree),
        cmocka_unit_test(limits_and_thresholds_cut_the_list),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
