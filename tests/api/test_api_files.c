/* What the public functions read and write beside pictures: arrays, evaluations, converted models,
 * the cache of packed weights. */
#include "hands_scene.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

static char folder[] = "/tmp/tap_files_XXXXXX";

static const char *file(char path[200], const char *name)
{
    snprintf(path, 200, "%s/%.100s", folder, name);
    return path;
}

static const char *write_file(char path[200], const char *name, const void *bytes, size_t n)
{
    FILE *out = fopen(file(path, name), "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
    return path;
}

/* ---- arrays --------------------------------------------------------------------------------- */

static void json_lists_become_arrays(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name;
        size_t rank, shape[3];
        float first, last;
    } good[] = {{"[[1, 2, 3], [4, 5, 6.5]]", NULL, 2, {2, 3}, 1, 6.5f},
                {" [1e1]", NULL, 1, {1}, 10, 10},
                {"{\"a\": [1, 2], \"b\": [[3], [4]]}", "b", 2, {2, 1}, 3, 4},
                {"{\"a\": [1, 2], \"b\": [[3], [4]]}", NULL, 1, {2}, 1, 2},
                /* FreiHAND's: joints, then vertices */
                {"[[[[1,2,3],[4,5,6]]], [[[7,8,9]]]]", NULL, 3, {1, 2, 3}, 1, 6},
                {"[[[[1,2,3],[4,5,6]]], [[[7,8,9]]]]", "1", 3, {1, 1, 3}, 7, 9},
                {"[[[[1,2,3],[4,5,6]]], [[[7,8,9]]]]", "0", 3, {1, 2, 3}, 1, 6}};
    static const struct {
        const char *text, *name;
        tap_status status;
        const char *says;
    } bad[] = {{"[[1, 2], [3]]", "x", TAP_ERR_NOT_FOUND, "'x'"},
               {"[[1, 2], [3]]", "2", TAP_ERR_NOT_FOUND, "there is no 2"},
               {"{\"a\": [[1, 2], [3]]}", NULL, TAP_ERR_FORMAT, "several lengths"},
               {"{\"a\": [[1, 2], 3]}", NULL, TAP_ERR_FORMAT, "several depths"},
               {"{\"a\": [1, [2]]}", NULL, TAP_ERR_FORMAT, "several depths"},
               {"{\"a\": [1, \"2\"]}", NULL, TAP_ERR_FORMAT, "neither a number"},
               {"{\"a\": [1e39]}", NULL, TAP_ERR_FORMAT, "not finite"},
               {"{\"a\": [[[[[[[[[1]]]]]]]]]}", NULL, TAP_ERR_FORMAT, "8 deep"},
               {"{\"a\": [1, 2", NULL, TAP_ERR_FORMAT, "byte"},
               {"{}", NULL, TAP_ERR_NOT_FOUND, "holds no"},
               {"hello", NULL, TAP_ERR_FORMAT, ""}};
    char path[200];
    float *values;
    size_t shape[8], rank;
    tap_error err;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        size_t n = 1;
        write_file(path, "x.json", good[i].text, strlen(good[i].text));
        assert_ok(tap_array_read(path, good[i].name, &values, shape, &rank, &err), err);
        assert_int_equal(rank, good[i].rank);
        for (size_t d = 0; d < rank; d++) {
            assert_int_equal(shape[d], good[i].shape[d]);
            n *= shape[d];
        }
        assert_true(values[0] == good[i].first && values[n - 1] == good[i].last);
        tap_free(values);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(path, "x.json", bad[i].text, strlen(bad[i].text));
        values = (void *)path;
        assert_fails(tap_array_read(path, bad[i].name, &values, shape, &rank, &err), bad[i].status,
                     err, bad[i].says);
        assert_null(values);
    }
    assert_fails(tap_array_read("/no/such.npy", NULL, &values, shape, &rank, &err),
                 TAP_ERR_NOT_FOUND, err, "/no/such.npy");
    assert_fails(tap_array_read("", NULL, &values, shape, &rank, &err), TAP_ERR_ARGUMENT, err,
                 "path");
}

