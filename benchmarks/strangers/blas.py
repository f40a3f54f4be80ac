"""The three levels of BLAS (Lawson 1979, Dongarra 1988 and 1990). Matrices are ``A[column, row]``.

So rows are contiguous, and "transposed" refers to that.
"""

from __future__ import annotations

import halide as hl
import numpy as np

from strangers.kit import F32, F64, Program, image, lanes, pipeline, scalar, single

VECTOR, VECTOR_SMALL = {"size": 1 << 20}, {"size": 1000}
MATRIX, MATRIX_SMALL = {"rows": 1024, "columns": 1024}, {"rows": 31, "columns": 45}
SQUARE, SQUARE_SMALL = {"size": 384}, {"size": 23}


def axpy(target, *, size):
    """``a x + y``."""
    i = hl.Var("i")
    a, x, y = scalar("a", F32, 1.5), image("x", F32, size), image("y", F32, size)
    out = hl.Func("out")
    out[i] = a * x[i] + y[i]
    if target is not None:
        block, inner = hl.vars("block inner")
        out.split(i, block, inner, 65536, hl.TailStrategy.GuardWithIf).parallel(block)
        out.vectorize(inner, lanes(target, F32))
    return pipeline((out, (size,)))


def _axpy(inputs, **_):
    return single(1.5 * inputs["x"] + inputs["y"])


def scal(target, *, size):
    """``a x`` in double precision."""
    i = hl.Var("i")
    a, x = scalar("a", F64, 0.25), image("x", F64, size)
    out = hl.Func("out")
    out[i] = a * x[i]
    if target is not None:
        out.vectorize(i, lanes(target, F64))
    return pipeline((out, (size,)))


def _scal(inputs, **_):
    return (0.25 * inputs["x"],)


