/* A factorisation and a stencil in double precision. */
#include <math.h>
#include <stddef.h>

#define AT(m, i, j) (m)[(size_t)(i) * (size_t)n + (size_t)(j)]

int factorise(int n, double *a, int *pivots)
{
    for (int k = 0; k < n; k++) {
        int p = k;
        for (int i = k + 1; i < n; i++)
            if (fabs(AT(a, i, k)) > fabs(AT(a, p, k))) p = i;
        pivots[k] = p;
        if (AT(a, p, k) == 0) return k + 1;
        if (p != k)
            for (int j = 0; j < n; j++) {
                double t = AT(a, k, j);
                AT(a, k, j) = AT(a, p, j);
                AT(a, p, j) = t;
            }
        for (int i = k + 1; i < n; i++) {
            double f = AT(a, i, k) /= AT(a, k, k);
            for (int j = k + 1; j < n; j++) AT(a, i, j) -= f * AT(a, k, j);
        }
    }
    return 0;
}

double relax(int n, double *restrict to, const double *restrict from)
{
    double change = 0;
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < n - 1; j++) {
            double around = AT(from, i - 1, j) + AT(from, i + 1, j);
            around += AT(from, i, j - 1) + AT(from, i, j + 1);
            AT(to, i, j) = 0.2 * (AT(from, i, j) + around);
            change += (AT(to, i, j) - AT(from, i, j)) * (AT(to, i, j) - AT(from, i, j));
        }
    return sqrt(change);
}
