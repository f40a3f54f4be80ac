"""Funcs that a schedule copies for some of their readers, as Halide's ``Func.clone_in`` does.

A Func that two others read can then be computed in two ways: once a row for the one, say, and
anew at every point for the other. Everything that judges, costs or shows a schedule works on
`with_clones`: the algorithm as it is once the copies are made.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.halide.ir.algorithm import Algorithm, Call, Copy, Expr, Func, Op, Stage, walk
from tilewright.halide.ir.names import titled
from tilewright.halide.ir.schedule import Clone, ScheduleError


@dataclass(frozen=True, slots=True)
class CloneCall:
    """The call ``func.clone_in(readers)``, whose result is `result`.

    All three are places in the algorithm with its clones.
    """

    func: int
    readers: tuple[int, ...]
    result: int


def with_clones(algorithm: Algorithm, clones: Sequence[Clone]) -> Algorithm:
    """The algorithm after cloning: each copy right after the Func that it is made of.

    Several copies of one Func are in the order of `clones`. The copies' readers call them, and
    the copies call what their originals call. `algorithm` may have been extended already; its
    clones are then left out of account. Without clones this is the algorithm as it was given.

    Raises `ScheduleError` where `clone_problems` finds one.
    """
    base = algorithm.original or algorithm
    return _extended(base, tuple(clones)) if clones else base


@functools.lru_cache(maxsize=16)
def _extended(base: Algorithm, clones: tuple[Clone, ...]) -> Algorithm:
    problems = [f"{name}: {reason}" for name, reason in clone_problems(base, clones)]
    if problems:
        raise ScheduleError("; ".join(problems))
    count = len(base.funcs)
    sources = [*range(count), *(clone.func for clone in clones)]
    names = _names(base, clones)
    redirected: list[dict[str, str]] = [{} for _ in sources]
    for i, clone in enumerate(clones):
        redirected[count + i][names[clone.func]] = names[count + i]  # its own updates
        for reader in clone.readers:
            redirected[reader][names[clone.func]] = names[count + i]
    funcs = []
    for i in _places(count, clones):
        func = _redirected(base.funcs[sources[i]], redirected[i])
        if i >= count:
            stages = tuple(replace(stage, func=names[i]) for stage in func.stages)
            func = replace(func, name=names[i], stages=stages, strides=())
        funcs.append(func)
    copies = tuple(
        Copy(names[count + i], names[clone.func], tuple(names[r] for r in clone.readers))
        for i, clone in enumerate(clones)
    )
    return replace(base, funcs=tuple(funcs), copies=copies, original=base)


def clones_of(algorithm: Algorithm) -> tuple[Clone, ...]:
    """The clones with which an algorithm was extended."""
    base = algorithm.original or algorithm
    places = dict(base.order)
    places |= {copy.name: len(base.funcs) + i for i, copy in enumerate(algorithm.copies)}
    return tuple(
        Clone(places[copy.original], tuple(places[reader] for reader in copy.readers))
        for copy in algorithm.copies
    )


def clone_calls(algorithm: Algorithm, clones: Sequence[Clone]) -> tuple[CloneCall, ...]:
    """The calls of ``clone_in`` that make the clones, in order.

    Halide refuses to clone a Func twice. So a second copy is a copy of the first, which is made
    for the readers of both; Halide follows such chains. Consumers come first, as a copy may be
    a reader, and as copies keep calling what their originals called.
    """
    base = algorithm.original or algorithm
    count = len(base.funcs)
    places = {i: place for place, i in enumerate(_places(count, clones))}
    result = []
    for func in sorted({clone.func for clone in clones}, reverse=True):
        own = [i for i, clone in enumerate(clones) if clone.func == func]
        source = func
        for k, i in enumerate(own):
            readers = [reader for j in own[k:] for reader in clones[j].readers]
            at = tuple(places[reader] for reader in readers)
            result.append(CloneCall(places[source], at, places[count + i]))
            source = count + i
    return tuple(result)


def originals(algorithm: Algorithm) -> dict[int, int]:
    """For each Func that is no copy, its place: from the algorithm as given to the extended."""
    base = algorithm.original or algorithm
    return {i: algorithm.order[func.name] for i, func in enumerate(base.funcs)}


def halide_names(algorithm: Algorithm, clones: Sequence[Clone]) -> dict[str, str]:
    """The copies' names by those that Halide gives them, as its profiler and its code show."""
    extended = with_clones(algorithm, clones)
    named: dict[int, str] = {}
    result = {}
    for call in clone_calls(algorithm, clones):
        func = named.get(call.func, extended.funcs[call.func].name)
        # Halide counts the clones of the very Func; by how they are made each is the first.
        name = f"{func}_clone$0"
        if len(call.readers) == 1:
            (reader,) = call.readers
            name = f"{func}_clone_in_{named.get(reader, extended.funcs[reader].name)}$0"
        named[call.result] = name
        result[name] = extended.funcs[call.result].name
    return result


