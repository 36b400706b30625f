/* What every cmocka program here includes first, and where the reference data lies. */
#ifndef TAP_TESTS_CHECK_H
#define TAP_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The call succeeds; its message otherwise. */
#define assert_ok(call, error)                                                       \
    do {                                                                             \
        tap_status assert_ok_status_ = (call);                                       \
        if (assert_ok_status_ != TAP_OK)                                             \
            fail_msg("%s: %s", tap_status_name(assert_ok_status_), (error).message); \
    } while (0)

/* The call fails with this status, and its message contains these words. */
#define assert_fails(call, wanted, error, words)                              \
    do {                                                                      \
        assert_int_equal((call), (wanted));                                   \
        assert_int_equal((error).status, (wanted));                           \
        if (strstr((error).message, (words)) == NULL)                         \
            fail_msg("\"%s\" does not say \"%s\"", (error).message, (words)); \
    } while (0)

/* path under the shared reference data ($TAPETUM_SHARED, else ../shared). Where the data isn't
 * there, as in a newcomer's clone, the test says so and is skipped. */
static inline const char *shared_path(char *path, size_t size, const char *name)
{
    const char *root = getenv("TAPETUM_SHARED");
    snprintf(path, size, "%s/%s", root != NULL ? root : "../shared", name);
    if (access(path, R_OK) != 0) {
        printf("SKIP: no reference data at %s (set TAPETUM_SHARED)\n", path);
        skip();
    }
    return path;
}

#endif
