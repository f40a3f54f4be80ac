/* Lift's eight stencils as loops that a person would write first; rows x columns of results.

   Compiled with `gcc -O3 -march=native`, and with -fopenmp for two threads: then the rows are
   shared out. Weights and formulas are those of tilewright.patterns.programs.stencils. */
#include <math.h>

#define ROWS _Pragma("omp parallel for num_threads(threads)") for (long y = 0; y < n; y++)
#define COLUMNS for (long x = 0; x < m; x++)
#define SIGNATURE long n, long m, int threads

static inline long clamp(long i, long n) { return i < 0 ? 0 : i < n ? i : n - 1; }

void stencil2d(const float *restrict A, float *restrict out, SIGNATURE) {
  static const float w[9] = {0.05f, 0.15f, 0.05f, 0.15f, 0.25f, 0.15f, 0.05f, 0.15f, 0.05f};
  ROWS COLUMNS {
    float sum = 0;
    for (int i = 0; i < 3; i++)
      for (int j = 0; j < 3; j++) sum += w[3 * i + j] * A[(y + i) * (m + 2) + x + j];
    out[y * m + x] = sum;
  }
}

void srad1(const float *restrict I, float *restrict out, SIGNATURE) {
  const float q0 = 0.053787220269f;
  ROWS COLUMNS {
    float c = I[y * m + x];
    float dn = I[clamp(y - 1, n) * m + x] - c, ds = I[clamp(y + 1, n) * m + x] - c;
    float dw = I[y * m + clamp(x - 1, m)] - c, de = I[y * m + clamp(x + 1, m)] - c;
    float g = (dn * dn + ds * ds + dw * dw + de * de) / (c * c);
    float l = (dn + ds + dw + de) / c;
    float top = 0.5f * g - l * l / 16, bottom = 1 + 0.25f * l;
    float q = top / (bottom * bottom);
    float d = (q - q0) / (q0 * (1 + q0));
    float k = 1 / (1 + d);
    out[y * m + x] = k < 0 ? 0 : k > 1 ? 1 : k;
  }
}

void srad2(const float *restrict I, const float *restrict K, const float *restrict dN,
           const float *restrict dS, const float *restrict dW, const float *restrict dE,
           float *restrict out, SIGNATURE) {
  ROWS COLUMNS {
    long i = y * m + x;
    float south = K[clamp(y + 1, n) * m + x], east = K[y * m + clamp(x + 1, m)];
    out[i] = I[i] + 0.125f * (K[i] * dN[i] + south * dS[i] + K[i] * dW[i] + east * dE[i]);
  }
}

void hotspot(const float *restrict T, const float *restrict P, float *restrict out, SIGNATURE) {
  ROWS COLUMNS {
    long i = y * m + x;
    float c = T[i];
    float v = (T[clamp(y - 1, n) * m + x] + T[clamp(y + 1, n) * m + x] - 2 * c) * 0.1f;
    float h = (T[y * m + clamp(x + 1, m)] + T[y * m + clamp(x - 1, m)] - 2 * c) * 0.1f;
    out[i] = c + 1.365333f * (P[i] + v + h + (80.0f - c) * 4.882813e-5f);
  }
}

void gradient(const float *restrict A, float *restrict out, SIGNATURE) {
  ROWS COLUMNS {
    const float *a = A + (y + 1) * (m + 2) + x + 1;
    float c = a[0];
    float dn = c - a[-(m + 2)], ds = c - a[m + 2], dw = c - a[-1], de = c - a[1];
    out[y * m + x] = c + 1 / sqrtf(1e-4f + (dn * dn + ds * ds + dw * dw + de * de));
  }
}

void jacobi5(const float *restrict A, float *restrict out, SIGNATURE) {
  ROWS COLUMNS {
    const float *a = A + (y + 1) * (m + 2) + x + 1;
    out[y * m + x] =
        (5 * a[-(m + 2)] + 12 * a[-1] + 15 * a[0] + 12 * a[1] + 5 * a[m + 2]) / 118;
  }
}

void jacobi9(const float *restrict A, float *restrict out, SIGNATURE) {
  ROWS COLUMNS {
    const float *a = A + y * (m + 2) + x, *b = a + m + 2, *c = b + m + 2;
    out[y * m + x] = (7 * a[0] + 5 * a[1] + 9 * a[2] + 12 * b[0] + 15 * b[1] + 12 * b[2] +
                      9 * c[0] + 5 * c[1] + 7 * c[2]) / 118;
  }
}

void gaussian(const float *restrict A, float *restrict out, SIGNATURE) {
  static const float w[25] = {2, 4, 5, 4, 2, 4, 9, 12, 9, 4, 5, 12, 15,
                              12, 5, 4, 9, 12, 9, 4, 2, 4, 5, 4, 2};
  ROWS COLUMNS {
    float sum = 0;
    for (int i = 0; i < 5; i++)
      for (int j = 0; j < 5; j++) sum += w[5 * i + j] * A[(y + i) * (m + 4) + x + j];
    out[y * m + x] = sum / 159;
  }
}
