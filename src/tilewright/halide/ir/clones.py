"""Add Funcs to an algorithm, as a schedule asks: ``clone_in``, ``in_`` and ``rfactor``.

With a copy (``clone_in``, ``in_``), a Func with two readers can be computed in two ways, for
example once per row for one reader and at every point for the other. A reduction can be split into
partial results and their combination (``rfactor``, see `ir.factored`). All code that checks, costs
or shows a schedule works on `with_clones`: the algorithm with the added Funcs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.halide.ir.algorithm import (
    Algorithm,
    Call,
    Copy,
    Expr,
    Func,
    Loop,
    Op,
    Stage,
    Type,
    Variable,
    walk,
)
from tilewright.halide.ir.factored import (
    Extended,
    FactorCall,
    factored_problems,
    with_partial_results,
)
from tilewright.halide.ir.names import titled
from tilewright.halide.ir.schedule import Clone, Factored, ScheduleError


@dataclass(frozen=True, slots=True)
class CloneCall:
    """The call ``func.clone_in(readers)`` or ``func.in_(readers)``, whose result is `result`.

    All three fields are positions in the algorithm with its clones.
    """

    func: int
    readers: tuple[int, ...]
    result: int
    wrapper: bool = False


Added = Clone | Factored


def with_clones(algorithm: Algorithm, clones: Sequence[Added]) -> Algorithm:
    """Return the algorithm with copies, each directly after the Func that it is made of.

    Several copies of one Func are in the order of `clones`. Readers of a copy call the copy, and a
    copy calls the same Funcs as its original. Partial results of a reduction come directly before
    the Func that combines them. Funcs that were added to `algorithm` already are dropped first.
    Without clones the result is the algorithm without added Funcs.

    Raises:
        ScheduleError: A clone cannot be made (see `clone_problems`).
    """
    base = algorithm.original or algorithm
    return _extended(base, tuple(clones)) if clones else base


@functools.lru_cache(maxsize=16)
def _extended(base: Algorithm, added: tuple[Added, ...]) -> Algorithm:
    problems = [f"{name}: {reason}" for name, reason in clone_problems(base, added)]
    if problems:
        raise ScheduleError("; ".join(problems))
    factored, clones = _parts(base, added)
    extended = _copied(factored.algorithm, clones) if clones else factored.algorithm
    return replace(extended, original=base)


@functools.lru_cache(maxsize=16)
def _factored(base: Algorithm, entries: tuple[Factored, ...]) -> Extended:
    return with_partial_results(base, entries)


def _parts(base: Algorithm, added: Sequence[Added]) -> tuple[Extended, tuple[Clone, ...]]:
    """Return the algorithm with partial results, and the copies by its positions."""
    entries = tuple(entry for entry in added if isinstance(entry, Factored))
    clones = tuple(entry for entry in added if isinstance(entry, Clone))
    if not entries:
        return Extended(base, tuple(range(len(base.funcs)))), clones
    made = _factored(base, entries)
    places = dict(enumerate(made.places))  # a copy keeps its number
    return made, tuple(
        replace(
            clone,
            func=places.get(clone.func, clone.func),
            readers=tuple(places.get(reader, reader) for reader in clone.readers),
        )
        for clone in clones
    )


def _copied(base: Algorithm, clones: tuple[Clone, ...]) -> Algorithm:
    """Return an algorithm with copies of its Funcs."""
    count = len(base.funcs)
    sources = [*range(count), *(clone.func for clone in clones)]
    names = _names(base, clones)
    redirected: list[dict[str, str]] = [{} for _ in sources]
    for i, clone in enumerate(clones):
        if not clone.wrapper:
            redirected[count + i][names[clone.func]] = names[count + i]  # reads in its updates
        for reader in clone.readers:
            _redirect(redirected[reader], names[clone.func], names[count + i])
    funcs = []
    for i in _places(count, clones):
        if i >= count and clones[i - count].wrapper:
            root = base.funcs[_root(i, count, clones)]
            funcs.append(_wrapper(root, names[i], names[sources[i]]))
            continue
        func = _redirected(base.funcs[sources[i]], redirected[i])
        if i >= count:
            stages = tuple(replace(stage, func=names[i]) for stage in func.stages)
            func = replace(func, name=names[i], stages=stages, strides=())
        funcs.append(func)
    copies = tuple(
        Copy(
            names[count + i],
            names[clone.func],
            tuple(names[r] for r in clone.readers),
            clone.wrapper,
        )
        for i, clone in enumerate(clones)
    )
    return replace(base, funcs=tuple(funcs), copies=copies)


def clones_of(algorithm: Algorithm) -> tuple[Added, ...]:
    """Return the entries of `Schedule.clones` that an algorithm was extended with."""
    base = algorithm.original or algorithm
    names = [*(func.name for func in base.funcs), *algorithm.partials]
    names += [copy.name for copy in algorithm.copies]
    places = {name: i for i, name in enumerate(names)}
    copies = (
        Clone(places[copy.original], tuple(places[r] for r in copy.readers), copy.wrapper)
        for copy in algorithm.copies
    )
    return (*algorithm.factored, *copies)


def factor_calls(algorithm: Algorithm, added: Sequence[Added]) -> tuple[FactorCall, ...]:
    """Return the calls of ``rfactor`` that make partial results, in order; they come first."""
    base = algorithm.original or algorithm
    made, clones = _parts(base, added)
    count = len(made.algorithm.funcs)
    places = {i: place for place, i in enumerate(_places(count, clones))}
    return tuple(
        replace(call, func=places[call.func], result=places[call.result]) for call in made.calls
    )


def clone_calls(algorithm: Algorithm, added: Sequence[Added]) -> tuple[CloneCall, ...]:
    """Return the calls of ``clone_in`` and ``in_`` that make the clones, in order.

    Halide can clone a Func only once. The first copy is therefore made for the readers of all
    copies, and the second is a copy of the first; Halide follows such chains. Halide cannot clone a
    wrapped Func, so wrappers come after clones. Consumers come before producers, because a copy may
    be a reader, and copies keep the calls of their originals.
    """
    made, clones = _parts(algorithm.original or algorithm, added)
    base = made.algorithm
    count = len(base.funcs)
    places = {i: place for place, i in enumerate(_places(count, clones))}
    calls = []
    for func in sorted({clone.func for clone in clones}, reverse=True):
        every = [i for i, clone in enumerate(clones) if clone.func == func]
        own = [i for i in every if not clones[i].wrapper]
        source = func
        for k, i in enumerate(own):
            readers = [reader for j in own[k:] for reader in clones[j].readers]
            at = tuple(places[reader] for reader in readers)
            calls.append(CloneCall(places[source], at, places[count + i]))
            source = count + i
        for i in every:
            if clones[i].wrapper:
                at = tuple(places[reader] for reader in clones[i].readers)
                calls.append(CloneCall(places[func], at, places[count + i], wrapper=True))
    return _in_order(calls)


def _in_order(calls: list[CloneCall]) -> tuple[CloneCall, ...]:
    """Return the calls sorted so that the source and readers of each exist before it."""
    left = list(calls)
    result: list[CloneCall] = []
    while left:
        made = {call.result for call in left}
        ready = next((c for c in left if not made & {c.func, *c.readers}), left[0])
        left.remove(ready)
        result.append(ready)
    return tuple(result)


def positions(algorithm: Algorithm, added: Sequence[Added]) -> tuple[int, ...]:
    """Return the position in `with_clones` of every Func of the algorithm, then of every entry."""
    base = algorithm.original or algorithm
    made, clones = _parts(base, added)
    final = {i: place for place, i in enumerate(_places(len(made.algorithm.funcs), clones))}
    known = len(made.places)  # a copy keeps its number
    numbers = range(len(base.funcs) + len(added))
    return tuple(final[made.places[i] if i < known else i] for i in numbers)


def originals(algorithm: Algorithm) -> dict[int, int]:
    """Map each Func's position in the algorithm without copies to that in the one with copies."""
    base = algorithm.original or algorithm
    return {i: algorithm.order[func.name] for i, func in enumerate(base.funcs)}


