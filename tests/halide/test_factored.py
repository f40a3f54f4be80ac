"""Reductions split into partial results (``rfactor``): form, refusals, JSON, answers."""

import functools
from dataclasses import replace

import halide as hl
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from random_schedules import schedules
from schedule_cases import all_cases, complete, nest, place, split
from scheduled_pipelines import UNBOUNDED, imported, lowered, reference, run, with_image

from tilewright.halide.emit.apply import apply
from tilewright.halide.emit.printing import to_cpp, to_python
from tilewright.halide.ir.algorithm import Call, Const, Op, Variable
from tilewright.halide.ir.associativity import combiner
from tilewright.halide.ir.clones import clone_problems, clones_of, halide_names, with_clones
from tilewright.halide.ir.json import from_data, from_json, to_data, to_json
from tilewright.halide.ir.nest import original_loops
from tilewright.halide.ir.schedule import (
    ROOT,
    Clone,
    Factored,
    FuncSchedule,
    Level,
    ScheduleError,
)
from tilewright.halide.legality.check import check
from tilewright.halide.legality.sizes import requirements

QUIET = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
x, y = hl.Var("x"), hl.Var("y")


def statistics():
    """Sums, extremes, a product, conditions, positions and histograms of an image, by row."""
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    r = hl.RDom([(2, 13), (-1, 6)], "r")
    value = hl.i32(image[r.x, y + r.y])
    total, extremes, last, tally, near = (
        hl.Func(name) for name in ("total", "extremes", "last", "tally", "near")
    )
    total[y] = y
    total[y] += value * r.y
    q = hl.RDom([(2, 13), (-1, 6)], "q")
    q.where((q.x < 2 * q.y + y) | (image[q.x, q.y] > 100))
    q.where(q.y != 2)
    other = hl.i32(image[q.x, y + q.y])
    extremes[y] = (hl.i32(300), hl.i32(-300), hl.i32(3))
    extremes[y] = (
        hl.min(extremes[y][0], other),
        hl.max(other, extremes[y][1]),
        extremes[y][2] * (other + 1),
    )
    last[y] = (hl.u8(0), 0)
    pixel = image[r.x, y + r.y]
    last[y] = (hl.max(last[y][0], pixel), hl.select(last[y][0] > pixel, last[y][1], r.x + 20 * r.y))
    tally[x, y] = 0
    tally[hl.i32(pixel) / 32, y] += 1
    near[y] = hl.cast(hl.Bool(), False)
    near[y] = near[y] | (value > 245)
    out = hl.Func("out")
    out[y] = (
        total[y] + tally[hl.clamp(y, 0, 7), y] + hl.i32(near[y]),
        extremes[y][0] + extremes[y][1],
        extremes[y][2],
        hl.i32(last[y][0]),
        last[y][1],
    )
    return hl.Pipeline(out)


@functools.cache
def algorithm():
    return imported(statistics())


def total_split(factor=4, kept=("r0i",)):
    return Factored(place(algorithm(), "total"), 1, kept, (split("r0", factor),))


def text(expr, names):
    """An expression without the hints for bounds that Halide adds, or the names of loops."""
    if isinstance(expr, Const):
        return str(float(expr.value))
    if isinstance(expr, Variable):
        return names.setdefault(expr.name, f"{expr.kind}{len(names)}")
    if isinstance(expr, Call) and expr.name in ("promise_clamped", "likely"):
        return text(expr.args[0], names)
    args = [text(arg, names) for arg in expr.args]
    if isinstance(expr, Op) and expr.name == "add" and "0.0" in args:
        args.remove("0.0")
        return args[0]
    name = f"{expr.name}.{expr.value_index}" if isinstance(expr, Call) else expr.name
    return f"{name}({', '.join(sorted(args))})"


def form(func):
    """What must be alike in our form of a Func and in Halide's: loops, domains, expressions."""
    stages = []
    for stage in func.stages:
        names: dict = {}
        loops = [(loop.name, loop.kind) for loop in original_loops(func, stage)]
        domain = [(text(r.min, names), text(r.extent, names)) for r in stage.rvars]
        stages.append((loops, domain))
    return func.types, len(func.args), stages


def by_halide(schedule, base):
    """The algorithm after Halide's own rfactor."""
    pipeline = hl.deserialize_pipeline(base.serialized, {})
    apply(schedule, base, pipeline, same_bytes=True)
    return imported(pipeline)


