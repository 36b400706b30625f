/* jpeg_guard: libjpeg's errors as ours. */
#include "jpeg_guard.h"

static tap_status status_of(int message)
{
    switch (message) {
    case JERR_OUT_OF_MEMORY:
        return TAP_ERR_MEMORY;
    case JERR_NO_BACKING_STORE: /* the coefficients need more than max_memory_to_use */
    case JERR_IMAGE_TOO_BIG:
    case JERR_WIDTH_OVERFLOW:
        return TAP_ERR_LIMIT;
    case JERR_ARITH_NOTIMPL:
    case JERR_BAD_PRECISION:
    case JERR_CCIR601_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_NOTIMPL:
    case JERR_SOF_UNSUPPORTED:
        return TAP_ERR_UNSUPPORTED;
    default:
        return TAP_ERR_FORMAT;
    }
}

_Noreturn void tap_jpeg_guard_leave(j_common_ptr codec, tap_status status)
{
    tap_jpeg_guard *guard = (tap_jpeg_guard *)(void *)codec->err;
    guard->status = status;
    longjmp(guard->escape, 1);
}

static void leave_with_message(j_common_ptr codec, const char *what)
{
    tap_jpeg_guard *guard = (tap_jpeg_guard *)(void *)codec->err;
    char text[JMSG_LENGTH_MAX];
    codec->err->format_message(codec, text);
    tap_status status = status_of(codec->err->msg_code);
    tap_jpeg_guard_leave(codec, tap_fail(guard->err, status, "JPEG: %s%s", what, text));
}

static void on_error(j_common_ptr codec)
{
    leave_with_message(codec, "");
}

/* Warnings that say pixels were made up are errors here; libjpeg would fill in grey and go on.
 * Others (padding before a marker, an unknown JFIF version) harm nobody. */
static void on_message(j_common_ptr codec, int level)
{
    if (level >= 0)
        return; /* a trace message */
    switch (codec->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
        leave_with_message(codec, "truncated: ");
        break;
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
        leave_with_message(codec, "damaged: ");
        break;
    default:
        codec->err->num_warnings++;
    }
}

static void print_nothing(j_common_ptr codec)
{
    (void)codec;
}

void tap_jpeg_guard_init(tap_jpeg_guard *guard, tap_error *err)
{
    jpeg_std_error(&guard->errors);
    guard->errors.error_exit = on_error;
    guard->errors.emit_message = on_message;
    guard->errors.output_message = print_nothing;
    guard->err = err;
    guard->status = TAP_OK;
}
