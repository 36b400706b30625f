/* tapetum hamer: pictures and boxes to hands. */
#include "cli.h"
#include "server/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { SIDE_VIEW_PIXELS = 600 };
enum rotations { ROTATIONS_NETWORK, ROTATIONS_IMAGE };

struct settings {
    tap_cli_model_settings model;
    tap_hamer_options options;
    tap_cli_boxes boxes;
    const char *boxes_file;
    bool vertices, faces, json;
    enum rotations rotations;
    const char *draw, *side, *mesh;
    tap_hand_drawing style;
};

static const char *const policies[] = {"served", "demo", NULL};
static const char *const exif[] = {"ignore", "apply", NULL};
static const char *const rotations[] = {"network", "image", NULL};
static const char *const styles[] = {"best", "mesh", "skeleton", "box", NULL};

_Static_assert(TAP_HAND_DEMO == 1 && TAP_DRAW_MESH == 1 && TAP_DRAW_SKELETON == 2 &&
                   TAP_DRAW_BOX == 3,
               "choices are the enums' members in order");
_Static_assert(sizeof(tap_hand_drawing) == sizeof(unsigned) &&
                   sizeof(enum rotations) == sizeof(unsigned),
               "options.c writes an enum as unsigned");

#define FIELD(name) offsetof(struct settings, name)

static const tap_option options[] = {
    {"bbox", 'b', "BOX",
     "x1,y1,x2,y2 of a hand in pixels, or with ,left or ,right after\n"
     "it; again for each hand",
     TAP_OPTION_OWN, 0, 0, 0, NULL},
    {"left", 'l', NULL,
     "the --bbox before it holds a left hand; before the first\n"
     "--bbox, or without: all that do not say, do",
     TAP_OPTION_OWN, 0, 0, 0, NULL},
    {"right", 'r', NULL, "the same of a right hand (the default)", TAP_OPTION_OWN, 0, 0, 0, NULL},
    {"boxes", 0, "FILE", "boxes as JSON or CSV, for all pictures or by their names",
     TAP_OPTION_TEXT, FIELD(boxes_file), 0, 0, NULL},
    {"crop", 'c', NULL,
     "the picture is the network's input, 192 x 256 or 256 x 256:\n"
     "nothing is cropped, and there is no place in a frame",
     TAP_OPTION_ON, FIELD(options.ready), 0, 0, NULL},
    {"rescale", 0, "F", "the crop's side is F times the box's, 0.01 to 100 (2)", TAP_OPTION_F32,
     FIELD(options.rescale_factor), 0.01, 100, NULL},
    {"policy", 0, "HOW", "a box's side: served (default): its longer one; demo: of 3:4",
     TAP_OPTION_CHOICE, FIELD(options.policy), 0, 0, policies},
    {"camera", 0, "NUMBERS", "your own fx,fy,cx,cy in pixels; else 5000 / 256 max(W, H)",
     TAP_OPTION_OWN, 0, 0, 0, NULL},
    {"exif", 0, "HOW", "apply (default): upright first; ignore: pixels as stored",
     TAP_OPTION_CHOICE, FIELD(options.exif), 0, 0, exif},
    {"max-pixels", 0, "N", "refuse larger pictures (64000000)", TAP_OPTION_U64,
     FIELD(options.max_pixels), 1, 4294967295.0, NULL},
    {"json", 'j', NULL, "the server's answer on stdout, one object a line", TAP_OPTION_ON,
     FIELD(json), 0, 0, NULL},
    {"no-vertices", 0, NULL, "without the mesh's vertices in --json", TAP_OPTION_OFF,
     FIELD(vertices), 0, 0, NULL},
    {"faces", 0, NULL, "with the mesh's triangles in --json", TAP_OPTION_ON, FIELD(faces), 0, 0,
     NULL},
    {"rotations", 0, "WHOSE",
     "network (default); image: in --json also those of the hand in\n"
     "the picture, as matrices and as axis times angle",
     TAP_OPTION_CHOICE, FIELD(rotations), 0, 0, rotations},
    {"draw", 'd', "FILE", "the picture with its hands, .png or .jpg; of several: a folder",
     TAP_OPTION_TEXT, FIELD(draw), 0, 0, NULL},
    {"style", 0, "HOW", "best (default): mesh, without MANO box; mesh; skeleton; box",
     TAP_OPTION_CHOICE, FIELD(style), 0, 0, styles},
    {"side", 0, "FILE", "the meshes seen from their side, likewise", TAP_OPTION_TEXT, FIELD(side),
     0, 0, NULL},
    {"mesh", 'm', "FILE", "the meshes, .obj, .ply or .glb; of several: a folder", TAP_OPTION_TEXT,
     FIELD(mesh), 0, 0, NULL},
    {.name = NULL}};

