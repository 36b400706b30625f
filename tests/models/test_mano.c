/* MANO: its files in every form, its faults, and its mesh: against the authors' numbers where the
 * reference data are there, and against the formulas written out in double. */
#include "mano_file.h"
#include "models/arrays.h"

#include "models/models.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>

enum { VERTICES = 778, JOINTS = 16 };

static char path[64];

static tap_status load(tap_mano **mano, const struct mano_file *file, tap_error *err)
{
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(file->bytes, 1, file->size, out), file->size);
    assert_int_equal(fclose(out), 0);
    tap_status status = tap_mano_load(mano, path, err);
    assert_int_equal(unlink(path), 0);
    return status;
}

static tap_mano *load_form(enum mano_form form)
{
    tap_mano *mano;
    tap_error err;
    struct mano_file file = make_mano(form, MANO_SOUND);
    assert_ok(load(&mano, &file, &err), err);
    free(file.bytes);
    return mano;
}

static void random_pose(float *rotmats, float *betas)
{
    uint64_t seed = 7;
    for (size_t j = 0; j < JOINTS; j++) {
        float six[6];
        for (size_t i = 0; i < 6; i++)
            six[i] = random_unit(&seed) * 2 - 1;
        tap_hand_rotation_6d(rotmats + 9 * j, six);
    }
    for (size_t i = 0; i < 10; i++)
        betas[i] = random_unit(&seed) * 4 - 2;
}

/* docs/hamer.md, "MANO", word for word and in double. */
static void pose_in_double(double *vertices, double *joints, const float *rotmats,
                           const float *betas)
{
    static const int parents[JOINTS] = {-1, 0, 1, 2, 0, 4, 5, 0, 7, 8, 0, 10, 11, 0, 13, 14};
    static double shaped[VERTICES * 3], posed[VERTICES * 3];
    double rest[JOINTS][3] = {{0}}, g[JOINTS][3][4];
    for (size_t i = 0; i < VERTICES * 3; i++) {
        shaped[i] = mano_template(i);
        for (size_t l = 0; l < 10; l++)
            shaped[i] += (double)betas[l] * mano_shape(i * 20 + l);
        posed[i] = shaped[i];
        for (size_t m = 0; m < 135; m++)
            posed[i] += ((double)rotmats[9 + m] - (m % 9 % 4 == 0)) * mano_pose(i * 135 + m);
    }
    for (size_t j = 0; j < JOINTS; j++)
        for (size_t i = 0; i < VERTICES; i++)
            for (size_t c = 0; c < 3; c++)
                rest[j][c] += mano_regressor(j, i) * shaped[3 * i + c];
    for (size_t j = 0; j < JOINTS; j++)
        for (size_t r = 0; r < 3; r++)
            for (size_t c = 0; c < 4; c++) {
                double local[3], sum = 0;
                for (size_t k = 0; k < 3; k++)
                    local[k] = c < 3 ? (double)rotmats[9 * j + 3 * k + c]
                                     : rest[j][k] - (j == 0 ? 0 : rest[parents[j]][k]);
                if (j == 0)
                    sum = local[r];
                else
                    for (size_t k = 0; k < 3; k++)
                        sum += g[parents[j]][r][k] * local[k];
                g[j][r][c] = sum + (j > 0 && c == 3 ? g[parents[j]][r][3] : 0);
            }
    for (size_t i = 0; i < VERTICES; i++)
        for (size_t r = 0; r < 3; r++) {
            vertices[3 * i + r] = 0;
            for (size_t j = 0; j < JOINTS; j++) {
                double moved = g[j][r][3];
                for (size_t c = 0; c < 3; c++)
                    moved += g[j][r][c] * (posed[3 * i + c] - rest[j][c]);
                vertices[3 * i + r] += mano_weight(i, j) * moved;
            }
        }
    for (size_t j = 0; j < JOINTS; j++)
        for (size_t r = 0; r < 3; r++)
            joints[3 * j + r] = g[j][r][3];
}

static void the_mesh_follows_the_formulas(void **state)
{
    (void)state;
    static const size_t order[] = {0, 13,  14, 15, 744, 1,   2, 3, 320, 4,  5,
                                   6, 443, 10, 11, 12,  554, 7, 8, 9,   671};
    static double wanted[VERTICES * 3];
    static float vertices[VERTICES * 3];
    double wanted_joints[JOINTS * 3];
    float rotmats[144], betas[10], joints[63];
    tap_mano *mano = load_form(MANO_ORIGINAL);
    random_pose(rotmats, betas);
    tap_mano_pose(mano, vertices, joints, rotmats, betas);
    pose_in_double(wanted, wanted_joints, rotmats, betas);
    for (size_t i = 0; i < VERTICES * 3; i++)
        assert_true(fabs((double)vertices[i] - wanted[i]) < 1e-6);
    for (size_t i = 0; i < 63; i++) {
        bool tip = order[i / 3] >= JOINTS;
        double value =
            tip ? wanted[3 * order[i / 3] + i % 3] : wanted_joints[3 * order[i / 3] + i % 3];
        assert_true(fabs((double)joints[i] - value) < 1e-6);
    }
    for (size_t i = 0; i < 1538 * 3; i++)
        assert_int_equal(tap_mano_faces(mano)[i], i * 7 % VERTICES);
    tap_mano_free(mano);
}

