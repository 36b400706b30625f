/* The rasteriser against geometry: areas known in closed form, which surface hides which, and what
 * must not be touched. Drawn in black on white, a pixel's darkness is how much of it is covered. */
#include "check.h"

#include "image/mesh.h"

#include <float.h>
#include <math.h>

static const tap_color black = {0, 0, 0, 1}, red = {255, 0, 0, 1}, green = {0, 255, 0, 1};
static const double pi = 3.14159265358979323846;

static tap_pixels make_white(uint32_t width, uint32_t height)
{
    tap_pixels pixels;
    tap_error err;
    assert_ok(tap_pixels_create(&pixels, width, height, 3, &err), err);
    memset(pixels.data, 255, (size_t)width * height * 3);
    return pixels;
}

static void draw(tap_pixels *pixels, const tap_mesh *meshes, size_t n, const tap_lens *lens)
{
    tap_error err;
    assert_ok(tap_draw_meshes(pixels, meshes, n, lens, &err), err);
}

static const uint8_t *pixel(const tap_pixels *pixels, uint32_t x, uint32_t y)
{
    return pixels->data + ((size_t)y * pixels->width + x) * 3;
}

static double darkness(const tap_pixels *pixels)
{
    double sum = 0;
    for (size_t i = 0; i < (size_t)pixels->width * pixels->height; i++)
        sum += (255 - pixels->data[3 * i]) / 255.0;
    return sum;
}

enum { RINGS = 96, SPOKES = 192 };

typedef struct sphere {
    float vertices[(RINGS + 1) * SPOKES][3];
    uint32_t faces[RINGS * SPOKES * 2][3];
} sphere;

/* Outside out, around the origin. */
static sphere *make_sphere(double radius)
{
    sphere *s = malloc(sizeof *s);
    assert_non_null(s);
    for (int i = 0; i <= RINGS; i++)
        for (int j = 0; j < SPOKES; j++) {
            double a = pi * i / RINGS, b = 2 * pi * j / SPOKES;
            float *at = s->vertices[i * SPOKES + j];
            at[0] = (float)(radius * sin(a) * cos(b));
            at[1] = (float)(radius * sin(a) * sin(b));
            at[2] = (float)(radius * cos(a));
        }
    for (uint32_t i = 0; i < RINGS; i++)
        for (uint32_t j = 0; j < SPOKES; j++) {
            uint32_t a = i * SPOKES + j, b = i * SPOKES + (j + 1) % SPOKES;
            uint32_t c = a + SPOKES, d = b + SPOKES;
            uint32_t *face = s->faces[2 * (i * SPOKES + j)];
            const uint32_t corners[6] = {a, c, b, b, c, d};
            memcpy(face, corners, sizeof corners);
        }
    return s;
}

static tap_mesh sphere_mesh(const sphere *s, float x, float y, float z, tap_color color)
{
    return (tap_mesh){
        s->vertices[0], (RINGS + 1) * SPOKES, s->faces[0], RINGS * SPOKES * 2, {x, y, z}, color};
}

/* A sphere is seen under a cone of half angle theta, phi off the axis; the picture plane cuts it in
 * an ellipse of half axes f sin(theta) cos(theta) / q and f sin(theta) / sqrt(q), q = cos^2(phi) -
 * sin^2(theta). */
