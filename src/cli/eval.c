/* tapetum eval: errors of saved predictions, for those who have a data set. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>

struct settings {
    const char *joints, *predicted, *truth;
    bool json;
};

static const tap_option options[] = {
    {"joints", 0, "NAME",
     "the array to compare, in both files: a key, or its number in a\n"
     "JSON list (the only one, or the first)",
     TAP_OPTION_TEXT, offsetof(struct settings, joints), 0, 0, NULL},
    {"predicted", 0, "NAME", "the same, in PREDICTED only", TAP_OPTION_TEXT,
     offsetof(struct settings, predicted), 0, 0, NULL},
    {"truth", 0, "NAME", "the same, in TRUTH only", TAP_OPTION_TEXT,
     offsetof(struct settings, truth), 0, 0, NULL},
    {"json", 'j', NULL, "one JSON object", TAP_OPTION_ON, offsetof(struct settings, json), 0, 0,
     NULL},
    {.name = NULL}};

struct points {
    float *values;
    size_t n_hands, n_points;
};

/* [hands][points][3], or one hand's [points][3]. */
static tap_status read_points(struct points *points, const char *path, const char *name,
                              tap_error *err)
{
    size_t shape[8], rank;
    TAP_TRY(tap_array_read(path, name, &points->values, shape, &rank, err));
    if ((rank != 2 && rank != 3) || shape[rank - 1] != 3)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: an array of rank %zu, the last size %zu; wanted are hands x points x "
                        "3, in metres: name another with --joints",
                        path, rank, rank > 0 ? shape[rank - 1] : 0);
    points->n_hands = rank == 3 ? shape[0] : 1;
    points->n_points = shape[rank - 2];
    return TAP_OK;
}

static tap_status evaluate(tap_hand_errors *errors, size_t *n_points, const char *const files[2],
                           const char *const names[2], tap_error *err)
{
    struct points predicted = {0}, truth = {0};
    tap_status status = read_points(&predicted, files[0], names[0], err);
    if (status == TAP_OK)
        status = read_points(&truth, files[1], names[1], err);
    if (status == TAP_OK &&
        (predicted.n_hands != truth.n_hands || predicted.n_points != truth.n_points))
        status = tap_fail(err, TAP_ERR_ARGUMENT,
                          "%s has %zu hands of %zu points, %s %zu of %zu: they must be the same "
                          "hands in the same order",
                          files[0], predicted.n_hands, predicted.n_points, files[1], truth.n_hands,
                          truth.n_points);
    if (status == TAP_OK)
        status = tap_hand_evaluate(predicted.values, truth.values, truth.n_hands, truth.n_points,
                                   errors, err);
    *n_points = truth.n_points;
    tap_free(predicted.values);
    tap_free(truth.values);
    return status;
}

static int run(const tap_verb *verb, int argc, char **argv)
{
    struct settings settings = {0};
    tap_hand_errors errors = {.size = sizeof errors};
    tap_error err;
    size_t n_points;
    int operand;
    int status = tap_cli_parse(verb, argc, argv, &settings, &operand);
    if (status >= 0)
        return status;
    if (argc - operand != 2)
        return tap_cli_usage(verb, "needs two files, the predictions and the truth");
    const char *files[] = {argv[operand], argv[operand + 1]};
    const char *names[] = {settings.predicted != NULL ? settings.predicted : settings.joints,
                           settings.truth != NULL ? settings.truth : settings.joints};
    if (evaluate(&errors, &n_points, files, names, &err) != TAP_OK) {
        tap_cli_complain("%s", err.message);
        return TAP_EXIT_FAILED;
    }
    if (settings.json)
        printf("{\"hands\":%zu,\"points\":%zu,\"mpjpe_mm\":%.6f,\"pa_mpjpe_mm\":%.6f}\n",
               errors.n_hands, n_points, errors.mpjpe_mm, errors.pa_mpjpe_mm);
    else
        printf("hands      %zu of %zu points\nMPJPE      %.3f mm\nPA-MPJPE   %.3f mm\n",
               errors.n_hands, n_points, errors.mpjpe_mm, errors.pa_mpjpe_mm);
    return tap_cli_finish(TAP_EXIT_OK);
}

const tap_verb tap_verb_eval = {
    .name = "eval",
    .operands = "PREDICTED TRUTH",
    .summary = "Compare predicted joints or vertices with the truth: MPJPE, PA-MPJPE",
    .examples = "  tapetum eval pred.json evaluation_xyz.json\n"
                "  tapetum eval pred.json evaluation_verts.json --predicted 1\n"
                "  tapetum eval predicted.npz truth.npz --joints vertices\n"
                "  tapetum eval predicted.npy truth.npy --json\n",
    .notes =
        "Each file has an array of hands x points x 3, in metres: .npy, .npz, or JSON. FreiHAND's\n"
        "pred.json is a list of joints (0) and vertices (1). MPJPE is the mean distance after\n"
        "point 0 is put on point 0; PA-MPJPE after the best similarity transform.\n",
    .groups = {{options, 0}},
    .run = run};
