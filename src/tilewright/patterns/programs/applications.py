"""Programs beyond stencils and linear algebra: RISE's K-means, Harris and box stencil, and others.

RISE's programs are those of BaCO's evaluation (2023); K-means is the assignment step.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.arith import Poly, sizes
from tilewright.patterns.build import (
    TracedParameter,
    add,
    array,
    clamp,
    fork,
    fun,
    generate,
    get,
    identity,
    join,
    map,
    map2,
    map3,
    mul,
    pad2,
    pad3,
    reduce,
    repeat,
    slide2,
    slide3,
    transpose,
    wrap,
    zip,
    zip2,
)
from tilewright.patterns.nodes import Pattern
from tilewright.patterns.programs.linear_algebra import dot_product
from tilewright.patterns.scalar import Expr, equal, sqrt, where
from tilewright.patterns.types import f32, i32

N, M, K = sizes("N M K")

FARTHEST = 3.0e38  # initial squared distance: close to the largest f32
HARRIS_KAPPA = 0.04  # weight of the squared trace, as in RISE's harris
SOBEL_SCALE = 1 / 12  # scale of the derivatives in RISE's harris
HEAT_RATE = 0.125  # below 1/6, at which the explicit scheme becomes unstable
SOFTENING = 0.01  # added to squared distances, so that the force of a body on itself is finite


def matmul_at(n: Poly | int = N, m: Poly | int = M, k: Poly | int = K) -> Pattern:
    """Return ``A.T @ B`` with a k x n and a k x m matrix: RISE's product for GPUs."""
    rows = array("A", f32[k, n]) >> transpose >> map(repeat(m))
    columns = array("B", f32[k, m]) >> transpose >> repeat(n)
    return zip2(rows, columns) >> map2(dot_product)


def kmeans(n: Poly | int = N, m: Poly | int = M, k: Poly | int = K) -> Pattern:
    """Return the nearest of m centres for each of n points with k coordinates."""
    return nearest(array("points", f32[n, k]), n, m, k)


def nearest(points: Pattern, n: Poly | int, m: Poly | int, k: Poly | int) -> Pattern:
    """Return the nearest of m centres, an input, for each of n points with k coordinates."""
    centres = array("centres", f32[m, k]) >> repeat(n)
    distance = zip >> map(fun(lambda x, y: (x - y) * (x - y), "squared")) >> reduce(add, 0.0)
    distances = fork(get(0) >> repeat(m), get(1)) >> zip >> map(distance)
    values = (get(0) >> get(0), get(1) >> get(0))
    places = (get(0) >> get(1), get(1) >> get(1))
    nearer = fork(
        fork(*values) >> fun(lambda best, d: where(d < best, d, best), "least"),
        fork(*values, *places) >> fun(lambda best, d, at, i: where(d < best, i, at), "at_least"),
    )
    none = fork(f32(FARTHEST), i32(0))
    place = fork(identity, generate(m)) >> zip >> reduce(nearer, none) >> get(1)
    return zip(points, centres) >> map(distances >> place)


def box(n: Poly | int = N, m: Poly | int = M) -> Pattern:
    """Return sums of 3 x 3 neighbours, clamped at the border: RISE's box stencil."""
    return (
        array("A", f32[n, m]) >> pad2(1, 1, clamp) >> slide2(3, 1) >> map2(join >> reduce(add, 0.0))
    )


def harris(n: Poly | int = N, m: Poly | int = M) -> Pattern:
    """Return the Harris corner response of the interior of a grey-scale image."""

    def across(w: TracedParameter) -> Expr:
        return (w[0, 2] - w[0, 0] + 2 * (w[1, 2] - w[1, 0]) + w[2, 2] - w[2, 0]) * SOBEL_SCALE

    def down(w: TracedParameter) -> Expr:
        return (w[2, 0] - w[0, 0] + 2 * (w[2, 1] - w[0, 1]) + w[2, 2] - w[0, 2]) * SOBEL_SCALE

    square = fun(lambda v: v * v, "square")
    products = fork(get(0) >> square, mul, get(1) >> square)
    response = fun(
        lambda xx, xy, yy: xx * yy - xy * xy - HARRIS_KAPPA * (xx + yy) * (xx + yy), "response"
    )
    sums = fork(*(join >> map(get(i)) >> reduce(add, 0.0) for i in range(3)))
    return (
        array("A", f32[n + 4, m + 4])
        >> slide2(3, 1)
        >> map2(fork(fun(across), fun(down)) >> products)
        >> slide2(3, 1)
        >> map2(sums >> response)
    )


def nbody(n: Poly | int = N) -> Pattern:
    """Return the accelerations of n bodies by their masses, as three arrays."""
    x, y, z, mass = (array(name, f32[n]) for name in ("x", "y", "z", "mass"))

    def pull(axis: int) -> Pattern:
        def f(
            x: TracedParameter,
            y: TracedParameter,
            z: TracedParameter,
            a: TracedParameter,
            b: TracedParameter,
            c: TracedParameter,
            mass: TracedParameter,
        ) -> Expr:
            apart = (a - x, b - y, c - z)
            squared = apart[0] * apart[0] + apart[1] * apart[1] + apart[2] * apart[2] + SOFTENING
            return mass * apart[axis] / (squared * sqrt(squared))

        return fun(f, f"pull_{'xyz'[axis]}")

    pairs = fork(get(0) >> repeat(n), get(1)) >> zip
    total = fork(*(map(pull(axis)) >> reduce(add, 0.0) for axis in range(3)))
    return zip(zip(x, y, z), zip(x, y, z, mass) >> repeat(n)) >> map(pairs >> total)


def life(n: Poly | int = N, m: Poly | int = M) -> Pattern:
    """Return the next generation of Conway's game of life on a torus of 0 and 1."""

    def rule(w: TracedParameter) -> Expr:
        neighbours = [w[y, x] for y in range(3) for x in range(3) if (y, x) != (1, 1)]
        alive = neighbours[0] + neighbours[1]
        for cell in neighbours[2:]:
            alive = alive + cell
        return where(equal(alive, 3), 1, where(equal(alive, 2), w[1, 1], 0))

    return array("A", i32[n, m]) >> pad2(1, 1, wrap) >> slide2(3, 1) >> map2(fun(rule, "life"))


def heat(n: Poly | int = N, m: Poly | int = M, k: Poly | int = K) -> Pattern:
    """Return a step of the heat equation on an n x m x k grid, insulated at its border.

    It is the explicit scheme with seven points; `HEAT_RATE` is diffusivity x time step / spacing
    squared.
    """

    def step(w: TracedParameter) -> Expr:
        c = w[1, 1, 1]
        around = w[0, 1, 1] + w[2, 1, 1] + w[1, 0, 1] + w[1, 2, 1] + w[1, 1, 0] + w[1, 1, 2]
        return c + HEAT_RATE * (around - 6 * c)

    windows = array("T", f32[n, m, k]) >> pad3(1, 1, clamp) >> slide3(3, 1)
    return windows >> map3(fun(step, "heat"))


APPLICATIONS: dict[str, Callable[..., Pattern]] = {
    f.__name__: f for f in (matmul_at, kmeans, box, harris, nbody, life, heat)
}
