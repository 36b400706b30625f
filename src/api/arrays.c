/* Numbers out of files for the caller. */
#include "api.h"

#include <stdlib.h>
#include <string.h>

tap_status tap_array_read(const char *path, const char *name, float **values, size_t shape[8],
                          size_t *rank, tap_error *err)
{
    tap_tensor array;
    *values = NULL;
    *rank = 0;
    if (path == NULL || path[0] == '\0')
        return tap_fail(err, TAP_ERR_ARGUMENT, "path: is empty; name a file");
    TAP_TRY(tap_array_open(values, &array, path, name, err));
    *rank = array.rank;
    memcpy(shape, array.shape, array.rank * sizeof *shape);
    return TAP_OK;
}
