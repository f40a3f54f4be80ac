"""Rules that fuse or split loops."""

from __future__ import annotations

from tilewright.patterns import nodes as n
from tilewright.patterns.check import infer
from tilewright.patterns.rewriting.algorithmic import LIFT, STEUWER, typed_start
from tilewright.patterns.rewriting.rule import Change, Rule, Site, run_already
from tilewright.patterns.types import ArrayType


def _map_fusion(site: Site) -> Change | str | None:
    if len(site.stages) < 2:
        return None
    first, second = site.stages[:2]
    if not isinstance(first, n.Map) or not isinstance(second, n.Map):
        return None
    if first.level != second.level:
        return f"{first} and {second} are run by different threads"
    return Change(2, (n.Map(n.pipe(first.f, second.f), first.level),))


map_fusion = Rule(
    "map_fusion",
    "map(f) >> map(g)",
    "map(f >> g)",
    LIFT,
    _map_fusion,
    "both maps are run by the same level",
)


def _map_fission(site: Site) -> Change | str | None:
    first = site.stages[0]
    if not isinstance(first, n.Map) or len(n.stages(first.f)) < 2:
        return None
    if reason := run_already(first):
        return reason
    head, *rest = n.stages(first.f)
    return Change(1, (n.Map(head), n.Map(n.pipe(*rest))))


map_fission = Rule(
    "map_fission",
    "map(f >> g)",
    "map(f) >> map(g)",
    LIFT,
    _map_fission,
    "no level runs the map",
)


def _reduce_map_fusion(site: Site) -> Change | str | None:
    if len(site.stages) < 2:
        return None
    first, second = site.stages[:2]
    if not isinstance(first, n.Map) or not isinstance(second, n.Reduce):
        return None
    if first.level not in (None, n.SEQ, n.UNROLL):
        return f"{first} is run by many threads, the reduction by one"
    assert isinstance(site.given, ArrayType)
    middle = infer(first, site.given)[0]
    start = typed_start(second, Site(site.stages[1:], middle, site.around, site.put))
    both = n.pipe(n.Par((n.IDENTITY, first.f)), second.f)
    return Change(2, (n.Reduce(both, start, second.level),))


reduce_map_fusion = Rule(
    "reduce_map_fusion",
    "map(f) >> reduce(g, z)",
    "reduce(par(identity, f) >> g, z)",
    STEUWER,
    _reduce_map_fusion,
    "one thread runs the map, or no level does",
)

RULES = (map_fusion, map_fission, reduce_map_fusion)
