"""The structure of a scheduled nest: where every Func is produced and stored, without sizes.

A `Body` is the inside of a loop, or the whole pipeline. It stores some Funcs and produces some.
Each `Production` has one `StageNest` per stage, whose loops have bodies in turn. If several stages
of a consumer have the loop at which a Func is computed, the Func is produced in each of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from tilewright.halide.analysis.inlining import View
from tilewright.halide.ir.algorithm import Const, Func, Stage, Variable
from tilewright.halide.ir.nest import original_loops, scheduled_loops, stage_schedules
from tilewright.halide.ir.schedule import (
    ROOT,
    FuncSchedule,
    Fuse,
    Level,
    Mapping,
    Schedule,
    ScheduleError,
    Split,
)

StageKey = tuple[int, int]  # a Func's position in realisation order, and the stage
# Maximum number of productions. A producer that two stages of its consumer read is produced in
# both, so the number grows exponentially along a chain of such Funcs.
_MOST_PLACES = 4096


@dataclass(frozen=True, eq=False)
class StageNest:
    """One stage's loops and their bodies.

    Attributes:
        key: Position of the Func, and the stage.
        func: The Func.
        stage: The stage after inlining.
        loops: Name and mapping of each loop, outermost first.
        splits: The splits and fusions, in order.
        entry: Position of the Func's entry in the schedule; -1 without one.
        variables: Maps canonical loop names (``v0``, ``r1``) to variables of the definition.
        known: The extents that Halide knows at compile time, by canonical loop name.
        reads: Positions of the Funcs that the stage reads.
        single_thread: As in `StageSchedule`.
        bodies: Maps the position of a loop in `loops` to its body, for loops in which a Func is
            stored or produced.
    """

    key: StageKey
    func: Func
    stage: Stage
    loops: tuple[tuple[str, Mapping], ...]
    splits: tuple[Split | Fuse, ...]
    entry: int
    variables: dict[str, str]
    known: dict[str, float]
    reads: frozenset[int]
    single_thread: bool = False
    bodies: dict[int, Body] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Production:
    """The computation of a Func in one `Body`."""

    func: int
    stages: tuple[StageNest, ...]


@dataclass(eq=False)
class Body:
    """The inside of a loop, or the whole pipeline.

    Attributes:
        stored: Positions of the Funcs allocated here.
        productions: The Funcs computed directly in this body, in order.
        defines: The stages whose required boxes are computed again here, consumers first, each with
            the stages whose reads determine its box.
        inner: Positions of the Funcs produced inside, at any depth.
    """

    stored: list[int] = field(default_factory=list)
    productions: list[Production] = field(default_factory=list)
    defines: tuple[tuple[StageKey, tuple[StageKey, ...]], ...] = ()
    inner: frozenset[int] = frozenset()


class NestStructure:
    """The nest of a schedule for one algorithm.

    `entries` maps the position of every Func that is not inlined to its schedule.

    Args:
        view: The algorithm with the schedule's clones, as the schedule inlines it.
        schedule: The schedule.
        known: Nests of single Funcs, kept for other schedules of the same algorithm.

    Raises:
        ScheduleError: A level names a loop that does not enclose every use.
    """

    def __init__(
        self,
        view: View,
        schedule: Schedule,
        known: dict[Hashable, tuple[StageNest, ...]] | None = None,
    ) -> None:
        self.view = view
        self.schedule = schedule
        algorithm = view.algorithm
        given = {entry.func: (i, entry) for i, entry in enumerate(schedule.funcs)}
        self.names = tuple(func.name for func in algorithm.funcs)
        self.outputs = frozenset(algorithm.order[name] for name in algorithm.outputs)
        self.entries: dict[int, FuncSchedule] = {}
        self._places: dict[int, int] = {}
        for i, func in enumerate(algorithm.funcs):
            if func.name not in view.inlined:
                self._places[i], self.entries[i] = given.get(i, (-1, FuncSchedule(i, ROOT, ROOT)))
        self.consumers: dict[int, list[StageKey]] = {i: [] for i in self.entries}
        self.stages: dict[StageKey, StageNest] = {}
        self._of: dict[int, tuple[StageNest, ...]] = {}
        for i in self.entries:
            self._of[i] = self._stages(i) if known is None else self._found(i, known)
            for nest in self._of[i]:
                self.stages[nest.key] = nest
                for read in sorted(nest.reads - {i}):
                    self.consumers[read].append(nest.key)
        self._sites = self._place()
        self._made = 0
        self.root = self._body(None, frozenset())
        self._store(self.root, [])
        self.root.defines = self._defines(self.root.inner, None, frozenset())

    def productions(self) -> Iterator[tuple[Production, tuple[tuple[StageNest, int], ...]]]:
        """Yield every production with its surrounding loops: stage and position in its `loops`."""

        def walk(
            body: Body, around: tuple[tuple[StageNest, int], ...]
        ) -> Iterator[tuple[Production, tuple[tuple[StageNest, int], ...]]]:
            for production in body.productions:
                yield production, around
                for stage in production.stages:
                    for at, inside in sorted(stage.bodies.items()):
                        outer = tuple((stage, place) for place in range(at + 1))
                        yield from walk(inside, around + outer)

        yield from walk(self.root, ())

    # --- stages ---------------------------------------------------------------------------

    def _found(self, i: int, known: dict[Hashable, tuple[StageNest, ...]]) -> tuple[StageNest, ...]:
        """Return the nests of a Func, which depend on its schedule and what is inlined into it."""
        name = self.view.algorithm.funcs[i].name
        key = i, self._places[i], self.entries[i], self.view.absorbed(name)
        if key not in known:
            known[key] = self._stages(i)
        return known[key]

    def _stages(self, i: int) -> tuple[StageNest, ...]:
        func = self.view.algorithm.funcs[i]
        order = self.view.algorithm.order
        if func.extern is not None:
            read = frozenset(order[n] for n in func.extern.reads if n in self.view.by_name)
            stage = Stage(func.name, 0, (), (), (), (), ())
            return (StageNest((i, 0), func, stage, (), (), -1, {}, {}, read),)
        found = []
        rewritten = self.view.stages(func.name)
        if func.scheduled and self._places[i] < 0:
            return tuple(self._kept(i, func, stage) for stage in rewritten)
        for stage, nest in stage_schedules(self.view.algorithm, self.entries[i]):
            loops = scheduled_loops(func, stage, nest)
            mapped = {loop.name: loop.mapping for loop in nest.loops}
            originals = original_loops(func, stage)
            names = {o.name: loop.name for o, loop in zip(originals, stage.loops, strict=True)}
            body = rewritten[stage.index]
            reads = {order[c.name] for c in body.calls if c.kind == "func"}
            found.append(
                StageNest(
                    (i, stage.index),
                    func,
                    body,
                    tuple((loop.name, mapped[loop.name]) for loop in reversed(loops)),
                    nest.splits,
                    self._places[i],
                    names,
                    {**_known(func, stage), **_promised(self.entries[i])},
                    frozenset(reads),
                    nest.single_thread,
                )
            )
        return tuple(found)

    def _kept(self, i: int, func: Func, stage: Stage) -> StageNest:
        """Return a stage of a Func that keeps the user's schedule, whose loops are unknown."""
        names = {f"r{r}": rvar.name for r, rvar in enumerate(stage.rvars)}
        for d, arg in enumerate(stage.args):
            if isinstance(arg, Variable) and arg.name in func.args:
                names[f"v{d}"] = arg.name
        order = self.view.algorithm.order
        reads = frozenset(order[call.name] for call in stage.calls if call.kind == "func")
        return StageNest((i, stage.index), func, stage, (), (), -1, names, {}, reads)

    # --- where Funcs are computed and stored ----------------------------------------------

    def _place(self) -> dict[tuple[StageKey, int] | None, list[int]]:
        """Return the Funcs computed directly in each loop (stage, position), or at root (None)."""
        sites: dict[tuple[StageKey, int] | None, list[int]] = {}
        # Per stage and loop: the Funcs that are read inside the loop.
        inside: dict[StageKey, list[set[int]]] = {
            key: [set(nest.reads) for _ in nest.loops] for key, nest in self.stages.items()
        }
        hosts: dict[int, list[tuple[StageKey, int] | None]] = {}

        def note(func: int, read: frozenset[int] | set[int]) -> None:
            """Add the reads of `func` to the loops that it is computed in."""
            for host in hosts[func]:
                if host is not None:
                    key, at = host
                    for place in range(at + 1):
                        inside[key][place].update(read)
                    note(key[0], read)

        for i in sorted(self.entries, reverse=True):
            level = self.entries[i].compute
            hosts[i] = []
            if level.kind == "at":
                for nest in self._of.get(level.func, ()):
                    at = _loop_at(nest, level)
                    if at is not None and i in inside[nest.key][at]:
                        hosts[i].append((nest.key, at))
                if not hosts[i]:
                    raise ScheduleError(
                        f"{self.names[i]} is computed at a loop in which nothing reads it; "
                        "compute it at a loop of a Func that reads it"
                    )
            else:
                hosts[i].append(None)
            for host in hosts[i]:
                sites.setdefault(host, []).insert(0, i)
            note(i, frozenset().union(*(nest.reads for nest in self._of[i])))
        return sites

    def _body(self, site: tuple[StageKey, int] | None, around: frozenset[int]) -> Body:
        """Return the body of a loop; `around` are the Funcs whose loops enclose it."""
        body = Body()
        for i in self._sites.get(site, ()):
            self._made += 1
            if self._made > _MOST_PLACES:
                raise ScheduleError(
                    f"{self.names[i]} is computed in too many places (more than {_MOST_PLACES}); "
                    "compute Funcs of this chain at root"
                )
            stages = tuple(self._nested(nest, around | {i}) for nest in self._of[i])
            body.productions.append(Production(i, stages))
        inner = {production.func for production in body.productions}
        for production in body.productions:
            for stage in production.stages:
                for inside in stage.bodies.values():
                    inner |= inside.inner
        body.inner = frozenset(inner)
        return body

    def _nested(self, nest: StageNest, around: frozenset[int]) -> StageNest:
        """Return a copy of a stage's nest that has the bodies of its loops."""
        bodies: dict[int, Body] = {}
        inner: frozenset[int] = frozenset()
        for at in reversed(range(len(nest.loops))):
            site = (nest.key, at)
            if site in self._sites or inner:
                body = self._body(site, around)
                inner |= body.inner
                body.inner = inner
                body.defines = self._defines(inner, nest.key, around)
                bodies[at] = body
        return StageNest(
            nest.key,
            nest.func,
            nest.stage,
            nest.loops,
            nest.splits,
            nest.entry,
            nest.variables,
            nest.known,
            nest.reads,
            nest.single_thread,
            bodies,
        )

    def _store(self, body: Body, path: list[tuple[StageNest, int, Body]]) -> None:
        """Add every Func produced in `body` to the body that stores it; `path` encloses `body`."""
        for production in body.productions:
            i = production.func
            if i not in self.outputs:
                place = _stored_in(self.entries[i].store, path, self.root)
                if i not in place.stored:
                    place.stored.append(i)
            for stage in production.stages:
                outer = list(path)
                for at in range(len(stage.loops)):
                    inside = stage.bodies.get(at)
                    if inside is not None:
                        outer = [*outer, (stage, at, inside)]
                        self._store(inside, outer)

    # --- required boxes -----------------------------------------------------------------

    def _defines(
        self, inner: frozenset[int], producing: StageKey | None, around: frozenset[int]
    ) -> tuple[tuple[StageKey, tuple[StageKey, ...]], ...]:
        """Return the stages whose boxes a body computes, consumers first, with their readers.

        These are the stages produced inside the body. Their readers are the other stages produced
        inside and the stage that has the loop (``BoundsInference.cpp``).
        """
        found: list[tuple[StageKey, tuple[StageKey, ...]]] = []
        for i in sorted(inner - around):
            counted = [k for k in self.consumers[i] if k == producing or k[0] in inner]
            keys = [nest.key for nest in self._of[i]]
            for key in keys:
                later = [k for k in keys if k[1] > key[1] and i in self.stages[k].reads]
                found.append((key, (*counted, *later)))
        return tuple(reversed(found))