static void test_silhouette(void **state)
{
    (void)state;
    static const double places[][3] = {{0, 0, 3}, {0.9, -0.5, 2}, {-1.2, 0.8, 2.5}, {0.1, 0.1, 40}};
    sphere *s = make_sphere(0.3);
    const tap_lens lens = {400, 400, 320, 240};
    for (size_t i = 0; i < 4; i++) {
        const double *at = places[i];
        double far2 = at[0] * at[0] + at[1] * at[1] + at[2] * at[2];
        double sine2 = 0.09 / far2, q = at[2] * at[2] / far2 - sine2;
        double f = lens.fx * (i == 3 ? 20 : 1);
        tap_lens scaled = {f, f, lens.cx, lens.cy};
        double area = pi * f * f * sine2 * sqrt(1 - sine2) / (q * sqrt(q));
        tap_pixels pixels = make_white(640, 480);
        tap_mesh mesh = sphere_mesh(s, (float)at[0], (float)at[1], (float)at[2], black);
        draw(&pixels, &mesh, 1, &scaled);
        double ours = darkness(&pixels);
        printf("sphere %zu: %.1f pixels, %.1f by formula\n", i, ours, area);
        assert_true(fabs(ours / area - 1) < 0.01);
        tap_pixels_free(&pixels);
    }
    free(s);
}

static void test_normals(void **state)
{
    (void)state;
    sphere *s = make_sphere(0.3);
    tap_mesh mesh = sphere_mesh(s, 0, 0, 0, black);
    float *normals = malloc(sizeof s->vertices);
    assert_non_null(normals);
    tap_mesh_normals(normals, &mesh);
    for (size_t i = SPOKES; i < (size_t)RINGS * SPOKES; i++) /* its poles are many vertices each */
        for (size_t k = 0; k < 3; k++)
            assert_true(fabsf(normals[3 * i + k] - s->vertices[i][k] / 0.3f) < 0.02f);
    free(normals);
    free(s);
}

/* Smooth: along a sphere's middle row, neighbours differ by little, which facets would not. */
static void test_smooth(void **state)
{
    (void)state;
    sphere *s = make_sphere(0.3);
    tap_mesh mesh = sphere_mesh(s, 0, 0, 2, tap_mesh_color);
    tap_pixels pixels = make_white(400, 400);
    draw(&pixels, &mesh, 1, &(tap_lens){1000, 1000, 200, 200});
    int brightest = 0, darkest = 255;
    for (uint32_t x = 80; x < 320; x++) {
        int here = pixel(&pixels, x, 200)[0], next = pixel(&pixels, x + 1, 200)[0];
        assert_true(abs(here - next) <= 4);
        brightest = here > brightest ? here : brightest;
        darkest = here < darkest ? here : darkest;
    }
    assert_true(brightest - darkest > 30);
    tap_pixels_free(&pixels);
    free(s);
}

/* Two squares of side 2 before a lens of focal length 100. */
static const float square[4][3] = {{-1, -1, 0}, {1, -1, 0}, {1, 1, 0}, {-1, 1, 0}};
static const uint32_t square_faces[2][3] = {{0, 2, 1}, {0, 3, 2}};

static tap_mesh square_mesh(float x, float y, float z, tap_color color)
{
    return (tap_mesh){square[0], 4, square_faces[0], 2, {x, y, z}, color};
}

/* The nearer one hides the farther, in whatever order they come. */
static void test_occlusion(void **state)
{
    (void)state;
    const tap_lens lens = {100, 100, 100, 100};
    tap_mesh near = square_mesh(-0.5f, 0, 3, red), far = square_mesh(0.5f, 0, 4, green);
    tap_pixels pictures[2];
    for (int order = 0; order < 2; order++) {
        pictures[order] = make_white(200, 200);
        tap_mesh meshes[2] = {order == 0 ? near : far, order == 0 ? far : near};
        draw(&pictures[order], meshes, 2, &lens);
        /* Near: x from 50 to 116.7; far: from 87.5 to 137.5. */
        const uint8_t *both = pixel(&pictures[order], 105, 100);
        const uint8_t *only_far = pixel(&pictures[order], 125, 100);
        assert_true(both[0] > 150 && both[1] == 0 && both[2] == 0);
        assert_true(only_far[1] > 150 && only_far[0] == 0);
        assert_int_equal(pixel(&pictures[order], 145, 100)[2], 255);
    }
    assert_memory_equal(pictures[0].data, pictures[1].data, 200 * 200 * 3);
    tap_pixels_free(&pictures[0]);
    tap_pixels_free(&pictures[1]);
}

