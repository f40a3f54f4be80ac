"""Outputs that share their loops (``compute_with``), as one Func with a Tuple.

Pure outputs of one size can be computed in one loop nest. What several of them read is then read
once, and other Funcs can be computed in the common loops for all of them. Everything that analyses
a schedule (its legality, its regions, its cost) would have to know which loops are the same. Here
the outputs become one Func instead, whose value is the Tuple of their values: the *joint*::

    joint                       separate
    for y:                      for y:
      blur computed here          blur computed here
      for x:                      for x:
        joint[x, y] = (             low[x, y] = ..
          .., ..)                   high[x, y] = ..

A schedule of the algorithm with the joint is turned into one of the algorithm itself by
`Joint.separated`, and back by `joined`. The *host* is the output that has the loops, and whose name
the joint has; the *guests* are the others.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tilewright.halide.ir.algorithm import (
    Algorithm,
    Call,
    Const,
    Expr,
    Func,
    Op,
    Type,
    Variable,
    parameters_used,
    walk,
)
from tilewright.halide.ir.clones import Added, clone_problems, positions, rewritten_stage
from tilewright.halide.ir.loops import dimension_of
from tilewright.halide.ir.nest import guarded, vectors_first
from tilewright.halide.ir.renumbering import renumbered_entry
from tilewright.halide.ir.schedule import (
    Clone,
    ComputeWith,
    FuncSchedule,
    OutputExtent,
    Schedule,
    StageSchedule,
)

# Halide 21 masks loads and stores of vectors of such values on x86-64 (AVX2, AVX-512); bits.
MASKED_BITS = 32
# Loops of these mappings are inside the innermost loop that outputs share.
_WITHIN_BLOCKS = ("vectorized", "unrolled")


@dataclass(frozen=True, eq=False)
class Joint:
    """Outputs of an algorithm without clones, and the algorithm in which they are one Func.

    `names` are the outputs, the host first.
    """

    base: Algorithm
    names: tuple[str, ...]
    algorithm: Algorithm

    @cached_property
    def host(self) -> int:
        """The host's position in `base`."""
        return self.base.order[self.names[0]]

    @cached_property
    def places(self) -> tuple[int, ...]:
        """The position in `algorithm` of every Func of `base`."""
        order, host = self.algorithm.order, self.names[0]
        return tuple(order.get(func.name, order[host]) for func in self.base.funcs)

    def separated(self, schedule: Schedule) -> Schedule | None:
        """Return a schedule of `algorithm` as one of `base`; None if the loops cannot be shared.

        The outputs' nests are guarded: Halide specialises no loops that are shared.
        """
        count, extra = len(self.algorithm.funcs), len(self.names) - 1
        sources: dict[int, list[int]] = {}
        for i, place in enumerate(self.places):
            sources.setdefault(place, []).append(i)
        sources[self.places[self.host]].sort(key=lambda i: i != self.host)

        def numbers(number: int) -> list[int]:
            return sources[number] if number < count else [number + extra]

        clones = _renumbered(schedule.clones, numbers, self.base)
        if list(clone_problems(self.base, clones)):
            return None
        before = positions(self.algorithm, schedule.clones)
        after = positions(self.base, clones)
        moved = {place: after[numbers(number)[0]] for number, place in enumerate(before)}
        host = after[self.host]
        guests = [after[i] for i in sources[self.places[self.host]][1:]]
        funcs: list[FuncSchedule] = []
        for old in schedule.funcs:
            entry = _for_each_output(renumbered_entry(old, moved.__getitem__), host, guests)
            if entry.func != host:
                funcs.append(entry)
                continue
            loop = shared_loop(entry)
            if loop is None or not _is_plain(entry) or _is_used_inside(loop, entry, schedule, old):
                return None
            (nest,) = entry.stages
            nest = guarded(self._with_whole_vectors(nest))
            funcs.append(replace(entry, stages=(nest,)))
            shared = replace(nest, compute_with=ComputeWith(host, 0, loop))
            funcs += [replace(entry, func=guest, stages=(shared,)) for guest in guests]
        funcs.sort(key=lambda each: each.func)
        return replace(schedule, funcs=tuple(funcs), clones=clones)

    def _with_whole_vectors(self, nest: StageSchedule) -> StageSchedule:
        """Return the nest such that guards leave out whole vectors of narrow values.

        Halide masks vectors of wider values, and executes others one lane at a time.
        """
        outputs = [self.base.by_name[name] for name in self.names]
        if all(each.bits >= MASKED_BITS for func in outputs for each in func.types):
            return nest
        host = outputs[0]
        return vectors_first(nest, [host.estimates[arg].extent for arg in host.args])


