/* manifest: what a package's manifest means: the author's YAML and the published JSON as one view.
 */
#include "check.h"
#include "document.h"
#include "package.h"
#include "shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WEIGHTS = 64, MAX_PROFILES = 256 };

struct tap_manifest {
    tap_document *document;
    const tap_node *root, *serve, *profiles; /* serve, profiles: NULL if there is none */
    tap_manifest_view view;
    tap_package_weights weights[MAX_WEIGHTS];
    const char *path;
};

/* ---- weights ------------------------------------------------------------------------------- */

/* A list of texts as an array of the document's. */
static tap_status take_texts(tap_manifest *manifest, const tap_node *list,
                             const char *const **texts, size_t *n, tap_error *err)
{
    *texts = NULL;
    *n = 0;
    if (list == NULL || list->kind != TAP_NODE_LIST)
        return TAP_OK;
    const char **out = tap_document_take(manifest->document, list->n * sizeof *out);
    if (out == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", manifest->path);
    for (const tap_node *entry = list->first; entry != NULL; entry = entry->next)
        out[(*n)++] = entry->text;
    *texts = out;
    return TAP_OK;
}

static tap_status take_weights(tap_manifest *manifest, const tap_node *node, tap_error *err)
{
    if (node == NULL || node->kind == TAP_NODE_NULL)
        return TAP_OK;
    if (manifest->view.n_weights == MAX_WEIGHTS)
        return tap_fail(err, TAP_ERR_LIMIT, "%s: over %d weight repositories", manifest->path,
                        MAX_WEIGHTS);
    tap_package_weights *to = &manifest->weights[manifest->view.n_weights];
    *to = (tap_package_weights){.repo = tap_node_text(node)};
    if (to->repo == NULL && (to->repo = tap_node_text_at(node, "repo_id")) == NULL)
        to->repo = tap_node_text_at(node, "repo");
    if (to->repo == NULL)
        return TAP_OK; /* published: weights without a repository are none */
    to->revision = tap_node_text_at(node, "revision");
    TAP_TRY(
        take_texts(manifest, tap_node_get(node, "allow_patterns"), &to->allow, &to->n_allow, err));
    TAP_TRY(take_texts(manifest, tap_node_get(node, "ignore_patterns"), &to->ignore, &to->n_ignore,
                       err));
    manifest->view.n_weights++;
    return TAP_OK;
}

static tap_status take_all_weights(tap_manifest *manifest, tap_error *err)
{
    const tap_node *more = tap_node_get(manifest->root, "auxiliary_weights");
    TAP_TRY(take_weights(manifest, tap_node_get(manifest->root, "weights"), err));
    for (const tap_node *node = more == NULL ? NULL : more->first; node != NULL; node = node->next)
        TAP_TRY(take_weights(manifest, node, err));
    manifest->view.weights = manifest->weights;
    return TAP_OK;
}

/* ---- profiles ------------------------------------------------------------------------------ */

static const tap_node *find_profile(const tap_manifest *manifest, const char *name)
{
    const tap_node *profile = manifest->profiles == NULL ? NULL : manifest->profiles->first;
    while (profile != NULL && strcmp(tap_node_text_at(profile, "name"), name) != 0)
        profile = profile->next;
    return profile;
}

void tap_manifest_list_profiles(const tap_manifest *manifest, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < manifest->view.n_profiles && used < size - 1; i++) {
        int n = snprintf(out + used, size - used, "%s%s", i > 0 ? ", " : "",
                         tap_manifest_profile_name(manifest, i));
        used += n < 0 ? 0 : (size_t)n;
    }
}

const char *tap_manifest_profile_name(const tap_manifest *manifest, size_t i)
{
    if (manifest->profiles == NULL || manifest->profiles->n == 0)
        return "default";
    const tap_node *profile = manifest->profiles->first;
    while (i-- > 0)
        profile = profile->next;
    return tap_node_text_at(profile, "name");
}

static bool says_nothing(const tap_node *node)
{
    bool holds = node->kind == TAP_NODE_LIST || node->kind == TAP_NODE_MAP;
    return node->kind == TAP_NODE_NULL || (holds && node->n == 0);
}

