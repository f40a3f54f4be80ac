"""Regions that conditions narrow: the last vector must not shift beyond them."""

import halide as hl
import pytest

from tilewright.halide.execution.at_sizes import AtSizes, payload
from tilewright.halide.execution.inputs import describe_inputs
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.json import to_json
from tilewright.halide.ir.nest import default_stage
from tilewright.halide.ir.schedule import (
    ROOT,
    FuncSchedule,
    Level,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
)
from tilewright.halide.legality.narrowed import narrowed
from tilewright.halide.legality.sizes import requirements
from tilewright.halide.schedulers.any_size import any_size
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import make_task

SIZE = 100


def pipeline(choose):
    """``f`` doubles an input; `choose` gives the output's value from it."""
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Int(32), 1, "image")
    f, out = hl.Func("f"), hl.Func("out")
    f[x] = image[x] * 2
    out[x, y] = choose(f, x, y)
    out.set_estimates([(0, SIZE), (0, 8)])
    return load(out)


NARROWED = {
    "less": lambda f, x, y: hl.select(x < 5, f[x], 0),
    "equal": lambda f, x, y: hl.select(x == 3, f[x], 0),
    "by another variable": lambda f, x, y: hl.select(x < 5 + y, f[x], 0),
    "a quotient": lambda f, x, y: hl.select(x // 4 < 2, f[x], 0),
    "a remainder that is read": lambda f, x, y: hl.select(x % 20 < 5, f[x % 20], 0),
}
COMPLETE = {
    "parity": lambda f, x, y: hl.select(x % 2 == 0, f[x], 0),
    "unequal": lambda f, x, y: hl.select(x != 3, f[x], 0),
    "both branches": lambda f, x, y: hl.select(x < 5, f[x], f[x] + 1),
    "also without": lambda f, x, y: hl.max(hl.select(x < 5, f[x], 0), f[x]),
    "alternatives": lambda f, x, y: hl.select((x < 5) | (x > 90), f[x], 0),
    "values": lambda f, x, y: hl.select(f[x] < 5, f[x], 0),
}


def scheduled(algorithm):
    """``f`` at root, in vectors that shift inwards."""
    place = {func.name.split("$")[0]: i for i, func in enumerate(algorithm.funcs)}
    vectors = Split("v0", "v0_o", "v0_i", 16, "shift_inwards")
    out, f = (algorithm.funcs[place[name]] for name in ("out", "f"))
    others = (ScheduledLoop(f"v{d}") for d in range(1, len(f.args)))
    loops = (ScheduledLoop("v0_i", "vectorized"), ScheduledLoop("v0_o"), *others)
    plain = tuple(default_stage(out, stage) for stage in out.stages)
    entries = [
        FuncSchedule(place["f"], ROOT, ROOT, stages=(StageSchedule((vectors,), loops),)),
        FuncSchedule(place["out"], ROOT, ROOT, stages=plain),
    ]
    entries += [
        FuncSchedule(i, Level("inline"), Level("inline"))
        for i in range(len(algorithm.funcs))
        if i not in (place["f"], place["out"])
    ]
    entries.sort(key=lambda entry: entry.func)
    return Schedule(algorithm.digest, "host", tuple(entries))


def status(algorithm, schedule):
    run = AtSizes(payload(algorithm, to_json(schedule), "host", [{}]))
    return run.at(describe_inputs(algorithm)).status


def names(algorithm):
    return {algorithm.funcs[i].name.split("$")[0] for i in narrowed(algorithm)}


@pytest.mark.parametrize("name", NARROWED)
def test_a_narrowed_func_is_guarded_at_all_sizes(name):
    algorithm = pipeline(NARROWED[name])
    bare = scheduled(algorithm)
    assert "f" in names(algorithm)
    assert status(algorithm, bare) == "failed"  # Halide 21 requires a part of f only
    (needed,) = [each for each in requirements(bare, algorithm) if each.on == "input"]
    assert needed.minimum == 16
    safe = any_size(bare, algorithm)
    assert not any(nest.sizes for entry in safe.funcs for nest in entry.stages)
    assert status(algorithm, safe) == "ok"
    assert not requirements(safe, algorithm)


@pytest.mark.parametrize("name", COMPLETE)
def test_others_keep_their_vectors(name):
    algorithm = pipeline(COMPLETE[name])
    assert "f" not in names(algorithm)
    assert status(algorithm, scheduled(algorithm)) == "ok"


def padded(width, window):
    """``f`` with a border of zeros that a condition adds, summed over `window` columns."""
    x, c = hl.vars("x c")
    image = hl.ImageParam(hl.Int(32), 2, "image")
    f, pad, out = hl.Func("f"), hl.Func("pad"), hl.Func("out")
    r = hl.RDom([(0, window)], "r")
    f[x, c] = image[x, c] * 2
    inside = (x >= 0) & (x < width)
    pad[x, c] = hl.select(inside, f[hl.clamp(x, 0, width - 1), c], 0)
    out[c, x] = 0
    out[c, x] += pad[r - 1 + (x if window < width else 0), c]
    out.set_estimates([(0, 64), (0, 16)])
    return load(out)


@pytest.mark.parametrize(
    ("width", "window", "kept"),
    [
        (20, 22, True),  # every column inside, wherever the output starts
        (14, 16, False),  # fewer than a vector
        (100, 17, False),  # another region for every column of the output
    ],
)
def test_vectors_stay_where_a_condition_leaves_enough(width, window, kept):
    algorithm = padded(width, window)
    assert "f" in names(algorithm)
    bare = scheduled(algorithm)
    safe = any_size(bare, algorithm)
    assert (not requirements(bare, algorithm)) == kept
    place = next(e for e in safe.funcs if algorithm.funcs[e.func].name.split("$")[0] == "f")
    assert (place.stages[0].splits[0].tail == "shift_inwards") == kept
    assert not place.stages[0].sizes
    assert status(algorithm, safe) == "ok"


def test_other_iterations_of_a_loop_may_need_nothing():
    x = hl.Var("x")
    image = hl.ImageParam(hl.Int(32), 1, "image")
    f, out = hl.Func("f"), hl.Func("out")
    f[x] = image[x] * 2
    # The first and the last of three tiles read 20 columns.
    out[x] = hl.select(x < 20, f[x], 0) + hl.select(x >= 76, f[x - 1], 0)
    out.bound(x, 0, 96).set_estimates([(0, 96)])
    algorithm = load(out)
    place = {func.name.split("$")[0]: i for i, func in enumerate(algorithm.funcs)}
    vectors, tiles = (
        StageSchedule(
            (Split("v0", "v0_o", "v0_i", factor, tail),),
            (ScheduledLoop("v0_i", mapping), ScheduledLoop("v0_o")),
        )
        for factor, mapping, tail in (
            (16, "vectorized", "shift_inwards"),
            (32, "serial", "guard_with_if"),
        )
    )
    in_tile = Level("at", place["out"], 0, "v0_o")
    entries = {
        place["f"]: FuncSchedule(place["f"], in_tile, in_tile, stages=(vectors,)),
        place["out"]: FuncSchedule(place["out"], ROOT, ROOT, stages=(tiles,)),
    }
    inline = Level("inline")
    funcs = (entries.get(i, FuncSchedule(i, inline, inline)) for i in range(len(algorithm.funcs)))
    safe = any_size(Schedule(algorithm.digest, "host", tuple(funcs)), algorithm)
    assert safe.funcs[place["f"]].stages[0].splits[0].tail == "guard_with_if"
    assert status(algorithm, safe) == "ok"


def test_dimensions_without_conditions_get_conditions_on_sizes():
    x, i = hl.vars("x i")
    image = hl.ImageParam(hl.Int(32), 2, "image")
    f, out = hl.Func("f"), hl.Func("out")
    f[x, i] = image[x, i] * 2
    out[x, i] = hl.select(i > 3, f[x, i], 0)
    out.set_estimates([(0, SIZE), (0, 8)])
    algorithm = load(out)
    assert "f" in names(algorithm)
    safe = any_size(scheduled(algorithm), algorithm)
    (nest,) = (nest for entry in safe.funcs for nest in entry.stages if nest.sizes)
    assert [(c.dimension, c.minimum) for c in nest.sizes] == [(0, 16)]
    assert status(algorithm, safe) == "ok"


def test_what_a_narrowed_func_reads_is_narrowed():
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Int(32), 1, "image")
    r = hl.RDom([(0, SIZE)], "r")
    r.where(r < 5)
    f, g, h, out = (hl.Func(name) for name in ("f", "g", "h", "out"))
    f[x] = image[x]
    g[x] = f[x] + f[x + 1]
    h[x] = image[x]
    out[x, y] = h[x]
    out[r, y] += g[r]
    out.set_estimates([(0, SIZE), (0, 8)])
    assert names(load(out)) >= {"f", "g"}
    assert "h" not in names(load(out))


