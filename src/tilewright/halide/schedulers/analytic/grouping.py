"""Greedy grouping: which Funcs are computed together, tile by tile.

A group has one tiled output; its other members are computed within the output's tiles. At first,
each Func is a group. A group is merged into the only group that reads it while a merge lowers the
total cost (Mullapudi 2016, Section 4; Sioutas 2020, Section 4.2). The caller provides the cost of a
group, from the cost model of a CPU or a GPU.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    """The best implementation found for a group; `cost` is infinite if there is none."""

    @property
    def cost(self) -> float:
        """Estimated cost, in the unit of the cost model."""
        ...


P = TypeVar("P", bound=Plan)

# After planning this many Funcs in trial merges, gains are updated lazily: if the reader has grown,
# a merge is costed again only when it is the best one left, because gains seldom grow.
EXACT_EFFORT = 2500
# The maximum number of members of a group, and of Funcs read by the output of a group that others
# are merged into: the time to cost a merge is proportional to both. The largest group in the
# examples has 42 members.
MOST_MEMBERS = 64


@dataclass(frozen=True)
class Grouping(Generic[P]):
    """A partition of a view's Funcs into groups, each with its plan."""

    groups: tuple[Group, ...]
    plans: tuple[P, ...]

    @property
    def cost(self) -> float:
        """The sum of the groups' costs."""
        return sum(plan.cost for plan in self.plans)


def greedy_grouping(
    view: View,
    plan: Callable[[Group], P],
    may_merge: Callable[[Group, Group], bool] = lambda producer, consumer: True,
    initial: Sequence[Group] | None = None,
    producers_first: bool = False,
) -> Grouping[P]:
    """Merge groups while a merge lowers the total cost, and return the result.

    A group can only be merged into another one that contains all its readers, because a Func has
    one compute level. Fixed Funcs (extern, memoised), Funcs that the user scheduled, and outputs
    of the pipeline remain outputs of separate groups. In large pipelines, not every merge is tried
    again after each other merge (`EXACT_EFFORT`), and the size of groups is limited
    (`MOST_MEMBERS`).

    Args:
        view: the pipeline with its inlined Funcs.
        plan: returns the best plan of a group.
        may_merge: whether a producing group may be merged into a consuming one.
        initial: the initial groups; by default one per Func.
        producers_first: do the merge that is earliest in the pipeline first, instead of the one
            with the largest gain.
    """
    merger = _Merger(view, plan, may_merge, producers_first)
    start = [Group((f.name,)) for f in view.funcs] if initial is None else initial
    for group in start:
        merger.add(group, plan(group))
    merger.look_at(start)
    while merger.step():
        pass
    order = view.algorithm.order
    groups = sorted(merger.plans, key=lambda g: order[g.output])
    return Grouping(tuple(groups), tuple(merger.plans[g] for g in groups))


class _Merger(Generic[P]):
    """The current groups and a queue of the merges that lower the total cost.

    After a merge, only merges of the new group and of the groups that it reads are evaluated again:
    the gains of others do not change.
    """

    def __init__(
        self,
        view: View,
        plan: Callable[[Group], P],
        may_merge: Callable[[Group, Group], bool],
        producers_first: bool,
    ) -> None:
        self.view = view
        self.plan = plan
        self.may_merge = may_merge
        self.producers_first = producers_first
        self.order = view.algorithm.order
        self.outputs = frozenset(view.algorithm.outputs)
        self.group_of: dict[str, Group] = {}
        self.plans: dict[Group, P] = {}
        self.spent = 0
        # By the output of a producing group: the group to merge it into, the merged group with its
        # plan if it was tried, and the gain of the last trial.
        self._readers: dict[str, Group] = {}
        self._trials: dict[str, tuple[Group, P]] = {}
        self._gains: dict[str, float] = {}
        # A heap of (-gain, position of the output in the pipeline); outdated entries are skipped.
        self._waiting: list[tuple[float, int]] = []
        self._rank: dict[str, tuple[float, int]] = {}

    def add(self, group: Group, plan: P) -> None:
        """Add a group with its plan."""
        self.plans[group] = plan
        for name in group.members:
            self.group_of[name] = group

    def look_at(self, producers: Iterable[Group]) -> None:
        """Compute the gains of merging these groups, whose readers have changed."""
        for producer in sorted(producers, key=lambda group: self.order[group.output]):
            name = producer.output
            self._trials.pop(name, None)
            self._rank.pop(name, None)
            reader = self._reader(producer)
            if reader is None:
                continue
            self._readers[name] = reader
            if self.spent <= EXACT_EFFORT or name not in self._gains:
                self._try(name)
            self._queue(name)

    def step(self) -> bool:
        """Do the best merge; return false if no merge lowers the cost."""
        while self._waiting:
            rank = heapq.heappop(self._waiting)
            name = self.view.algorithm.funcs[rank[1]].name
            if self._rank.get(name) != rank:
                continue
            if name not in self._trials:
                self._try(name)
                self._queue(name)
                continue
            producer, reader = self.group_of[name], self._readers[name]
            merged, plan = self._trials.pop(name)
            del self._rank[name], self.plans[producer], self.plans[reader]
            self.add(merged, plan)
            self.look_at({merged, *self._read_by(merged)})
            return True
        return False

    def _read_by(self, group: Group) -> Iterator[Group]:
        """Yield the other groups whose outputs a group reads."""
        for member in group.members:
            for name in self.view.producers[member]:
                producer = self.group_of.get(name)
                if producer is not None and producer is not group and producer.output == name:
                    yield producer

    def _reader(self, producer: Group) -> Group | None:
        """Return the group that `producer` may be merged into, if any."""
        func = self.view.by_name[producer.output]
        if func.fixed or func.scheduled or func.name in self.outputs:
            return None
        readers = {self.group_of[name].output for name in self.view.consumers[func.name]}
        if len(readers) != 1:
            return None
        consumer = self.group_of[readers.pop()]
        target = self.view.by_name[consumer.output]
        if consumer is producer or target.fixed or target.scheduled:
            return None
        if (
            len(producer.members) + len(consumer.members) > MOST_MEMBERS
            or len(self.view.producers[consumer.output]) > MOST_MEMBERS
        ):
            return None
        return consumer if self.may_merge(producer, consumer) else None

    def _try(self, name: str) -> None:
        producer, consumer = self.group_of[name], self._readers[name]
        names = {*producer.members, *consumer.members}
        members = sorted(names - {consumer.output}, key=self.order.__getitem__)
        merged = Group((*members, consumer.output))
        self.spent += len(merged.members)
        plan = self.plan(merged)
        self._trials[name] = merged, plan
        apart = self.plans[producer].cost + self.plans[consumer].cost
        self._gains[name] = apart - plan.cost

    def _queue(self, name: str) -> None:
        """Queue a merge if its last known gain is positive."""
        gain = self._gains[name]
        self._rank.pop(name, None)
        if gain > 0:
            # Ties go to the earlier producer, so that the result is reproducible.
            rank = (0.0 if self.producers_first else -gain, self.order[name])
            self._rank[name] = rank
            heapq.heappush(self._waiting, rank)
