"""Code compiled for known sizes of inputs: chosen, applied, printed, and right at other sizes."""

import re
import subprocess
import warnings
from pathlib import Path

import halide as hl
import numpy as np
import pytest
from scheduled_pipelines import imported, lower, lowered

from tilewright.halide.emit.apply import apply
from tilewright.halide.emit.printing import to_cpp, to_python
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.json import from_json, to_json
from tilewright.halide.ir.schedule import KnownValue
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.analytic.cpu.scheduler import schedule_cpu
from tilewright.machines import detect_cpu


def filtered():
    """A filter whose length is an input's, over every so-many-th value."""
    values = hl.ImageParam(hl.Float(32), 2, "values")
    taps = hl.ImageParam(hl.Float(32), 1, "taps")
    step = hl.Param(hl.Int(32), "step", 2)
    x, y = hl.vars("x y")
    r = hl.RDom([(0, taps.width())], "r")
    out = hl.Func("filtered")
    out[x, y] = hl.f32(0)
    out[x, y] += taps[r.x] * values[x * step + r.x, y]
    values.set_estimates([(0, 516), (0, 64)])
    taps.set_estimates([(0, 5)])
    step.set_estimate(2)
    out.set_estimates([(0, 256), (0, 64)])
    return hl.Pipeline(out), {"values": values, "taps": taps, "step": step}


ALGORITHM = load(filtered()[0])
SCHEDULE = schedule_cpu(ALGORITHM, detect_cpu())[0].schedule


def run(pipeline, params, taps, step):
    rng = np.random.default_rng(taps)
    values = rng.random((64, 600), dtype=np.float32)
    weights = rng.random(taps, dtype=np.float32)
    params["values"].set(hl.Buffer(values))
    params["taps"].set(hl.Buffer(weights))
    params["step"].set(step)
    found = np.asarray(pipeline.realize([100, 64]))
    expected = sum(
        w * values[:, i : i + 99 * step + 1 : step].astype(np.float64)
        for i, w in enumerate(weights)
    )
    return found, expected


def conditions(schedule):
    return {known for f in schedule.funcs for stage in f.stages for known in stage.specialize}


def test_the_scheduler_specialises_on_short_filters_and_steps():
    position = {p.name: i for i, p in enumerate(ALGORITHM.parameters)}
    assert conditions(SCHEDULE) == {
        KnownValue(position["taps"], "extent", 0, 5),
        KnownValue(position["step"], "value", 0, 2),
    }
    assert check(SCHEDULE, ALGORITHM) == []
    assert from_json(to_json(SCHEDULE), ALGORITHM) == SCHEDULE


@pytest.mark.parametrize(("taps", "step"), [(5, 2), (5, 3), (1, 2), (7, 1)])
@pytest.mark.few(2)
def test_it_is_right_at_the_known_sizes_and_at_others(taps, step):
    pipeline, params = filtered()
    apply(SCHEDULE, ALGORITHM, pipeline)
    found, expected = run(pipeline, params, taps, step)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def outline(text):
    """The loops in order, without what Halide numbers.

    Halide itself does not simplify indices in the same way every time it lowers code that is
    specialised for the step of a load.
    """
    found = re.findall(r"(\w*for\w*) \((\S+),", text)
    return [tuple(re.sub(r"[$_]*\d+", "", name) for name in loop) for loop in found]


def test_printed_code_lowers_to_the_same(tmp_path):
    space: dict = {}
    exec(to_python(SCHEDULE, ALGORITHM), space)
    path = tmp_path / "stmt"
    live = lowered(lambda: filtered()[0], lambda p: apply(SCHEDULE, ALGORITHM, p), path)
    again = lowered(lambda: filtered()[0], space["schedule"], path)
    assert outline(again) == outline(live)
    assert re.search(r"taps\.extent\.0 == 5", live)


CPP = """
#include "printed.h"
int main() {
    std::map<std::string, Halide::Parameter> params = {
        {"values", Halide::Parameter(Halide::Float(32), true, 2, "values")},
        {"taps", Halide::Parameter(Halide::Float(32), true, 1, "taps")},
        {"step", Halide::Parameter(Halide::Int(32), false, 0, "step")}};
    Halide::Pipeline pipeline = Halide::deserialize_pipeline("p.hlpipe", params);
    schedule(pipeline);
    pipeline.compile_to_lowered_stmt("cpp.stmt", pipeline.infer_arguments(), Halide::Text,
                                     Halide::Target("host-no_runtime"));
}
"""


