"""Reductions whose innermost loop runs in vectors."""

from dataclasses import replace

import halide as hl
import pytest
from patience import PATIENT

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.operation_counts import OpCount
from tilewright.halide.analysis.reorderable import is_reorderable
from tilewright.halide.analysis.summaries import (
    Analysis,
    Load,
    StageSummary,
    estimated_boxes,
)
from tilewright.halide.execution.session import Session, Variant
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.algorithm import Loop, Type, Variable
from tilewright.halide.ir.json import from_json as read_schedule
from tilewright.halide.ir.json import to_json
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.analytic.cpu.block_choice import best_block
from tilewright.halide.schedulers.analytic.cpu.blocks import Block
from tilewright.halide.schedulers.analytic.cpu.machine_model import model_of
from tilewright.halide.schedulers.analytic.cpu.reduction_steps import (
    run_extent,
    run_of,
    shortened,
    step_counts,
    step_cycles,
    with_rest,
)
from tilewright.halide.schedulers.analytic.cpu.register_block import block_cycles
from tilewright.halide.schedulers.analytic.cpu.scheduler import schedule_cpu
from tilewright.halide.schedulers.any_size import any_size
from tilewright.halide.schedulers.prediction import predicted
from tilewright.halide.schedulers.task import make_task
from tilewright.machines import CpuMachine
from tilewright.measure import Timing

MACHINE = CpuMachine("test", "x86-64", 4, ("avx2",), 256, ())
MODEL = model_of(MACHINE)  # 16 registers of 32 bytes
ONCE = Timing(warmup=0, min_samples=1, max_samples=1, sample_seconds=0.0)
F32, I32, U8 = Type("float", 32), Type("int", 32), Type("uint", 8)
ROW, RUN = Loop("i", "pure"), Loop("r", "impure_rvar")


def first(name):
    return 0


def reading(callee, **strides):
    return Load(callee, "image", F32, strides, False, frozenset())


def dot(*loads, ops="r", reorderable=True, loops=(RUN,)):
    """``f += a * b``: one product and one addition per iteration."""
    counts = tuple(OpCount(name, F32, frozenset(ops), False, 1) for name in ("mul", "add"))
    args = tuple(Variable(loop.name, "var", I32) for loop in loops if loop.kind == "pure")
    return StageSummary(
        "f", 1, loops, (), loads, counts, (F32,), args, False, counts, reorderable=reorderable
    )


VECTORS = dot(reading("f"), reading("a", r=(1.0,)), reading("b", r=(1.0,)))
ROWS = dot(
    reading("f", i=(1.0,)),
    reading("a", r=(1.0, 0.0), i=(0.0, 1.0)),
    reading("b", r=(1.0,)),
    ops="ri",
    loops=(RUN, ROW),
)


def test_step_cycles_of_one_sum():
    # A fold 3.0; per vector of 8 two operations of 0.6 and two loads of 1.2, two vectors: 7.2;
    # the sum's own load 0.06 and store 0.1, done once; the loop 1.5: 11.86 for 16 iterations.
    cycles = step_cycles(VECTORS, "r", None, 1, 16, 8, MODEL, first, True)
    assert cycles == pytest.approx(11.86 / 16)
    assert block_cycles(VECTORS, {}, Block(steps=16), MODEL, first) == pytest.approx(cycles)


def test_step_cycles_of_rows_that_share_an_operand():
    # Two folds 6.0; operations 2 x 2 x 1.2 = 4.8; a is loaded for each row 4.8, b once 2.4; own
    # loads 0.12 and stores 0.2; the loop 1.5: 19.82 for 16 iterations.
    cycles = step_cycles(ROWS, "r", "i", 2, 16, 8, MODEL, first, True)
    assert cycles == pytest.approx(19.82 / 16)
    apart = Block(row=1, rows=2, steps=16)
    assert block_cycles(ROWS, {1: "i"}, apart, MODEL, first, True) == pytest.approx(cycles)
    # Neighbours in memory: 2.0 more for each.
    adjacent = Block(row=0, rows=2, steps=16)
    costs = block_cycles(ROWS, {0: "i"}, adjacent, MODEL, first, True)
    assert costs == pytest.approx(cycles + 4.0 / 16)


def test_step_cycles_of_sums_in_memory():
    # Not nested: the own loads are 1.2 and the stores 2.0.
    cycles = step_cycles(ROWS, "r", "i", 2, 16, 8, MODEL, first, False)
    assert cycles == pytest.approx((19.82 - 0.12 - 0.2 + 1.2 + 2.0) / 16)


