"""The programs: each formula once more in NumPy, and its kernels against it."""

import inspect

import numpy as np
import pytest
from batch import kernels
from test_grid_kernels import runs_on_a_grid

import tilewright.patterns as tp
from tilewright.patterns import nodes as n
from tilewright.patterns import rewriting as rw
from tilewright.patterns.features import features
from tilewright.patterns.programs import APPLICATIONS, LINEAR_ALGEBRA, STENCILS
from tilewright.patterns.types import ScalarType, dimensions

ROWS, COLUMNS = 8, 16
FUNCTIONS = LINEAR_ALGEBRA | APPLICATIONS
NAMES = [*STENCILS, *FUNCTIONS]


def build(name, *sizes):
    if name in STENCILS:
        return STENCILS[name].build(*(sizes[:2] or tp.sizes("N M")))
    count = len(inspect.signature(FUNCTIONS[name]).parameters)
    return FUNCTIONS[name](*(sizes or tp.sizes("N M K"))[:count])


def fixed(name):
    return build(name, ROWS, COLUMNS, 12)


def values(p, seed=0):
    rng = np.random.default_rng(seed)
    types = [dimensions(a.type) for a in n.inputs(p)]
    shapes = [([int(k.value) for k in lengths], item) for lengths, item in types]
    made = []
    for shape, item in shapes:
        assert isinstance(item, ScalarType)
        made.append((rng.random(shape) + 0.5).astype(item.dtype))
    return made