@pytest.mark.thorough
def test_printed_cpp_lowers_to_the_same(tmp_path):
    (tmp_path / "p.hlpipe").write_bytes(ALGORITHM.serialized)
    (tmp_path / "printed.h").write_text(to_cpp(SCHEDULE, ALGORITHM))
    (tmp_path / "main.cpp").write_text(CPP)
    wheel = Path(hl.__file__).parent
    library = wheel / "lib64"
    options = f"-std=c++17 -O0 -Wall -Werror main.cpp -o main -L{library} -lHalide"
    paths = [f"-isystem{wheel / 'include'}", f"-Wl,-rpath,{library}"]
    subprocess.run(["g++", *options.split(), *paths], cwd=tmp_path, check=True)
    subprocess.run(["./main"], cwd=tmp_path, check=True)
    params = {
        "values": hl.ImageParam(hl.Float(32), 2, "values"),
        "taps": hl.ImageParam(hl.Float(32), 1, "taps"),
        "step": hl.Param(hl.Int(32), "step"),
    }
    inner = {name: param.parameter() for name, param in params.items()}
    pipeline = hl.deserialize_pipeline(ALGORITHM.serialized, inner)
    apply(SCHEDULE, ALGORITHM, pipeline, same_bytes=True)
    lower(pipeline, tmp_path / "python.stmt")
    cpp, python = ((tmp_path / f"{kind}.stmt").read_text() for kind in ("cpp", "python"))
    assert "taps.extent.0 == 5" in cpp
    assert outline(cpp) == outline(python)


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        (KnownValue(9, "extent", 0, 5), "no parameter 9"),
        (KnownValue(0, "value", 0, 5), "is an input"),
        (KnownValue(0, "extent", 7, 5), "has no dimension 7"),
    ],
)
def test_conditions_that_make_no_sense_are_refused(known, reason):
    from dataclasses import replace

    index = next(i for i, p in enumerate(ALGORITHM.parameters) if p.is_buffer)
    known = replace(known, parameter=index) if known.parameter == 0 else known
    func = next(f for f in SCHEDULE.funcs if f.stages)
    broken = replace(func, stages=(replace(func.stages[0], specialize=(known,)), *func.stages[1:]))
    funcs = tuple(broken if f is func else f for f in SCHEDULE.funcs)
    found = check(replace(SCHEDULE, funcs=funcs), ALGORITHM)
    assert any(reason in str(problem) for problem in found)


def test_nothing_is_known_where_every_size_is_in_the_program():
    x, y = hl.vars("x y")
    source = hl.ImageParam(hl.Float(32), 2, "source")
    r = hl.RDom([(0, 3)])
    out = hl.Func("out")
    out[x, y] = hl.sum(source[x + r.x, y])
    out.set_estimates([(0, 64), (0, 64)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        algorithm = imported(hl.Pipeline(out))
    schedule = schedule_cpu(algorithm, detect_cpu())[0].schedule
    assert conditions(schedule) == set()


def scaled():
    """A gain for each channel, from an input whose first dimension has a single element."""
    values = hl.ImageParam(hl.Float(32), 2, "values")
    gains = hl.ImageParam(hl.Float(32), 2, "gains")
    c, x = hl.vars("c x")
    out = hl.Func("scaled")
    out[c, x] = gains[0, c] * values[c, x]
    values.set_estimates([(0, 64), (0, 512)])
    gains.set_estimates([(0, 1), (0, 64)])
    out.set_estimates([(0, 64), (0, 512)])
    return hl.Pipeline(out), {"values": values, "gains": gains}


@pytest.mark.parametrize("sets", [1, 3])
def test_a_dimension_after_one_of_a_single_element_is_known_to_be_dense(sets, tmp_path):
    algorithm = load(scaled()[0])
    schedule = schedule_cpu(algorithm, detect_cpu())[0].schedule
    place = next(i for i, p in enumerate(algorithm.parameters) if p.name == "gains")
    assert conditions(schedule) == {KnownValue(place, "stride", 1, 1)}
    path = tmp_path / "stmt"
    live = lowered(lambda: scaled()[0], lambda p: apply(schedule, algorithm, p), path)
    assert "gains.stride.1 == 1" in live
    pipeline, params = scaled()
    apply(schedule, algorithm, pipeline)
    rng = np.random.default_rng(sets)
    values = rng.random((512, 64), dtype=np.float32)
    gains = rng.random((64, sets), dtype=np.float32)
    params["values"].set(hl.Buffer(values))
    params["gains"].set(hl.Buffer(gains))
    found = np.asarray(pipeline.realize([64, 512]))
    np.testing.assert_allclose(found, values * gains[:, 0], rtol=1e-6)
