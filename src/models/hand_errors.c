/* hand_errors: how far predicted points are from the true ones, as the field reports it. */
#include "hand.h"

#include <math.h>

struct point {
    double at[3];
};

static struct point read_point(const float *xyz)
{
    return (struct point){{(double)xyz[0], (double)xyz[1], (double)xyz[2]}};
}

static struct point centre(const float *points, size_t n)
{
    struct point sum = {{0, 0, 0}};
    for (size_t i = 0; i < 3 * n; i++)
        sum.at[i % 3] += (double)points[i] / (double)n;
    return sum;
}

/* Where symmetric a [4][4] is diagonal, in place, by Jacobi's rotations; their product's columns
 * are the eigenvectors. It converges quadratically: ten sweeps are more than enough. */
static void diagonalize(double a[4][4], double vectors[4][4])
{
    enum { SWEEPS = 30 };
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            vectors[i][j] = i == j;
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int p = 0; p < 3; p++)
            for (int q = p + 1; q < 4; q++) {
                if (a[p][q] == 0)
                    continue;
                double theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
                double t = (theta >= 0 ? 1 : -1) / (fabs(theta) + sqrt(theta * theta + 1));
                double c = 1 / sqrt(t * t + 1), s = t * c;
                for (int k = 0; k < 4; k++) {
                    double kp = a[k][p], kq = a[k][q];
                    a[k][p] = c * kp - s * kq;
                    a[k][q] = s * kp + c * kq;
                }
                for (int k = 0; k < 4; k++) {
                    double pk = a[p][k], qk = a[q][k];
                    a[p][k] = c * pk - s * qk;
                    a[q][k] = s * pk + c * qk;
                }
                for (int k = 0; k < 4; k++) {
                    double kp = vectors[k][p], kq = vectors[k][q];
                    vectors[k][p] = c * kp - s * kq;
                    vectors[k][q] = s * kp + c * kq;
                }
            }
}

/* The rotation that brings centred x nearest to centred y, from K = sum of x y^T: the quaternion
 * that is the eigenvector of Horn's matrix with the greatest eigenvalue. */
static void best_rotation(double rotation[3][3], const double k[3][3])
{
    double n[4][4] = {
        {k[0][0] + k[1][1] + k[2][2], k[1][2] - k[2][1], k[2][0] - k[0][2], k[0][1] - k[1][0]},
        {0, k[0][0] - k[1][1] - k[2][2], k[0][1] + k[1][0], k[2][0] + k[0][2]},
        {0, 0, k[1][1] - k[0][0] - k[2][2], k[1][2] + k[2][1]},
        {0, 0, 0, k[2][2] - k[0][0] - k[1][1]}};
    double vectors[4][4];
    int best = 0;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++)
            n[i][j] = n[j][i];
    diagonalize(n, vectors);
    for (int i = 1; i < 4; i++)
        if (n[i][i] > n[best][best])
            best = i;
    double w = vectors[0][best], x = vectors[1][best], y = vectors[2][best], z = vectors[3][best];
    const double r[3][3] = {
        {w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)},
        {2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)},
        {2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z}};
    for (int i = 0; i < 9; i++)
        rotation[i / 3][i % 3] = r[i / 3][i % 3];
}

static double distance(const struct point *a, const struct point *b)
{
    double sum = 0;
    for (int i = 0; i < 3; i++)
        sum += (a->at[i] - b->at[i]) * (a->at[i] - b->at[i]);
    return sqrt(sum);
}

/* scale R (x - centre of x) + centre of y; scale = tr(R K) / sum |x|^2. */
static double fit(const float *predicted, const float *truth, size_t n)
{
    struct point from = centre(predicted, n), to = centre(truth, n);
    double k[3][3] = {{0}}, rotation[3][3], spread = 0, trace = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        struct point x = read_point(predicted + 3 * i), y = read_point(truth + 3 * i);
        for (int r = 0; r < 3; r++)
            for (int c = 0; c < 3; c++)
                k[r][c] += (x.at[r] - from.at[r]) * (y.at[c] - to.at[c]);
        spread += distance(&x, &from) * distance(&x, &from);
    }
    best_rotation(rotation, (const double(*)[3])k);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            trace += rotation[i][j] * k[j][i];
    double scale = spread > 0 ? trace / spread : 0; /* one point many times: only the shift */
    for (size_t i = 0; i < n; i++) {
        struct point x = read_point(predicted + 3 * i), y = read_point(truth + 3 * i);
        struct point moved = to;
        for (int r = 0; r < 3; r++)
            for (int c = 0; c < 3; c++)
                moved.at[r] += scale * rotation[r][c] * (x.at[c] - from.at[c]);
        sum += distance(&moved, &y);
    }
    return sum / (double)n;
}

void tap_hand_distances(double *aligned, double *fitted, const float *predicted, const float *truth,
                        size_t n)
{
    struct point root = read_point(predicted), true_root = read_point(truth);
    *aligned = 0;
    for (size_t i = 0; i < n; i++) {
        struct point x = read_point(predicted + 3 * i), y = read_point(truth + 3 * i);
        for (int c = 0; c < 3; c++)
            x.at[c] += true_root.at[c] - root.at[c];
        *aligned += distance(&x, &y) / (double)n;
    }
    *fitted = fit(predicted, truth, n);
}
