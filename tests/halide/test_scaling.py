"""The work to schedule a pipeline grows no faster than its number of Funcs, by a logarithm."""

from __future__ import annotations

import cProfile
import math
import pstats
from collections.abc import Callable
from typing import Any

import pytest
from cpu_machines import FOUR_CORES as MACHINE
from large_pipelines import KINDS

from tilewright.halide.result import Result
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import make_task

NETWORK = 8, 12
# Shorter chains become a single kernel, longer ones several. From 64 Funcs on, some are computed in
# tiles, whose extents have to be bounded over all output sizes before a schedule is printed.
CHAIN = 64, 112
# Branches end in one Func that reads half of all; the work for it is bounded from 64 Funcs on.
WIDE = 80, 160


def work(kind: str, least: int, target: str) -> tuple[dict[str, int], int]:
    """Calls of functions in every phase, and the number of Funcs.

    Unlike seconds, calls are the same each time.
    """
    output = KINDS[kind](least)
    calls: dict[str, int] = {}

    def counted(phase: str, done: Callable[[], Any]) -> Any:
        profile = cProfile.Profile()
        profile.enable()
        result = done()
        profile.disable()
        calls[phase] = vars(pstats.Stats(profile))["total_calls"]
        return result

    machine = "a100" if target == "cuda" else MACHINE
    task = counted("import", lambda: make_task(output, target=target, machine=machine))
    planned = counted("search", lambda: plan(task)[0])
    result = Result(task, planned, "oneshot")
    counted("print", lambda: (result.to_cpp(), result.to_json()))
    counted("explain", result.explain)
    return calls, len(task.algorithm.funcs)


@pytest.mark.parametrize(
    ("kind", "target", "sizes"),
    [
        ("residual_network", "host", NETWORK),
        pytest.param("elementwise_chain", "cuda", CHAIN, marks=pytest.mark.thorough),
        pytest.param("pyramids", "cuda", CHAIN, marks=pytest.mark.thorough),
        pytest.param("branches", "host", WIDE, marks=pytest.mark.thorough),
    ],
)
def test_work_grows_with_the_number_of_funcs(
    kind: str, target: str, sizes: tuple[int, int]
) -> None:
    work(kind, 2, target)  # what is done once in a process
    (small, few), (large, many) = (work(kind, least, target) for least in sizes)
    assert many > few
    # A phase that goes over all Funcs for every Func exceeds this by far.
    allowed = many * math.log(many) / (few * math.log(few))
    growth = {phase: large[phase] / small[phase] for phase in small}
    assert {phase: factor for phase, factor in growth.items() if factor > allowed} == {}