static void every_form_gives_the_same_hand(void **state)
{
    (void)state;
    static float first[VERTICES * 3], vertices[VERTICES * 3];
    float rotmats[144], betas[10], joints[63];
    random_pose(rotmats, betas);
    for (enum mano_form form = MANO_ORIGINAL; form < MANO_FORMS; form++) {
        tap_mano *mano = load_form(form);
        tap_mano_pose(mano, form == MANO_ORIGINAL ? first : vertices, joints, rotmats, betas);
        if (form != MANO_ORIGINAL)
            assert_memory_equal(vertices, first, sizeof first);
        tap_mano_free(mano);
    }
}

static void a_npz_of_its_arrays_is_read(void **state)
{
    (void)state;
    static float template[VERTICES * 3], shape[VERTICES * 30], pose[VERTICES * 405];
    static float regressor[JOINTS * VERTICES], weights[VERTICES * JOINTS], faces[1538 * 3];
    float tree[2 * JOINTS] = {-1, 0, 1, 2, 0, 4, 5, 0, 7, 8, 0, 10, 11, 0, 13, 14};
    for (size_t i = 0; i < VERTICES * 3; i++)
        template[i] = (float)mano_template(i);
    for (size_t i = 0; i < VERTICES * 30; i++)
        shape[i] = (float)mano_shape(i / 10 * 20 + i % 10);
    for (size_t i = 0; i < VERTICES * 405; i++)
        pose[i] = (float)mano_pose(i);
    for (size_t i = 0; i < JOINTS * VERTICES; i++)
        regressor[i] = (float)mano_regressor(i / VERTICES, i % VERTICES);
    for (size_t i = 0; i < VERTICES * JOINTS; i++)
        weights[i] = (float)mano_weight(i / JOINTS, i % JOINTS);
    for (size_t i = 0; i < JOINTS; i++)
        tree[JOINTS + i] = (float)i;
    for (size_t i = 0; i < 1538 * 3; i++)
        faces[i] = (float)(i * 7 % VERTICES);
    const tap_npz_array arrays[] = {
        {"v_template", TAP_DTYPE_F32, 2, {VERTICES, 3}, template},
        {"shapedirs", TAP_DTYPE_F32, 3, {VERTICES, 3, 10}, shape},
        {"posedirs", TAP_DTYPE_F32, 3, {VERTICES, 3, 135}, pose},
        {"J_regressor", TAP_DTYPE_F32, 2, {JOINTS, VERTICES}, regressor},
        {"weights", TAP_DTYPE_F32, 2, {VERTICES, JOINTS}, weights},
        {"kintree_table", TAP_DTYPE_F32, 2, {2, JOINTS}, tree},
        {"f", TAP_DTYPE_F32, 2, {1538, 3}, faces}};
    static float from_pickle[VERTICES * 3], from_npz[VERTICES * 3];
    float rotmats[144], betas[10], joints[63];
    struct mano_file file;
    tap_mano *mano, *plain = load_form(MANO_PLAIN);
    tap_error err;
    uint8_t *bytes;
    assert_ok(tap_npz_write(&bytes, &file.size, arrays, 7, &err), err);
    file.bytes = bytes;
    assert_ok(load(&mano, &file, &err), err);
    random_pose(rotmats, betas);
    tap_mano_pose(plain, from_pickle, joints, rotmats, betas);
    tap_mano_pose(mano, from_npz, joints, rotmats, betas);
    assert_memory_equal(from_npz, from_pickle, sizeof from_npz);
    tap_mano_free(mano);
    tap_mano_free(plain);
    free(bytes);
    assert_ok(tap_npz_write(&bytes, &file.size, arrays, 5, &err), err);
    file.bytes = bytes;
    assert_fails(load(&mano, &file, &err), TAP_ERR_FORMAT, err, "'kintree_table'");
    free(bytes);
}

