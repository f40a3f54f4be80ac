from collections import Counter

import pytest
from patience import PATIENT
from test_scheduler import SMALL_GPU, example

from tilewright.halide.execution.launches import (
    Launched,
    kernel_of,
    parse,
    seconds_by_group,
    traces,
)
from tilewright.halide.execution.session import Session, Variant
from tilewright.halide.ir.plan import GroupReport
from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu

PRINTED = """\
Entering Pipeline out
    Time: 6.319000e-03 ms
CL: halide_opencl_run (user_context: 0x0, entry: _kernel_f_1_s0_y_y_block_id_y, blocks: 3x2x1, \
threads: 40x32x1, shmem: 9296
    clCreateKernel _kernel_f_1_s0_y_y_block_id_y ->     Time: 1.0e-02 ms
    clEnqueueNDRangeKernel 3x3x1, 40x32x1 -> CL_SUCCESS
    Time: 3.5e-01 ms
CL: halide_opencl_device_sync (user_context: 0x0)
    Time: 9.0 ms
CUDA: halide_cuda_run (user_context: 0x0, entry: _kernel_f_1_s1_y, blocks: 7x1x1, threads: \
32x1x1, shmem: 0
Got context.
    Time: 2.0 ms
CUDA: halide_cuda_run succeeds!
    Time: 5.0 ms
"""


def test_output_of_the_runtime_is_read():
    assert parse(PRINTED.splitlines()) == [
        Launched("_kernel_f_1_s0_y_y_block_id_y", (3, 2, 1), (40, 32, 1), 9296, 0.35e-3),
        Launched("_kernel_f_1_s1_y", (7, 1, 1), (32, 1, 1), 0, 2e-3),
    ]


def test_a_time_on_a_clock_that_was_set_back_does_not_count():
    lines = PRINTED.replace("Time: 2.0 ms", "Time: -8.1e+02 ms").splitlines()
    assert [launch.seconds for launch in parse(lines)] == [0.35e-3, None]


def test_launches_belong_to_groups_by_name():
    found = parse(PRINTED.splitlines())
    first, second = GroupReport(("f$1",), "f$1", 0), GroupReport(("f$1",), "f$1", 1)
    other = GroupReport(("f",), "f", 0)
    assert kernel_of(first, found) == found[:1]
    assert seconds_by_group([first, second, other], found) == (0.35e-3, 2e-3, None)


def test_a_kernel_is_found_by_a_numbered_name():
    launch = Launched("_kernel_histogram__3_s0_y_block_id_y", (1, 1, 1), (1, 1, 1), 0, 1.0)
    assert kernel_of(GroupReport(("histogram$3",), "histogram$3", 0), [launch]) == [launch]
    assert kernel_of(GroupReport(("histogram",), "histogram", 0), [launch]) == []


@pytest.mark.opencl
@pytest.mark.thorough
def test_a_schedule_launches_what_the_model_says():
    algorithm = example("bilateral_grid")
    (planned,) = schedule_gpu(algorithm, SMALL_GPU)
    target = planned.schedule.target
    with Session(algorithm, targets=[target], limits=PATIENT) as session:
        variant = Variant(planned.schedule, target=target, name="it")
        ((launches, failure),) = traces(session, [variant])
    assert failure == ""
    predicted = Counter((g.blocks, g.threads, g.shared_bytes) for g in planned.groups if g.threads)
    assert Counter((x.blocks, x.threads, x.shared_bytes) for x in launches) == predicted
    # A launch whose samples all fell on a clock that was set back has no time.
    times = [x.seconds for x in launches if x.seconds is not None]
    assert len(times) >= len(launches) - 1
    assert all(seconds > 0 for seconds in times)
    by_group = seconds_by_group([g for g in planned.groups if g.threads], launches)
    assert sum(seconds is None for seconds in by_group) == len(launches) - len(times)
