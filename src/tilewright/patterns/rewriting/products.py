"""Rules that compute products of matrices in blocks, after Lift's matrix product for GPUs.

All pairs of the rows of ``a`` and the rows of ``b`` are ``zip2(a >> map(repeat(m)), b >>
repeat(n))``; ``map2(zip >> map(f) >> reduce(g, z))`` of them is a matrix product if f multiplies
and g adds. `block_product` computes it block by block, `register_tiles` gives each thread a tile of
a block, `accumulate_locally` keeps the sums of a block in local memory, as RISE does, and
`stage_operands` copies the operands of a step there.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arith import Poly, poly
from tilewright.patterns import nodes as n
from tilewright.patterns.build import copy
from tilewright.patterns.check import infer
from tilewright.patterns.rewriting.algorithmic import repeated_start
from tilewright.patterns.rewriting.lowering import copied, only_map, with_levels
from tilewright.patterns.rewriting.rule import Change, Rule, Site, Stages, run_already
from tilewright.patterns.rewriting.tiling import TRANSPOSE, UNTILE2, ZIP2
from tilewright.patterns.types import ArrayType, ScalarType, TupleType, dimensions

STEUWER_2016 = (
    "Steuwer, Remmelg, Dubach 2016 (Matrix multiplication beyond auto-tuning: rewrite-based GPU "
    "code generation)"
)
RISE = "RISE (mm for NVIDIA GPUs)"
LOADS = n.MapLevel("lcl", 1), n.MapLevel("lcl", 0)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Reductions over all pairs: ``zip2(a >> map(repeat(m)), b >> repeat(n)) >> map2(dot)``."""

    a: Stages
    b: Stages
    f: n.Pattern
    reduce: n.Reduce

    @property
    def dot(self) -> n.Pattern:
        return n.pipe(n.Zip(), n.Map(self.f), self.reduce)

    def sums(self) -> Stages:
        """Return ``zip2 >> map2(g)``, which adds two matrices."""
        return (*ZIP2, n.Map(n.Map(self.reduce.f)))

    def start(self, kind: ScalarType, rows: Poly, columns: Poly) -> n.Pattern:
        """Return a matrix of neutral elements."""
        assert isinstance(self.reduce.init, n.Literal)
        neutral = n.Literal(self.reduce.init.value, kind)
        return n.pipe(neutral, n.Repeat(columns), n.Repeat(rows))


def _pairs(stages: Stages) -> _Pairs | None:
    """Return the reductions that the stages begin with; None for other stages."""
    if len(stages) < 4 or not isinstance(stages[0], n.Fork) or stages[1:3] != ZIP2:
        return None
    outer = stages[3]
    if len(stages[0].items) != 2 or not isinstance(outer, n.Map) or outer.level is not None:
        return None
    if not isinstance(outer.f, n.Map) or outer.f.level is not None:
        return None
    dot = n.stages(outer.f.f)
    (*a, rows), (*b, columns) = (n.stages(item) for item in stages[0].items)
    if len(dot) != 3 or dot[0] is not n.Zip() or not isinstance(rows, n.Map):
        return None
    if not isinstance(rows.f, n.Repeat) or not isinstance(columns, n.Repeat):
        return None
    if not isinstance(dot[1], n.Map) or not isinstance(dot[2], n.Reduce):
        return None
    return _Pairs(tuple(a), tuple(b), dot[1].f, dot[2])


def _refused(pairs: _Pairs, kind: ScalarType) -> str | None:
    """Return why the reduction may not be done in parts; None if it may."""
    g = pairs.reduce.f
    if reason := run_already(pairs.reduce):
        return reason
    if not (isinstance(g, n.UserFun) and g.associative):
        return f"{g} is not declared associative: fun(..., associative=True)"
    if not isinstance(pairs.reduce.init, n.Literal):
        return "the reduction does not start with a number"
    return repeated_start(g, pairs.reduce.init, kind) or None


def _matrix(site: Site, count: int) -> tuple[Poly, Poly, ScalarType] | None:
    """Return rows, columns and type of the matrix that stages compute; None for other results."""
    lengths, kind = dimensions(infer(n.pipe(*site.stages[:count]), site.given)[0])
    if len(lengths) != 2 or not isinstance(kind, ScalarType):
        return None
    return lengths[0], lengths[1], kind