@st.composite
def factorings(draw, base, most=3):
    """Reductions of an algorithm split in one to `most` ways."""
    made: tuple[Factored, ...] = ()
    for number in range(draw(st.integers(1, most))):
        extended = with_clones(base, made)
        count = len(base.funcs)
        names = [*(func.name for func in base.funcs), *extended.partials]
        funcs = [i for i in range(count + number) if len(extended.by_name[names[i]].stages) > 1]
        func = draw(st.sampled_from(funcs))
        definition = extended.by_name[names[func]]
        stage = definition.stages[1]
        loops = [loop.name for loop in original_loops(definition, stage) if loop.reduction]
        if not loops:  # the partial results of the whole domain are split already
            break
        splits = []
        for loop in tuple(loops):
            if draw(st.booleans()):
                splits.append(split(loop, draw(st.integers(1, 5))))
                loops[loops.index(loop) : loops.index(loop) + 1] = [f"{loop}i", f"{loop}o"]
        kept = draw(st.lists(st.sampled_from(loops), unique=True))
        entry = Factored(func, 1, tuple(kept), tuple(splits))
        if not list(clone_problems(base, (*made, entry))):
            made = (*made, entry)
        else:
            break
    return made


def test_partial_results_come_before_the_func_that_combines_them():
    base = algorithm()
    extended = with_clones(base, (total_split(),))
    (name,) = extended.partials
    total = next(func for func in base.funcs if func.name.startswith("total"))
    assert name == f"{total.name}_intm"
    assert extended.order[name] + 1 == extended.order[total.name]
    assert extended.producers[total.name] == (name,)
    assert extended.producers[name] == base.producers[total.name]
    assert extended.by_name[total.name].stages[0] is total.stages[0]
    assert extended.digest == base.digest
    assert extended.original is base
    assert clones_of(extended) == (total_split(),)
    assert with_clones(extended, ()) is base
    assert with_clones(extended, clones_of(extended)) is extended


@pytest.mark.parametrize(("factor", "guarded"), [(4, True), (13, False), (1, False)])
def test_splits_that_do_not_divide_the_domain_are_guarded(factor, guarded):
    base = algorithm()
    made = (total_split(factor),)
    extended, theirs = with_clones(base, made), by_halide(complete(base, "host", [], made), base)
    for each in (extended, theirs):
        (partial,) = (func for func in each.funcs if "_intm" in func.name)
        assert bool(partial.stages[1].predicates) == guarded


@settings(QUIET, max_examples=25)
@given(data=st.data())
def test_the_form_is_that_of_halide(data):
    base = algorithm()
    made = data.draw(factorings(base))
    assume(made)
    extended = with_clones(base, made)
    theirs = by_halide(complete(base, "host", [], made), base)
    assert [form(func) for func in theirs.funcs] == [form(func) for func in extended.funcs]


@pytest.mark.thorough
@settings(QUIET, max_examples=10)
@given(data=st.data(), rows=st.integers(1, 30))
def test_any_factoring_under_any_schedule(data, rows, tmp_path):
    base = algorithm()
    made = data.draw(factorings(base, most=2))
    assume(made)
    extended = with_clones(base, made)
    partial = len(base.funcs)
    if data.draw(st.booleans()):  # a wrapper of partial results
        names = [*(func.name for func in base.funcs), *extended.partials]
        readers = tuple(names.index(name) for name in extended.consumers[names[partial]])
        made = (*made, Clone(partial, readers, wrapper=True))
    schedule = data.draw(schedules(base, exact=True, clones=made))
    assert check(schedule, base) == []
    assert from_json(to_json(schedule), base) == schedule
    assert requirements(schedule, base) == ()
    space: dict = {}
    exec(to_python(schedule, base), space)
    path = tmp_path / "stmt"
    live = lowered(base, lambda p: apply(schedule, base, p, same_bytes=True), path)
    assert lowered(base, space["schedule"], path) == live
    assume(live != UNBOUNDED)
    pipeline, _image = with_image(base)
    apply(schedule, base, pipeline, same_bytes=True)
    found = run(pipeline, base, [rows])
    for got, expected in zip(found, reference(base, [rows]), strict=True):
        tied = got is found[4] and any(not in_order(entry, base) for entry in made)
        if not tied:  # where several pixels are brightest
            np.testing.assert_array_equal(got, expected)


def in_order(entry, base):
    return not isinstance(entry, Factored) or entry.func != place(base, "last")