/* base with what over says: mappings entry by entry, all else replaced; what says nothing erases
 * nothing. Nodes are copied, their values shared. Either may be NULL. */
static tap_node *merge(tap_document *document, const tap_node *base, const tap_node *over)
{
    tap_node *out = tap_document_node(document, TAP_NODE_MAP);
    const tap_node *maps[] = {base, over};
    for (size_t i = 0; out != NULL && i < 2; i++) {
        const tap_node *entry = maps[i] == NULL ? NULL : maps[i]->first;
        for (; entry != NULL; entry = entry->next) {
            const tap_node *earlier = tap_node_get(out, entry->key);
            tap_node *copy;
            if (says_nothing(entry) && (earlier != NULL || entry->kind == TAP_NODE_NULL))
                continue;
            if (entry->kind == TAP_NODE_MAP)
                copy = merge(document, earlier, entry);
            else if ((copy = tap_document_node(document, entry->kind)) != NULL)
                *copy = *entry;
            if (copy == NULL)
                return NULL;
            copy->key = entry->key;
            copy->next = NULL;
            tap_node_append(out, copy);
        }
    }
    return out;
}

static size_t count_arguments(const tap_node *list)
{
    size_t n = 0;
    for (const tap_node *entry = list == NULL ? NULL : list->first; entry; entry = entry->next)
        n += entry->kind == TAP_NODE_LIST ? entry->n : 1;
    return n;
}

static void take_arguments(const char **args, size_t *n, const tap_node *list)
{
    for (const tap_node *entry = list == NULL ? NULL : list->first; entry; entry = entry->next) {
        if (entry->kind == TAP_NODE_LIST)
            take_arguments(args, n, entry);
        else
            args[(*n)++] = entry->text;
    }
}

