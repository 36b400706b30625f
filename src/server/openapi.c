/* GET /openapi.json: the part that all servers share and those of the models that are served. A
 * model's part has its own routes; the short ones are copies of them. */
#include "openapi.h"
#include "exchange.h"

#include "core/core.h"

#include <json-c/json.h>

static const struct {
    const tap_document *document;
    const char *predict;
} parts[] = {[TAP_SERVER_SUPERPOINT] = {&tap_openapi_superpoint, "/superpoint/predict"},
             [TAP_SERVER_HAMER] = {&tap_openapi_hamer, "/hamer/predict"}};

static json_object *parse(const tap_document *document)
{
    json_tokener *tokener = json_tokener_new();
    if (tokener == NULL)
        return NULL;
    json_object *root = json_tokener_parse_ex(tokener, document->text, (int)document->size);
    json_tokener_free(tokener);
    return root;
}

static bool add(json_object *to, const char *name, json_object *value)
{
    if (value != NULL && json_object_object_add(to, name, value) == 0)
        return true;
    json_object_put(value);
    return false;
}

/* Every member of from, which stays its owner too. */
static bool add_all(json_object *to, json_object *from)
{
    json_object_object_foreach(from, name, value)
    {
        if (!add(to, name, json_object_get(value)))
            return false;
    }
    return true;
}

/* The path as a copy of another, under an operation's name of its own. */
static bool add_copy(json_object *to, const char *path, json_object *from, const char *original,
                     const char *operation)
{
    json_object *copy = NULL;
    if (json_object_deep_copy(json_object_object_get(from, original), &copy, NULL) != 0)
        return false;
    json_object *post = json_object_object_get(copy, "post");
    bool named = add(post, "operationId", json_object_new_string(operation));
    return add(to, path, copy) && named;
}

static json_object *schemas_of(json_object *document)
{
    return json_object_object_get(json_object_object_get(document, "components"), "schemas");
}

static bool add_model(json_object *root, json_object *paths, tap_server_kind kind, bool first)
{
    json_object *part = parse(parts[kind].document);
    json_object *own = json_object_object_get(part, "paths");
    bool done = part != NULL &&
                (!first || add_copy(paths, "/predict", own, parts[kind].predict, "predict")) &&
                (kind != TAP_SERVER_SUPERPOINT ||
                 add_copy(paths, "/match", own, "/superpoint/match", "match")) &&
                add_all(paths, own) && add_all(schemas_of(root), schemas_of(part));
    json_object_put(part);
    return done;
}

tap_status tap_describe_openapi(const tap_service *service, tap_text *text, tap_error *err)
{
    const tap_server_options *options = service->options;
    json_object *root = parse(&tap_openapi_common), *paths = json_object_new_object();
    const char *words = NULL;
    bool done = root != NULL && paths != NULL;
    for (size_t i = 0; i < options->n_models && done; i++)
        done = add_model(root, paths, options->models[i].kind, i == 0);
    done = done && add_all(paths, json_object_object_get(root, "paths")) &&
           add(root, "paths", json_object_get(paths));
    if (done)
        words =
            json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED |
                                                     JSON_C_TO_STRING_NOSLASHESCAPE);
    if (words != NULL)
        tap_text_puts(text, words);
    json_object_put(paths);
    json_object_put(root);
    return words != NULL ? TAP_OK : tap_fail(err, TAP_ERR_MEMORY, "out of memory for a document");
}
