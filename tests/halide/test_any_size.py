"""Schedules are right at every size: compiled once each, run at many sizes."""

import functools
from dataclasses import replace

import halide as hl
import pytest
from any_size_pipelines import PIPELINES
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduled_pipelines import lowered, printed_alike

from tilewright.errors import TilewrightError
from tilewright.halide.emit.apply import apply
from tilewright.halide.emit.printing import to_cpp
from tilewright.halide.execution.at_sizes import AtSizes, payload, resized
from tilewright.halide.execution.inputs import describe_inputs
from tilewright.halide.frontend.live import to_pipeline
from tilewright.halide.ir.json import to_json
from tilewright.halide.ir.nest import exact_size, guarded
from tilewright.halide.ir.schedule import OutputExtent, Split
from tilewright.halide.legality.check import check
from tilewright.halide.legality.overreach import overreaching
from tilewright.halide.legality.sizes import requirements
from tilewright.halide.schedulers.any_size import any_size
from tilewright.halide.schedulers.registry import plan
from tilewright.halide.schedulers.task import make_task
from tilewright.machines import CpuMachine
from tilewright.machines.cpu import Cache

CACHES = (Cache(1, 32 << 10, 64, 1), Cache(2, 512 << 10, 64, 1), Cache(3, 8 << 20, 64, 4))
MACHINE = CpuMachine("test", "x86-64", 4, ("avx2",), 256, CACHES)
LARGEST = 90


@functools.cache
def task(name, exact=False):
    return make_task(PIPELINES[name](), target="host", machine=MACHINE, exact_sizes=exact)


@functools.cache
def scheduled(name, exact=False):
    return plan(task(name, exact))[0].schedule


@functools.cache
def runner(name, exact=False):
    algorithm = task(name).algorithm
    return AtSizes(payload(algorithm, to_json(scheduled(name, exact)), "host", [{}]))


def outcome(name, width, height, channels=3, exact=False):
    algorithm = task(name).algorithm
    extents = {
        output: (width, height, channels)[: len(algorithm.by_name[output].args)]
        for output in algorithm.outputs
    }
    return runner(name, exact).at(describe_inputs(resized(algorithm, extents)))


SIZES = st.one_of(st.integers(1, 20), st.integers(1, LARGEST), st.sampled_from([16, 31, 32, 64]))


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.few(6)
def test_every_size_is_right(name):
    @settings(max_examples=30, deadline=None, derandomize=True)
    @given(SIZES, SIZES, st.integers(1, 4))
    def right(width, height, channels):
        found = outcome(name, width, height, channels)
        # Beyond its first three channels the pipeline itself reads none.
        assert found.status == "ok", found

    right()
    assert requirements(scheduled(name), task(name).algorithm) == ()


def test_exact_sizes_are_not():
    found = [outcome("stencils", n, n, exact=True).status for n in (1, 9, 480)]
    assert found == ["failed", "failed", "ok"]
    asked = requirements(scheduled("stencils", exact=True), task("stencils").algorithm)
    assert {r.axis for r in asked} == {"x", "y"}
    assert all(
        nest.sizes == () for e in scheduled("stencils", exact=True).funcs for nest in e.stages
    )


@pytest.mark.parametrize("name", ["stencils", "pyramid", "transposes", "channels", "product"])
def test_the_estimates_run_the_nest_as_it_is_written(name):
    algorithm = task(name).algorithm
    assert exact_size(scheduled(name)) == scheduled(name, exact=True)
    conditions = {nest.sizes for e in scheduled(name).funcs for nest in e.stages if nest.sizes}
    (conditions,) = conditions
    for condition in conditions:
        if isinstance(condition, OutputExtent):
            func = algorithm.funcs[condition.func]
            extent = func.estimates[func.args[condition.dimension]].extent
            assert 1 < condition.minimum <= extent
            assert extent % condition.multiple == 0


def test_only_what_reads_an_input_openly_is_compiled_twice():
    def twice(name):
        algorithm = task(name).algorithm
        return {
            algorithm.funcs[e.func].name.split("$")[0]
            for e in scheduled(name).funcs
            if any(nest.sizes for nest in e.stages)
        }

    assert twice("bordered_pyramid") == {"out"}
    assert "out" in twice("stencils")
    assert twice("stencils") > {"out"}


