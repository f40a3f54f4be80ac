"""Rules that change the order of computation: divide and conquer, partial reductions."""

from __future__ import annotations

import numpy as np

from tilewright.arith import Poly, poly
from tilewright.patterns import nodes as n
from tilewright.patterns.check import infer
from tilewright.patterns.interpreter import scalar_value
from tilewright.patterns.rewriting.rule import Change, Rule, Site, run_already
from tilewright.patterns.scalar import Arg, ScalarOp
from tilewright.patterns.types import ArrayType, DataType, ScalarType

LIFT = "Lift 2020, section 3.3"
STEUWER = "Steuwer et al. 2015 (Lift's rewrite rules)"


def split_join(length: Poly | int) -> Rule:
    """Return the rule that runs a map in chunks: divide and conquer."""
    k = poly(length)

    def step(site: Site) -> Change | str | None:
        first = site.stages[0]
        if not isinstance(first, n.Map):
            return None
        if reason := run_already(first):
            return reason
        assert isinstance(site.given, ArrayType)
        if site.given.length == k:
            return f"its length is {k} already: there would be one chunk"
        return Change(1, (n.SplitPattern(k), n.Map(n.Map(first.f)), n.Join()))

    after = f"split({k}) >> map(map(f)) >> join"
    condition = f"no level runs the map, and {k} divides its length"
    return Rule(f"split_join({k})", "map(f)", after, LIFT, step, condition)


def _single_chunk(site: Site) -> Change | str | None:
    first = site.stages[0]
    if not isinstance(first, n.Map) or not n.computes(first):
        return None
    if reason := run_already(first):
        return reason
    assert isinstance(site.given, ArrayType)
    return Change(1, (n.SplitPattern(site.given.length), n.Map(n.Map(first.f)), n.Join()))


single_chunk = Rule(
    "single_chunk",
    "map(f)",
    "split(n) >> map(map(f)) >> join, n the length",
    "Tilewright: a dimension of a launch that has nothing to do",
    _single_chunk,
    "no level runs the map, and f computes",
)


def partial_reduce(length: Poly | int) -> Rule:
    """Return the rule that reduces chunks, then their results.

    The function must be declared associative. A start that is a number must be neutral.
    """
    k = poly(length)

    def step(site: Site) -> Change | str | None:
        first = site.stages[0]
        if not isinstance(first, n.Reduce):
            return None
        if reason := run_already(first):
            return reason
        if not (isinstance(first.f, n.UserFun) and first.f.associative):
            return f"{first.f} is not declared associative: fun(..., associative=True)"
        kind = infer(first, site.given)[0]
        assert isinstance(site.given, ArrayType)
        if site.given.item != kind:
            return f"it reduces {site.given.item} to {kind}: partial results have another type"
        if site.given.length == k:
            return f"its length is {k} already: there would be one chunk"
        if reason := repeated_start(first.f, first.init, kind):
            return reason
        return Change(1, (n.SplitPattern(k), n.Map(first), first))

    after = f"split({k}) >> map(reduce(f, z)) >> reduce(f, z)"
    condition = f"f is associative, z neutral, and {k} divides the length"
    return Rule(f"partial_reduce({k})", "reduce(f, z)", after, STEUWER, step, condition)


def strided_reduce(chunks: Poly | int) -> Rule:
    """Return the rule that reduces every ``chunks``-th element, then the partial results.

    Neighbouring threads then read neighbouring elements.
    """
    k = poly(chunks)

    def step(site: Site) -> Change | str | None:
        first = site.stages[0]
        if not isinstance(first, n.Reduce):
            return None
        if not (isinstance(first.f, n.UserFun) and commutative(first.f)):
            return f"{first.f} is not known to be commutative"
        inner = partial_reduce(k).step(site)
        if not isinstance(inner, Change):
            return inner
        split, partial, last = inner.stages
        return Change(1, (split, n.Transpose(), partial, last))

    after = f"split({k}) >> transpose >> map(reduce(f, z)) >> reduce(f, z)"
    condition = f"f is associative and commutative, z neutral, and {k} divides the length"
    return Rule(f"strided_reduce({k})", "reduce(f, z)", after, STEUWER, step, condition)


