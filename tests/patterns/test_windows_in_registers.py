"""Windows kept in registers by sequential loops: meaning, code on all targets, counts."""

import numpy as np
import pytest
from batch import kernels
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_grid_kernels import runs_on_a_grid, simulated
from test_nvrtc import needs_nvrtc
from test_rewriting import PROGRAMS, data, equal

import tilewright.patterns as tp
from tilewright.arith import poly
from tilewright.patterns import nodes as n
from tilewright.patterns import rewriting as rw
from tilewright.patterns.codegen.code import stores
from tilewright.patterns.codegen.grid import ThreadGrid
from tilewright.patterns.compiling import grid_code
from tilewright.patterns.features import counts
from tilewright.patterns.nodes import MapLevel

N, M = tp.sizes("N M")
GLB = [MapLevel("glb", 1), MapLevel("glb", 0)]
TILED = [MapLevel("wrg", 1), MapLevel("wrg", 0), MapLevel("lcl", 0)]
STAR = tp.fun(lambda w: w[0, 1] + w[1, 0] - 2 * w[1, 1] + w[1, 2] + w[2, 1], "star")
MIX = tp.fun(lambda w, p: w[0, 0] * 3 + w[2, 2] - p, "mix")
MINUS = tp.fun(lambda a, b: a - b, "minus")
FIRST = tp.fun(lambda w, v: w[0] - w[2] * v, "first")
CUBE = tp.fun(lambda w: w[0, 1, 1] - w[2, 1, 1] + w[1, 0, 1] * 2 + w[1, 1, 2], "cube")
SLIDE3 = tp.map(tp.slide2(3, 1)) >> tp.slide(3, 1) >> tp.map(tp.transpose >> tp.map(tp.transpose))


def grid(rows, columns, name="A"):
    return tp.array(name, tp.i32[rows, columns])


def flat(results):
    (one,) = results
    return one


def windows(rows, columns):
    return grid(rows, columns) >> tp.pad2(1, 1, tp.clamp) >> tp.slide2(3, 1)


@st.composite
def sequential(draw):
    """A program whose innermost loop keeps windows, and the same one with plain windows."""
    size, moves = draw(st.integers(2, 5)), draw(st.integers(0, 6))
    step = draw(st.integers(1, size + 1))  # the last two leave nothing to keep
    rows, columns = size + step * moves, draw(st.integers(3, 6))
    f = draw(
        st.sampled_from(
            [
                tp.map(tp.reduce(tp.add, 0)) >> tp.reduce(MINUS, 1),
                tp.map(tp.reduce_unroll(tp.add, 0)) >> tp.at(size - 1),
                tp.fork(tp.at(0, 1), tp.at(size - 1, 2)) >> MINUS,
            ]
        )
    )

    def made(slide, run):
        columns_first = grid(rows, columns) >> tp.map(tp.slide(3, 1)) >> tp.transpose
        return columns_first >> tp.map(slide(size, step) >> run(f)) >> tp.transpose

    return made(tp.slide_seq, tp.map_seq), made(tp.slide, tp.map)


@given(st.lists(sequential(), min_size=15, max_size=15))
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_kept_windows_are_the_windows(pairs):
    for kernel, (kept, plain) in zip(kernels([p for p, _ in pairs]), pairs, strict=True):
        arrays = data(kept)
        expected = tp.interpret(plain, *arrays)
        assert equal(tp.interpret(kept, *arrays), expected)
        assert equal(kernel(*arrays, threads=2), expected), str(kept)
        on_grid = rw.apply(rw.lower(MapLevel("glb")), kept)
        launch = ThreadGrid((poly(1), poly(1), poly(1)), (2, 1, 1))
        assert equal(flat(simulated(on_grid, arrays, launch)[0]), expected.ravel()), str(kept)


def slid():
    """Stencils in one to three dimensions after the rule, with a program that it came from."""
    B, x = grid(7, 10, "B"), tp.array("x", tp.i32[11])
    D = tp.array("D", tp.i32[5, 6, 7])
    sums = tp.slide(3, 1) >> tp.map(tp.reduce(tp.add, 0))
    found = [
        (x >> sums, []),
        (tp.zip(x >> tp.slide(3, 1), x >> tp.crop(9)) >> tp.map(FIRST), []),
        (x >> tp.pad(1, 0, tp.wrap) >> sums, [rw.slide_tiling(5)]),
        (windows(7, 10) >> tp.map2(STAR), []),
        (tp.zip2(windows(7, 10), B) >> tp.map2(MIX), []),
        (windows(8, 9) >> tp.map2(STAR), [rw.tiling2(4, 3)]),
        (windows(7, 10) >> tp.map2(STAR), [rw.round_up2(4, 3), rw.tiling2(4, 3)]),
        (tp.zip2(windows(8, 9), grid(8, 9, "B")) >> tp.map2(MIX), [rw.zipped_tiling2(4, 3)]),
        (D >> SLIDE3 >> tp.map(tp.map2(CUBE)), []),
    ]
    return [(p, rw.derive(p, *rules, rw.slide_sequentially).program) for p, rules in found]