def test_additions_in_parallel_loops_are_atomic():
    plain = step_cycles(ROWS, "r", "i", 2, 16, 8, MODEL, first, False)
    atomic = step_cycles(ROWS, "r", "i", 2, 16, 8, MODEL, first, False, alone=True)
    assert (atomic - plain) * 16 == pytest.approx(2 * MODEL.constants.atomic_cycles)
    rows = Block(row=1, rows=2, steps=16)
    several = replace(MODEL, machine=replace(MODEL.machine, cores=2))
    alone = replace(MODEL, machine=replace(MODEL.machine, cores=1))
    nested = block_cycles(ROWS, {1: "i"}, rows, several, first, True)
    assert block_cycles(ROWS, {1: "i"}, rows, several, first) > nested + atomic - plain
    serial = block_cycles(ROWS, {1: "i"}, rows, alone, first)
    assert serial == pytest.approx(plain)
    # A single result has no parallel loop.
    one = block_cycles(VECTORS, {}, Block(steps=16), several, first)
    assert one == pytest.approx(block_cycles(VECTORS, {}, Block(steps=16), alone, first))


def test_step_cycles_of_sums_that_spill():
    # 9 sums and an operand and product of two vectors want 13 of the 12 free registers: 2.0.
    spilled = step_cycles(ROWS, "r", "i", 9, 16, 8, MODEL, first, True)
    fitting = step_cycles(ROWS, "r", "i", 8, 16, 8, MODEL, first, True)
    # A row more: a fold 3.0, operations 2.4, loads 2.4 and 0.06, a store 0.1.
    assert (spilled - fitting) * 16 == pytest.approx(3.0 + 2.4 + 2.4 + 0.06 + 0.1 + 2.0)


def test_step_counts_need_a_loop_of_several_steps():
    assert list(step_counts(8, 1000.0)) == [8, 16, 32, 64]
    assert list(step_counts(8, 127.0)) == [8, 16, 32]
    assert list(step_counts(8, 15.0)) == []
    assert list(step_counts(8, 1000.0, 2)) == [16, 32]


@pytest.mark.parametrize(
    "summary",
    [
        dot(reading("f"), reading("a", r=(1.0,)), reorderable=False),
        dot(reading("f"), reading("a", r=(2.0,))),  # every other element
        dot(reading("f"), reading("a", r=(-1.0,))),
        dot(reading("f"), reading("a", r=(0.0, 1.0))),  # down a column
        dot(reading("f"), reading("a", r=(1.0,)), reading("b", r=None)),
        dot(reading("f"), Load("a", "image", F32, {"r": (1.0,)}, True, frozenset())),
        dot(reading("f"), Load("a", "image", F32, {"r": (1.0,)}, False, frozenset("r"))),
        dot(reading("f"), reading("a")),  # the same value each time
        dot(reading("f"), reading("a", i=(1.0,)), loops=(ROW,)),
    ],
)
def test_other_loads_are_not_run_in_vectors(summary):
    assert run_of(summary, first) is None
    chosen = best_block(summary, {}, {0: 64.0}, MODEL, first, run=1000.0)
    assert chosen.steps == 1


def test_a_sum_along_contiguous_values_is():
    assert run_of(VECTORS, first) == "r"
    assert best_block(VECTORS, {}, {}, MODEL, first, run=1024.0).steps == 32
    assert best_block(VECTORS, {}, {}, MODEL, first, run=15.0).steps == 1
    widened = dot(reading("f"), Load("a", "image", U8, {"r": (1.0,)}, False, frozenset()))
    assert run_of(widened, first) == "r"


def test_the_rest_of_a_loop_is_counted():
    # 1000 iterations of 0.5 cycles: 7 steps of 128 and 104 iterations of 6.0 for each of two rows.
    assert with_rest(0.5, 1, 2, 128, 1000.0, MODEL) == pytest.approx((448 + 104 * 12.0) / 1000)
    assert with_rest(0.5, 1, 2, 128, 1024.0, MODEL) == 0.5
    assert best_block(VECTORS, {}, {}, MODEL, first, run=128.0 + 31).steps < 32


X, Y = hl.Var("x"), hl.Var("y")