def neighbours(a, dy, dx, size, halo):
    """The grid shifted by a neighbour's place; at a clamped border where there is no halo."""
    b = a if halo else np.pad(a, size // 2, mode="edge")
    rows, columns = b.shape[0] - size + 1, b.shape[1] - size + 1
    return b[dy : dy + rows, dx : dx + columns].astype(np.float64)


def srad1(a):
    c = a.astype(np.float64)
    d = [neighbours(a, *place, 3, 0) - c for place in ((0, 1), (2, 1), (1, 0), (1, 2))]
    g, s = sum(x * x for x in d) / c**2, sum(d) / c
    q = (g / 2 - s**2 / 16) / (1 + s / 4) ** 2
    q0 = 0.053787220269
    return np.clip(1 / (1 + (q - q0) / (q0 * (1 + q0))), 0, 1)


def srad2(i, k, north, south, west, east):
    c, below, right = (neighbours(k, *place, 3, 0) for place in ((1, 1), (2, 1), (1, 2)))
    return i + 0.125 * (c * north + below * south + c * west + right * east)


def hotspot(t, p):
    c = t.astype(np.float64)
    up, down, left, right = (
        neighbours(t, *place, 3, 0) for place in ((0, 1), (2, 1), (1, 0), (1, 2))
    )
    flow = (up + down - 2 * c) / 10 + (left + right - 2 * c) / 10
    return c + 1.365333 * (p + flow + (80 - c) * 4.882813e-5)


def gradient(a):
    c = neighbours(a, 1, 1, 3, 1)
    places = ((0, 1), (2, 1), (1, 0), (1, 2))
    near = [neighbours(a, i, j, 3, 1) for i, j in places]
    return c + 1 / np.sqrt(1e-4 + sum((c - x) ** 2 for x in near))


def weighted(weights):
    weights = np.array(weights)
    size = len(weights)
    places = list(np.ndindex(size, size))
    return lambda a: sum(weights[i, j] * neighbours(a, i, j, size, 1) for i, j in places)


def soft(a):
    e = np.exp(a - a.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def kmeans(points, centres):
    return ((points[:, None] - centres) ** 2).sum(2).argmin(1)


def harris(a):
    b = a.astype(np.float64)

    def sobel(g):
        rows = g[:-2] + 2 * g[1:-1] + g[2:]
        return (rows[:, 2:] - rows[:, :-2]) / 12

    def box(g):
        return sum(g[y : g.shape[0] - 2 + y, x : g.shape[1] - 2 + x] for y, x in np.ndindex(3, 3))

    dx, dy = sobel(b), sobel(b.T).T
    xx, xy, yy = box(dx * dx), box(dx * dy), box(dy * dy)
    return xx * yy - xy**2 - 0.04 * (xx + yy) ** 2


def nbody(*bodies):
    x, y, z, mass = (v.astype(np.float64) for v in bodies)
    apart = [v[None] - v[:, None] for v in (x, y, z)]
    cubed = (sum(d * d for d in apart) + 0.01) ** 1.5
    return np.stack([(mass * d / cubed).sum(1) for d in apart])


def heat(a):
    p, one = np.pad(a.astype(np.float64), 1, mode="edge"), slice(1, -1)
    ends = [p[:-2, one, one], p[2:, one, one], p[one, :-2, one], p[one, 2:, one]]
    ends += [p[one, one, :-2], p[one, one, 2:]]
    return a + 0.125 * (sum(ends) - 6 * a)


def life(a):
    shifts = [(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1) if (y, x) != (0, 0)]
    alive = sum(np.roll(a, shift, (0, 1)) for shift in shifts)
    return ((alive == 3) | ((alive == 2) & (a == 1))).astype(int)


GAUSS = np.array([[2, 4, 5, 4, 2], [4, 9, 12, 9, 4], [5, 12, 15, 12, 5]])
FORMULAS = {
    "stencil2d": weighted([[0.05, 0.15, 0.05], [0.15, 0.25, 0.15], [0.05, 0.15, 0.05]]),
    "srad1": srad1,
    "srad2": srad2,
    "hotspot": hotspot,
    "gradient": gradient,
    "jacobi5": weighted(np.array([[0, 5, 0], [12, 15, 12], [0, 5, 0]]) / 118),
    "jacobi9": weighted(np.array([[7, 5, 9], [12, 15, 12], [9, 5, 7]]) / 118),
    "gaussian": weighted(np.vstack([GAUSS, GAUSS[1::-1]]) / 159),
    "dot": lambda x, y: x @ y,
    "asum": lambda x: np.abs(x).sum(),
    "scal": lambda x, alpha: x * alpha,
    "gemv": lambda a, x, y, alpha, beta: alpha * (a @ x) + beta * y,
    "matmul": lambda a, b: a @ b,
    "convolution": lambda a, w: weighted(w)(a),
    "softmax": soft,
    "matmul_at": lambda a, b: a.T @ b,
    "kmeans": kmeans,
    "box": lambda a: sum(neighbours(a, y, x, 3, 0) for y, x in np.ndindex(3, 3)),
    "harris": harris,
    "nbody": nbody,
    "life": life,
    "heat": heat,
}


@pytest.mark.parametrize("name", NAMES)
def test_programs_follow_their_formulas(name):
    p = fixed(name)
    arrays = values(p)
    assert np.allclose(tp.interpret(p, *arrays), FORMULAS[name](*arrays), rtol=2e-4, atol=1e-5)


def test_programs_of_open_size_run_in_c():
    programs = [build(name) for name in NAMES]
    for name, kernel in zip(NAMES, kernels(programs), strict=True):
        arrays = values(fixed(name), 1)
        expected = FORMULAS[name](*arrays)
        assert np.allclose(kernel(*arrays, threads=2), expected, rtol=2e-4, atol=1e-5), name


@pytest.mark.parametrize("target", ["c", pytest.param("gpu", marks=pytest.mark.thorough)])
def test_derived_programs_run_in_c(target):
    chosen = rw.ExplorationSettings(target=target, tiles=(2, 4), limit=8)
    derived = {name: rw.explore(fixed(name), chosen) for name in NAMES}
    cases = [(name, d.program) for name, found in derived.items() for d in found]
    cases = [(name, p) for name, p in cases if target == "c" or runs_on_a_grid(p) is not None]
    assert {name for name, _ in cases} >= set(STENCILS)
    for (name, p), kernel in zip(cases, kernels([p for _, p in cases]), strict=True):
        arrays = values(p, 2)
        expected = FORMULAS[name](*arrays)
        assert np.allclose(kernel(*arrays, threads=2), expected, rtol=2e-4, atol=1e-5), str(p)


def test_stencils_have_tiled_programs_with_features():
    chosen = rw.ExplorationSettings(tiles=(4, 8), families=("tiling",), limit=40)
    for name in STENCILS:
        p = STENCILS[name].build(32, 64)
        staged = [d.program for d in rw.explore(p, chosen) if "to_local" in str(d.program)]
        assert staged, name
        (found,) = features(staged[0])
        assert found.local_memory > 0
        # Points of their own that threads stage need no barrier; windows do.
        assert found.barriers == (0 if name == "srad2" else 1)
        assert found.global_stores * found.global_size_0 * found.global_size_1 == 32 * 64


def test_windows_of_three_dimensions():
    a = np.arange(5 * 7 * 9, dtype=np.int32).reshape(5, 7, 9)
    A = tp.array("A", tp.i32[5, 7, 9])
    found = tp.interpret(A >> tp.slide3(3, 2), a)
    expected = np.lib.stride_tricks.sliding_window_view(a, (3, 3, 3))[::2, ::2, ::2]
    assert np.array_equal(found, expected)
    padded = tp.interpret(A >> tp.pad3(1, 2, tp.mirror), a)
    assert np.array_equal(padded, np.pad(a, [(1, 2)] * 3, mode="symmetric"))
    double = tp.map3(tp.fun(lambda v: v + v, "double"))
    assert np.array_equal(tp.interpret(A >> double, a), 2 * a)
    written = A >> tp.pad3(1, 1, 0) >> tp.slide3(3, 1) >> tp.map3(tp.at(0, 1, 2)) >> double
    text = "A >> pad3(1, 1, 0) >> slide3(3, 1) >> map3(at(0, 1, 2)) >> map3(double)"
    assert str(written) == text


def test_a_grid_of_three_dimensions_runs_a_stencil_of_three():
    p = APPLICATIONS["heat"](4, 6, 8)
    found = rw.explore(p, rw.ExplorationSettings(tiles=(2,), dimensions=(3,), limit=6))
    levels = {q.level for d in found for q in n.walk(d.program) if isinstance(q, n.Map)}
    assert {n.MapLevel("glb", dim) for dim in range(3)} <= levels
    arrays = values(p)
    for d, kernel in zip(found, kernels([d.program for d in found]), strict=True):
        (counted,) = features(d.program)
        assert counted.global_size_2 > 1
        assert np.allclose(kernel(*arrays), heat(*arrays), rtol=1e-5)
