"""Estimates: where they come from, and what is said where they do not."""

from __future__ import annotations

import halide as hl
import numpy as np
import pytest
from halide_constructs import define, image, output, x, y

from tilewright.errors import TilewrightError
from tilewright.halide.frontend.estimates import (
    MissingEstimatesError,
    with_estimates,
)
from tilewright.halide.frontend.source import load
from tilewright.halide.ir.algorithm import Span


def parameterised(sized=True):
    im, gain = image(hl.Float(32)), hl.Param(hl.Float(32), "gain")
    radius = hl.Param(hl.Int(32), "radius")
    f = define("f_sized", (x, y), im[x + radius, y] * gain)
    return (output(f, 10, 20) if sized else f), im, gain, radius


def test_everything_missing_is_named_at_once():
    f, *_ = parameterised(sized=False)
    with pytest.raises(MissingEstimatesError) as caught:
        load(f)
    # The input's extents follow from the output's, so they are not asked for.
    assert caught.value.missing == {f.name(): ("x", "y"), "gain": (), "radius": ()}
    assert "estimates={" in str(caught.value)


def test_estimates_can_be_given():
    f, *_ = parameterised(sized=False)
    given = {f.name(): [(0, 8), (1, 4)], "gain": 2, "radius": np.int32(3)}
    algorithm = load(f, estimates=given)
    assert algorithm.by_name[f.name()].estimates == {"x": Span(0, 8), "y": Span(1, 4)}
    assert algorithm.scalars == {"gain": 2.0, "radius": 3}
    (im,) = [p for p in algorithm.parameters if p.is_buffer]
    assert im.estimates == (Span(3, 8), Span(1, 4))


def test_given_estimates_take_precedence():
    f, im, gain, radius = parameterised()
    gain.set_estimate(1.0)
    radius.set_estimate(1)
    im.set_estimates([(0, 50), (0, 60)])
    algorithm = load(f, estimates={"gain": 0.5, "im": [None, (0, 70)]})
    assert algorithm.scalars == {"gain": 0.5, "radius": 1}
    assert algorithm.parameters[1].estimates == (Span(0, 50), Span(0, 70))


def test_a_scalar_is_estimated_by_its_estimate_and_else_by_its_value():
    f, _, gain, radius = parameterised()
    gain.set(3.0)
    gain.set_estimate(0.1)
    radius.set(2)
    algorithm = load(f)
    assert algorithm.scalars["radius"] == 2
    # Exactly the float32 that the pipeline has, not a rounded print of it.
    assert algorithm.scalars["gain"] == float(np.float32(0.1))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (hl.Int(8), -128),
        (hl.UInt(8), 255),
        (hl.Int(16), -32768),
        (hl.UInt(16), 65535),
        (hl.UInt(32), 2**32 - 1),
        (hl.Int(64), -(2**63)),
        (hl.UInt(64), 2**64 - 1),
        (hl.Float(32), 1.0e-30),
        (hl.Float(64), 2.0**-40),
        (hl.Bool(), True),
    ],
)
def test_values_of_every_type_survive(kind, value):
    p = hl.Param(kind, "p")
    p.set(value)
    algorithm = load(output(define("f_typed", x, hl.cast(hl.Float(64), p)), 4))
    expected = float(np.float32(value)) if kind == hl.Float(32) else value
    assert algorithm.scalars == {"p": expected}


def test_estimates_of_inputs_survive_in_bytes():
    im = image(hl.UInt(8))
    im.set_estimates([(0, 30), (5, 40)])
    f = output(define("f_bytes", (x, y), im[x, y + 5]), 3, 3)
    algorithm = load(bytes(hl.serialize_pipeline(hl.Pipeline(f))))
    assert algorithm.parameters[0].estimates == (Span(0, 30), Span(5, 40))


def test_two_inputs_of_one_name_keep_their_estimates_apart():
    # Their reading Funcs get numbered names, which say nothing about whose they are.
    for extent in (30, 31):
        im = image(hl.UInt(8), "same_name")
        im.set_estimates([(0, extent), (0, 40)])
        f = output(define("f_same", (x, y), im[x, y]), 3, 3)
        algorithm = load(bytes(hl.serialize_pipeline(hl.Pipeline(f))))
        assert algorithm.parameters[0].estimates == (Span(0, extent), Span(0, 40))


def test_bounds_stand_in_for_estimates():
    f = define("f_bound", (x, y), x + y)
    f.bound(x, 2, 7)
    f.set_estimate(y, 0, 5)
    algorithm = load(f)
    assert algorithm.by_name[f.name()].estimates == {"x": Span(2, 7), "y": Span(0, 5)}


def test_the_name_without_halides_number_is_understood():
    first, second = (define("f_twice", x, x) for _ in range(2))
    assert first.name() != second.name()
    assert second.name().startswith("f_twice$")
    algorithm = load(second, estimates={"f_twice": [(0, 3)]})
    assert algorithm.by_name[second.name()].estimates == {"x": Span(0, 3)}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nothing": 1}, "the pipeline has no output, input or parameter 'nothing'; it has"),
        ({"f_sized": [(0, 1)]}, "2 pairs"),
        ({"f_sized": 5}, "2 pairs"),
        ({"f_sized": [(0, 0), (0, 1)]}, "must be positive"),
        ({"f_sized": [(0, 2**32), (0, 1)]}, "32 bits"),
        ({"f_sized": [(0, 1.5), (0, 1)]}, "pair"),
        ({"f_sized": ["ab", (0, 1)]}, "pair"),
        ({"gain": "much"}, "number of type float32"),
        ({"radius": 1.5}, "number of type int32"),
        ({"radius": 2**31}, "does not fit"),
        ({"im": [(0, 4)]}, "2 pairs"),
    ],
)
def test_estimates_that_do_not_fit_are_refused(given, message):
    f, _, gain, radius = parameterised()
    gain.set(1.0)
    radius.set(1)
    algorithm = load(f)
    given = {f.name() if name == "f_sized" else name: value for name, value in given.items()}
    with pytest.raises(TilewrightError, match=message):
        with_estimates(algorithm, given)


def test_symbols_say_what_expressions_use():
    im, p = image(hl.UInt(8)), hl.Param(hl.Int(32), "p")
    p.set(4)
    im.set_estimates([(0, 30), (5, 40)])
    algorithm = load(output(define("f_symbols", (x, y), im[x, y] + hl.u8(p)), 3, 3))
    symbols = algorithm.symbols
    assert symbols["p"] == 4
    assert [symbols[f"im.{k}"] for k in ("min.0", "extent.0", "stride.0")] == [0, 30, 1]
    assert [symbols[f"im.{k}"] for k in ("min.1", "extent.1", "stride.1")] == [5, 40, 30]
    out = algorithm.outputs[0]
    assert [symbols[f"{out}.{k}"] for k in ("min.1", "extent.1", "stride.1")] == [0, 3, 3]


def test_a_bound_buffer_is_an_estimate_of_its_size():
    im = image(hl.UInt(8))
    data = hl.Buffer(hl.UInt(8), [30, 40])
    data.set_min([2, 0])
    im.set(data)
    f = output(define("f_with_data", (x, y), im[x + 2, y]), 3, 3)
    assert load(f).parameters[0].estimates == (Span(2, 30), Span(0, 40))
    im.set_estimates([(0, 50), (0, 60)])
    assert load(f).parameters[0].estimates == (Span(0, 50), Span(0, 60))