def dot(target, *, size):
    """The inner product, by hand in strips that are summed in parallel."""
    x, y = image("x", F32, size), image("y", F32, size)
    r = hl.RDom([(0, size)], "r")
    out = hl.Func("out")
    out[()] = 0.0
    out[()] += x[r] * y[r]
    if target is not None:
        u, v = hl.vars("u v")
        ro, ri, rv = hl.RVar("ro"), hl.RVar("ri"), hl.RVar("rv")
        out.update().split(r, ro, ri, max(16, size // 8), hl.TailStrategy.GuardWithIf)
        part = out.update().rfactor(ro, u)
        part.compute_root().update().parallel(u)
        part.update().split(ri, ri, rv, lanes(target, F32))
        inner = part.update().rfactor(rv, v)
        inner.compute_at(part, u).vectorize(v).update().vectorize(v)
    return pipeline((out, ()))


def _dot(inputs, **_):
    return single(inputs["x"].astype(np.float64) @ inputs["y"])


def nrm2(target, *, size):
    """The Euclidean length."""
    x = image("x", F32, size)
    r = hl.RDom([(0, size)], "r")
    square, out = hl.Func("square"), hl.Func("out")
    square[()] += x[r] * x[r]
    out[()] = hl.sqrt(square[()])
    return pipeline((out, ()))


def _nrm2(inputs, **_):
    return single(np.linalg.norm(inputs["x"].astype(np.float64)))


def asum(target, *, size):
    """The sum of magnitudes, written inline."""
    x = image("x", F32, size)
    r = hl.RDom([(0, size)], "r")
    out = hl.Func("out")
    out[()] = hl.sum(hl.abs(x[r] - 0.5))
    return pipeline((out, ()))


def _asum(inputs, **_):
    return single(np.abs(inputs["x"].astype(np.float64) - 0.5).sum())


def iamax(target, *, size):
    """The place of the largest magnitude and the magnitude: a Tuple."""
    x = image("x", F32, size)
    r = hl.RDom([(0, size)], "r")
    best, out = hl.Func("best"), hl.Func("out")
    best[()] = (0, hl.f32(-1.0))
    larger = hl.abs(x[r] - 0.5) > best[()][1]
    best[()] = (
        hl.select(larger, r, best[()][0]),
        hl.select(larger, hl.abs(x[r] - 0.5), best[()][1]),
    )
    out[()] = (best[()][0], best[()][1])
    return pipeline((out, ()))


def _iamax(inputs, **_):
    magnitudes = np.abs(inputs["x"] - np.float32(0.5))
    return np.asarray(magnitudes.argmax(), np.int32), np.asarray(magnitudes.max())


def gemv(target, *, rows, columns):
    """``a A x + b y``: sums along rows."""
    i = hl.Var("i")
    matrix, x, y = image("A", F32, columns, rows), image("x", F32, columns), image("y", F32, rows)
    a, b = scalar("a", F32, 1.5), scalar("b", F32, 0.5)
    r = hl.RDom([(0, columns)], "r")
    product, out = hl.Func("product"), hl.Func("out")
    product[i] += matrix[r, i] * x[r]
    out[i] = a * product[i] + b * y[i]
    if target is not None:
        ro, rv, v = hl.RVar("ro"), hl.RVar("rv"), hl.Var("v")
        n = lanes(target, F32)
        out.parallel(i, 16)
        product.compute_at(out, i).update().split(r, ro, rv, n, hl.TailStrategy.GuardWithIf)
        part = product.update().rfactor(rv, v)
        part.compute_at(product, i).vectorize(v).update().reorder(v, ro).vectorize(v)
    return pipeline((out, (rows,)))


def _gemv(inputs, **_):
    return single(1.5 * (inputs["A"].T.astype(np.float64) @ inputs["x"]) + 0.5 * inputs["y"])


def gemv_transposed(target, *, rows, columns):
    """``a A' x + b y``: sums along columns."""
    i = hl.Var("i")
    matrix, x, y = image("A", F32, columns, rows), image("x", F32, rows), image("y", F32, columns)
    a, b = scalar("a", F32, 1.5), scalar("b", F32, 0.5)
    r = hl.RDom([(0, rows)], "r")
    product, out = hl.Func("product"), hl.Func("out")
    product[i] += matrix[i, r] * x[r]
    out[i] = a * product[i] + b * y[i]
    if target is not None:
        n = lanes(target, F32)
        block, inner = hl.vars("block inner")
        out.split(i, block, inner, 4 * n, hl.TailStrategy.GuardWithIf).parallel(block)
        out.vectorize(inner, n)
        product.compute_at(out, block).vectorize(i, n)
        product.update().reorder(i, r).vectorize(i, n).unroll(i)
    return pipeline((out, (columns,)))


def _gemv_transposed(inputs, **_):
    return single(1.5 * (inputs["A"].astype(np.float64) @ inputs["x"]) + 0.5 * inputs["y"])


def ger(target, *, rows, columns):
    """``A + a x y'``."""
    i, j = hl.vars("i j")
    matrix, x, y = image("A", F32, columns, rows), image("x", F32, rows), image("y", F32, columns)
    a = scalar("a", F32, 1.5)
    out = hl.Func("out")
    out[j, i] = matrix[j, i] + a * x[i] * y[j]
    if target is not None:
        out.vectorize(j, lanes(target, F32)).parallel(i, 32)
    return pipeline((out, (columns, rows)))


def _ger(inputs, **_):
    return single(inputs["A"] + 1.5 * np.outer(inputs["y"], inputs["x"]))


def _gemm(target, size, left, right):
    i, j = hl.vars("i j")
    a, b, c = (image(name, F32, size, size) for name in "ABC")
    alpha, beta = scalar("alpha", F32, 1.5), scalar("beta", F32, 0.5)
    k = hl.RDom([(0, size)], "k")
    product, out = hl.Func("product"), hl.Func("out")
    product[j, i] += (a[i, k] if left else a[k, i]) * (b[k, j] if right else b[j, k])
    out[j, i] = alpha * product[j, i] + beta * c[j, i]
    if target is not None:
        n = lanes(target, F32)
        jo, io, ji, ii = hl.vars("jo io ji ii")
        out.tile(j, i, jo, io, ji, ii, 2 * n, 4, hl.TailStrategy.GuardWithIf)
        out.vectorize(ji, n).unroll(ji).unroll(ii).parallel(io)
        product.compute_at(out, jo).vectorize(j, n).unroll(j).unroll(i)
        product.update().reorder(j, i, k).vectorize(j, n).unroll(j).unroll(i)
    return pipeline((out, (size, size)))


def gemm(target, *, size):
    """``alpha A B + beta C``."""
    return _gemm(target, size, False, False)


def gemm_transposed_left(target, *, size):
    """``alpha A' B + beta C``."""
    return _gemm(target, size, True, False)


def gemm_transposed_right(target, *, size):
    """``alpha A B' + beta C``."""
    return _gemm(target, size, False, True)


def gemm_transposed_both(target, *, size):
    """``alpha A' B' + beta C``."""
    return _gemm(target, size, True, True)


def _expected_gemm(left, right):
    def expected(inputs, **_):
        a, b = inputs["A"].astype(np.float64), inputs["B"].astype(np.float64)
        a, b = (a if left else a.T), (b if right else b.T)  # now [row, column]
        return single((1.5 * a @ b).T + 0.5 * inputs["C"])

    return expected


def syrk(target, *, size):
    """``A A'``, its lower triangle; zeros above."""
    i, j = hl.vars("i j")
    a = image("A", F32, size, size)
    k = hl.RDom([(0, size)], "k")
    product, out = hl.Func("product"), hl.Func("out")
    product[j, i] += a[k, i] * a[k, j]
    out[j, i] = hl.select(j <= i, product[j, i], 0.0)
    return pipeline((out, (size, size)))


def _syrk(inputs, **_):
    a = inputs["A"].astype(np.float64)
    return single(np.triu(a.T @ a))


def trmv(target, *, size):
    """A lower triangular matrix times a vector: the sum runs over a triangle."""
    i = hl.Var("i")
    a, x = image("A", F32, size, size), image("x", F32, size)
    r = hl.RDom([(0, size), (0, size)], "r")
    r.where(r.x <= r.y)
    out = hl.Func("out")
    out[i] = 0.0
    out[r.y] += a[r.x, r.y] * x[r.x]
    return pipeline((out, (size,)))


def _trmv(inputs, **_):
    return single(np.tril(inputs["A"].T.astype(np.float64)) @ inputs["x"])


def trsm(target, *, size, columns):
    """``L X = B`` with a unit lower triangular ``L``, solved forwards, one step per row."""
    c, i = hl.vars("c i")
    lower, b = image("L", F32, size, size), image("B", F32, columns, size)
    r = hl.RDom([(0, size), (0, size)], "r")  # the row that is read, the row that is updated
    r.where(r.x < r.y)
    out = hl.Func("out")
    out[c, i] = b[c, i]
    out[c, r.y] -= 0.01 * lower[r.x, r.y] * out[c, r.x]
    if target is not None:
        out.vectorize(c, lanes(target, F32))
        out.update().reorder(c, r.x, r.y).vectorize(c, lanes(target, F32))
    return pipeline((out, (columns, size)))


def _trsm(inputs, *, size, **_):
    lower, x = inputs["L"].T.astype(np.float64), inputs["B"].T.astype(np.float64).copy()
    for row in range(size):
        x[row] -= 0.01 * lower[row, :row] @ x[:row]
    return single(x.T)


PROGRAMS = (
    Program(axpy, VECTOR, VECTOR_SMALL, _axpy, hand=True),
    Program(scal, VECTOR, VECTOR_SMALL, _scal, hand=True),
    Program(dot, VECTOR, VECTOR_SMALL, _dot, hand=True),
    Program(nrm2, VECTOR, VECTOR_SMALL, _nrm2),
    Program(asum, VECTOR, VECTOR_SMALL, _asum),
    Program(iamax, VECTOR, VECTOR_SMALL, _iamax),
    Program(gemv, MATRIX, MATRIX_SMALL, _gemv, hand=True),
    Program(gemv_transposed, MATRIX, MATRIX_SMALL, _gemv_transposed, hand=True),
    Program(ger, MATRIX, MATRIX_SMALL, _ger, hand=True),
    Program(gemm, SQUARE, SQUARE_SMALL, _expected_gemm(False, False), hand=True),
    Program(gemm_transposed_left, SQUARE, SQUARE_SMALL, _expected_gemm(True, False), hand=True),
    Program(gemm_transposed_right, SQUARE, SQUARE_SMALL, _expected_gemm(False, True), hand=True),
    Program(gemm_transposed_both, SQUARE, SQUARE_SMALL, _expected_gemm(True, True), hand=True),
    Program(syrk, SQUARE, SQUARE_SMALL, _syrk),
    Program(trmv, {"size": 1024}, {"size": 37}, _trmv),
    Program(trsm, {"size": 256, "columns": 256}, {"size": 19, "columns": 24}, _trsm, hand=True),
)
