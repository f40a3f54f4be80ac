"""Funcs cloned for some of their readers: calls, legality, JSON, code, answers, reports."""

import json
from dataclasses import replace

import halide as hl
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from random_schedules import schedules, some_clones
from schedule_cases import all_cases, place
from scheduled_pipelines import (
    PIPELINES,
    UNBOUNDED,
    imported,
    lowered,
    normalised,
    reference,
    run,
    with_image,
)

from tilewright.halide.emit.apply import apply
from tilewright.halide.emit.printing import to_python
from tilewright.halide.frontend.importer import import_pipeline
from tilewright.halide.frontend.live import live_funcs
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.clones import Clone, clone_calls, halide_names, with_clones
from tilewright.halide.ir.json import from_json, to_json
from tilewright.halide.ir.plan import GroupReport, PlannedSchedule
from tilewright.halide.ir.schedule import (
    INLINE,
    ROOT,
    FuncSchedule,
    Level,
    Schedule,
    ScheduledLoop,
    ScheduleError,
    Split,
    StageSchedule,
)
from tilewright.halide.legality.check import check
from tilewright.halide.legality.sizes import requirements
from tilewright.halide.report.explain import schedule_report
from tilewright.halide.schedulers.naive import naive_schedule
from tilewright.halide.search.factors import find_knobs

ALGORITHMS = {name: imported(build()) for name, build in PIPELINES.items()}
QUIET = settings(
    deadline=None,
    max_examples=2,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def equalised():
    """Brightness, its histogram a row, and both of them in the output."""
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.UInt(8), 3, "image")
    bright, rows, out = (hl.Func(name) for name in ("bright", "tallies", "equalised"))
    bright[x, y] = hl.u8((hl.u16(image[x, y, 0]) + image[x, y, 1] * hl.u16(3)) / 4)
    r = hl.RDom([(0, image.width())], "r")
    rows[x, y] = 0
    rows[hl.i32(bright[r.x, y]), y] += 1
    out[x, y] = rows[hl.i32(bright[x, y]), y] + hl.i32(bright[x, y])
    image.set_estimates([(0, 96), (0, 40), (0, 2)])
    out.set_estimates([(0, 96), (0, 40)])
    return hl.Pipeline(out), image


ALGORITHM = load(equalised()[0])
BRIGHT, ROWS, OUT = (place(ALGORITHM, name) for name in ("bright", "tallies", "equalised"))
CLONES = (Clone(BRIGHT, (ROWS,)),)


def by_row():
    """Brightness once per row in vectors for the histogram; again at every output point."""
    extended = with_clones(ALGORITHM, CLONES)
    bright, rows, out = (place(extended, name) for name in ("bright", "tallies", "equalised"))
    (copy,) = (extended.order[copy.name] for copy in extended.copies)
    level = Level("at", rows, 1, "v1")
    vectors = (Split("v0", "xo", "xi", 16, "guard_with_if"),)
    loops = (ScheduledLoop("xi", "vectorized"), ScheduledLoop("xo"), ScheduledLoop("v1"))
    funcs = (
        FuncSchedule(bright, INLINE, INLINE),
        FuncSchedule(copy, level, level, stages=(StageSchedule(vectors, loops),)),
        FuncSchedule(rows, ROOT, ROOT),
        FuncSchedule(out, ROOT, ROOT),
    )
    return Schedule(ALGORITHM.digest, "host", funcs, CLONES)


SCHEDULE = by_row()


def test_the_copy_comes_after_the_original_and_its_readers_call_it():
    extended = with_clones(ALGORITHM, CLONES)
    names = [func.name for func in extended.funcs]
    assert names[names.index("bright") + 1] == "bright (for tallies)"
    assert extended.producers["tallies"] == ("bright (for tallies)",)
    assert extended.producers["bright (for tallies)"] == extended.producers["bright"]
    assert extended.consumers["bright"] == ("equalised",)
    assert extended.digest == ALGORITHM.digest
    assert with_clones(extended, CLONES) is extended
    assert with_clones(extended, ()) is ALGORITHM
    assert "bright (for tallies)" not in ALGORITHM.by_name


