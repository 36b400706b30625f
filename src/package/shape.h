/* shape: which keys a manifest's mappings may have, and of what type: the part of checking that
 * knows no meaning. */
#ifndef TAP_PACKAGE_SHAPE_H
#define TAP_PACKAGE_SHAPE_H

#include "document.h"
#include "package.h"

typedef struct tap_shape_report {
    tap_manifest_problem problem; /* or NULL */
    void *user;
    size_t n;
    char first[256];
} tap_shape_report;

/* The author's file from its root, and what a published one has under its keys. */
void tap_shape_check_authored(const tap_node *root, tap_shape_report *report);
void tap_shape_check_published(const tap_node *root, tap_shape_report *report);

#endif
