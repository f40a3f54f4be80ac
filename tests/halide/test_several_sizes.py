"""Schedules for several sizes: the loops of each at its own, and right at all others."""

import functools
import json
import re
from dataclasses import replace

import halide as hl
import pytest
from any_size_pipelines import PIPELINES
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduled_pipelines import lowered, printed_alike

import tilewright
from tilewright.errors import TilewrightError
from tilewright.halide.emit.apply import apply
from tilewright.halide.emit.printing import to_cpp
from tilewright.halide.execution.at_sizes import AtSizes, payload, resized
from tilewright.halide.execution.inputs import describe_inputs
from tilewright.halide.frontend.extents import extents_of
from tilewright.halide.frontend.live import to_pipeline
from tilewright.halide.frontend.source import load, load_sizes
from tilewright.halide.ir.json import from_json, to_data, to_json
from tilewright.halide.ir.nest import exact_size
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.ir.schedule import KnownValue, OutputExtent, SizeVariant
from tilewright.halide.ir.variants import (
    aligned,
    fallback,
    implied,
    merged,
    running_at,
    variant_schedules,
)
from tilewright.halide.legality.check import check
from tilewright.halide.legality.sizes import requirements
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.several_sizes import borders, plan_sizes
from tilewright.halide.schedulers.task import make_task
from tilewright.halide.search.at_every_size import merged_outcome
from tilewright.halide.search.top_k import Outcome, Tried
from tilewright.machines import CpuMachine
from tilewright.machines.cpu import Cache
from tilewright.measure import Measurement
from tilewright.report.pages import schedule_page

CACHES = (Cache(1, 32 << 10, 64, 1), Cache(2, 512 << 10, 64, 1), Cache(3, 8 << 20, 64, 4))
MACHINE = CpuMachine("test", "x86-64", 4, ("avx2",), 256, CACHES)
SIZES = ((480, 320), (90, 60), (30, 20))
LARGEST = 150
COMPILED = ["stencils", "pyramid", "two_outputs", "channels", "product", "slides"]


def of_size(algorithm, width, height):
    return {
        name: [(0, n) for n in (width, height, 3)[: len(algorithm.by_name[name].args)]]
        for name in algorithm.outputs
    }


@functools.cache
def task(name, target="host"):
    pipeline = PIPELINES[name]()
    estimates = [of_size(load(pipeline), *size) for size in SIZES]
    machine = MACHINE if target == "host" else "a100"
    return make_task(pipeline, target=target, machine=machine, estimates=estimates)


@functools.cache
def planned(name, target="host"):
    return plan_sizes(task(name, target))[0]


@functools.cache
def runner(name):
    return AtSizes(payload(task(name).algorithm, to_json(planned(name).schedule), "host", [{}]))


def outcome(name, width, height, channels):
    algorithm = task(name).algorithm
    extents = {
        output: (width, height, channels)[: len(algorithm.by_name[output].args)]
        for output in algorithm.outputs
    }
    return runner(name).at(describe_inputs(resized(algorithm, extents)))


NUMBERS = st.one_of(
    st.integers(1, 20),
    st.integers(1, LARGEST),
    st.sampled_from([31, 32, 42, 52, 53, 64, 90, 139, 208]),
)


@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.few(3)
def test_every_size_is_right(name):
    @settings(max_examples=20, deadline=None, derandomize=True)
    @given(NUMBERS, NUMBERS, st.integers(1, 4))
    def right(width, height, channels):
        found = outcome(name, width, height, channels)
        assert found.status == "ok", found

    for width, height in SIZES:
        assert outcome(name, width, height, 3).status == "ok"
    right()
    assert requirements(planned(name).schedule, task(name).algorithm) == ()


ON_CUDA = ["two_outputs"]
LONG_ON_CUDA = ["row_sums", "pyramid", "stencils", "product"]


