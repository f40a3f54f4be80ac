"""Rules that choose the level that runs a loop, and the memory of a result."""

from __future__ import annotations

from tilewright.arith import Poly, below, poly
from tilewright.patterns import nodes as n
from tilewright.patterns.build import copy
from tilewright.patterns.check import infer
from tilewright.patterns.codegen.generate import MOST_UNROLLED
from tilewright.patterns.errors import RewriteError
from tilewright.patterns.rewriting.rule import Change, Rule, Site, Stages, apply, run_already
from tilewright.patterns.types import UNIT, ArrayType, DataType, ScalarType, TupleType, dimensions

STEUWER = "Steuwer et al. 2015 (lowering to OpenCL)"
HAGEDORN = "Hagedorn et al. 2018 (local memory)"
NEST = "and the maps around it allow the level"


def refusal(level: n.MapLevel, levels: tuple[n.MapLevel, ...]) -> str:
    """Return why a level cannot run a map inside maps of other levels; empty if it can."""
    kinds = {outer.kind for outer in levels}
    if level.kind == "glb" and kinds & {"wrg", "lcl"}:
        return "threads of the whole grid inside a work-group"
    if level.kind == "wrg" and kinds & {"glb", "lcl"}:
        return "work-groups inside threads"
    if level.kind == "lcl" and n.MapLevel("wrg", level.dim) not in levels:
        return f"threads of a group outside of map_wrg(..., {level.dim})"
    if level in levels and level.kind in n.GRID_KINDS:
        return f"map_{level.kind}(..., {level.dim}) inside another of the same dimension"
    if level.kind == "par" and kinds & {"par", "simd"}:
        return "cores inside a loop that is already spread over cores or lanes"
    if level.kind in n.GRID_KINDS and kinds & {"seq", "unroll", "par", "simd", "vec"}:
        return f"map_{level.kind} inside a loop of one thread"
    return ""


def _unfit(site: Site) -> str:
    """Return why the map at a site takes no level; empty if it takes one."""
    if not n.computes(site.stages[0]):
        return "the map only changes the layout of its input: it needs no loop"
    reader = next((s for s in site.stages[1:] if n.computes(s)), site.reader)
    return f"{reader} reads its result: fuse the two or store it first" if reader else ""


def lower(level: n.MapLevel) -> Rule:
    """Return the rule that gives a level to a map without one, if the enclosing maps allow it."""

    def at(site: Site) -> Change | str | None:
        first = site.stages[0]
        if not isinstance(first, n.Map):
            return None
        reason = run_already(first) or _unfit(site) or refusal(level, site.levels())
        return reason or Change(1, (n.Map(first.f, level),))

    dim = f", {level.dim}" if level.kind in n.GRID_KINDS else ""
    name = f"lower_{level.kind}({level.dim})" if dim else f"lower_{level.kind}"
    condition = f"no level runs the map, f computes, no pattern reads its result, {NEST}"
    return Rule(name, "map(f)", f"map_{level.kind}(f{dim})", STEUWER, at, condition)


def lower_nest(*levels: n.MapLevel) -> Rule:
    """Return the rule that gives levels to directly nested maps, outermost first."""

    def at(site: Site) -> Change | str | None:
        if not isinstance(site.stages[0], n.Map):
            return None
        if reason := run_already(site.stages[0]) or _unfit(site):
            return reason
        p: n.Pattern = site.stages[0]
        for depth in range(len(levels)):
            found = p if isinstance(p, n.Map) else only_map(p)
            if found is None or found.level is not None:
                return f"only {depth} maps are nested here"
            reason = refusal(levels[depth], (*site.levels(), *levels[:depth]))
            if reason:
                return reason
            p = found.f
        return Change(1, (with_levels(site.stages[0], levels),))

    names = ", ".join(f"{v.kind}{v.dim}" if v.kind in n.GRID_KINDS else v.kind for v in levels)
    condition = f"no level runs the maps, no pattern reads their result, {NEST}"
    after = f"maps run by {names}"
    return Rule(f"lower_nest({names})", "nested map(f)", after, STEUWER, at, condition)