def block_product(rows: Poly | int, columns: Poly | int, depth: Poly | int) -> Rule:
    """Return the rule that reduces all pairs of rows block by block.

    Args:
        rows: rows of a block of results.
        columns: columns of a block of results.
        depth: elements of each row that a step of the reduction takes.
    """
    y, x, k = poly(rows), poly(columns), poly(depth)

    def at(site: Site) -> Change | str | None:
        pairs, result = _pairs(site.stages), None
        if pairs is not None:
            result = _matrix(site, 4)
        if pairs is None or result is None:
            return None
        height, width, kind = result
        if reason := _refused(pairs, kind):
            return reason
        within = n.Fork(
            (
                n.pipe(n.Get(0), TRANSPOSE, n.Map(n.Repeat(x))),
                n.pipe(n.Get(1), TRANSPOSE, n.Repeat(y)),
            )
        )
        one = n.pipe(within, *ZIP2, n.Map(n.Map(pairs.dot)))
        step = n.pipe(n.Par((n.IDENTITY, one)), *pairs.sums())
        steps = n.Reduce(step, pairs.start(kind, y, x))
        cut = n.Map(n.pipe(TRANSPOSE, n.SplitPattern(k)))
        a = n.pipe(*pairs.a, n.SplitPattern(y), cut, n.Map(n.Repeat(width / x)))
        b = n.pipe(*pairs.b, n.SplitPattern(x), cut, n.Repeat(height / y))
        blocks = n.Map(n.Map(n.pipe(n.Zip(), steps)))
        return Change(4, (n.Fork((a, b)), *ZIP2, blocks, *UNTILE2))

    before = "zip2(a >> map(repeat(m)), b >> repeat(n)) >> map2(zip >> map(f) >> reduce(g, z))"
    after = (
        f"the same of blocks with {y} rows of a and {x} of b: map2(zip >> reduce(zip2(sums, pairs "
        f"of {k} elements) >> map2(g), z)) >> untile2"
    )
    condition = (
        f"g is associative, z neutral, no level runs the maps, {y} and {x} divide the numbers of "
        f"rows and {k} their length"
    )
    name = f"block_product({rows}, {columns}, {depth})"
    return Rule(name, before, after, STEUWER_2016, at, condition)


def register_tiles(rows: Poly | int, columns: Poly | int) -> Rule:
    """Return the rule that computes the sums of a step of `block_product` in tiles.

    Each tile is a sum of products of a column and a row, which fits registers.
    """
    y, x = poly(rows), poly(columns)

    def at(site: Site) -> Change | str | None:
        first = site.stages[0]
        if not isinstance(first, n.Par) or len(first.items) != 2 or len(site.stages) < 4:
            return None
        pairs, result = _pairs(n.stages(first.items[1])), _matrix(site, 4)
        if pairs is None or result is None or first.items[0] is not n.IDENTITY:
            return None
        if site.stages[1:4] != pairs.sums():
            return None
        height, width, kind = result
        if reason := _refused(pairs, kind):
            return reason
        if pairs.a[-1] is not TRANSPOSE or pairs.b[-1] is not TRANSPOSE:
            return "the operands are not transposed, as those of block_product are"
        outer = n.Fork((n.pipe(n.Get(0), n.Map(n.Repeat(x))), n.pipe(n.Get(1), n.Repeat(y))))
        product = n.pipe(outer, *ZIP2, n.Map(n.Map(pairs.f)))
        inner = n.pipe(n.Par((n.IDENTITY, product)), *pairs.sums())
        tile = n.pipe(n.Zip(), n.Reduce(inner, pairs.start(kind, y, x)))
        added = n.pipe(n.Par((n.IDENTITY, tile)), *pairs.sums())
        sums = (n.SplitPattern(y), n.Map(n.pipe(n.Map(n.SplitPattern(x)), TRANSPOSE)))
        strips = n.Fork(
            (
                n.pipe(*pairs.a, n.SplitPattern(y), n.Map(TRANSPOSE), n.Map(n.Repeat(width / x))),
                n.pipe(*pairs.b, n.SplitPattern(x), n.Map(TRANSPOSE), n.Repeat(height / y)),
            )
        )
        both = n.Par((n.pipe(*sums), n.pipe(strips, *ZIP2)))
        return Change(4, (both, *ZIP2, n.Map(n.Map(added)), *UNTILE2))

    before = "par(identity, pairs) >> zip2 >> map2(g)"
    after = (
        f"tiles of {y} x {x}: map2(par(identity, zip >> reduce(zip2(sums, products) >> map2(g), "
        "z)) >> zip2 >> map2(g)) >> untile2"
    )
    condition = f"g is associative, z neutral, {y} divides the rows of a step and {x} its columns"
    return Rule(f"register_tiles({rows}, {columns})", before, after, STEUWER_2016, at, condition)


