"""Linear algebra in the style of RISE: dot product, sums, scaling, matrix products; softmax."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.arith import Poly, sizes
from tilewright.patterns.build import (
    add,
    array,
    fork,
    fun,
    identity,
    map,
    map2,
    mul,
    reduce,
    repeat,
    slide2,
    transpose,
    zip,
    zip2,
)
from tilewright.patterns.nodes import Pattern
from tilewright.patterns.scalar import absolute, exp, maximum
from tilewright.patterns.types import f32

N, M, K = sizes("N M K")

dot_product = zip >> map(mul) >> reduce(add, 0.0)
"""``([f32]n, [f32]n) -> f32``."""

LEAST_F32 = -3.4028234663852886e38


def dot(n: Poly | int = N) -> Pattern:
    """Return the dot product of two vectors."""
    return fork(array("x", f32[n]), array("y", f32[n])) >> dot_product


def asum(n: Poly | int = N) -> Pattern:
    """Return the sum of absolute values."""
    return array("x", f32[n]) >> map(fun(lambda v: absolute(v), "absolute")) >> reduce(add, 0.0)


def scal(n: Poly | int = N) -> Pattern:
    """Return a vector times a number."""
    return zip(array("x", f32[n]), array("alpha", f32) >> repeat(n)) >> map(mul)


def gemv(n: Poly | int = N, m: Poly | int = M) -> Pattern:
    """Return ``alpha * A @ x + beta * y`` with an n x m matrix."""
    rows = zip(array("A", f32[n, m]), array("x", f32[m]) >> repeat(n)) >> map(dot_product)
    scalars = [array(name, f32) >> repeat(n) for name in ("alpha", "beta")]
    f = fun(lambda ax, y, alpha, beta: alpha * ax + beta * y, "combine")
    return zip(rows, array("y", f32[n]), *scalars) >> map(f)


def matmul(n: Poly | int = N, m: Poly | int = M, k: Poly | int = K) -> Pattern:
    """Return ``A @ B`` with an n x k and a k x m matrix."""
    rows = array("A", f32[n, k]) >> map(repeat(m))
    columns = array("B", f32[k, m]) >> transpose >> repeat(n)
    return zip2(rows, columns) >> map2(dot_product)


def convolution(n: Poly | int = N, m: Poly | int = M) -> Pattern:
    """Return a 2-D correlation with 3 x 3 weights that are an input."""
    windows = array("A", f32[n + 2, m + 2]) >> slide2(3, 1)
    weights = array("W", f32[3, 3]) >> repeat(m) >> repeat(n)
    rows = zip >> map(dot_product) >> reduce(add, 0.0)
    return zip2(windows, weights) >> map2(rows)


def softmax(n: Poly | int = N, m: Poly | int = M) -> Pattern:
    """Return ``exp(x - max(x)) / sum(exp(x - max(x)))`` in each row of an n x m matrix."""
    larger = fun(lambda a, b: maximum(a, b), "larger", associative=True)
    shifted = fun(lambda x, most: exp(x - most), "shifted")
    share = fun(lambda x, total: x / total, "share")
    numerators = fork(identity, reduce(larger, LEAST_F32) >> repeat(m)) >> zip >> map(shifted)
    row = numerators >> fork(identity, reduce(add, 0.0) >> repeat(m)) >> zip >> map(share)
    return array("A", f32[n, m]) >> map(row)


LINEAR_ALGEBRA: dict[str, Callable[..., Pattern]] = {
    f.__name__: f for f in (dot, asum, scal, gemv, matmul, convolution, softmax)
}
