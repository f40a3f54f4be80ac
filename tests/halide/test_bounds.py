"""Region inference against Halide's own lowering, and against points enumerated one by one."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import halide as hl
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.halide.analysis.bounds import Interval
from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.frontend.source import load

TARGET = hl.Target("x86-64-linux-no_asserts-no_bounds_query")

taps = st.lists(
    st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=4, unique=True
)
edges = st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 2, 3]), taps)


def chain(links: list[tuple[int, int, list[tuple[int, int]]]]) -> list[hl.Func]:
    """Funcs each of which reads the one before at scaled and shifted coordinates."""
    x, y = hl.Var("x"), hl.Var("y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    image.set_estimates([(-4096, 16384), (-4096, 16384)])
    first = hl.Func("stage_0")
    first[x, y] = image[x, y] + 1.0
    funcs = [first]
    for i, (sx, sy, offsets) in enumerate(links):
        func = hl.Func(f"stage_{i + 1}")
        terms: Any = 0.0
        for dx, dy in offsets:
            terms = terms + funcs[-1][x * sx + dx, y * sy + dy]
        func[x, y] = terms
        funcs.append(func)
    funcs[-1].set_estimates([(0, 64), (0, 48)])
    return funcs


def allocated(funcs: list[hl.Func], width: int, height: int) -> dict[str, tuple[int, ...]]:
    """What Halide allocates of every producer computed for one tile of the last Func."""
    output = funcs[-1]
    x, y = output.args()
    xo, yo, xi, yi = (hl.Var(n) for n in ("xo", "yo", "xi", "yi"))
    output.tile(x, y, xo, yo, xi, yi, width, height, hl.TailStrategy.RoundUp)
    for func in funcs[:-1]:
        func.compute_at(output, xo)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "lowered.stmt"
        pipeline = hl.Pipeline(output)
        output.compile_to_lowered_stmt(
            str(path), pipeline.infer_arguments(), hl.StmtOutputFormat.Text, TARGET
        )
        text = path.read_text()
    found = {}
    for name, sizes in re.findall(r"allocate ([\w$]+)\[float32((?: \* \d+)*)\]", text):
        found[name] = tuple(int(n) for n in sizes.split("*")[1:])
    return found


@settings(max_examples=25, deadline=None)
@given(
    st.lists(edges, min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=2, max_size=5, unique=True),
)
def test_affine_regions_equal_halides_allocations(
    links: list[tuple[int, int, list[tuple[int, int]]]], tiles: list[tuple[int, int]]
) -> None:
    funcs = chain(links)
    algorithm = load(funcs[-1])
    analysis = Analysis(View(algorithm), {}, algorithm.symbols)
    output = algorithm.outputs[0]
    sizes = np.array(tiles, dtype=np.float64)
    # All tiles at once, as the cost models ask for them.
    boxes = {output: tuple(Interval(sizes[:, d] * 3, sizes[:, d] * 4 - 1) for d in range(2))}
    for func in reversed(algorithm.funcs):
        if func.name in boxes:
            boxes.update(analysis.required_by(func.name, boxes[func.name]))
    width, height = tiles[0]
    theirs = allocated(funcs, width, height)
    assert set(theirs) == {func.name() for func in funcs[:-1]}
    for name, extents in theirs.items():
        ours = [int(np.broadcast_to(i.extent, len(tiles))[0]) for i in boxes[name]]
        # Of small allocations the text has the product only.
        assert math.prod(ours) == math.prod(extents)


def integer_expressions(x: hl.Expr, y: hl.Expr) -> st.SearchStrategy[Any]:
    leaves = st.sampled_from([x, y]) | st.integers(-6, 6).map(hl.i32)

    def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        pairs = st.tuples(inner, inner)
        positive = st.integers(1, 5)
        return st.one_of(
            pairs.map(lambda p: p[0] + p[1]),
            pairs.map(lambda p: p[0] - p[1]),
            pairs.map(lambda p: hl.min(p[0], p[1])),
            pairs.map(lambda p: hl.max(p[0], p[1])),
            st.tuples(inner, inner, inner).map(lambda p: hl.select(p[0] < 2, p[1], p[2])),
            st.tuples(inner, positive).map(lambda p: p[0] // p[1]),
            st.tuples(inner, positive).map(lambda p: p[0] % p[1]),
            st.tuples(inner, st.integers(-3, 3)).map(lambda p: p[0] * p[1]),
            inner.map(hl.abs).map(hl.i32),
        )

    return st.recursive(leaves, grow, max_leaves=6)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_index_is_covered(data: st.DataObject) -> None:
    x, y = hl.Var("x"), hl.Var("y")
    index = data.draw(integer_expressions(hl.Expr(x), hl.Expr(y)))
    func = hl.Func("index")
    func[x, y] = hl.i32(index)
    low_x, low_y = data.draw(st.integers(-9, 9)), data.draw(st.integers(-9, 9))
    width, height = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    buffer = hl.Buffer(hl.Int(32), [width, height])
    buffer.set_min([low_x, low_y])
    func.realize(buffer)
    values = np.asarray(buffer)
    func.set_estimates([(low_x, width), (low_y, height)])
    algorithm = load(func)
    analysis = Analysis(View(algorithm), {}, algorithm.symbols)
    inner = algorithm.funcs[-1]
    env = {
        inner.args[0]: Interval(float(low_x), float(low_x + width - 1)),
        inner.args[1]: Interval(float(low_y), float(low_y + height - 1)),
    }
    bound = analysis.bounder.bound(inner.stages[0].values[0], env, {})
    assert bound.lo <= values.min()
    assert bound.hi >= values.max()


def test_an_update_grows_the_region_of_its_func() -> None:
    x, y = hl.Var("x"), hl.Var("y")
    scan, reader = hl.Func("scan"), hl.Func("reader")
    r = hl.RDom([(1, 19)], "r")
    scan[x, y] = x + y
    scan[x, r.x] = scan[x, r.x] + scan[x, r.x - 1]
    reader[x, y] = scan[x, y]
    reader.set_estimates([(0, 8), (0, 20)])
    analysis = Analysis(View(load(reader)), {}, {})
    box = (Interval(2.0, 3.0), Interval(15.0, 16.0))
    assert [(i.lo, i.hi) for i in analysis.func_region(scan.name(), box)] == [(2, 3), (0, 19)]


def test_a_box_over_many_tilings_is_each_tilings_box() -> None:
    links = [(1, 2, [(-1, 0), (2, 1)]), (2, 1, [(0, 0), (1, -3)])]
    algorithm = load(chain(links)[-1])
    analysis = Analysis(View(algorithm), {}, algorithm.symbols)
    sizes = list(itertools.product((1, 4, 32), (2, 8)))

    def needed(width: Any, height: Any) -> Any:
        box = (Interval(width * 0.0, width - 1.0), Interval(height * 0.0, height - 1.0))
        return analysis.required_by(algorithm.outputs[0], box)[algorithm.funcs[-2].name]

    together = needed(*(np.array(column, dtype=float) for column in zip(*sizes, strict=True)))
    for i, (width, height) in enumerate(sizes):
        alone = needed(float(width), float(height))
        for many, one in zip(together, alone, strict=True):
            assert np.broadcast_to(many.lo, len(sizes))[i] == one.lo
            assert np.broadcast_to(many.hi, len(sizes))[i] == one.hi