/* Of a merged mapping. */
static tap_status take_profile(tap_profile *profile, const char *path, const tap_node *node,
                               tap_document *document, tap_error *err)
{
    const tap_node *list = tap_node_get(node, "args"), *map = tap_node_get(node, "env");
    size_t n_args = count_arguments(list), n_env = map == NULL ? 0 : map->n;
    const char **args = tap_document_take(document, n_args * sizeof *args);
    const char *(*env)[2] = tap_document_take(document, n_env * sizeof *env);
    if (args == NULL || env == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", path);
    profile->hardware = tap_node_text_at(node, "hardware");
    profile->mesh_device = tap_node_text_at(node, "mesh_device");
    if (!tap_node_integer(tap_node_get(node, "port"), &profile->port))
        profile->port = -1;
    if (!tap_node_integer(tap_node_get(node, "max_num_seqs"), &profile->max_num_seqs))
        profile->max_num_seqs = -1;
    if (!tap_node_integer(tap_node_get(node, "block_size"), &profile->block_size))
        profile->block_size = -1;
    if (profile->hardware != NULL)
        profile->n_chips = tap_hardware_chips(profile->hardware);
    if (profile->mesh_device != NULL)
        tap_mesh_shape(profile->mesh_device, &profile->rows, &profile->columns);
    take_arguments(args, &profile->n_args, list);
    for (const tap_node *entry = map == NULL ? NULL : map->first; entry; entry = entry->next) {
        env[profile->n_env][0] = entry->key;
        env[profile->n_env++][1] = entry->text;
    }
    profile->args = args;
    profile->env = (const char *const(*)[2])env;
    return TAP_OK;
}

tap_status tap_manifest_profile(tap_profile *profile, const tap_manifest *manifest,
                                const char *name, tap_error *err)
{
    char names[256];
    *profile = (tap_profile){.port = -1};
    if (name == NULL)
        name = manifest->view.default_profile;
    const tap_node *own = find_profile(manifest, name);
    bool implied = manifest->profiles == NULL || manifest->profiles->n == 0;
    if (own == NULL && !(implied && strcmp(name, "default") == 0)) {
        tap_manifest_list_profiles(manifest, names, sizeof names);
        return tap_fail(err, TAP_ERR_ARGUMENT, "there is no serve profile %s; available: %s", name,
                        names);
    }
    tap_document *document = tap_document_create();
    tap_node *merged = document == NULL ? NULL : merge(document, manifest->serve, own);
    if (merged == NULL) {
        tap_document_free(document);
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", manifest->path);
    }
    profile->name = own != NULL ? tap_node_text_at(own, "name") : "default";
    profile->description = tap_node_text_at(own, "description");
    profile->memory = document;
    tap_status status = take_profile(profile, manifest->path, merged, document, err);
    if (status != TAP_OK)
        tap_profile_free(profile);
    return status;
}

void tap_profile_free(tap_profile *profile)
{
    tap_document_free(profile->memory);
    *profile = (tap_profile){.port = -1};
}

/* ---- loading ------------------------------------------------------------------------------- */

static tap_status take_authored(tap_manifest *manifest, tap_error *err)
{
    const tap_node *root = manifest->root;
    tap_manifest_view *view = &manifest->view;
    view->repo = tap_node_text_at(root, "repo");
    view->kind = tap_node_text_at(root, "kind");
    if (view->kind == NULL)
        view->kind = "vllm-plugin";
    const tap_node *runtime = tap_node_get(root, "runtime");
    view->app = tap_node_text_at(runtime, "app");
    view->mesh_shape_env = tap_node_text_at(runtime, "mesh_shape_env");
    view->description = tap_node_text_at(tap_node_get(root, "card"), "description");
    view->default_profile = tap_node_text_at(root, "default_profile");
    manifest->serve = tap_node_get(root, "serve");
    manifest->profiles = tap_node_get(root, "serve_profiles");
    return take_all_weights(manifest, err);
}

static tap_status take_published(tap_manifest *manifest, tap_error *err)
{
    const tap_node *root = manifest->root, *container = tap_node_get(root, "container");
    tap_manifest_view *view = &manifest->view;
    view->published = true;
    view->repo = tap_node_text_at(tap_node_get(container, "built"), "repo");
    view->kind = tap_node_text_at(container, "kind");
    if (view->kind == NULL)
        view->kind = "vllm-plugin";
    const tap_node *runtime = tap_node_get(container, "runtime");
    view->app = tap_node_text_at(runtime, "app");
    view->mesh_shape_env = tap_node_text_at(runtime, "mesh_shape_env");
    view->description = tap_node_text_at(tap_node_get(container, "card"), "description");
    view->image_tag = tap_node_text_at(tap_node_get(container, "image"), "tag");
    view->native_engine = tap_node_text_at(tap_node_get(root, "native"), "engine");
    view->default_profile = tap_node_text_at(container, "default_profile");
    manifest->serve = tap_node_get(container, "serve");
    manifest->profiles = tap_node_get(container, "serve_profiles");
    bool none = manifest->profiles == NULL || manifest->profiles->n == 0;
    if (none && view->default_profile == NULL)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s declares no serve profiles: it was published by a tool that could not "
                        "render them, or edited by hand",
                        manifest->path);
    return take_all_weights(manifest, err);
}

/* What both have, once the shape is sound. */
static tap_status take_common(tap_manifest *manifest, tap_error *err)
{
    tap_manifest_view *view = &manifest->view;
    view->name = tap_node_text_at(manifest->root, "name");
    view->arch = tap_node_text_at(manifest->root, "arch");
    TAP_TRY(view->published ? take_published(manifest, err) : take_authored(manifest, err));
    if (view->mesh_shape_env == NULL)
        view->mesh_shape_env = "FLUX2_MESH_SHAPE"; /* the format's default, for whatever reason */
    view->n_profiles = manifest->profiles == NULL ? 1 : manifest->profiles->n;
    if (view->n_profiles > MAX_PROFILES)
        return tap_fail(err, TAP_ERR_LIMIT, "%s: over %d serve profiles", manifest->path,
                        MAX_PROFILES);
    if (view->n_profiles == 0)
        view->n_profiles = 1;
    if (view->default_profile == NULL)
        view->default_profile = tap_manifest_profile_name(manifest, 0);
    return TAP_OK;
}