def reorder_reduce(length: Poly | int, stride: Poly | int) -> Rule:
    """Return the rule that reduces each chunk of ``length`` elements in another order.

    In a chunk, elements that are ``stride`` apart become neighbours. If chunks are then split, and
    a thread reduces each part, neighbouring threads read neighbouring elements.
    """
    k, s = poly(length), poly(stride)

    def step(site: Site) -> Change | str | None:
        first = site.stages[0]
        if not isinstance(first, n.Reduce):
            return None
        if reason := run_already(first):
            return reason
        if not (isinstance(first.f, n.UserFun) and first.f.associative and commutative(first.f)):
            return f"{first.f} is not known to be associative and commutative"
        order = n.Map(n.pipe(n.SplitPattern(s), n.Transpose(), n.Join()))
        return Change(1, (n.SplitPattern(k), order, n.Join(), first))

    after = f"split({k}) >> map(split({s}) >> transpose >> join) >> join >> reduce(f, z)"
    condition = f"f is associative and commutative, {k} divides the length and {s} divides {k}"
    source = "Steuwer et al. 2015 (reorder-stride)"
    return Rule(f"reorder_reduce({k}, {s})", "reduce(f, z)", after, source, step, condition)


def _interchange(site: Site) -> Change | str | None:
    first = site.stages[0]
    if not isinstance(first, n.Map):
        return None
    *before, last = n.stages(first.f) or (n.IDENTITY,)
    if not isinstance(last, n.Reduce):
        return None
    if reason := run_already(first, last):
        return reason
    assert isinstance(site.given, ArrayType)
    middle = infer(n.pipe(*before), site.given.item)[0]
    inner = Site((last,), middle, (*site.around, first), site.put)
    start = n.pipe(typed_start(last, inner), n.Repeat(site.given.length))
    rows = () if not before else (n.Map(n.pipe(*before)),)
    step = n.pipe(n.Zip(), n.Map(last.f))
    return Change(1, (*rows, n.Transpose(), n.Reduce(step, start)))


interchange = Rule(
    "interchange",
    "map(g >> reduce(f, z))",
    "map(g) >> transpose >> reduce(zip >> map(f), z >> repeat(n))",
    "Hagedorn et al. 2020 (ELEVATE: loop interchange)",
    _interchange,
    "no level runs the map or the reduction",
)


def repeated_start(f: n.UserFun, init: n.Pattern, kind: DataType) -> str:
    """Return why a reduction may not use its start once per chunk; an empty text if it may.

    A start z may be repeated only if ``f(z, z) = z``. The sum needs 0 and the product 1; for
    minimum and maximum, every number will do.
    """
    if not isinstance(init, n.Literal) or not isinstance(kind, ScalarType):
        return ""
    start = kind.dtype.type(init.value)
    with np.errstate(all="ignore"):
        twice = scalar_value(f.body, [start, start], (kind, kind), kind)
    if np.array_equal(twice, start, equal_nan=kind.kind == "f"):
        return ""
    return (
        f"its start {init.value} is not neutral: {f.name}({start}, {start}) is {twice}, and each "
        f"chunk would start with it; start with a neutral value, and apply {f.name} to "
        f"{init.value} afterwards"
    )


def commutative(f: n.UserFun) -> bool:
    """Return whether a user function is the sum, product, min or max of its parameters."""
    body = f.body
    return (
        isinstance(body, ScalarOp)
        and body.name in ("add", "mul", "min", "max")
        and set(body.args) == {Arg(0), Arg(1)}
    )


def typed_start(p: n.Reduce, site: Site) -> n.Pattern:
    """Return the start value of a reduction with an explicit type."""
    if isinstance(p.init, n.Literal) and p.init.type is None:
        kind = infer(p, site.given)[0]
        assert isinstance(kind, ScalarType)
        return n.Literal(p.init.value, kind)
    return p.init
