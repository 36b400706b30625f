#include "table.h"

#include <math.h>
#include <string.h>

static const struct {
    size_t size;
    const char *name;
} dtypes[] = {
    [TAP_DTYPE_F64] = {8, "F64"},   [TAP_DTYPE_F32] = {4, "F32"}, [TAP_DTYPE_F16] = {2, "F16"},
    [TAP_DTYPE_BF16] = {2, "BF16"}, [TAP_DTYPE_I64] = {8, "I64"}, [TAP_DTYPE_I32] = {4, "I32"},
    [TAP_DTYPE_I16] = {2, "I16"},   [TAP_DTYPE_I8] = {1, "I8"},   [TAP_DTYPE_U8] = {1, "U8"},
    [TAP_DTYPE_U16] = {2, "U16"},   [TAP_DTYPE_U32] = {4, "U32"}, [TAP_DTYPE_U64] = {8, "U64"},
    [TAP_DTYPE_BOOL] = {1, "BOOL"},
};

size_t tap_dtype_size(tap_dtype dtype)
{
    return dtypes[dtype].size;
}

const char *tap_dtype_name(tap_dtype dtype)
{
    return dtypes[dtype].name;
}

bool tap_tensor_make_dense(tap_tensor *tensor)
{
    /* A zero anywhere makes the product zero, so the strides' product is checked on its own. */
    size_t stride = 1, bytes;
    tensor->n_elements = 1;
    for (size_t i = tensor->rank; i-- > 0;) {
        tensor->strides[i] = stride;
        if (!tap_size_mul(tensor->n_elements, tensor->shape[i], &tensor->n_elements) ||
            !tap_size_mul(stride, tensor->shape[i] > 0 ? tensor->shape[i] : 1, &stride))
            return false;
    }
    return tap_size_mul(stride, tap_dtype_size(tensor->dtype), &bytes) && bytes <= PTRDIFF_MAX;
}

void tap_tensor_make_fortran(tap_tensor *tensor)
{
    size_t stride = 1;
    for (size_t i = 0; i < tensor->rank; i++) {
        tensor->strides[i] = stride;
        stride *= tensor->shape[i];
    }
}

/* n elements at src, step elements apart. memcpy, because src may be unaligned. */
static void widen(float *dst, const uint8_t *src, size_t n, size_t step, tap_dtype dtype)
{
    step *= tap_dtype_size(dtype);
    for (size_t i = 0; i < n; i++, src += step) {
        if (dtype == TAP_DTYPE_F32) {
            memcpy(&dst[i], src, sizeof dst[i]);
        } else if (dtype == TAP_DTYPE_F64) {
            double value;
            memcpy(&value, src, sizeof value);
            dst[i] = (float)value;
        } else {
            uint16_t half;
            memcpy(&half, src, sizeof half);
            dst[i] = dtype == TAP_DTYPE_F16 ? tap_f16_to_f32(half) : tap_bf16_to_f32(half);
        }
    }
}

/* The tensor's rows (its last dimension) in C order. */
static void gather(float *dst, const tap_tensor *tensor)
{
    size_t last = tensor->rank > 0 ? tensor->rank - 1 : 0;
    size_t row = tensor->rank > 0 ? tensor->shape[last] : 1;
    size_t step = tensor->rank > 0 ? tensor->strides[last] : 1;
    size_t index[TAP_TENSOR_MAX_RANK] = {0}, offset = 0;
    for (size_t done = 0; done < tensor->n_elements; done += row) {
        widen(dst + done, tensor->data + offset * tap_dtype_size(tensor->dtype), row, step,
              tensor->dtype);
        for (size_t d = last; d-- > 0;) {
            offset += tensor->strides[d];
            if (++index[d] < tensor->shape[d])
                break;
            offset -= index[d] * tensor->strides[d];
            index[d] = 0;
        }
    }
}

static bool is_dense(const tap_tensor *tensor)
{
    size_t stride = 1;
    for (size_t d = tensor->rank; d-- > 0; stride *= tensor->shape[d])
        if (tensor->shape[d] != 1 && tensor->strides[d] != stride)
            return false;
    return true;
}

tap_status tap_tensor_to_f32(const tap_tensor *tensor, const char *file, float *dst, tap_error *err)
{
    if (tensor->dtype > TAP_DTYPE_BF16)
        return tap_fail(err, TAP_ERR_UNSUPPORTED,
                        "%s: tensor %s: %s where floating point is wanted", file, tensor->name,
                        tap_dtype_name(tensor->dtype));
    if (tensor->n_elements == 0)
        return TAP_OK;
    if (is_dense(tensor) && tensor->dtype == TAP_DTYPE_F32)
        memcpy(dst, tensor->data, tensor->n_elements * sizeof *dst);
    else if (is_dense(tensor))
        widen(dst, tensor->data, tensor->n_elements, 1, tensor->dtype);
    else
        gather(dst, tensor);
    for (size_t i = 0; i < tensor->n_elements; i++)
        if (!isfinite(dst[i]))
            return tap_fail(err, TAP_ERR_FORMAT,
                            "%s: tensor %s: element %zu is %s; the file is damaged or was saved "
                            "from a training that diverged",
                            file, tensor->name, i, isnan(dst[i]) ? "NaN" : "infinite");
    return TAP_OK;
}
