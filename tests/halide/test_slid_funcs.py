"""Funcs that are stored outside the loop at which they are computed."""

from dataclasses import replace

import halide as hl
import pytest

from tilewright.halide.analysis.scheduled_nest import sized_nest
from tilewright.halide.execution.at_sizes import AtSizes, payload, resized
from tilewright.halide.execution.inputs import describe_inputs
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
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.analytic.cpu.nest_costs import part_times
from tilewright.halide.schedulers.task import make_task

WIDTH, HEIGHT = 256, 64


def weighted():
    """Every pixel times the sum of a table, whose entries are sums themselves."""
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Int(32), 2, "image")
    r, s = hl.RDom([(0, 4)], "r"), hl.RDom([(-26, 53)], "s")
    table, total, out = hl.Func("table"), hl.Func("total"), hl.Func("out")
    table[x] += x * 3 + r
    total[x, y] += table[s] * (image[x, y] % 8 + s)
    out[x, y] = total[x, y]
    return out


def stopped():
    """Sums of rows up to the twentieth, which is read by all later rows."""
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Int(32), 2, "image")
    edge = hl.BoundaryConditions.repeat_edge(image, [(0, WIDTH), (0, HEIGHT)])
    r = hl.RDom([(0, 4)], "r")
    table, total, out = hl.Func("table"), hl.Func("total"), hl.Func("out")
    table[x, y] += edge[x + r, y] % 8
    total[x, y] = table[x, hl.clamp(y, 0, 20)] + table[x, hl.clamp(y + 1, 0, 20)]
    out[x, y] = total[x, y]
    return out


def columns():
    """Sums along columns, up to each row."""
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Int(32), 2, "image")
    edge = hl.BoundaryConditions.repeat_edge(image, [(0, WIDTH + 2), (0, HEIGHT)])
    r = hl.RDom([(1, HEIGHT - 1)], "r")
    table, total, out = hl.Func("table"), hl.Func("total"), hl.Func("out")
    table[x, y] = edge[x, y] % 8
    table[x, r] = table[x, r - 1] + edge[x, r] % 8
    total[x, y] = table[x, y] + table[x + 1, y]
    out[x, y] = total[x, y]
    return out


def task_of(define):
    out = define()
    out.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return make_task(out, target="host")


def slid(task, d, tail, factor=16, loop="v1", apart=True):
    """`table`, cut along dimension `d`, at the outer loop of `out`; stored at root if `apart`."""
    algorithm = task.algorithm
    place = {func.name.split("$")[0]: i for i, func in enumerate(algorithm.funcs)}
    table, total = (algorithm.funcs[place[name]] for name in ("table", "total"))
    outermost = [ScheduledLoop(f"v{i}") for i in range(2) if f"v{i}" != loop]
    level = Level("at", place["out"], 0, loop)
    nests = [default_stage(table, stage) for stage in table.stages]
    if tail:
        cut = Split(f"v{d}", f"v{d}_o", f"v{d}_i", factor, tail)
        inner = ScheduledLoop(cut.inner, "vectorized" if d == 0 else "unrolled")
        rest = [each for each in nests[0].loops if each.name != cut.old]
        nests[0] = StageSchedule((cut,), (inner, *rest, ScheduledLoop(cut.outer)))
    funcs = [
        FuncSchedule(
            place["out"],
            ROOT,
            ROOT,
            stages=(StageSchedule((), (*outermost, ScheduledLoop(loop))),),
        ),
        FuncSchedule(place["table"], level, ROOT if apart else level, stages=tuple(nests)),
    ]
    if not total.pure:
        funcs.append(
            FuncSchedule(
                place["total"],
                level,
                level,
                stages=tuple(default_stage(total, stage) for stage in total.stages),
            )
        )
    others = [
        FuncSchedule(i, Level("inline"), Level("inline"))
        for i, func in enumerate(algorithm.funcs)
        if func.pure and i not in {each.func for each in funcs}
    ]
    funcs = sorted([*funcs, *others], key=lambda each: each.func)
    return Schedule(algorithm.digest, "host", tuple(funcs))


