// The paper's four kernels on a GPU, each with global memory alone and with tiles in shared memory.
// Matrices are row-major. Two-dimensional kernels have blocks of TILE x TILE threads, a thread a
// value of the result; matrix times vector has blocks of LINE threads, a thread a row.

#define TILE 16
#define LINE 256
#define LARGEST_FILTER 7

extern "C" {

__global__ void matmul_global(int m, int n, int k, const double *a, const double *b, double *c) {
  const int i = blockIdx.y * TILE + threadIdx.y, j = blockIdx.x * TILE + threadIdx.x;
  if (i >= m || j >= k) return;
  double sum = 0;
  for (int p = 0; p < n; ++p) sum += a[(size_t)i * n + p] * b[(size_t)p * k + j];
  c[(size_t)i * k + j] = sum;
}

__global__ void matmul_shared(int m, int n, int k, const double *a, const double *b, double *c) {
  __shared__ double left[TILE][TILE], right[TILE][TILE];
  const int y = threadIdx.y, x = threadIdx.x;
  const int i = blockIdx.y * TILE + y, j = blockIdx.x * TILE + x;
  double sum = 0;
  for (int start = 0; start < n; start += TILE) {
    left[y][x] = i < m && start + x < n ? a[(size_t)i * n + start + x] : 0;
    right[y][x] = start + y < n && j < k ? b[(size_t)(start + y) * k + j] : 0;
    __syncthreads();
    for (int p = 0; p < TILE; ++p) sum += left[y][p] * right[p][x];
    __syncthreads();
  }
  if (i < m && j < k) c[(size_t)i * k + j] = sum;
}

__global__ void matvec_global(int m, int n, const double *a, const double *x, double *y) {
  const int i = blockIdx.x * LINE + threadIdx.x;
  if (i >= m) return;
  double sum = 0;
  for (int p = 0; p < n; ++p) sum += a[(size_t)i * n + p] * x[p];
  y[i] = sum;
}

__global__ void matvec_shared(int m, int n, const double *a, const double *x, double *y) {
  __shared__ double part[LINE];
  const int i = blockIdx.x * LINE + threadIdx.x;
  double sum = 0;
  for (int start = 0; start < n; start += LINE) {
    if (start + threadIdx.x < n) part[threadIdx.x] = x[start + threadIdx.x];
    __syncthreads();
    const int count = min(LINE, n - start);
    if (i < m)
      for (int p = 0; p < count; ++p) sum += a[(size_t)i * n + start + p] * part[p];
    __syncthreads();
  }
  if (i < m) y[i] = sum;
}

__global__ void convolution_global(int m, int n, int r, const double *a, const double *w,
                                   double *out) {
  const int i = blockIdx.y * TILE + threadIdx.y, j = blockIdx.x * TILE + threadIdx.x;
  const int rows = m - r + 1, columns = n - r + 1;
  if (i >= rows || j >= columns) return;
  double sum = 0;
  for (int p = 0; p < r; ++p)
    for (int q = 0; q < r; ++q) sum += a[(size_t)(i + p) * n + j + q] * w[p * r + q];
  out[(size_t)i * columns + j] = sum;
}

__global__ void convolution_shared(int m, int n, int r, const double *a, const double *w,
                                   double *out) {
  __shared__ double tile[TILE + LARGEST_FILTER - 1][TILE + LARGEST_FILTER - 1];
  __shared__ double filter[LARGEST_FILTER][LARGEST_FILTER];
  const int y = threadIdx.y, x = threadIdx.x, side = TILE + r - 1;
  const int top = blockIdx.y * TILE, left = blockIdx.x * TILE;
  if (y < r && x < r) filter[y][x] = w[y * r + x];
  for (int p = y; p < side; p += TILE)
    for (int q = x; q < side; q += TILE)
      tile[p][q] = top + p < m && left + q < n ? a[(size_t)(top + p) * n + left + q] : 0;
  __syncthreads();
  const int i = top + y, j = left + x, rows = m - r + 1, columns = n - r + 1;
  if (i >= rows || j >= columns) return;
  double sum = 0;
  for (int p = 0; p < r; ++p)
    for (int q = 0; q < r; ++q) sum += tile[y + p][x + q] * filter[p][q];
  out[(size_t)i * columns + j] = sum;
}

__global__ void pooling_global(int m, int n, int s, const double *a, double *out) {
  const int i = blockIdx.y * TILE + threadIdx.y, j = blockIdx.x * TILE + threadIdx.x;
  const int rows = (m + s - 1) / s, columns = (n + s - 1) / s;
  if (i >= rows || j >= columns) return;
  double largest = a[(size_t)i * s * n + (size_t)j * s];
  for (int p = i * s; p < min((i + 1) * s, m); ++p)
    for (int q = j * s; q < min((j + 1) * s, n); ++q)
      largest = max(largest, a[(size_t)p * n + q]);
  out[(size_t)i * columns + j] = largest;
}

// Rows of the input are read into shared memory in whole, so that neighbours share transactions.
__global__ void pooling_shared(int m, int n, int s, const double *a, double *out) {
  extern __shared__ double block[];  // TILE * s squared
  const int y = threadIdx.y, x = threadIdx.x, side = TILE * s;
  const int top = blockIdx.y * side, left = blockIdx.x * side;
  for (int p = y; p < side; p += TILE)
    for (int q = x; q < side; q += TILE)
      if (top + p < m && left + q < n)
        block[p * side + q] = a[(size_t)(top + p) * n + left + q];
  __syncthreads();
  const int i = blockIdx.y * TILE + y, j = blockIdx.x * TILE + x;
  const int rows = (m + s - 1) / s, columns = (n + s - 1) / s;
  if (i >= rows || j >= columns) return;
  double largest = block[y * s * side + x * s];
  for (int p = 0; p < min(s, m - i * s); ++p)
    for (int q = 0; q < min(s, n - j * s); ++q)
      largest = max(largest, block[(y * s + p) * side + x * s + q]);
  out[(size_t)i * columns + j] = largest;
}
}
