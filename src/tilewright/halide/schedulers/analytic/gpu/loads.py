"""Group the loads of a stage by access pattern, as the GPU cost model counts them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tilewright.halide.analysis.summaries import Load, StageSummary

SCATTERED = float("inf")


@dataclass(frozen=True, slots=True)
class LoadGroup:
    """`count` loads per iteration from one Func or image with the same access pattern.

    `bytes` is the size of one element. `hoisted` names the loops inside a thread that the
    address does not depend on, so that one load serves all their iterations. `step` is the
    distance, in elements of the innermost storage dimension, between the addresses of
    neighbouring threads: 0 for one address, infinite if they lie apart.
    """

    callee: str
    kind: str
    bytes: int
    hoisted: frozenset[str]
    step: float
    count: int


def load_groups(
    summary: StageSummary, thread_x: str | None, inside: frozenset[str]
) -> tuple[LoadGroup, ...]:
    """Return the grouped loads of a stage.

    Args:
        summary: The stage.
        thread_x: Name of its innermost thread loop, None if it has none.
        inside: Names of its loops inside a thread.
    """
    groups: Counter[tuple[str, str, int, frozenset[str], float]] = Counter()
    for load in summary.loads:
        hoisted = frozenset(inside - load.strides.keys())
        key = (load.callee, load.kind, load.type.bytes, hoisted, _step(load, thread_x))
        groups[key] += 1
    return tuple(LoadGroup(*key, count=count) for key, count in groups.items())


def _step(load: Load, thread_x: str | None) -> float:
    if thread_x is None:
        return SCATTERED
    if thread_x not in load.strides:
        return 0.0
    steps = load.strides[thread_x]
    if steps is None or any(steps[1:]):
        return SCATTERED
    return abs(steps[0]) if steps else 0.0
