"""Outputs that share their loops: the algorithm with one Func in their place, and the way back."""

import functools
from collections import Counter
from dataclasses import replace

import halide as hl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_cases import complete, nest, split

from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.loop_nest import loop_nest
from tilewright.halide.analysis.summaries import Analysis
from tilewright.halide.emit.apply import apply
from tilewright.halide.execution.at_sizes import AtSizes, payload, resized
from tilewright.halide.execution.binding import deserialize
from tilewright.halide.execution.inputs import describe_inputs
from tilewright.halide.ir.joint import (
    joinable,
    joined,
    joint_of,
    joint_of_schedule,
    shared_loop,
    shares_loops,
)
from tilewright.halide.ir.json import from_json, to_json
from tilewright.halide.ir.nest import exact_size, guarded
from tilewright.halide.ir.schedule import (
    ROOT,
    Clone,
    ComputeWith,
    FuncSchedule,
    Level,
    OutputExtent,
    Split,
)
from tilewright.halide.legality.check import check
from tilewright.halide.legality.sizes import requirements
from tilewright.halide.schedulers.analytic.cpu import shared_outputs
from tilewright.halide.schedulers.any_size import any_size
from tilewright.halide.schedulers.given import nest_groups
from tilewright.halide.schedulers.learned.beam_search import Effort
from tilewright.halide.schedulers.learned.scheduler import plan_learned
from tilewright.halide.schedulers.prediction import predicted
from tilewright.halide.schedulers.registry import plan, why_illegal
from tilewright.halide.schedulers.several_sizes import plan_sizes
from tilewright.halide.schedulers.task import make_task
from tilewright.halide.search.factors import find_knobs, turned
from tilewright.halide.search.factors import settings as knob_settings
from tilewright.machines import CpuMachine
from tilewright.machines.cpu import Cache

CACHES = (Cache(1, 32 << 10, 64, 1), Cache(2, 512 << 10, 64, 1), Cache(3, 8 << 20, 64, 4))
MACHINE = CpuMachine("test", "x86-64", 4, ("avx2",), 256, CACHES)
WIDTH, HEIGHT = 2048, 1536


def image(kind=None):
    found = hl.ImageParam(kind or hl.Float(32), 2, "image")
    found.set_estimates([(0, WIDTH + 4), (0, HEIGHT + 4)])
    return found


def estimated(*outputs, width=WIDTH, height=HEIGHT):
    for output in outputs:
        output.set_estimates([(0, width), (0, height)])
    return hl.Pipeline(list(outputs))


def bands():
    """Sums and differences, which read the same."""
    x, y = hl.vars("x y")
    source, low, high = image(), hl.Func("low"), hl.Func("high")
    low[x, y] = source[x, y] + source[x + 1, y]
    high[x, y] = source[x, y] - source[x + 1, y]
    return estimated(low, high)


def blurred():
    """A stencil that both outputs read."""
    x, y = hl.vars("x y")
    source = image(hl.UInt(16))
    across, both = hl.Func("across"), hl.Func("both")
    smooth, sharp = hl.Func("smooth"), hl.Func("sharp")
    across[x, y] = hl.u32(source[x, y]) + source[x + 1, y] + source[x + 2, y]
    both[x, y] = across[x, y] + across[x, y + 1] + across[x, y + 2]
    smooth[x, y] = hl.u16(both[x, y] / 9)
    sharp[x, y] = hl.u16_sat(2 * hl.i32(source[x + 1, y + 1]) - hl.i32(both[x, y] / 9))
    return estimated(smooth, sharp)


def planes():
    """Three outputs of two types, one of them a Tuple."""
    x, y = hl.vars("x y")
    source = image(hl.UInt(8))
    one, two, three = hl.Func("one"), hl.Func("two"), hl.Func("three")
    wide = hl.i32(source[x, y])
    one[x, y] = hl.u8_sat(wide * 3 - 20)
    two[x, y] = (wide * 5, source[x, y + 1])
    three[x, y] = hl.f32(wide) / 7
    return estimated(one, two, three)