def halide_names(algorithm: Algorithm, clones: Sequence[Added]) -> dict[str, str]:
    """Map Halide's names of copies, which its profiler and code show, to the names used here."""
    extended = with_clones(algorithm, clones)
    named: dict[int, str] = {}
    result = {}
    for call in clone_calls(algorithm, clones):
        func = named.get(call.func, extended.funcs[call.func].name)
        # The number counts clones of one Func; each Func here is cloned once (see clone_calls).
        name = f"{func}_wrapper$0" if call.wrapper else f"{func}_clone$0"
        if len(call.readers) == 1:
            (reader,) = call.readers
            verb = "in" if call.wrapper else "clone_in"
            name = f"{func}_{verb}_{named.get(reader, extended.funcs[reader].name)}$0"
        named[call.result] = name
        result[name] = extended.funcs[call.result].name
    return result


def clone_problems(algorithm: Algorithm, added: Sequence[Added]) -> Iterator[tuple[str, str]]:
    """Yield every reason why Funcs cannot be added, as a Func's name and a sentence."""
    base = algorithm.original or algorithm
    entries = [entry for entry in added if isinstance(entry, Factored)]
    if any(isinstance(entry, Clone) for entry in added[: len(entries)]):
        yield base.outputs[0], "list all split reductions before the copies"
        return
    unfactored = list(factored_problems(base, entries))
    if unfactored:
        yield from unfactored
        return
    made, clones = _parts(base, added)
    yield from _copy_problems(made.algorithm, clones)