def only_map(p: n.Pattern) -> n.Map | None:
    """Return the map without a level whose result is the pipe's, up to layout after it.

    A loop cannot write its results through layout that uses an element several times.
    """
    for last in reversed(n.stages(p)):
        if n.computes(last):
            break
        if any(isinstance(q, n.Slide | n.Pad | n.PadValue | n.Repeat) for q in n.walk(last)):
            return None
    else:
        return None
    return last if isinstance(last, n.Map) and last.level is None else None


def with_levels(p: n.Pattern, levels: tuple[n.MapLevel, ...]) -> n.Pattern:
    """Return a pipe in which the nested maps that `only_map` finds have the levels."""
    if not levels:
        return p
    stages = list(n.stages(p))
    target = only_map(p)
    position = max(i for i, s in enumerate(stages) if s is target)
    assert isinstance(target, n.Map)
    stages[position] = n.Map(with_levels(target.f, levels[1:]), levels[0])
    return n.pipe(*stages)


def lower_reduce(level: n.MapLevel) -> Rule:
    """Return the rule that runs a reduction in a loop (`SEQ`) or unrolled (`UNROLL`)."""

    def at(site: Site) -> Change | str | None:
        first = site.stages[0]
        if not isinstance(first, n.Reduce):
            return None
        if reason := run_already(first):
            return reason
        assert isinstance(site.given, ArrayType)
        if level.kind == "unroll" and site.given.length.value is None:
            return f"its length {site.given.length} is not a number"
        if level.kind == "unroll" and not below(site.given.length, poly(MOST_UNROLLED + 1)):
            return (
                f"its {site.given.length} steps would be written out; {MOST_UNROLLED} at most are"
            )
        return Change(1, (n.Reduce(first.f, first.init, level),))

    after = f"reduce_{level.kind}(f, z)"
    unrolled = (
        f", and its length is a number up to {MOST_UNROLLED}" if level.kind == "unroll" else ""
    )
    condition = "no level runs the reduction" + unrolled
    return Rule(f"lower_reduce({level.kind})", "reduce(f, z)", after, STEUWER, at, condition)


def copied(kind: DataType, levels: tuple[n.MapLevel | None, ...]) -> n.Pattern | None:
    """Return a copy of nested arrays of scalars, with a level for each dimension."""
    lengths, item = dimensions(kind)
    if not isinstance(item, ScalarType) or len(lengths) != len(levels):
        return None
    p: n.Pattern = copy
    for level in reversed(levels):
        p = n.Map(p, level)
    return p


def stage_tile(components: tuple[int, ...] = (0,)) -> Rule:
    """Return the rule that first copies a work-group's tile to local memory, by all its threads.

    Args:
        components: the positions of the zipped tiles to copy; (0,) for a single tile.
    """

    def at(site: Site) -> Change | str | None:
        first = site.stages[0]
        if not isinstance(first, n.Map) or first.level is None or first.level.kind != "wrg":
            return None
        if any(isinstance(p, n.Map) and p.level and p.level.kind == "wrg" for p in n.walk(first.f)):
            return "a work-group map is inside of this one"
        if any(isinstance(p, n.To) for p in n.walk(first.f)):
            return "it stages a tile already"
        dims = [v.dim for v in (*site.levels(), first.level) if v.kind == "wrg"]
        inside = [p.level for p in n.walk(first.f) if isinstance(p, n.Map) and p.level]
        used = {v.dim for v in inside if v.kind == "lcl"}
        if used and used < set(dims):
            return f"its threads have dimensions {sorted(used)}, copying would need {sorted(dims)}"
        assert isinstance(site.given, ArrayType)
        loads = _loads(site.given.item, components, tuple(n.MapLevel("lcl", d) for d in dims))
        if isinstance(loads, str):
            return loads
        return Change(1, (n.Map(n.pipe(loads, first.f), first.level),))

    shown = ", ".join(map(str, components))
    after = "map_wrg(to_local(map_lcl(copy)) >> f)"
    condition = "it is the innermost of work-groups, and its tiles are arrays of scalars"
    return Rule(f"stage_tile(({shown},))", "map_wrg(f)", after, HAGEDORN, at, condition)


