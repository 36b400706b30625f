/* jpeg_guard: libjpeg reports errors by calling a function that must not return. Here is the one
 * place that leaves it by longjmp: guard.escape is armed by setjmp in the function that calls
 * libjpeg, which keeps all it owns in a structure outside. */
#ifndef TAP_IMAGE_JPEG_GUARD_H
#define TAP_IMAGE_JPEG_GUARD_H

#include "image/image.h"

#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

#include <jerror.h> /* after jpeglib.h, whose version decides what is in it */

typedef struct tap_jpeg_guard {
    struct jpeg_error_mgr errors; /* first: libjpeg hands back a pointer to it */
    jmp_buf escape;
    tap_error *err; /* of the caller; may be NULL */
    tap_status status;
} tap_jpeg_guard;

/* Errors and damaging warnings of the codec that gets guard->errors land in guard->escape, with
 * guard->status set and *err filled. */
void tap_jpeg_guard_init(tap_jpeg_guard *guard, tap_error *err);

/* Leaves to guard->escape with a status whose message is already in guard->err. */
_Noreturn void tap_jpeg_guard_leave(j_common_ptr codec, tap_status status);

#endif