/* Two crossing planes: each hides the other on one side of the line where they meet. */
static void test_crossing(void **state)
{
    (void)state;
    static const float slope[4][3] = {{-1, -1, -1}, {1, -1, 1}, {1, 1, 1}, {-1, 1, -1}};
    tap_mesh meshes[2] = {square_mesh(0, 0, 5, red),
                          {slope[0], 4, square_faces[0], 2, {0, 0, 5}, green}};
    tap_pixels pixels = make_white(100, 100);
    draw(&pixels, meshes, 2, &(tap_lens){100, 100, 50, 50});
    for (uint32_t x = 35; x < 66; x++) {
        const uint8_t *at = pixel(&pixels, x, 50);
        if (x < 49)
            assert_true(at[1] > 0 && at[0] == 0);
        if (x > 51)
            assert_true(at[0] > 0 && at[1] == 0);
    }
    tap_pixels_free(&pixels);
}

/* A quarter of a pixel is a quarter of its samples, on all four sides. */
static void test_edges(void **state)
{
    (void)state;
    const float x0 = 10.25f, x1 = 20.75f, y0 = 5, y1 = 30.5f;
    const float corners[4][3] = {{x0, y0, 1}, {x1, y0, 1}, {x1, y1, 1}, {x0, y1, 1}};
    tap_mesh mesh = {corners[0], 4, square_faces[0], 2, {0, 0, 0}, black};
    tap_pixels pixels = make_white(40, 40);
    draw(&pixels, &mesh, 1, &(tap_lens){1, 1, 0, 0});
    static const struct {
        uint32_t x, y;
        double cover;
    } wanted[] = {{9, 20, 0}, {10, 20, 0.25}, {11, 20, 1}, {20, 20, 1}, {21, 20, 0.25}, {22, 20, 0},
                  {15, 4, 0}, {15, 5, 0.5},   {15, 30, 1}, {15, 31, 0}, {10, 5, 0.125}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        assert_true(
            fabs(255 - pixel(&pixels, wanted[i].x, wanted[i].y)[1] - 255 * wanted[i].cover) <= 0.5);
    assert_true(fabs(darkness(&pixels) - (x1 - x0) * (y1 - y0)) < 0.5);
    /* See-through: half of it. */
    tap_pixels half = make_white(40, 40);
    mesh.color.alpha = 0.5f;
    draw(&half, &mesh, 1, &(tap_lens){1, 1, 0, 0});
    assert_true(abs(pixel(&half, 15, 20)[0] - 127) <= 1);
    tap_pixels_free(&pixels);
    tap_pixels_free(&half);
}

/* A mesh far larger than the picture fills it and no byte beside it. */
static void test_nothing_outside(void **state)
{
    (void)state;
    enum { W = 67, H = 45, GUARD = 4096 };
    uint8_t *memory = malloc(W * H * 3 + 2 * GUARD);
    assert_non_null(memory);
    memset(memory, 255, W * H * 3 + 2 * GUARD);
    tap_pixels pixels = {memory + GUARD, W, H, 3, 1, false};
    tap_mesh mesh = square_mesh(0, 0, 0.01f, black);
    draw(&pixels, &mesh, 1, &(tap_lens){1000, 1000, 30, 20});
    for (size_t i = 0; i < GUARD; i++)
        assert_true(memory[i] == 255 && memory[GUARD + W * H * 3 + i] == 255);
    assert_true(darkness(&pixels) == W * H);
    free(memory);
}

static void test_hidden_vertices(void **state)
{
    (void)state;
    static const float wild[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, -1, 0, 1e-30f};
    tap_pixels pixels = make_white(64, 64);
    const tap_lens lens = {50, 50, 32, 32};
    for (size_t w = 0; w < sizeof wild / sizeof *wild; w++) {
        float vertices[5][3];
        memcpy(vertices, square, sizeof square);
        memset(pixels.data, 255, 64 * 64 * 3);
        memcpy(vertices[4], square[2], sizeof vertices[4]);
        vertices[2][2] = wild[w] - 5; /* behind the camera, or nowhere */
        const uint32_t faces[3][3] = {{0, 2, 1}, {0, 3, 2}, {0, 3, 1}};
        tap_mesh mesh = {vertices[0], 5, faces[0], 3, {0, 0, 5}, black};
        draw(&pixels, &mesh, 1, &lens);
        if (wild[w] == FLT_MAX) /* far away, but before the camera: one more triangle or two */
            assert_true(darkness(&pixels) >= 199);
        else
            assert_true(fabs(darkness(&pixels) - 200) < 2); /* half of 20 x 20 */
        mesh.translation[0] = wild[w];
        draw(&pixels, &mesh, 1, &lens);
        for (int k = 0; k < 3; k++)
            for (int i = 0; i < 4; i++)
                vertices[i][k] = i % 2 ? wild[w] : 1;
        draw(&pixels, &mesh, 1, &lens);
        tap_pixels side;
        tap_error err;
        assert_ok(tap_mesh_side_view(&side, 50, 40, &mesh, 1, &err), err);
        tap_pixels_free(&side);
    }
    memset(pixels.data, 255, 64 * 64 * 3);
    tap_mesh behind = square_mesh(0, 0, -5, black);
    draw(&pixels, &behind, 1, &lens);
    draw(&pixels, NULL, 0, &lens);
    assert_true(darkness(&pixels) == 0);
    tap_pixels_free(&pixels);
}

static void test_refusals(void **state)
{
    (void)state;
    const uint32_t faces[2][3] = {{0, 1, 2}, {0, 4, 3}};
    tap_mesh meshes[2] = {square_mesh(0, 0, 5, black),
                          {square[0], 4, faces[0], 2, {0, 0, 5}, black}};
    tap_pixels pixels = make_white(16, 16);
    const tap_lens good = {10, 10, 8, 8}, bad = {NAN, 10, 8, 8};
    tap_error err;
    assert_fails(tap_draw_meshes(&pixels, meshes, 2, &good, &err), TAP_ERR_ARGUMENT, err,
                 "mesh 2: triangle 1 has vertex 4, and there are 4");
    assert_fails(tap_draw_meshes(&pixels, meshes, 1, &bad, &err), TAP_ERR_ARGUMENT, err, "finite");
    assert_fails(tap_mesh_write("mesh.stl", meshes, 1, &err), TAP_ERR_ARGUMENT, err, ".glb");
    assert_fails(tap_mesh_write("mesh.ply", meshes, 2, &err), TAP_ERR_ARGUMENT, err, "vertex 4");
    assert_fails(tap_mesh_write("mesh.ply", meshes, 0, &err), TAP_ERR_ARGUMENT, err, "no mesh");
    meshes[0].translation[1] = NAN;
    assert_fails(tap_mesh_write("mesh.glb", meshes, 1, &err), TAP_ERR_ARGUMENT, err, "not finite");
    meshes[0] = square_mesh(0, 0, 1, black);
    meshes[0].n_faces = 0;
    assert_fails(tap_mesh_write("mesh.glb", meshes, 1, &err), TAP_ERR_ARGUMENT, err, "triangles");
    assert_true(darkness(&pixels) == 0);
    tap_pixels_free(&pixels);
}

/* What is farther is to the right, what is up stays up, and all is inside. */
static void test_side_view(void **state)
{
    (void)state;
    sphere *s = make_sphere(0.05);
    tap_mesh meshes[2] = {sphere_mesh(s, 0.3f, 0.1f, 5, red),
                          sphere_mesh(s, -0.2f, -0.1f, 5.4f, green)};
    tap_pixels side;
    tap_error err;
    assert_ok(tap_mesh_side_view(&side, 200, 120, meshes, 2, &err), err);
    double x[2] = {0, 0}, y[2] = {0, 0}, n[2] = {0, 0};
    for (uint32_t row = 0; row < side.height; row++)
        for (uint32_t column = 0; column < side.width; column++) {
            const uint8_t *at = pixel(&side, column, row);
            bool edge =
                row == 0 || column == 0 || row + 1 == side.height || column + 1 == side.width;
            assert_true(!edge || (at[0] == 255 && at[1] == 255 && at[2] == 255));
            int which = at[0] > 50 && at[1] == 0 ? 0 : at[1] > 50 && at[0] == 0 ? 1 : -1;
            if (which >= 0) {
                x[which] += column, y[which] += row, n[which] += 1;
            }
        }
    assert_true(n[0] > 100 && n[1] > 100);
    /* 0.5 m fill 0.9 of 200 pixels: the centres are 0.4 m and 0.2 m apart, but for perspective. */
    assert_true(fabs(x[1] / n[1] - x[0] / n[0] - 0.4 * 360) < 15);
    assert_true(fabs(y[0] / n[0] - y[1] / n[1] - 0.2 * 360) < 8);
    tap_pixels_free(&side);
    free(s);
}

static void test_lines(void **state)
{
    (void)state;
    float xy[21][2];
    for (int i = 0; i < 21; i++) {
        xy[i][0] = i == 0 ? 100 : 20 + 40.0f * (float)((i - 1) / 4);
        xy[i][1] = i == 0 ? 190 : 150 - 40.0f * (float)((i - 1) % 4);
    }
    tap_pixels pixels = make_white(200, 200);
    tap_draw_skeleton(&pixels, xy[0]);
    assert_int_equal(pixel(&pixels, 100, 190)[0], 255);
    for (uint32_t f = 0; f < 5; f++) {
        const uint8_t *base = pixel(&pixels, 20 + 40 * f, 150),
                      *tip = pixel(&pixels, 20 + 40 * f, 30);
        const uint8_t *between = pixel(&pixels, 20 + 40 * f, 50);
        assert_memory_equal(base, tip, 3);
        assert_memory_equal(between, tip, 3);
        if (f > 0)
            assert_true(memcmp(tip, pixel(&pixels, 40 * f - 20, 30), 3) != 0);
    }
    memset(pixels.data, 255, 200 * 200 * 3);
    const float box[4] = {20, 30, 180, 130};
    /* The hand's x points up in the picture, its y to the right, its z at the viewer. */
    const float rotation[9] = {0, 1, 0, -1, 0, 0, 0, 0, -1};
    tap_draw_hand_box(&pixels, box, rotation);
    const uint8_t *x = pixel(&pixels, 100, 45), *y = pixel(&pixels, 135, 80);
    assert_true(x[0] > 150 && x[1] < 100 && y[1] > 150 && y[0] < 100);
    assert_true(pixel(&pixels, 100, 30)[0] > 200 && pixel(&pixels, 100, 30)[2] < 100);
    assert_int_equal(pixel(&pixels, 60, 110)[2], 255);
    static const float wild[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, -1e9f};
    for (size_t w = 0; w < 6; w++) {
        xy[w][w % 2] = wild[w];
        tap_draw_skeleton(&pixels, xy[0]);
        const float wild_box[4] = {20, wild[w], wild[5 - w], 60};
        tap_draw_hand_box(&pixels, wild_box, rotation);
        const float wild_rotation[9] = {wild[w], 1, 0, wild[5 - w], 0, 0, wild[w], 0, 0};
        tap_draw_hand_box(&pixels, box, wild_rotation);
    }
    tap_draw_hand_box(&pixels, box, NULL);
    tap_pixels_free(&pixels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_silhouette),      cmocka_unit_test(test_normals),
        cmocka_unit_test(test_smooth),          cmocka_unit_test(test_occlusion),
        cmocka_unit_test(test_crossing),        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_nothing_outside), cmocka_unit_test(test_hidden_vertices),
        cmocka_unit_test(test_refusals),        cmocka_unit_test(test_side_view),
        cmocka_unit_test(test_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
