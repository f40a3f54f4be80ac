"""Operands of reductions that are copied to registers four elements at a time."""

import functools
import re
from collections import Counter
from dataclasses import replace

import halide as hl
import numpy as np
import pytest
from scheduled_pipelines import lowered

from tilewright.halide.emit.apply import apply, halide_target
from tilewright.halide.emit.printing import to_cpp, to_python
from tilewright.halide.execution.cuda_kernels import device_code
from tilewright.halide.frontend.given import read_schedule
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.json import from_json, to_json
from tilewright.halide.ir.schedule import KnownValue, OutputExtent, ScheduleError
from tilewright.halide.ir.variants import conditions_text, holds
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.nest_costs import kernels_of
from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu
from tilewright.halide.schedulers.any_size import any_size
from tilewright.halide.schedulers.prediction import schedule_nest
from tilewright.halide.schedulers.task import Task
from tilewright.machines import gpu

FLOAT = hl.Float(32)
SIZE = 512


def product(width=SIZE, height=SIZE, depth=SIZE, start=0, of=FLOAT):
    """A matrix product, with its inputs, whose columns begin at `start`."""
    a, b = hl.ImageParam(of, 2, "a"), hl.ImageParam(of, 2, "b")
    x, y = hl.vars("x y")
    k = hl.RDom([(0, depth)], "k")
    total, out = hl.Func("total"), hl.Func("out")
    total[x, y] = hl.cast(of, 0)
    total[x, y] += a[x, k] * b[k, y]
    out[x, y] = total[x, y]
    a.set_estimates([(start, width), (0, depth)])
    b.set_estimates([(0, depth), (0, height)])
    out.set_estimates([(start, width), (0, height)])
    return hl.Pipeline(out), a, b


def window():
    """A sum over neighbours: the coordinate is that of the result plus that of the reduction."""
    image = hl.ImageParam(hl.Float(32), 2, "a")
    weights = hl.ImageParam(hl.Float(32), 2, "b")
    x, y = hl.vars("x y")
    k = hl.RDom([(0, 8), (0, 8)], "k")
    total, out = hl.Func("total"), hl.Func("out")
    total[x, y] = hl.f32(0)
    total[x, y] += image[x + k.x, y + k.y] * weights[k.x, k.y]
    out[x, y] = total[x, y]
    image.set_estimates([(0, 264), (0, 264)])
    weights.set_estimates([(0, 8), (0, 8)])
    out.set_estimates([(0, 256), (0, 256)])
    return hl.Pipeline(out)


def planned(pipeline, machine="a100"):
    """The pipeline's data and its schedule, right at every size."""
    algorithm = load(pipeline)
    (found,) = schedule_gpu(algorithm, gpu(machine))
    return algorithm, any_size(found.schedule, algorithm)


def vectors(algorithm, schedule):
    """The names of the images whose copies in registers load vectors."""
    return sorted(
        algorithm.funcs[entry.func].name[0]
        for entry in schedule.funcs
        for nest in entry.stages
        if entry.memory == "register" and any(loop.mapping == "vectorized" for loop in nest.loops)
    )


def without_sizes(entry):
    return replace(entry, stages=tuple(replace(nest, sizes=()) for nest in entry.stages))


def conditions(schedule):
    return {known for entry in schedule.funcs for nest in entry.stages for known in nest.specialize}


def loaded(algorithm, schedule):
    """How often the PTX has each kind of load from memory."""
    pipeline = hl.deserialize_pipeline(algorithm.serialized)
    apply(schedule, algorithm, pipeline, same_bytes=True)
    ptx, _ = device_code(pipeline, halide_target("host-cuda-cuda_capability_80"))
    return Counter(re.findall(r"ld\.global\S*", ptx))


class Planned:
    """The product, planned when a test first asks for it."""

    @functools.cached_property
    def both(self):
        return planned(product()[0])

    algorithm = property(lambda self: self.both[0])
    schedule = property(lambda self: self.both[1])


PRODUCT = Planned()


def test_operands_are_loaded_four_at_a_time():
    assert vectors(PRODUCT.algorithm, PRODUCT.schedule) == ["a", "b"]
    assert not check(PRODUCT.schedule, PRODUCT.algorithm)
    a, b = (i for i, p in enumerate(PRODUCT.algorithm.parameters) if p.is_buffer)
    out = len(PRODUCT.algorithm.funcs) - 1
    assert conditions(PRODUCT.schedule) >= {
        *(KnownValue(image, "min", 0, 4, multiple=True) for image in (a, b)),
        *(KnownValue(image, "stride", 1, 4, multiple=True) for image in (a, b)),
        OutputExtent(out, 0, 1, 4, 4),
    }
    assert all(holds(known, PRODUCT.algorithm) for known in conditions(PRODUCT.schedule))
    assert any(".v4" in kind for kind in loaded(PRODUCT.algorithm, PRODUCT.schedule))


def test_without_the_conditions_they_are_loaded_one_by_one():
    plain = from_json(to_json(PRODUCT.schedule), PRODUCT.algorithm)
    bare = to_json(plain).replace('"multiple": true', '"least": true')
    assert not any(".v4" in kind for kind in loaded(PRODUCT.algorithm, from_json(bare)))