def read_on():
    """Two outputs that share loops, and a third one that reads both."""
    x, y = hl.vars("x y")
    source = image(hl.Int(32))
    first, second, third = hl.Func("first"), hl.Func("second"), hl.Func("third")
    first[x, y] = source[x, y] * 3 + source[x, y + 1]
    second[x, y] = (source[x, y] - 1, source[x, y + 1] * source[x, y])
    third[x, y] = first[x, y] - second[x, y][1]
    return estimated(first, second, third)


PIPELINES = {each.__name__: each for each in (bands, blurred, planes, read_on)}
TOGETHER = {
    "bands": ("low", "high"),
    "blurred": ("smooth", "sharp"),
    "planes": ("one", "two", "three"),
    "read_on": ("first", "second"),
}


@functools.cache
def task(name, exact=False):
    return make_task(PIPELINES[name](), target="host", machine=MACHINE, exact_sizes=exact)


@functools.cache
def shared_plan(name):
    """The plan in which outputs share loops, whether it comes first or not."""
    return next(each for each in plan(task(name), k=2) if shares_loops(each.schedule))


def plain(name):
    return name.split("$")[0]


def own_names(algorithm, names):
    """The names in an algorithm of Funcs given without Halide's numbers."""
    return tuple(func.name for n in names for func in algorithm.funcs if plain(func.name) == n)


# --- the algorithm -----------------------------------------------------------------------


@pytest.mark.parametrize("name", PIPELINES)
def test_which_outputs_can_share_loops(name):
    algorithm = task(name).algorithm
    assert list(joinable(algorithm)) == [own_names(algorithm, TOGETHER[name])]


def test_outputs_of_other_sizes_strides_and_kinds_cannot():
    x, y = hl.vars("x y")
    source = image()
    funcs = [
        hl.Func(name) for name in ("a", "b", "narrow", "moved", "strided", "renamed", "updated")
    ]
    for number, func in enumerate(funcs):
        u, v = hl.vars("u v") if func is funcs[5] else (x, y)
        func[u, v] = source[u, v] * number
    funcs[-1][x, 0] += 1.0
    pipeline = estimated(*funcs)
    funcs[2].set_estimates([(0, WIDTH - 1), (0, HEIGHT)])
    funcs[3].set_estimates([(1, WIDTH), (0, HEIGHT)])
    funcs[4].output_buffer().dim(0).set_stride(3)
    algorithm = make_task(pipeline, target="host", machine=MACHINE).algorithm
    assert list(joinable(algorithm)) == [own_names(algorithm, ("a", "b"))]


def test_the_bounds_of_an_output_in_the_computation_keep_it_alone():
    x, y = hl.vars("x y")
    source = image()
    wide, tall, area = hl.Func("wide"), hl.Func("tall"), hl.Func("area")
    wide[x, y] = source[x, y]
    tall[x, y] = source[x, y] * 2
    area[x, y] = source[x, y] + wide.output_buffer().width() * tall.output_buffer().height()
    pipeline = estimated(wide, tall, area)
    algorithm = make_task(pipeline, target="host", machine=MACHINE).algorithm
    assert list(joinable(algorithm)) == []


def test_the_joint_has_all_values_and_its_readers_read_it():
    algorithm = task("read_on").algorithm
    first, second, third = own_names(algorithm, ("first", "second", "third"))
    joint = joint_of(algorithm, (first, second))
    func = joint.algorithm.by_name[first]
    assert [str(kind) for kind in func.types] == ["int32"] * 3
    assert len(func.stages[0].values) == 3
    assert joint.algorithm.outputs == (first, third)
    reads = {(c.name, c.value_index) for c in joint.algorithm.by_name[third].stages[0].calls}
    assert reads == {(first, 0), (first, 2)}
    host = joint.algorithm.order[first]
    assert joint.places == tuple(
        host if f.name in (first, second) else joint.algorithm.order[f.name]
        for f in algorithm.funcs
    )


