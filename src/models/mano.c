#include "mano.h"

#include "weights/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum {
    VERTICES = TAP_HAND_VERTICES,
    COORDINATES = 3 * VERTICES,
    JOINTS = TAP_HAND_ROTATIONS,
    BETAS = TAP_HAND_BETAS,
    CORRECTIVES = 9 * (JOINTS - 1)
};

/* A hand is in metres: over it a number is damage, and a sum of such ones might overflow. */
static const float max_value = 1e6f;

struct tap_mano {
    float template[COORDINATES];
    float shape[BETAS][COORDINATES];
    float pose[CORRECTIVES][COORDINATES];
    float weights[VERTICES][JOINTS];
    /* The joints are linear in the shaped vertices, hence in the betas. */
    float joint_template[3 * JOINTS];
    float joint_shape[BETAS][3 * JOINTS];
    size_t parents[JOINTS];
    uint32_t faces[TAP_HAND_FACES][3];
};

/* ---- finding -------------------------------------------------------------------------------- */

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static tap_status out_of_memory(tap_error *err)
{
    return tap_fail(err, TAP_ERR_MEMORY, "out of memory for the MANO file's name");
}

tap_status tap_mano_find(char **path, const char *option, tap_error *err)
{
    static const struct {
        const char *variable, *below;
    } places[] = {{"HOME", "/.cache/tt-model/hamer-p150/weights"},
                  {"TAPETUM_CACHE", ""},
                  {"XDG_CACHE_HOME", "/tapetum"},
                  {"HOME", "/.cache/tapetum"}};
    static const char *const names[] = {"MANO_RIGHT.pkl", "MANO_RIGHT.npz"};
    *path = NULL;
    if (option != NULL && option[0] == '\0')
        return TAP_OK;
    const char *given = option != NULL ? option : environment("TAPETUM_MANO");
    if (given != NULL) {
        if (access(given, F_OK) != 0)
            return tap_fail(err, TAP_ERR_NOT_FOUND,
                            "%s: no such MANO file; %s must name MANO_RIGHT.pkl", given,
                            option != NULL ? "mano" : "$TAPETUM_MANO");
        *path = strdup(given);
        return *path != NULL ? TAP_OK : out_of_memory(err);
    }
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        for (size_t j = 0; j < sizeof names / sizeof *names; j++) {
            const char *folder = environment(places[i].variable);
            if (folder == NULL)
                continue;
            if (asprintf(path, "%s%s/%s", folder, places[i].below, names[j]) < 0) {
                *path = NULL;
                return out_of_memory(err);
            }
            if (access(*path, R_OK) == 0)
                return TAP_OK;
            free(*path);
            *path = NULL;
        }
    return TAP_OK;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* The array, of this shape; the last side may be longer where at_least says so. */
static tap_status find_array(const tap_tensor **found, const tap_weights *arrays, const char *name,
                             const size_t *shape, size_t rank, bool at_least, tap_error *err)
{
    const tap_tensor *array = *found = tap_weights_find(arrays, name);
    const char *file = tap_weights_file(arrays);
    if (array == NULL)
        return tap_fail(err, TAP_ERR_FORMAT,
                        "%s: has no array '%s', so it is no MANO file; MANO_RIGHT.pkl is needed",
                        file, name);
    bool right = array->rank == rank;
    for (size_t i = 0; right && i < rank; i++)
        right = array->shape[i] == shape[i] ||
                (at_least && i + 1 == rank && array->shape[i] > shape[i]);
    if (right)
        return TAP_OK;
    char text[2][96] = {"", ""};
    for (size_t which = 0; which < 2; which++)
        for (size_t i = 0, used = 0; i < (which == 0 ? array->rank : rank) && used < 90; i++)
            used += (size_t)snprintf(text[which] + used, sizeof text[which] - used, "%s%zu",
                                     i == 0 ? "" : ", ", which == 0 ? array->shape[i] : shape[i]);
    return tap_fail(err, TAP_ERR_FORMAT, "%s: array '%s' has the shape (%s), MANO's is (%s)", file,
                    name, text[0], text[1]);
}

/* In float32, as upstream casts them first; from malloc. */
static tap_status read_floats(float **values, const tap_weights *arrays, const char *name,
                              const size_t *shape, size_t rank, bool at_least,
                              const tap_tensor **found, tap_error *err)
{
    *values = NULL;
    TAP_TRY(find_array(found, arrays, name, shape, rank, at_least, err));
    *values = tap_alloc((*found)->n_elements, sizeof(float));
    if (*values == NULL)
        return tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory for '%s'", tap_weights_file(arrays),
                        name);
    tap_status status = tap_tensor_to_f32(*found, tap_weights_file(arrays), *values, err);
    for (size_t i = 0; status == TAP_OK && i < (*found)->n_elements; i++)
        if (fabsf((*values)[i]) > max_value)
            status = tap_fail(err, TAP_ERR_FORMAT,
                              "%s: array '%s': element %zu is %g, which no hand in metres has",
                              tap_weights_file(arrays), name, i, (double)(*values)[i]);
    if (status != TAP_OK) {
        free(*values);
        *values = NULL;
    }
    return status;
}

