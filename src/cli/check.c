/* tapetum check: the packed network against its reference, or a server's answers and times. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    CROP_HEIGHT = 256,
    CROP_WIDTH = 192,
    PLANE = CROP_HEIGHT * CROP_WIDTH,
    CROP_VALUES = 3 * PLANE,
    WIDE = 256,      /* the other width that crops come in */
    REGRESSED = 157, /* rotmats, betas, cam */
    N_SYNTHETIC = 2,
    MAX_CROPS = TAP_HANDS_MAX
};

/* The card's own gate, and that of every load. */
static const double gate = 0.9999;

#define FIELD(name) offsetof(tap_cli_check_settings, name)

static const tap_option options[] = {
    {"reference", 0, "FILE",
     "the numbers to compare with, .npy, .npz or JSON: crops x 157, or\n"
     "rotmats, betas and cam (our reference executor; a minute a crop)",
     TAP_OPTION_TEXT, FIELD(reference), 0, 0, NULL},
    {"save", 0, "FILE", "write the reference's numbers, for --reference: .npy", TAP_OPTION_TEXT,
     FIELD(save), 0, 0, NULL},
    {"server", 0, "URL", "ask this server, instead of loading weights; $TAPETUM_TOKEN",
     TAP_OPTION_TEXT, FIELD(server), 0, 0, NULL},
    {"requests", 'n', "N", "how often --server is asked, 1 to 1000000 (300)", TAP_OPTION_U32,
     FIELD(n_requests), 1, 1000000, NULL},
    {"bbox", 'b', "BOX", "x1,y1,x2,y2 of the hand in --server's picture; ,left after it",
     TAP_OPTION_OWN, 0, 0, 0, NULL},
    {"json", 'j', NULL, "one JSON object", TAP_OPTION_ON, FIELD(json), 0, 0, NULL},
    {.name = NULL}};

static tap_status take(void *user, const char *name, const char *value, tap_error *err)
{
    tap_cli_check_settings *settings = user;
    (void)name;
    return tap_cli_boxes_add(&settings->boxes, value, err);
}

/* Crops as the network takes them, [n][3][256][192], normalised. */
struct crops {
    float *values;
    size_t n;
};

static tap_status add_crops(struct crops *crops, size_t n, float **first, tap_error *err)
{
    if (n > MAX_CROPS - crops->n)
        return tap_fail(err, TAP_ERR_LIMIT, "more than %d crops", MAX_CROPS);
    float *moved = reallocarray(crops->values, (crops->n + n) * CROP_VALUES, sizeof *moved);
    if (moved == NULL && n > 0)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for %zu crops", crops->n + n);
    crops->values = moved;
    *first = moved + crops->n * CROP_VALUES;
    crops->n += n;
    return TAP_OK;
}

/* What ImageNet's statistics make of a level from 0 to 255. */
static float normalised(double level, size_t channel)
{
    static const double mean[] = {0.485, 0.456, 0.406}, deviation[] = {0.229, 0.224, 0.225};
    return (float)((level / 255 - mean[channel]) / deviation[channel]);
}

/* ---- where crops come from ----------------------------------------------------------------- */

/* Waves under noise: smooth and rough, and the same everywhere. man page, CROPS. */
static tap_status add_synthetic(struct crops *crops, tap_error *err)
{
    const uint64_t seed = tap_fnv1a64("tapetum check");
    float *to = NULL;
    TAP_TRY(add_crops(crops, N_SYNTHETIC, &to, err));
    for (size_t k = 0; k < N_SYNTHETIC; k++)
        for (size_t c = 0; c < 3; c++)
            for (size_t y = 0; y < CROP_HEIGHT; y++)
                for (size_t x = 0; x < CROP_WIDTH; x++) {
                    size_t i = ((k * 3 + c) * CROP_HEIGHT + y) * CROP_WIDTH + x;
                    double noise = (double)(tap_splitmix64(seed, i + 1) >> 40) / (1 << 24);
                    double wave = sin(0.05 * (double)((c + 1) * x) + 0.03 * (double)((k + 1) * y));
                    to[i] = normalised(floor(96 + 64 * wave + 96 * noise), c);
                }
    return TAP_OK;
}

