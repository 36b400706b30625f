#include "shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum field_type {
    TEXT,
    NAME, /* a safe file name */
    INTEGER,
    TEXTS,          /* a list of strings */
    PATHS,          /* that stay in their tree */
    ENVIRONMENT,    /* a mapping of strings to strings */
    ANY_MAP,        /* what is in it is somebody else's */
    ARGUMENTS,      /* a list of scalars, or of lists of them */
    OBJECT,         /* of->... */
    OBJECTS,        /* a list of them */
    TEXT_OR_OBJECT, /* a string stands for a mapping with only its first key */
    TEXT_OR_OBJECTS /* a list of such */
} field_type;

enum { REQUIRED = 1, NULLABLE = 2, FILLED = 4 /* at least one entry */ };

struct shape;
struct field {
    const char *name;
    field_type type;
    unsigned flags;
    const struct shape *of;
};
struct shape {
    const struct field *fields; /* ends with a NULL name */
    bool tolerant;              /* unknown keys are let pass */
};

#define SHAPE(id, lenient, ...)                                                                    \
    static const struct shape id = {.fields = (const struct field[]){__VA_ARGS__, {.name = NULL}}, \
                                    .tolerant = lenient}

SHAPE(weights_shape, false, {"repo", TEXT, REQUIRED, NULL}, {"revision", TEXT, NULLABLE, NULL},
      {"allow_patterns", TEXTS, NULLABLE, NULL}, {"ignore_patterns", TEXTS, NULLABLE, NULL});
SHAPE(git_shape, false, {"repo", TEXT, REQUIRED, NULL}, {"ref", TEXT, REQUIRED, NULL},
      {"sha", TEXT, NULLABLE, NULL});
SHAPE(extra_code_shape, false, {"root", TEXT_OR_OBJECT, REQUIRED, &git_shape},
      {"paths", PATHS, REQUIRED | FILLED, NULL});
SHAPE(source_shape, false, {"tt_metal", TEXT_OR_OBJECT, REQUIRED, &git_shape},
      {"code", PATHS, REQUIRED | FILLED, NULL}, {"extra_code", OBJECTS, 0, &extra_code_shape},
      {"ubuntu", TEXT, REQUIRED, NULL}, {"python", TEXT, REQUIRED, NULL});
SHAPE(image_shape, false, {"registry", TEXT, 0, NULL}, {"repository", TEXT, NULLABLE, NULL});
SHAPE(capabilities_shape, false, {"tool_parser", TEXT, NULLABLE, NULL},
      {"reasoning_parser", TEXT, NULLABLE, NULL});

/* serve, and a profile, which has a name besides. */
#define SERVE_FIELDS                                                                        \
    {"hardware", TEXT, NULLABLE, NULL}, {"mesh_device", TEXT, NULLABLE, NULL},              \
        {"port", INTEGER, NULLABLE, NULL}, {"max_model_len", INTEGER, NULLABLE, NULL},      \
        {"max_num_seqs", INTEGER, NULLABLE, NULL}, {"block_size", INTEGER, NULLABLE, NULL}, \
        {"server_timeout", INTEGER, NULLABLE, NULL},                                        \
        {"capabilities", OBJECT, NULLABLE, &capabilities_shape},                            \
        {"additional_config", ANY_MAP, 0, NULL}, {"args", ARGUMENTS, 0, NULL},              \
    {                                                                                       \
        "env", ENVIRONMENT, 0, NULL                                                         \
    }

SHAPE(serve_shape, false, SERVE_FIELDS);
SHAPE(profile_shape, false, {"name", TEXT, REQUIRED, NULL}, {"description", TEXT, NULLABLE, NULL},
      SERVE_FIELDS);
SHAPE(license_shape, false, {"id", TEXT, REQUIRED, NULL}, {"name", TEXT, NULLABLE, NULL},
      {"link", TEXT, NULLABLE, NULL});
SHAPE(card_shape, false, {"description", TEXT, NULLABLE, NULL},
      {"quickstart", TEXT, NULLABLE, NULL}, {"architecture", TEXT, NULLABLE, NULL},
      {"status", TEXT, NULLABLE, NULL}, {"intended_use", TEXT, NULLABLE, NULL},
      {"out_of_scope_use", TEXT, NULLABLE, NULL}, {"usage", TEXT, NULLABLE, NULL},
      {"performance", TEXT, NULLABLE, NULL}, {"limitations", TEXT, NULLABLE, NULL},
      {"risks", TEXT, NULLABLE, NULL}, {"licensing", TEXT, NULLABLE, NULL},
      {"related", TEXT, NULLABLE, NULL}, {"pipeline_tag", TEXT, NULLABLE, NULL},
      {"base_model", TEXTS, NULLABLE, NULL}, {"license", OBJECT, NULLABLE, &license_shape});