static void every_fault_is_named(void **state)
{
    (void)state;
    static const struct {
        tap_status status;
        const char *words;
    } wanted[MANO_FAULTS] = {
        [MANO_NO_WEIGHTS] = {TAP_ERR_FORMAT,
                             "'weights', so it is no MANO file; MANO_RIGHT.pkl is needed"},
        [MANO_SMPL] = {TAP_ERR_UNSUPPORTED, "6890 vertices: this is SMPL, a body; MANO_RIGHT.pkl "
                                            "is needed"},
        [MANO_SMPL_X] = {TAP_ERR_UNSUPPORTED, "SMPL-X, a body"},
        [MANO_FLAME] = {TAP_ERR_UNSUPPORTED, "FLAME, a face"},
        [MANO_HUGE] = {TAP_ERR_FORMAT, "'v_template': element 100 is 1e+30"},
        [MANO_NAN] = {TAP_ERR_FORMAT, "v_template"},
        [MANO_FACE] = {TAP_ERR_FORMAT, "triangle 333"},
        [MANO_PARENT] = {TAP_ERR_FORMAT, "joint 3"},
        [MANO_INDEX] = {TAP_ERR_FORMAT, "'shapedirs'"},
        [MANO_POINTER] = {TAP_ERR_FORMAT, "indptr"},
        [MANO_ROW] = {TAP_ERR_FORMAT, "row outside"},
        [MANO_SHORT] = {TAP_ERR_FORMAT, "not as many"},
        [MANO_SYSTEM] = {TAP_ERR_UNSUPPORTED, "posix.system"},
        [MANO_BIG_ENDIAN] = {TAP_ERR_FORMAT, "little-endian"}};
    for (enum mano_fault fault = MANO_SOUND + 1; fault < MANO_FAULTS; fault++) {
        struct mano_file file = make_mano(MANO_ORIGINAL, fault);
        tap_mano *mano = (void *)&file;
        tap_error err;
        assert_fails(load(&mano, &file, &err), wanted[fault].status, err, wanted[fault].words);
        assert_null(mano);
        free(file.bytes);
    }
    assert_int_not_equal(access("/tmp/tapetum_was_here", F_OK), 0);
}

/* Whatever of the end is missing, and whatever byte is another: an error or a hand, and no more. */
static void a_cut_or_damaged_file_does_no_harm(void **state)
{
    (void)state;
    struct mano_file file = make_mano(MANO_ORIGINAL, MANO_SOUND);
    tap_mano *mano;
    tap_error err;
    size_t whole = file.size;
    for (size_t i = 0; i < 150; i++) {
        file.size = i < 100 ? i : whole - 1 - (i - 100) * (whole / 60);
        assert_int_not_equal(load(&mano, &file, &err), TAP_OK);
        assert_null(mano);
    }
    file.size = whole;
    uint64_t seed = 3;
    for (size_t i = 0; i < 60; i++) {
        size_t at = i < 40 ? i : (size_t)(random_unit(&seed) * (float)whole);
        unsigned char before = file.bytes[at];
        file.bytes[at] ^= (unsigned char)(1 + i);
        if (load(&mano, &file, &err) == TAP_OK)
            tap_mano_free(mano);
        file.bytes[at] = before;
    }
    free(file.bytes);
}

/* SMPL's own file has 39 MB, so it is not looked into. */
static void a_file_that_is_too_large_is_told_what_it_may_be(void **state)
{
    (void)state;
    struct mano_file file = {calloc(1, 17 << 20), 17 << 20};
    tap_mano *mano;
    tap_error err;
    memcpy(file.bytes, "\x80\2}", 3);
    assert_fails(load(&mano, &file, &err), TAP_ERR_LIMIT, err,
                 "MANO_RIGHT.pkl has 4 MB, so this may be SMPL's");
    assert_null(mano);
    free(file.bytes);
}

static void the_left_hand_is_refused(void **state)
{
    (void)state;
    tap_mano *mano;
    tap_error err;
    assert_fails(tap_mano_load(&mano, "/some/where/mano_left.pkl", &err), TAP_ERR_UNSUPPORTED, err,
                 "the left hand's file; HaMeR takes all hands for right ones and mirrors them, so "
                 "MANO_RIGHT.pkl is needed");
    assert_fails(tap_mano_load(&mano, "MANO_LEFT.npz", &err), TAP_ERR_UNSUPPORTED, err,
                 "MANO_RIGHT.pkl is needed");
}

