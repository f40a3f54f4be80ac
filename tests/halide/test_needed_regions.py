"""Region propagation: what computing some Funcs needs, by hand on a blur of a blur."""

import halide as hl
import pytest

from tilewright.halide.analysis.bounds import Interval
from tilewright.halide.analysis.inlining import View
from tilewright.halide.analysis.summaries import Analysis, estimated_boxes
from tilewright.halide.frontend.source import load


@pytest.fixture
def analysis():
    """Every step reads points of the one before; the first a sum that starts at 0."""
    x = hl.Var("x")
    image = hl.ImageParam(hl.Float(32), 1, "image")
    k = hl.RDom([(0, 4)], "k")
    first, second, third = hl.Func("first"), hl.Func("second"), hl.Func("third")
    first[x] = image[x]
    first[k.x] += 1.0
    second[x] = first[x] + first[x + 2]
    third[x] = second[x] + second[x + 2]
    third.set_estimates([(10, 100)])
    algorithm = load(third)
    view = View(algorithm)
    return Analysis(view, estimated_boxes(view), algorithm.symbols)


def names(analysis):
    return {func.name.split("$")[0]: func.name for func in analysis.view.funcs}


def shown(found):
    """Boxes by bare name, as pairs of ends."""
    return {
        name.split("$")[0]: tuple((float(part.lo), float(part.hi)) for part in box)
        for name, box in found.items()
    }


def test_everything_at_root(analysis):
    found = shown(analysis.regions)
    assert (found["third"], found["second"]) == (((10, 109),), ((10, 111),))
    # The update of the first writes its points 0 to 3 too.
    assert found["first"] == found["image"] == ((0, 113),)


def test_a_tile_of_some_members(analysis):
    by = names(analysis)
    tile = {by["third"]: (Interval(20.0, 27.0),)}
    found = shown(analysis.needed(tile, [by["second"], by["third"]]))
    assert found == {"third": ((20, 27),), "second": ((20, 29),), "first": ((20, 31),)}


def test_regions_computed_exactly_as_wanted(analysis):
    by = names(analysis)
    wanted = {by["first"]: (Interval(20.0, 27.0),)}
    grown = shown(analysis.needed(wanted, [by["first"]]))
    exact = shown(analysis.needed(wanted, [by["first"]], exact=(by["first"],)))
    assert (grown["first"], exact["first"]) == (((0, 27),), ((20, 27),))


def test_reads_that_do_not_count(analysis):
    by = names(analysis)
    tile = {by["third"]: (Interval(20.0, 27.0),)}
    members = [by["first"], by["second"], by["third"]]
    found = analysis.needed(tile, members, counts=lambda reader, callee: reader == by["third"])
    assert shown(found).keys() == {"third", "second"}


def test_values_that_are_not_needed_have_no_box(analysis):
    by = names(analysis)
    tile = {by["second"]: (Interval(0.0, 1.0),)}
    assert by["third"] not in analysis.needed(tile, [by["second"], by["third"]])


def test_inlining_at_once_is_inlining_one_by_one(analysis):
    by = names(analysis)
    once = analysis.with_inlined(frozenset((by["second"],)))
    step = analysis.toggled(by["second"])
    assert by["second"] not in names(once).values()
    assert once.summaries(by["third"]) == step.summaries(by["third"])
    assert shown(once.regions) == shown(step.regions)
    assert analysis.summaries(by["third"]) != once.summaries(by["third"])


def test_summaries_are_shared_where_symbols_have_the_same_values():
    x = hl.Var("x")
    image = hl.ImageParam(hl.Float(32), 1, "image")
    shift, gain = hl.Param(hl.Int(32), "shift"), hl.Param(hl.Float(32), "gain")
    out = hl.Func("out")
    out[x] = image[x + shift] * gain
    out.set_estimates([(0, 10)])
    image.set_estimates([(0, 100)])
    algorithm = load(out, estimates={"shift": 3, "gain": 2.0})
    view = View(algorithm)

    def summary(**values):
        symbols = {**algorithm.symbols, **values}
        return Analysis(view, estimated_boxes(view), symbols).summaries(algorithm.outputs[0])[0]

    assert summary() is summary()
    assert summary() is summary(other=1)  # which no expression of the stage uses
    near, far = summary(shift=3), summary(shift=60)
    assert [a.forms[0][0][1] for a in (near.accesses[0], far.accesses[0])] == [3, 60]