@pytest.mark.parametrize(
    ("pipeline", "expected"),
    [
        (product(width=510)[0], ["b"]),  # rows of a do not begin at multiples of 16 bytes
        (product(start=2)[0], ["b"]),
        (product(of=hl.Float(64))[0], []),
        (product(of=hl.UInt(16))[0], []),
        (product(depth=510)[0], ["a"]),
        (window(), ["b"]),  # the weights are aligned
    ],
)
@pytest.mark.few(3)
def test_operands_that_are_not_aligned_are_loaded_one_by_one(pipeline, expected):
    algorithm, schedule = planned(pipeline)
    found = vectors(algorithm, schedule)
    assert set(found) <= set(expected)
    if not found:
        assert not any(k.multiple for k in conditions(schedule) if isinstance(k, KnownValue))
    assert not check(schedule, algorithm)


@pytest.mark.opencl
@pytest.mark.parametrize(
    ("width", "height", "start"),
    [(256, 64, 0), (128, 96, 4), (130, 70, 1), (66, 64, 2), (5, 3, 0)],
)
@pytest.mark.few(2)
def test_right_where_vectors_are_aligned_and_elsewhere(width, height, start):
    depth = 64
    pipeline, a, b = product(depth=depth)
    algorithm, schedule = planned(product(depth=depth)[0])
    assert vectors(algorithm, schedule) == ["a", "b"]
    schedule = replace(schedule, target="host-opencl")
    apply(schedule, algorithm, pipeline)
    random = np.random.default_rng(width)
    left = random.random((depth, width), dtype=np.float32)
    right = random.random((height, depth), dtype=np.float32)
    for image, array, begin in ((a, left, start), (b, right, 0)):
        buffer = hl.Buffer(array)
        buffer.set_min([begin, 0])
        buffer.set_host_dirty(True)
        image.set(buffer)
    result = hl.Buffer(hl.Float(32), [width, height])
    result.set_min([start, 0])
    pipeline.realize(result, halide_target("opencl"))
    result.copy_to_host()
    np.testing.assert_allclose(np.asarray(result), right @ left, rtol=1e-4)


def test_conditions_are_kept_as_text_and_read_from_pipelines():
    assert from_json(to_json(PRODUCT.schedule), PRODUCT.algorithm) == PRODUCT.schedule
    broken = to_json(PRODUCT.schedule).replace('"value": 4', '"value": 0')
    with pytest.raises(ScheduleError, match="multiple of 0"):
        from_json(broken, PRODUCT.algorithm)
    bare = replace(PRODUCT.schedule, funcs=tuple(map(without_sizes, PRODUCT.schedule.funcs)))
    pipeline = hl.deserialize_pipeline(PRODUCT.algorithm.serialized)
    apply(bare, PRODUCT.algorithm, pipeline, same_bytes=True)
    given = read_schedule(bytes(hl.serialize_pipeline(pipeline)), PRODUCT.schedule.target)
    assert conditions(given.schedule) == conditions(PRODUCT.schedule)
    words = conditions_text(
        tuple(sorted(conditions(PRODUCT.schedule), key=repr)), PRODUCT.algorithm
    )
    assert "a stride 1 a multiple of 4" in words
    assert "starting at a multiple of 4" in words


def test_printed_code_lowers_to_the_same(tmp_path):
    space: dict = {}
    exec(to_python(PRODUCT.schedule, PRODUCT.algorithm), space)
    path = tmp_path / "stmt"
    target = PRODUCT.schedule.target
    live = lowered(
        lambda: product()[0], lambda p: apply(PRODUCT.schedule, PRODUCT.algorithm, p), path, target
    )
    again = lowered(lambda: product()[0], space["schedule"], path, target)
    assert re.findall(r"% 4\) == 0", live)
    assert re.findall(r"for\w* \(", again) == re.findall(r"for\w* \(", live)
    assert 'known(param.at("a").at(0), ".stride.1", 4, false, true)' in to_cpp(
        PRODUCT.schedule, PRODUCT.algorithm
    )


def test_a_vector_is_one_access():
    machine = gpu("a100")
    nest = schedule_nest(
        Task(PRODUCT.algorithm, machine.halide_target, machine, "test"), PRODUCT.schedule
    )
    (kernel,), _ = kernels_of(nest, machine, GpuConstants())
    loads = [a for stage in kernel.stages for a in stage.accesses if not a.store]
    entries = {PRODUCT.algorithm.funcs[e.func].name[0]: e for e in PRODUCT.schedule.funcs}
    (reduction,) = (e for e in PRODUCT.schedule.funcs if len(e.stages) > 1)
    steps = next(s.factor for s in reduction.stages[1].splits)
    out = entries["o"].stages[0]
    each = {s.old[:2]: s.factor for s in out.splits if s.inner.endswith("_r")}
    sums = SIZE / steps
    # Per thread and step of the serial loop: rows of a, each of one or two vectors.
    expected = sorted([sums * steps * each["v0"] / 4, sums * steps * each["v1"] / 4])
    assert sorted(load.count for load in loads) == pytest.approx(expected)
