"""Rules that move layout past computation, and remove layout that cancels."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.patterns import nodes as n
from tilewright.patterns.rewriting.rule import Change, Rule, Site, Stages, run_already
from tilewright.patterns.types import ArrayType

LIFT = "Hagedorn et al. 2018 (Lift's stencils), Steuwer et al. 2015"

JOIN, TRANSPOSE = n.Join(), n.Transpose()


Rewrite = Callable[[n.Pattern, n.Pattern, Site], Stages | str | None]


def _pair(rewrite: Rewrite) -> Callable[[Site], Change | str | None]:
    def step(site: Site) -> Change | str | None:
        if len(site.stages) < 2:
            return None
        first, second = site.stages[:2]
        new = rewrite(first, second, site)
        if new is None:
            plain = _undecided(first), _undecided(second)
            if plain != (first, second) and rewrite(*plain, site) is not None:
                return run_already(*_maps(first), *_maps(second))
            return None
        return new if isinstance(new, str) else Change(2, new)

    return step


def _maps(p: n.Pattern) -> Stages:
    """Return a map and, if its function is a map, that map."""
    return (p, *_maps(p.f)) if isinstance(p, n.Map) else ()


def _undecided(p: n.Pattern) -> n.Pattern:
    """Return directly nested maps with their levels removed."""
    return n.Map(_undecided(p.f)) if isinstance(p, n.Map) else p


def _plain(p: n.Pattern) -> n.Pattern | None:
    """Return the function of a map without a level; None for other patterns."""
    return p.f if isinstance(p, n.Map) and p.level is None else None


def _join_map(a: n.Pattern, b: n.Pattern, site: Site) -> Stages | None:
    f = _plain(b)
    return (n.Map(n.Map(f)), JOIN) if a is JOIN and f is not None else None


def _map_map_join(a: n.Pattern, b: n.Pattern, site: Site) -> Stages | None:
    outer = _plain(a)
    f = None if outer is None else _plain(outer)
    return (JOIN, n.Map(f)) if b is JOIN and f is not None else None


def _map_split(a: n.Pattern, b: n.Pattern, site: Site) -> Stages | None:
    f = _plain(a)
    return (b, n.Map(n.Map(f))) if isinstance(b, n.SplitPattern) and f is not None else None


def _split_map_map(a: n.Pattern, b: n.Pattern, site: Site) -> Stages | None:
    outer = _plain(b)
    f = None if outer is None else _plain(outer)
    return (n.Map(f), a) if isinstance(a, n.SplitPattern) and f is not None else None


def _split_join(a: n.Pattern, b: n.Pattern, site: Site) -> Stages | None:
    return () if isinstance(a, n.SplitPattern) and b is JOIN else None


def _join_split(a: n.Pattern, b: n.Pattern, site: Site) -> Stages | str | None:
    if a is not JOIN or not isinstance(b, n.SplitPattern):
        return None
    assert isinstance(site.given, ArrayType)
    inner = site.given.item
    assert isinstance(inner, ArrayType)
    return () if inner.length == b.length else f"the inner length is {inner.length}, not {b.length}"


def _twice_transposed(a: n.Pattern, b: n.Pattern, site: Site) -> Stages | None:
    return () if a is TRANSPOSE and b is TRANSPOSE else None


def _map_map_transpose(a: n.Pattern, b: n.Pattern, site: Site) -> Stages | None:
    outer = _plain(a)
    f = None if outer is None else _plain(outer)
    return (TRANSPOSE, a) if b is TRANSPOSE and f is not None else None


def _transpose_map_map(a: n.Pattern, b: n.Pattern, site: Site) -> Stages | None:
    outer = _plain(b)
    f = None if outer is None else _plain(outer)
    return (b, TRANSPOSE) if a is TRANSPOSE and f is not None else None


def _map_slide(a: n.Pattern, b: n.Pattern, site: Site) -> Stages | None:
    f = _plain(a)
    return (b, n.Map(n.Map(f))) if isinstance(b, n.Slide) and f is not None else None


def _slide_map_map(a: n.Pattern, b: n.Pattern, site: Site) -> Stages | None:
    outer = _plain(b)
    f = None if outer is None else _plain(outer)
    return (n.Map(f), a) if isinstance(a, n.Slide) and f is not None else None


def _transpose_slide(a: n.Pattern, b: n.Pattern, site: Site) -> Stages | None:
    if a is not TRANSPOSE or not isinstance(b, n.Slide):
        return None
    return (n.Map(b), TRANSPOSE, n.Map(TRANSPOSE))


def _reindex_map(a: n.Pattern, b: n.Pattern, site: Site) -> Stages | None:
    f = _plain(b)
    moves = isinstance(a, n.Pad | n.Gather | n.Scatter)
    return (n.Map(f), a) if moves and f is not None else None


def _map_identity(site: Site) -> Change | str | None:
    first = site.stages[0]
    if isinstance(first, n.Map) and first.f is n.IDENTITY:
        return Change(1, ())
    return None


def _rule(name: str, before: str, after: str, rewrite: Rewrite, condition: str = "") -> Rule:
    if not condition and "map(" in before:
        condition = "no level runs the maps"
    return Rule(name, before, after, LIFT, _pair(rewrite), condition)


join_map = _rule("join_map", "join >> map(f)", "map(map(f)) >> join", _join_map)
map_map_join = _rule("map_map_join", "map(map(f)) >> join", "join >> map(f)", _map_map_join)
map_split = _rule("map_split", "map(f) >> split(k)", "split(k) >> map(map(f))", _map_split)
split_map_map = _rule(
    "split_map_map", "split(k) >> map(map(f))", "map(f) >> split(k)", _split_map_map
)
split_then_join = _rule("split_then_join", "split(k) >> join", "identity", _split_join)
join_then_split = _rule(
    "join_then_split", "join >> split(k)", "identity", _join_split, "the inner length is k"
)
transpose_twice = _rule("transpose_twice", "transpose >> transpose", "identity", _twice_transposed)
map_map_transpose = _rule(
    "map_map_transpose",
    "map(map(f)) >> transpose",
    "transpose >> map(map(f))",
    _map_map_transpose,
)
transpose_map_map = _rule(
    "transpose_map_map",
    "transpose >> map(map(f))",
    "map(map(f)) >> transpose",
    _transpose_map_map,
)
map_slide = _rule("map_slide", "map(f) >> slide(n, s)", "slide(n, s) >> map(map(f))", _map_slide)
slide_map_map = _rule(
    "slide_map_map", "slide(n, s) >> map(map(f))", "map(f) >> slide(n, s)", _slide_map_map
)
transpose_slide = _rule(
    "transpose_slide",
    "transpose >> slide(n, s)",
    "map(slide(n, s)) >> transpose >> map(transpose)",
    _transpose_slide,
)
reindex_map = _rule(
    "reindex_map", "pad, gather or scatter >> map(f)", "map(f) >> the same", _reindex_map
)
map_identity = Rule("map_identity", "map(identity)", "identity", LIFT, _map_identity)

RULES = (
    join_map,
    map_map_join,
    map_split,
    split_map_map,
    split_then_join,
    join_then_split,
    transpose_twice,
    map_map_transpose,
    transpose_map_map,
    map_slide,
    slide_map_map,
    transpose_slide,
    reindex_map,
    map_identity,
)