static tap_status add_picture(struct crops *crops, const char *path, tap_error *err)
{
    tap_bytes bytes;
    tap_picture *picture;
    float *to = NULL;
    tap_error inner;
    TAP_TRY(tap_bytes_read(&bytes, path, TAP_PICTURE_BYTES, err));
    tap_status status = tap_picture_decode(&picture, bytes.data, bytes.size, NULL, &inner);
    tap_bytes_release(&bytes);
    if (status != TAP_OK)
        return tap_fail(err, status, "%s: %s", path, inner.message);
    tap_image image = tap_picture_view(picture);
    if (image.height != CROP_HEIGHT || (image.width != CROP_WIDTH && image.width != WIDE))
        status =
            tap_fail(err, TAP_ERR_ARGUMENT,
                     "%s: is %u x %u; a crop is %d x %d, or %d x %d whose sides are left out", path,
                     image.width, image.height, CROP_WIDTH, CROP_HEIGHT, WIDE, CROP_HEIGHT);
    if (status == TAP_OK)
        status = add_crops(crops, 1, &to, err);
    size_t channels = image.format == TAP_PIXELS_GRAY ? 1 : 3,
           left = (image.width - CROP_WIDTH) / 2;
    for (size_t i = 0; status == TAP_OK && i < CROP_VALUES; i++) {
        size_t c = i / PLANE, y = i % PLANE / CROP_WIDTH, x = i % CROP_WIDTH + left;
        const uint8_t *row = image.data + (ptrdiff_t)y * image.stride_bytes;
        to[i] = normalised(row[x * channels + (channels == 1 ? 0 : c)], c);
    }
    tap_picture_free(picture);
    return status;
}

/* [n][3][256][192 or 256], or one crop's [3][256][...], normalised already. */
static tap_status add_array(struct crops *crops, const char *path, tap_error *err)
{
    float *values, *to = NULL;
    size_t shape[8], rank;
    TAP_TRY(tap_array_read(path, NULL, &values, shape, &rank, err));
    const size_t *last = shape + (rank >= 3 ? rank - 3 : 0);
    size_t n = rank == 4 ? shape[0] : 1, width = rank >= 3 ? last[2] : 0;
    tap_status status = TAP_OK;
    if ((rank != 3 && rank != 4) || last[0] != 3 || last[1] != CROP_HEIGHT ||
        (width != CROP_WIDTH && width != WIDE) || n == 0)
        status = tap_fail(err, TAP_ERR_FORMAT,
                          "%s: is no array of crops x 3 x %d x %d, or %d columns, normalised", path,
                          CROP_HEIGHT, CROP_WIDTH, WIDE);
    else
        status = add_crops(crops, n, &to, err);
    for (size_t row = 0; status == TAP_OK && row < n * 3 * CROP_HEIGHT; row++)
        memcpy(to + row * CROP_WIDTH, values + row * width + (width - CROP_WIDTH) / 2,
               CROP_WIDTH * sizeof *to);
    tap_free(values);
    return status;
}

static bool ends_in(const char *path, const char *ending)
{
    const char *dot = strrchr(path, '.');
    return dot != NULL && strcasecmp(dot, ending) == 0;
}

static tap_status gather(struct crops *crops, char **paths, int n, tap_error *err)
{
    for (int i = 0; i < n; i++)
        TAP_TRY(ends_in(paths[i], ".npy") || ends_in(paths[i], ".npz")
                    ? add_array(crops, paths[i], err)
                    : add_picture(crops, paths[i], err));
    return n > 0 ? TAP_OK : add_synthetic(crops, err);
}

/* ---- what they are compared with ----------------------------------------------------------- */

/* One of a saved result's three arrays into its columns. */
static tap_status take_part(float *reference, size_t n, const char *path, const char *name,
                            size_t first, size_t width, tap_error *err)
{
    float *values;
    size_t shape[8], rank, count = 1;
    TAP_TRY(tap_array_read(path, name, &values, shape, &rank, err));
    bool fits = rank > 0;
    for (size_t i = 0; fits && i < rank; i++)
        fits = tap_size_mul(count, shape[i], &count);
    if (!fits || count != n * width) {
        tap_free(values);
        return tap_fail(err, TAP_ERR_FORMAT, "%s: %s: is not of %zu crops x %zu numbers", path,
                        name != NULL ? name : "the array", n, width);
    }
    for (size_t i = 0; i < n; i++)
        memcpy(reference + i * REGRESSED + first, values + i * width, width * sizeof *values);
    tap_free(values);
    return TAP_OK;
}

/* crops x 157 in one array, or the three parts by their names. *reference is freed by the caller.
 */
