/* Does it behave? Pictures and their warped copies under the real weights: the figures that the
 * reference reached, and the gates that tell a right program from wrong ones (transposed kernels,
 * columns for rows, x for y, a forgotten bias), by the reference data's README, last section. */
#include "models/network.h"

#include <math.h>

#define EVAL "golden/superpoint/eval/"

enum { LIMIT = 500, N_PHOTOS = 3, N_WARPS = 3 };

static const double reach = 3; /* pixels */

static const char *const photos[N_PHOTOS][2] = {{"china.jpg", "netin_china_jpg.png"},
                                                {"coffee.png", "netin_coffee_png.png"},
                                                {"rocket.jpg", "netin_rocket_jpg.png"}};
static const char *const warps[N_WARPS] = {"tiny", "mild", "medium"};

/* ---- geometry ------------------------------------------------------------------------------ */

struct homography {
    double m[9];
};

struct place {
    double x, y;
};

static struct place map_place(const struct homography *h, double x, double y)
{
    const double *m = h->m;
    double w = m[6] * x + m[7] * y + m[8];
    return (struct place){(m[0] * x + m[1] * y + m[2]) / w, (m[3] * x + m[4] * y + m[5]) / w};
}

/* The adjugate: a homography's scale is free. */
static struct homography inverse(const struct homography *h)
{
    const double *m = h->m;
    return (struct homography){
        {m[4] * m[8] - m[5] * m[7], m[2] * m[7] - m[1] * m[8], m[1] * m[5] - m[2] * m[4],
         m[5] * m[6] - m[3] * m[8], m[0] * m[8] - m[2] * m[6], m[2] * m[3] - m[0] * m[5],
         m[3] * m[7] - m[4] * m[6], m[1] * m[6] - m[0] * m[7], m[0] * m[4] - m[1] * m[3]}};
}

static double pixel(const uint8_t *plane, double x, double y)
{
    bool inside = x >= 0 && x < WIDTH && y >= 0 && y < HEIGHT;
    return inside ? plane[(size_t)y * WIDTH + (size_t)x] : 0;
}

static void warp_plane(uint8_t *to, const uint8_t *from, const struct homography *h)
{
    struct homography back = inverse(h);
    for (size_t i = 0; i < N_PIXELS; i++) {
        struct place p = map_place(&back, (double)(i % WIDTH), (double)(i / WIDTH));
        double x = floor(p.x), y = floor(p.y), u = p.x - x, v = p.y - y;
        double value = (pixel(from, x, y) * (1 - u) + pixel(from, x + 1, y) * u) * (1 - v) +
                       (pixel(from, x, y + 1) * (1 - u) + pixel(from, x + 1, y + 1) * u) * v;
        to[i] = (uint8_t)floor(value + 0.5);
    }
}

/* ---- one picture's points ------------------------------------------------------------------ */

struct view {
    size_t n;
    tap_point points[LIMIT];
    float *rows; /* [n][dim] */
};

static void look(struct view *view, struct network *network, const uint8_t *plane)
{
    tap_superpoint_options options = network_defaults;
    options.max_keypoints = LIMIT;
    network_set_input(network, plane);
    network_run(network);
    const tap_point *points = network_points(network, &options, &view->n);
    memcpy(view->points, points, view->n * sizeof *points);
    view->rows = network_descriptors(network, view->points, view->n);
}

/* What of `from` is seen in the other picture, and where. */
struct covisible {
    size_t n, which[LIMIT];
    struct place there[LIMIT];
};

static struct covisible find_covisible(const struct view *from, const struct homography *h)
{
    struct covisible seen = {0};
    for (size_t i = 0; i < from->n; i++) {
        struct place p = map_place(h, from->points[i].x, from->points[i].y);
        if (p.x < 4 || p.x >= WIDTH - 4 || p.y < 4 || p.y >= HEIGHT - 4)
            continue;
        seen.which[seen.n] = i;
        seen.there[seen.n++] = p;
    }
    return seen;
}

static bool is_near(struct place place, const tap_point *point)
{
    return hypot(place.x - point->x, place.y - point->y) <= reach;
}

/* How many covisible points of either picture have one of the other within reach. Both distances
 * are taken in b's frame, as the reference takes them. */
static size_t count_repeated(const struct covisible *in_a, const struct view *b,
                             const struct covisible *in_b)
{
    static bool near_a[LIMIT], near_b[LIMIT];
    size_t n = 0;
    memset(near_a, 0, sizeof near_a);
    memset(near_b, 0, sizeof near_b);
    for (size_t i = 0; i < in_a->n; i++)
        for (size_t k = 0; k < in_b->n; k++)
            if (is_near(in_a->there[i], &b->points[in_b->which[k]]))
                near_a[i] = near_b[k] = true;
    for (size_t i = 0; i < LIMIT; i++)
        n += (size_t)near_a[i] + (size_t)near_b[i];
    return n;
}

/* ---- a pair -------------------------------------------------------------------------------- */

struct figures {
    double covisible[2], repeatability, matches, inliers;
};

