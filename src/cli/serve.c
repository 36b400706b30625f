/* tapetum serve: models over HTTP. */
#include "cli.h"
#include "server/server.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct settings {
    tap_server_options server;
    tap_cli_model_settings model; /* weights, precision, mano */
    const char *superpoint_weights, *hamer_weights;
};

#define MODEL(name) offsetof(struct settings, model.name)

#define FIELD(name) offsetof(struct settings, server.name)

static const tap_option options[] = {
    {"weights", 'w', "PATH",
     "of the one model: folder, .safetensors, .pth, .pt or .ckpt; else\n"
     "$SP_WEIGHTS_DIR or $HAMER_WEIGHTS_DIR, else what `tapetum\n"
     "fetch` brought",
     TAP_OPTION_TEXT, MODEL(weights), 0, 0, NULL},
    {"superpoint-weights", 0, "PATH", "the same of one of two models", TAP_OPTION_TEXT,
     offsetof(struct settings, superpoint_weights), 0, 0, NULL},
    {"hamer-weights", 0, "PATH", "the same of one of two models", TAP_OPTION_TEXT,
     offsetof(struct settings, hamer_weights), 0, 0, NULL},
    {"precision", 0, "HOW", "HaMeR: f32 (default), f16 (stored) or int8", TAP_OPTION_CHOICE,
     MODEL(precision), 0, 0, tap_cli_precisions},
    {"max-hands", 0, "N", "HaMeR: boxes in one request, 1 to 256 (16)", TAP_OPTION_U32,
     FIELD(max_hands), 1, TAP_HANDS_MAX, NULL},
    {"host", 0, "ADDRESS", "listen here (127.0.0.1); 0.0.0.0 or :: is every address",
     TAP_OPTION_TEXT, FIELD(host), 0, 0, NULL},
    {"port", 'p', "N", "this port and no other; 0: any free one (20000, or the next\nfree one)",
     TAP_OPTION_I32, FIELD(port), 0, 65535, NULL},
    {"threads", 't', "N", "1 to 256; 0, the default: one for each CPU allowed", TAP_OPTION_U32,
     FIELD(n_threads), 0, 256, NULL},
    {"isa", 0, "NAME",
     "scalar, avx2, avx512, avx512vnni, amx or neon; else\n$TAPETUM_CPU, else the best",
     TAP_OPTION_TEXT, FIELD(isa), 0, 0, NULL},
    {"token", 0, "TEXT", "want `Authorization: Bearer TEXT`; better in $TAPETUM_TOKEN",
     TAP_OPTION_TEXT, FIELD(token), 0, 0, NULL},
    {"cors", 0, "ORIGINS", "let pages of these origins call, commas between; or *", TAP_OPTION_TEXT,
     FIELD(cors), 0, 0, NULL},
    {"http-threads", 0, "N", "threads that receive and parse, 1 to 64 (2)", TAP_OPTION_U32,
     FIELD(n_http_threads), 1, 64, NULL},
    {"max-connections", 0, "N", "open at once (256)", TAP_OPTION_U32, FIELD(max_connections), 1,
     65535, NULL},
    {"max-connections-ip", 0, "N", "open at once from one address (0: no limit)", TAP_OPTION_U32,
     FIELD(max_connections_ip), 0, 65535, NULL},
    {"queue", 0, "N", "requests that may wait (64); one more gets 503", TAP_OPTION_U32,
     FIELD(queue_length), 1, 65535, NULL},
    {"max-body", 0, "MIB", "one request's body (32)", TAP_OPTION_MIB, FIELD(max_body_bytes), 1,
     4096, NULL},
    {"max-bodies", 0, "MIB", "all bodies in memory together (256)", TAP_OPTION_MIB,
     FIELD(max_bodies_bytes), 1, 1048576, NULL},
    {"max-answer", 0, "MIB", "one answer (32); bounds max_keypoints = -1", TAP_OPTION_MIB,
     FIELD(max_answer_bytes), 1, 4096, NULL},
    {"max-pixels", 0, "N", "a picture's (64000000)", TAP_OPTION_U64, FIELD(max_pixels), 1,
     4294967295.0, NULL},
    {"max-input-pixels", 0, "N", "SuperPoint's input (2100000)", TAP_OPTION_U64,
     FIELD(max_input_pixels), 64, 67108864, NULL},
    {"header-timeout", 0, "S", "from connect to the headers' end (30)", TAP_OPTION_SECONDS,
     FIELD(header_timeout_ms), 0.1, 86400, NULL},
    {"body-timeout", 0, "S", "from the headers to the body's end (120)", TAP_OPTION_SECONDS,
     FIELD(body_timeout_ms), 0.1, 86400, NULL},
    {"answer-timeout", 0, "S", "for the client to take the answer (120)", TAP_OPTION_SECONDS,
     FIELD(answer_timeout_ms), 0.1, 86400, NULL},
    {"idle-timeout", 0, "S", "without one byte (30)", TAP_OPTION_SECONDS, FIELD(idle_timeout_ms),
     0.1, 86400, NULL},
    {"drain-timeout", 0, "S", "for running requests after SIGTERM (4.5)", TAP_OPTION_SECONDS,
     FIELD(drain_timeout_ms), 0, 86400, NULL},
    {"log-json", 0, NULL, "log lines are JSON objects", TAP_OPTION_ON, FIELD(log_json), 0, 0, NULL},
    {"quiet", 'q', NULL, "no log line for each request", TAP_OPTION_ON, FIELD(quiet), 0, 0, NULL},
    {.name = NULL}};

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* "1x1", "(1, 1)", "1,1": the one mesh there is. */
static bool is_single_mesh(const char *text)
{
    char plain[8];
    size_t n = 0;
    for (; *text != '\0' && n + 1 < sizeof plain; text++)
        if (!isspace((unsigned char)*text) && strchr("()[]", *text) == NULL)
            plain[n++] = *text == ',' ? 'x' : *text;
    plain[n] = '\0';
    return *text == '\0' && strcmp(plain, "1x1") == 0;
}