def _copy_problems(base: Algorithm, clones: Sequence[Clone]) -> Iterator[tuple[str, str]]:
    """Yield every reason why copies of an algorithm's Funcs cannot be made."""
    count = len(base.funcs)
    unknown = list(_unknown_sources(count, clones))
    if unknown:
        yield unknown[0]
        return
    sources = [_root(i, count, clones) for i in range(count + len(clones))]
    taken: set[tuple[int, int]] = set()
    for clone in clones:
        func = base.funcs[sources[clone.func]]
        if (func.fixed or func.scheduled) and not clone.wrapper:
            yield func.name, "an extern, memoised or already scheduled Func cannot be cloned"
        if any(func.name in (link.wrapped, link.wrapper) for link in base.wrappers):
            yield func.name, "the pipeline already has a wrapper or a clone of it"
        verb = "wrapped" if clone.wrapper else "cloned"
        if not clone.readers:
            yield func.name, f"it is {verb} for no reader; list at least one"
        for reader in clone.readers:
            reason = _reader_problem(base, clones, clone, reader)
            if reason:
                yield func.name, f"it is {verb} for {reason}"
            elif (clone.func, reader) in taken:
                name = base.funcs[sources[reader]].name
                yield func.name, f"it is {verb} twice for {name}"
            taken.add((clone.func, reader))
    yield from _unread(base, clones, sources, taken)


def _unread(
    base: Algorithm, clones: Sequence[Clone], sources: Sequence[int], taken: set[tuple[int, int]]
) -> Iterator[tuple[str, str]]:
    """Yield cloned Funcs that no reader is left for; `taken` has pairs of Func and reader."""
    wrapped = {clone.func for clone in clones if clone.wrapper}
    for i in sorted({clone.func for clone in clones} - wrapped):
        name = base.funcs[i].name
        readers = {r for r, s in enumerate(sources) if name in base.producers[base.funcs[s].name]}
        if name not in base.outputs and readers <= {r for func, r in taken if func == i}:
            yield name, "every reader would read a clone of it; let one reader keep the original"


def _unknown_sources(count: int, clones: Sequence[Clone]) -> Iterator[tuple[str, str]]:
    """Yield the clones of Funcs that do not exist or cannot be cloned again."""
    for i, clone in enumerate(clones):
        if 0 <= clone.func < count:
            continue
        if not 0 <= clone.func < count + len(clones):
            reason = f"there is no Func {clone.func} to clone; the pipeline has {count} Funcs"
            yield str(clone.func), reason
        elif not clone.wrapper:
            reason = "a clone cannot be cloned; clone its original again instead"
            yield str(clone.func), reason
        elif clone.func >= count + i:
            yield str(clone.func), "only a later wrapper can wrap a wrapper"


