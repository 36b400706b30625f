/* check: what a manifest must mean, in the order and with the words of the format's own tool. */
#ifndef TAP_PACKAGE_CHECK_H
#define TAP_PACKAGE_CHECK_H

#include "document.h"
#include "package.h"

/* root is an authored manifest of sound shape. Ends at the first that is wrong. */
tap_status tap_manifest_check(const tap_manifest *manifest, const tap_node *root, tap_error *err);

/* The profiles' names, "a, b, c", cut where out ends. */
void tap_manifest_list_profiles(const tap_manifest *manifest, char *out, size_t size);

#endif