/* The variables of the accelerator's server, read once. Those that steer its hardware only
 * ($TT_FUSED, $TT_FUSED_STAGES, $SP_TRACE_REGION, $MESH_DEVICE, $TT_METAL_VISIBLE_DEVICES) change
 * nothing on a CPU, so that one set of variables fits both. */
static int read_environment(const tap_verb *verb, tap_server_options *server)
{
    const char *mesh = environment("TT_MESH_SHAPE"), *device = environment("TT_DEVICE_ID");
    if (mesh != NULL && !is_single_mesh(mesh))
        return tap_cli_usage(verb, "$TT_MESH_SHAPE: '%s' is not 1x1; this server has one device",
                             mesh);
    if (device != NULL) {
        if (strspn(device, "0123456789") != strlen(device) || strlen(device) > 4)
            return tap_cli_usage(verb, "$TT_DEVICE_ID: '%s' is no whole number from 0 to 9999",
                                 device);
        server->device_id = (uint32_t)strtoul(device, NULL, 10);
    }
    if (server->token == NULL)
        server->token = environment("TAPETUM_TOKEN");
    return -1;
}

/* ---- the models ------------------------------------------------------------------------------ */

/* Options of models that are not served, or that don't say whose they are. */
static int check_options(const tap_verb *verb, const struct settings *settings)
{
    const tap_server_options *server = &settings->server;
    bool superpoint = false, hamer = false;
    for (size_t i = 0; i < server->n_models; i++)
        *(server->models[i].kind == TAP_SERVER_HAMER ? &hamer : &superpoint) = true;
    if (server->n_models > 1 && settings->model.weights != NULL)
        return tap_cli_usage(verb,
                             "--weights: whose? Give --superpoint-weights and --hamer-weights");
    if (!superpoint && settings->superpoint_weights != NULL)
        return tap_cli_usage(verb, "--superpoint-weights: SuperPoint is not to be served");
    if (!hamer && settings->hamer_weights != NULL)
        return tap_cli_usage(verb, "--hamer-weights: HaMeR is not to be served");
    if (!hamer && (settings->model.precision != 0 || settings->model.mano != NULL))
        return tap_cli_usage(verb, "--precision and --mano are HaMeR's, which is not to be served");
    return -1;
}

static int name_models(const tap_verb *verb, struct settings *settings, char **names, int n)
{
    tap_server_options *server = &settings->server;
    if (n < 1 || n > TAP_SERVER_MODELS)
        return tap_cli_usage(verb, "needs a model or two, as in 'tapetum serve superpoint' or "
                                   "'tapetum serve hamer superpoint'");
    for (int i = 0; i < n; i++) {
        const tap_cli_kind *kind;
        int status = tap_cli_need_kind(verb, names[i], &kind);
        if (status >= 0)
            return status;
        server->models[i].kind = kind == &tap_cli_hamer ? TAP_SERVER_HAMER : TAP_SERVER_SUPERPOINT;
        if (i > 0 && server->models[0].kind == server->models[i].kind)
            return tap_cli_usage(verb, "%s: is named twice", names[i]);
    }
    server->n_models = (size_t)n;
    return check_options(verb, settings);
}