/* --left and --right are of the box before them, or of all where there is none yet. */
static void take_side(struct settings *settings, bool is_right)
{
    tap_cli_boxes *boxes = &settings->boxes;
    if (boxes->n > 0)
        boxes->boxes[boxes->n - 1].box.is_right = is_right;
    else
        boxes->is_right = settings->options.is_right = is_right;
}

static tap_status take_camera(tap_hand_camera *camera, const char *text, tap_error *err)
{
    double values[4];
    if (!tap_cli_read_numbers(text, values, 4))
        return tap_fail(err, TAP_ERR_ARGUMENT, "'%s' is not fx,fy,cx,cy, four numbers", text);
    if (!(values[0] > 0) || !(values[1] > 0))
        return tap_fail(err, TAP_ERR_ARGUMENT, "'%s': fx and fy must be larger than 0", text);
    *camera = (tap_hand_camera){values[0], values[1], values[2], values[3]};
    return TAP_OK;
}

static tap_status take(void *user, const char *name, const char *value, tap_error *err)
{
    struct settings *settings = user;
    if (strcmp(name, "bbox") == 0)
        return tap_cli_boxes_add(&settings->boxes, value, err);
    if (strcmp(name, "camera") == 0)
        return take_camera(&settings->options.camera, value, err);
    take_side(settings, strcmp(name, "right") == 0);
    return TAP_OK;
}

/* One run over all inputs. */
struct work {
    const struct settings *settings;
    tap_cli_model model;
    tap_hands *hands;
    tap_hand_box *found; /* [TAP_HANDS_MAX] of one picture; NULL: there are no boxes */
    bool several;
};

/* ---- results ------------------------------------------------------------------------------- */

static tap_status draw(const struct work *work, const tap_bytes *bytes, const char *path,
                       tap_error *err)
{
    const struct settings *settings = work->settings;
    tap_picture *picture;
    tap_decode_options decode;
    tap_decode_options_init(&decode);
    decode.exif = settings->options.exif;
    decode.max_pixels = settings->options.max_pixels;
    TAP_TRY(tap_picture_decode(&picture, bytes->data, bytes->size, &decode, err));
    tap_status status = tap_draw_hands(picture, work->hands, settings->style, err);
    if (status == TAP_OK)
        status = tap_picture_write(picture, path, err);
    tap_picture_free(picture);
    return status;
}

static tap_status draw_side(const struct work *work, const char *path, tap_error *err)
{
    tap_picture *picture;
    TAP_TRY(tap_draw_hands_side(&picture, work->hands, SIDE_VIEW_PIXELS, SIDE_VIEW_PIXELS, err));
    tap_status status = tap_picture_write(picture, path, err);
    tap_picture_free(picture);
    return status;
}