@pytest.mark.parametrize(
    ("name", "target"),
    [(n, "host") for n in PIPELINES]
    + [(n, "cuda") for n in ON_CUDA]
    + [pytest.param(n, "cuda", marks=pytest.mark.thorough) for n in LONG_ON_CUDA],
)
@pytest.mark.few(6)
def test_every_pipeline_has_nests_for_every_size(name, target):
    asked, found = task(name, target), planned(name, target)
    assert check(found.schedule, asked.algorithm) == []
    assert [extents_of(a)[0][:2] for a in asked.sizes] == list(SIZES)
    assert [size.extents for size in found.sizes] == [extents_of(a) for a in asked.sizes]
    assert all(size.seconds is not None for size in found.sizes)
    # A size has a variant of its own, or runs what the next has.
    wanted = [size.conditions for size in found.sizes]
    assert list(dict.fromkeys(wanted)) == [v.sizes for v in found.schedule.variants] + [()]
    levels = {
        tuple((e.func, e.compute, e.store) for e in plain.funcs)
        for _, plain in variant_schedules(found.schedule)
    }
    assert len(levels) == 1


def bounded(pipeline, algorithm):
    """Tell Halide the extents of the outputs, which decides every condition on them."""
    for func in (pipeline.get_func(i) for i in range(len(algorithm.funcs))):
        if func.name() in algorithm.outputs:
            spans = algorithm.by_name[func.name()].estimates
            for buffer in func.output_buffers():
                for d, span in enumerate(spans.values()):
                    buffer.dim(d).set_bounds(span.min, span.extent)


def work(text):
    """The loops, allocations and stores of lowered code.

    Halide's automatic names, as `t617`, are numbered in the order in which they come.
    """
    lines = [line.strip() for line in text.splitlines()]
    kept = [s for s in lines if re.match(r"(for|parallel|allocate|produce|consume)\b|.*\] = ", s)]
    known: dict = {}
    return re.sub(
        r"\b([a-z])\d+\b", lambda m: f"{m[1]}{known.setdefault(m[0], len(known))}", "\n".join(kept)
    )


@pytest.mark.parametrize("name", ["stencils", "pyramid", "product"])
def test_each_size_performs_the_loops_of_its_own_schedule(name, tmp_path):
    schedule = planned(name).schedule

    def text(scheduled, algorithm):
        def prepare(pipeline):
            apply(scheduled, algorithm, pipeline)
            bounded(pipeline, algorithm)

        serialized = algorithm.serialized
        path = tmp_path / "lowered.stmt"
        return work(lowered(lambda: hl.deserialize_pipeline(serialized, {}), prepare, path))

    texts = []
    for algorithm in task(name).sizes:
        alone = exact_size(running_at(schedule, algorithm))
        texts.append(text(schedule, algorithm))
        assert texts[-1] == text(alone, algorithm)
    assert len(set(texts)) == len(SIZES)


def test_borders_are_half_way_by_ratio():
    x, y = hl.vars("x y")
    out = hl.Func("out")
    out[x, y] = x + y
    sizes = [[(0, 1000), (0, 64)], [(0, 64), (0, 1000)], [(0, 250), (0, 64)]]
    found = load_sizes(out, [{"out": size} for size in sizes])
    assert [extents_of(a) for a in found] == [((1000, 64),), ((64, 1000),), ((250, 64),)]
    # 500 lies between 1000 and 250; the first size is no smaller in y than any other.
    first, second = borders(found)
    assert first == (OutputExtent(0, 0, 500),)
    assert second == (OutputExtent(0, 1, 253),)
    assert load_sizes(out, [{"out": sizes[0]}, {"out": sizes[0]}])[1:] == ()


def test_inputs_tell_sizes_apart_where_outputs_do_not():
    x = hl.Var("x")
    image = hl.ImageParam(hl.Float(32), 1, "image")
    rows = hl.RDom([(0, image.dim(0).extent())])
    out = hl.Func("out")
    out[x] += image[rows.x] + 0.0 * x
    both = [{"out": [(0, 100)], "image": [(0, n)]} for n in (1000, 10)]
    assert borders(load_sizes(out, both)) == [(KnownValue(0, "extent", 0, 100, least=True),)]


