/* Bytes as a MANO file. One has 700 KB at least, nearly all of them numbers, so a run of equal
 * bytes is written short here: f5, its length in three bytes, the byte. (f5 begins no character and
 * is no opcode.) A hand that is accepted can be posed, and is finite. */
#include "file.h"
#include "models/models.h"

#include <math.h>
#include <string.h>

enum { MAX_SIZE = 2 << 20, RUN = 0xf5 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The bytes written out, as far as they fit. */
static size_t expand(uint8_t *out, const uint8_t *data, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < size && n < MAX_SIZE; i++) {
        if (data[i] != RUN || size - i < 5) {
            out[n++] = data[i];
            continue;
        }
        size_t length = (size_t)data[i + 1] | (size_t)data[i + 2] << 8 | (size_t)data[i + 3] << 16;
        length = length < MAX_SIZE - n ? length : MAX_SIZE - n;
        memset(out + n, data[i + 4], length);
        n += length;
        i += 4;
    }
    return n;
}

static void pose(const tap_mano *mano)
{
    /* A third of a turn about (1, 1, 1). */
    static const float turn[9] = {0, 0, 1, 1, 0, 0, 0, 1, 0};
    static float vertices[3 * TAP_HAND_VERTICES], joints[3 * TAP_HAND_JOINTS];
    float rotmats[9 * TAP_HAND_ROTATIONS], betas[TAP_HAND_BETAS];
    for (size_t i = 0; i < TAP_HAND_ROTATIONS; i++)
        memcpy(rotmats + 9 * i, turn, sizeof turn);
    for (size_t i = 0; i < TAP_HAND_BETAS; i++)
        betas[i] = i % 2 == 0 ? 5 : -5;
    tap_mano_pose(mano, vertices, joints, rotmats, betas);
    for (size_t i = 0; i < 3 * TAP_HAND_VERTICES; i++)
        if (!isfinite(vertices[i]))
            abort();
    for (size_t i = 0; i < 3 * TAP_HAND_JOINTS; i++)
        if (!isfinite(joints[i]))
            abort();
    for (size_t i = 0; i < 3 * TAP_HAND_FACES; i++)
        if (tap_mano_faces(mano)[i] >= TAP_HAND_VERTICES)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t file[MAX_SIZE];
    char path[FUZZ_PATH];
    tap_mano *mano;
    tap_error err;
    int fd = fuzz_file(path, file, expand(file, data, size));
    if (tap_mano_load(&mano, path, &err) == TAP_OK)
        pose(mano);
    tap_mano_free(mano);
    close(fd);
    return 0;
}