static tap_status write_files(const struct work *work, const tap_bytes *bytes, const char *input,
                              size_t n_hands, tap_error *err)
{
    enum { DRAWING, SIDE, MESH, FILES };
    const struct settings *settings = work->settings;
    const char *targets[FILES] = {settings->draw, settings->side, settings->mesh};
    static const char *const suffixes[FILES] = {".png", ".side.png", ".glb"};
    for (int i = 0; i < FILES; i++) {
        char *path;
        /* A picture of a folder may have no boxes: then there is nothing but the picture. */
        if (targets[i] == NULL || (i != DRAWING && n_hands == 0))
            continue;
        TAP_TRY(tap_inputs_target(&path, targets[i], work->several, input, suffixes[i], err));
        tap_status status = i == DRAWING ? draw(work, bytes, path, err)
                            : i == SIDE  ? draw_side(work, path, err)
                                         : tap_hands_write_mesh(work->hands, path, err);
        free(path);
        TAP_TRY(status);
    }
    return TAP_OK;
}

static tap_status print_json(const struct work *work, const char *name, tap_error *err)
{
    const struct settings *settings = work->settings;
    const tap_hands_answer answer = {.return_vertices = settings->vertices,
                                     .return_faces = settings->faces,
                                     .image_rotations = settings->rotations == ROTATIONS_IMAGE};
    char *text;
    size_t n;
    TAP_TRY(tap_answer_hamer(&text, &n, name, work->hands, &answer, err));
    text[n] = '\n'; /* in place of its NUL: one write a line */
    fwrite(text, 1, n + 1, stdout);
    free(text);
    return TAP_OK;
}

/* "right hand, box 1,2,3,4, at (x, y, z) m" */
static void print_hand(const char *name, const tap_hands_view *view, const tap_hand_view *hand)
{
    printf("%s: %s hand", name, hand->is_right ? "right" : "left");
    if (view->box_given)
        printf(", box %g,%g,%g,%g", (double)hand->box.x1, (double)hand->box.y1,
               (double)hand->box.x2, (double)hand->box.y2);
    else if (hand->cam_t_full != NULL)
        printf(", no box: the middle square");
    else
        printf(", a crop");
    const float *place = hand->cam_t_full != NULL ? hand->cam_t_full : hand->cam;
    printf(", %s (%.3f, %.3f, %.3f)%s", hand->cam_t_full != NULL ? "at" : "cam", (double)place[0],
           (double)place[1], (double)place[2], hand->cam_t_full != NULL ? " m" : "");
}

/* The lines for people: one hand and its times share one. */
static void print_hands(const char *name, const tap_hands *hands, const tap_hands_view *view)
{
    for (size_t i = 0; i < view->count; i++) {
        tap_hand_view hand = {.size = sizeof hand};
        if (tap_hands_at(hands, i, &hand) != TAP_OK)
            continue;
        print_hand(name, view, &hand);
        if (view->count > 1)
            puts("");
    }
    if (view->count != 1)
        printf("%s: %zu hands in %u x %u", name, view->count, view->image_width,
               view->image_height);
    printf("; %.1f ms: decode %.1f, crop %.1f, network %.1f, mano %.1f\n", view->total_ms,
           view->decode_ms, view->preprocess_ms, view->network_ms, view->mano_ms);
}

/* ---- pictures ------------------------------------------------------------------------------ */

static tap_status find(struct work *work, const tap_bytes *bytes, const char *input, tap_error *err)
{
    tap_hamer_options asked = work->settings->options;
    if (work->found != NULL) {
        asked.boxes = work->found;
        asked.n_boxes = tap_cli_boxes_of(&work->settings->boxes, input, work->found);
    }
    return tap_hamer_encoded(work->model.session, bytes->data, bytes->size, &asked, work->hands,
                             err);
}

static tap_status write_results(const struct work *work, tap_progress *progress,
                                const tap_bytes *bytes, const char *input, tap_error *err)
{
    tap_hands_view view = {.size = sizeof view};
    TAP_TRY(tap_hands_get(work->hands, &view));
    TAP_TRY(write_files(work, bytes, input, view.count, err));
    tap_progress_clear(progress);
    if (work->settings->json)
        return print_json(work, input, err);
    print_hands(input, work->hands, &view);
    return TAP_OK;
}

