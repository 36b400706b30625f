/* tapetum superpoint: pictures to keypoints. */
#include "cli.h"
#include "server/server.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings {
    tap_cli_model_settings model;
    tap_cli_points_settings points;
    bool descriptors, json;
    const char *npz, *draw;
};

static const tap_option options[] = {
    {"no-descriptors", 0, NULL, "points and scores only", TAP_OPTION_OFF,
     offsetof(struct settings, descriptors), 0, 0, NULL},
    {"json", 'j', NULL, "the server's answer on stdout, one object a line", TAP_OPTION_ON,
     offsetof(struct settings, json), 0, 0, NULL},
    {"npz", 0, "FILE",
     "NumPy arrays keypoints, scores, descriptors; of several\npictures: a folder", TAP_OPTION_TEXT,
     offsetof(struct settings, npz), 0, 0, NULL},
    {"draw", 'd', "FILE", "the picture with its points, .png or .jpg; of several: a folder",
     TAP_OPTION_TEXT, offsetof(struct settings, draw), 0, 0, NULL},
    {.name = NULL}};

/* One run over all inputs. */
struct work {
    const struct settings *settings;
    tap_cli_model model;
    tap_keypoints *points;
    tap_superpoint_options options;
    bool several;
};

static tap_status draw(const struct work *work, const tap_bytes *bytes, const char *path,
                       const tap_keypoints_view *view, tap_error *err)
{
    tap_picture *picture;
    tap_decode_options decode;
    tap_decode_options_init(&decode);
    decode.exif = work->options.exif;
    decode.max_pixels = work->options.max_pixels;
    TAP_TRY(tap_picture_decode(&picture, bytes->data, bytes->size, &decode, err));
    tap_status status = tap_draw_keypoints(picture, view, err);
    if (status == TAP_OK)
        status = tap_picture_write(picture, path, err);
    tap_picture_free(picture);
    return status;
}

/* The line for people. */
static void print_points(const char *name, const tap_keypoints_view *view)
{
    printf("%s: %zu points in %u x %u", name, view->count, view->original_width,
           view->original_height);
    if (view->count > 0)
        printf(", best %.3f at (%.1f, %.1f)", (double)view->scores[0], (double)view->xy[0],
               (double)view->xy[1]);
    printf("; %.1f ms: decode %.1f, resize %.1f, network %.1f, points %.1f\n", view->total_ms,
           view->decode_ms, view->preprocess_ms, view->forward_ms, view->postprocess_ms);
}

static tap_status print_json(struct work *work, const char *name, tap_error *err)
{
    char *text;
    size_t n;
    TAP_TRY(tap_answer_superpoint(&text, &n, name, work->points, &work->options, work->model.engine,
                                  err));
    text[n] = '\n'; /* in place of its NUL: one write a line */
    fwrite(text, 1, n + 1, stdout);
    free(text);
    return TAP_OK;
}

/* Files first, so that a line on stdout tells of a picture that is wholly done. */
static tap_status write_results(struct work *work, tap_progress *progress, const tap_bytes *bytes,
                                const char *input, tap_error *err)
{
    const struct settings *settings = work->settings;
    tap_keypoints_view view = {.size = sizeof view};
    char *path = NULL;
    TAP_TRY(tap_keypoints_get(work->points, &view));
    if (settings->npz != NULL) {
        unsigned fields = TAP_NPZ_KEYPOINTS | TAP_NPZ_SCORES;
        if (view.descriptor_dim > 0)
            fields |= TAP_NPZ_DESCRIPTORS;
        TAP_TRY(tap_inputs_target(&path, settings->npz, work->several, input, ".npz", err));
        tap_status status = tap_keypoints_write_npz(work->points, fields, path, err);
        free(path);
        TAP_TRY(status);
    }
    if (settings->draw != NULL) {
        TAP_TRY(tap_inputs_target(&path, settings->draw, work->several, input, ".png", err));
        tap_status status = draw(work, bytes, path, &view, err);
        free(path);
        TAP_TRY(status);
    }
    tap_progress_clear(progress);
    if (settings->json)
        return print_json(work, input, err);
    print_points(input, &view);
    return TAP_OK;
}