def test_a_copy_with_updates_reads_itself():
    algorithm = ALGORITHMS["reductions"]
    scan, result = (place(algorithm, name) for name in ("scan", "result"))
    with pytest.raises(ScheduleError, match="every reader"):
        with_clones(algorithm, (Clone(scan, (result,)),))
    x = hl.Var("x")
    total, a, b = hl.Func("summed"), hl.Func("early"), hl.Func("late")
    total[x] = x
    total[x] += total[x] * 2
    a[x] = total[x] + total[x + 1]
    b[x] = total[x] * a[x]
    algorithm = imported(hl.Pipeline(b))
    summed, early, late = algorithm.funcs[0].name, *(f.name for f in algorithm.funcs[1:])
    extended = with_clones(algorithm, (Clone(0, (algorithm.order[early],)),))
    (copied,) = set(extended.by_name) - set(algorithm.by_name)
    copy = extended.by_name[copied]
    assert {call.name for stage in copy.stages for call in stage.calls} == {copied}
    assert {stage.func for stage in copy.stages} == {copied}
    assert extended.producers[early] == (copied,)
    assert extended.producers[late] == (summed, early)


def test_the_names_are_those_of_halide():
    algorithm = ALGORITHMS["reductions"]
    convolved, histogram = (place(algorithm, name) for name in ("convolved", "histogram"))
    wide = algorithm.order[algorithm.producers[algorithm.funcs[convolved].name][0]]
    clones = (
        Clone(wide, (histogram,)),
        Clone(0, (len(algorithm.funcs), wide)),
        Clone(wide, (convolved,)),
    )
    funcs = live_funcs(algorithm, hl.deserialize_pipeline(algorithm.serialized, {}))
    extended = with_clones(algorithm, clones)
    live = {extended.order[func.name()]: func for func in funcs}
    expected = halide_names(algorithm, clones)
    for call in clone_calls(algorithm, clones):
        readers = [live[reader] for reader in call.readers]
        made = live[call.func].clone_in(readers if len(readers) > 1 else readers[0])
        live[call.result] = made
        assert expected[made.name()] == extended.funcs[call.result].name
    assert len(expected) == 3


def test_the_schedule_is_legal_and_survives_json():
    assert check(SCHEDULE, ALGORITHM) == []
    assert check(SCHEDULE, with_clones(ALGORITHM, CLONES)) == []
    assert from_json(to_json(SCHEDULE), ALGORITHM) == SCHEDULE


def test_json_without_clones_is_as_it_was():
    plain = naive_schedule(ALGORITHM)
    data = json.loads(to_json(plain))
    assert "clones" not in data
    assert from_json(json.dumps(data)) == plain
    assert from_json(json.dumps({**data, "clones": []})) == plain


@pytest.mark.parametrize(
    ("clones", "reason"),
    [
        ({}, "clones must be a list"),
        ([3], "clones.0. must be an object"),
        ([{"func": 1}], "clones.0..readers is missing"),
        ([{"func": -1, "readers": [2]}], "clones.0..func is -1"),
        ([{"func": 1, "readers": ["x"]}], "clones.0..readers must be a list of Funcs"),
        ([{"func": 1, "readers": [2], "name": ""}], "unknown field 'name'"),
    ],
)
def test_malformed_json_is_refused(clones, reason):
    data = {**json.loads(to_json(SCHEDULE)), "clones": clones}
    with pytest.raises(ScheduleError, match=reason):
        from_json(json.dumps(data))


N = len(ALGORITHM.funcs)