def on_a_grid(p):
    for levels in (TILED, GLB, GLB[1:]):
        try:
            return rw.apply(rw.lower_nest(*levels), p)
        except tp.RewriteError:
            continue
    return p  # one thread runs it


def test_the_rule_keeps_the_meaning_in_one_to_three_dimensions():
    pairs = slid()
    for kernel, (start, made) in zip(kernels([made for _, made in pairs]), pairs, strict=True):
        assert "slide_seq" in str(made)
        arrays = data(start)
        expected = tp.interpret(start, *arrays)
        assert equal(tp.interpret(made, *arrays), expected)
        assert equal(kernel(*arrays, threads=2), expected), str(made)
        found, happened, made_kernels = simulated(on_a_grid(made), arrays)
        assert equal(flat(found), expected.ravel()), str(made)
        for one, seen in zip(made_kernels, happened, strict=True):
            if any(store.guards for store in stores(one.body)):
                continue  # counted as if all were inside of the grid
            total = counts(one, {})
            kinds = {(w, m) for w in ("load", "store") for m in ("global", "private")}
            happened_here = {f"{m}_{w}s": seen[w, m] for w, m in kinds}
            assert {k: getattr(total, k).value for k in happened_here} == happened_here
            assert total.private_stores.value > 0


@pytest.mark.opencl
def test_opencl_runs_them():
    for start, made in slid():
        arrays = data(start)
        found = tp.compile(on_a_grid(made), "opencl")(*arrays)
        assert equal(found, tp.interpret(start, *arrays)), str(made)


@needs_nvrtc
def test_windows_stay_in_registers_on_a_gpu():
    from tilewright.patterns.nvrtc import compile_cuda

    for _, made in slid():
        for use in compile_cuda(tp.source(on_a_grid(made), "cuda")).kernels:
            assert use.spill_bytes == 0
            assert use.registers < 64


def test_each_element_of_a_column_is_read_once():
    # 20 rows of a box of 3 x 3: 3 elements in a step in place of 9, and 6 before the first one.
    box = tp.map(tp.reduce_unroll(tp.add, 0)) >> tp.reduce_unroll(tp.add, 0)
    p = grid(22, 6) >> tp.slide2(3, 1) >> tp.map2(box)
    plain, kept = (
        grid_code(rw.derive(p, *rules).program, "kernel", None)[1][0]
        for rules in ([rw.lower_nest(*GLB)], [rw.slide_sequentially, rw.lower_nest(GLB[1])])
    )
    assert counts(plain, {}).global_loads == 20 * 4 * 9
    assert counts(kept, {}).global_loads == 4 * (20 * 3 + 6)


def test_elements_that_no_step_reads_are_not_kept():
    # STAR reads only the middle row of its outer columns.
    p = rw.apply(rw.slide_sequentially, windows(N, M) >> tp.map2(STAR))
    text = tp.source(rw.apply(rw.lower_nest(GLB[1]), p), "cuda")
    assert text.count("w0[1] =") == 2
    assert "w0[0] =" not in text
    assert "w0[2] =" not in text


def test_sizes_stay_open():
    p = rw.apply(rw.slide_sequentially, windows(N, M) >> tp.map2(STAR))
    kernel = tp.compile(p)
    for shape in ((1, 1), (2, 5), (7, 3)):
        array = np.arange(np.prod(shape), dtype=np.int32).reshape(shape) ** 2
        assert equal(kernel(array), tp.interpret(windows(N, M) >> tp.map2(STAR), array))


def test_they_come_back_from_text_and_json():
    for _, p in slid():
        assert tp.from_json(tp.to_json(p)) is p
    assert eval("slide_seq(3, 2)", vars(tp)) is tp.slide_seq(3, 2)