def test_what_outputs_have_in_common_is_computed_for_each():
    """Halide does not know that both outputs load from the same addresses."""
    algorithm = task("blurred").algorithm
    (names,) = joinable(algorithm)
    joint = joint_of(algorithm, names)

    def operations(algorithm, *outputs):
        inlined = [func.name for func in algorithm.funcs if func.name not in outputs]
        analysis = Analysis(View(algorithm, frozenset(inlined)), {}, algorithm.symbols)
        summaries = [analysis.summaries(name)[0] for name in outputs]
        counts: Counter[object] = Counter()
        for op in (op for summary in summaries for op in summary.ops):
            counts[op.name, op.type] += op.count
        return counts, sum(len(summary.loads) for summary in summaries)

    together, loads = operations(joint.algorithm, names[0])
    apart, all_loads = operations(algorithm, *names)
    assert loads == all_loads
    assert {op: together[op] for op in apart if op[0] != "add"} == {
        op: count for op, count in apart.items() if op[0] != "add"
    }


# --- schedules ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", PIPELINES)
def test_there_and_back(name):
    algorithm = task(name).algorithm
    schedule = exact_size(shared_plan(name).schedule)
    together, joint = joint_of_schedule(schedule, algorithm)
    assert joint is not None
    assert tuple(map(plain, joint.names)) == TOGETHER[name]
    assert joint.separated(together) == schedule
    assert not check(together, joint.algorithm)
    host = together.funcs[[e.func for e in together.funcs].index(joint.places[joint.host])]
    assert all(stage == guarded(stage) for stage in host.stages)


@pytest.mark.parametrize("name", PIPELINES)
def test_plans_are_legal_and_survive_json(name):
    found = shared_plan(name)
    assert not why_illegal(found.schedule, task(name))
    assert from_json(to_json(found.schedule), task(name).algorithm) == found.schedule
    assert any("the loops of" in note for group in found.groups for note in group.notes)
    assert requirements(found.schedule, task(name).algorithm) == ()


@pytest.mark.parametrize("name", PIPELINES)
def test_predicted_as_the_joint(name):
    """The time is that of one Func, less than that of the same loops one after the other."""
    one, schedule = task(name), shared_plan(name).schedule
    together, joint = joint_of_schedule(schedule, one.algorithm)
    assert joint is not None
    other = predicted(replace(one, algorithm=joint.algorithm), together)
    assert predicted(one, schedule).seconds == other.seconds
    assert any(set(joint.names[:1]) & set(g.funcs) for g in nest_groups(schedule, one.algorithm))


def test_without_members_apart_is_slower_by_the_model():
    one, schedule = task("bands"), shared_plan("bands").schedule
    funcs = tuple(
        replace(entry, stages=tuple(replace(n, compute_with=None) for n in entry.stages))
        for entry in schedule.funcs
    )
    apart = replace(schedule, funcs=funcs)
    assert joined(apart, one.algorithm) == (apart, one.algorithm)
    assert predicted(one, schedule).seconds < predicted(one, apart).seconds


def by_hand(algorithm, guest_loops=None, at="v1o", member=None, **options):
    """Two outputs in rows that run in parallel; `member` is computed in a loop of the first."""
    names = dict(zip(map(plain, algorithm.order), algorithm.order.values(), strict=True))
    first, second = names["smooth"], names["sharp"]
    order = "v0i:vectorized v0o v1i v1o:parallel"
    own = nest(split("v0", 8), split("v1", 16), order=order)
    other = nest(
        split("v0", 8),
        split("v1", 16),
        order=guest_loops or order,
        compute_with=ComputeWith(first, 0, at, **options),
    )
    entries = [
        FuncSchedule(first, ROOT, ROOT, stages=(own,)),
        FuncSchedule(second, ROOT, ROOT, stages=(other,)),
    ]
    if member:
        level = Level("at", {"smooth": first, "sharp": second}[member], 0, "v1i")
        entries.append(FuncSchedule(names["both"], level, level))
    return complete(algorithm, "host", entries)