@pytest.mark.opencl
def test_partial_sums_of_threads_are_summed_by_the_block():
    base = algorithm()
    made = (total_split(4, ("r0i", "r1")),)
    extended = with_clones(base, made)
    (name,) = extended.partials
    total, partial = place(extended, "total"), extended.order[name]
    block = nest(split("v0", 1), order="v0i:gpu_thread v0o:gpu_block")
    level = Level("at", total, 1, "v0o")
    entries = [
        FuncSchedule(
            total,
            ROOT,
            ROOT,
            stages=(block, nest(split("v0", 1), order="r0 r1 v0i:gpu_thread v0o:gpu_block")),
        ),
        FuncSchedule(
            partial,
            level,
            level,
            memory="gpu_shared",
            stages=(
                nest(order="v0 v1:gpu_thread v2:gpu_thread"),
                nest(order="r0 v0 v1:gpu_thread v2:gpu_thread"),
            ),
        ),
    ]
    schedule = complete(base, "opencl", entries, made)
    assert check(schedule, base) == []
    pipeline, _image = with_image(base)
    apply(schedule, base, pipeline, same_bytes=True)
    found = run(pipeline, base, [20], "opencl")
    for got, expected in zip(found, reference(base, [20]), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_json_has_split_reductions_before_copies():
    base, schedule = all_cases()["partial_results"]
    data = to_data(schedule)
    assert data["factored"][0]["rvars"] == ["r1i", "r0"]
    assert data["clones"] == [{"func": 6, "readers": [7], "wrapper": True}]
    assert from_json(to_json(schedule), base) == schedule
    data["factored"][0]["splits"] = [{"inner": "r0", "outer": "r1", "fused": "both"}]
    with pytest.raises(ScheduleError, match=r"factored\[0\].splits has a fusion"):
        from_data(data, base)
    data = to_data(schedule)
    data["factored"][0]["rvars"] = [1]
    with pytest.raises(ScheduleError, match="list of loops"):
        from_data(data, base)


def test_partial_results_of_the_whole_domain_have_no_loops():
    base = algorithm()
    entry = Factored(place(base, "total"), 1, ())
    extended = with_clones(base, (entry,))
    (name,) = extended.partials
    total = extended.by_name[base.funcs[entry.func].name]
    partial = extended.by_name[name]
    assert partial.args == total.args
    domain = base.by_name[total.name].stages[1].rvars
    assert [r.extent for r in partial.stages[1].rvars] == [r.extent for r in domain]
    assert total.stages[1].rvars == ()
    schedule = complete(base, "host", [], (entry,))
    assert ".rfactor([])" in to_python(schedule, base)
    assert ".rfactor({})" in to_cpp(schedule, base)
    assert from_json(to_json(schedule), base) == schedule
    # Nothing is left to split again.
    again = (entry, replace(entry))
    assert any("keep one" in reason for _, reason in clone_problems(base, again))


def test_halides_names_are_mapped_to_ours():
    base = algorithm()
    count = len(base.funcs)
    total = place(base, "total")
    name = f"{base.funcs[total].name}_intm"
    copy = f"{name}_in_{base.funcs[total].name}$0"
    assert copy in halide_names(base, (total_split(), Clone(count, (total,), wrapper=True)))


REFUSED = {
    "there is no Func 99": lambda e: replace(e, func=99),
    "no update 0": lambda e: replace(e, stage=0),
    "no update 2": lambda e: replace(e, stage=2),
    "tail guard_with_if": lambda e: replace(e, splits=(split("r0", 4, "round_up"),)),
    "'r7' is not a loop of its reduction": lambda e: replace(e, splits=(split("r7", 4),)),
    "'v0' is not a loop of its reduction": lambda e: replace(e, rvars=("v0",)),
    "'v0' is not a loop": lambda e: replace(e, splits=(*e.splits, split("v0", 4))),
    "each loop that becomes a dimension once": lambda e: replace(e, rvars=("r1", "r1")),
    "keep one": lambda e: replace(e, rvars=("r0i", "r0o", "r1")),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_factorings_that_make_no_sense_are_refused(reason):
    base = algorithm()
    entry = REFUSED[reason](total_split())
    with pytest.raises(ScheduleError, match=reason):
        with_clones(base, (entry,))
    schedule = replace(complete(base, "host", []), clones=(entry,))
    assert any(reason in str(violation) for violation in check(schedule, base))


def test_copies_come_last():
    base = algorithm()
    clone = Clone(place(base, "total"), (place(base, "out"),), wrapper=True)
    with pytest.raises(ScheduleError, match="before the copies"):
        with_clones(base, (clone, total_split()))


def reduction(change, first=0):
    """A reduction of an image by `change`, given the Func, the pixel and the domain."""
    image, r = hl.ImageParam(hl.Int(32), 2, "image"), hl.RDom([(0, 8), (0, 9)], "r")
    func = hl.Func("reduced")
    func[x] = first
    func[x] = change(func, image[r.x, r.y], r)
    return imported(hl.Pipeline(func))


NOT_ASSOCIATIVE = {
    "difference": lambda f, v, r: f[x] - v,
    "added negative": lambda f, v, r: f[x] + -v,
    "quotient": lambda f, v, r: f[x] / v,
    "clamped": lambda f, v, r: hl.clamp(f[x] + v, 0, 9),
    "polynomial": lambda f, v, r: f[x] * v + 1,
    "twice": lambda f, v, r: f[x] + f[x] * v,
    "assignment": lambda f, v, r: v,
    "narrow": lambda f, v, r: hl.i32(hl.i16(f[x]) + hl.i16(v)),
}


@pytest.mark.parametrize("name", NOT_ASSOCIATIVE)
def test_what_halide_does_not_prove_is_refused(name):
    base = reduction(NOT_ASSOCIATIVE[name])
    (problem,) = clone_problems(base, (Factored(place(base, "reduced"), 1, ("r1",)),))
    assert "cannot prove that its operator is associative" in problem[1]


def test_conditions_move_to_the_partial_results():
    image, r = hl.ImageParam(hl.Int(32), 2, "image"), hl.RDom([(0, 8), (0, 9)], "r")
    r.where(r.x < r.y)
    func = hl.Func("reduced")
    func[x] = 0
    func[x] += image[r.x, r.y]
    base = imported(hl.Pipeline(func))
    made = (Factored(place(base, "reduced"), 1, ("r1",)),)
    assert list(clone_problems(base, made)) == []
    extended = with_clones(base, made)
    (condition,) = extended.by_name[extended.partials[0]].stages[1].predicates
    kinds = [arg.kind for arg in condition.args]
    assert kinds == ["rvar", "var"]
    assert extended.funcs[place(extended, "reduced")].stages[1].predicates == ()


@st.composite
def terms(draw, depth=2):
    """A function of two pixels and the domain that gives an expression."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        number = draw(st.integers(1, 3))
        leaves = (
            lambda v, w, r: v,
            lambda v, w, r: r.x + r.y,
            lambda v, w, r: hl.i32(number),
            lambda v, w, r: hl.select(w > number, v, number),
        )
        return draw(st.sampled_from(leaves))
    a, b = draw(terms(depth - 1)), draw(terms(depth - 1))
    operators = (
        lambda p, q, w: p + q,
        lambda p, q, w: p * w - q,
        lambda p, q, w: p * q,
        lambda p, q, w: hl.min(p, q),
        lambda p, q, w: hl.max(p, q),
        lambda p, q, w: hl.select(p > w, q - w, p),
        lambda p, q, w: hl.i32(hl.abs(p - w)),
    )
    operator = draw(st.sampled_from(operators))
    return lambda v, w, r: operator(a(v, w, r), b(v, w, r), w)


@settings(QUIET, max_examples=60)
@given(data=st.data())
def test_halide_proves_what_is_accepted(data):
    operator = data.draw(st.sampled_from((lambda p, q: p + q, lambda p, q: p * q, hl.min, hl.max)))
    swap = data.draw(st.booleans())
    term = data.draw(terms())
    more = data.draw(st.none() | terms(1))

    def change(f, v, r):
        w = hl.cast(hl.Int(32), hl.sqrt(hl.f32(v)))
        pair = (term(v, w, r), f[x]) if swap else (f[x], term(v, w, r))
        value = operator(*pair)
        return value if more is None else operator(value, more(v, w, r))

    base = reduction(change)
    stage = base.funcs[place(base, "reduced")].stages[1]
    assume(len(stage.rvars) == 2 and not isinstance(combiner(stage), str))
    made = (Factored(place(base, "reduced"), 1, ("r1",)),)
    theirs = by_halide(complete(base, "host", [], made), base)  # fails if it is refused
    extended = with_clones(base, made)
    assert len(extended.funcs) == len(theirs.funcs)
    ours, halides = extended.funcs[-2].stages[0].values, theirs.funcs[-2].stages[0].values
    assert [e.value for e in ours] == [e.value for e in halides]
