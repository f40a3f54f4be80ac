"""Reduction loops that are parallel within a round, and kernels launched once per round."""

import itertools

import halide as hl
import pytest
from test_scheduler import TIMED, assert_right

from tilewright.halide.analysis.rounds import independent_rvar
from tilewright.halide.frontend.source import load
from tilewright.halide.legality.check import Limits, check
from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu
from tilewright.machines import gpu

A100 = gpu("a100")
ROWS, ROUNDS = 6, 4

x, y, t = hl.vars("x y t")


def doubling(width=64, rows=4096, rounds=3):
    """Maxima of 2^t rows: each round reads what the one before has stored."""
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    r = hl.RDom([(-8, rows), (1, rounds)], "r")
    f, out = hl.Func("f"), hl.Func("out")
    f[x, y, t] = hl.BoundaryConditions.repeat_edge(image)[x, y]
    step = hl.clamp(hl.Expr(1) << (r.y - 1), 0, 8)
    f[x, r.x, r.y] = hl.max(f[x, r.x, r.y - 1], f[x, r.x + step, r.y - 1])
    out[x, y] = f[x, y, rounds] - f[x, y, 1]
    image.set_estimates([(0, width), (0, rows)])
    out.set_estimates([(0, width), (0, rows - 24)])
    return hl.Pipeline(out)


def update(store, *loads):
    """The stage ``f[x, store] = f[x, loads..] + ..`` over a domain of ROWS x ROUNDS."""
    r = hl.RDom([(0, ROWS), (0, ROUNDS)], "r")
    f = hl.Func("f")
    f[x, y, t] = x + 2 * y + 3 * t
    value = hl.i32(1)
    for load_from in loads:
        value = value + f[x, *load_from(r)]
    f[x, *store(r)] = value
    f.set_estimates([(0, 4), (0, ROWS + ROUNDS), (0, ROWS + ROUNDS)])
    algorithm = load(f)
    return algorithm.funcs[-1], algorithm.funcs[-1].stages[1]


def own(r):
    return r.x, r.y


def before(r):
    return r.x + 1, r.y - 1


def far(r):
    return 3 * r.x, r.y + ROUNDS


CASES = {
    "the round before": (own, [before], True),
    "any place of the round before": (own, [lambda r: (r.x * r.x, r.y - 1)], True),
    "its own place": (own, [own], True),
    "its own row in any round": (own, [lambda r: (r.x, hl.clamp(r.x + r.y, 0, 3))], True),
    "both": (lambda r: (r.x + 2, r.y + 1), [lambda r: (r.x + 2, 0), before], True),
    "a later round": (own, [far], True),
    "its neighbour in the round": (own, [lambda r: (r.x + 1, r.y)], False),
    "a round that varies": (own, [lambda r: (r.x + 1, r.y - r.x)], False),
    "all in one place": (lambda r: (0, r.y), [before], False),
    "stores that meet": (lambda r: (r.x / 2, r.y), [before], False),
    "a diagonal of both": (lambda r: (r.x + r.y, r.x), [before], False),
}


@pytest.mark.parametrize("case", CASES)
def test_which_loops_are_independent_in_a_round(case):
    store, loads, expected = CASES[case]
    func, stage = update(store, *loads)
    name = independent_rvar(func, stage)
    known_to_halide = stage.loops[0].kind == "pure_rvar"
    assert (name is not None or known_to_halide) == expected
    assert name is None or name == stage.loops[0].name


@pytest.mark.parametrize("case", [case for case, (*_, expected) in CASES.items() if expected])
@pytest.mark.thorough
def test_independent_iterations_may_run_in_any_order(case):
    # The same update in Python, with the iterations of each round in three orders.
    store, loads, _ = CASES[case]

    class Place:
        def __init__(self, row, number):
            self.x, self.y = row, number

    def number(value):
        return value if isinstance(value, int) else int(hl.evaluate(value))

    def values(order):
        stored: dict[tuple[int, int], int] = {}
        for round_number, row in itertools.product(range(ROUNDS), order):
            place = Place(row, round_number)
            places = [tuple(map(number, each(place))) for each in loads]
            total = 1 + sum(stored.get((a, b), 2 * a + 3 * b) for a, b in places)
            stored[tuple(map(number, store(place)))] = total
        return stored

    forwards = tuple(range(ROWS))
    assert values(forwards) == values(forwards[::-1]) == values((3, 0, 5, 1, 4, 2))


def test_one_reduction_loop_has_no_rounds():
    r = hl.RDom([(0, 8)], "r").x
    f = hl.Func("f")
    f[x] = x
    f[r] = f[r] + f[r + 1]
    f.set_estimates([(0, 16)])
    func = load(f).funcs[-1]
    assert independent_rvar(func, func.stages[1]) is None


def test_a_kernel_is_launched_once_per_round():
    algorithm = load(doubling())
    (planned,) = schedule_gpu(algorithm, A100)
    (kernel,) = [g for g in planned.groups if g.output.startswith("f") and g.stage == 1]
    assert len(kernel.loops) == 2  # the columns, and the rows of a round
    assert any("3 launches: one per iteration of r$y" in note for note in kernel.notes)
    stage = planned.schedule.funcs[algorithm.order[kernel.output]].stages[1]
    assert stage.allow_races
    assert stage.loops[-1].mapping == "serial"
    assert not check(planned.schedule, algorithm, Limits(1024, 48 * 1024))


def test_rounds_that_do_not_leave_the_gpu_idle_stay_in_threads():
    algorithm = load(doubling(width=1 << 18, rows=64))
    (planned,) = schedule_gpu(algorithm, A100)
    assert not any("launches" in note for group in planned.groups for note in group.notes)


@pytest.mark.opencl
def test_the_answers_are_right():
    algorithm = load(doubling())
    (planned,) = schedule_gpu(algorithm, TIMED)
    assert any(stage.allow_races for entry in planned.schedule.funcs for stage in entry.stages)
    assert_right(algorithm, planned.schedule)
