/* tapetum match: which points of two pictures are the same. */
#include "cli.h"
#include "server/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings {
    tap_cli_model_settings model;
    tap_cli_points_settings points;
    tap_match_options match;
    bool json;
    const char *draw;
};

static const tap_option options[] = {
    {"ratio", 'r', "R",
     "keep a pair if its distance is under R times that to the second\n"
     "best, 0 to 1 (0: off)",
     TAP_OPTION_F32, offsetof(struct settings, match.ratio), 0, 1, NULL},
    {"min-similarity", 'm', "S", "keep a pair of similarity S or more, -1 to 1 (-1: off)",
     TAP_OPTION_F32, offsetof(struct settings, match.min_similarity), -1, 1, NULL},
    {"json", 'j', NULL, "the answer of the server's POST /match on stdout", TAP_OPTION_ON,
     offsetof(struct settings, json), 0, 0, NULL},
    {"draw", 'd', "FILE", "both pictures side by side with lines, .png or .jpg", TAP_OPTION_TEXT,
     offsetof(struct settings, draw), 0, 0, NULL},
    {.name = NULL}};

/* The two pictures, what was found in each, and the pairs. */
struct pair {
    const char *names[2];
    tap_bytes bytes[2];
    tap_keypoints *points[2];
    tap_keypoints_view views[2];
    tap_match_pair *matches;
    size_t n_matches;
    double match_ms;
};

static tap_status find_points(struct pair *pair, int i, const tap_cli_model *model,
                              const tap_superpoint_options *asked, tap_error *err)
{
    tap_error inner;
    TAP_TRY(tap_bytes_read(&pair->bytes[i], pair->names[i], TAP_PICTURE_BYTES, err));
    TAP_TRY(tap_keypoints_create(&pair->points[i], err));
    tap_status status = tap_superpoint_encoded(model->session, pair->bytes[i].data,
                                               pair->bytes[i].size, asked, pair->points[i], &inner);
    if (status != TAP_OK)
        return tap_fail(err, status, "%s: %s",
                        strcmp(pair->names[i], "-") == 0 ? "standard input" : pair->names[i],
                        inner.message);
    pair->views[i].size = sizeof pair->views[i];
    return tap_keypoints_get(pair->points[i], &pair->views[i]);
}

static tap_status find_matches(struct pair *pair, const tap_cli_model *model,
                               const tap_match_options *asked, tap_error *err)
{
    const tap_keypoints_view *a = &pair->views[0], *b = &pair->views[1];
    size_t room = a->count < b->count ? a->count : b->count;
    pair->matches = tap_alloc(room, sizeof *pair->matches);
    if (pair->matches == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "out of memory for %zu matches", room);
    double start = tap_clock_ms();
    tap_status status = tap_match(model->engine, a->descriptors, a->count, b->descriptors, b->count,
                                  a->descriptor_dim, asked, pair->matches, &pair->n_matches, err);
    pair->match_ms = tap_clock_ms() - start;
    return status;
}

static tap_status draw(const struct pair *pair, const tap_superpoint_options *asked,
                       const char *path, tap_error *err)
{
    tap_picture *pictures[2] = {NULL, NULL}, *both = NULL;
    tap_decode_options decode;
    tap_decode_options_init(&decode);
    decode.exif = asked->exif;
    decode.max_pixels = asked->max_pixels;
    tap_status status = TAP_OK;
    for (int i = 0; i < 2 && status == TAP_OK; i++)
        status = tap_picture_decode(&pictures[i], pair->bytes[i].data, pair->bytes[i].size, &decode,
                                    err);
    if (status == TAP_OK)
        status = tap_draw_matches(&both, pictures[0], &pair->views[0], pictures[1], &pair->views[1],
                                  pair->matches, pair->n_matches, err);
    if (status == TAP_OK)
        status = tap_picture_write(both, path, err);
    tap_picture_free(both);
    tap_picture_free(pictures[0]);
    tap_picture_free(pictures[1]);
    return status;
}

