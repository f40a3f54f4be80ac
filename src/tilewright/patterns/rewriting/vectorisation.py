"""The rule that loads and stores vectors of neighbouring elements."""

from __future__ import annotations

from tilewright.arith import poly
from tilewright.patterns import nodes as n
from tilewright.patterns.check import infer
from tilewright.patterns.codegen.vectors import LENGTHS, MOST_BYTES
from tilewright.patterns.rewriting.rule import Change, Rule, Site
from tilewright.patterns.types import ArrayType, ScalarType

STEUWER = "Steuwer et al. 2015 (asVector, asScalar)"


def vectorise(length: int) -> Rule:
    """Return the rule that lets each thread of a map compute a vector of neighbouring elements.

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
            return f"a vector of {length} elements; give 2 or 4"
        assert isinstance(site.given, ArrayType)
        kind = infer(first.f, site.given.item)[0]
        if not isinstance(kind, ScalarType):
            return None
        if length * kind.size > MOST_BYTES:
            return f"a vector of {length * kind.size} bytes; an access has at most {MOST_BYTES}"
        if any(level.kind in ("seq", "unroll", "simd", "vec") for level in site.levels()):
            return "it is inside a loop of one thread already"
        reader = next((s for s in site.stages[1:] if n.computes(s)), site.reader)
        if reader is not None:
            return f"{reader} reads its result: fuse the two or store it first"
        if site.given.length == length:
            return Change(1, (n.Map(first.f, n.VEC),))
        run = n.Map(n.Map(first.f, n.VEC))
        return Change(1, (n.SplitPattern(poly(length)), run, n.Join()))

    after = f"split({length}) >> map(map_vec(f)) >> join"
    condition = f"no level runs the map, f returns a number, and {length} divides the length"
    return Rule(f"vectorise({length})", "map(f)", after, STEUWER, at, condition)