def test_funcs_in_the_shared_loops_serve_all_outputs():
    algorithm = task("blurred").algorithm
    assert not check(by_hand(algorithm, at="v1i", member="smooth"), algorithm)
    for wrong in (
        by_hand(algorithm, at="v1i", member="sharp"),
        by_hand(algorithm, member="smooth"),
    ):
        assert check(wrong, algorithm)


def test_other_shared_loops_stay_as_they_are():
    """Only the form that `separated` gives is one Func: the same loops, down to the rows."""
    algorithm = task("blurred").algorithm
    assert joined(by_hand(algorithm, at="v1i"), algorithm)[1] is not algorithm
    for other in (
        by_hand(algorithm),
        by_hand(algorithm, at="v1i", align=(("v1i", "start"),)),
        by_hand(algorithm, "v0i:unrolled v0o v1i v1o:parallel", at="v1i"),
    ):
        assert joined(other, algorithm) == (other, algorithm)


@pytest.mark.parametrize(
    ("order", "loop"),
    [
        ("v0i:vectorized v0o v1i v1o:parallel", "v1i"),
        ("v0i:vectorized v1i:unrolled v0o v1o:parallel", "v1o"),
        ("v0i:vectorized v1 v0o:parallel", "v1"),
        ("v0i:vectorized v0o:parallel", "v0o"),
        ("v1i v1o v0", "v1i"),
        ("v0i:vectorized v0o:unrolled", None),
    ],
)
def test_down_to_which_loop(order, loop):
    changes = [split(d, 8) for d in ("v0", "v1") if f"{d}i" in order]
    assert shared_loop(FuncSchedule(0, ROOT, ROOT, stages=(nest(*changes, order=order),))) == loop


TILES = (split("v0", 512, "shift_inwards"), split("v0i", 32))
WHOLE_VECTORS = (Split("v0", "v0i", "v0ii", 32, "guard_with_if"),
                 Split("v0i", "v0o", "v0io", 16, "guard_with_if"))  # fmt: skip


@pytest.mark.parametrize(
    ("name", "width", "expected"),
    [
        ("blurred", 1920, WHOLE_VECTORS),
        ("planes", 1920, WHOLE_VECTORS),
        ("blurred", 2048, TILES),
        ("blurred", 2040, TILES),
        ("bands", 1920, TILES),
    ],
)
@pytest.mark.few(2)
def test_the_last_tile_leaves_out_whole_narrow_vectors(name, width, expected):
    pipeline = PIPELINES[name]()
    for output in pipeline.outputs():
        output.set_estimates([(0, width), (0, 10)])
    algorithm = make_task(pipeline, target="host", machine=MACHINE).algorithm
    joint = joint_of(algorithm, own_names(algorithm, TOGETHER[name]))
    tiled = nest(*TILES, order="v0ii:vectorized v0io v1 v0o:parallel")
    together = FuncSchedule(joint.algorithm.order[joint.names[0]], ROOT, ROOT, stages=(tiled,))
    found = joint.separated(complete(joint.algorithm, "host", [together]))
    stages = [e.stages[0] for e in found.funcs if algorithm.funcs[e.func].name in joint.names]
    exact = tuple(replace(change, tail="guard_with_if") for change in expected)
    assert [stage.splits for stage in stages] == [exact] * len(joint.names)
    # Conditions on the last vector are taken out of the loop over vectors.
    assert {loop.name for loop in stages[0].loops if loop.partition == "auto"} == {"v0ii", "v0io"}
    assert all(guarded(stage) == stage for stage in stages)
    at = AtSizes(payload(algorithm, to_json(found), "host", [{}]))
    for wide in (1, 31, 511, 513, 700):
        extents = dict.fromkeys(algorithm.outputs, (wide, 3))
        assert at.at(describe_inputs(resized(algorithm, extents))).status == "ok"