static tap_status print(const struct pair *pair, const struct settings *settings,
                        const tap_cli_model *model, tap_error *err)
{
    const tap_keypoints_view *a = &pair->views[0], *b = &pair->views[1];
    if (settings->json) {
        char *text;
        size_t n;
        TAP_TRY(tap_answer_pairs(&text, &n, (const tap_keypoints *const *)pair->points,
                                 &settings->points.options, &settings->match, pair->matches,
                                 pair->n_matches, pair->match_ms, model->engine, err));
        text[n] = '\n'; /* in place of its NUL */
        fwrite(text, 1, n + 1, stdout);
        free(text);
        return TAP_OK;
    }
    printf("%s: %zu points\n%s: %zu points\n%zu matches", pair->names[0], a->count, pair->names[1],
           b->count, pair->n_matches);
    double sum = 0;
    for (size_t i = 0; i < pair->n_matches; i++)
        sum += (double)pair->matches[i].similarity;
    if (pair->n_matches > 0)
        printf(", mean similarity %.3f", sum / (double)pair->n_matches);
    printf("; %.1f ms: points %.1f, matching %.1f\n", a->total_ms + b->total_ms + pair->match_ms,
           a->total_ms + b->total_ms, pair->match_ms);
    return TAP_OK;
}

static int run_pair(struct pair *pair, const struct settings *settings, const tap_cli_model *model)
{
    tap_error err = {.message = "the result cannot be read"};
    tap_status status = find_points(pair, 0, model, &settings->points.options, &err);
    if (status == TAP_OK)
        status = find_points(pair, 1, model, &settings->points.options, &err);
    if (status == TAP_OK)
        status = find_matches(pair, model, &settings->match, &err);
    if (status == TAP_OK && settings->draw != NULL)
        status = draw(pair, &settings->points.options, settings->draw, &err);
    if (status == TAP_OK)
        status = print(pair, settings, model, &err);
    free(pair->matches);
    for (int i = 0; i < 2; i++) {
        tap_keypoints_free(pair->points[i]);
        tap_bytes_release(&pair->bytes[i]);
    }
    if (status == TAP_OK)
        return tap_cli_finish(TAP_EXIT_OK);
    tap_cli_complain("%s", err.message);
    return TAP_EXIT_FAILED;
}

static int run(const tap_verb *verb, int argc, char **argv)
{
    struct settings settings = {0};
    tap_cli_model model;
    tap_error err;
    int operand;
    tap_cli_points_init(&settings.points);
    tap_match_options_init(&settings.match);
    int status = tap_cli_parse(verb, argc, argv, &settings, &operand);
    if (status >= 0)
        return status;
    if (argc - operand != 2)
        return tap_cli_usage(verb, "needs two pictures, %d given", argc - operand);
    struct pair pair = {.names = {argv[operand], argv[operand + 1]}};
    if (strcmp(pair.names[0], "-") == 0 && strcmp(pair.names[1], "-") == 0)
        return tap_cli_usage(verb, "-: standard input can be read once only");
    if (tap_cli_points_finish(&settings.points, &err) != TAP_OK)
        return tap_cli_usage(verb, "%s", err.message);
    status = tap_cli_check_target(verb, settings.draw, false);
    if (status < 0)
        status = tap_cli_open(&model, &tap_cli_superpoint, &settings.model);
    if (status >= 0)
        return status;
    status = run_pair(&pair, &settings, &model);
    tap_cli_close(&model);
    return status;
}

const tap_verb tap_verb_match = {
    .name = "match",
    .operands = "A B",
    .summary = "Match the keypoints of two pictures",
    .examples = "  tapetum match left.jpg right.jpg                    # how many match\n"
                "  tapetum match left.jpg right.jpg --draw both.png    # see them\n"
                "  tapetum match left.jpg right.jpg --json --ratio 0.8 # the pairs, Lowe's test\n",
    .notes =
        "Pairs are mutual nearest neighbours by dot product of descriptors. One of A and B may\n"
        "be - for standard input.\n",
    .groups = {{options, 0},
               {tap_cli_superpoint_weights, offsetof(struct settings, model)},
               {tap_cli_model_options, offsetof(struct settings, model)},
               {tap_cli_points_options, offsetof(struct settings, points)}},
    .run = run};
