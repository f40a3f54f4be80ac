"""Conformance checks for cost models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tilewright.halide import load, schedule
from tilewright.halide.ir import Algorithm, Schedule
from tilewright.machines import Machine
from tilewright.testing.scheduler_checks import HEIGHT, PIPELINES, WIDTH

CostModel = Callable[[Algorithm, Schedule, Machine], float | None]
# A pipeline with this many times the points in each dimension, and so 256 times the work.
LARGER = 16


def check_cost_model(
    model: CostModel,
    machine: Machine,
    *,
    pipelines: Mapping[str, Callable[[], Any]] = PIPELINES,
) -> None:
    """Check a cost model: costs are positive, the same each time, and grow with the work.

    Args:
        model: takes an `Algorithm` with its estimates, a `Schedule` of it and the machine; returns
            a cost in any unit, or None if it cannot cost the schedule.
        machine: what the schedules are for.
        pipelines: as for `check_scheduler`, with outputs of 61 by 47 points.

    Raises:
        AssertionError: a cost is wrong (the message names the pipeline), or all are None.
    """
    said = 0
    for name, build in pipelines.items():
        cost = _cost(name, model, build(), machine, 1)
        if cost is None:
            continue
        said += 1
        again = _cost(name, model, build(), machine, 1)
        assert again == cost, f"{name}: the same schedule costs {cost}, and then {again}"
        larger = _cost(name, model, build(), machine, LARGER)
        assert larger is not None, f"{name}: it has a cost, and none for a larger output"
        assert larger > cost, (
            f"{name}: {LARGER**2} times the points cost {larger}, not more than {cost}"
        )
    assert said or not pipelines, "the model has no cost for any pipeline"


def _cost(name: str, model: CostModel, out: Any, machine: Machine, times: int) -> float | None:
    """Return the model's cost of our schedule at `times` times the pipeline's extents."""
    extents = [(0, WIDTH * times), (0, HEIGHT * times)]
    estimates = {out.name(): extents}
    algorithm = load(out, estimates=estimates)
    planned = schedule(
        out, machine=machine, estimates=estimates, check=False, calibration=False
    ).schedule
    cost = model(algorithm, planned, machine)
    if cost is None:
        return None
    assert isinstance(cost, int | float), f"{name}: the cost is {cost!r}, not a number"
    assert math.isfinite(cost), f"{name}: the cost is {cost}"
    assert cost > 0, f"{name}: the cost is {cost}, not above zero"
    return float(cost)