static void numpy_arrays_are_read(void **state)
{
    (void)state;
    static const char header[] = "\x93NUMPY\1\0\x76\0{'descr': '<i2', 'fortran_order': True, "
                                 "'shape': (2, 3), }";
    unsigned char bytes[128 + 12];
    const int16_t numbers[] = {1, 4, 2, 5, 3, -6}; /* by columns */
    char path[200];
    float *values;
    size_t shape[8], rank;
    tap_error err;
    memset(bytes, ' ', 128);
    memcpy(bytes, header, sizeof header - 1);
    bytes[127] = '\n';
    memcpy(bytes + 128, numbers, sizeof numbers);
    write_file(path, "x.npy", bytes, sizeof bytes);
    assert_ok(tap_array_read(path, NULL, &values, shape, &rank, &err), err);
    assert_int_equal(rank, 2);
    assert_true(shape[0] == 2 && shape[1] == 3);
    const float wanted[] = {1, 2, 3, 4, 5, -6};
    assert_memory_equal(values, wanted, sizeof wanted);
    tap_free(values);
}

/* ---- evaluation ----------------------------------------------------------------------------- */

/* Points, turned by 90 degrees about z, three times as large and moved: another hand to MPJPE, the
 * same to PA-MPJPE. */
static void errors_are_as_the_field_defines_them(void **state)
{
    (void)state;
    enum { N = 21 };
    float truth[2 * N * 3], predicted[2 * N * 3];
    double aligned = 0;
    tap_error err;
    tap_hand_errors errors = {.size = sizeof errors};
    uint64_t state_of = 1;
    for (size_t i = 0; i < 2 * N * 3; i++) {
        state_of = state_of * 6364136223846793005u + 1442695040888963407u;
        truth[i] = (float)(state_of >> 40) / 16777216.0f;
    }
    for (size_t i = 0; i < 2 * N; i++) {
        predicted[3 * i] = -3 * truth[3 * i + 1] + 5;
        predicted[3 * i + 1] = 3 * truth[3 * i] - 7;
        predicted[3 * i + 2] = 3 * truth[3 * i + 2] + 0.5f;
    }
    for (size_t i = 0; i < 2 * N; i++) {
        size_t root = i / N * N;
        double sum = 0;
        for (size_t c = 0; c < 3; c++) {
            double d = (double)predicted[3 * i + c] - (double)predicted[3 * root + c] -
                       (double)truth[3 * i + c] + (double)truth[3 * root + c];
            sum += d * d;
        }
        aligned += sqrt(sum) / (2 * N);
    }
    assert_ok(tap_hand_evaluate(predicted, truth, 2, N, &errors, &err), err);
    assert_int_equal(errors.n_hands, 2);
    assert_true(fabs(errors.mpjpe_mm - 1000 * aligned) < 1e-3);
    assert_true(errors.pa_mpjpe_mm < 1e-2); /* float32 of the points themselves */
    /* A reflection is no rotation: what is left cannot be turned away. */
    for (size_t i = 0; i < 2 * N; i++) {
        predicted[3 * i] = -truth[3 * i];
        predicted[3 * i + 1] = truth[3 * i + 1];
        predicted[3 * i + 2] = truth[3 * i + 2];
    }
    assert_ok(tap_hand_evaluate(predicted, truth, 2, N, &errors, &err), err);
    assert_true(errors.pa_mpjpe_mm > 50);
    /* A corner of a cube against itself with one point 4 mm off: by hand, about the centroid. */
    const float corner[] = {0, 0, 0, 1, 0, 0, 0, 1, 0}, other[] = {0, 0, 0, 1, 0, 0, 0, 1, 0.004f};
    assert_ok(tap_hand_evaluate(other, corner, 1, 3, &errors, &err), err);
    assert_true(fabs(errors.mpjpe_mm - 4.0 / 3) < 1e-4);
    /* All points in one: nothing to turn; the distance to the centroid is left. */
    const float one[9] = {0};
    assert_ok(tap_hand_evaluate(one, corner, 1, 3, &errors, &err), err);
    double spread = (sqrt(2.0 / 9) + 2 * sqrt(5.0 / 9)) / 3 * 1000;
    assert_true(fabs(errors.pa_mpjpe_mm - spread) < 1e-3);
    float nan[9] = {[4] = NAN};
    assert_fails(tap_hand_evaluate(nan, corner, 1, 3, &errors, &err), TAP_ERR_ARGUMENT, err,
                 "point 1");
    assert_fails(tap_hand_evaluate(one, corner, 0, 3, &errors, &err), TAP_ERR_ARGUMENT, err,
                 "0 hands");
    assert_fails(tap_hand_evaluate(one, corner, 1, 2, &errors, &err), TAP_ERR_ARGUMENT, err,
                 "2 points");
    assert_fails(tap_hand_evaluate(NULL, corner, 1, 3, &errors, &err), TAP_ERR_ARGUMENT, err,
                 "predicted");
}