def joint_of(algorithm: Algorithm, names: Sequence[str]) -> Joint:
    """Return outputs of an algorithm as one Func; they must be `joinable`."""
    return _joint(algorithm.original or algorithm, tuple(names))


@functools.lru_cache(maxsize=16)
def _joint(base: Algorithm, names: tuple[str, ...]) -> Joint:
    offsets: dict[str, int] = {}
    types: list[Type] = []
    for name in names:
        offsets[name] = len(types)
        types += base.by_name[name].types
    host = base.by_name[names[0]]
    values: list[Expr] = []
    for i, name in enumerate(names):
        func = base.by_name[name]
        arguments = {arg: _apart(other, i) for arg, other in zip(func.args, host.args, strict=True)}
        (stage,) = func.stages
        values += _rewritten(stage.values, {}, offsets, names[0], arguments)
    new: dict[Expr, Expr] = {}

    def read_joint(exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(_rewritten(exprs, new, offsets, names[0], {}))

    (stage,) = host.stages
    joint = replace(host, types=tuple(types), stages=(replace(stage, values=tuple(values)),))
    funcs = [joint]
    for func in base.funcs:
        if func.name not in offsets:
            stages = tuple(rewritten_stage(stage, read_joint) for stage in func.stages)
            funcs.append(replace(func, stages=stages))
    return Joint(
        base,
        names,
        replace(
            base,
            funcs=_in_order(funcs, base),
            outputs=tuple(name for name in base.outputs if name not in names[1:]),
        ),
    )


def joinable(algorithm: Algorithm) -> Iterator[tuple[str, ...]]:
    """Yield the largest sets of outputs that can share loops, each in the order of the outputs.

    Such outputs are pure, have the same arguments, estimates and strides, and do not read each
    other, also indirectly. Halide asks for the same names of the arguments.
    """
    base = algorithm.original or algorithm
    reads = _reads(base)
    alike: dict[object, list[str]] = {}
    for func in _free_outputs(base):
        spans = tuple((func.estimates.get(arg), func.bounds.get(arg)) for arg in func.args)
        if all(estimate is not None for estimate, _ in spans):
            fixed = tuple((d, step) for d, step in enumerate(func.strides) if step is not None)
            alike.setdefault((func.args, spans, fixed), []).append(func.name)
    for names in alike.values():
        kept: list[str] = []
        for name in names:
            if not any(name in reads[other] or other in reads[name] for other in kept):
                kept.append(name)
        if len(kept) > 1:
            yield tuple(kept)


def _free_outputs(base: Algorithm) -> Iterator[Func]:
    """Yield the outputs that may share loops with others.

    Not among them are those whose bounds the computation uses, by the output's name, and those with
    wrappers.
    """
    taken = {name for link in base.wrappers for name in (link.wrapped, link.wrapper)}
    taken |= {name.split(".")[0] for name in _bounds_used(base)}
    for name in base.outputs:
        func = base.by_name[name]
        if func.pure and func.args and name not in taken and not (func.fixed or func.scheduled):
            yield func


def joined(schedule: Schedule, algorithm: Algorithm) -> tuple[Schedule, Algorithm]:
    """Return a schedule and its algorithm, with outputs that share loops as one Func.

    Both are returned as they are if no loops are shared, or not in the form that `separated` gives
    them. `algorithm` may have the clones of the schedule; that of a joint has none.
    """
    together, joint = joint_of_schedule(schedule, algorithm)
    return together, algorithm if joint is None else joint.algorithm


def joint_of_schedule(schedule: Schedule, algorithm: Algorithm) -> tuple[Schedule, Joint | None]:
    """Return a schedule whose outputs share loops as one of the joint, and the joint.

    Where `joined` finds no loops to share, it returns the schedule itself and None.
    """
    base = algorithm.original or algorithm
    shared = {
        entry.func: nest.compute_with.func
        for entry in schedule.funcs
        for nest in entry.stages
        if nest.compute_with is not None
    }
    if len(set(shared.values())) != 1 or schedule.variants:
        return schedule, None
    host = next(iter(shared.values()))
    numbers = {place: i for i, place in enumerate(positions(base, schedule.clones))}
    members = [numbers.get(func, len(base.funcs)) for func in (host, *sorted(shared))]
    if max(members) >= len(base.funcs) or not _have_common_loops(schedule, host, shared):
        return schedule, None
    names = tuple(base.funcs[i].name for i in members)
    if not any(set(names) <= set(some) for some in joinable(base)):
        return schedule, None
    joint = joint_of(base, names)
    return _joined(schedule, joint, {host, *shared}), joint


def _have_common_loops(schedule: Schedule, host: int, guests: Collection[int]) -> bool:
    """Return whether the guests have the host's loops, and nothing is computed in loops of theirs.

    Halide knows no loops of guests: they are the host's.
    """
    levels = (level for e in schedule.funcs for level in (e.compute, e.store, e.hoist))
    if any(level is not None and level.func in guests for level in levels):
        return False
    entries = {entry.func: entry for entry in schedule.funcs}
    return all(_alike(entries.get(guest), entries.get(host)) for guest in guests)


def _joined(schedule: Schedule, joint: Joint, outputs: set[int]) -> Schedule:
    """Return the schedule with one entry for the outputs at these positions."""
    base, count = joint.base, len(joint.base.funcs)

    def numbers(number: int) -> list[int]:
        return [joint.places[number] if number < count else number - len(joint.names) + 1]

    clones = _renumbered(schedule.clones, numbers, joint.algorithm)
    before = positions(base, schedule.clones)
    after = positions(joint.algorithm, clones)
    moved = {place: after[numbers(number)[0]] for number, place in enumerate(before)}
    kept = [
        renumbered_entry(entry, moved.__getitem__)
        for entry in schedule.funcs
        if entry.func not in outputs or all(nest.compute_with is None for nest in entry.stages)
    ]
    funcs = tuple(sorted(map(_without_repeats, kept), key=lambda entry: entry.func))
    return replace(schedule, funcs=funcs, clones=clones)


def shares_loops(schedule: Schedule) -> bool:
    """Return whether any stage of a schedule shares the loops of another one."""
    return any(nest.compute_with is not None for entry in schedule.funcs for nest in entry.stages)


def shared_loop(entry: FuncSchedule) -> str | None:
    """Return the loop down to which outputs with these loops are to share them; None if none.

    It is the innermost loop outside those over the dimension of the vectors: each output then has a
    loop over its row, which Halide splits at the borders of that output alone. If there are no
    other loops, it is the innermost one that is neither vectorised nor unrolled.
    """
    if len(entry.stages) != 1:
        return None
    loops = entry.stages[0].loops
    lanes = {dimension_of(loop.name) for loop in loops if loop.mapping == "vectorized"}
    names = [loop.name for loop in loops if loop.mapping not in _WITHIN_BLOCKS]
    rows = [name for name in names if dimension_of(name) not in lanes]
    return next(iter((*rows, *names)), None)


def _is_plain(entry: FuncSchedule) -> bool:
    """Return whether an output is scheduled by loops only, as those that share loops must be."""
    special = (entry.bounds, entry.storage, entry.hoist, entry.run_async, entry.ring_buffer)
    return not any(special) and not any(nest.specialize or nest.prefetch for nest in entry.stages)


def _is_used_inside(
    loop: str, entry: FuncSchedule, schedule: Schedule, joint: FuncSchedule
) -> bool:
    """Return whether a Func is computed or stored per block, or else inside the shared loop.

    Halide does not know how much of a Func the blocks of several outputs read, as these may begin
    at different coordinates. So it cannot be kept in registers.
    """
    loops = entry.stages[0].loops
    inside = set(itertools.takewhile(lambda name: name != loop, (each.name for each in loops)))
    inside.add(next(each.name for each in loops if each.mapping not in _WITHIN_BLOCKS))
    levels = (
        level
        for each in schedule.funcs
        for level in (each.compute, each.store, each.hoist)
        if level is not None and level.kind == "at" and level.func == joint.func
    )
    return any(level.loop in inside for level in levels)


def _alike(entry: FuncSchedule | None, host: FuncSchedule | None) -> bool:
    """Return whether an output has the loops of its host and shares all that it can."""
    if entry is None or host is None or len(entry.stages) != 1 or len(host.stages) != 1:
        return False
    (nest,), loop = entry.stages, shared_loop(host)
    shared = nest.compute_with
    own = replace(entry, func=host.func, stages=(replace(nest, compute_with=None),))
    return shared is not None and shared.loop == loop and not shared.align and own == host


def _renumbered(
    clones: Sequence[Added], numbers: Callable[[int], list[int]], algorithm: Algorithm
) -> tuple[Added, ...]:
    """Return the entries of `Schedule.clones` with other numbers.

    `numbers` gives those of a Func; of several, a copy has those as readers that read its original.
    """
    names = [func.name for func in algorithm.funcs]
    result: list[Added] = []
    for entry in clones:
        func = numbers(entry.func)[0]
        if not isinstance(entry, Clone):
            result.append(replace(entry, func=func))
            continue
        readers: list[int] = []
        for reader in entry.readers:
            found = numbers(reader)
            if len(found) > 1 and func < len(names):
                found = [i for i in found if names[func] in algorithm.producers[names[i]]]
            readers += found
        result.append(replace(entry, func=func, readers=tuple(dict.fromkeys(readers))))
    return tuple(result)


def _for_each_output(entry: FuncSchedule, host: int, guests: Sequence[int]) -> FuncSchedule:
    """Return the entry with every condition on the host's extents also on those of the guests."""

    def conditions(nest: StageSchedule) -> StageSchedule:
        found = list(nest.sizes)
        for each in nest.sizes:
            if isinstance(each, OutputExtent) and each.func == host:
                found += [replace(each, func=guest) for guest in guests]
        return replace(nest, sizes=tuple(found)) if nest.sizes else nest

    return replace(entry, stages=tuple(map(conditions, entry.stages)))


def _without_repeats(entry: FuncSchedule) -> FuncSchedule:
    """Return the entry with each condition on sizes once."""
    stages = (replace(nest, sizes=tuple(dict.fromkeys(nest.sizes))) for nest in entry.stages)
    return replace(entry, stages=tuple(stages))


def _in_order(funcs: Sequence[Func], base: Algorithm) -> tuple[Func, ...]:
    """Return the Funcs with producers first, otherwise in the order of the algorithm."""
    left = sorted(funcs, key=lambda func: base.order[func.name])
    producers = replace(base, funcs=tuple(left)).producers
    done: list[Func] = []
    names: set[str] = set()
    while left:
        func = next(func for func in left if names.issuperset(producers[func.name]))
        left.remove(func)
        done.append(func)
        names.add(func.name)
    return tuple(done)


def _reads(algorithm: Algorithm) -> dict[str, frozenset[str]]:
    """Return all Funcs that each Func reads, also indirectly."""
    found: dict[str, frozenset[str]] = {}
    for func in algorithm.funcs:
        own = algorithm.producers[func.name]
        found[func.name] = frozenset(own).union(*(found[name] for name in own))
    return found


def _bounds_used(algorithm: Algorithm) -> set[str]:
    """Return the bounds and strides of buffers that the computation or its requirements use."""
    required = {
        node.name
        for node in walk(*algorithm.requirements)
        if isinstance(node, Variable) and node.kind == "param"
    }
    used = parameters_used(algorithm) | required
    return {name for name in used if "." in name}


def _apart(argument: str, number: int) -> Expr:
    """Return an argument of the joint as output `number` uses it: with as many zeros added.

    Expressions of two outputs must not be one expression. Every output has bounds of its own, so
    Halide does not know that loads of both have the same address, and what the outputs have in
    common is loaded and computed for each.
    """
    index = Type("int", 32)
    expr: Expr = Variable(argument, "var", index)
    for _ in range(number):
        expr = Op("add", (expr, Const(0, index)), index)
    return expr


def _rewritten(
    exprs: Sequence[Expr],
    new: dict[Expr, Expr],
    offsets: Mapping[str, int],
    host: str,
    arguments: Mapping[str, Expr],
) -> list[Expr]:
    """Return expressions that read the joint, with other expressions for its arguments."""
    for node in walk(*exprs):
        if node in new:
            continue
        if isinstance(node, Variable) and node.kind == "var" and node.name in arguments:
            new[node] = arguments[node.name]
        elif isinstance(node, Op | Call):
            args = tuple(new[arg] for arg in node.args)
            changed = any(a is not b for a, b in zip(args, node.args, strict=True))
            new[node] = replace(node, args=args) if changed else node
            if isinstance(node, Call) and node.kind == "func" and node.name in offsets:
                index = node.value_index + offsets[node.name]
                new[node] = replace(node, name=host, args=args, value_index=index)
        else:
            new[node] = node
    return [new[expr] for expr in exprs]