/* Files first, so that a line on stdout tells of a picture that is wholly done. */
static bool run_one(void *user, tap_progress *progress, const char *input)
{
    struct work *work = user;
    tap_error err;
    tap_bytes bytes;
    tap_status status = tap_bytes_read(&bytes, input, TAP_PICTURE_BYTES, &err);
    bool named = true;
    if (status == TAP_OK) {
        status = find(work, &bytes, input, &err);
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
    if (tap_hands_create(&work->hands, &err) != TAP_OK) {
        tap_cli_complain("%s", err.message);
        return TAP_EXIT_FAILED;
    }
    int status = tap_inputs_run(inputs, work->settings->model.quiet, run_one, work);
    tap_hands_free(work->hands);
    return status;
}

/* ---- what can be said to be wrong before anything is loaded, or run ------------------------- */

static bool ends_in(const char *path, const char *const *endings)
{
    const char *dot = strrchr(path, '.');
    for (; dot != NULL && *endings != NULL; endings++)
        if (strcasecmp(dot, *endings) == 0)
            return true;
    return false;
}

static int check_targets(const tap_verb *verb, const struct settings *settings,
                         const tap_inputs *inputs)
{
    static const char *const pictures[] = {".png", ".jpg", ".jpeg", NULL};
    static const char *const meshes[] = {".obj", ".ply", ".glb", NULL};
    const char *targets[] = {settings->draw, settings->side, settings->mesh};
    for (size_t i = 0; i < 3 && !inputs->several; i++)
        if (targets[i] != NULL && !ends_in(targets[i], i < 2 ? pictures : meshes))
            return tap_cli_usage(verb, "%s: must end in %s", targets[i],
                                 i < 2 ? ".png, .jpg or .jpeg" : ".obj, .ply or .glb");
    if (!inputs->several && settings->draw != NULL && settings->side != NULL &&
        strcmp(settings->draw, settings->side) == 0)
        return tap_cli_usage(verb, "%s: is named for --draw and for --side", settings->draw);
    return tap_inputs_check_targets(inputs, verb, targets, 3);
}

static int check_boxes(const tap_verb *verb, struct settings *settings, const tap_inputs *inputs,
                       tap_hand_box *found)
{
    tap_cli_boxes *boxes = &settings->boxes;
    tap_error err;
    size_t n_used = 0;
    if (settings->boxes_file != NULL &&
        tap_cli_boxes_read(boxes, settings->boxes_file, &err) != TAP_OK)
        return tap_cli_usage(verb, "--boxes: %s", err.message);
    for (size_t i = 0; i < inputs->n; i++) {
        size_t n = tap_cli_boxes_of(boxes, inputs->paths[i], found);
        if (n > TAP_HANDS_MAX)
            return tap_cli_usage(verb, "%s: %zu boxes; a picture may have %d", inputs->paths[i], n,
                                 TAP_HANDS_MAX);
        n_used += n;
    }
    if (inputs->n > 0 && n_used == 0)
        return tap_cli_usage(verb, "--boxes: %s: %s", settings->boxes_file,
                             boxes->n == 0 ? "has no box" : "has no box of the pictures given");
    return -1;
}

static int check(const tap_verb *verb, struct settings *settings, const tap_inputs *inputs,
                 tap_hand_box *found)
{
    const tap_hand_camera *camera = &settings->options.camera;
    bool has_boxes = settings->boxes.n > 0 || settings->boxes_file != NULL;
    if (settings->options.ready && has_boxes)
        return tap_cli_usage(verb, "--crop: a crop is one hand, and has no --bbox or --boxes");
    if (settings->options.ready && camera->fx > 0)
        return tap_cli_usage(verb, "--crop: a crop has no --camera, which is the frame's");
    if (settings->boxes_file != NULL && strcmp(settings->boxes_file, "-") == 0)
        for (size_t i = 0; i < inputs->n; i++)
            if (strcmp(inputs->paths[i], "-") == 0)
                return tap_cli_usage(verb, "-: standard input can be read once only");
    int status = has_boxes ? check_boxes(verb, settings, inputs, found) : -1;
    return status >= 0 ? status : check_targets(verb, settings, inputs);
}

/* What needs MANO is refused before the network has run for nothing. */
static int check_mano(const struct settings *settings, const tap_model *model)
{
    tap_model_info info = {.size = sizeof info};
    const char *wanted =
        settings->mesh != NULL                                           ? "--mesh"
        : settings->side != NULL                                         ? "--side"
        : settings->draw != NULL && settings->style == TAP_DRAW_MESH     ? "--style mesh"
        : settings->draw != NULL && settings->style == TAP_DRAW_SKELETON ? "--style skeleton"
                                                                         : NULL;
    if (wanted == NULL || (tap_model_describe(model, &info) == TAP_OK && info.mano_available))
        return -1;
    tap_cli_complain("%s: needs MANO, and no file of it is there: give --mano MANO_RIGHT.pkl, or "
                     "see docs/hamer.md",
                     wanted);
    return TAP_EXIT_WEIGHTS;
}

static int run(const tap_verb *verb, int argc, char **argv)
{
    struct settings settings = {.vertices = true, .boxes.is_right = true};
    struct work work = {.settings = &settings};
    tap_inputs inputs = {0};
    int operand;
    tap_hamer_options_init(&settings.options);
    int status = tap_cli_parse(verb, argc, argv, &settings, &operand);
    if (status < 0)
        status = tap_inputs_gather(&inputs, verb, argc, argv, operand);
    work.several = inputs.several;
    tap_hand_box *found = tap_alloc(TAP_HANDS_MAX, sizeof *found);
    if (status < 0 && found == NULL) {
        tap_cli_complain("out of memory for boxes");
        status = TAP_EXIT_FAILED;
    }
    if (status < 0)
        status = check(verb, &settings, &inputs, found);
    if (status < 0 && inputs.n == 0)
        status = TAP_EXIT_FAILED;
    if (settings.boxes.n > 0)
        work.found = found;
    if (status < 0)
        status = tap_cli_open(&work.model, &tap_cli_hamer, &settings.model);
    if (status < 0) {
        status = check_mano(&settings, work.model.model);
        if (status < 0)
            status = run_all(&work, &inputs);
        tap_cli_close(&work.model);
    }
    free(found);
    tap_cli_boxes_free(&settings.boxes);
    tap_inputs_free(&inputs);
    return status;
}

const tap_verb tap_verb_hamer = {
    .name = "hamer",
    .operands = "IMAGE...",
    .summary = "Find the pose and shape of hands in pictures",
    .examples =
        "  tapetum hamer photo.jpg --bbox 218,38,378,200             # where is it, how fast\n"
        "  tapetum hamer photo.jpg --bbox 318,240,540,452 --left --draw hand.png\n"
        "  tapetum hamer photo.jpg -b 218,38,378,200 -b 318,240,540,452,left --mesh hands.glb\n"
        "  tapetum hamer photos/ --boxes boxes.json --json > hands.jsonl\n"
        "  tapetum hamer crop.png --crop --mano none --json          # the network alone\n",
    .notes =
        "IMAGE is a JPEG, PNG or WebP file, a folder of them, or - for standard input. HaMeR\n"
        "does not look for hands: a box says where one is. Without one, the square in the\n"
        "middle is taken for a hand, and its place is not to be trusted. With MANO_RIGHT.pkl,\n"
        "yours to get, there are a mesh and joints. A picture that fails is complained about,\n"
        "the others are done, and the exit status is 1. docs/hamer.md has every convention.\n",
    .groups = {{options, 0},
               {tap_cli_hamer_weights, offsetof(struct settings, model)},
               {tap_cli_mano_options, offsetof(struct settings, model)},
               {tap_cli_model_options, offsetof(struct settings, model)}},
    .take = take,
    .run = run};
