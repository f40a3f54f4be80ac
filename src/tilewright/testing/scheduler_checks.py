"""Conformance checks for schedulers of Halide pipelines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from tilewright.halide import apply, check, load
from tilewright.halide.ir import Algorithm, Schedule, from_json, to_json
from tilewright.machines import GpuMachine, Machine

Scheduler = Callable[[Algorithm, Machine], Schedule]
# Extents of the outputs' two dimensions: not multiples of vectors or tiles, and small.
WIDTH, HEIGHT = 61, 47


def pointwise() -> Any:
    """Return a chain of three Funcs, each reads one point of the one before."""
    hl, x, y = _variables()
    first, second, out = hl.Func("first"), hl.Func("second"), hl.Func("out")
    first[x, y] = x * 3 + y
    second[x, y] = first[x, y] * 2
    out[x, y] = second[x, y] - x
    return _estimated(out)


def stencils() -> Any:
    """Return a separable blur: two stencils, one after the other."""
    hl, x, y = _variables()
    source, across, out = hl.Func("source"), hl.Func("across"), hl.Func("out")
    source[x, y] = (x * 7 + y * 13) % 256
    across[x, y] = source[x - 1, y] + source[x, y] + source[x + 1, y]
    out[x, y] = across[x, y - 1] + across[x, y] + across[x, y + 1]
    return _estimated(out)


def reduction() -> Any:
    """Return a product of matrices: an update that sums over a loop of its own."""
    hl, x, y = _variables()
    left, right, out = hl.Func("left"), hl.Func("right"), hl.Func("out")
    k = hl.RDom([(0, 32)], "k")
    left[x, y] = (x + y * 5) % 17
    right[x, y] = (x * 3 + y) % 19
    out[x, y] = 0
    out[x, y] += left[k, y] * right[x, k]
    return _estimated(out)


def histogram() -> Any:
    """Return counts that an update scatters, and a Func that looks them up."""
    hl, x, y = _variables()
    source, counts, out = hl.Func("source"), hl.Func("counts"), hl.Func("out")
    points = hl.RDom([(0, WIDTH), (0, HEIGHT)], "points")
    source[x, y] = (x * 31 + y * 17) % 64
    counts[x] = 0
    counts[hl.clamp(source[points.x, points.y], 0, 63)] += 1
    out[x, y] = counts[hl.clamp(source[x, y], 0, 63)]
    return _estimated(out)


PIPELINES: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {"pointwise": pointwise, "stencils": stencils, "reduction": reduction, "histogram": histogram}
)


def check_scheduler(
    scheduler: Scheduler,
    machine: Machine,
    *,
    pipelines: Mapping[str, Callable[[], Any]] = PIPELINES,
    run: bool | None = None,
) -> None:
    """Check a scheduler: its schedules are legal, the same each time, and give right answers.

    Args:
        scheduler: takes an `Algorithm` and the machine, and returns a `Schedule`.
        machine: the machine to schedule for.
        pipelines: functions that each build an unscheduled output Func, of two dimensions, with
            estimates.
        run: whether schedules are compiled and run in this process, and their answers compared
            with those of the unscheduled pipeline; by default where the machine is a CPU.

    Raises:
        AssertionError: a schedule fails a check; the message names the pipeline and the check.
    """
    run = not isinstance(machine, GpuMachine) if run is None else run
    for name, build in pipelines.items():
        algorithm = load(build())
        schedule = scheduler(algorithm, machine)
        assert isinstance(schedule, Schedule), f"{name}: {schedule!r} is not a Schedule"
        assert schedule.algorithm == algorithm.digest, (
            f"{name}: the schedule is for another algorithm ({schedule.algorithm[:16]})"
        )
        wrong = [str(violation) for violation in check(schedule, algorithm)]
        assert not wrong, f"{name}: the schedule is illegal: {'; '.join(wrong)}"
        assert from_json(to_json(schedule), algorithm) == schedule, (
            f"{name}: the schedule has changed after it was stored and read again"
        )
        assert scheduler(load(build()), machine) == schedule, (
            f"{name}: the same pipeline built again gets another schedule"
        )
        if run:
            _check_answers(name, build, algorithm, schedule)


def _check_answers(
    name: str, build: Callable[[], Any], algorithm: Algorithm, schedule: Schedule
) -> None:
    import halide as hl

    wanted = np.array(build().realize([WIDTH, HEIGHT]))
    out = build()
    try:
        apply(schedule, algorithm, hl.Pipeline(out))
        found = np.array(out.realize([WIDTH, HEIGHT]))
    except hl.HalideError as error:
        raise AssertionError(f"{name}: Halide refuses the schedule: {error}") from None
    different = int((wanted != found).sum())
    assert different == 0, f"{name}: {different} of {wanted.size} values are wrong"


def _variables() -> tuple[Any, Any, Any]:
    """Return Halide's module and two variables."""
    import halide as hl

    return hl, hl.Var("x"), hl.Var("y")


def _estimated(out: Any) -> Any:
    out.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return out
