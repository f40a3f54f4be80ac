// The paper's four kernels with Eigen, dense and sparse, in as many threads as are asked for.
#include "dense_sparse.h"

#include <Eigen/Dense>
#include <Eigen/Sparse>
#include <algorithm>

using Eigen::Index;
using Dense = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Vector = Eigen::VectorXd;
using Sparse = Eigen::SparseMatrix<double, Eigen::RowMajor, std::int32_t>;
using DenseView = Eigen::Map<const Dense>;
using VectorView = Eigen::Map<const Vector>;
using SparseView = Eigen::Map<const Sparse>;

static SparseView view(const Csr &a) {
  return SparseView(a.rows, a.columns, a.count, a.starts, a.indices, a.values);
}

extern "C" {

const char *tw_version() {
  static const char text[] = {'0' + EIGEN_WORLD_VERSION, '.', '0' + EIGEN_MAJOR_VERSION, '.',
                              '0' + EIGEN_MINOR_VERSION, 0};
  return text;
}

void matmul_dense(int m, int n, int k, const double *a, const double *b, double *c, int threads) {
  Eigen::setNbThreads(threads);
  Eigen::Map<Dense>(c, m, k).noalias() = DenseView(a, m, n) * DenseView(b, n, k);
}

// The product stays here until `sparse_take` has copied it.
void *matmul_sparse(const Csr *a, const Csr *b, int threads) {
  Eigen::setNbThreads(threads);
  Sparse *c = new Sparse(a->rows, b->columns);
  *c = view(*a) * view(*b);
  c->makeCompressed();
  return c;
}

int sparse_count(void *c) { return static_cast<int>(static_cast<Sparse *>(c)->nonZeros()); }

void sparse_take(void *handle, std::int32_t *starts, std::int32_t *indices, double *values) {
  Sparse *c = static_cast<Sparse *>(handle);
  std::copy_n(c->outerIndexPtr(), c->rows() + 1, starts);
  std::copy_n(c->innerIndexPtr(), c->nonZeros(), indices);
  std::copy_n(c->valuePtr(), c->nonZeros(), values);
  delete c;
}

void matvec_dense(int m, int n, const double *a, const double *x, double *y, int threads) {
  Eigen::setNbThreads(threads);
  Eigen::Map<Vector>(y, m).noalias() = DenseView(a, m, n) * VectorView(x, n);
}

void matvec_sparse(const Csr *a, const double *x, double *y, int threads) {
  Eigen::setNbThreads(threads);
  Eigen::Map<Vector>(y, a->rows).noalias() = view(*a) * VectorView(x, a->columns);
}

void convolution_dense(int m, int n, int r, const double *a, const double *w, double *out,
                       int threads) {
  DenseView input(a, m, n), filter(w, r, r);
  Eigen::Map<Dense> result(out, m - r + 1, n - r + 1);
#pragma omp parallel for num_threads(threads)
  for (Index i = 0; i < result.rows(); ++i)
    for (Index j = 0; j < result.cols(); ++j)
      result(i, j) = input.block(i, j, r, r).cwiseProduct(filter).sum();
}

// A thread has its own rows of the result and goes over the rows of the input that reach them.
void convolution_sparse(const Csr *a, int r, const double *w, double *out, int threads) {
  SparseView input = view(*a);
  DenseView filter(w, r, r);
  Eigen::Map<Dense> result(out, a->rows - r + 1, a->columns - r + 1);
#pragma omp parallel for num_threads(threads)
  for (Index i = 0; i < result.rows(); ++i) {
    result.row(i).setZero();
    for (Index p = 0; p < r; ++p)
      for (SparseView::InnerIterator it(input, i + p); it; ++it) {
        const Index low = std::max<Index>(0, it.col() - (result.cols() - 1));
        const Index high = std::min<Index>(r - 1, it.col());
        for (Index q = low; q <= high; ++q) result(i, it.col() - q) += it.value() * filter(p, q);
      }
  }
}

void pooling_dense(int m, int n, int s, const double *a, double *out, int threads) {
  DenseView input(a, m, n);
  Eigen::Map<Dense> result(out, (m + s - 1) / s, (n + s - 1) / s);
#pragma omp parallel for num_threads(threads)
  for (Index i = 0; i < result.rows(); ++i)
    for (Index j = 0; j < result.cols(); ++j)
      result(i, j) = input
                         .block(i * s, j * s, std::min<Index>(s, m - i * s),
                                std::min<Index>(s, n - j * s))
                         .maxCoeff();
}

void pooling_sparse(const Csr *a, int s, double *out, int threads) {
  SparseView input = view(*a);
  Eigen::Map<Dense> result(out, (a->rows + s - 1) / s, (a->columns + s - 1) / s);
#pragma omp parallel for num_threads(threads)
  for (Index i = 0; i < result.rows(); ++i) {
    result.row(i).setZero();
    for (Index p = i * s; p < std::min<Index>((i + 1) * s, a->rows); ++p)
      for (SparseView::InnerIterator it(input, p); it; ++it) {
        double &largest = result(i, it.col() / s);
        largest = std::max(largest, it.value());
      }
  }
}
}