def outcome(task, schedule):
    sizes = dict.fromkeys(task.algorithm.outputs, (WIDTH, HEIGHT))
    run = AtSizes(payload(task.algorithm, to_json(schedule), "host", [{}]))
    return run.at(describe_inputs(resized(task.algorithm, sizes))).status


@pytest.mark.parametrize(("define", "d", "factor"), [(weighted, 0, 16), (stopped, 1, 4)])
def test_updates_that_would_be_applied_twice_are_illegal(define, d, factor):
    task = task_of(define)
    schedule = slid(task, d, "shift_inwards", factor)
    (found,) = check(schedule, task.algorithm)
    assert found.kind == "store"
    assert "updates twice" in found.message
    assert outcome(task, schedule) == "wrong"  # with Halide 21


@pytest.mark.parametrize(
    ("define", "d", "tail", "apart"),
    [
        (weighted, 0, "guard_with_if", True),
        (weighted, 0, "round_up", True),
        (weighted, 0, "shift_inwards", False),
        (stopped, 1, "guard_with_if", True),
        (stopped, 0, "shift_inwards", True),  # it slides along y
    ],
)
def test_others_are_legal_and_right(define, d, tail, apart):
    task = task_of(define)
    schedule = slid(task, d, tail, 4 if d else 16, apart=apart)
    assert not check(schedule, task.algorithm)
    assert outcome(task, schedule) == "ok"


def seconds(define, loop, apart):
    """The predicted time of `out` with all that is computed in its loops."""
    task = task_of(define)
    schedule = slid(task, 0, None, loop=loop, apart=apart)
    assert not check(schedule, task.algorithm)
    parts = part_times(sized_nest(task.algorithm, schedule), model_of(task.machine))
    return sum(part.seconds for part in parts)


def test_the_model_knows_along_which_dimensions_a_func_slides():
    # Columns do not depend on each other, but each row needs those above.
    once = seconds(columns, "v0", True)
    assert seconds(columns, "v0", False) > 1.5 * once  # two columns for each of the output
    assert seconds(columns, "v1", True) > 10 * once
    assert seconds(columns, "v1", True) == pytest.approx(seconds(columns, "v1", False), rel=0.2)


def test_a_table_that_does_not_move_is_computed_once():
    assert seconds(weighted, "v1", True) < 0.99 * seconds(weighted, "v1", False)


def filtered(constant=True):
    """Three rows of a table, weighted by another one that is the same for all rows (or not)."""
    x, y, k = hl.vars("x y k")
    image = hl.ImageParam(hl.Int(32), 2, "image")
    edge = hl.BoundaryConditions.repeat_edge(image, [(0, WIDTH), (0, HEIGHT)])
    r = hl.RDom([(0, 3)], "r")
    table, weights, total, out = (hl.Func(n) for n in ("table", "weights", "total", "out"))
    table[x, y] = edge[x, y] % 8
    weights[k] = k * k + 1
    total[x, y] += table[x, y + r] * weights[r if constant else r + y]
    out[x, y] = total[x, y]
    return out


def both(task, table_slides, weights_slide):
    """``table`` and ``weights`` computed at the rows of ``out``, stored there or at root."""
    plain = slid(task, 0, None, apart=table_slides)
    (level,) = {entry.compute for entry in plain.funcs if entry.compute.kind == "at"}
    return replace(
        plain,
        funcs=tuple(
            FuncSchedule(
                entry.func,
                level,
                ROOT if weights_slide else level,
                stages=(default_stage(func, func.stages[0]),),
            )
            if func.name.startswith("weights")
            else entry
            for entry in plain.funcs
            for func in (task.algorithm.funcs[entry.func],)
        ),
    )


def test_a_func_that_does_not_move_must_not_slide_with_one_that_does():
    task = task_of(filtered)
    (found,) = check(both(task, True, True), task.algorithm)
    assert found.func.startswith("weights")
    assert found.kind == "store"
    assert "would not compute it" in found.message


@pytest.mark.parametrize(
    ("constant", "table", "weights"),
    [(True, True, False), (True, False, True), (True, False, False), (False, True, True)],
)
def test_other_pairs_are_legal_and_right(constant, table, weights):
    task = task_of(lambda: filtered(constant))
    schedule = both(task, table, weights)
    assert not check(schedule, task.algorithm)
    assert outcome(task, schedule) == "ok"
