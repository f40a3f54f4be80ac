"""Reductions whose blocks and threads share a value: only what Halide makes atomic additions of."""

import halide as hl
import pytest

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.execution.atomic_additions import is_atomic_addition
from tilewright.halide.execution.lowering import LOSES_UPDATES, adds_atomically, refusal
from tilewright.halide.execution.session import Session, Variant
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    FuncSchedule,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
)
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.registry import device_limits, plan
from tilewright.halide.schedulers.task import make_task

x, y, i = hl.vars("x y i")
TARGET = "host-opencl"


def histogram(value, added=lambda image, r: 1, image_type=None):
    """Count what `value` gives of the image, 64 at most, over 128 times 64 points."""
    image = hl.ImageParam(image_type or hl.UInt(16), 2, "image")
    r = hl.RDom([(0, 128), (0, 64)], "r")
    source, counts = hl.Func("source"), hl.Func("counts")
    source[x, y] = value(image)
    counts[i] = 0
    counts[hl.clamp(hl.i32(source[r.x, r.y]), 0, 63)] += hl.i32(added(image, r))
    out = hl.Func("out")
    out[x] = counts[hl.clamp(x, 0, 63)]
    out.set_estimates([(0, 64)])
    image.set_estimates([(0, 128), (0, 64)])
    return out


def edge_stencil(image):
    inside = hl.BoundaryConditions.repeat_edge(image)
    return hl.i32(inside[x - 1, y]) + inside[x, y] + inside[x + 1, y]


def shared_schedule(algorithm, computed, target=TARGET):
    """Every Func inlined or at root, the histogram in blocks and threads with atomic()."""
    serial = StageSchedule((), (ScheduledLoop("v0"),))
    update = StageSchedule(
        (Split("r0", "r0_b", "r0_t", 32, "guard_with_if"),),
        (
            ScheduledLoop("r0_t", "gpu_thread"),
            ScheduledLoop("r1", "gpu_block"),
            ScheduledLoop("r0_b", "gpu_block"),
        ),
        atomic=True,
    )
    entries = []
    for place, func in enumerate(algorithm.funcs):
        stem = func.name.split("$")[0]
        if stem == "counts":
            entries.append(FuncSchedule(place, ROOT, ROOT, stages=(serial, update)))
        elif stem in computed or func.name in algorithm.outputs:
            entries.append(FuncSchedule(place, ROOT, ROOT))
        else:
            entries.append(FuncSchedule(place, INLINE, INLINE))
    return Schedule(algorithm.digest, target, tuple(entries))


# Whether `source` is computed, what it is of the image, what is added, whether that is atomic.
CASES = {
    "a value of the image": (False, lambda image: image[x, y], None, True),
    "two values of the image": (False, lambda image: image[x, y] + image[x + 1, y], None, True),
    "a value that occurs twice": (False, lambda image: image[x, y] * image[x, y], None, False),
    "a choice": (False, lambda im: hl.select(im[x, y] > 3, im[x, y], im[x, y] / 2), None, False),
    "a stencil with an edge": (False, edge_stencil, None, False),
    "a computed stencil": (True, lambda image: hl.u8(edge_stencil(image)), None, True),
    "a computed clamped value": (
        True,
        lambda image: hl.u8(hl.clamp(image[x, y], hl.u16(5), hl.u16(20))),
        None,
        False,
    ),
    "as much as the coordinate has": (
        False,
        lambda image: image[x, y],
        lambda image, r: hl.clamp(hl.i32(image[r.x, r.y]), 0, 63),
        False,
    ),
    "another value": (False, lambda image: image[x, y], lambda im, r: im[r.x + 1, r.y], True),
}


@pytest.mark.parametrize("case", CASES)
def test_what_halide_adds_atomically_is_known(case):
    computed, value, added, atomic = CASES[case]
    algorithm = load(histogram(value, added or (lambda image, r: 1)))
    (name,) = (f.name for f in algorithm.funcs if f.name.startswith("counts"))
    schedule = shared_schedule(algorithm, {"source"} if computed else set())
    inlined = frozenset(
        algorithm.funcs[entry.func].name for entry in schedule.funcs if entry.compute == INLINE
    )
    analysis = Analysis(View(algorithm, inlined), {}, algorithm.symbols)
    assert is_atomic_addition(analysis, name, 1, floats=False) == atomic
    assert adds_atomically(schedule, algorithm) == atomic
    assert bool(refusal(schedule, algorithm)) != atomic
    assert not check(schedule, algorithm)  # which does not lower


@pytest.mark.opencl
def test_a_schedule_that_loses_updates_is_not_run():
    algorithm = load(histogram(lambda image: image[x, y] * image[x, y]))
    variant = Variant(shared_schedule(algorithm, ()), target=TARGET)
    with Session(algorithm, targets=[TARGET]) as session:
        (done,) = session.measure([variant])
    assert done.measurement.status == "build_failed"
    assert LOSES_UPDATES in done.measurement.message


def test_sums_of_floats_are_not_shared_on_opencl():
    total = hl.Func("total")
    r = hl.RDom([(0, 128)], "r")
    total[()] = hl.f32(0)
    total[()] += hl.f32(r.x)
    total.set_estimates([])
    algorithm = load(total)
    update = StageSchedule(
        (Split("r0", "r0_b", "r0_t", 32, "guard_with_if"),),
        (ScheduledLoop("r0_t", "gpu_thread"), ScheduledLoop("r0_b", "gpu_block")),
        atomic=True,
    )
    entry = FuncSchedule(0, ROOT, ROOT, stages=(StageSchedule((), ()), update))
    for target, kinds in (("host-opencl", ["atomic"]), ("host-cuda", [])):
        schedule = Schedule(algorithm.digest, target, (entry,))
        assert [violation.kind for violation in check(schedule, algorithm)] == kinds


@pytest.mark.parametrize("target", ["opencl", "cuda"])
@pytest.mark.few(1)
def test_a_histogram_of_a_stencil_loses_no_updates(target):
    machine = "rtx2080ti" if target == "cuda" else "pocl"
    for value in (edge_stencil, lambda image: hl.u8(edge_stencil(image))):
        task = make_task(histogram(value), target=target, machine=machine, name="histogram")
        (planned,) = plan(task)
        assert not check(planned.schedule, task.algorithm, device_limits(task))
        assert not refusal(planned.schedule, task.algorithm)


def test_a_producer_is_not_inlined_where_that_would_cost_the_atomic_additions():
    task = make_task(
        histogram(lambda image: hl.u8(edge_stencil(image))),
        target="cuda",
        machine="rtx2080ti",
        name="histogram",
    )
    entries = {
        task.algorithm.funcs[e.func].name.split("$")[0]: e for e in plan(task)[0].schedule.funcs
    }
    assert entries["counts"].stages[1].atomic
    assert entries["source"].compute != INLINE
