"""A pipeline that arrives scheduled is read as if nothing had been scheduled."""

import halide as hl
import numpy as np
import pytest
from halide_constructs import CONSTRUCTS, pipeline
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_schedules import schedules
from schedule_cases import all_cases
from scheduled_pipelines import PIPELINES, imported, reference, run, with_image

import tilewright
from tilewright.errors import TilewrightError
from tilewright.halide.emit.apply import apply
from tilewright.halide.frontend.importer import import_pipeline
from tilewright.halide.frontend.serial.reader import read
from tilewright.halide.frontend.serial.reset import without_schedule
from tilewright.halide.frontend.serial.writer import write
from tilewright.halide.frontend.source import ScheduledError, load
from tilewright.halide.ir.schedule import ScheduleError

ALGORITHMS = {name: imported(build()) for name, build in PIPELINES.items()}
# rfactor changes the algorithm, so a schedule with it cannot be read back or dropped.
CASES = {name: case for name, case in all_cases().items() if name != "partial_results"}
x, y = hl.Var("x"), hl.Var("y")


def serialized(thing):
    return bytes(hl.serialize_pipeline(thing))


@pytest.mark.parametrize("name", CONSTRUCTS)
@pytest.mark.few(30)
def test_rewritten_pipelines_equal_those_read(name):
    before = serialized(pipeline(name))
    after = write(read(before, "Pipeline"))
    assert import_pipeline(after).digest == import_pipeline(before).digest
    read_by_halide = [serialized(hl.deserialize_pipeline(data, {})) for data in (before, after)]
    assert read_by_halide[0] == read_by_halide[1]


@pytest.mark.parametrize("name", CASES)
def test_a_schedule_of_every_kind_is_dropped(name):
    algorithm, schedule = CASES[name]
    live = hl.deserialize_pipeline(algorithm.serialized, {})
    apply(schedule, algorithm, live, same_bytes=True)
    reset = import_pipeline(without_schedule(serialized(live)))
    assert reset.digest == algorithm.digest
    assert reset.wrappers == ()
    assert not any(func.scheduled for func in reset.funcs)


