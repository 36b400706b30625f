#include "check.h"

#include <ctype.h>
#include <string.h>

static bool is_among(const char *word, const char *const *words)
{
    while (*words != NULL && strcmp(*words, word) != 0)
        words++;
    return *words != NULL;
}

/* ---- the root ------------------------------------------------------------------------------ */

static tap_status check_names(const tap_manifest_view *view, const tap_node *root, tap_error *err)
{
    static const char *const archs[] = {"blackhole", "wormhole_b0", NULL};
    static const char *const kinds[] = {"vllm-plugin", "vllm-fork", "tt-dit-server", "http-server",
                                        NULL};
    const char *schema = tap_node_text_at(root, "schema");
    if (schema == NULL)
        schema = tap_node_text_at(root, "schema_version");
    if (schema != NULL && strcmp(schema, "5.1") != 0)
        return tap_fail(err, TAP_ERR_UNSUPPORTED,
                        "unsupported manifest schema \"%s\": this tool authors \"5.1\"", schema);
    if (!is_among(view->arch, archs))
        return tap_fail(err, TAP_ERR_FORMAT, "arch must be one of blackhole, wormhole_b0; not %s",
                        view->arch);
    if (!is_among(view->kind, kinds))
        return tap_fail(err, TAP_ERR_FORMAT,
                        "kind must be one of vllm-plugin, vllm-fork, tt-dit-server, http-server; "
                        "not %s",
                        view->kind);
    if (strchr(view->repo, '/') == NULL)
        return tap_fail(err, TAP_ERR_FORMAT, "repo must be a namespaced HF id (org/name); it is %s",
                        view->repo);
    return TAP_OK;
}

static tap_status check_weights(const tap_manifest_view *view, tap_error *err)
{
    for (size_t i = 0; i < view->n_weights; i++)
        if (strchr(view->weights[i].repo, '/') == NULL)
            return tap_fail(err, TAP_ERR_FORMAT, "%s; this is %s",
                            i == 0 ? "weights must be a namespaced HF id (org/name)"
                                   : "auxiliary_weights must use namespaced HF ids (org/name)",
                            view->weights[i].repo);
    for (size_t i = 0; i < view->n_weights; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(view->weights[i].repo, view->weights[j].repo) == 0)
                return tap_fail(
                    err, TAP_ERR_FORMAT,
                    "duplicate weight repositories across weights/auxiliary_weights: %s",
                    view->weights[i].repo);
    return TAP_OK;
}

/* ---- profiles ------------------------------------------------------------------------------ */

static tap_status check_profiles(const tap_manifest *manifest, const tap_manifest_view *view,
                                 const tap_node *root, tap_error *err)
{
    char names[256];
    const char *named = tap_node_text_at(root, "default_profile");
    bool found = false;
    for (size_t i = 0; i < view->n_profiles; i++) {
        const char *name = tap_manifest_profile_name(manifest, i);
        found |= named != NULL && strcmp(name, named) == 0;
        for (size_t j = 0; j < i; j++)
            if (strcmp(name, tap_manifest_profile_name(manifest, j)) == 0)
                return tap_fail(err, TAP_ERR_FORMAT, "duplicate serve profile names: %s", name);
    }
    tap_manifest_list_profiles(manifest, names, sizeof names);
    if (view->n_profiles > 1 && named == NULL)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "several serve profiles must name a default_profile, one of: %s", names);
    if (named != NULL && !found)
        return tap_fail(err, TAP_ERR_FORMAT, "default_profile %s names no profile; available: %s",
                        named, names);
    return TAP_OK;
}

static tap_status check_board(const tap_profile *profile, tap_error *err)
{
    uint32_t rows, columns;
    if (!tap_mesh_shape(profile->mesh_device, &rows, &columns))
        return tap_fail(
            err, TAP_ERR_FORMAT,
            "serve profile %s: invalid mesh_device: %s; one of N150 P100 P150 N300 P300 "
            "P150x2 N150x4 P150x4 P300x2 T3K P150x8 QB2 TG BH-Galaxy, or \"(rows, "
            "columns)\"",
            profile->name, profile->mesh_device);
    if (profile->n_chips == 0)
        return tap_fail(
            err, TAP_ERR_FORMAT,
            "serve profile %s: hardware %s is not a recognised board label: p100, p150, "
            "n150, e150, p300 or n300, perhaps a letter for its revision, perhaps x and "
            "how many%s",
            profile->name, profile->hardware,
            tap_mesh_shape(profile->hardware, &rows, &columns)
                ? "; it is a mesh_device SKU, not a board label"
                : "");
    if (profile->rows * profile->columns != profile->n_chips)
        return tap_fail(
            err, TAP_ERR_FORMAT,
            "serve profile %s: mesh_device %s opens a %ux%u mesh (%u chips) but hardware "
            "%s implies %u",
            profile->name, profile->mesh_device, profile->rows, profile->columns,
            profile->rows * profile->columns, profile->hardware, profile->n_chips);
    return TAP_OK;
}