/* A whole number at (row, column); a real one counts if it is whole. False: of another type. */
static bool whole_at(int64_t *value, const tap_tensor *array, size_t row, size_t column)
{
    const uint8_t *at = array->data + (row * array->strides[0] + column * array->strides[1]) *
                                          tap_dtype_size(array->dtype);
    int16_t i16;
    int32_t i32;
    uint16_t u16;
    uint32_t u32;
    float f32;
    double f64;
    switch (array->dtype) {
    case TAP_DTYPE_I64:
    case TAP_DTYPE_U64: /* what does not fit is negative, and no index */
        memcpy(value, at, sizeof *value);
        return true;
    case TAP_DTYPE_U32:
        memcpy(&u32, at, sizeof u32);
        *value = u32;
        return true;
    case TAP_DTYPE_U16:
        memcpy(&u16, at, sizeof u16);
        *value = u16;
        return true;
    case TAP_DTYPE_I32:
        memcpy(&i32, at, sizeof i32);
        *value = i32;
        return true;
    case TAP_DTYPE_I16:
        memcpy(&i16, at, sizeof i16);
        *value = i16;
        return true;
    case TAP_DTYPE_F32:
    case TAP_DTYPE_F64:
        if (array->dtype == TAP_DTYPE_F64) {
            memcpy(&f64, at, sizeof f64);
        } else {
            memcpy(&f32, at, sizeof f32);
            f64 = (double)f32;
        }
        *value = f64 >= -1 && f64 < 1e15 ? (int64_t)f64 : -2;
        return (double)*value == f64;
    default:
        return false;
    }
}

static tap_status read_template(tap_mano *mano, const tap_weights *arrays, tap_error *err)
{
    static const size_t shape[] = {VERTICES, 3};
    static const struct {
        size_t n;
        const char *what;
    } others[] = {{6890, "SMPL, a body"}, {10475, "SMPL-X, a body"}, {5023, "FLAME, a face"}};
    const tap_tensor *found = tap_weights_find(arrays, "v_template");
    float *values;
    for (size_t i = 0; found != NULL && i < sizeof others / sizeof *others; i++)
        if (found->rank == 2 && found->shape[0] == others[i].n)
            return tap_fail(err, TAP_ERR_UNSUPPORTED,
                            "%s: has %zu vertices: this is %s; MANO_RIGHT.pkl is needed",
                            tap_weights_file(arrays), others[i].n, others[i].what);
    TAP_TRY(read_floats(&values, arrays, "v_template", shape, 2, false, &found, err));
    memcpy(mano->template, values, sizeof mano->template);
    free(values);
    return TAP_OK;
}

/* [778][3][n] to [n][778 * 3]: a call adds up whole rows. */
static tap_status read_basis(float *rows, size_t n, const tap_weights *arrays, const char *name,
                             bool at_least, tap_error *err)
{
    const size_t shape[] = {VERTICES, 3, n};
    const tap_tensor *found;
    float *values;
    TAP_TRY(read_floats(&values, arrays, name, shape, 3, at_least, &found, err));
    size_t width = found->shape[2];
    for (size_t i = 0; i < COORDINATES; i++)
        for (size_t j = 0; j < n; j++)
            rows[j * COORDINATES + i] = values[i * width + j];
    free(values);
    return TAP_OK;
}

/* joints [16][3] = regressor [16][778] times x [778][3]. */
static void regress(float *joints, const float *regressor, const float *x)
{
    for (size_t j = 0; j < JOINTS; j++)
        for (size_t c = 0; c < 3; c++) {
            double sum = 0;
            for (size_t i = 0; i < VERTICES; i++)
                sum += (double)regressor[j * VERTICES + i] * (double)x[3 * i + c];
            joints[3 * j + c] = (float)sum;
        }
}