def _loads(
    kind: DataType, components: tuple[int, ...], levels: tuple[n.MapLevel, ...]
) -> n.Pattern | str:
    tiles = kind.items if isinstance(kind, TupleType) else (kind,)
    items: list[n.Pattern] = []
    for i, tile in enumerate(tiles):
        made = copied(tile, levels) if i in components else None
        if i in components and made is None:
            return f"{tile} is not an array of scalars with {len(levels)} dimensions"
        items.append(n.IDENTITY if made is None else n.To("local", made))
    if max(components) >= len(tiles):
        return f"{len(tiles)} tiles are numbered from 0; tile {max(components)} does not exist"
    return n.Par(tuple(items)) if isinstance(kind, TupleType) else items[0]


def store(space: str) -> Rule:
    """Return the rule that stores the result of a map in memory if another pattern reads it."""

    def at(site: Site) -> Change | str | None:
        first = site.stages[0]
        reader = next((s for s in site.stages[1:] if n.computes(s)), site.reader)
        if not isinstance(first, n.Map) or not n.computes(first):
            return None
        if reader is None:
            return "no other pattern reads its result: it goes to memory already"
        return Change(1, (n.To(space, first),))

    condition = "f computes, and g reads the result"
    after = f"to_{space}(map(f)) >> g"
    return Rule(f"store({space!r})", "map(f) >> g", after, STEUWER, at, condition)


def pack(name: str, columns: Poly | int) -> Rule:
    """Return the rule that copies a matrix into strips of columns, each strip contiguous.

    Args:
        name: the name of the input.
        columns: columns of a strip, a divisor of the matrix's columns.
    """
    k = poly(columns)

    def at(site: Site) -> Change | str | None:
        first = site.stages[0]
        if not isinstance(first, n.Input) or first.name != name:
            return None
        if any(isinstance(p, n.Map | n.Reduce | n.Iterate) for p in site.around):
            return "the input is inside a loop, which would copy it in every iteration"
        strips: Stages = (n.Map(n.SplitPattern(k)), n.Transpose())
        if len(dimensions(first.type)[0]) != 2:
            return f"{first.type} is not a matrix"
        copying = copied(infer(n.pipe(first, *strips), UNIT)[0], (n.PAR, n.SEQ, n.SEQ))
        if copying is None:
            return f"{first.type} is not a matrix of scalars"
        stored = n.To("global", copying)
        return Change(1, (first, *strips, stored, n.Transpose(), n.Map(n.Join())))

    after = f"{name} >> map(split({k})) >> transpose >> to_global(copy) >> transpose >> map(join)"
    source = "Goto, van de Geijn 2008 (packed panels of a matrix product)"
    condition = f"it is a matrix of scalars outside of all loops, and {k} divides its columns"
    return Rule(f"pack({name}, {k})", name, after, source, at, condition)


def coarsen(length: Poly | int) -> Rule:
    """Return the rule that runs a parallel map in chunks, each by one thread in a loop."""
    k = poly(length)

    def at(site: Site) -> Change | str | None:
        first = site.stages[0]
        if not isinstance(first, n.Map) or first.level is None:
            return None
        if first.level.kind not in ("glb", "lcl", "par"):
            return f"the map is run by {first.level.kind}"
        inner = n.Map(n.Map(first.f, n.SEQ), first.level)
        return Change(1, (n.SplitPattern(k), inner, n.Join()))

    after = f"split({k}) >> map_glb(map_seq(f)) >> join"
    source = "Magni et al. 2014 (thread coarsening)"
    condition = f"map_glb, map_lcl or map_par runs it, and {k} divides its length"
    return Rule(f"coarsen({k})", "map_glb(f)", after, source, at, condition)


def default_grid(program: n.Pattern) -> n.Pattern:
    """Return a program for a grid of threads: the program itself, if any of its maps has a level.

    Otherwise all threads run its outermost maps, up to two nested ones.
    """
    if any(isinstance(p, n.Map) and p.level is not None for p in n.walk(program)):
        return program
    for levels in ((n.MapLevel("glb", 1), n.MapLevel("glb", 0)), (n.MapLevel("glb", 0),)):
        try:
            return apply(lower_nest(*levels), program)
        except RewriteError:
            continue
    return program