def _reader_problem(base: Algorithm, clones: Sequence[Clone], clone: Clone, reader: int) -> str:
    """Return the reason why a reader cannot read a copy; empty if it can."""
    count = len(base.funcs)
    if not 0 <= reader < count + len(clones):
        return f"Func {reader}, which does not exist"
    source, root = _root(clone.func, count, clones), _root(reader, count, clones)
    name = base.funcs[root].name
    if root == source:
        return f"{name}: it cannot be cloned for itself or for another clone of it"
    if reader >= count and clones[reader - count].wrapper:
        return f"the wrapper of {name}, which reads only {name}"
    if base.funcs[source].name not in base.producers[name]:
        return f"{name}, which does not read it"
    if base.funcs[root].extern is not None:
        return f"{name}, an extern stage, whose reads are fixed"
    if clone.func >= count and reader not in clones[clone.func - count].readers:
        return f"{name}, which does not read the inner wrapper"
    return ""


def _root(place: int, count: int, clones: Sequence[Clone]) -> int:
    """Return the original Func of a copy, or of a copy of a copy."""
    while place >= count:
        place = clones[place - count].func
    return place


def _redirect(calls: dict[str, str], source: str, copy: str) -> None:
    """Redirect calls of `source` to `copy`; calls already redirected to `source` follow."""
    for callee, target in calls.items():
        if target == source:
            calls[callee] = copy
            return
    calls[source] = copy


def _wrapper(func: Func, name: str, wrapped: str) -> Func:
    """Return a Func with the arguments and types of `func` whose values are those of `wrapped`."""
    coordinates = tuple(Variable(arg, "var", Type("int", 32)) for arg in func.args)
    values = tuple(Call(wrapped, "func", coordinates, type, i) for i, type in enumerate(func.types))
    loops = tuple(Loop(arg, "pure") for arg in func.args)
    stage = Stage(name, 0, coordinates, values, (), loops, ())
    return Func(name, func.args, func.types, (stage,))


def _places(count: int, clones: Sequence[Clone]) -> list[int]:
    """Return the Funcs in order: original positions, and `count` + i for clone i."""
    after: dict[int, list[int]] = {}
    for i, clone in enumerate(clones):
        after.setdefault(clone.func, []).append(count + i)
    result: list[int] = []
    stack = list(range(count - 1, -1, -1))
    while stack:
        place = stack.pop()
        result.append(place)
        stack.extend(reversed(after.get(place, ())))
    return result


def _names(base: Algorithm, clones: Sequence[Clone]) -> list[str]:
    """Return the names of the Funcs, followed by those of the copies (``Y (for hist)``)."""
    count = len(base.funcs)
    names = [*(func.name for func in base.funcs), *("" for _ in clones)]
    taken = {*names, *(p.name for p in base.parameters), *(b.name for b in base.buffers)}
    # Consumers first: a copy's name contains the names of its readers, which may be copies.
    roots = [_root(clone.func, count, clones) for clone in clones]
    for i in sorted(range(len(clones)), key=lambda i: (-roots[i], i)):
        readers = ", ".join(titled(names[reader]) for reader in clones[i].readers)
        wish = name = f"{names[roots[i]]} (for {readers})"
        number = 2
        while name in taken:
            name, number = f"{wish} {number}", number + 1
        taken.add(name)
        names[count + i] = name
    return names


def _redirected(func: Func, calls: Mapping[str, str]) -> Func:
    """Return the Func with each callee replaced as `calls` says."""
    if not calls:
        return func
    new: dict[Expr, Expr] = {}
    return replace(func, stages=tuple(_stage(stage, calls, new) for stage in func.stages))


def _stage(stage: Stage, calls: Mapping[str, str], new: dict[Expr, Expr]) -> Stage:
    def change(exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        for node in walk(*exprs):
            new.setdefault(node, _node(node, calls, new))
        return tuple(new[expr] for expr in exprs)

    return rewritten_stage(stage, change)


def rewritten_stage(stage: Stage, change: Callable[[tuple[Expr, ...]], tuple[Expr, ...]]) -> Stage:
    """Return a stage with all its expressions replaced as `change` says."""
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
    """Return one node with operands from `new`; the same object if nothing changes."""
    if not isinstance(node, Op | Call):
        return node
    args = tuple(new[arg] for arg in node.args)
    if isinstance(node, Call) and node.kind == "func" and node.name in calls:
        return replace(node, name=calls[node.name], args=args)
    changed = any(a is not b for a, b in zip(args, node.args, strict=True))
    return replace(node, args=args) if changed else node