def stage_of(define):
    r = hl.RDom([(0, 100)], "r")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    f = hl.Func("f")
    f[X] = 0.0
    define(f, r, image)
    f.set_estimate(X, 0, 100)
    algorithm = load(hl.Pipeline(f))
    name = algorithm.outputs[0]
    return View(algorithm).stages(name)[1]


def add(f, r, image):
    f[X] = image[r, X] + f[X]


def add_with_constant(f, r, image):
    f[X] = image[r, X] + (f[X] + 1.0)


def multiply(f, r, image):
    f[X] = f[X] * image[r, X]


def conditional(f, r, image):
    r.where(image[r, 0] > 0.5)
    f[X] += image[r, X]


def conditional_elsewhere(f, r, image):
    r.where(image[0, X] > 0.5)
    f[X] += image[r, X]


def conditional_on_itself(f, r, image):
    r.where(f[X] > 0.5)
    f[X] += image[r, X]


def own_value(f, r, image):
    f[X] += f[X] * image[r, X]


def scan(f, r, image):
    f[r.x] = f[r.x - 1] + image[r.x, 0]


def strict(f, r, image):
    f[X] = hl.strict_float(f[X] + image[r, X])


def lowest(f, r, image):
    f[X] = hl.min(image[r, X], f[X])


def highest(f, r, image):
    f[X] = hl.max(hl.max(f[X], image[r, X]), 1.0)


def difference(f, r, image):
    f[X] -= image[r, X]


def pure(f, r, image):
    f[X] += image[X, X]


@pytest.mark.parametrize(
    ("define", "expected"),
    [
        (add, True),
        (add_with_constant, False),  # see `terms`
        (lowest, True),
        (highest, True),
        (difference, False),
        (multiply, False),
        (conditional, False),
        (conditional_elsewhere, True),
        (conditional_on_itself, False),
        (own_value, False),
        (scan, False),
        (strict, False),
        (pure, False),
    ],
)
def test_is_reorderable(define, expected):
    assert is_reorderable(stage_of(define)) == expected


def product(rows=70, columns=1003, kind=None):
    """A matrix times a vector, summed along the rows of the matrix."""
    kind = kind or hl.Float(32)
    matrix, vector = hl.ImageParam(kind, 2, "matrix"), hl.ImageParam(kind, 1, "vector")
    r = hl.RDom([(0, vector.dim(0).extent())], "r")
    summed, out = hl.Func("summed"), hl.Func("out")
    summed[Y] = hl.cast(kind, 0)
    summed[Y] += matrix[r, Y] * vector[r]
    out[Y] = summed[Y] + hl.cast(kind, 1)
    out.set_estimate(Y, 0, rows)
    matrix.set_estimates([(0, columns), (0, rows)])
    vector.set_estimates([(0, columns)])
    return hl.Pipeline(out)


@pytest.mark.parametrize("kind", [hl.Float(32), hl.Int(32)], ids=str)
@pytest.mark.few(1)
def test_a_product_of_a_matrix_and_a_vector_is_summed_in_steps_and_right(kind):
    algorithm = load(product(kind=kind))
    schedule = schedule_cpu(algorithm, MACHINE)[0].schedule
    place = {func.name.partition("$")[0]: i for i, func in enumerate(algorithm.funcs)}
    (summed,) = (e for e in schedule.funcs if e.func == place["summed"])
    innermost = summed.stages[1].loops[0]
    assert (innermost.name, innermost.mapping) == ("r0u_1", "vectorized")
    assert summed.stages[1].atomic
    # The rest of the loop beyond the last whole step, and rows beyond the last block, are summed.
    guarded = any_size(schedule, algorithm)
    assert not list(check(guarded, algorithm))
    with Session(algorithm, timing=ONCE, limits=PATIENT) as session:
        (done,) = session.measure([Variant(guarded)])
    assert done.measurement.status == "ok", done.measurement.message


def test_the_prediction_of_a_schedule_knows_its_steps():
    task = make_task(product(), target="host", machine=MACHINE)
    schedule = schedule_cpu(task.algorithm, MACHINE)[0].schedule
    one_by_one = read_schedule(to_json(schedule).replace('"vectorized"', '"serial"'))
    quick, slow = predicted(task, schedule), predicted(task, one_by_one)
    assert quick is not None
    assert slow is not None
    assert 2 * quick.seconds < slow.seconds