@pytest.mark.parametrize(
    ("clones", "reason"),
    [
        ((Clone(9, (OUT,)),), "there is no Func 9"),
        ((Clone(BRIGHT, (9,)),), "Func 9, which does not exist"),
        ((Clone(BRIGHT, ()),), "for no reader"),
        ((Clone(ROWS, (BRIGHT,)),), "for bright, which does not read it"),
        ((Clone(BRIGHT, (BRIGHT,)),), "for itself"),
        ((Clone(BRIGHT, (OUT, OUT)),), "twice for equalised"),
        ((Clone(BRIGHT, (OUT,)), Clone(BRIGHT, (OUT,))), "twice for equalised"),
        ((Clone(BRIGHT, (OUT,)), Clone(BRIGHT, (N,))), "for itself or for another clone"),
        ((Clone(BRIGHT, (OUT,)), Clone(N, (OUT,))), "a clone cannot be cloned"),
        ((Clone(BRIGHT, (ROWS, OUT)),), "every reader"),
    ],
)
def test_clones_that_make_no_sense_are_refused(clones, reason):
    found = check(replace(SCHEDULE, clones=clones), ALGORITHM)
    assert any(problem.kind == "clone" and reason in str(problem) for problem in found)
    with pytest.raises(ScheduleError, match=reason):
        apply(replace(SCHEDULE, clones=clones), ALGORITHM, equalised()[0])


def test_funcs_that_cannot_be_cloned():
    x = hl.Var("x")
    kept, wrapped, first, last = (hl.Func(name) for name in ("kept", "wrapped", "first", "last"))
    kept[x] = x * 2
    kept.memoize()
    wrapped[x] = x * 3
    external = hl.Func("external")
    external.define_extern("double_it", [wrapped], hl.Int(32), 1)
    first[x] = kept[x] + wrapped[x]
    last[x] = kept[x] + wrapped[x] + first[x] + external[x]
    algorithm = imported(hl.Pipeline(last))

    def reasons(algorithm, func, reader):
        clones = (Clone(place(algorithm, func), (place(algorithm, reader),)),)
        return [str(p) for p in check(Schedule(algorithm.digest, "host", (), clones), algorithm)]

    assert "memoised" in reasons(algorithm, "kept", "first")[0]
    assert "extern" in reasons(algorithm, "external", "last")[0]
    assert "an extern stage" in reasons(algorithm, "wrapped", "external")[0]
    wrapped.in_(first)
    again = imported(hl.Pipeline(last))
    assert "a wrapper or a clone" in reasons(again, "wrapped", "last")[0]


def test_an_entry_for_the_copy_is_judged_as_any_other():
    copy = next(i for i, entry in enumerate(SCHEDULE.funcs) if entry.compute.kind == "at")
    out = place(with_clones(ALGORITHM, CLONES), "equalised")
    level = Level("at", out, 0, "v1")
    moved = replace(SCHEDULE.funcs[copy], compute=level, store=level)
    funcs = tuple(moved if i == copy else entry for i, entry in enumerate(SCHEDULE.funcs))
    (problem,) = check(replace(SCHEDULE, funcs=funcs), ALGORITHM)
    assert problem.func == "bright (for tallies)"
    assert "does not enclose stage 1 of tallies" in problem.message


@pytest.mark.parametrize(("width", "height"), [(96, 40), (37, 5), (3, 1)])
def test_it_is_right_at_the_estimate_and_at_other_sizes(width, height):
    pipeline, image = equalised()
    pixels = np.random.default_rng(width).integers(0, 256, (2, height, width + 16), np.uint8)
    image.set(hl.Buffer(np.ascontiguousarray(pixels)))
    apply(SCHEDULE, ALGORITHM, pipeline)
    found = np.asarray(pipeline.realize([width, height]))
    bright = (pixels[0].astype(np.uint16) + pixels[1].astype(np.uint16) * 3) // 4
    counts = np.stack([np.bincount(row, minlength=256) for row in bright])
    seen = bright[:, :width]
    assert (found == np.take_along_axis(counts, seen.astype(int), 1) + seen).all()


def test_a_row_is_computed_once_for_the_histogram_and_nothing_is_kept_for_the_output(tmp_path):
    text = lowered(
        lambda: hl.deserialize_pipeline(ALGORITHM.serialized, {}),
        lambda p: apply(SCHEDULE, ALGORITHM, p, same_bytes=True),
        tmp_path / "stmt",
    )
    produced = [line.strip() for line in text.splitlines() if "produce bright" in line]
    assert produced == ["produce bright_clone_in_tallies$0 {"]


