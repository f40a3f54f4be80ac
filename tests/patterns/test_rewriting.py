"""Rewriting: rules keep the meaning, say why they do not apply, and combine to strategies."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_patterns import stages

import tilewright.patterns as tp
from tilewright.patterns import nodes as n
from tilewright.patterns import rewriting as rw
from tilewright.patterns.codegen.grid import loops
from tilewright.patterns.compiling import grid_code
from tilewright.patterns.programs import APPLICATIONS, LINEAR_ALGEBRA
from tilewright.patterns.rewriting import fusion, motion
from tilewright.patterns.rewriting.rule import Change, Rule, apply_at, sites

N, M = tp.sizes("N M")
STAR = tp.fun(lambda w: w[0, 1] + w[1, 0] - 2 * w[1, 1] + w[1, 2] + w[2, 1], "star")
MINUS = tp.fun(lambda a, b: a - b, "minus")
MIX = tp.fun(lambda w, p: w[0, 0] * 3 + w[2, 2] - p, "mix")

RULES = [
    *(rw.split_join(k) for k in (1, 2, 3)),
    *(rw.partial_reduce(k) for k in (1, 2, 3)),
    rw.strided_reduce(2),
    rw.reorder_reduce(6, 2),
    rw.reorder_reduce(4, 2),
    rw.single_chunk,
    rw.interchange,
    *fusion.RULES,
    *motion.RULES,
    *(rw.slide_tiling(v) for v in (2, 3, 4)),
    rw.slide_sequentially,
    rw.vectorise(2),
    rw.tiling2(2, 3),
    rw.zipped_tiling2(2, 3),
    rw.split2(2, 3),
    rw.round_up(4),
    rw.round_up2(4, 2),
    rw.round_up_chain2(4, 2),
    rw.map2_slide2,
    rw.slide2_slide2,
    rw.map2_fusion,
    rw.block_product(2, 3, 2),
    rw.block_product(3, 2, 4),
    rw.register_tiles(1, 3),
    rw.register_tiles(3, 2),
    rw.lower(n.SEQ),
    rw.lower(n.MapLevel("glb")),
    rw.lower_nest(n.PAR, n.SIMD),
    rw.lower_nest(n.MapLevel("wrg", 1), n.MapLevel("wrg"), n.MapLevel("lcl", 1), n.MapLevel("lcl")),
    rw.lower_reduce(n.UNROLL),
    rw.stage_tile((0,)),
    rw.stage_tile((1,)),
    rw.coarsen(2),
    rw.store("global"),
    rw.pack("A", 3),
]


def data(p, seed=0):
    rng = np.random.default_rng(seed)
    return [
        rng.integers(-9, 9, [int(k.value) for k in lengths(a.type)]).astype(np.int32)
        for a in n.inputs(p)
    ]


def lengths(kind):
    from tilewright.patterns.types import dimensions

    return dimensions(kind)[0]


def equal(a, b):
    if isinstance(a, tuple):
        return all(equal(x, y) for x, y in zip(a, b, strict=True))
    return a.shape == b.shape and np.array_equal(a, b)


def programs():
    A, B = tp.array("A", tp.i32[6, 9]), tp.array("B", tp.i32[6, 9])
    x = tp.array("x", tp.i32[12])
    windows = A >> tp.pad2(1, 1, tp.clamp) >> tp.slide2(3, 1)
    row_sums = tp.map(tp.map(tp.mul) >> tp.reduce(tp.add, 0))
    P, Q = (tp.array(name, tp.i32[6, 4]) for name in "PQ")
    dot = tp.zip >> tp.map(tp.mul) >> tp.reduce(tp.add, 0)
    corner = tp.fun(lambda w: w[0, 0] - 2 * w[1, 1], "corner")
    return {
        "stencil": windows >> tp.map2(STAR),
        "zipped": tp.zip2(windows, B) >> tp.map2(MIX),
        "windows": x >> tp.slide(4, 2) >> tp.map(tp.reduce(tp.add, 0)),
        "sum": x >> tp.map(tp.fun(lambda v: v * v)) >> tp.reduce(tp.add, 0),
        "rows": tp.zip(A, B) >> tp.map(tp.zip) >> row_sums,
        "layout": A >> tp.transpose >> tp.map(tp.split(3)) >> tp.join >> tp.transpose,
        "product": tp.zip2(P >> tp.map(tp.repeat(6)), Q >> tp.repeat(6)) >> tp.map2(dot),
        "chain": windows >> tp.map2(STAR) >> tp.slide2(2, 1) >> tp.map2(corner),
    }


PROGRAMS = programs()
SIDES = [
    tp.array(name, tp.i32[4, 4]) >> f
    for name, f in (("P", tp.map(tp.repeat(4))), ("Q", tp.repeat(4)))
]
ALL_PAIRS = tp.zip2(*SIDES) >> tp.map2(tp.zip >> tp.map(tp.mul) >> tp.reduce(MINUS, 0))


@given(st.sampled_from(sorted(PROGRAMS)), st.lists(st.integers(0, 10_000), max_size=4))
@settings(max_examples=75)
def test_derived_programs_mean_the_same(name, choices):
    start = p = PROGRAMS[name]
    arrays = data(start)
    for choice in choices:
        found = [q for s in sites(p) for r in RULES if isinstance(q := apply_at(r, s), n.Pattern)]
        assume(found)
        p = found[choice % len(found)]
        assert tp.type_of(p) == tp.type_of(start)
    assert equal(tp.interpret(p, *arrays), tp.interpret(start, *arrays))


@given(stages(tp.i32[4, 6], depth=3, most=4))
@settings(max_examples=60)
def test_rules_keep_the_meaning_of_random_programs(p):
    closed = tp.array("A", tp.i32[4, 6]) >> p
    arrays = data(closed)
    expected = tp.interpret(closed, *arrays)
    for site in sites(closed):
        for rule in RULES:
            made = apply_at(rule, site)
            if isinstance(made, n.Pattern):
                assert equal(tp.interpret(made, *arrays), expected), str(rule)


def places():
    """Programs in which every rule applies somewhere."""
    pair = tp.zip(tp.array("A", tp.i32[6]), tp.array("B", tp.i32[6]))
    A = tp.array("A", tp.i32[6, 9])
    tiles = rw.lower_nest(*(n.MapLevel(k, d) for k in ("wrg", "lcl") for d in (1, 0)))
    return [
        *PROGRAMS.values(),
        rw.derive(PROGRAMS["stencil"], rw.tiling2(2, 3), tiles).program,
        rw.derive(PROGRAMS["zipped"], rw.zipped_tiling2(2, 3), tiles).program,
        rw.apply(rw.lower(n.PAR), PROGRAMS["stencil"]),
        rw.apply(rw.zipped_tiling2(2, 3), PROGRAMS["zipped"]),
        pair >> tp.map(tp.mul) >> tp.map(DOUBLE),
        pair >> tp.map(tp.mul >> DOUBLE),
        A >> tp.join >> tp.map(DOUBLE) >> tp.split(3),
        A >> tp.map2(DOUBLE) >> tp.join >> tp.split(9),
        A >> tp.split(3) >> tp.join,
        A >> tp.split(3) >> tp.map2(ROW),
        A >> tp.split(2) >> tp.map2(ROW) >> tp.join,
        A >> tp.map2(DOUBLE) >> tp.transpose >> tp.transpose,
        A >> tp.map(ROW) >> tp.slide(2, 1) >> tp.map2(ROW),
        A >> tp.transpose >> tp.slide(3, 2),
        A >> tp.transpose >> tp.map2(DOUBLE),
        A >> tp.pad(1, 1, tp.wrap) >> tp.map(tp.identity),
        A >> tp.pad(1, 1, tp.wrap) >> tp.map(ROW),
        rw.apply(rw.block_product(2, 3, 2), PROGRAMS["product"]),
        rw.apply(rw.block_product(3, 2, 4), PROGRAMS["product"]),
        A >> tp.slide2(2, 1) >> tp.slide2(3, 1),
        A >> tp.map2(DOUBLE) >> tp.map2(DOUBLE),
    ]


DOUBLE = tp.fun(lambda v: v + v)
ROW = tp.map(DOUBLE)
PLACES = places()


def test_every_rule_applies_somewhere_in_the_tests():
    unused = {
        str(rule)
        for rule in RULES
        if not any(isinstance(apply_at(rule, site), n.Pattern) for p in PLACES for site in sites(p))
    }
    assert unused == set()


def test_a_schedule_is_written_down_and_shown_step_by_step():
    wrg, lcl = (lambda d: n.MapLevel("wrg", d)), (lambda d: n.MapLevel("lcl", d))
    A = tp.array("A", tp.f32[N, M])
    stencil = A >> tp.pad2(1, 1, tp.clamp) >> tp.slide2(3, 1) >> tp.map2(STAR)
    found = rw.derive(
        stencil,
        rw.tiling2(16, 32),
        rw.lower_nest(wrg(1), wrg(0), lcl(1), lcl(0)),
        rw.stage_tile(),
    )
    assert [str(rule) for rule, _ in found.steps] == [
        "tiling2(16, 32)",
        "lower_nest(wrg1, wrg0, lcl1, lcl0)",
        "stage_tile((0,))",
    ]
    text = str(found)
    assert text.startswith(f"  {stencil}\n= {{ tiling2(16, 32): ")
    assert "to_local(map_lcl(map_lcl(copy, 0), 1)) >> slide2(3, 1)" in text
    assert str(tp.type_of(found.program)) == "f32[N, M]"


@pytest.mark.parametrize(
    ("rule", "program", "message"),
    [
        (rw.split_join(4), PROGRAMS["windows"], "array whose length is a multiple of 4"),
        (rw.split_join(5), PROGRAMS["windows"], "its length is 5 already"),
        (rw.split_join(2), PROGRAMS["layout"] >> tp.join, "split.*does not apply|no map"),
        (rw.slide_tiling(3), PROGRAMS["windows"], "3 is not a multiple of the windows' step 2"),
        (rw.partial_reduce(2), tp.array("x", tp.i32[4]) >> tp.reduce(MINUS, 0), "not declared"),
        (rw.lower(n.MapLevel("lcl")), PROGRAMS["windows"], r"outside of map_wrg\(..., 0\)"),
        (rw.stage_tile(), PROGRAMS["stencil"], r"has no map_wrg\(f\)"),
        (rw.lower_nest(n.PAR, n.SEQ, n.SIMD), PROGRAMS["stencil"], "only 2 maps are nested"),
        (rw.lower(n.SEQ), PROGRAMS["sum"], "reads its result: fuse the two or store it first"),
        (rw.zipped_tiling2(5, 3), PROGRAMS["zipped"], "a multiple of 5"),
        (rw.strided_reduce(2), PROGRAMS["rows"] >> tp.reduce(MINUS, 0), "known to be commutative"),
        (rw.store("global"), PROGRAMS["layout"] >> tp.map2(DOUBLE), "no other pattern reads"),
        (rw.round_up(3), PROGRAMS["rows"], "6 is a multiple of 3"),
        (rw.round_up2(2, 3), PROGRAMS["stencil"], "there are multiples of 2 x 3 points"),
        (rw.pack("x", 3), PROGRAMS["sum"], "is not a matrix"),
        (rw.coarsen(2), rw.apply(rw.lower(n.SIMD), PROGRAMS["rows"]), "is run by simd"),
        (rw.lower_reduce(n.UNROLL), tp.array("x", tp.i32[N]) >> tp.reduce(tp.add, 0), "a number"),
        (rw.map_fusion, PROGRAMS["layout"] >> tp.map(ROW) >> tp.map_seq(ROW), "different threads"),
        (rw.lower_reduce(n.UNROLL), tp.array("x", tp.i32[1025]) >> tp.reduce(tp.add, 0), "1024 at"),
        (rw.reorder_reduce(2, 2), PROGRAMS["rows"] >> tp.reduce(MINUS, 0), "not known to be"),
        (rw.round_up_chain2(2, 3), PROGRAMS["stencil"], "there are multiples of 2 x 3 points"),
        (rw.block_product(4, 2, 2), PROGRAMS["product"], "a multiple of 4"),
        (rw.block_product(2, 2, 2), ALL_PAIRS, "is not declared associative"),
        (motion.join_then_split, PROGRAMS["layout"] >> tp.join >> tp.split(9), "is 18, not 9"),
    ],
)
def test_a_rule_says_why_it_does_not_apply(rule, program, message):
    with pytest.raises(rw.RewriteError, match=message):
        rw.apply(rule, program)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_rule_with_a_condition_says_when_it_fails(rule):
    """Rules for maps and reductions without a level refuse those that have one, with the reason."""
    if not rule.condition.startswith("no level runs"):
        return
    found = {apply_at(rule, site) for p in PLACES for site in sites(in_loops(p))}
    assert "it is already run by seq" in found


def in_loops(p):
    """The program with every map and reduction that computes run in a loop of one thread."""
    if not n.computes(p):
        return p
    p = n.rebuilt(p, tuple(map(in_loops, n.children(p))))
    if isinstance(p, n.Map):
        return n.Map(p.f, n.SEQ)
    return n.Reduce(p.f, p.init, n.SEQ) if isinstance(p, n.Reduce) else p


def test_every_rule_has_a_form_a_source_and_most_have_a_condition():
    for rule in RULES:
        assert rule.before
        assert rule.after
        assert rule.source
    free = {rule.name for rule in RULES if not rule.condition}
    layout = {
        "split_then_join",
        "transpose_twice",
        "transpose_slide",
        "slide2_slide2",
        "map_identity",
    }
    assert free <= layout
    assert motion.map_split.rewriting.endswith("split(k) >> map(map(f)) if no level runs the maps")


def test_strategies_combine():
    A = tp.array("A", tp.i32[6, 8])
    q = A >> tp.split(2) >> tp.join >> tp.split(3) >> tp.join
    assert rw.derive(q, rw.everywhere(motion.split_then_join)).program is A
    assert len(rw.derive(q, rw.repeat(motion.split_then_join)).steps) == 2
    assert rw.derive(A, rw.attempt(motion.split_then_join)).program is A
    either = rw.one(motion.split_then_join, motion.transpose_twice)
    nested = A >> tp.map2(DOUBLE)
    assert str(rw.derive(nested, rw.top_down(rw.split_join(2))).program).startswith("A >> split(2)")
    assert "map(split(2)" in str(rw.derive(nested, rw.bottom_up(rw.split_join(2))).program)
    assert rw.derive(q, rw.at_site(motion.split_then_join, 1)).program is (
        A >> tp.split(2) >> tp.join
    )
    with pytest.raises(rw.RewriteError, match="`number` is below 2, not 2"):
        rw.derive(q, rw.at_site(motion.split_then_join, 2))
    with pytest.raises(rw.RewriteError, match="split_then_join does not apply"):
        rw.derive(A, either)
    with pytest.raises(rw.RewriteError, match="after 1000 times"):
        rw.derive(nested, rw.repeat(Rule("same", "p", "p", "a test", stay)))


def stay(site):
    return Change(1, site.stages[:1])


def test_a_rule_that_changes_the_type_is_found_out():
    wrong = Rule("wrong", "map(f)", "nothing", "a test", lambda site: Change(len(site.stages), ()))
    with pytest.raises(rw.RewriteError, match=r"turned the type i32\[12\] into \(\)"):
        rw.apply(wrong, tp.array("x", tp.i32[12]))


@pytest.mark.parametrize("target", ["c", "gpu"])
@pytest.mark.parametrize("name", sorted(PROGRAMS))
@pytest.mark.few(8)
def test_explored_programs_mean_the_same(name, target):
    start = PROGRAMS[name]
    chosen = rw.ExplorationSettings(target=target, tiles=(1, 2, 3), limit=60)
    found = rw.explore(start, chosen)
    programs_found = [d.program for d in found]
    assert len(set(programs_found)) == len(found)
    assert found == rw.explore(start, chosen)
    assert name in ("layout", "sum") or len(found) > 5
    arrays = data(start)
    expected = tp.interpret(start, *arrays)
    for p in programs_found:
        assert tp.type_of(p) == tp.type_of(start)
        assert equal(tp.interpret(p, *arrays), expected), str(p)


@pytest.mark.thorough
def test_a_large_stencil_has_many_programs():
    A = tp.array("A", tp.f32[4096, 4096])
    stencil = A >> tp.pad2(1, 1, tp.clamp) >> tp.slide2(3, 1) >> tp.map2(STAR)
    assert rw.explore(stencil, rw.ExplorationSettings(limit=0)) == []
    found = rw.explore(stencil, rw.ExplorationSettings(limit=300))
    assert len({d.program for d in found}) == len(found) == 300


def test_grids_that_no_tile_divides_are_tiled_too():
    A, B = tp.array("A", tp.i32[7, 11]), tp.array("B", tp.i32[7, 11])
    windows = A >> tp.pad2(1, 1, tp.clamp) >> tp.slide2(3, 1)
    for start in (windows >> tp.map2(STAR), tp.zip2(windows, B) >> tp.map2(MIX)):
        chosen = rw.ExplorationSettings(tiles=(2, 4), families=("tiling",), limit=40)
        tiled = [d for d in rw.explore(start, chosen) if "crop2(7, 11)" in str(d.program)]
        assert len(tiled) > 5
        arrays = data(start)
        for d in tiled:
            assert equal(tp.interpret(d.program, *arrays), tp.interpret(start, *arrays))


def test_settings_that_cannot_be_used_are_refused():
    with pytest.raises(tp.PatternError, match="'cpu'"):
        rw.ExplorationSettings(target="cpu")
    with pytest.raises(tp.PatternError, match="'tilling'"):
        rw.ExplorationSettings(families=("tilling",))
    with pytest.raises(tp.PatternError, match="depth is -1"):
        rw.ExplorationSettings(depth=-1)
    with pytest.raises(tp.PatternError, match="mapping 'globl'; known are global, group"):
        rw.ExplorationSettings(mappings=("globl",))
    with pytest.raises(tp.PatternError, match="target 'gpu' without a mapping; give global or"):
        rw.ExplorationSettings(mappings=("cores",))
    with pytest.raises(tp.PatternError, match="memory 'shared'"):
        rw.ExplorationSettings(memory=("shared",))
    with pytest.raises(tp.PatternError, match="number of dimensions 4"):
        rw.ExplorationSettings(dimensions=(4,))


def explored(program, **given):
    chosen = rw.ExplorationSettings(tiles=(2, 3), limit=400, **given)
    return [d.program for d in rw.explore(program, chosen)]


def grid_kinds(p):
    return {q.level.kind for q in n.walk(p) if isinstance(q, n.Map) and q.level is not None}


def spaces(p):
    return {q.space for q in n.walk(p) if isinstance(q, n.To)}


@pytest.mark.thorough
def test_mappings_choose_who_runs_loops():
    stencil = PROGRAMS["stencil"]
    everything = explored(stencil)
    assert {"glb", "wrg", "lcl"} <= set().union(*map(grid_kinds, everything))
    alone = explored(stencil, mappings=("global",))
    assert not any("wrg" in grid_kinds(p) for p in alone)
    assert set(alone) >= {p for p in everything if "wrg" not in grid_kinds(p)} != set()
    groups = explored(stencil, mappings=("group",))
    assert not any("glb" in grid_kinds(p) for p in groups)
    assert set(groups) >= {p for p in everything if "glb" not in grid_kinds(p)} != set()
    lanes = explored(stencil, target="c", mappings=("lanes",))
    assert lanes
    assert not any("par" in grid_kinds(p) for p in lanes)


def test_dimensions_choose_grids():
    def dims(p):
        return {q.level.dim for q in n.walk(p) if isinstance(q, n.Map) and q.level is not None}

    cube = tp.array("A", tp.i32[4, 6, 6]) >> tp.map(tp.map2(DOUBLE))
    assert any(dims(p) == {0, 1, 2} for p in explored(cube))
    for d in (1, 3):
        found = explored(cube, dimensions=(d,), families=())
        assert found
        assert all(max(dims(p)) == d - 1 for p in found)
    flat = explored(PROGRAMS["stencil"])
    assert max(max(dims(p)) for p in flat) == 1


def test_memory_chooses_where_results_are():
    row = tp.map(DOUBLE) >> tp.slide(3, 1) >> tp.map(tp.reduce(tp.add, 0))
    rows = tp.array("A", tp.i32[6, 9]) >> tp.map(row)
    for start in (PROGRAMS["stencil"], rows, PROGRAMS["sum"]):
        nowhere = explored(start, memory=())
        assert not any(map(spaces, nowhere))
    tiles = explored(PROGRAMS["stencil"], memory=("local",))
    assert set().union(*map(spaces, tiles)) == {"local"}
    kept = explored(rows, memory=("private",))
    assert set().union(*map(spaces, kept)) == {"private"}
    arrays = data(rows)
    for p in kept:
        assert equal(tp.interpret(p, *arrays), tp.interpret(rows, *arrays))
    long = tp.array("A", tp.i32[6, 300]) >> tp.map(row)
    assert not any(map(spaces, explored(long, memory=("private",), families=())))


@pytest.mark.parametrize(
    "name", ["asum", "gemv", pytest.param("harris", marks=pytest.mark.thorough), "softmax"]
)
@pytest.mark.few(1)
def test_every_kernel_of_explored_gpu_programs_has_threads(name):
    """Stored stages are kernels of their own; only a last reduction may have one thread."""
    build = LINEAR_ALGEBRA.get(name) or APPLICATIONS[name]
    program = build(*(12, 18)[: 1 if name == "asum" else 2])
    found = explored(program)
    stored = [p for p in found if "global" in spaces(p)]
    assert stored or name in ("gemv", "softmax")
    for p in found:
        kernels = grid_code(p, "kernel", None)[1]
        idle = [k for k in kernels if not any(v.level.kind in n.GRID_KINDS for v in loops(k.body))]
        assert len(idle) < len(kernels)
        assert not idle or name == "asum"


LARGER = tp.fun(lambda a, b: tp.maximum(a, b), "larger", associative=True)
EIGHT = np.arange(1, 9)


@pytest.mark.parametrize("rule", [rw.partial_reduce(2), rw.strided_reduce(2)])
@pytest.mark.parametrize("kind", [tp.f32, tp.i32])
@pytest.mark.parametrize(
    ("f", "start", "said"),
    [(tp.add, 5, r"start 5 is not neutral: add\(5.* is 10"), (tp.mul, 2, "apply mul to 2 after")],
)
def test_a_start_that_is_not_neutral_is_not_repeated(rule, kind, f, start, said):
    x = tp.array("x", kind[8])
    for init in (start, kind(start)):
        with pytest.raises(tp.RewriteError, match=said):
            rw.apply(rule, x >> tp.reduce(f, init))
    found = rw.explore(x >> tp.reduce(f, start), rw.ExplorationSettings(target="gpu", limit=20))
    expected = tp.interpret(x >> tp.reduce(f, start), EIGHT.astype(kind.dtype))
    for derivation in found:
        assert tp.interpret(derivation.program, EIGHT.astype(kind.dtype)) == expected


@pytest.mark.parametrize("rule", [rw.partial_reduce(2), rw.strided_reduce(2)])
@pytest.mark.parametrize(
    ("f", "start"),
    [(tp.add, 0.0), (tp.add, -0.0), (tp.mul, 1.0), (LARGER, -np.inf), (LARGER, 5.0)],
)
def test_a_start_that_may_be_repeated(rule, f, start):
    p = tp.array("x", tp.f32[8]) >> tp.reduce(f, float(start))
    data = EIGHT.astype(np.float32)
    assert tp.interpret(rw.apply(rule, p), data) == tp.interpret(p, data)