static tap_status read_joints(tap_mano *mano, const tap_weights *arrays, tap_error *err)
{
    static const size_t shape[] = {JOINTS, VERTICES};
    const tap_tensor *found;
    float *regressor;
    TAP_TRY(read_floats(&regressor, arrays, "J_regressor", shape, 2, false, &found, err));
    regress(mano->joint_template, regressor, mano->template);
    for (size_t l = 0; l < BETAS; l++)
        regress(mano->joint_shape[l], regressor, mano->shape[l]);
    free(regressor);
    return TAP_OK;
}

static tap_status read_skin(tap_mano *mano, const tap_weights *arrays, tap_error *err)
{
    static const size_t shape[] = {VERTICES, JOINTS};
    const tap_tensor *found;
    float *values;
    TAP_TRY(read_floats(&values, arrays, "weights", shape, 2, false, &found, err));
    memcpy(mano->weights, values, sizeof mano->weights);
    free(values);
    return TAP_OK;
}

static tap_status read_tree(tap_mano *mano, const tap_weights *arrays, tap_error *err)
{
    static const size_t shape[] = {2, JOINTS};
    const tap_tensor *table;
    TAP_TRY(find_array(&table, arrays, "kintree_table", shape, 2, false, err));
    for (size_t j = 0; j < JOINTS; j++) {
        int64_t parent = -2;
        bool whole = whole_at(&parent, table, 0, j);
        bool root = j == 0 && (parent == -1 || parent == UINT32_MAX);
        if (!whole || (!root && (parent < 0 || parent >= (int64_t)j)))
            return tap_fail(err, TAP_ERR_FORMAT,
                            "%s: array 'kintree_table': joint %zu's parent is no joint before it",
                            tap_weights_file(arrays), j);
        mano->parents[j] = root ? 0 : (size_t)parent;
    }
    return TAP_OK;
}

static tap_status read_faces(tap_mano *mano, const tap_weights *arrays, tap_error *err)
{
    static const size_t shape[] = {TAP_HAND_FACES, 3};
    const tap_tensor *faces;
    TAP_TRY(find_array(&faces, arrays, "f", shape, 2, false, err));
    for (size_t i = 0; i < TAP_HAND_FACES; i++)
        for (size_t corner = 0; corner < 3; corner++) {
            int64_t vertex = -1;
            if (!whole_at(&vertex, faces, i, corner) || vertex < 0 || vertex >= VERTICES)
                return tap_fail(err, TAP_ERR_FORMAT,
                                "%s: array 'f': triangle %zu has a corner that is no vertex",
                                tap_weights_file(arrays), i);
            mano->faces[i][corner] = (uint32_t)vertex;
        }
    return TAP_OK;
}

static tap_status read_all(tap_mano *mano, const tap_weights *arrays, tap_error *err)
{
    TAP_TRY(read_template(mano, arrays, err));
    TAP_TRY(read_basis(mano->shape[0], BETAS, arrays, "shapedirs", true, err));
    TAP_TRY(read_basis(mano->pose[0], CORRECTIVES, arrays, "posedirs", false, err));
    TAP_TRY(read_joints(mano, arrays, err));
    TAP_TRY(read_skin(mano, arrays, err));
    TAP_TRY(read_tree(mano, arrays, err));
    return read_faces(mano, arrays, err);
}

/* Nothing in the file tells the hands apart; its makers' name does. */
static bool is_left_by_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strcasestr(slash != NULL ? slash + 1 : path, "MANO_LEFT") != NULL;
}

tap_status tap_mano_load(tap_mano **out, const char *path, tap_error *err)
{
    tap_weights *arrays;
    *out = NULL;
    if (is_left_by_name(path))
        return tap_fail(
            err, TAP_ERR_UNSUPPORTED,
            "%s: this is the left hand's file; HaMeR takes all hands for right ones and "
            "mirrors them, so MANO_RIGHT.pkl is needed",
            path);
    tap_error why;
    tap_status status = tap_weights_open_arrays(&arrays, path, &why);
    if (status == TAP_ERR_LIMIT)
        return tap_fail(err, status, "%s; MANO_RIGHT.pkl has 4 MB, so this may be SMPL's, a body's",
                        why.message);
    if (status != TAP_OK)
        return tap_fail(err, status, "%s", why.message);
    tap_mano *mano = tap_alloc(1, sizeof *mano);
    status = mano == NULL ? tap_fail(err, TAP_ERR_MEMORY, "%s: out of memory", path)
                          : read_all(mano, arrays, err);
    tap_weights_close(arrays);
    if (status != TAP_OK) {
        free(mano);
        return status;
    }
    *out = mano;
    return TAP_OK;
}