def accumulate_locally(*levels: n.MapLevel) -> Rule:
    """Return the rule that keeps a reduction to a matrix in local memory.

    Args:
        levels: of the maps of a step of the reduction, outermost first. The first two begin the
            reduction: they store the start.
    """
    names = ", ".join(f"{v.kind}{v.dim}" if v.kind in n.GRID_KINDS else v.kind for v in levels)

    def at(site: Site) -> Change | str | None:
        first = site.stages[0]
        if not isinstance(first, n.Reduce) or _matrix(site, 1) is None:
            return None
        if reason := run_already(first):
            return reason
        kinds = {level.kind for level in site.levels()}
        if "wrg" not in kinds or "lcl" in kinds:
            return "it is not run by a work-group as a whole"
        step: n.Pattern = first.f
        for depth in range(len(levels)):
            found = only_map(step)
            if found is None:
                return f"only {depth} maps are nested in a step"
            step = found.f
        kind = infer(first, site.given)[0]
        start = copied(kind, levels[:2])
        finish = copied(kind, (None, None))
        assert start is not None
        assert finish is not None
        sums = n.Reduce(with_levels(first.f, levels), n.pipe(first.init, start))
        return Change(1, (n.To("local", sums), finish))

    after = f"to_local(reduce(f run by {names}, z >> copy)) >> map2(copy)"
    condition = "a work-group runs it, it returns a matrix of scalars, and its steps are maps"
    return Rule(f"accumulate_locally({names})", "reduce(f, z)", after, RISE, at, condition)


def stage_operands(row: Poly | int, vector: int) -> Rule:
    """Return the rule that copies both matrices of a step to local memory, by all threads.

    Args:
        row: elements of the first matrix that threads of dimension 0 copy together; the matrix is
            copied as if its rows had this length.
        vector: elements that a thread copies at once.
    """
    v = poly(row)
    copying = n.Map(n.Map(copy, n.VEC), LOADS[1])
    one_row = n.Map(n.pipe(n.SplitPattern(poly(vector)), copying, n.Join()), LOADS[0])

    def at(site: Site) -> Change | str | None:
        first = site.stages[0]
        if not isinstance(first, n.Reduce) or not isinstance(site.given, ArrayType):
            return None
        if not any(isinstance(p, n.To) and p.space == "local" for p in site.around[-1:]):
            return "it is not accumulated in local memory"
        kind = site.given.item
        parts = kind.items if isinstance(kind, TupleType) else ()
        if len(parts) != 2 or any(len(dimensions(part)[0]) != 2 for part in parts):
            return f"a step takes {kind}, not two matrices"
        if any(isinstance(p, n.To) and p.space == "local" for p in n.walk(first.f)):
            return "it copies its operands already"
        (_, length), _ = dimensions(parts[0])
        reshaped = (n.Join(), n.SplitPattern(v), one_row, n.Join(), n.SplitPattern(length))
        copies = n.Par((n.To("local", n.pipe(*reshaped)), n.To("local", one_row)))
        step = n.pipe(n.Par((n.IDENTITY, copies)), first.f)
        return Change(1, (n.Reduce(step, first.init, first.level),))

    after = "reduce(par(identity, par(to_local(copy), to_local(copy))) >> f, z)"
    condition = (
        f"the sums are in local memory, a step takes two matrices, {v} divides the elements of the "
        f"first, and {vector} divides {v} and the rows of the second"
    )
    return Rule(f"stage_operands({row}, {vector})", "reduce(f, z)", after, RISE, at, condition)


def _keep_operands(site: Site) -> Change | str | None:
    first = site.stages[0]
    if not isinstance(first, n.Reduce) or not isinstance(site.given, ArrayType):
        return None
    kind = site.given.item
    parts = kind.items if isinstance(kind, TupleType) else ()
    if len(parts) != 2:
        return None
    copies = [copied(part, (n.SEQ,)) for part in parts]
    found = [n.To("private", made) for made in copies if made is not None]
    if len(found) != 2:
        return f"a step takes {kind}, not two arrays of scalars"
    if not any(level.kind in ("lcl", "glb") for level in site.levels()):
        return "no thread runs it alone"
    if any(isinstance(p, n.To) for p in n.walk(first.f)):
        return "it copies its operands already"
    step = n.pipe(n.Par((n.IDENTITY, n.Par(tuple(found)))), first.f)
    return Change(1, (n.Reduce(step, first.init, first.level),))


keep_operands = Rule(
    "keep_operands",
    "reduce(f, z)",
    "reduce(par(identity, par(to_private(copy), to_private(copy))) >> f, z)",
    RISE,
    _keep_operands,
    "one thread runs it, and a step takes two arrays of scalars",
)