def test_bytes_keep_the_clones(tmp_path):
    """What was applied and then serialised is the same pipeline when it is read again."""

    def scheduled():
        pipeline = hl.deserialize_pipeline(ALGORITHM.serialized, {})
        apply(SCHEDULE, ALGORITHM, pipeline, same_bytes=True)
        return pipeline

    def reread():
        return hl.deserialize_pipeline(bytes(hl.serialize_pipeline(scheduled())), {})

    texts = [lowered(make, lambda p: None, tmp_path / "stmt") for make in (scheduled, reread)]
    assert normalised(texts[0]) == normalised(texts[1])
    read = import_pipeline(bytes(hl.serialize_pipeline(scheduled())))
    assert read.producers["tallies"] == ("bright_clone_in_tallies$0",)


def test_printed_python_tells_of_the_clone():
    text = to_python(SCHEDULE, ALGORITHM)
    assert "    bright_for_tallies = bright.clone_in(tallies)\n" in text
    assert "# bright (for tallies): computed at loop y of tallies" in text
    space: dict = {}
    exec(text, space)
    pipeline, _ = equalised()
    space["schedule"](pipeline)
    assert bytes(hl.serialize_pipeline(pipeline))


def test_reports_show_the_copy_and_its_group():
    groups = (
        GroupReport(("bright (for tallies)", "tallies"), "tallies", 1),
        GroupReport(("equalised",), "equalised"),
    )
    planned = PlannedSchedule(SCHEDULE, groups, 0.0)
    report = schedule_report(ALGORITHM, planned, pipeline="equalised")
    assert report.groups[0].funcs == ("bright (for tallies)", "tallies")
    nodes = {node.name: node for node in report.dag.nodes}
    assert (nodes["bright (for tallies)"].group, nodes["bright (for tallies)"].inlined) == (
        0,
        False,
    )
    assert (nodes["bright"].group, nodes["bright"].inlined) == (1, True)
    assert ("bright (for tallies)", "tallies") in report.dag.edges
    assert ("bright", "tallies") not in report.dag.edges
    assert "bright (for tallies)" in {line.name for line in report.nest if line.kind == "produce"}
    (knob,) = find_knobs([planned], ALGORITHM).knobs
    assert (knob.kind, knob.planned) == ("vector", 16)


@pytest.mark.parametrize("name", ["clones", "clone_of_an_output"])
@pytest.mark.parametrize("extents", [(40, 30, 3), (13, 1, 3)])
@pytest.mark.few(2)
def test_clones_of_clones_readers_compute_the_same(name, extents):
    algorithm, schedule = all_cases()[name]
    pipeline, _image = with_image(algorithm)
    apply(schedule, algorithm, pipeline, same_bytes=True)
    found = run(pipeline, algorithm, extents)
    for got, expected in zip(found, reference(algorithm, extents), strict=True):
        np.testing.assert_array_equal(got, expected)


# The recurrences of "reductions", nested at random, take minutes to compile now and then.
@pytest.mark.parametrize("name", ["blur", "tuples", "outputs"])
@QUIET
@given(data=st.data(), width=st.integers(1, 40), height=st.integers(1, 30))
@pytest.mark.few(1)
def test_any_clones_under_any_schedule(name, data, width, height, tmp_path):
    algorithm = ALGORITHMS[name]
    clones = data.draw(some_clones(algorithm, most=2))
    schedule = data.draw(schedules(algorithm, exact=True, clones=clones))
    assert check(schedule, algorithm) == []
    assert from_json(to_json(schedule), algorithm) == schedule
    assert requirements(schedule, algorithm) == ()
    space: dict = {}
    exec(to_python(schedule, algorithm), space)
    live = lowered(
        algorithm, lambda p: apply(schedule, algorithm, p, same_bytes=True), tmp_path / "stmt"
    )
    assert lowered(algorithm, space["schedule"], tmp_path / "stmt") == live
    assume(live != UNBOUNDED)
    pipeline, _image = with_image(algorithm)
    apply(schedule, algorithm, pipeline, same_bytes=True)
    found = run(pipeline, algorithm, [width, height, 3])
    for got, expected in zip(found, reference(algorithm, [width, height, 3]), strict=True):
        np.testing.assert_array_equal(got, expected)