@pytest.mark.parametrize("name", PIPELINES)
@settings(
    deadline=None,
    max_examples=3,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
@pytest.mark.few(2)
def test_a_reset_pipeline_computes_what_the_original_does(name, data):
    algorithm = ALGORITHMS[name]
    scheduled, _ = with_image(algorithm)
    apply(data.draw(schedules(algorithm)), algorithm, scheduled, same_bytes=True)
    reset = import_pipeline(without_schedule(serialized(scheduled)))
    assert reset.digest == algorithm.digest
    found = run(with_image(reset)[0], reset, [33, 17, 3])
    for got, expected in zip(found, reference(algorithm, [33, 17, 3]), strict=True):
        np.testing.assert_array_equal(got, expected)


def everything():
    """Two Funcs with what `schedule_everything` can use, estimates and a bound."""
    image = hl.ImageParam(hl.UInt(8), 2, "image_d")
    wide, total, out = hl.Func("wide_d"), hl.Func("total_d"), hl.Func("out_d")
    r = hl.RDom([(0, 8), (0, 3)], "r")
    wide[x, y] = hl.cast(hl.Int(32), image[x, y])
    total[x, y] = 0
    total[x, y] += wide[x + r.x, y + r.y]
    out[x, y] = total[x, y] + total[x, y + 1] + wide[x, y]
    out.bound(x, 0, 64).set_estimates([(0, 64), (0, 32)])
    return image, wide, total, out, r


def schedule_everything(image, wide, total, out, r):
    xi, u, both = hl.Var("xi"), hl.Var("u"), hl.Var("both")
    ro, ri = hl.RVar("ro"), hl.RVar("ri")
    out.split(x, x, xi, 16, hl.TailStrategy.RoundUp).vectorize(xi).rename(y, u)
    out.specialize(image.width() > 100).parallel(u)
    out.prefetch(image, u, u, 2).always_partition([x])
    wide.compute_at(out, u).store_root().fold_storage(y, 8).align_bounds(x, 8)
    wide.in_(total).compute_at(out, x).reorder_storage(y, x)
    total.update().split(r.x, ro, ri, 4).unroll(ri).reorder(ro, x).atomic()
    total.compute_at(out, u).hoist_storage_root().store_in(hl.MemoryType.Stack)
    total.fuse(x, y, both).vectorize(both, 4).align_storage(x, 16)


def test_every_directive_is_dropped_and_what_is_promised_kept():
    plain = everything()[3]
    parts = everything()
    schedule_everything(*parts)
    out = parts[3]
    with pytest.raises(ScheduledError, match="discard_schedule=True"):
        load(out)
    algorithm = load(out, discard_schedule=True)
    expected = load(plain)
    assert algorithm.digest == expected.digest
    assert algorithm.parameters == expected.parameters
    ours, theirs = (a.by_name[a.outputs[0]] for a in (algorithm, expected))
    assert (ours.estimates, ours.bounds) == (theirs.estimates, theirs.bounds)
    assert tilewright.schedule(out, discard_schedule=True).schedule.algorithm == expected.digest


def test_an_rfactor_stays_and_computes_the_same():
    pixels = np.arange(80 * 60, dtype=np.uint8).reshape(60, 80)  # a Buffer keeps no array alive

    def build(scheduled):
        image, _, total, out, r = everything()
        u, ro, ri = hl.Var("u"), hl.RVar("ro"), hl.RVar("ri")
        total.update().split(r.x, ro, ri, 4)
        parts = total.update().rfactor(ro, u)
        if scheduled:
            parts.compute_at(out, y).update().parallel(u).reorder(u, x)
            total.compute_root().update().vectorize(x, 4)
        image.set(hl.Buffer(pixels))
        return image, out

    (_, plain), (image, out) = build(False), build(True)
    reset = without_schedule(serialized(hl.Pipeline(out)))
    assert not any(func.scheduled for func in import_pipeline(reset).funcs)
    rebuilt = hl.deserialize_pipeline(reset, {"image_d": image.parameter()})
    expected = hl.Buffer(hl.Int(32), [64, 32])
    plain.realize(expected)
    got = hl.Buffer(hl.Int(32), [64, 32])
    rebuilt.realize(got)
    np.testing.assert_array_equal(np.array(got), np.array(expected))


def test_a_clone_with_a_definition_of_its_own_stays():
    _, _, total, out, r = everything()
    clone = total.clone_in(out)
    clone.update().rfactor(r.x, hl.Var("u"))
    algorithm = load(out, discard_schedule=True)
    assert [link.wrapper for link in algorithm.wrappers] == [clone.name()]


def test_memoised_and_extern_funcs_go_to_the_root():
    _, wide, total, out, _ = everything()
    wide.compute_at(out, y).memoize()
    total.compute_at(out, y)
    reset = without_schedule(serialized(hl.Pipeline(out)))
    algorithm = import_pipeline(reset)
    assert [func.memoized for func in algorithm.funcs if func.name == wide.name()] == [True]
    root = read(reset, "Pipeline")
    levels = {f.name: f.func_schedule.compute_level.var_name for f in root.funcs}
    assert levels[wide.name()] == "__root"
    assert levels[total.name()] == ""


def test_an_output_whose_size_only_the_schedule_asked_for_is_an_output_again():
    out = everything()[3]
    result = tilewright.schedule(out, check=False)
    assert any(nest.sizes for entry in result.schedule.funcs for nest in entry.stages)
    result.apply(out)
    again = load(out, discard_schedule=True)
    assert again.digest == result.task.algorithm.digest
    assert again.by_name[out.name()].strides == result.task.algorithm.by_name[out.name()].strides
    hl.deserialize_pipeline(again.serialized, {})
    with pytest.raises(ScheduleError, match="this pipeline already has a schedule"):
        result.apply(out)


def test_a_schedule_is_kept_or_discarded_but_not_both():
    with pytest.raises(TilewrightError, match="one of the two"):
        load(everything()[3], keep_schedule=True, discard_schedule=True)


def test_a_second_apply_is_an_error_that_says_so():
    out = everything()[3]
    result = tilewright.schedule(out)
    result.apply(out)
    with pytest.raises(ScheduleError, match="this pipeline already has a schedule"):
        result.apply(out)
    other = everything()
    other[3][x, y] += 1
    with pytest.raises(ScheduleError, match="another computation"):
        result.apply(other[3])