static tap_status read_reference(float **reference, size_t n, const char *path, tap_error *err)
{
    enum { ROTATIONS = TAP_HAND_ROTATIONS * 9 };
    tap_error ignored;
    float *rotations;
    size_t shape[8], rank;
    *reference = tap_alloc(n, REGRESSED * sizeof **reference);
    if (*reference == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for the reference");
    if (ends_in(path, ".npy") ||
        tap_array_read(path, "rotmats", &rotations, shape, &rank, &ignored) != TAP_OK)
        return take_part(*reference, n, path, NULL, 0, REGRESSED, err);
    tap_free(rotations);
    TAP_TRY(take_part(*reference, n, path, "rotmats", 0, ROTATIONS, err));
    TAP_TRY(take_part(*reference, n, path, "betas", ROTATIONS, TAP_HAND_BETAS, err));
    return take_part(*reference, n, path, "cam", ROTATIONS + TAP_HAND_BETAS, 3, err);
}

/* NumPy's format 1.0: a header padded so that the numbers begin at a multiple of 64. */
static tap_status write_npy(const char *path, const float *values, size_t n, tap_error *err)
{
    enum { HEADER = 128, BEFORE_TEXT = 10 };
    char header[HEADER + 1];
    tap_writer writer;
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", BEFORE_TEXT); /* 0x76: what is left of HEADER */
    int length =
        snprintf(header + BEFORE_TEXT, HEADER - BEFORE_TEXT,
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %d), }", n, REGRESSED);
    header[BEFORE_TEXT + length] = ' ';
    header[HEADER - 1] = '\n';
    TAP_TRY(tap_writer_begin(&writer, path, err));
    tap_status status = tap_writer_write(&writer, header, HEADER, err);
    if (status == TAP_OK)
        status = tap_writer_write(&writer, values, n * REGRESSED * sizeof *values, err);
    if (status == TAP_OK)
        status = tap_writer_commit(&writer, err);
    tap_writer_abort(&writer);
    return status;
}

/* ---- the comparison ------------------------------------------------------------------------ */

/* Crop by crop, for the bar's sake. values [n][157]: the reference's numbers in the end. */
static tap_status compare(tap_check *all, const tap_cli_model *model, const struct crops *crops,
                          const float *reference, float *values, bool quiet, tap_error *err)
{
    tap_progress progress;
    tap_status status = TAP_OK;
    *all = (tap_check){.size = sizeof *all, .n_crops = crops->n, .correlation = 1};
    tap_progress_begin(&progress, crops->n, !quiet && reference == NULL);
    for (size_t i = 0; status == TAP_OK && i < crops->n; i++) {
        tap_check one = {.size = sizeof one};
        tap_progress_show(&progress, i, "the reference executor");
        status = tap_hamer_check(model->session, crops->values + i * CROP_VALUES, 1, CROP_WIDTH,
                                 reference != NULL ? reference + i * REGRESSED : NULL,
                                 values + i * REGRESSED, &one, err);
        if (!(one.correlation >= all->correlation)) /* NaN is the worst */
            all->correlation = one.correlation;
        all->max_error = fmax(all->max_error, one.max_error);
        all->mean_error += one.mean_error / (double)crops->n;
        all->reference_ms += one.reference_ms;
    }
    tap_progress_clear(&progress);
    return status;
}

static int print(const tap_check *check, const tap_cli_check_settings *settings,
                 const tap_cli_model *model)
{
    tap_model_info info = {.size = sizeof info};
    tap_engine_info engine = {.size = sizeof engine};
    bool passed = check->correlation >= gate;
    if (tap_model_describe(model->model, &info) != TAP_OK ||
        tap_engine_describe(model->engine, &engine) != TAP_OK)
        return TAP_EXIT_FAILED;
    if (settings->json) {
        /* NaN has no form in JSON. */
        char correlation[32] = "null";
        if (isfinite(check->correlation))
            snprintf(correlation, sizeof correlation, "%.9f", check->correlation);
        printf("{\"model\":\"hamer\",\"precision\":\"%s\",\"isa\":\"%s\",\"crops\":%zu,"
               "\"correlation\":%s,\"max_error\":%.9g,\"mean_error\":%.9g,\"gate\":%g,"
               "\"passed\":%s}\n",
               info.precision, engine.isa, check->n_crops, correlation, check->max_error,
               check->mean_error, gate, passed ? "true" : "false");
    } else {
        printf("network     %s, %s\n", info.precision, engine.isa);
        if (settings->reference != NULL)
            printf("reference   %s\n", settings->reference);
        else
            printf("reference   our executor, in double, %.1f s\n", check->reference_ms / 1e3);
        printf("crops       %zu\ncorrelation %.9f, the least of the crops'\nmax error   %.3g\n"
               "mean error  %.3g\ngate        %g: %s\n",
               check->n_crops, check->correlation, check->max_error, check->mean_error, gate,
               passed ? "passed" : "NOT passed");
    }
    return passed ? TAP_EXIT_OK : TAP_EXIT_FAILED;
}