/* ---- conversion ----------------------------------------------------------------------------- */

static tap_hand_view run_model(struct hands_scene *scene, const char *path, const char *precision,
                               const char *cache, tap_model_info *info)
{
    tap_error err;
    tap_model_options options;
    const tap_hand_box box = {20, 30, 90, 100, true};
    tap_hamer_options hamer;
    tap_model_options_init(&options);
    options.mano = "";
    options.precision = precision;
    options.cache = cache;
    tap_session_free(scene->session);
    tap_model_release(scene->model);
    assert_ok(tap_model_load(&scene->model, scene->engine, path, &options, &err), err);
    assert_ok(tap_session_create(&scene->session, scene->model, &err), err);
    *info = (tap_model_info){.size = sizeof *info};
    assert_int_equal(tap_model_describe(scene->model, info), TAP_OK);
    tap_hamer_options_init(&hamer);
    hamer.boxes = &box;
    hamer.n_boxes = 1;
    assert_ok(tap_hamer_pixels(scene->session, &scene->image, &hamer, scene->hands, &err), err);
    return hand_view(scene->hands, 0);
}

static size_t size_of(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return (size_t)info.st_size;
}

static void a_converted_model_is_the_same(void **state)
{
    (void)state;
    struct hands_scene scene;
    tap_model_info info;
    tap_error err;
    char original[200], clean[200], half[200];
    float rotmats[144];
    open_hands(&scene, 1, "");
    assert_ok(tap_synth_write("hamer-tiny", file(original, "tiny.safetensors"), &err), err);
    assert_ok(tap_model_convert(original, file(clean, "clean.safetensors"), NULL, NULL, NULL, &err),
              err);
    assert_ok(tap_model_convert(original, file(half, "half.safetensors"), "f16", NULL, NULL, &err),
              err);
    assert_true(size_of(half) < size_of(clean) * 6 / 10);
    memcpy(rotmats, run_model(&scene, original, NULL, "", &info).rotmats, sizeof rotmats);
    assert_true(info.gate_correlation > 0.999999);
    assert_memory_equal(run_model(&scene, clean, NULL, "", &info).rotmats, rotmats, sizeof rotmats);
    tap_hand_view hand = run_model(&scene, half, NULL, "", &info);
    for (size_t i = 0; i < 144; i++)
        assert_true(fabsf(hand.rotmats[i] - rotmats[i]) < 5e-3f);
    assert_fails(tap_model_convert(original, original, NULL, NULL, NULL, &err), TAP_ERR_ARGUMENT,
                 err, "is the file that is read");
    assert_fails(tap_model_convert(original, clean, "bf16", NULL, NULL, &err), TAP_ERR_ARGUMENT,
                 err, "'bf16'");
    assert_fails(tap_model_convert("/no/such", clean, NULL, NULL, NULL, &err), TAP_ERR_NOT_FOUND,
                 err, "/no/such");
    close_hands(&scene);
}

/* ---- precisions and the cache --------------------------------------------------------------- */

static void every_precision_passes_its_gate(void **state)
{
    (void)state;
    static const char *const precisions[] = {"f16", "int8"};
    struct hands_scene scene;
    tap_model_info info;
    tap_error err;
    char path[200];
    float rotmats[144];
    open_hands(&scene, 2, "");
    assert_ok(tap_synth_write("hamer-tiny", file(path, "tiny.safetensors"), &err), err);
    memcpy(rotmats, run_model(&scene, path, "f32", "", &info).rotmats, sizeof rotmats);
    for (size_t i = 0; i < 2; i++) {
        tap_hand_view hand = run_model(&scene, path, precisions[i], "", &info);
        assert_string_equal(info.precision, precisions[i]);
        assert_true(info.gate_correlation >= 0.9999);
        for (size_t j = 0; j < 144; j++)
            assert_true(fabsf(hand.rotmats[j] - rotmats[j]) < (i == 0 ? 5e-3f : 0.1f));
    }
    tap_model_options options;
    tap_model_options_init(&options);
    options.precision = "f8";
    tap_model *model;
    assert_fails(tap_model_load(&model, scene.engine, path, &options, &err), TAP_ERR_ARGUMENT, err,
                 "'f8'");
    close_hands(&scene);
}

