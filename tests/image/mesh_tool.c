/* mesh_tool PATH: meshes on standard input to a file, for test_mesh_files.py. Input, little endian:
 * how many; for each: its vertices, its triangles (uint32), the translation, the vertices
 * (float32), the corners (uint32). Prints the error's name and message, and exits with 1. */
#include "image/mesh.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 1 << 20 };

static void take(void *to, size_t count)
{
    if (fread(to, 4, count, stdin) != count) {
        fprintf(stderr, "mesh_tool: the input ends early\n");
        exit(2);
    }
}

static void *take_array(uint32_t count)
{
    void *array = count <= MOST ? malloc((size_t)count * 4 + 4) : NULL;
    if (array == NULL) {
        fprintf(stderr, "mesh_tool: %u numbers are too many\n", count);
        exit(2);
    }
    take(array, count);
    return array;
}

int main(int argc, char **argv)
{
    uint32_t n;
    tap_error err;
    if (argc != 2)
        return 2;
    setlocale(LC_ALL, "");
    if (getenv("MESH_COMMA") != NULL && localeconv()->decimal_point[0] != ',') {
        fprintf(stderr, "mesh_tool: the locale has no decimal comma\n");
        return 2;
    }
    take(&n, 1);
    tap_mesh *meshes = calloc(n <= MOST ? n + 1 : 1, sizeof *meshes);
    if (n > MOST || meshes == NULL)
        return 2;
    for (uint32_t m = 0; m < n; m++) {
        uint32_t sizes[2];
        take(sizes, 2);
        meshes[m] =
            (tap_mesh){.n_vertices = sizes[0], .n_faces = sizes[1], .color = tap_mesh_color};
        take(meshes[m].translation, 3);
        meshes[m].vertices = take_array(sizes[0] * 3);
        meshes[m].faces = take_array(sizes[1] * 3);
    }
    tap_status status = tap_mesh_write(argv[1], meshes, n, &err);
    if (status != TAP_OK)
        printf("%s %s\n", tap_status_name(status), err.message);
    for (uint32_t m = 0; m < n; m++) {
        free((void *)meshes[m].vertices);
        free((void *)meshes[m].faces);
    }
    free(meshes);
    return status == TAP_OK ? 0 : 1;
}