static int check_network(const tap_cli_check_settings *settings, const struct crops *crops,
                         const float *reference)
{
    tap_cli_model model;
    tap_check check = {.size = sizeof check};
    tap_error err;
    tap_cli_model_settings load = settings->model;
    load.skip_gate = true; /* this is the gate */
    load.mano = "none";
    int status = tap_cli_open(&model, &tap_cli_hamer, &load);
    if (status >= 0)
        return status;
    float *values = tap_alloc(crops->n, REGRESSED * sizeof *values);
    tap_status done = values != NULL ? compare(&check, &model, crops, reference, values,
                                               settings->model.quiet, &err)
                                     : tap_fail(&err, TAP_ERR_MEMORY, "out of memory for results");
    if (done == TAP_OK && settings->save != NULL)
        done = write_npy(settings->save, values, crops->n, &err);
    if (done == TAP_OK)
        status = print(&check, settings, &model);
    free(values);
    tap_cli_close(&model);
    if (done == TAP_OK)
        return tap_cli_finish(status);
    tap_cli_complain("%s", err.message);
    return TAP_EXIT_FAILED;
}

static int check_against_reference(const tap_cli_check_settings *settings, char **paths, int n)
{
    struct crops crops = {0};
    float *reference = NULL;
    tap_error err;
    tap_status status = gather(&crops, paths, n, &err);
    if (status == TAP_OK && settings->reference != NULL)
        status = read_reference(&reference, crops.n, settings->reference, &err);
    int ended = TAP_EXIT_FAILED;
    if (status == TAP_OK)
        ended = check_network(settings, &crops, reference);
    else
        tap_cli_complain("%s", err.message);
    free(reference);
    free(crops.values);
    return ended;
}

static int run_parsed(const tap_verb *verb, const tap_cli_check_settings *settings, char **operands,
                      int n)
{
    const tap_cli_kind *kind;
    if (n == 0)
        return tap_cli_usage(verb, "needs a model, as in 'tapetum check hamer'");
    int status = tap_cli_need_kind(verb, operands[0], &kind);
    if (status >= 0)
        return status;
    if (kind != &tap_cli_hamer)
        return tap_cli_usage(verb, "%s: every load checks it; there is more to check of: hamer",
                             kind->name);
    if (settings->server == NULL && settings->boxes.n > 0)
        return tap_cli_usage(verb, "--bbox: is of --server's picture; crops have none");
    if (settings->server != NULL && n != 2)
        return tap_cli_usage(verb, "--server: needs one picture to ask about, %d given", n - 1);
    if (settings->server != NULL && (settings->reference != NULL || settings->save != NULL))
        return tap_cli_usage(verb, "--server: is not compared with a reference");
    if (settings->server != NULL)
        return tap_cli_check_server(verb, settings, operands[1]);
    if (settings->save != NULL && !ends_in(settings->save, ".npy"))
        return tap_cli_usage(verb, "%s: must end in .npy", settings->save);
    status = tap_cli_check_target(verb, settings->save, false);
    return status >= 0 ? status : check_against_reference(settings, operands + 1, n - 1);
}

static int run(const tap_verb *verb, int argc, char **argv)
{
    tap_cli_check_settings settings = {.n_requests = 300, .boxes.is_right = true};
    int operand;
    int status = tap_cli_parse(verb, argc, argv, &settings, &operand);
    if (status < 0)
        status = run_parsed(verb, &settings, argv + operand, argc - operand);
    tap_cli_boxes_free(&settings.boxes);
    return status;
}

const tap_verb tap_verb_check = {
    .name = "check",
    .operands = "hamer [CROP...]",
    .summary = "Check a network against its reference, or a running server",
    .examples =
        "  tapetum check hamer --precision int8                # on two synthetic crops\n"
        "  tapetum check hamer crops.npy --reference saved.npz # with another program's numbers\n"
        "  tapetum check hamer --server http://127.0.0.1:20000 photo.jpg --bbox 218,38,378,200\n",
    .notes =
        "CROP is a picture of 192 x 256 or 256 x 256, or .npy: crops x 3 x 256 x 192, normalised.\n"
        "Printed are the least Pearson correlation of rotmats, betas and cam over the crops, and\n"
        "the largest and mean error. Under 0.9999 the exit status is 1.\n"
        "With --server, whose URL may name the route (/predict otherwise), CROP is one picture:\n"
        "printed are the percentiles of each stage and of the round trip; an answer that differs\n"
        "from the first, or an error, makes the exit status 1.\n",
    .groups = {{options, 0},
               {tap_cli_hamer_weights, offsetof(tap_cli_check_settings, model)},
               {tap_cli_model_options, offsetof(tap_cli_check_settings, model)}},
    .take = take,
    .run = run};
