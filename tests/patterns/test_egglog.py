"""Equality saturation as a second opinion: derived programs are in one class with their start.

The equations are those of the papers, written here once more, for lists of stages: they share
nothing with the rules that they check.
"""

# mypy: ignore-errors
from __future__ import annotations

import pytest

import tilewright.patterns as tp
from tilewright.patterns import nodes as n
from tilewright.patterns import rewriting as rw
from tilewright.patterns.rewriting import fusion, motion
from tilewright.patterns.rewriting.rule import apply_at, sites

egg = pytest.importorskip("egglog", reason="no egglog: pip install egglog (it brings 25 packages)")

ROUNDS = 2  # of saturation; derivations have two steps, and both ends are rewritten
MOST = 30  # derived programs of each that are compared with their start


class Stage(egg.Expr):
    """A stage of a pipe."""

    def __init__(self, name: egg.StringLike) -> None: ...


class Stages(egg.Expr):
    """A pipe: a list of stages."""

    def __init__(self) -> None: ...


@egg.function
def then(first: Stage, rest: Stages) -> Stages: ...


@egg.function
def joined(a: Stages, b: Stages) -> Stages: ...


@egg.function
def mapped(f: Stages) -> Stage: ...


@egg.function
def reduced(f: Stages, start: Stages) -> Stage: ...


@egg.function
def after(f: Stages) -> Stage:
    """The function (acc, x) -> (acc, f(x))."""


@egg.function
def cut(length: egg.i64Like) -> Stage: ...


@egg.function
def windows(size: egg.i64Like, step: egg.i64Like) -> Stage: ...


JOIN, TRANSPOSE, NONE = Stage("join"), Stage("transpose"), Stages()


@egg.ruleset
def equations(f: Stages, g: Stages, r: Stages, z: Stages, s: Stage, k: egg.i64, m: egg.i64):
    def same(a, b):
        yield egg.rewrite(a, subsume=False).to(b)
        yield egg.rewrite(b, subsume=False).to(a)

    yield egg.rewrite(joined(NONE, r)).to(r)
    yield egg.rewrite(joined(then(s, f), r)).to(then(s, joined(f, r)))
    mm = mapped(then(mapped(f), NONE))
    # map fusion, and fission of the first stage
    yield egg.rewrite(then(mapped(f), then(mapped(g), r))).to(then(mapped(joined(f, g)), r))
    yield egg.rewrite(then(mapped(then(s, g)), r)).to(
        then(mapped(then(s, NONE)), then(mapped(g), r))
    )
    yield egg.rewrite(then(mapped(NONE), r)).to(r)
    yield from same(then(JOIN, then(mapped(f), r)), then(mm, then(JOIN, r)))
    yield from same(then(mapped(f), then(cut(k), r)), then(cut(k), then(mm, r)))
    yield from same(then(mm, then(TRANSPOSE, r)), then(TRANSPOSE, then(mm, r)))
    yield from same(then(mapped(f), then(windows(k, m), r)), then(windows(k, m), then(mm, r)))
    yield egg.rewrite(then(cut(k), then(JOIN, r))).to(r)
    yield egg.rewrite(then(TRANSPOSE, then(TRANSPOSE, r))).to(r)
    inner = then(after(f), g)
    yield egg.rewrite(then(mapped(f), then(reduced(g, z), r))).to(then(reduced(inner, z), r))


@egg.ruleset
def chunks(f: Stages, r: Stages, z: Stages):
    for k in (2, 3):
        mm = mapped(then(mapped(f), NONE))
        yield egg.rewrite(then(mapped(f), r)).to(then(cut(k), then(mm, then(JOIN, r))))
        part = then(mapped(then(reduced(f, z), NONE)), then(reduced(f, z), r))
        yield egg.rewrite(then(reduced(f, z), r)).to(then(cut(k), part))


def term(p):
    """A pattern in egglog's words."""
    found = NONE
    for stage in reversed(n.stages(p)):
        found = then(one(stage), found)
    return found


def one(p):
    if isinstance(p, n.Map):
        return mapped(term(p.f))
    if isinstance(p, n.Reduce):
        start = p.init if p.init.type is None else n.Literal(p.init.value, None)
        return reduced(term(p.f), term(start))
    if isinstance(p, n.Par) and p.items[0] is n.IDENTITY:
        return after(term(p.items[1]))
    if isinstance(p, n.SplitPattern):
        return cut(p.length.value)
    if isinstance(p, n.Slide):
        return windows(p.size.value, p.step.value)
    if isinstance(p, n.Join):
        return JOIN
    return TRANSPOSE if isinstance(p, n.Transpose) else Stage(str(p))


A, X = tp.array("A", tp.i32[6, 12]), tp.array("x", tp.i32[12])
SQUARE, NEXT = tp.fun(lambda v: v * v, "square"), tp.fun(lambda v: v + 1, "next")
PROGRAMS = {
    "sum of squares": X >> tp.map(SQUARE) >> tp.reduce(tp.add, 0),
    "two maps": X >> tp.map(SQUARE) >> tp.map(NEXT),
    "windows": X >> tp.map(NEXT) >> tp.slide(3, 1) >> tp.map(tp.reduce(tp.add, 0)),
    "layout": A >> tp.transpose >> tp.map2(NEXT) >> tp.transpose >> tp.map(tp.split(3)) >> tp.join,
}
RULES = [
    *fusion.RULES,
    *(rule for rule in motion.RULES if rule is not motion.reindex_map),
    rw.split_join(2),
    rw.partial_reduce(3),
]


def derived(program, depth):
    """Programs by up to some steps, each once."""
    seen = layer = {program}
    for _ in range(depth):
        layer = {
            made
            for p in layer
            for site in sites(p)
            for rule in RULES
            if isinstance(made := apply_at(rule, site), n.Pattern)
        } - seen
        seen = seen | layer
    return sorted(seen, key=str)


@pytest.mark.parametrize("name", PROGRAMS)
def test_derived_programs_are_in_one_class(name):
    start = PROGRAMS[name]
    found = derived(start, 2)
    assert len(found) > 5
    assert not [str(p) for p in found[:: -(-len(found) // MOST)] if not equal(start, p)]


def equal(a, b):
    """Whether saturation puts two programs into one class."""
    graph = egg.EGraph()
    first, second = graph.let("first", term(a)), graph.let("second", term(b))
    graph.run(egg.run(equations) * ROUNDS)
    if not graph.check_bool(egg.eq(first).to(second)):
        graph.run(egg.run(chunks) + egg.run(equations) * ROUNDS)
    return graph.check_bool(egg.eq(first).to(second))


def test_a_program_of_another_meaning_is_in_another_class():
    assert not equal(PROGRAMS["two maps"], X >> tp.map(NEXT) >> tp.map(SQUARE))