@pytest.mark.parametrize(
    ("p", "message"),
    [
        (tp.slide_seq(3, 1) >> tp.map(tp.reduce(tp.add, 0)), "not read in order: put map_seq"),
        (tp.slide_seq(3, 1) >> tp.map_par(tp.reduce(tp.add, 0)), "not read in order"),
        (
            tp.slide_seq(3, 1) >> tp.gather(lambda i, k: k - 1 - i) >> tp.map_seq(tp.at(0)),
            "not read in order",
        ),
        (tp.slide_seq(M, 1) >> tp.map_seq(tp.reduce(tp.add, 0)), "give numbers, or use slide"),
    ],
)
def test_windows_that_no_loop_can_keep_are_refused(p, message):
    with pytest.raises(tp.LoweringError, match=message):
        tp.source(tp.array("x", tp.i32[N]) >> p >> tp.map(tp.copy))


def test_a_window_is_not_kept_from_one_kernel_to_the_next():
    inner = tp.map_glb(tp.reduce_seq(tp.add, 0))
    p = grid(6, 5) >> tp.slide_seq(3, 1) >> tp.map_seq(tp.transpose >> inner)
    with pytest.raises(tp.LoweringError, match="from one kernel to the next"):
        tp.source(p, "cuda")


@pytest.mark.parametrize(
    ("p", "message"),
    [
        (tp.slide(3, 3) >> tp.map(tp.reduce(tp.add, 0)), "do not overlap"),
        (tp.slide(M, 1) >> tp.map(tp.reduce(tp.add, 0)), "is not a number"),
        (tp.slide(300, 1) >> tp.map(tp.reduce(tp.add, 0)), "registers keep at most 255"),
        (
            tp.slide(3, 1) >> tp.map(tp.reduce(tp.add, 0)) >> tp.map(tp.copy),
            "reads its result: fuse the two",
        ),
        (
            tp.slide(6, 4) >> tp.map(tp.slide(3, 1) >> tp.map(tp.at(0) >> tp.copy)) >> tp.join,
            "divided into windows again",
        ),
    ],
)
def test_the_rule_says_why_it_does_not_apply(p, message):
    reasons = [
        rw.rule.apply_at(rw.slide_sequentially, site)
        for site in rw.sites(tp.array("x", tp.i32[N]) >> p)
    ]
    assert any(message in reason for reason in reasons if isinstance(reason, str)), reasons


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("stencil", "c"),
        ("stencil", "gpu"),
        ("zipped", "gpu"),
        ("row", "c"),
        pytest.param("zipped", "c", marks=pytest.mark.thorough),
        pytest.param("row", "gpu", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.few(2)
def test_explored_programs_with_kept_windows_mean_the_same(name, target):
    sums = tp.slide(3, 1) >> tp.map(tp.reduce(tp.add, 0))
    start = PROGRAMS[name] if name != "row" else tp.array("x", tp.i32[14]) >> sums
    arrays = data(start)
    expected = tp.interpret(start, *arrays)
    chosen = rw.ExplorationSettings(target=target, tiles=(2, 3), limit=150, sliding=True)
    found = [d for d in rw.explore(start, chosen) if "slide_seq" in str(d.program)]
    assert found
    ran = 0
    for d in found[:: max(1, len(found) // 20)]:
        assert equal(tp.interpret(d.program, *arrays), expected), str(d)
        if target == "gpu" and runs_on_a_grid(d.program, None) is not None:
            assert equal(flat(simulated(d.program, arrays)[0]), expected.ravel()), str(d)
            ran += 1
    assert ran or target == "c"
    plain = rw.explore(start, rw.ExplorationSettings(target=target, tiles=(2, 3), limit=150))
    assert not any("slide_seq" in str(d.program) for d in plain)


@pytest.mark.parametrize(
    ("dimensions", "grids"), [(None, {(0,), (0, 1)}), ((1,), {(0,)}), ((2,), {(0, 1)})]
)
@pytest.mark.few(1)
def test_kept_windows_run_on_grids_of_the_chosen_dimensions(dimensions, grids):
    chosen = rw.ExplorationSettings(tiles=(2, 3), limit=150, sliding=True, dimensions=dimensions)
    found = [d.program for d in rw.explore(PROGRAMS["stencil"], chosen)]
    levels = [
        {q.level for q in n.walk(p) if isinstance(q, n.Map) and q.level is not None}
        for p in found
        if "slide_seq" in str(p)
    ]
    used = {tuple(sorted({v.dim for v in each if v.kind in n.GRID_KINDS})) for each in levels}
    assert used == grids
