"""The rule that loads and stores vectors of neighbouring elements."""

from __future__ import annotations

from tilewright.arith import poly
from tilewright.patterns import nodes as n
from tilewright.patterns.check import infer, scalars
from tilewright.patterns.codegen.vectors import LENGTHS
from tilewright.patterns.rewriting.rule import Change, Rule, Site
from tilewright.patterns.types import ArrayType

STEUWER = "Steuwer et al. 2015 (asVector, asScalar)"


def vectorise(length: int, *, keep_one: bool = False) -> Rule:
    """Return the rule that lets each thread of a map compute a vector of neighbouring elements.

    Args:
        length: elements of a vector: 2, 4, 8 or 16.
        keep_one: also make a map over vectors if there is only one, for a level to run it.

    The length of the map must be a multiple of the vector's, which becomes a requirement on its
    size. `codegen.vectors` turns accesses that are provably consecutive and aligned into vector
    accesses, leaves the others one per lane, and refuses a kernel without vector accesses.
    """

    def at(site: Site) -> Change | str | None:
        first = site.stages[0]
        if not isinstance(first, n.Map) or not n.computes(first):
            return None
        if first.level is not None:
            return f"it is already run by {first.level.kind}"
        if length not in LENGTHS:
            return f"a vector of {length} elements; give 2, 4, 8 or 16"
        assert isinstance(site.given, ArrayType)
        if scalars(infer(first.f, site.given.item)[0]) is None:
            return None
        if any(level.kind in ("seq", "unroll", "simd", "vec") for level in site.levels()):
            return "it is inside a loop of one thread already"
        reader = next((s for s in site.stages[1:] if n.computes(s)), site.reader)
        if reader is not None:
            return f"{reader} reads its result: fuse the two or store it first"
        if site.given.length == length and not keep_one:
            return Change(1, (n.Map(first.f, n.VEC),))
        run = n.Map(n.Map(first.f, n.VEC))
        return Change(1, (n.SplitPattern(poly(length)), run, n.Join()))

    after = f"split({length}) >> map(map_vec(f)) >> join"
    condition = f"no level runs the map, f returns numbers, and {length} divides the length"
    kept = ", keep_one=True" * keep_one
    return Rule(f"vectorise({length}{kept})", "map(f)", after, STEUWER, at, condition)
