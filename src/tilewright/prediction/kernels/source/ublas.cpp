// The paper's four kernels with Boost uBLAS, dense and sparse, in one thread.
#define BOOST_UBLAS_NDEBUG 1
#define BOOST_UBLAS_SHALLOW_ARRAY_ADAPTOR
#include "dense_sparse.h"

#include <algorithm>
#include <boost/numeric/ublas/matrix.hpp>
#include <boost/numeric/ublas/matrix_proxy.hpp>
#include <boost/numeric/ublas/matrix_sparse.hpp>
#include <boost/numeric/ublas/operation.hpp>
#include <boost/numeric/ublas/operation_sparse.hpp>
#include <boost/numeric/ublas/vector.hpp>
#include <boost/version.hpp>

namespace ublas = boost::numeric::ublas;
using Memory = ublas::shallow_array_adaptor<double>;
using Dense = ublas::matrix<double, ublas::row_major, Memory>;
using Vector = ublas::vector<double, Memory>;
using Sparse = ublas::compressed_matrix<double, ublas::row_major>;

static Dense view(const double *values, int rows, int columns) {
  const std::size_t size = static_cast<std::size_t>(rows) * columns;
  return Dense(rows, columns, Memory(size, const_cast<double *>(values)));
}

static Vector view(const double *values, int size) {
  return Vector(size, Memory(size, const_cast<double *>(values)));
}

static const Sparse &sparse(const void *handle) { return *static_cast<const Sparse *>(handle); }

extern "C" {

const char *tw_version() { return BOOST_LIB_VERSION; }

void *sparse_make(const Csr *a) {
  Sparse *made = new Sparse(a->rows, a->columns, a->count);
  for (int i = 0; i < a->rows; ++i)
    for (int e = a->starts[i]; e < a->starts[i + 1]; ++e)
      made->push_back(i, a->indices[e], a->values[e]);
  made->complete_index1_data();
  return made;
}

void sparse_free(void *handle) { delete static_cast<Sparse *>(handle); }

int sparse_count(void *handle) { return static_cast<int>(sparse(handle).nnz()); }

void sparse_take(void *handle, std::int32_t *starts, std::int32_t *indices, double *values) {
  Sparse *c = static_cast<Sparse *>(handle);
  c->complete_index1_data();
  std::copy_n(c->index1_data().begin(), c->size1() + 1, starts);
  std::copy_n(c->index2_data().begin(), c->nnz(), indices);
  std::copy_n(c->value_data().begin(), c->nnz(), values);
  delete c;
}

void matmul_dense(int m, int n, int k, const double *a, const double *b, double *c, int) {
  const Dense left = view(a, m, n), right = view(b, n, k);
  Dense result = view(c, m, k);
  ublas::noalias(result) = ublas::prod(left, right);
}

void *matmul_sparse(const void *a, const void *b, int) {
  Sparse *c = new Sparse(sparse(a).size1(), sparse(b).size2());
  ublas::sparse_prod(sparse(a), sparse(b), *c);
  return c;
}

void matvec_dense(int m, int n, const double *a, const double *x, double *y, int) {
  const Dense left = view(a, m, n);
  const Vector right = view(x, n);
  Vector result = view(y, m);
  ublas::noalias(result) = ublas::prod(left, right);
}

void matvec_sparse(const void *a, const double *x, double *y, int) {
  const Vector right = view(x, static_cast<int>(sparse(a).size2()));
  Vector result = view(y, static_cast<int>(sparse(a).size1()));
  ublas::axpy_prod(sparse(a), right, result, true);
}

void convolution_dense(int m, int n, int r, const double *a, const double *w, double *out, int) {
  const Dense input = view(a, m, n), filter = view(w, r, r);
  Dense result = view(out, m - r + 1, n - r + 1);
  for (int i = 0; i + r <= m; ++i)
    for (int j = 0; j + r <= n; ++j) {
      const auto window =
          ublas::project(input, ublas::range(i, i + r), ublas::range(j, j + r));
      double sum = 0;
      for (int p = 0; p < r; ++p)
        sum += ublas::inner_prod(ublas::row(window, p), ublas::row(filter, p));
      result(i, j) = sum;
    }
}

void convolution_sparse(const void *a, int r, const double *w, double *out, int) {
  const Sparse &input = sparse(a);
  const int rows = static_cast<int>(input.size1()) - r + 1;
  const int columns = static_cast<int>(input.size2()) - r + 1;
  const Dense filter = view(w, r, r);
  Dense result = view(out, rows, columns);
  result.clear();
  for (auto line = input.begin1(); line != input.end1(); ++line)
    for (auto entry = line.begin(); entry != line.end(); ++entry) {
      const int i = static_cast<int>(entry.index1()), j = static_cast<int>(entry.index2());
      for (int p = std::max(0, i - rows + 1); p <= std::min(r - 1, i); ++p)
        for (int q = std::max(0, j - columns + 1); q <= std::min(r - 1, j); ++q)
          result(i - p, j - q) += *entry * filter(p, q);
    }
}

void pooling_dense(int m, int n, int s, const double *a, double *out, int) {
  const Dense input = view(a, m, n);
  Dense result = view(out, (m + s - 1) / s, (n + s - 1) / s);
  for (std::size_t i = 0; i < result.size1(); ++i)
    for (std::size_t j = 0; j < result.size2(); ++j) {
      const auto window = ublas::project(input, ublas::range(i * s, std::min<int>((i + 1) * s, m)),
                                         ublas::range(j * s, std::min<int>((j + 1) * s, n)));
      double largest = window(0, 0);
      for (std::size_t p = 0; p < window.size1(); ++p)
        for (std::size_t q = 0; q < window.size2(); ++q)
          largest = std::max(largest, window(p, q));
      result(i, j) = largest;
    }
}

void pooling_sparse(const void *a, int s, double *out, int) {
  const Sparse &input = sparse(a);
  const int rows = (static_cast<int>(input.size1()) + s - 1) / s;
  const int columns = (static_cast<int>(input.size2()) + s - 1) / s;
  Dense result = view(out, rows, columns);
  result.clear();
  for (auto line = input.begin1(); line != input.end1(); ++line)
    for (auto entry = line.begin(); entry != line.end(); ++entry) {
      double &largest = result(entry.index1() / s, entry.index2() / s);
      largest = std::max(largest, static_cast<double>(*entry));
    }
}
}
