"""The extents of inputs, from those of the outputs."""

from __future__ import annotations

import halide as hl
import pytest
from halide_constructs import define, image, output, pipeline, x, y

from tilewright.halide.execution.binding import halide_type
from tilewright.halide.frontend.estimates import MissingEstimatesError
from tilewright.halide.frontend.extents import metadata_used
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.algorithm import Span


def extents(thing, **options):
    algorithm = load(thing, **options)
    return {p.name: p.estimates for p in algorithm.parameters if p.is_buffer}


AFFINE = [
    "stencil",
    "diamond",
    "reduction",
    "inline_sum",
    "inline_argmin",
    "two_scans",
    "predicated_reduction",
    "several_outputs",
    "factored_reduction",
    "no_dimensions",
    "negative_origin",
    "wrapped_twice",
]


@pytest.mark.parametrize("name", AFFINE)
def test_they_are_what_halide_infers(name):
    built = pipeline(name)
    algorithm = load(built)
    buffers = []
    for output_name in algorithm.outputs:
        func = algorithm.by_name[output_name]
        spans = [func.estimates[arg] for arg in func.args]
        for kind in func.types:
            buffer = hl.Buffer(halide_type(kind), [span.extent for span in spans])
            if spans:
                buffer.set_min([span.min for span in spans])
            buffers.append(buffer)
    _, parameters = hl.serialize_pipeline(built, get_params=True)
    built.infer_input_bounds(buffers if len(buffers) > 1 else buffers[0])
    inferred = parameters["im"].buffer()
    found = tuple(
        Span(inferred.dim(d).min(), inferred.dim(d).extent()) for d in range(inferred.dimensions())
    )
    assert algorithm.parameters[0].estimates == found


@pytest.mark.parametrize("condition", ["repeat_edge", "constant_exterior", "mirror_interior"])
def test_an_input_with_a_border_starts_at_zero_and_covers_what_is_asked(condition):
    im = image(hl.UInt(8))
    more = [0] if condition == "constant_exterior" else []
    bounded = getattr(hl.BoundaryConditions, condition)(im, *more)
    f = output(define("f_border", (x, y), bounded[x - 1, y] + bounded[x + 1, y]), 100, 50)
    assert extents(f)["im"] == (Span(0, 101), Span(0, 50))


@pytest.mark.parametrize("condition", ["repeat_image", "mirror_image"])
def test_an_input_that_repeats_is_as_large_as_the_output(condition):
    im = image(hl.UInt(8))
    bounded = getattr(hl.BoundaryConditions, condition)(im)
    f = output(define("f_repeat", (x, y), bounded[x - 1, y]), 100, 50)
    assert extents(f)["im"] == (Span(0, 100), Span(0, 50))


def test_a_narrow_index_bounds_a_table():
    assert extents(pipeline("lookup_table"))["lut"] == (Span(0, 256),)


def test_a_table_without_a_bound_is_asked_for():
    im, table = image(hl.Int(32)), image(hl.Int(32), "table", 1)
    f = output(define("f_table", (x, y), table[im[x, y]]), 4, 4)
    with pytest.raises(MissingEstimatesError) as caught:
        load(f)
    assert caught.value.missing == {"table": ("0",)}
    assert extents(f, estimates={"table": [(0, 9)]})["table"] == (Span(0, 9),)


def test_inputs_of_an_extern_stage_are_assumed_as_large_as_its_output():
    assert extents(pipeline("extern_stage"))["im"] == (Span(0, 4), Span(0, 3))


def test_fixed_bounds_of_an_input_are_its_estimate():
    assert extents(pipeline("interleaved"))["im"] == (Span(0, 6), Span(0, 4), Span(0, 3))


def test_metadata_is_found_where_the_computation_uses_it():
    used = metadata_used(load(pipeline("repeat_edge")))
    assert used == {"im.min.0", "im.extent.0", "im.min.1", "im.extent.1"}
    assert metadata_used(load(pipeline("requirement"))) == frozenset()
    assert metadata_used(load(pipeline("scalars"))) == frozenset()