static size_t count_packed(char packed[200])
{
    size_t n = 0;
    DIR *stream = opendir(folder);
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;)
        if (strstr(entry->d_name, ".packed") != NULL) {
            file(packed, entry->d_name);
            n++;
        }
    closedir(stream);
    return n;
}

static void packed_weights_are_kept(void **state)
{
    (void)state;
    struct hands_scene scene;
    tap_model_info info;
    tap_error err;
    char path[200], packed[200];
    float rotmats[144];
    double correlation;
    open_hands(&scene, 2, "");
    assert_ok(tap_synth_write("hamer-tiny", file(path, "tiny.safetensors"), &err), err);
    memcpy(rotmats, run_model(&scene, path, "f32", folder, &info).rotmats, sizeof rotmats);
    assert_false(info.cached);
    correlation = info.gate_correlation;
    assert_int_equal(count_packed(packed), 1);
    assert_memory_equal(run_model(&scene, path, "f32", folder, &info).rotmats, rotmats,
                        sizeof rotmats);
    assert_true(info.cached);
    assert_true(info.gate_correlation == correlation);
    /* Another precision has a file of its own. */
    run_model(&scene, path, "int8", folder, &info);
    assert_false(info.cached);
    assert_int_equal(count_packed(packed), 2);
    run_model(&scene, path, "f32", folder, &info);
    assert_true(info.cached);
    /* A weights file that has changed is packed anew. */
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    run_model(&scene, path, "f32", folder, &info);
    assert_false(info.cached);
    assert_int_equal(count_packed(packed), 2);
    close_hands(&scene);
}

/* Whatever has become of the cache's file, the answer is right. */
static void a_damaged_cache_is_not_believed(void **state)
{
    (void)state;
    struct hands_scene scene;
    tap_model_info info;
    tap_error err;
    char path[200], packed[200], beside[220];
    float rotmats[144];
    open_hands(&scene, 1, "");
    assert_ok(tap_synth_write("hamer-tiny", file(path, "tiny.safetensors"), &err), err);
    while (count_packed(packed) > 0)
        unlink(packed);
    memcpy(rotmats, run_model(&scene, path, "f32", folder, &info).rotmats, sizeof rotmats);
    assert_int_equal(count_packed(packed), 1);
    for (size_t i = 0; i < 9; i++) {
        static const off_t places[] = {0, 8, 20, 33, 60, 100, 700, 5000};
        int fd = open(packed, O_RDWR);
        unsigned char byte;
        assert_true(fd >= 0);
        if (i < 8) {
            assert_int_equal(pread(fd, &byte, 1, places[i]), 1);
            byte ^= 0x55;
            assert_int_equal(pwrite(fd, &byte, 1, places[i]), 1);
        } else {
            assert_int_equal(ftruncate(fd, 200000), 0);
        }
        close(fd);
        assert_memory_equal(run_model(&scene, path, "f32", folder, &info).rotmats, rotmats,
                            sizeof rotmats);
        assert_false(info.cached);
    }
    /* One that others may write to is nobody's. */
    assert_int_equal(chmod(packed, 0666), 0);
    run_model(&scene, path, "f32", folder, &info);
    assert_false(info.cached);
    /* What a killed process left is cleared away. */
    snprintf(beside, sizeof beside, "%s.0a1b2c", packed);
    close(open(beside, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(unlink(packed), 0);
    run_model(&scene, path, "f32", folder, &info);
    assert_int_not_equal(access(beside, F_OK), 0);
    /* No folder, no cache, but an answer. */
    assert_memory_equal(run_model(&scene, path, "f32", "/proc/no/such", &info).rotmats, rotmats,
                        sizeof rotmats);
    assert_false(info.cached);
    close_hands(&scene);
}

static int remove_folder(void **state)
{
    (void)state;
    char path[200];
    DIR *stream = opendir(folder);
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;)
        if (entry->d_name[0] != '.')
            unlink(file(path, entry->d_name));
    closedir(stream);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_lists_become_arrays),
        cmocka_unit_test(numpy_arrays_are_read),
        cmocka_unit_test(errors_are_as_the_field_defines_them),
        cmocka_unit_test(a_converted_model_is_the_same),
        cmocka_unit_test(every_precision_passes_its_gate),
        cmocka_unit_test(packed_weights_are_kept),
        cmocka_unit_test(a_damaged_cache_is_not_believed),
    };
    if (mkdtemp(folder) == NULL)
        return 1;
    return cmocka_run_group_tests(tests, NULL, remove_folder);
}
