/* Transposes a matrix in tiles of ROWS x COLUMNS, which are set when it is compiled, checks the
   result, and prints the least seconds of a few runs as JSON.

   Usage: tilewright tune examples/transpose/problem.toml */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SIZE = 1024, RUNS = 5 };

static float from[SIZE][SIZE], to[SIZE][SIZE];

static void transpose(void) {
    for (int i = 0; i < SIZE; i += ROWS)
        for (int j = 0; j < SIZE; j += COLUMNS)
            for (int y = i; y < i + ROWS; y++)
                for (int x = j; x < j + COLUMNS; x++)
                    to[x][y] = from[y][x];
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(void) {
    for (int i = 0; i < SIZE; i++)
        for (int j = 0; j < SIZE; j++)
            from[i][j] = (float)(i * SIZE + j);
    double best = 1e9;
    for (int run = 0; run < RUNS; run++) {
        const double start = now();
        transpose();
        const double seconds = now() - start;
        best = seconds < best ? seconds : best;
    }
    for (int i = 0; i < SIZE; i++)
        for (int j = 0; j < SIZE; j++)
            if (to[j][i] != from[i][j]) {
                fprintf(stderr, "element %d, %d is wrong\n", j, i);
                return EXIT_FAILURE;
            }
    printf("{\"seconds\": %.9f}\n", best);
    return EXIT_SUCCESS;
}