def clone_problems(algorithm: Algorithm, clones: Sequence[Clone]) -> Iterator[tuple[str, str]]:
    """Why clones cannot be made: each time a Func's name and a sentence."""
    base = algorithm.original or algorithm
    count = len(base.funcs)
    sources = [*range(count), *(clone.func for clone in clones)]
    taken: set[tuple[int, int]] = set()
    for clone in clones:
        if not 0 <= clone.func < count:
            reason = (
                "a clone cannot be cloned; clone the Func that it is made of once more"
                if 0 <= clone.func < len(sources)
                else f"there is no Func {clone.func} to clone; the pipeline has {count} Funcs"
            )
            yield str(clone.func), reason
            return
    for clone in clones:
        func = base.funcs[clone.func]
        if func.fixed or func.scheduled:
            yield func.name, "an extern, memoised or already scheduled Func cannot be cloned"
        if any(func.name in (link.wrapped, link.wrapper) for link in base.wrappers):
            yield func.name, "the pipeline has a wrapper or a clone of it already"
        if not clone.readers:
            yield func.name, "it is cloned for no reader"
        for reader in clone.readers:
            if not 0 <= reader < len(sources):
                yield func.name, f"it is cloned for Func {reader}, which is not there"
                continue
            name = base.funcs[sources[reader]].name
            if sources[reader] == clone.func:
                yield func.name, "it cannot be cloned for itself or for another clone of it"
            elif func.name not in base.producers[name]:
                yield func.name, f"it is cloned for {name}, which does not read it"
            elif base.funcs[sources[reader]].extern is not None:
                yield func.name, f"it is cloned for {name}, an extern stage, whose reads are fixed"
            elif (clone.func, reader) in taken:
                yield func.name, f"it is cloned twice for {name}"
            taken.add((clone.func, reader))
    for i in sorted({clone.func for clone in clones}):
        name = base.funcs[i].name
        readers = {r for r, s in enumerate(sources) if name in base.producers[base.funcs[s].name]}
        if name not in base.outputs and readers <= {r for func, r in taken if func == i}:
            yield name, "every reader would read a clone of it; leave one that reads the Func"


def _places(count: int, clones: Sequence[Clone]) -> list[int]:
    """The Funcs in order: places of those given, n + i for clone i."""
    after: dict[int, list[int]] = {}
    for i, clone in enumerate(clones):
        after.setdefault(clone.func, []).append(count + i)
    return [place for i in range(count) for place in (i, *after.get(i, ()))]


def _names(base: Algorithm, clones: Sequence[Clone]) -> list[str]:
    """The Funcs' names, then the copies': ``Y (for hist)``."""
    count = len(base.funcs)
    names = [*(func.name for func in base.funcs), *("" for _ in clones)]
    taken = {*names, *(p.name for p in base.parameters), *(b.name for b in base.buffers)}
    # Consumers first: a copy that reads another has its name by then.
    for i in sorted(range(len(clones)), key=lambda i: (-clones[i].func, i)):
        readers = ", ".join(titled(names[reader]) for reader in clones[i].readers)
        wish = name = f"{names[clones[i].func]} (for {readers})"
        number = 2
        while name in taken:
            name, number = f"{wish} {number}", number + 1
        taken.add(name)
        names[count + i] = name
    return names


def _redirected(func: Func, calls: Mapping[str, str]) -> Func:
    """The Func with other callees in the place of those in `calls`."""
    if not calls:
        return func
    new: dict[Expr, Expr] = {}
    return replace(func, stages=tuple(_stage(stage, calls, new) for stage in func.stages))


def _stage(stage: Stage, calls: Mapping[str, str], new: dict[Expr, Expr]) -> Stage:
    def change(exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        for node in walk(*exprs):
            new.setdefault(node, _node(node, calls, new))
        return tuple(new[expr] for expr in exprs)

    return replace(
        stage,
        args=change(stage.args),
        values=change(stage.values),
        predicates=change(stage.predicates),
        rvars=tuple(
            replace(rvar, min=change((rvar.min,))[0], extent=change((rvar.extent,))[0])
            for rvar in stage.rvars
        ),
    )


def _node(node: Expr, calls: Mapping[str, str], new: Mapping[Expr, Expr]) -> Expr:
    """One node over operands that are in `new`; the node itself where nothing changes."""
    if not isinstance(node, Op | Call):
        return node
    args = tuple(new[arg] for arg in node.args)
    if isinstance(node, Call) and node.kind == "func" and node.name in calls:
        return replace(node, name=calls[node.name], args=args)
    changed = any(a is not b for a, b in zip(args, node.args, strict=True))
    return replace(node, args=args) if changed else node