void tap_mano_free(tap_mano *mano)
{
    free(mano);
}

const uint32_t *tap_mano_faces(const tap_mano *mano)
{
    return &mano->faces[0][0];
}

/* ---- posing --------------------------------------------------------------------------------- */

/* x += factor * row */
static void add_row(float *restrict x, const float *restrict row, float factor, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] += factor * row[i];
}

/* An affine map: [3][4], rotation and translation. */
struct map {
    float at[12];
};

/* Each joint's map from the rest pose: G_j = G_parent [R_j | J_j - J_parent], then A_j = [G_j's
 * rotation | joint_j - rotation J_j]. posed: the joints, G_j's translations. */
static void pose_joints(struct map *maps, float *posed, const tap_mano *mano, const float *rotmats,
                        const float *rest)
{
    float rotations[JOINTS][9];
    for (size_t j = 0; j < JOINTS; j++) {
        size_t parent = mano->parents[j];
        const float *local = rotmats + 9 * j;
        for (size_t r = 0; r < 3; r++) {
            if (j == 0) {
                memcpy(rotations[0] + 3 * r, local + 3 * r, 3 * sizeof(float));
                posed[r] = rest[r];
                continue;
            }
            const float *row = rotations[parent] + 3 * r;
            posed[3 * j + r] = posed[3 * parent + r];
            for (size_t c = 0; c < 3; c++) {
                rotations[j][3 * r + c] =
                    row[0] * local[c] + row[1] * local[3 + c] + row[2] * local[6 + c];
                posed[3 * j + r] += row[c] * (rest[3 * j + c] - rest[3 * parent + c]);
            }
        }
        for (size_t r = 0; r < 3; r++) {
            float *to = maps[j].at + 4 * r;
            const float *row = rotations[j] + 3 * r;
            memcpy(to, row, 3 * sizeof(float));
            to[3] = posed[3 * j + r] -
                    (row[0] * rest[3 * j] + row[1] * rest[3 * j + 1] + row[2] * rest[3 * j + 2]);
        }
    }
}

static void skin(float *vertices, const tap_mano *mano, const struct map *maps)
{
    for (size_t i = 0; i < VERTICES; i++, vertices += 3) {
        struct map blend = {{0}};
        for (size_t j = 0; j < JOINTS; j++)
            add_row(blend.at, maps[j].at, mano->weights[i][j], 12);
        const float x = vertices[0], y = vertices[1], z = vertices[2];
        for (size_t r = 0; r < 3; r++) {
            const float *row = blend.at + 4 * r;
            vertices[r] = row[0] * x + row[1] * y + row[2] * z + row[3];
        }
    }
}

void tap_mano_pose(const tap_mano *mano, float *vertices, float *joints, const float *rotmats,
                   const float *betas)
{
    /* OpenPose's joints: MANO's, and from JOINTS on the finger tips. */
    static const size_t order[TAP_HAND_JOINTS] = {0, 13, 14, 15, 16, 1,  2, 3, 17, 4, 5,
                                                  6, 18, 10, 11, 12, 19, 7, 8, 9,  20};
    static const size_t tips[] = {744, 320, 443, 554, 671};
    float rest[3 * JOINTS], posed[3 * JOINTS] = {0};
    struct map maps[JOINTS] = {0};
    memcpy(vertices, mano->template, sizeof mano->template);
    memcpy(rest, mano->joint_template, sizeof rest);
    for (size_t l = 0; l < BETAS; l++) {
        add_row(vertices, mano->shape[l], betas[l], COORDINATES);
        add_row(rest, mano->joint_shape[l], betas[l], 3 * JOINTS);
    }
    for (size_t m = 0; m < CORRECTIVES; m++) {
        float identity = m % 9 % 4 == 0 ? 1 : 0;
        add_row(vertices, mano->pose[m], rotmats[9 + m] - identity, COORDINATES);
    }
    pose_joints(maps, posed, mano, rotmats, rest);
    skin(vertices, mano, maps);
    for (size_t i = 0; i < TAP_HAND_JOINTS; i++) {
        const float *from =
            order[i] < JOINTS ? posed + 3 * order[i] : vertices + 3 * tips[order[i] - JOINTS];
        memcpy(joints + 3 * i, from, 3 * sizeof(float));
    }
}