def extremes(width=1000, height=70):
    """The smallest and largest value of bytes and their range, as a Tuple."""
    data = hl.ImageParam(hl.UInt(8), 2, "data")
    r = hl.RDom([(0, width), (0, height)], "r")
    span, out = hl.Func("span"), hl.Func("out")
    span[()] = (hl.u8(255), hl.u8(0))
    span[()] = (hl.min(span[()][0], data[r.x, r.y]), hl.max(data[r.x, r.y], span[()][1]))
    out[X, Y] = data[X, Y] - span[()][0] + (span[()][1] - span[()][0])
    out.set_estimate(X, 0, width).set_estimate(Y, 0, height)
    data.set_estimates([(0, width), (0, height)])
    return hl.Pipeline(out)


def test_a_tuple_of_extremes_is_unrolled_and_right():
    algorithm = load(extremes())
    schedule = schedule_cpu(algorithm, MACHINE)[0].schedule
    place = {func.name.partition("$")[0]: i for i, func in enumerate(algorithm.funcs)}
    (span,) = (e for e in schedule.funcs if e.func == place["span"])
    assert span.stages[1].loops[0].mapping == "unrolled"
    assert not span.stages[1].atomic
    with Session(algorithm, timing=ONCE, limits=PATIENT) as session:
        (done,) = session.measure([Variant(any_size(schedule, algorithm))])
    assert done.measurement.status == "ok", done.measurement.message


def crossed(f, r, image):
    f[X] = (hl.min(f[X][0], f[X][1]), hl.max(f[X][1], image[r, X]))


def test_a_tuple_whose_values_mix_keeps_its_order():
    r = hl.RDom([(0, 100)], "r")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    f = hl.Func("f")
    f[X] = (0.0, 0.0)
    crossed(f, r, image)
    f.set_estimate(X, 0, 100)
    algorithm = load(hl.Pipeline(f))
    assert not is_reorderable(View(algorithm).stages(algorithm.outputs[0])[1])


@pytest.mark.parametrize("guarded", [False, True])
def test_a_sum_that_is_read_under_a_condition_on_loops_is_not_run_in_vectors(guarded):
    a = hl.ImageParam(hl.Float(32), 2, "a")
    k = hl.RDom([(0, 256)], "k")
    product, out = hl.Func("product"), hl.Func("out")
    product[X, Y] += a[k, X] * a[k, Y]
    out[X, Y] = hl.select(X <= Y, product[X, Y], 0.0) if guarded else product[X, Y] + 1.0
    out.set_estimate(X, 0, 256).set_estimate(Y, 0, 256)
    a.set_estimates([(0, 256), (0, 256)])
    algorithm = load(hl.Pipeline(out))
    view = View(algorithm)
    analysis = Analysis(view, estimated_boxes(view), algorithm.symbols)
    (name,) = (f.name for f in analysis.view.funcs if f.name.startswith("product"))
    assert run_extent(analysis, name, 1) == (0.0 if guarded else 256.0)


@pytest.mark.parametrize(("short", "steps"), [(16, 16), (32, 32), (50, 32), (256, 64)])
def test_updates_of_a_nested_reduction_have_no_more_steps_than_iterations(short, steps):
    j, b = hl.vars("j b")
    weights, recurrent, inputs, state = (hl.ImageParam(hl.Float(32), 2) for _ in range(4))
    r, s = hl.RDom([(0, short)], "r"), hl.RDom([(0, 256)], "s")
    gates, out = hl.Func("gates"), hl.Func("out")
    gates[j, b] = 0.0
    gates[j, b] += weights[r, j] * inputs[r, b]
    gates[j, b] += recurrent[s, j] * state[s, b]
    out[j, b] = hl.tanh(gates[j, b])
    out.set_estimates([(0, 1024), (0, 8)])
    algorithm = load(out)
    place = {func.name.split("$")[0]: i for i, func in enumerate(algorithm.funcs)}["gates"]
    (planned,) = schedule_cpu(algorithm, MACHINE)
    (entry,) = (entry for entry in planned.schedule.funcs if entry.func == place)
    factors = [
        {change.factor for change in nest.splits if change.old.startswith("r")}
        for nest in entry.stages
    ]
    assert factors == [set(), {steps}, {64}]


def test_a_shorter_reduction_has_shorter_steps():
    block = Block(steps=128)
    assert shortened(block, 0.0) is shortened(block, 128.0) is block  # 0: no vectors along it
    assert [shortened(block, n).steps for n in (127.0, 64.0, 20.0)] == [64, 64, 16]
