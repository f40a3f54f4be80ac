"""Operands of reductions that are copied to registers before they are used."""

import halide as hl
import pytest
from gpu_pipelines import analysed, full

from tilewright.halide.execution.lowering import refusal
from tilewright.halide.frontend.source import load
from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
from tilewright.halide.schedulers.analytic.gpu.group_times import GroupTimes
from tilewright.halide.schedulers.analytic.gpu.grouping_search import GroupingSearch
from tilewright.halide.schedulers.analytic.gpu.inline import choose_inlined
from tilewright.halide.schedulers.analytic.gpu.nest_costs import kernels_of
from tilewright.halide.schedulers.analytic.gpu.plan import Options
from tilewright.halide.schedulers.analytic.gpu.scheduler import schedule_gpu
from tilewright.halide.schedulers.analytic.grouping import Group
from tilewright.halide.schedulers.prediction import schedule_nest
from tilewright.halide.schedulers.task import Task
from tilewright.machines import gpu

SIZE = 512


def product(*, shared: bool = False, depth: int = SIZE, size: int = SIZE):
    """A matrix product; if `shared`, its result is divided by an operand."""
    a, b = (hl.ImageParam(hl.Float(32), 2, name) for name in "ab")
    x, y = hl.vars("x y")
    k = hl.RDom([(0, depth)], "k")
    total, out = hl.Func("total"), hl.Func("out")
    total[x, y] = 0.0
    total[x, y] += a[x, k] * b[k, y]
    out[x, y] = total[x, y] / a[x, y] if shared else total[x, y]
    for image in (a, b):
        image.set_estimates([(0, size), (0, size)])
    out.set_estimates([(0, size), (0, size)])
    return load(hl.Pipeline(out))


def copied(algorithm, machine="a100"):
    """The schedule for a GPU, and the entries of the images that it computes in registers."""
    (planned,) = schedule_gpu(algorithm, gpu(machine))
    named = [(algorithm.funcs[e.func].name.split("_")[0], e) for e in planned.schedule.funcs]
    return planned.schedule, {n: e for n, e in named if n in "ab" and e.memory == "register"}


def reduction(schedule, algorithm):
    """The entry of the sum."""
    updated = (e for e in schedule.funcs if len(algorithm.funcs[e.func].stages) > 1)
    return next(updated)


def test_operands_of_a_product_are_copied_for_several_steps():
    algorithm = product()
    schedule, images = copied(algorithm)
    total = reduction(schedule, algorithm)
    (split,) = total.stages[1].splits
    assert split.old == "r0"
    assert SIZE % split.factor == 0
    assert sorted(images) == ["a", "b"]
    for entry in images.values():
        assert (entry.compute.func, entry.compute.loop) == (total.func, split.outer)
    assert not refusal(schedule, algorithm)


def test_a_copy_is_loaded_where_its_reader_is():
    algorithm = product()
    schedule, images = copied(algorithm)
    assert images
    machine = gpu("a100")
    nest = schedule_nest(Task(algorithm, machine.halide_target, machine, "test"), schedule)
    (kernel,), _ = kernels_of(nest, machine, GpuConstants())
    loads = [a for stage in kernel.stages for a in stage.accesses if not a.store]
    x, y, _ = kernel.block
    rows = min(y, max(machine.warp_size // x, 1))
    # All threads along x load the same of b: about a sector for each of the warp's rows.
    assert rows <= min(load.touched.sectors for load in loads) < 1.2 * rows


def test_fewer_sums_are_tried_with_more_steps():
    # The search begins with 32 sums per thread, which leave no registers for copies.
    algorithm = product(size=2048, depth=2048)
    schedule, images = copied(algorithm, "h100")
    assert sorted(images) == ["a", "b"]
    assert not refusal(schedule, algorithm)


@pytest.mark.parametrize(
    ("left", "right", "held"),
    [
        # The sums add up 8 terms; the operands of one are 4 numbers of each matrix. Along `k`, a
        # vector holds 4 terms: the mean of 4 and 8 counts.
        (lambda a, x, k: a[x, k], lambda b, y, k: b[y, k], 4 + 4),
        (lambda a, x, k: a[x, k], lambda b, y, k: b[k, y], 4 + 4 * 6),
        (lambda a, x, k: a[k, x], lambda b, y, k: b[k, y], 4 * 6 + 4 * 6),
    ],
)
def test_vectors_along_a_reduction_hold_several_terms(left, right, held):
    a, b = (hl.ImageParam(hl.Float(32), 2, name) for name in "ab")
    x, y = hl.vars("x y")
    k = hl.RDom([(0, SIZE)], "k")
    total, out = hl.Func("total"), hl.Func("out")
    total[x, y] = 0.0
    total[x, y] += left(a, x, k) * right(b, y, k)
    out[x, y] = total[x, y]
    out.set_estimates([(0, SIZE), (0, SIZE)])
    algorithm = load(out)
    machine = gpu("a100")
    base = analysed(algorithm, specialize=True)
    inlined = choose_inlined(base, load_weight=1.0, cache_bytes=machine.l2_bytes)
    search = GroupingSearch(base, machine, inlined)
    group = Group((full(algorithm, "total"), full(algorithm, "out")))
    found = [
        GroupTimes(search).timed([(group, Options(points=(4, 4), steps=steps))])[0]
        for steps in (1, 8)
    ]
    plain, stepped = (max(s.held for p in each.parts for s in p.stages) for each in found)
    assert plain == 0.0
    assert stepped == held
    assert found[1].registers > found[0].registers or held < 28


def test_steps_divide_the_reduction():
    algorithm = product(depth=509)  # a prime
    schedule, _ = copied(algorithm)
    assert not reduction(schedule, algorithm).stages[1].splits


def test_an_image_that_others_read_is_not_copied():
    _, images = copied(product(shared=True))
    assert "a" not in images