static tap_status check_profile(const tap_profile *profile, bool language_model, tap_error *err)
{
    const char *missing = profile->hardware == NULL                     ? "hardware"
                          : profile->mesh_device == NULL                ? "mesh_device"
                          : language_model && profile->max_num_seqs < 0 ? "max_num_seqs"
                          : language_model && profile->block_size < 0   ? "block_size"
                                                                        : NULL;
    if (missing != NULL)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "serve profile %s: %s is required (set it on the profile or under serve:)",
                        profile->name, missing);
    return check_board(profile, err);
}

/* ---- runtime ------------------------------------------------------------------------------- */

/* Whether a list of paths ships the package: "models/a.py" ships models. */
static bool ships(const tap_node *paths, const char *package, size_t n)
{
    for (const tap_node *path = paths == NULL ? NULL : paths->first; path; path = path->next)
        if (strncmp(path->text, package, n) == 0 && strchr("/", path->text[n]) != NULL)
            return true;
    return false;
}

static tap_status check_app(const tap_node *root, const char *app, tap_error *err)
{
    const tap_node *source = tap_node_get(root, "source");
    const tap_node *extra = tap_node_get(source, "extra_code");
    size_t n = app == NULL ? 0 : strcspn(app, ".:");
    if (app == NULL)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "kind tt-dit-server requires runtime.app "
                        "(module.path:attribute)");
    if (strchr(app, ':') == NULL || n == 0)
        return tap_fail(err, TAP_ERR_FORMAT, "runtime.app must be module.path:attribute, not %s",
                        app);
    bool found = ships(tap_node_get(source, "code"), app, n);
    for (const tap_node *one = extra == NULL ? NULL : extra->first; one; one = one->next)
        found |= ships(tap_node_get(one, "paths"), app, n);
    if (!found)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "runtime.app %s: no source.code entry ships %.*s, nor does extra_code", app,
                        (int)n, app);
    return TAP_OK;
}

static bool is_variable(const tap_node *node)
{
    const char *text = tap_node_text(node);
    if (text == NULL || text[0] == '\0' || isdigit((unsigned char)text[0]))
        return false;
    for (; *text != '\0'; text++)
        if (!isalnum((unsigned char)*text) && *text != '_')
            return false;
    return true;
}

static tap_status check_runtime(const char *kind, const tap_node *root, tap_error *err)
{
    static const struct {
        const char *kind;
        const char *keys[8];
    } allowed[] = {
        {"vllm-plugin",
         {"vllm", "plugin", "extension", "extra_models_dir", "lock", "overrides", "wheels", NULL}},
        {"vllm-fork", {"vllm", "extension", "lock", "model_dir", NULL}},
        {"tt-dit-server", {"app", "packages", "lock", "mesh_shape_env", NULL}},
        {"http-server", {"command", "ready_line", "packages", "lock", NULL}}};
    const tap_node *runtime = tap_node_get(root, "runtime");
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        if (strcmp(allowed[i].kind, kind) != 0)
            continue;
        for (const tap_node *key = runtime == NULL ? NULL : runtime->first; key; key = key->next)
            if (!is_among(key->key, allowed[i].keys))
                return tap_fail(
                    err, TAP_ERR_FORMAT,
                    "runtime key %s is not valid for kind %s: allowed are %s, %s, %s%s%s", key->key,
                    kind, allowed[i].keys[0], allowed[i].keys[1], allowed[i].keys[2],
                    allowed[i].keys[3] ? ", " : "", allowed[i].keys[3] ? allowed[i].keys[3] : "");
    }
    if (strcmp(kind, "tt-dit-server") != 0)
        return TAP_OK;
    const tap_node *variable = tap_node_get(runtime, "mesh_shape_env");
    const tap_node *packages = tap_node_get(runtime, "packages");
    TAP_TRY(check_app(root, tap_node_text_at(runtime, "app"), err));
    if (variable != NULL && !is_variable(variable))
        return tap_fail(err, TAP_ERR_FORMAT,
                        "runtime.mesh_shape_env: %.60s is not a valid environment variable name",
                        variable->text != NULL ? variable->text : "this");
    if (packages != NULL && packages->kind != TAP_NODE_LIST)
        return tap_fail(err, TAP_ERR_FORMAT, "runtime.packages must be a list of strings");
    return TAP_OK;
}

tap_status tap_manifest_check(const tap_manifest *manifest, const tap_node *root, tap_error *err)
{
    tap_manifest_view view = tap_manifest_get(manifest);
    bool language_model = strncmp(view.kind, "vllm-", 5) == 0;
    TAP_TRY(check_names(&view, root, err));
    TAP_TRY(check_weights(&view, err));
    TAP_TRY(check_profiles(manifest, &view, root, err));
    for (size_t i = 0; i < view.n_profiles; i++) {
        tap_profile profile;
        TAP_TRY(
            tap_manifest_profile(&profile, manifest, tap_manifest_profile_name(manifest, i), err));
        tap_status status = check_profile(&profile, language_model, err);
        tap_profile_free(&profile);
        if (status != TAP_OK)
            return status;
    }
    return check_runtime(view.kind, root, err);
}
