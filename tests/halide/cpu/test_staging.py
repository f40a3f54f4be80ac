"""Reductions that are computed in the registers of a wrapper."""

import halide as hl
import pytest
from answers import assert_right

from tilewright.halide.frontend.source import load
from tilewright.halide.ir.schedule import Clone, Factored
from tilewright.halide.schedulers.analytic.cpu.scheduler import schedule_cpu
from tilewright.machines import CpuMachine

MACHINE = CpuMachine("test", "x86-64", 4, ("avx2",), 256, ())


def filtered(width=200, height=90, readers="stencil"):
    """Eight 5 x 5 filters of an image, read in one way or another."""
    image = hl.ImageParam(hl.Float(32), 2, "image")
    filters = hl.ImageParam(hl.Float(32), 3, "filters")
    x, y, k = hl.vars("x y k")
    taps = hl.RDom([(0, 5), (0, 5)], "taps")
    responses, out = hl.Func("responses"), hl.Func("out")
    responses[x, y, k] = 0.0
    responses[x, y, k] += image[x + taps.x, y + taps.y] * filters[taps.x, taps.y, k]
    output = out
    if readers == "stencil":
        out[x, y, k] = responses[x, y, k] + responses[x + 1, y, k] + responses[x, y + 1, k]
    elif readers == "point":
        out[x, y, k] = hl.max(responses[x, y, k], 0.0)
    else:
        output = responses
    for arg, extent in zip(output.args(), (width, height, 8), strict=True):
        output.set_estimate(arg, 0, extent)
    for image_of, extents in ((image, (width + 5, height + 5)), (filters, (5, 5, 8))):
        for d, extent in enumerate(extents):
            image_of.dim(d).set_estimate(0, extent)
    return hl.Pipeline(output)


def scheduled(pipeline):
    algorithm = load(pipeline)
    return algorithm, schedule_cpu(algorithm, MACHINE)[0].schedule


def test_a_reduction_read_by_a_stencil_accumulates_in_a_wrapper():
    algorithm, schedule = scheduled(filtered())
    # Halide numbers names that are used before.
    place = {func.name.partition("$")[0]: i for i, func in enumerate(algorithm.funcs)}
    (wrapper,) = schedule.clones
    assert wrapper.wrapper
    assert (wrapper.func, wrapper.readers) == (place["responses"], (place["out"],))
    # The wrapper comes right after the Func it wraps, which is computed in its innermost block.
    entries = {entry.func: entry for entry in schedule.funcs}
    level = entries[place["responses"]].compute
    assert (level.kind, level.func) == ("at", place["responses"] + 1)
    assert entries[place["responses"] + 1].compute.kind != "inline"


def test_a_reduction_taken_by_a_reader_is_not_wrapped():
    _, schedule = scheduled(filtered(readers="point"))
    assert schedule.clones == ()


def test_an_output_accumulates_in_a_wrapper_of_its_partial_results():
    algorithm, schedule = scheduled(filtered(readers="none"))
    place = algorithm.order[algorithm.outputs[0]]
    whole, wrapper = schedule.clones
    assert whole == Factored(place, 1, ())  # one partial result per result
    assert wrapper == Clone(len(algorithm.funcs), (place,), wrapper=True)
    entries = {entry.func: entry for entry in schedule.funcs}
    # The partial results come first, then their wrapper, then the output.
    level = entries[place].compute
    assert (level.kind, level.func) == ("at", place + 1)


@pytest.mark.parametrize(
    ("readers", "guarded"),
    [
        ("stencil", True),
        ("none", False),
        pytest.param("stencil", False, marks=pytest.mark.thorough),
        pytest.param("none", True, marks=pytest.mark.thorough),
    ],
)
@pytest.mark.few(1)
def test_a_wrapped_reduction_gives_the_right_answer(readers, guarded):
    # Neither extent is a multiple of a block.
    height = 13 if readers == "stencil" else 93
    algorithm, schedule = scheduled(filtered(width=75, height=height, readers=readers))
    assert schedule.clones
    assert_right(algorithm, schedule, guarded)
