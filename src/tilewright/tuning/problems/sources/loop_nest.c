/* A tiled matrix product whose tiles, loop order, unrolling and OpenMP schedule are tuned.
   Its arguments are the three tile sizes; -DORDER=0..5 is the order of the loops over i, j, k
   inside a tile (lexicographic), -DUNROLL the innermost loop's unrolling; OMP_SCHEDULE decides
   the schedule. It prints the least wall seconds of REPEATS runs, and a checksum. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef REPEATS
#define REPEATS 5
#endif
#define N 240
#define LEAST(a, b) ((a) < (b) ? (a) : (b))
#define I for (int i = ii; i < LEAST(ii + ti, N); i++)
#define J for (int j = jj; j < LEAST(jj + tj, N); j++)
#define K for (int k = kk; k < LEAST(kk + tk, N); k++)
#define TEXT(x) #x
#define PRAGMA(x) _Pragma(TEXT(x))
#define INNER PRAGMA(GCC unroll UNROLL)

static float a[N][N], b[N][N], c[N][N];

static void product(int ti, int tj, int tk) {
#pragma omp parallel for schedule(runtime)
    for (int ii = 0; ii < N; ii += ti)
        for (int jj = 0; jj < N; jj += tj)
            for (int kk = 0; kk < N; kk += tk)
#if ORDER == 0
                I J INNER K
#elif ORDER == 1
                I K INNER J
#elif ORDER == 2
                J I INNER K
#elif ORDER == 3
                J K INNER I
#elif ORDER == 4
                K I INNER J
#else
                K J INNER I
#endif
                    c[i][j] += a[i][k] * b[k][j];
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    double best = 1e30, sum = 0;
    for (int r = 0; r < REPEATS; r++) {
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                a[i][j] = (float)((i * 7 + j * 3) % 11);
                b[i][j] = (float)((i * 5 + j * 2) % 13);
                c[i][j] = 0;
            }
        double start = omp_get_wtime();
        product(atoi(arguments[1]), atoi(arguments[2]), atoi(arguments[3]));
        double seconds = omp_get_wtime() - start;
        if (seconds < best) best = seconds;
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) sum += c[i][j] * (1 + (i + j) % 3);
    printf("%.6e %.9e\n", best, sum);
    return 0;
}
