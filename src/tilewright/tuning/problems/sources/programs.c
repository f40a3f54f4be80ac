/* A small program with three kinds of work, for tuning a compiler's flags: floating-point
   stencils, an integer sieve, and pointer chasing through a sort. It prints the least CPU
   seconds of REPEATS runs, and a checksum. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifndef REPEATS
#define REPEATS 5
#endif
#define N 192

static double grid[2][N][N];
static unsigned char composite[1 << 18];
struct body { double x, y, vx, vy, mass; };
static struct body bodies[96];

static unsigned state;
static unsigned next_random(void) { return state = state * 1664525u + 1013904223u; }

static double stencil(int steps) {
    for (int s = 0; s < steps; s++)
        for (int i = 1; i < N - 1; i++)
            for (int j = 1; j < N - 1; j++)
                grid[1 - s % 2][i][j] = 0.25 * (grid[s % 2][i - 1][j] + grid[s % 2][i + 1][j]
                                                + grid[s % 2][i][j - 1] + grid[s % 2][i][j + 1]);
    return grid[0][N / 2][N / 2];
}

static int sieve(void) {
    int found = 0, size = sizeof composite;
    for (int i = 0; i < size; i++) composite[i] = 0;
    for (int i = 2; i < size; i++) {
        if (composite[i]) continue;
        found++;
        for (int j = 2 * i; j < size; j += i) composite[j] = 1;
    }
    return found;
}

static double forces(int steps) {
    int n = sizeof bodies / sizeof bodies[0];
    double energy = 0;
    for (int s = 0; s < steps; s++) {
        for (int i = 0; i < n; i++) {
            double ax = 0, ay = 0;
            for (int j = 0; j < n; j++) {
                double dx = bodies[j].x - bodies[i].x, dy = bodies[j].y - bodies[i].y;
                double d = dx * dx + dy * dy + 0.01, inverse = 1.0 / (d * sqrt(d));
                ax += bodies[j].mass * dx * inverse;
                ay += bodies[j].mass * dy * inverse;
            }
            bodies[i].vx += 1e-5 * ax;
            bodies[i].vy += 1e-5 * ay;
        }
        for (int i = 0; i < n; i++) {
            bodies[i].x += bodies[i].vx;
            bodies[i].y += bodies[i].vy;
        }
    }
    for (int i = 0; i < n; i++) energy += bodies[i].vx * bodies[i].vx + bodies[i].vy * bodies[i].vy;
    return energy;
}

static int before(const void *a, const void *b) {
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return (x > y) - (x < y);
}

static unsigned sorted(void) {
    static unsigned items[1 << 13];
    int n = sizeof items / sizeof items[0];
    for (int i = 0; i < n; i++) items[i] = next_random();
    qsort(items, n, sizeof items[0], before);
    return items[n / 2] >> 8;
}

int main(void) {
    double best = 1e30, sum = 0;
    for (int r = 0; r < REPEATS; r++) {
        state = 1;
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) grid[0][i][j] = grid[1][i][j] = next_random() / 4294967296.0;
        for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
            struct body b = {next_random() / 4294967296.0, next_random() / 4294967296.0, 0, 0, 1};
            bodies[i] = b;
        }
        clock_t start = clock();
        sum = stencil(12) + sieve() + forces(12) + sorted();
        double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        if (seconds < best) best = seconds;
    }
    printf("%.6e %.9e\n", best, sum);
    return 0;
}
