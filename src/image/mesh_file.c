/* mesh_file: OBJ, PLY and glTF 2.0's binary form. All three show y up and z towards the viewer, so
 * everything is turned by 180 degrees about x: (x, -y, -z). */
#include "mesh.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { BUFFER = 16384, NUMBER = 32 };

/* Bytes on their way to a file. The first failure stays; what follows is dropped. */
typedef struct stream {
    tap_writer writer;
    tap_status status;
    tap_error *err;
    bool counting;  /* bytes are only counted, */
    size_t counted; /* here */
    size_t used;
    uint8_t buffer[BUFFER];
} stream;

static void flush(stream *out)
{
    if (out->status == TAP_OK)
        out->status = tap_writer_write(&out->writer, out->buffer, out->used, out->err);
    out->used = 0;
}

static void put(stream *out, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    if (out->counting) {
        out->counted += size;
        return;
    }
    while (size > 0) {
        size_t part = size < BUFFER - out->used ? size : BUFFER - out->used;
        memcpy(out->buffer + out->used, bytes, part);
        out->used += part;
        bytes += part;
        size -= part;
        if (out->used == BUFFER)
            flush(out);
    }
}

__attribute__((format(printf, 2, 3))) static void print(stream *out, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (n > 0)
        put(out, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

static void put_u32(stream *out, uint32_t value)
{
    const uint8_t bytes[4] = {(uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16),
                              (uint8_t)(value >> 24)};
    put(out, bytes, 4);
}

static void put_f32(stream *out, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    put_u32(out, bits);
}

/* A float so that it reads back the same, with a point whatever the locale. */
static const char *number_text(char text[NUMBER], float value)
{
    char local[NUMBER];
    snprintf(local, sizeof local, "%.9g", (double)value);
    size_t n = 0;
    for (const char *at = local; *at != 0 && n + 1 < NUMBER; at++) {
        bool plain = strchr("0123456789+-e", *at) != NULL;
        if (plain || n == 0 || text[n - 1] != '.')
            text[n++] = plain ? *at : '.';
    }
    text[n] = 0;
    return text;
}

static void print_three(stream *out, const char *before, const float at[3], const char *between,
                        const char *after)
{
    char text[NUMBER];
    print(out, "%s%s", before, number_text(text, at[0]));
    print(out, "%s%s", between, number_text(text, at[1]));
    print(out, "%s%s%s", between, number_text(text, at[2]), after);
}

/* ---- geometry ---------------------------------------------------------------------------------
 */

/* Without a minus before zero. */
static void turn(float to[3], const float from[3])
{
    to[0] = from[0] + 0.0f;
    to[1] = 0.0f - from[1];
    to[2] = 0.0f - from[2];
}

static void place(float to[3], const tap_mesh *mesh, size_t i)
{
    float at[3];
    for (int k = 0; k < 3; k++)
        at[k] = mesh->vertices[3 * i + k] + mesh->translation[k];
    turn(to, at);
}

typedef struct totals {
    size_t vertices, faces;
    size_t most; /* vertices of one mesh */
} totals;

static tap_status check(totals *all, const tap_mesh *meshes, size_t n, tap_error *err)
{
    *all = (totals){0, 0, 0};
    if (n == 0)
        return tap_fail(err, TAP_ERR_ARGUMENT, "there is no mesh to write");
    for (size_t m = 0; m < n; m++) {
        const tap_mesh *mesh = &meshes[m];
        TAP_TRY(tap_mesh_check(mesh, m + 1, err));
        if (mesh->n_faces == 0)
            return tap_fail(err, TAP_ERR_ARGUMENT, "mesh %zu has no triangles", m + 1);
        for (size_t i = 0; i < 3 * mesh->n_vertices; i++)
            if (!isfinite(mesh->vertices[i] + mesh->translation[i % 3]))
                return tap_fail(err, TAP_ERR_ARGUMENT,
                                "mesh %zu: vertex %zu is not finite; it cannot be written", m + 1,
                                i / 3);
        all->vertices += mesh->n_vertices;
        all->faces += mesh->n_faces;
        all->most = mesh->n_vertices > all->most ? mesh->n_vertices : all->most;
        /* Then every size below stays under 4 GiB: at most 24 + 13 bytes, and some text a mesh. */
        if (all->vertices > 50000000 || all->faces > 50000000 || n > 100000)
            return tap_fail(err, TAP_ERR_LIMIT,
                            "more than 50,000,000 vertices or triangles or 100,000 meshes in one "
                            "file; write several");
    }
    return TAP_OK;
}

/* ---- the formats ------------------------------------------------------------------------------
 */

static void write_obj(stream *out, const tap_mesh *meshes, size_t n, float *normals)
{
    size_t base = 1;
    print(out, "# metres, y up, z towards the viewer\n");
    for (size_t m = 0; m < n; m++) {
        const tap_mesh *mesh = &meshes[m];
        tap_mesh_normals(normals, mesh);
        print(out, "o hand%zu\n", m + 1);
        for (size_t i = 0; i < mesh->n_vertices; i++) {
            float at[3];
            place(at, mesh, i);
            print_three(out, "v ", at, " ", "\n");
        }
        for (size_t i = 0; i < mesh->n_vertices; i++) {
            float at[3];
            turn(at, normals + 3 * i);
            print_three(out, "vn ", at, " ", "\n");
        }
        for (size_t f = 0; f < mesh->n_faces; f++) {
            size_t v[3];
            for (int k = 0; k < 3; k++)
                v[k] = base + mesh->faces[3 * f + k];
            print(out, "f %zu//%zu %zu//%zu %zu//%zu\n", v[0], v[0], v[1], v[1], v[2], v[2]);
        }
        base += mesh->n_vertices;
    }
}

static void write_ply(stream *out, const tap_mesh *meshes, size_t n, const totals *all,
                      float *normals)
{
    static const uint8_t three = 3;
    uint32_t base = 0;
    print(out,
          "ply\nformat binary_little_endian 1.0\ncomment metres, y up, z towards the viewer\n"
          "element vertex %zu\nproperty float x\nproperty float y\nproperty float z\n"
          "property float nx\nproperty float ny\nproperty float nz\n"
          "element face %zu\nproperty list uchar int vertex_indices\nend_header\n",
          all->vertices, all->faces);
    for (size_t m = 0; m < n; m++) {
        tap_mesh_normals(normals, &meshes[m]);
        for (size_t i = 0; i < meshes[m].n_vertices; i++) {
            float at[6];
            place(at, &meshes[m], i);
            turn(at + 3, normals + 3 * i);
            for (int k = 0; k < 6; k++)
                put_f32(out, at[k]);
        }
    }
    for (size_t m = 0; m < n; m++) {
        for (size_t f = 0; f < meshes[m].n_faces; f++) {
            put(out, &three, 1);
            for (int k = 0; k < 3; k++)
                put_u32(out, base + meshes[m].faces[3 * f + k]);
        }
        base += (uint32_t)meshes[m].n_vertices;
    }
}

/* The three accessors of a mesh: positions with their bounds, normals, corners. */
static void print_accessors(stream *out, const tap_mesh *mesh, size_t m)
{
    float low[3] = {FLT_MAX, FLT_MAX, FLT_MAX}, high[3] = {-FLT_MAX, -FLT_MAX, -FLT_MAX};
    for (size_t i = 0; i < mesh->n_vertices; i++) {
        float at[3];
        turn(at, mesh->vertices + 3 * i);
        for (int k = 0; k < 3; k++) {
            low[k] = at[k] < low[k] ? at[k] : low[k];
            high[k] = at[k] > high[k] ? at[k] : high[k];
        }
    }
    print(out, "%s{\"bufferView\":%zu,\"componentType\":5126,\"count\":%zu,\"type\":\"VEC3\",",
          m > 0 ? "," : "", 3 * m, mesh->n_vertices);
    print_three(out, "\"min\":[", low, ",", "],");
    print_three(out, "\"max\":[", high, ",", "]},");
    print(out,
          "{\"bufferView\":%zu,\"componentType\":5126,\"count\":%zu,\"type\":\"VEC3\"},"
          "{\"bufferView\":%zu,\"componentType\":5125,\"count\":%zu,\"type\":\"SCALAR\"}",
          3 * m + 1, mesh->n_vertices, 3 * m + 2, 3 * mesh->n_faces);
}

static void print_views(stream *out, const tap_mesh *meshes, size_t n)
{
    size_t at = 0;
    print(out, "],\"bufferViews\":[");
    for (size_t m = 0; m < n; m++) {
        const size_t sizes[3] = {12 * meshes[m].n_vertices, 12 * meshes[m].n_vertices,
                                 12 * meshes[m].n_faces};
        for (size_t k = 0; k < 3; k++) {
            print(out, "%s{\"buffer\":0,\"byteOffset\":%zu,\"byteLength\":%zu,\"target\":%d}",
                  m + k > 0 ? "," : "", at, sizes[k], k < 2 ? 34962 : 34963);
            at += sizes[k];
        }
    }
    print(out, "],\"buffers\":[{\"byteLength\":%zu}]}", at);
}

/* One node, mesh and material a hand. */
static void print_json(stream *out, const tap_mesh *meshes, size_t n)
{
    print(out, "{\"asset\":{\"version\":\"2.0\",\"generator\":\"Tapetum\"},\"scene\":0,"
               "\"scenes\":[{\"nodes\":[");
    for (size_t m = 0; m < n; m++)
        print(out, "%s%zu", m > 0 ? "," : "", m);
    print(out, "]}],\"nodes\":[");
    for (size_t m = 0; m < n; m++) {
        float at[3];
        turn(at, meshes[m].translation);
        print(out, "%s{\"name\":\"hand%zu\",\"mesh\":%zu,", m > 0 ? "," : "", m + 1, m);
        print_three(out, "\"translation\":[", at, ",", "]}");
    }
    print(out, "],\"meshes\":[");
    for (size_t m = 0; m < n; m++)
        print(out,
              "%s{\"name\":\"hand%zu\",\"primitives\":[{\"attributes\":{\"POSITION\":%zu,"
              "\"NORMAL\":%zu},\"indices\":%zu,\"material\":%zu}]}",
              m > 0 ? "," : "", m + 1, 3 * m, 3 * m + 1, 3 * m + 2, m);
    print(out, "],\"materials\":[");
    for (size_t m = 0; m < n; m++) {
        const tap_color c = meshes[m].color;
        /* glTF's colours are linear; a gamma of 2.2 is near enough to sRGB's curve. */
        const float linear[3] = {powf(c.r / 255.0f, 2.2f), powf(c.g / 255.0f, 2.2f),
                                 powf(c.b / 255.0f, 2.2f)};
        print(out, "%s{\"pbrMetallicRoughness\":{", m > 0 ? "," : "");
        print_three(out, "\"baseColorFactor\":[", linear, ",",
                    ",1],\"metallicFactor\":0,\"roughnessFactor\":0.7}}");
    }
    print(out, "],\"accessors\":[");
    for (size_t m = 0; m < n; m++)
        print_accessors(out, &meshes[m], m);
    print_views(out, meshes, n);
}

static void write_glb(stream *out, const tap_mesh *meshes, size_t n, const totals *all,
                      float *normals)
{
    /* The header has the JSON's length, so it is written twice, first into nothing. */
    out->counting = true;
    out->counted = 0;
    print_json(out, meshes, n);
    out->counting = false;
    const uint32_t pad = (uint32_t)(-out->counted & 3), json = (uint32_t)out->counted + pad;
    const uint32_t binary = (uint32_t)(24 * all->vertices + 12 * all->faces);
    put(out, "glTF", 4);
    put_u32(out, 2);
    put_u32(out, 12 + 8 + json + 8 + binary);
    put_u32(out, json);
    put(out, "JSON", 4);
    print_json(out, meshes, n);
    put(out, "   ", pad);
    put_u32(out, binary);
    put(out, "BIN", 4); /* with its zero */
    for (size_t m = 0; m < n; m++) {
        float at[3];
        tap_mesh_normals(normals, &meshes[m]);
        const float *parts[2] = {meshes[m].vertices, normals};
        for (size_t part = 0; part < 2; part++)
            for (size_t i = 0; i < meshes[m].n_vertices; i++) {
                turn(at, parts[part] + 3 * i);
                for (int k = 0; k < 3; k++)
                    put_f32(out, at[k]);
            }
        for (size_t i = 0; i < 3 * meshes[m].n_faces; i++)
            put_u32(out, meshes[m].faces[i]);
    }
}

/* ---- which ----------------------------------------------------------------------------------- */

typedef enum format { OBJ, PLY, GLB, UNKNOWN } format;

static format find_format(const char *path)
{
    static const char *const endings[UNKNOWN] = {".obj", ".ply", ".glb"};
    size_t length = strlen(path);
    for (int i = 0; i < UNKNOWN; i++)
        if (length > 4 && strcasecmp(path + length - 4, endings[i]) == 0)
            return (format)i;
    return UNKNOWN;
}

static tap_status write_all(stream *out, format kind, const char *path, const tap_mesh *meshes,
                            size_t n, const totals *all, float *normals, tap_error *err)
{
    TAP_TRY(tap_writer_begin(&out->writer, path, err));
    out->status = TAP_OK;
    out->err = err;
    out->used = 0;
    out->counting = false;
    if (kind == OBJ)
        write_obj(out, meshes, n, normals);
    else if (kind == PLY)
        write_ply(out, meshes, n, all, normals);
    else
        write_glb(out, meshes, n, all, normals);
    flush(out);
    tap_status status = out->status;
    if (status == TAP_OK)
        status = tap_writer_commit(&out->writer, err);
    if (status != TAP_OK)
        tap_writer_abort(&out->writer);
    return status;
}

tap_status tap_mesh_write(const char *path, const tap_mesh *meshes, size_t n, tap_error *err)
{
    totals all;
    format kind = find_format(path);
    if (kind == UNKNOWN)
        return tap_fail(err, TAP_ERR_ARGUMENT,
                        "%s: a mesh is written to a file ending in .obj, .ply or .glb", path);
    TAP_TRY(check(&all, meshes, n, err));
    float *normals = tap_alloc(all.most, 3 * sizeof *normals);
    stream *out = tap_alloc(1, sizeof *out);
    tap_status status = TAP_ERR_MEMORY;
    if (normals != NULL && out != NULL)
        status = write_all(out, kind, path, meshes, n, &all, normals, err);
    else
        tap_fail(err, status, "%s: no memory to write %zu meshes", path, n);
    free(out), free(normals);
    return status;
}