def test_an_input_that_is_not_named_grows_with_the_outputs():
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    out = hl.Func("out")
    out[x, y] = hl.BoundaryConditions.repeat_edge(image)[x + 1, y]
    out.set_estimates([(0, 100), (0, 50)])
    image.set_estimates([(0, 100), (0, 50)])
    found = load_sizes(out, [{"out": [(0, n), (0, n)]} for n in (300, 30)])
    assert [[s.extent for s in a.parameters[0].estimates] for a in found] == [[300, 300], [30, 30]]


def blur():
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.UInt(16), 2, "image")
    across, out = hl.Func("across"), hl.Func("out")
    across[x, y] = image[x, y] + image[x + 1, y]
    out[x, y] = across[x, y] + across[x, y + 1]
    return out


BOTH = [{"out": [(0, 96), (0, 64)]}, {"out": [(0, 24), (0, 16)]}]


def test_it_is_verified_and_timed_at_each_size(tmp_path):
    result = tilewright.schedule(
        blur(), estimates=BOTH, verify=True, records=tmp_path / "records.db"
    )
    assert result.verified is True
    assert len(result.at_sizes) == 2
    assert [row.size for row in result.report().sizes] == ["96x64", "24x16"]
    assert all(row.measured for row in result.report().sizes)
    said = result.explain()
    assert "out.x at least 48, out.y at least 32" in said
    assert "all other sizes" in said
    assert "The rest of this page is about the first of these sizes." in schedule_page(
        result.report()
    )


def test_modes_of_one_size_say_so():
    with pytest.raises(TilewrightError, match="tunes for one size"):
        tilewright.schedule(blur(), estimates=BOTH, mode="tune")
    with pytest.raises(TilewrightError, match="compared at one size"):
        tilewright.halide.compare(blur(), estimates=BOTH)


def measured(seconds, status="ok"):
    return Measurement(status, (seconds,) if status == "ok" else ())


def at_two(first, second, stopped=""):
    plans = [PlannedSchedule(planned("stencils").schedule, (), 1.0, name=n) for n in "ab"]
    outcomes = [
        Outcome(tuple(Tried(p, i, m) for i, (p, m) in enumerate(zip(plans, row, strict=True))))
        for row in (first, second)
    ]
    outcomes[-1] = replace(outcomes[-1], stopped=stopped)
    return merged_outcome(outcomes, task("stencils").sizes[:2])


def test_every_size_counts_alike():
    # 4 times as slow at the larger size, 10 times as fast at the smaller one.
    found = at_two([measured(1.0), measured(4.0)], [measured(0.1), measured(0.01)])
    assert found.best.planned.name == "b"
    assert [m.median for m in found.best.sizes] == [4.0, 0.01]


def test_a_failure_at_one_size_is_a_failure():
    found = at_two([measured(1.0), measured(4.0)], [measured(0.1, "wrong_answer"), measured(1.0)])
    assert found.best.planned.name == "b"
    failed = found.tried[0]
    assert not failed.ok
    assert failed.measurement.message == "at 90x60"


def test_candidates_after_the_time_limit_are_not_tried():
    found = at_two([measured(1.0), measured(4.0)], [None, measured(1.0)], stopped="the time limit")
    assert found.best.planned.name == "b"
    assert found.tried[0].measurement is None
    assert found.stopped == "the time limit"


def test_scalars_have_one_value():
    x = hl.Var("x")
    gain = hl.Param(hl.Int(32), "gain")
    out = hl.Func("out")
    out[x] = x * gain
    with pytest.raises(TilewrightError, match="gain has two values"):
        load_sizes(out, [{"out": [(0, 9)], "gain": 1}, {"out": [(0, 90)], "gain": 2}])
    with pytest.raises(TilewrightError, match="no size"):
        load_sizes(out, [])


@pytest.mark.parametrize("name", ["stencils", "two_outputs"])
def test_json_and_printed_python_mean_the_same(name, tmp_path):
    algorithm, schedule = task(name).algorithm, planned(name).schedule
    printed_alike(schedule, algorithm, PIPELINES[name], tmp_path)
    cpp = to_cpp(schedule, algorithm)
    assert ".extent() >= 208" in cpp
    assert "at least 208" in cpp


