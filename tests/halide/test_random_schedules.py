"""Random legal schedules: they apply, survive JSON, print to the same code, compute the same."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_schedules import schedules
from scheduled_pipelines import PIPELINES, imported, lowered, reference, run, with_image

from tilewright.halide.emit.apply import apply
from tilewright.halide.emit.printing import to_python
from tilewright.halide.ir.json import from_json, to_json
from tilewright.halide.legality.check import check
from tilewright.halide.legality.sizes import requirements

ALGORITHMS = {name: imported(build()) for name, build in PIPELINES.items()}
QUIET = settings(
    deadline=None,
    max_examples=2,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def printed(schedule, algorithm):
    space: dict = {}
    exec(to_python(schedule, algorithm), space)
    return space["schedule"]


@pytest.mark.parametrize("target", ["host", pytest.param("opencl", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("name", PIPELINES)
@QUIET
@given(data=st.data())
@pytest.mark.few(2)
def test_printed_python_lowers_to_the_same_code(name, target, data, tmp_path):
    algorithm = ALGORITHMS[name]
    schedule = data.draw(schedules(algorithm, target))
    assert check(schedule, algorithm) == []
    assert from_json(to_json(schedule), algorithm) == schedule
    path = tmp_path / "lowered"
    applied = lowered(
        algorithm, lambda p: apply(schedule, algorithm, p, same_bytes=True), path, target
    )
    assert lowered(algorithm, printed(schedule, algorithm), path, target) == applied


@pytest.mark.parametrize("name", PIPELINES)
@settings(QUIET, max_examples=3)
@given(data=st.data(), width=st.integers(1, 40), height=st.integers(1, 30))
@pytest.mark.few(2)
def test_a_schedule_computes_the_same_at_odd_and_small_sizes(name, data, width, height):
    algorithm = ALGORITHMS[name]
    schedule = data.draw(schedules(algorithm))
    extents = [width, height, 3]
    for need in requirements(schedule, algorithm):
        if need.on == "output":
            at_least = max(extents[need.dimension], need.minimum)
            extents[need.dimension] = -(-at_least // need.multiple) * need.multiple
    pipeline, _image = with_image(algorithm)
    apply(schedule, algorithm, pipeline, same_bytes=True)
    scheduled = run(pipeline, algorithm, extents)
    for got, expected in zip(scheduled, reference(algorithm, extents), strict=True):
        np.testing.assert_array_equal(got, expected)