SHAPE(authored_shape, false, {"schema", TEXT, 0, NULL}, {"schema_version", TEXT, 0, NULL},
      {"repo", TEXT, REQUIRED, NULL}, {"name", NAME, REQUIRED, NULL},
      {"weights", TEXT_OR_OBJECT, REQUIRED, &weights_shape},
      {"auxiliary_weights", TEXT_OR_OBJECTS, 0, &weights_shape}, {"kind", TEXT, 0, NULL},
      {"arch", TEXT, REQUIRED, NULL}, {"source", OBJECT, REQUIRED, &source_shape},
      {"image", OBJECT, 0, &image_shape}, {"runtime", ANY_MAP, 0, NULL},
      {"serve", OBJECT, 0, &serve_shape}, {"serve_profiles", OBJECTS, 0, &profile_shape},
      {"default_profile", TEXT, NULLABLE, NULL}, {"card", OBJECT, NULLABLE, &card_shape},
      {"verify", TEXTS, 0, NULL});

SHAPE(published_weights_shape, true, {"repo_id", TEXT, NULLABLE, NULL},
      {"repo", TEXT, NULLABLE, NULL}, {"revision", TEXT, NULLABLE, NULL},
      {"allow_patterns", TEXTS, NULLABLE, NULL}, {"ignore_patterns", TEXTS, NULLABLE, NULL});
SHAPE(published_image_shape, true, {"registry", TEXT, NULLABLE, NULL},
      {"repository", TEXT, NULLABLE, NULL}, {"tag", TEXT, REQUIRED, NULL},
      {"digest", TEXT, NULLABLE, NULL});
SHAPE(container_shape, true, {"image", OBJECT, REQUIRED, &published_image_shape},
      {"kind", TEXT, NULLABLE, NULL}, {"runtime", ANY_MAP, NULLABLE, NULL},
      {"serve", OBJECT, NULLABLE, &serve_shape},
      {"serve_profiles", OBJECTS, NULLABLE, &profile_shape},
      {"default_profile", TEXT, NULLABLE, NULL}, {"built", ANY_MAP, NULLABLE, NULL},
      {"card", ANY_MAP, NULLABLE, NULL});
SHAPE(published_shape, true, {"schema_version", TEXT, REQUIRED, NULL},
      {"name", NAME, REQUIRED, NULL}, {"arch", TEXT, REQUIRED, NULL},
      {"weights", OBJECT, NULLABLE, &published_weights_shape},
      {"auxiliary_weights", OBJECTS, NULLABLE, &published_weights_shape},
      {"container", OBJECT, REQUIRED, &container_shape}, {"native", ANY_MAP, NULLABLE, NULL});

/* ---- telling ------------------------------------------------------------------------------- */

enum { PATH_BYTES = 160 };

__attribute__((format(printf, 4, 5))) static void tell(tap_shape_report *report, const char *path,
                                                       const tap_node *at, const char *format, ...)
{
    char what[160], where[32] = "", line[256];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    if (at != NULL && at->line > 0)
        snprintf(where, sizeof where, "line %u, column %u: ", at->line, at->column);
    snprintf(line, sizeof line, "%s%s%s%s", where, path, path[0] != '\0' ? ": " : "", what);
    if (report->n++ == 0)
        memcpy(report->first, line, sizeof line);
    if (report->problem != NULL)
        report->problem(report->user, line);
}

/* path.key, or path[i] where key is NULL; cut if it is too long. */
static void join(char out[PATH_BYTES], const char *path, const char *key, size_t i)
{
    if (key == NULL)
        snprintf(out, PATH_BYTES, "%.100s[%zu]", path, i);
    else
        snprintf(out, PATH_BYTES, "%.100s%s%.50s", path, path[0] != '\0' ? "." : "", key);
}

/* ---- checking ------------------------------------------------------------------------------ */

static void check_map(const tap_node *node, const char *path, const struct shape *shape,
                      tap_shape_report *report);

static bool is(const tap_node *node, const char *path, tap_node_kind kind, const char *wanted,
               tap_shape_report *report)
{
    if (node->kind == kind)
        return true;
    bool scalar = node->kind != TAP_NODE_LIST && node->kind != TAP_NODE_MAP;
    if (kind == TAP_NODE_TEXT && scalar && node->kind != TAP_NODE_NULL)
        tell(report, path, node, "must be %s, and %.40s is %s: quote it", wanted, node->text,
             tap_node_kind_name(node->kind));
    else
        tell(report, path, node, "must be %s, not %s", wanted, tap_node_kind_name(node->kind));
    return false;
}

/* "a/../b" leaves its tree, "a..b" does not. */
static bool leaves(const char *path)
{
    if (path[0] == '/')
        return true;
    for (const char *part = path; part != NULL; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return true;
    }
    return false;
}