def test_the_plan_for_a_triangle_runs():
    i = hl.Var("i")
    a, b = hl.ImageParam(hl.Float(32), 2, "a"), hl.ImageParam(hl.Float(32), 1, "b")
    r = hl.RDom([(0, SIZE), (0, SIZE)], "r")
    r.where(r.x <= r.y)
    wide, out = hl.Func("wide"), hl.Func("out")
    wide[i] = hl.sin(b[i]) * hl.exp(b[i])
    out[i] = 0.0
    out[r.y] += a[r.x, r.y] * wide[r.x]
    out.set_estimates([(0, SIZE)])
    task = make_task(out, target="host")
    for planned in plan(task, k=3):
        assert status(task.algorithm, planned.schedule) == "ok"


def mirrored(reach, width, tile, lanes, slides):
    """An image from right to left, read in tiles; and whether its border slides in them.

    Returns the algorithm and a schedule in which vectors of `lanes` shift inwards.
    """
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Int(32), 2, "image")
    raw, edge, out = hl.Func("raw"), hl.Func("edge"), hl.Func("out")
    last = 4 * SIZE - 1
    raw[x, y] = image[x, y] * 2
    edge[x, y] = raw[hl.clamp(x, 0, last), y]
    out[x, y] = edge[last - x - reach, y] + edge[last - x - reach + width, y]
    out.set_estimates([(0, 4 * SIZE), (0, 8)])
    algorithm = load(out)
    place = {func.name.split("$")[0]: i for i, func in enumerate(algorithm.funcs)}
    vectors, tiles = (
        StageSchedule(
            (Split("v0", "v0_o", "v0_i", factor, "shift_inwards"),),
            (ScheduledLoop("v0_i", mapping), ScheduledLoop("v0_o"), ScheduledLoop("v1")),
        )
        for factor, mapping in ((lanes, "vectorized"), (tile, "serial"))
    )
    at_tile, at_row = (Level("at", place["out"], 0, loop) for loop in ("v0_o", "v1"))
    entries = [
        FuncSchedule(place["out"], ROOT, ROOT, stages=(tiles,)),
        FuncSchedule(place["raw"], at_tile, at_tile, stages=(vectors,)),
    ]
    if slides:
        entries.append(FuncSchedule(place["edge"], at_tile, at_row, stages=(vectors,)))
    chosen = {entry.func for entry in entries}
    entries += [
        FuncSchedule(i, Level("inline"), Level("inline"))
        for i in range(len(algorithm.funcs))
        if i not in chosen
    ]
    entries.sort(key=lambda entry: entry.func)
    return algorithm, Schedule(algorithm.digest, "host", tuple(entries))


@pytest.mark.parametrize(
    ("reach", "width", "tile", "lanes", "slides"),
    [
        (8, 8, 24, 16, True),  # only the first window is small
        (50, 10, 32, 16, False),  # the last tile needs little, because coordinates are clamped
        (120, 20, 64, 16, False),  # a single point at the left border needs 21 columns, others one
    ],
)
@pytest.mark.few(1)
def test_funcs_that_are_read_backwards_are_guarded(reach, width, tile, lanes, slides):
    algorithm, bare = mirrored(reach, width, tile, lanes, slides)
    assert status(algorithm, bare) == "failed"
    assert status(algorithm, any_size(bare, algorithm)) == "ok"
