/* Bytes as a file that may hold an EXIF block, of any of the three formats. */
#include "image/image.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int orientation = tap_exif_orientation(data, size);
    if (orientation < 1 || orientation > 8)
        abort();
    return 0;
}