/* The two formats that share the published file's name, and what is none. */
static tap_status check_version(const tap_manifest *manifest, tap_error *err)
{
    const tap_node *version = tap_node_get(manifest->root, "schema_version");
    const char *text = tap_node_text(version);
    if (text != NULL && strcmp(text, "5.1") == 0)
        return TAP_OK;
    if (text != NULL && (strcmp(text, "5") == 0 || strcmp(text, "6") == 0))
        return tap_fail(err, TAP_ERR_UNSUPPORTED,
                        "%s: a package of format %s, which installs Python wheels into an "
                        "environment; this tool serves 5.1, natively: use tt-model for it",
                        manifest->path, text);
    if (version == NULL)
        return tap_fail(err, TAP_ERR_FORMAT, "%s: schema_version is required", manifest->path);
    return tap_fail(err, TAP_ERR_UNSUPPORTED,
                    "%s: unsupported bundle schema_version %.40s; this tool reads 5, 5.1, 6; "
                    "re-publish with a current tool",
                    manifest->path, version->text != NULL ? version->text : "(no string)");
}

static tap_status check_shape(tap_manifest *manifest, tap_manifest_problem problem, void *user,
                              tap_error *err)
{
    tap_shape_report report = {.problem = problem, .user = user};
    if (manifest->view.published) {
        TAP_TRY(check_version(manifest, err));
        tap_shape_check_published(manifest->root, &report);
    } else {
        tap_shape_check_authored(manifest->root, &report);
    }
    if (report.n == 1)
        return tap_fail(err, TAP_ERR_FORMAT, "%s failed validation: %s", manifest->path,
                        report.first);
    if (report.n > 1)
        return tap_fail(err, TAP_ERR_FORMAT, "%s failed validation: %s, and %zu more",
                        manifest->path, report.first, report.n - 1);
    return TAP_OK;
}

static tap_status load(tap_manifest *manifest, const tap_bytes *bytes, tap_manifest_problem problem,
                       void *user, tap_error *err)
{
    size_t blank = 0;
    while (blank < bytes->size && strchr(" \t\r\n", bytes->data[blank]) != NULL &&
           bytes->data[blank] != '\0')
        blank++;
    manifest->view.published = blank < bytes->size && bytes->data[blank] == '{';
    TAP_TRY((manifest->view.published ? tap_document_read_json : tap_document_read_yaml)(
        manifest->document, manifest->path, bytes, &manifest->root, err));
    if (manifest->root->kind != TAP_NODE_MAP)
        return tap_fail(err, TAP_ERR_FORMAT, "%s does not contain a YAML mapping", manifest->path);
    TAP_TRY(check_shape(manifest, problem, user, err));
    TAP_TRY(take_common(manifest, err));
    return manifest->view.published ? TAP_OK : tap_manifest_check(manifest, manifest->root, err);
}

tap_status tap_manifest_load(tap_manifest **out, const char *path, tap_manifest_problem problem,
                             void *user, tap_error *err)
{
    tap_bytes bytes;
    *out = NULL;
    tap_status status = tap_bytes_read(&bytes, path, TAP_DOCUMENT_BYTES, err);
    if (status == TAP_ERR_NOT_FOUND)
        return tap_fail(err, status, "manifest not found: %s", path);
    if (status != TAP_OK)
        return status;
    tap_manifest *manifest = calloc(1, sizeof *manifest);
    if (manifest == NULL || (manifest->document = tap_document_create()) == NULL ||
        (manifest->path = tap_document_text(manifest->document, path, strlen(path))) == NULL)
        status = tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", path);
    else
        status = load(manifest, &bytes, problem, user, err);
    tap_bytes_release(&bytes);
    if (status != TAP_OK) {
        tap_manifest_free(manifest);
        return status;
    }
    *out = manifest;
    return TAP_OK;
}

void tap_manifest_free(tap_manifest *manifest)
{
    if (manifest == NULL)
        return;
    tap_document_free(manifest->document);
    free(manifest);
}

tap_manifest_view tap_manifest_get(const tap_manifest *manifest)
{
    return manifest->view;
}