def test_a_variant_is_checked_as_a_schedule_is():
    algorithm, schedule = task("stencils").algorithm, planned("stencils").schedule
    first = schedule.variants[0]

    def problems(variant):
        return [p.message for p in check(replace(schedule, variants=(variant,)), algorithm)]

    assert "has no conditions" in problems(replace(first, sizes=()))[0]
    assert "not an output" in problems(replace(first, sizes=(OutputExtent(0, 0, 9),)))[0]
    assert "nests of" in problems(replace(first, nests=first.nests[1:]))[0]
    stageless = replace(first, nests=tuple(() for _ in first.nests))
    assert "0 nests" in problems(stageless)[0]
    # A variant without the loop at which something is computed.
    host = next(e for e in schedule.funcs if e.compute.kind == "at").compute.func
    place = [e.func for e in schedule.funcs].index(host)
    plain = tuple(
        replace(
            n,
            splits=(),
            loops=tuple(
                replace(loop, name=f"v{i}", mapping="serial") for i, loop in enumerate(n.loops[:2])
            ),
        )
        for n in first.nests[place]
    )
    nests = (*first.nests[:place], plain, *first.nests[place + 1 :])
    assert problems(replace(first, nests=nests))


def test_a_call_runs_the_loops_of_the_first_condition_that_holds():
    algorithm, schedule = task("stencils").algorithm, planned("stencils").schedule
    both = replace(schedule, variants=(schedule.variants[1], schedule.variants[0]))
    assert running_at(schedule, algorithm) != running_at(both, algorithm)
    small = resized(algorithm, {algorithm.outputs[0]: (3, 3)})
    assert running_at(schedule, small) == fallback(schedule)
    assert to_data(fallback(schedule)).keys() == to_data(schedule).keys() - {"variants"}


def test_conditions_imply_others():
    small, large = OutputExtent(1, 0, 8), OutputExtent(1, 0, 64, 2)
    assert implied(small, (large,))
    assert not implied(large, (small,))
    assert merged(small, large) == (large,)
    least, exact = KnownValue(0, "extent", 0, 8, least=True), KnownValue(0, "extent", 0, 9)
    assert implied(least, (exact,))
    assert not implied(exact, (replace(exact, value=10, least=True),))


def test_schedules_of_one_structure_are_aligned():
    one = plan(replace(task("stencils"), smaller=(), exact_sizes=True))[0].schedule
    host = next(e for e in one.funcs if e.compute.kind == "at").compute
    place = [e.func for e in one.funcs].index(host.func)

    def renamed(loop, other):
        text = json.dumps(to_data(one))
        return from_json(text.replace(f'"{loop}"', f'"{other}"'))

    other = renamed(host.loop, "elsewhere")
    assert other != one
    assert aligned(other, one) == one
    assert aligned(one, other) == other
    moved = replace(one.funcs[place - 1], compute=one.funcs[place].compute)
    if moved != one.funcs[place - 1]:
        funcs = (*one.funcs[: place - 1], moved, *one.funcs[place:])
        assert aligned(replace(one, funcs=funcs), one) is None
    assert isinstance(planned("stencils").schedule.variants[0], SizeVariant)


@pytest.mark.parametrize("name", ["stencils", pytest.param("product", marks=pytest.mark.thorough)])
@pytest.mark.thorough
def test_kernels_of_every_size_lower(name, tmp_path):
    gpu, schedule = task(name, "cuda"), planned(name, "cuda").schedule

    def kernels(one):
        text = lowered(
            lambda: to_pipeline(PIPELINES[name]()),
            lambda p: apply(one, gpu.algorithm, p),
            tmp_path / "lowered.stmt",
            gpu.target,
        )
        return text.count("halide_cuda_run(")

    variants = [plain for _, plain in variant_schedules(schedule)]
    assert len(variants) > 1
    assert kernels(schedule) == sum(kernels(plain) for plain in variants)