def test_levels_inside_the_rows_and_special_storage_cannot_be_separated():
    algorithm = task("blurred").algorithm
    (names,) = joinable(algorithm)
    joint = joint_of(algorithm, names)
    order = joint.algorithm.order
    host, both = order[names[0]], next(i for n, i in order.items() if plain(n) == "both")
    loops = nest(split("v0", 8), order="v0i:vectorized v0o v1:parallel")
    for loop, possible in (("v1", True), ("v0o", False)):
        level = Level("at", host, 0, loop)
        entries = [
            FuncSchedule(host, ROOT, ROOT, stages=(loops,)),
            FuncSchedule(both, level, level),
        ]
        found = joint.separated(complete(joint.algorithm, "host", entries))
        assert (found is not None) == possible
    known = replace(loops, specialize=(OutputExtent(host, 0, 8),))
    entry = FuncSchedule(host, ROOT, ROOT, stages=(known,))
    assert joint.separated(complete(joint.algorithm, "host", [entry])) is None


def test_copies_for_the_joint_are_copies_for_its_outputs():
    algorithm = task("blurred").algorithm
    (names,) = joinable(algorithm)
    joint = joint_of(algorithm, names)
    order = joint.algorithm.order
    host, both = order[names[0]], next(i for n, i in order.items() if plain(n) == "both")
    clones = (Clone(both, (host,), wrapper=True),)
    loops = nest(split("v0", 8), order="v0i:vectorized v0o v1:parallel")
    schedule = complete(
        joint.algorithm,
        "host",
        [FuncSchedule(host + 1, ROOT, ROOT, stages=(loops,))],
        clones,
    )
    separate = joint.separated(schedule)
    places = {plain(n): i for n, i in algorithm.order.items()}
    assert separate.clones == (
        Clone(places["both"], (places["smooth"], places["sharp"]), wrapper=True),
    )
    assert not check(separate, algorithm)
    assert joined(separate, algorithm)[0] == replace(
        schedule,
        funcs=tuple(replace(e, stages=tuple(guarded(n) for n in e.stages)) for e in schedule.funcs),
    )


def test_conditions_are_on_every_output():
    """A Func in the shared loops shifts vectors inwards if all outputs are large enough."""
    one = task("blurred")
    found = any_size(exact_size(shared_plan("blurred").schedule), one.algorithm)
    outputs = {one.algorithm.order[name] for name in one.algorithm.outputs}
    sizes = [n.sizes for e in found.funcs for n in e.stages if n.sizes]
    assert sizes or all(e.compute.kind != "at" for e in found.funcs)
    for conditions in sizes:
        on = {c.func for c in conditions if isinstance(c, OutputExtent)}
        assert on == outputs


# --- plans -------------------------------------------------------------------------------


def test_not_where_it_is_not_wanted():
    one = task("bands")
    assert not any(shares_loops(p.schedule) for p in plan(one, k=3, shared=False))
    sizes = [{name: [(0, n), (0, n)] for name in ("low", "high", "image")} for n in (2048, 256)]
    several = make_task(bands(), target="host", machine=MACHINE, estimates=sizes)
    assert not any(shares_loops(p.schedule) for p in plan_sizes(several))


def test_first_if_expected_to_be_faster():
    plans = plan(task("bands"), k=3)
    assert [shares_loops(p.schedule) for p in plans] == [True, False, False]