static bool run_one(void *user, tap_progress *progress, const char *input)
{
    struct work *work = user;
    tap_error err;
    tap_bytes bytes;
    tap_status status = tap_bytes_read(&bytes, input, TAP_PICTURE_BYTES, &err);
    bool named = true;
    if (status == TAP_OK) {
        status = tap_superpoint_encoded(work->model.session, bytes.data, bytes.size, &work->options,
                                        work->points, &err);
        named = false;
    }
    if (status == TAP_OK) {
        status = write_results(work, progress, &bytes, input, &err);
        named = status == TAP_ERR_IO || status == TAP_ERR_NOT_FOUND || status == TAP_ERR_ARGUMENT;
    }
    tap_bytes_release(&bytes);
    return status == TAP_OK || tap_inputs_complain(progress, input, named, &err);
}

static int run_all(struct work *work, const tap_inputs *inputs)
{
    tap_error err;
    if (tap_keypoints_create(&work->points, &err) != TAP_OK) {
        tap_cli_complain("%s", err.message);
        return TAP_EXIT_FAILED;
    }
    int status = tap_inputs_run(inputs, work->settings->model.quiet, run_one, work);
    tap_keypoints_free(work->points);
    return status;
}

/* What can be said to be wrong before anything is loaded. */
static int check(const tap_verb *verb, struct settings *settings, const tap_inputs *inputs)
{
    tap_error err;
    if (tap_cli_points_finish(&settings->points, &err) != TAP_OK)
        return tap_cli_usage(verb, "%s", err.message);
    const char *targets[] = {settings->npz, settings->draw};
    return tap_inputs_check_targets(inputs, verb, targets, 2);
}

static int run(const tap_verb *verb, int argc, char **argv)
{
    struct settings settings = {.descriptors = true};
    tap_inputs inputs = {0};
    int operand;
    tap_cli_points_init(&settings.points);
    int status = tap_cli_parse(verb, argc, argv, &settings, &operand);
    if (status >= 0)
        return status;
    status = tap_inputs_gather(&inputs, verb, argc, argv, operand);
    if (status < 0)
        status = check(verb, &settings, &inputs);
    if (status < 0 && inputs.n == 0)
        status = TAP_EXIT_FAILED;
    struct work work = {
        .settings = &settings, .several = inputs.several, .options = settings.points.options};
    /* Descriptors cost time; nobody sees them in a line of text. */
    work.options.descriptors = settings.descriptors && (settings.json || settings.npz != NULL);
    if (status < 0)
        status = tap_cli_open(&work.model, &tap_cli_superpoint, &settings.model);
    if (status < 0) {
        status = run_all(&work, &inputs);
        tap_cli_close(&work.model);
    }
    tap_inputs_free(&inputs);
    return status;
}

const tap_verb tap_verb_superpoint = {
    .name = "superpoint",
    .operands = "IMAGE...",
    .summary = "Find keypoints and their descriptors in pictures",
    .examples =
        "  tapetum superpoint photo.jpg                      # how many, and how fast\n"
        "  tapetum superpoint photo.jpg --draw points.png    # see them\n"
        "  tapetum superpoint photo.jpg --npz points.npz     # numpy.load(\"points.npz\")\n"
        "  tapetum superpoint photos/ --json > points.jsonl  # a folder, one object a line\n"
        "  tapetum superpoint - --size native < photo.png    # at the picture's own size\n",
    .notes =
        "IMAGE is a JPEG, PNG or WebP file, a folder of them, or - for standard input. Points\n"
        "are in the picture's own pixels, x right, y down, best first. A picture that fails\n"
        "is complained about, the others are done, and the exit status is 1.\n",
    .groups = {{options, 0},
               {tap_cli_superpoint_weights, offsetof(struct settings, model)},
               {tap_cli_model_options, offsetof(struct settings, model)},
               {tap_cli_points_options, offsetof(struct settings, points)}},
    .run = run};
