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

from tilewright.halide.analysis.inlining import View


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

# Once so many Funcs have been planned in trials, a merge whose reader has grown since is looked
# at anew only when its turn would come: what merging gains seldom grows with the group.
EXACT_EFFORT = 2500


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
    and outputs of the pipeline stay outputs of groups of their own. In large pipelines not
    every merge is tried again after every other (`EXACT_EFFORT`).
    """
    order = view.algorithm.order
    outputs = set(view.algorithm.outputs)
    start = [Group((f.name,)) for f in view.funcs] if initial is None else initial
    group_of: dict[str, Group] = {name: group for group in start for name in group.members}
    plans: dict[Group, P] = {group: plan(group) for group in start}
    tried: dict[tuple[Group, Group], tuple[Group, P]] = {}
    before: dict[Group, float] = {}  # what merging a producer gained when last looked at
    spent = 0

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

    def evaluate(producer: Group, consumer: Group) -> None:
        nonlocal spent
        names = {*producer.members, *consumer.members}
        members = sorted(names - {consumer.output}, key=order.__getitem__)
        merged = Group((*members, consumer.output))
        spent += len(merged.members)
        tried[producer, consumer] = merged, plan(merged)

    def benefit(producer: Group, consumer: Group) -> float:
        merged_plan = tried[producer, consumer][1]
        known = plans[producer].cost + plans[consumer].cost - merged_plan.cost
        before[producer] = known
        return known

    def rank(producer: Group, gain: float) -> tuple[float, int]:
        # Ties go to the producer that comes first, so that the result is repeatable.
        return (0.0 if producers_first else gain, -order[producer.output])

    while True:
        waiting: dict[tuple[float, int], tuple[Group, Group]] = {}
        for producer in set(group_of.values()):
            consumer = mergeable(producer)
            if consumer is None:
                continue
            pair = (producer, consumer)
            if pair not in tried and (spent <= EXACT_EFFORT or producer not in before):
                evaluate(*pair)
            gain = benefit(*pair) if pair in tried else before[producer]
            if gain > 0:
                waiting[rank(producer, gain)] = pair
        while waiting and waiting[max(waiting)] not in tried:
            pair = waiting.pop(max(waiting))
            evaluate(*pair)
            gain = benefit(*pair)
            if gain > 0:
                waiting[rank(pair[0], gain)] = pair
        if not waiting:
            break
        producer, consumer = waiting[max(waiting)]
        merged, plans[merged] = tried[producer, consumer]
        for name in merged.members:
            group_of[name] = merged
    groups = sorted(set(group_of.values()), key=lambda g: order[g.output])
    return Grouping(tuple(groups), tuple(plans[g] for g in groups))
