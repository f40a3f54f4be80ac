"""Operands of products that are copied to panels."""

from dataclasses import replace

import halide as hl
import numpy as np
import pytest
from answers import assert_right

from tilewright.halide.emit.apply import apply
from tilewright.halide.frontend.source import load
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.analytic.cpu.scheduler import schedule_cpu
from tilewright.halide.schedulers.any_size import any_size
from tilewright.halide.schedulers.learned.cost_model import shipped
from tilewright.halide.schedulers.learned.scheduler import plan_learned
from tilewright.halide.schedulers.task import make_task
from tilewright.machines import Cache, CpuMachine

CACHES = (Cache(1, 32 << 10, 64, 1), Cache(2, 512 << 10, 64, 1), Cache(3, 32 << 20, 64, 2))
MACHINE = CpuMachine("test", "x86-64", 2, ("avx2", "fma"), 256, CACHES)
# Rows are 6144 bytes apart, and 512 of them do not stay in the second cache.
SIZES = {"width": 1536, "height": 48, "depth": 512}


def product(width, height, depth, form="plain"):
    """A product of matrices, and products whose left operand cannot be a panel."""
    a, b = (hl.ImageParam(hl.Float(32), 2, name) for name in ("a", "b"))
    x, y = hl.vars("x y")
    k = hl.RDom([(0, depth)], "k")
    total, out = hl.Func("total"), hl.Func("out")
    total[x, y] = 0.0
    left = {
        "plain": lambda: a[x, k],
        "shifted": lambda: a[x + y % 2, k],
        "twice": lambda: a[x, k] + a[x + 1, k],
        "transposed": lambda: a[k, x],
    }[form]()
    total[x, y] += left * b[k, y]
    out[x, y] = total[x, y]
    out.set_estimates([(0, width), (0, height)])
    extents = (depth, width + 2) if form == "transposed" else (width + 2, depth)
    a.set_estimates([(0, extent) for extent in extents])
    b.set_estimates([(0, depth), (0, height)])
    return hl.Pipeline(out), a, b


def planned(machine=MACHINE, **options):
    pipeline, _, _ = product(**options)
    algorithm = load(pipeline)
    return algorithm, schedule_cpu(algorithm, machine)[0]


def panels(plan):
    notes = [note for group in plan.groups for note in group.notes]
    return [note.partition("_im")[0] for note in notes if "is copied to a panel" in note]


def test_the_operand_with_distant_rows_is_copied():
    algorithm, plan = planned(**SIZES)
    assert panels(plan) == ["a"]
    (group,) = plan.groups
    assert group.funcs[0].startswith("a_im")
    # Two tasks per core share the rows.
    assert (group.tile, group.parallel_tasks) == ((1536, 12), 4)
    entries = {entry.func: entry for entry in plan.schedule.funcs}
    by_name = {func.name.partition("$")[0]: i for i, func in enumerate(algorithm.funcs)}
    assert entries[by_name["a_im"]].compute.loop == "v0b"
    assert entries[by_name["total"]].compute.loop == "v1b"
    assert check(plan.schedule, algorithm) == []


@pytest.mark.parametrize("auto", [False, True])
@pytest.mark.few(1)
def test_the_learned_scheduler_keeps_a_panel_whatever_its_model_expects(auto):
    _, analytic = planned(**SIZES)
    assert panels(analytic) == ["a"]
    # Any other schedule comes first that is expected to be faster, however little.
    bold = replace(shipped(), drift=0.0, residual=0.0)
    task = make_task(product(**SIZES)[0], machine=MACHINE)
    found = plan_learned(task, model=bold, auto=auto)
    copied = {e.func for e in analytic.schedule.funcs if e.compute.kind == "at"}
    assert len(copied) == 2  # the panel and the sum
    assert copied <= {e.func for e in found[0].schedule.funcs if e.compute.kind == "at"}


@pytest.mark.parametrize(
    "changed",
    [
        {"width": 500},  # rows less than a page apart
        {"depth": 200},  # few rows: they stay
        {"depth": 9000},  # a panel larger than the second cache
        {"height": 4},  # each copy would be used once
        {"form": "shifted"},
        {"form": "twice"},
        {"form": "transposed"},
    ],
)
def test_others_are_not(changed):
    _, plan = planned(**{**SIZES, **changed})
    assert panels(plan) == []


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.few(1)
def test_the_answer_is_right(guarded):
    # The height is neither a multiple of a block nor of a task's rows.
    algorithm, plan = planned(width=1536, height=50, depth=512)
    assert panels(plan) == ["a"]
    assert_right(algorithm, plan.schedule, guarded)


@pytest.mark.parametrize(("width", "height"), [(1536, 48), (1543, 31), (40, 50), (7, 3)])
@pytest.mark.few(2)
def test_it_is_right_at_other_sizes(width, height):
    pipeline, a, b = product(**SIZES)
    algorithm = load(pipeline)
    plan = schedule_cpu(algorithm, MACHINE)[0]
    assert panels(plan) == ["a"]
    apply(any_size(plan.schedule, algorithm), algorithm, pipeline)
    random = np.random.default_rng(0)
    # Halide's first dimension is NumPy's last.
    left = random.random((512, width), np.float32)
    right = random.random((height, 512), np.float32)
    a.set(hl.Buffer(left))
    b.set(hl.Buffer(right))
    found = np.array(pipeline.realize([width, height]))
    assert np.allclose(found, right @ left, rtol=1e-4)