def splits_without_sizes(name, func):
    """The tails of the splits of a Func's pure stage, where it is compiled once."""
    algorithm = task(name).algorithm
    (entry,) = (e for e in scheduled(name).funcs if algorithm.funcs[e.func].name == func)
    assert not any(nest.sizes for nest in entry.stages)
    return {split.tail for split in entry.stages[0].splits if isinstance(split, Split)}


def test_funcs_that_no_size_makes_smaller_are_compiled_once():
    names = {func.name for func in task("deep_features").algorithm.funcs}
    (features,) = (name for name in names if name.startswith("features"))
    assert splits_without_sizes("deep_features", features) == {"shift_inwards"}


def test_reach_is_by_dimension():
    x, y = hl.Var("x"), hl.Var("y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    held, out = hl.Func("held"), hl.Func("out")
    held[x, y] = image[hl.clamp(x, image.dim(0).min(), image.dim(0).max()), y]
    out[x, y] = held[x, y] + held[x, hl.clamp(y, 0, 7)]
    out.set_estimates([(0, 64), (0, 64)])
    algorithm = make_task(out).algorithm
    reach = {
        (algorithm.funcs[f].name.split("$")[0], d)
        for f, d in overreaching(algorithm)
        if not algorithm.funcs[f].name.startswith("image")
    }
    assert reach == {("held", 1), ("out", 1)}


@pytest.mark.parametrize("name", ["stencils", "border_of_a_stage", "two_outputs", "channels"])
def test_json_and_printed_python_mean_the_same(name, tmp_path):
    algorithm, schedule = task(name).algorithm, scheduled(name)
    applied = printed_alike(schedule, algorithm, PIPELINES[name], tmp_path)
    assert " else " in applied
    assert ".specialize(" in to_cpp(schedule, algorithm)


@pytest.mark.parametrize("name", ["product", "stencils"])
@pytest.mark.few(1)
def test_kernels_for_small_outputs_lower(name, tmp_path):
    gpu = make_task(PIPELINES[name](), target="cuda", machine="a100")
    schedule = plan(gpu)[0].schedule
    nests = [nest for entry in schedule.funcs for nest in entry.stages if nest.sizes]
    assert nests
    for nest in nests:
        assert {c.tail for c in guarded(nest).splits if isinstance(c, Split)} == {"guard_with_if"}
    counts = []
    for one in (exact_size(schedule), schedule):
        text = lowered(
            lambda: to_pipeline(PIPELINES[name]()),
            lambda p, one=one: apply(one, gpu.algorithm, p),
            tmp_path / "lowered.stmt",
            gpu.target,
        )
        counts.append(text.count("halide_cuda_run("))
    assert counts[1] == counts[0] + len(nests)


def test_conditions_must_be_of_outputs():
    algorithm, schedule = task("stencils").algorithm, scheduled("stencils")
    first = next(i for i, f in enumerate(algorithm.funcs) if f.name not in algorithm.outputs)

    def changed(condition):
        funcs = tuple(
            replace(e, stages=tuple(replace(n, sizes=(condition,)) for n in e.stages))
            for e in schedule.funcs
        )
        return check(replace(schedule, funcs=funcs), algorithm)

    assert "not an output" in changed(OutputExtent(first, 0, 8))[0].message
    assert "no dimension" in changed(OutputExtent(len(algorithm.funcs) - 1, 2, 8))[0].message


def test_a_weaker_condition_than_is_needed_is_a_requirement():
    algorithm, schedule = task("stencils").algorithm, scheduled("stencils")
    out = len(algorithm.funcs) - 1
    weak = (OutputExtent(out, 0, 2), OutputExtent(out, 1, 2))
    funcs = tuple(
        replace(e, stages=tuple(replace(n, sizes=weak if n.sizes else ()) for n in e.stages))
        for e in schedule.funcs
    )
    found = requirements(replace(schedule, funcs=funcs), algorithm)
    assert found
    assert {r.func for r in found} == {out}
    assert any_size(replace(schedule, funcs=funcs), algorithm) == schedule


def test_the_sentence_names_axis_reason_and_cure():
    asked = requirements(scheduled("stencils", exact=True), task("stencils").algorithm)
    said = str(next(r for r in asked if r.on == "output"))
    assert said.startswith("Output out must be at least")
    assert " in x (" in said or " in y (" in said
    assert "without exact sizes" in said
    with pytest.raises(TilewrightError):
        make_task(PIPELINES["stencils"](), target="nonsense", exact_sizes=True)
