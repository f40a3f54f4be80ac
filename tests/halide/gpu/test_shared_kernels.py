"""Kernels, launches and times that a GPU search keeps are those it would compute again."""

from dataclasses import replace

import numpy as np
import pytest
from gpu_pipelines import analysed, full, matmul, pyramid

from tilewright.halide.schedulers.analytic.gpu.group_times import GroupTimes
from tilewright.halide.schedulers.analytic.gpu.grouping_search import GroupingSearch
from tilewright.halide.schedulers.analytic.gpu.kernel import FusedKernel
from tilewright.halide.schedulers.analytic.gpu.launch import predicted_launch
from tilewright.halide.schedulers.analytic.gpu.nest_costs import KnownTimes, times_of
from tilewright.halide.schedulers.analytic.gpu.plan import Options
from tilewright.halide.schedulers.analytic.grouping import Group
from tilewright.machines import gpu

GPU = gpu("v100")
PIPELINES = {"pyramid": pyramid, "product": matmul}


@pytest.fixture(params=sorted(PIPELINES))
def search(request):
    return GroupingSearch(analysed(PIPELINES[request.param]()), GPU, frozenset())


def test_costs_are_those_of_a_kernel_made_for_one_group(search):
    groups = search.groups(Options())
    for group in groups:
        for stage in search.view.stages(group.output):
            kernel = search.kernels.kernel(group, stage.index)
            fresh = FusedKernel(search.analysis, group.output, stage.index, group.members)
            assert kernel.members == fresh.members
            assert kernel.extents == fresh.extents
            tiles = search.kernels.tilings(kernel, "powers")
            costs = search.kernels.costs(kernel)
            np.testing.assert_array_equal(
                costs.total(True), search.model.costs(fresh, tiles).total(True)
            )


def test_a_stage_that_reads_no_member_has_one_kernel_in_all_groups():
    algorithm = matmul()
    search = GroupingSearch(analysed(algorithm), GPU, frozenset())
    name, out = full(algorithm, "prod"), full(algorithm, "out")
    alone = search.kernels.kernel(Group((name,)), 0)
    assert search.kernels.kernel(Group((name,)), 0) is alone
    assert search.kernels.kernel(Group((name,)), 1) is not alone
    together = search.kernels.kernel(Group((name, out)), 0)
    assert together.members == (name,)
    assert search.kernels.kernel(Group((out,)), 0) is not together


def test_a_block_fits_if_its_launch_does(search):
    for group in search.groups(Options()):
        plan = search.final_plan(group, Options())
        for kernel in plan.kernels:
            for _ in range(2):
                assert search.kernels.fits(kernel, any_size=False)
            launch = predicted_launch(kernel)
            assert launch.shared_bytes <= GPU.shared_per_block


def test_too_large_a_block_does_not_fit_however_often_one_asks(search):
    (kernel, *_) = search.final_plan(search.groups(Options())[-1], Options()).kernels
    large = replace(kernel, tile=(64,) * len(kernel.tile), registers=(1,) * len(kernel.tile))
    for _ in range(2):
        assert not search.kernels.fits(large, any_size=False)


def test_known_times_do_not_change_the_times(search):
    times = GroupTimes(search)
    timed = [each for each in times.timed((g, Options()) for g in search.groups(Options())) if each]
    parts = [part for each in timed for part in each.parts]
    known: KnownTimes = {}
    first = times_of(parts, GPU, search.model.constants, known)
    # The last part alone finds less of its data in L2 than after the others.
    alone = times_of(parts[-1:], GPU, search.model.constants, known)
    assert first == times_of(parts, GPU, search.model.constants)
    assert alone == times_of(parts[-1:], GPU, search.model.constants)
    assert first == times_of(parts, GPU, search.model.constants, known)