static void check_texts(const tap_node *node, const char *path, bool paths,
                        tap_shape_report *report)
{
    char entry[PATH_BYTES];
    size_t i = 0;
    for (const tap_node *child = node->first; child != NULL; child = child->next) {
        join(entry, path, child->key, i++);
        if (is(child, entry, TAP_NODE_TEXT, "a string", report) && paths && leaves(child->text))
            tell(report, entry, child, "%.60s must be relative to %s", child->text,
                 strstr(path, "extra_code") != NULL ? "their root" : "the tt-metal tree");
    }
}

static void check_arguments(const tap_node *node, const char *path, bool nested,
                            tap_shape_report *report)
{
    char entry[PATH_BYTES];
    size_t i = 0;
    for (const tap_node *child = node->first; child != NULL; child = child->next) {
        join(entry, path, NULL, i++);
        if (child->kind == TAP_NODE_LIST && !nested)
            check_arguments(child, entry, true, report);
        else if (child->kind == TAP_NODE_LIST || child->kind == TAP_NODE_MAP ||
                 child->kind == TAP_NODE_NULL)
            tell(report, entry, child, "must be a string, a number or a boolean, not %s",
                 tap_node_kind_name(child->kind));
    }
}

static void check_object(const tap_node *node, const char *path, const struct field *field,
                         tap_shape_report *report)
{
    bool text = field->type == TEXT_OR_OBJECT || field->type == TEXT_OR_OBJECTS;
    if (text && node->kind == TAP_NODE_TEXT)
        return;
    if (is(node, path, TAP_NODE_MAP, text ? "a string or a mapping" : "a mapping", report))
        check_map(node, path, field->of, report);
}

static void check_field(const tap_node *node, const char *path, const struct field *field,
                        tap_shape_report *report)
{
    int64_t value;
    char entry[PATH_BYTES];
    size_t i = 0;
    switch (field->type) {
    case TEXT:
        is(node, path, TAP_NODE_TEXT, "a string", report);
        break;
    case NAME:
        if (is(node, path, TAP_NODE_TEXT, "a string", report) &&
            !tap_package_name_is_safe(node->text))
            tell(report, path, node, "%.60s is not a safe slug: a-z, 0-9, then . _ - too",
                 node->text);
        break;
    case INTEGER:
        if (!tap_node_integer(node, &value))
            tell(report, path, node, "must be a whole number, not %s",
                 node->text != NULL ? node->text : tap_node_kind_name(node->kind));
        break;
    case TEXTS:
    case PATHS:
    case ARGUMENTS:
        if (is(node, path, TAP_NODE_LIST, "a list", report)) {
            if ((field->flags & FILLED) && node->n == 0)
                tell(report, path, node, "must have at least one entry");
            if (field->type != ARGUMENTS)
                check_texts(node, path, field->type == PATHS, report);
            else
                check_arguments(node, path, false, report);
        }
        break;
    case ENVIRONMENT:
    case ANY_MAP:
        if (is(node, path, TAP_NODE_MAP, "a mapping", report) && field->type == ENVIRONMENT)
            check_texts(node, path, field->type == PATHS, report);
        break;
    case OBJECT:
    case TEXT_OR_OBJECT:
        check_object(node, path, field, report);
        break;
    case OBJECTS:
    case TEXT_OR_OBJECTS:
        if (!is(node, path, TAP_NODE_LIST, "a list", report))
            break;
        for (const tap_node *child = node->first; child != NULL; child = child->next) {
            join(entry, path, NULL, i++);
            check_object(child, entry, field, report);
        }
        break;
    }
}

static void check_map(const tap_node *node, const char *path, const struct shape *shape,
                      tap_shape_report *report)
{
    char entry[PATH_BYTES];
    for (const struct field *field = shape->fields; field->name != NULL; field++) {
        const tap_node *child = tap_node_get(node, field->name);
        join(entry, path, field->name, 0);
        if (child == NULL) {
            if (field->flags & REQUIRED)
                tell(report, entry, node, "is required");
        } else if (child->kind != TAP_NODE_NULL || !(field->flags & NULLABLE)) {
            check_field(child, entry, field, report);
        }
    }
    for (const tap_node *child = node->first; child != NULL && !shape->tolerant;
         child = child->next) {
        const struct field *field = shape->fields;
        while (field->name != NULL && strcmp(field->name, child->key) != 0)
            field++;
        if (field->name == NULL) {
            join(entry, path, child->key, 0);
            tell(report, entry, child, "unknown key");
        }
    }
}

void tap_shape_check_authored(const tap_node *root, tap_shape_report *report)
{
    check_map(root, "", &authored_shape, report);
}

void tap_shape_check_published(const tap_node *root, tap_shape_report *report)
{
    check_map(root, "", &published_shape, report);
}
