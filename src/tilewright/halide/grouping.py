"""Greedy grouping: which Funcs are computed together, tile by tile.

A group has one output, tiled; its members are computed inside the output's tiles. Groups
start as single Funcs, and the merge of a group into the one group that reads it is done as
long as some merge lowers the summed cost (Mullapudi 2016, Section 4; Sioutas 2020,
Section 4.2). What a group costs is the caller's business: a cost model for a GPU or a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tilewright.halide.inlining import View


@dataclass(frozen=True, slots=True)
class Group:
    """Funcs computed together: `members` in realisation order, the output last."""

    members: tuple[str, ...]

    @property
    def output(self) -> str:
        """The Func whose loops are tiled."""
        return self.members[-1]


class Plan(Protocol):
    """The best way found to run a group; `cost` is infinite where there is none."""

    @property
    def cost(self) -> float:
        """Estimated cost, in the model's own unit."""
        ...


P = TypeVar("P", bound=Plan)


@dataclass(frozen=True)
class Grouping(Generic[P]):
    """A partition of a view's Funcs into groups, each with its plan."""

    groups: tuple[Group, ...]
    plans: tuple[P, ...]

    @property
    def cost(self) -> float:
        """The sum over groups."""
        return sum(plan.cost for plan in self.plans)


def greedy_grouping(
    view: View,
    plan: Callable[[Group], P],
    may_merge: Callable[[Group, Group], bool] = lambda producer, consumer: True,
    initial: Sequence[Group] | None = None,
    producers_first: bool = False,
) -> Grouping[P]:
    """Merges groups while that lowers the summed cost.

    The merge that gains most is done first or, with `producers_first`, the one earliest in
    the pipeline. `initial` partitions the Funcs to start from; by default each is alone.

    Only a group all of whose readers lie in one other group can be merged into it, for a
    Func is computed at one place. Fixed Funcs (extern, memoised), Funcs the user scheduled
    and outputs of the pipeline stay outputs of groups of their own.
    """
    order = view.algorithm.order
    outputs = set(view.algorithm.outputs)
    start = [Group((f.name,)) for f in view.funcs] if initial is None else initial
    group_of: dict[str, Group] = {name: group for group in start for name in group.members}
    plans: dict[Group, P] = {group: plan(group) for group in start}
    tried: dict[tuple[Group, Group], tuple[Group, P] | None] = {}

    def mergeable(producer: Group) -> Group | None:
        func = view.by_name[producer.output]
        if func.fixed or func.scheduled or func.name in outputs:
            return None
        readers = {group_of[name] for name in view.consumers[func.name]}
        if len(readers) != 1:
            return None
        consumer = readers.pop()
        target = view.by_name[consumer.output]
        if consumer == producer or target.fixed or target.scheduled:
            return None
        return consumer if may_merge(producer, consumer) else None

    while True:
        best: tuple[tuple[float, int], Group, Group, Group, P] | None = None
        for producer in set(group_of.values()):
            consumer = mergeable(producer)
            if consumer is None:
                continue
            pair = (producer, consumer)
            if pair not in tried:
                names = {*producer.members, *consumer.members}
                members = sorted(names - {consumer.output}, key=order.__getitem__)
                merged = Group((*members, consumer.output))
                tried[pair] = (merged, plan(merged))
            outcome = tried[pair]
            if outcome is None:
                continue
            merged, merged_plan = outcome
            benefit = plans[producer].cost + plans[consumer].cost - merged_plan.cost
            # Ties go to the producer that comes first, so that the result is repeatable.
            place = order[producer.output]
            rank = (0.0, -place) if producers_first else (benefit, -place)
            if benefit > 0 and (best is None or rank > best[0]):
                best = (rank, producer, consumer, merged, merged_plan)
        if best is None:
            break
        _, producer, consumer, merged, merged_plan = best
        plans[merged] = merged_plan
        for name in merged.members:
            group_of[name] = merged
    groups = sorted(set(group_of.values()), key=lambda g: order[g.output])
    return Grouping(tuple(groups), tuple(plans[g] for g in groups))
