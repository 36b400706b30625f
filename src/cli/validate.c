/* tapetum validate: what a package's manifest says, or what is wrong with it. */
#include "cli.h"

#include "package/package.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

struct settings {
    bool json;
};

static const tap_option options[] = {{"json", 'j', NULL, "one JSON object, every profile resolved",
                                      TAP_OPTION_ON, offsetof(struct settings, json), 0, 0, NULL},
                                     {.name = NULL}};

static void complain(void *user, const char *problem)
{
    (void)user;
    tap_cli_complain("  %s", problem);
}

static struct json_object *text(const char *value)
{
    return value == NULL ? NULL : json_object_new_string(value);
}

static struct json_object *texts(const char *const *values, size_t n)
{
    struct json_object *list = json_object_new_array();
    for (size_t i = 0; i < n; i++)
        json_object_array_add(list, text(values[i]));
    return list;
}

static struct json_object *describe_weights(const tap_package_weights *weights)
{
    struct json_object *out = json_object_new_object();
    json_object_object_add(out, "repo", text(weights->repo));
    json_object_object_add(out, "revision", text(weights->revision));
    json_object_object_add(out, "allow_patterns", texts(weights->allow, weights->n_allow));
    json_object_object_add(out, "ignore_patterns", texts(weights->ignore, weights->n_ignore));
    return out;
}

static struct json_object *describe_profile(const tap_profile *profile)
{
    struct json_object *out = json_object_new_object(), *env = json_object_new_object();
    json_object_object_add(out, "name", text(profile->name));
    json_object_object_add(out, "description", text(profile->description));
    json_object_object_add(out, "hardware", text(profile->hardware));
    json_object_object_add(out, "chips", json_object_new_int64(profile->n_chips));
    json_object_object_add(out, "mesh_device", text(profile->mesh_device));
    struct json_object *mesh = json_object_new_array();
    json_object_array_add(mesh, json_object_new_int64(profile->rows));
    json_object_array_add(mesh, json_object_new_int64(profile->columns));
    json_object_object_add(out, "mesh", mesh);
    json_object_object_add(out, "port",
                           profile->port < 0 ? NULL : json_object_new_int64(profile->port));
    json_object_object_add(out, "args", texts(profile->args, profile->n_args));
    for (size_t i = 0; i < profile->n_env; i++)
        json_object_object_add(env, profile->env[i][0], text(profile->env[i][1]));
    json_object_object_add(out, "env", env);
    return out;
}

static tap_status print_json(const tap_manifest *manifest, tap_error *err)
{
    tap_manifest_view view = tap_manifest_get(manifest);
    struct json_object *out = json_object_new_object();
    struct json_object *weights = json_object_new_array(), *profiles = json_object_new_array();
    tap_status status = TAP_OK;
    json_object_object_add(out, "valid", json_object_new_boolean(true));
    json_object_object_add(out, "published", json_object_new_boolean(view.published));
    json_object_object_add(out, "schema", text("5.1"));
    json_object_object_add(out, "name", text(view.name));
    json_object_object_add(out, "repo", text(view.repo));
    json_object_object_add(out, "arch", text(view.arch));
    json_object_object_add(out, "kind", text(view.kind));
    json_object_object_add(out, "app", text(view.app));
    json_object_object_add(out, "mesh_shape_env", text(view.mesh_shape_env));
    for (size_t i = 0; i < view.n_weights; i++)
        json_object_array_add(weights, describe_weights(&view.weights[i]));
    json_object_object_add(out, "weights", weights);
    json_object_object_add(out, "default_profile", text(view.default_profile));
    for (size_t i = 0; i < view.n_profiles && status == TAP_OK; i++) {
        tap_profile profile;
        status =
            tap_manifest_profile(&profile, manifest, tap_manifest_profile_name(manifest, i), err);
        if (status != TAP_OK)
            break;
        json_object_array_add(profiles, describe_profile(&profile));
        tap_profile_free(&profile);
    }
    json_object_object_add(out, "profiles", profiles);
    if (status == TAP_OK)
        puts(json_object_to_json_string_ext(out, JSON_C_TO_STRING_PLAIN |
                                                     JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(out);
    return status;
}

static tap_status print_text(const tap_manifest *manifest, tap_error *err)
{
    tap_manifest_view view = tap_manifest_get(manifest);
    printf("%s: valid, schema 5.1, %s\n", view.name,
           view.published ? "as published" : "as its author writes it");
    if (view.repo != NULL)
        printf("repo      %s\n", view.repo);
    printf("kind      %s%s%s, for %s\n", view.kind, view.app != NULL ? ", " : "",
           view.app != NULL ? view.app : "", view.arch);
    for (size_t i = 0; i < view.n_weights; i++)
        printf("weights   %s%s%s\n", view.weights[i].repo,
               view.weights[i].revision != NULL ? "@" : "",
               view.weights[i].revision != NULL ? view.weights[i].revision : "");
    for (size_t i = 0; i < view.n_profiles; i++) {
        tap_profile profile;
        TAP_TRY(
            tap_manifest_profile(&profile, manifest, tap_manifest_profile_name(manifest, i), err));
        bool chosen =
            view.default_profile != NULL && strcmp(profile.name, view.default_profile) == 0;
        printf("profile   %s%s: %s, mesh %s (%ux%u), %zu variables\n", profile.name,
               chosen ? " (default)" : "", profile.hardware != NULL ? profile.hardware : "no board",
               profile.mesh_device != NULL ? profile.mesh_device : "-", profile.rows,
               profile.columns, profile.n_env);
        tap_profile_free(&profile);
    }
    return TAP_OK;
}

static int run(const tap_verb *verb, int argc, char **argv)
{
    struct settings settings = {0};
    tap_manifest *manifest;
    tap_error err;
    int operand;
    int status = tap_cli_parse(verb, argc, argv, &settings, &operand);
    if (status >= 0)
        return status;
    if (argc - operand != 1)
        return tap_cli_usage(verb, "needs one manifest");
    tap_status loaded = tap_manifest_load(&manifest, argv[operand], complain, NULL, &err);
    if (loaded == TAP_OK)
        loaded = settings.json ? print_json(manifest, &err) : print_text(manifest, &err);
    tap_manifest_free(manifest);
    if (loaded != TAP_OK) {
        tap_cli_complain("%s", err.message);
        return TAP_EXIT_FAILED;
    }
    return tap_cli_finish(TAP_EXIT_OK);
}

const tap_verb tap_verb_validate = {
    .name = "validate",
    .operands = "FILE",
    .summary = "Check a package's manifest: tt-model.yaml or tt_kernel_manifest.json",
    .examples = "  tapetum validate tt-model.yaml\n"
                "  tapetum validate hamer-p150/tt_kernel_manifest.json --json\n",
    .notes =
        "Format 5.1, by the rules of the tool that the format is from. All that is wrong with\n"
        "the file's shape is said, then the first thing that is wrong with its meaning. Files\n"
        "that it names are not looked for.\n",
    .groups = {{options, 0}},
    .run = run};