@pytest.mark.parametrize(("name", "first"), [("bands", True), ("blurred", False)])
def test_funcs_in_shared_loops_must_save_more(name, first, monkeypatch):
    """They have no constant extents there, so 15% less time is not enough."""
    inner = any(entry.compute.kind == "at" for entry in shared_plan(name).schedule.funcs)
    assert inner == (name == "blurred")

    def seconds(algorithm, planned, boxes, model):
        return 0.85 if shares_loops(planned.schedule) else 1.0

    monkeypatch.setattr(shared_outputs, "nest_seconds", seconds)
    assert shares_loops(plan(task(name), k=2)[0].schedule) == first


@pytest.mark.parametrize("name", PIPELINES)
def test_tuned_factors_stay_common(name):
    found = shared_plan(name)
    knobs = find_knobs([found], task(name).algorithm)
    values = knob_settings(found.schedule, knobs)
    assert not any(
        n.compute_with for k in knobs.knobs for n in found.schedule.funcs[k.entry].stages
    )
    assert turned(found.schedule, knobs, values) == found.schedule
    for knob in knobs.knobs:
        for value in knob.values:
            other = turned(exact_size(found.schedule), knobs, {**values, knob.name: value})
            assert joined(other, task(name).algorithm)[1] is not task(name).algorithm


# --- answers -----------------------------------------------------------------------------


@functools.cache
def runner(name):
    one = task(name)
    return AtSizes(payload(one.algorithm, to_json(shared_plan(name).schedule), "host", [{}]))


@given(name=st.sampled_from(sorted(PIPELINES)), data=st.data())
@settings(max_examples=40, deadline=None)
def test_right_at_every_size_of_every_output(name, data):
    algorithm = task(name).algorithm
    side = st.integers(1, 90)
    alike = data.draw(st.booleans())
    size = data.draw(side), data.draw(side)
    extents = {
        output: size if alike else (data.draw(side), data.draw(side))
        for output in algorithm.outputs
    }
    found = runner(name).at(describe_inputs(resized(algorithm, extents)))
    # A call is barred if one output reads more of another one than the caller asked for.
    assert found.status == "ok" or (name == "read_on" and found.status == "barred"), found


@pytest.mark.parametrize("name", ["bands", "blurred"])
def test_right_where_outputs_begin_apart(name):
    """Halide computes every output's own part of the shared loops."""
    algorithm = task(name).algorithm
    ranges = [((3, 70), (2, 40)), ((-5, 33), (11, 65))]
    answers = []
    for schedule in (None, shared_plan(name).schedule):
        live = deserialize(algorithm.serialized, describe_inputs(algorithm))
        if schedule is not None:
            apply(schedule, algorithm, live.pipeline)
        (parameter,) = live.images.values()
        kind = parameter.type()
        values = np.random.default_rng(0).integers(0, 100, (120, 120)).astype(kind_of(kind))
        given = hl.Buffer(values)
        given.set_min([-20, -20])
        parameter.set(given)
        outputs = []
        for func, span in zip(live.pipeline.outputs(), ranges, strict=True):
            outputs.append(hl.Buffer(func.type(), [extent for _, extent in span]))
            outputs[-1].set_min([low for low, _ in span])
        live.pipeline.realize(outputs)
        answers.append([np.array(output) for output in outputs])
    for one, other in zip(*answers, strict=True):
        assert np.array_equal(one, other)


def kind_of(kind):
    return np.float32 if kind.is_float() else np.dtype(f"uint{kind.bits()}")


def test_the_learned_search_moves_within_the_joint():
    one = task("bands")
    assert shares_loops(plan(one)[0].schedule)
    effort = Effort(structures=12, rounds=1)
    plans = plan_learned(one, k=3, effort=effort)
    assert len(plans) == 3
    assert all(shares_loops(each.schedule) for each in plans[:2])
    assert not any(why_illegal(each.schedule, one) for each in plans)


def test_the_loop_nest_names_all_outputs():
    lines = loop_nest(task("bands").algorithm, shared_plan("bands").schedule)
    assert [line.name for line in lines if line.kind == "compute"] == ["low, high"]
    assert all(line.name.startswith(("x", "y")) for line in lines if line.kind == "for")
