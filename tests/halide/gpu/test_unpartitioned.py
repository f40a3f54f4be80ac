"""Loops in kernels are not partitioned."""

import halide as hl
import pytest
from gpu_pipelines import full, khwz, matmul, pyramid

from tilewright.halide.emit.apply import apply
from tilewright.halide.emit.directives import directives
from tilewright.halide.execution.binding import deserialize
from tilewright.halide.execution.session import make_inputs
from tilewright.halide.frontend.source import load
from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu
from tilewright.machines import gpu

GPU = gpu("a100")


def with_host_loops():
    """A recursive filter along both dimensions: its last update runs on the host."""
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    r = hl.RDom([(1, 1000), (1, 1000)], "r")
    first, last = hl.Func("first"), hl.Func("last")
    first[x, y] = image[x, y] * 2.0
    first[r.x, r.y] = first[r.x - 1, r.y - 1] * first[r.x, r.y - 1] + first[r.x - 1, r.y]
    last[x, y] = first[x, y] + 1.0
    last.set_estimates([(0, 1001), (0, 1001)])
    return load(last)


@pytest.mark.parametrize("objective", ["time", "sioutas"])
@pytest.mark.parametrize("build", [khwz, matmul, pyramid])
def test_no_loop_of_a_kernel_is_partitioned(build, objective):
    (planned,) = schedule_gpu(build(), GPU, objective=objective)
    loops = [
        loop for entry in planned.schedule.funcs for nest in entry.stages for loop in nest.loops
    ]
    assert any(loop.mapping == "gpu_thread" for loop in loops)
    assert {loop.partition for loop in loops} == {"never"}


def test_loops_on_the_host_are_left_to_halide():
    algorithm = with_host_loops()
    (planned,) = schedule_gpu(algorithm, GPU)
    place = algorithm.order[full(algorithm, "first")]
    (entry,) = (entry for entry in planned.schedule.funcs if entry.func == place)
    kernel, host = entry.stages
    assert {loop.partition for loop in kernel.loops} == {"never"}
    assert not any(loop.mapping.startswith("gpu_") for loop in host.loops)
    assert not any(loop.partition == "never" for loop in host.loops)


def test_one_call_says_so_for_all_loops_of_a_stage():
    algorithm = khwz()
    (planned,) = schedule_gpu(algorithm, GPU)
    methods = [each.method for each in directives(planned.schedule, algorithm)]
    assert "never_partition_all" in methods
    assert "partition" not in methods
    live = deserialize(algorithm.serialized, make_inputs(algorithm))
    apply(planned.schedule, algorithm, live.pipeline, same_bytes=True)