static void it_is_looked_for_in_order(void **state)
{
    (void)state;
    char folder[] = "/tmp/tap_mano_home_XXXXXX", below[200], *found;
    tap_error err;
    assert_non_null(mkdtemp(folder));
    setenv("HOME", folder, 1);
    unsetenv("TAPETUM_MANO");
    unsetenv("TAPETUM_CACHE");
    unsetenv("XDG_CACHE_HOME");
    assert_ok(tap_mano_find(&found, NULL, &err), err);
    assert_null(found);
    assert_ok(tap_mano_find(&found, "", &err), err);
    assert_null(found);
    assert_fails(tap_mano_find(&found, "/no/such.pkl", &err), TAP_ERR_NOT_FOUND, err,
                 "/no/such.pkl");
    setenv("TAPETUM_MANO", "/no/such/either.pkl", 1);
    assert_fails(tap_mano_find(&found, NULL, &err), TAP_ERR_NOT_FOUND, err, "$TAPETUM_MANO");
    unsetenv("TAPETUM_MANO");
    setenv("TAPETUM_CACHE", folder, 1);
    snprintf(below, sizeof below, "%s/MANO_RIGHT.npz", folder);
    close(open(below, O_CREAT | O_WRONLY, 0600));
    assert_ok(tap_mano_find(&found, NULL, &err), err);
    assert_string_equal(found, below);
    free(found);
    setenv("TAPETUM_MANO", folder, 1);
    assert_ok(tap_mano_find(&found, NULL, &err), err);
    assert_string_equal(found, folder);
    free(found);
    unlink(below);
    rmdir(folder);
}

static void the_authors_numbers(void **state)
{
    (void)state;
    enum { CASES = 6 };
    static float vertices[VERTICES * 3];
    char below[300];
    tap_mano *mano;
    tap_error err;
    assert_ok(
        tap_mano_load(
            &mano, shared_path(below, sizeof below, "golden/hamer/MANO_RIGHT_synthetic.pkl"), &err),
        err);
    struct array six = load_npy(shared_path(below, sizeof below, "golden/hamer/mano_rot6d.npy"));
    struct array rotations =
        load_npy(shared_path(below, sizeof below, "golden/hamer/mano_rotmats.npy"));
    struct array betas = load_npy(shared_path(below, sizeof below, "golden/hamer/mano_betas.npy"));
    struct array wanted =
        load_npy(shared_path(below, sizeof below, "golden/hamer/mano_vertices.npy"));
    struct array wanted_joints =
        load_npy(shared_path(below, sizeof below, "golden/hamer/mano_joints.npy"));
    for (size_t i = 0; i < CASES; i++) {
        float rotmats[144], joints[63];
        for (size_t j = 0; j < JOINTS; j++)
            tap_hand_rotation_6d(rotmats + 9 * j, six.values + (i * JOINTS + j) * 6);
        for (size_t j = 0; j < 144; j++)
            assert_true(fabsf(rotmats[j] - rotations.values[i * 144 + j]) <= 2e-6f);
        tap_mano_pose(mano, vertices, joints, rotmats, betas.values + i * 10);
        for (size_t j = 0; j < VERTICES * 3; j++)
            assert_true(fabsf(vertices[j] - wanted.values[i * VERTICES * 3 + j]) <= 1e-6f);
        for (size_t j = 0; j < 63; j++)
            assert_true(fabsf(joints[j] - wanted_joints.values[i * 63 + j]) <= 1e-6f);
    }
    free_array(&six);
    free_array(&rotations);
    free_array(&betas);
    free_array(&wanted);
    free_array(&wanted_joints);
    tap_mano_free(mano);
}

/* The specification's worked example, and what must never be NaN. */
static void six_numbers_make_a_rotation(void **state)
{
    (void)state;
    static const float six[] = {1, 2, 3, 4, 5, 6}, zeros[6] = {0};
    static const double wanted[] = {0.2672612, 0.8728716, -0.4082483, 0.5345225, 0.2182180,
                                    0.8164966, 0.8017837, -0.4364356, -0.4082483};
    float rotation[9];
    tap_hand_rotation_6d(rotation, six);
    for (size_t i = 0; i < 9; i++)
        assert_true(fabs((double)rotation[i] - wanted[i]) < 1e-6);
    tap_hand_rotation_6d(rotation, zeros);
    for (size_t i = 0; i < 9; i++)
        assert_true(rotation[i] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mesh_follows_the_formulas),
        cmocka_unit_test(every_form_gives_the_same_hand),
        cmocka_unit_test(a_npz_of_its_arrays_is_read),
        cmocka_unit_test(every_fault_is_named),
        cmocka_unit_test(a_cut_or_damaged_file_does_no_harm),
        cmocka_unit_test(a_file_that_is_too_large_is_told_what_it_may_be),
        cmocka_unit_test(the_left_hand_is_refused),
        cmocka_unit_test(it_is_looked_for_in_order),
        cmocka_unit_test(the_authors_numbers),
        cmocka_unit_test(six_numbers_make_a_rotation),
    };
    snprintf(path, sizeof path, "/tmp/tap-test-mano-%ld.pkl", (long)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