def _known(func: Func, stage: Stage) -> dict[str, float]:
    """Return the extents that Halide knows: promised bounds and constant reduction domains."""
    found = {
        f"v{d}": float(func.bounds[arg].extent)
        for d, arg in enumerate(func.args)
        if arg in func.bounds
    }
    for r, rvar in enumerate(stage.rvars):
        if isinstance(rvar.extent, Const) and isinstance(rvar.extent.value, int):
            found[f"r{r}"] = float(rvar.extent.value)
    return found


def _promised(entry: FuncSchedule) -> dict[str, float]:
    """Return, per dimension, the extent or its divisor that the schedule promises."""
    return {
        f"v{bound.dimension}": float(bound.modulus if bound.modulus > 1 else bound.extent)
        for bound in entry.bounds
        if bound.modulus > 1 or bound.extent
    }


def _loop_at(nest: StageNest, level: Level) -> int | None:
    for at, (name, _) in enumerate(nest.loops):
        if name == level.loop:
            return at
    return None


def _stored_in(level: Level, path: list[tuple[StageNest, int, Body]], root: Body) -> Body:
    if level.kind == "root":
        return root
    for stage, at, body in path:
        if stage.key[0] == level.func and stage.loops[at][0] == level.loop:
            return body
    raise ScheduleError(
        f"the store level, loop {level.loop!r}, does not enclose the computation; store the Func "
        "at its compute level or at a loop around it"
    )


def pure_everywhere(func: Func) -> tuple[bool, ...]:
    """Return per dimension whether every update indexes it by its own variable."""
    return tuple(
        all(
            isinstance(stage.args[d], Variable) and stage.args[d].name == arg  # type: ignore[union-attr]
            for stage in func.stages[1:]
        )
        for d, arg in enumerate(func.args)
    )