/* The model's weights, in *path, which is the caller's to free, and where they are from. */
static tap_status find_model(const struct settings *settings, tap_server_model *model, char **path,
                             tap_error *err)
{
    bool hamer = model->kind == TAP_SERVER_HAMER;
    const tap_cli_kind *kind = hamer ? &tap_cli_hamer : &tap_cli_superpoint;
    const char *given = hamer ? settings->hamer_weights : settings->superpoint_weights;
    if (given == NULL)
        given = settings->model.weights;
    tap_hub_repo repo = tap_cli_repo(kind);
    TAP_TRY(tap_cli_find_weights(path, kind, given, err));
    model->weights = *path;
    model->repo = repo.id;
    /* A file that the user named is of no known revision. */
    bool named = given != NULL || environment(kind->variable) != NULL;
    model->revision = named ? NULL : repo.revision;
    if (hamer) {
        const char *mano = settings->model.mano;
        model->precision = tap_cli_precisions[settings->model.precision];
        model->mano = mano != NULL && strcmp(mano, "none") == 0 ? "" : mano;
    }
    return TAP_OK;
}

/* ---- the verb -------------------------------------------------------------------------------- */

/* Whatever it returns, paths are the caller's to free. */
static int find_and_serve(struct settings *settings, char *paths[TAP_SERVER_MODELS])
{
    tap_server_options *server = &settings->server;
    tap_error err;
    for (size_t i = 0; i < server->n_models; i++)
        if (find_model(settings, &server->models[i], &paths[i], &err) != TAP_OK) {
            tap_cli_complain("%s", err.message);
            return TAP_EXIT_WEIGHTS;
        }
    tap_status ended = tap_server_run(server, &err);
    if (ended == TAP_OK)
        return TAP_EXIT_OK;
    tap_cli_complain("serve: %s", err.message);
    if (ended == TAP_ERR_CANCELLED)
        _exit(TAP_EXIT_SERVER); /* threads still run, and use what was lent to them */
    bool files = ended == TAP_ERR_FORMAT || ended == TAP_ERR_NOT_FOUND || ended == TAP_ERR_LIMIT ||
                 ended == TAP_ERR_UNSUPPORTED;
    return ended == TAP_ERR_ARGUMENT ? TAP_EXIT_USAGE : files ? TAP_EXIT_WEIGHTS : TAP_EXIT_SERVER;
}

static int run(const tap_verb *verb, int argc, char **argv)
{
    struct settings settings = {.superpoint_weights = NULL};
    char *paths[TAP_SERVER_MODELS] = {NULL};
    int operand;
    tap_server_options_init(&settings.server);
    int status = tap_cli_parse(verb, argc, argv, &settings, &operand);
    if (status < 0)
        status = name_models(verb, &settings, argv + operand, argc - operand);
    if (status < 0)
        status = read_environment(verb, &settings.server);
    if (status < 0)
        status = find_and_serve(&settings, paths);
    for (size_t i = 0; i < TAP_SERVER_MODELS; i++)
        free(paths[i]);
    return status;
}

const tap_verb tap_verb_serve = {
    .name = "serve",
    .operands = "MODEL [MODEL]",
    .summary = "Serve one model or two over HTTP",
    .examples =
        "  tapetum serve superpoint\n"
        "  curl -s 'http://127.0.0.1:20000/predict?max_keypoints=10' \\\n"
        "      -H 'Content-Type: image/jpeg' --data-binary @photo.jpg\n"
        "  curl -s http://127.0.0.1:20000/match -F image_a=@left.jpg -F image_b=@right.jpg\n"
        "  tapetum serve hamer --mano MANO_RIGHT.pkl\n"
        "  curl -s 'http://127.0.0.1:20000/predict?bbox=218,38,378,200' \\\n"
        "      -H 'Content-Type: image/jpeg' --data-binary @photo.jpg\n"
        "  tapetum serve hamer superpoint       # /hamer/predict, /superpoint/predict\n"
        "  tapetum serve superpoint --host 0.0.0.0 --port 8080   # with $TAPETUM_TOKEN set\n",
    .notes =
        "MODEL is superpoint or hamer; of two, /predict is the first one's. Ready when the log\n"
        "says `Application startup complete`. SIGTERM or Ctrl-C: it finishes what runs and exits\n"
        "with 0. docs/server.md has every route, field and limit. From the environment:\n"
        "$SP_WEIGHTS_DIR, $HAMER_WEIGHTS_DIR, $HF_MODEL, $TT_WEIGHTS_REVISION, $TAPETUM_MANO,\n"
        "$TAPETUM_CACHE, $TT_MESH_SHAPE (1x1), $TT_DEVICE_ID, $TAPETUM_TOKEN, $TAPETUM_CPU.\n",
    .groups = {{options, 0}, {tap_cli_mano_options, offsetof(struct settings, model)}},
    .run = run};