static double dot(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static size_t match_views(tap_match_pair *pairs, const struct view *a, const struct covisible *in_a,
                          const struct view *b, const struct covisible *in_b, size_t dim)
{
    tap_match_options options = {.size = sizeof options, .min_similarity = -1};
    float *similarity = malloc((in_a->n * in_b->n + 1) * sizeof *similarity);
    void *scratch = malloc(16 * (in_a->n + in_b->n) + 1);
    assert_true(similarity != NULL && scratch != NULL);
    for (size_t i = 0; i < in_a->n; i++)
        for (size_t j = 0; j < in_b->n; j++)
            similarity[i * in_b->n + j] =
                (float)dot(a->rows + in_a->which[i] * dim, b->rows + in_b->which[j] * dim, dim);
    size_t n = tap_match_mutual(pairs, similarity, in_a->n, in_b->n, &options, scratch);
    free(similarity);
    free(scratch);
    return n;
}

static struct figures judge(const struct view *a, const struct view *b, const struct homography *h,
                            size_t dim)
{
    static tap_match_pair pairs[LIMIT];
    struct homography back = inverse(h);
    struct covisible in_a = find_covisible(a, h), in_b = find_covisible(b, &back);
    size_t repeated = count_repeated(&in_a, b, &in_b);
    size_t n = match_views(pairs, a, &in_a, b, &in_b, dim), inliers = 0;
    for (size_t i = 0; i < n; i++)
        inliers += is_near(in_a.there[pairs[i].a], &b->points[in_b.which[pairs[i].b]]);
    return (struct figures){.covisible = {(double)in_a.n, (double)in_b.n},
                            .repeatability = (double)repeated / (double)(in_a.n + in_b.n),
                            .matches = (double)n,
                            .inliers = (double)inliers / (double)n};
}

static void assert_near(const char *photo, const char *what, double found, double wanted,
                        double tolerance)
{
    if (!(fabs(found - wanted) <= tolerance))
        fail_msg("%s: %s is %g, expected %g +- %g", photo, what, found, wanted, tolerance);
}

/* The reference's own figures. Rounding may move a point or two across a bound. */
static void check_figures(const char *photo, const struct figures *found, json_object *wanted)
{
    assert_near(photo, "covisible points", found->covisible[0], json_number(wanted, "n0"), 2);
    assert_near(photo, "covisible points of the copy", found->covisible[1],
                json_number(wanted, "n1"), 2);
    assert_near(photo, "repeatability", found->repeatability, json_number(wanted, "rep"), 0.01);
    assert_near(photo, "matches", found->matches, json_number(wanted, "matches"), 4);
    assert_near(photo, "inliers", found->inliers, json_number(wanted, "inl"), 0.02);
}

static struct homography read_homography(json_object *rows)
{
    struct homography h;
    for (size_t i = 0; i < 9; i++)
        h.m[i] = json_object_get_double(
            json_object_array_get_idx(json_object_array_get_idx(rows, i / 3), i % 3));
    return h;
}

static void pictures_and_their_warped_copies_match(void **state)
{
    (void)state;
    static uint8_t plane[N_PIXELS], warped[N_PIXELS];
    static struct view view, copy;
    struct network network;
    struct figures mean = {{0}, 0, 0, 0};
    size_t n_photos = pictures_to_see(N_PHOTOS), n_warps = pictures_to_see(N_WARPS);
    char path[512], name[128];
    json_object *homographies = load_json(shared_path(path, sizeof path, EVAL "homographies.json"));
    json_object *expected = load_json(shared_path(path, sizeof path, EVAL "expected.json"));
    network_open(&network, shared_path(path, sizeof path, "weights/superpoint/model.safetensors"),
                 false);
    for (size_t i = 0; i < n_photos; i++) {
        snprintf(name, sizeof name, "golden/superpoint/inputs/%s", photos[i][1]);
        load_plane(plane, shared_path(path, sizeof path, name));
        look(&view, &network, plane);
        for (size_t k = 0; k < n_warps; k++) {
            struct homography h =
                read_homography(json_at(json_at(homographies, photos[i][0]), warps[k]));
            warp_plane(warped, plane, &h);
            look(&copy, &network, warped);
            struct figures f = judge(&view, &copy, &h, network.dim);
            free(copy.rows);
            check_figures(photos[i][0], &f,
                          json_at(json_at(json_at(expected, photos[i][0]), warps[k]), "sp"));
            mean.repeatability += f.repeatability / (double)(n_photos * n_warps);
            mean.inliers += f.inliers / (double)(n_photos * n_warps);
            mean.covisible[0] += f.covisible[0] / (double)(n_photos * n_warps);
        }
        free(view.rows);
    }
    printf("repeatability %.3f, inliers %.3f, %.0f covisible points\n", mean.repeatability,
           mean.inliers, mean.covisible[0]);
    assert_true(mean.repeatability >= 0.77);
    assert_true(mean.inliers >= 0.89);
    assert_true(mean.covisible[0] >= 200 && mean.covisible[0] <= 270);
    network_close(&network);
    json_object_put(homographies);
    json_object_put(expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_and_their_warped_copies_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
