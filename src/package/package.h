/* package: model packages of format 5.1, as tt-model reads and writes them. So far the manifest:
 * the authored `tt-model.yaml` and the published `tt_kernel_manifest.json`. Knows neither the hub
 * nor a model. */
#ifndef TAP_PACKAGE_H
#define TAP_PACKAGE_H

#include "core/core.h"

/* One repository of weights. Strings and lists are the manifest's. */
typedef struct tap_package_weights {
    const char *repo, *revision;              /* revision: NULL for the default branch */
    const char *const *allow, *const *ignore; /* patterns; NULL: none */
    size_t n_allow, n_ignore;
} tap_package_weights;

typedef struct tap_manifest tap_manifest;

/* What a manifest says. Strings are the manifest's; NULL where it says nothing. */
typedef struct tap_manifest_view {
    bool published; /* the JSON of a package, else the author's YAML */
    const char *name, *repo, *arch, *kind;
    const char *app, *mesh_shape_env; /* of kind tt-dit-server; the second has its default */
    const char *description;          /* the card's */
    const char *image_tag;            /* published only */
    const char *native_engine;        /* published only: "native": {"engine"} */
    const tap_package_weights
        *weights; /* the first is the model's own; a published one may have 0 */
    size_t n_weights, n_profiles;
    const char *default_profile; /* its name */
} tap_manifest_view;

/* One profile with what it inherits from `serve`. Strings are the profile's. */
typedef struct tap_profile {
    const char *name, *description;
    const char *hardware, *mesh_device; /* NULL where a published one says nothing */
    uint32_t n_chips, rows, columns;    /* 0 where they say nothing */
    int64_t port;                       /* of the image itself; -1: none */
    int64_t max_num_seqs, block_size;   /* of language models; -1: none */
    const char *const *args;            /* flattened */
    const char *const (*env)[2];        /* name, value; in their order */
    size_t n_args, n_env;
    void *memory;
} tap_profile;

/* Called for each thing that is wrong with a manifest's shape, with where it stands. */
typedef void (*tap_manifest_problem)(void *user, const char *problem);

/* Reads and checks a manifest: JSON if it begins with '{', else YAML. First the shape, of which all
 * problems are told (problem may be NULL); then the meaning, which ends at the first. Paths that
 * the manifest names are not looked for. *manifest is freed with tap_manifest_free. Errors
 * TAP_ERR_NOT_FOUND, TAP_ERR_IO, TAP_ERR_LIMIT (over 1 MiB, too deep, too many values),
 *         TAP_ERR_UNSUPPORTED (another format), TAP_ERR_FORMAT (all else). */
tap_status tap_manifest_load(tap_manifest **manifest, const char *path,
                             tap_manifest_problem problem, void *user, tap_error *err);
void tap_manifest_free(tap_manifest *manifest); /* NULL is fine */
tap_manifest_view tap_manifest_get(const tap_manifest *manifest);

/* The name of profile i, below n_profiles. */
const char *tap_manifest_profile_name(const tap_manifest *manifest, size_t i);

/* A profile by name, NULL for the default one; mappings merged, nulls, empty lists and empty maps
 * erasing nothing. Freed with tap_profile_free. Errors TAP_ERR_ARGUMENT: no such profile, with the
 * names that there are. */
tap_status tap_manifest_profile(tap_profile *profile, const tap_manifest *manifest,
                                const char *name, tap_error *err);
void tap_profile_free(tap_profile *profile);

/* Chips of a board label ("p150x4": 4), 0 for none. */
uint32_t tap_hardware_chips(const char *label);
/* Rows and columns of a mesh: a SKU ("P150x4") or a pair ("(1, 4)"); false for neither. */
bool tap_mesh_shape(const char *mesh, uint32_t *rows, uint32_t *columns);
/* A name that is a safe file name: [a-z0-9][a-z0-9._-]*. */
bool tap_package_name_is_safe(const char *name);

#endif
