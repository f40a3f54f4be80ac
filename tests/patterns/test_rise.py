"""RISE's kernels: every configuration is a derivation, computes the right numbers, and matters."""

import re
from functools import cache

import numpy as np
import pytest
from test_grid_kernels import simulated

import tilewright.patterns as tp
from tilewright.arith import poly
from tilewright.patterns import opencl
from tilewright.patterns import rewriting as rw
from tilewright.patterns.codegen.gpu import print_grid
from tilewright.patterns.codegen.grid import local_bytes
from tilewright.patterns.rise import (
    RISE_KERNELS,
    RiseObjective,
    launch_of,
    rise_kernel,
    small_kernel,
)
from tilewright.patterns.rise.kernels import LOCAL_BYTES, TOLERANCE
from tilewright.patterns.rise.objective import RiseLaunch
from tilewright.tuning import ConfigurationError, FailedError, tune
from tilewright.tuning.problems import paper_space

SAMPLED = 20
SEED = 0
# A configuration of small sizes that each parameter is changed from, and a launch of few threads.
FEW = {"ls0": 2, "gs0": 4}
FLAT = FEW | {"ls1": 2, "gs1": 4}
BASE = {
    "rise_mm_gpu": {"v3": 4, "v4": 2, "v5": 8, "v6": 8, "v7": 8, "v8": 4} | FLAT,
    "rise_asum_gpu": {"sp0": 2048, "sp1": 256, "stride": 4} | FEW,
    "rise_scal_gpu": {"s0": 128, "s1": 4, "vec": 8} | FLAT,
    "rise_kmeans_gpu": FLAT,
    "rise_harris_gpu": {"tile_x": 8, "tile_y": 6, "vec": 4} | FLAT,
    "rise_stencil_gpu": FLAT,
}


@cache
def small(name):
    kernel = small_kernel(name)
    return kernel, kernel.inputs()


@cache
def sampled(name, count=SAMPLED):
    """Configurations of the published space that fit the small sizes."""
    space = small(name)[0].fitting_space()
    codes = space.sample(np.random.default_rng(SEED), count)
    return [space.decode(code) for code in codes]


@pytest.mark.parametrize("name", RISE_KERNELS)
def test_programs_are_what_numpy_computes(name):
    kernel, arrays = small(name)
    assert kernel.error(arrays, tp.interpret(kernel.program, *arrays)) < 1e-6
    wrong = np.array(tp.interpret(kernel.program, *arrays))
    wrong.flat[-1] += 1
    assert kernel.error(arrays, wrong) > TOLERANCE


@pytest.mark.parametrize("name", RISE_KERNELS)
def test_default_sizes_and_the_experts_configuration_give_kernels(name):
    kernel = rise_kernel(name)
    configurations = [kernel.expert]
    if kernel.space.default():
        configurations.append(kernel.space.default())
    for configuration in configurations:
        _, kernels = kernel.grid(configuration)
        assert kernels[0].launch == launch_of(configuration)
        assert max(map(local_bytes, kernels)) <= LOCAL_BYTES


@pytest.mark.parametrize("name", RISE_KERNELS)
@pytest.mark.few(3)
def test_sampled_configurations_derive_and_mean_the_same(name):
    kernel, arrays = small(name)
    configurations = [BASE[name], *sampled(name)]
    assert len({str(c) for c in configurations}) == SAMPLED + 1
    programs = {}
    for configuration in configurations:
        assert paper_space(name).is_feasible(configuration)
        derivation, launch = kernel.derive(configuration)
        code, kernels = kernel.grid(configuration)
        assert "kernel void" in print_grid(kernels, "opencl", code.reserved)
        alone = configuration.get("sp1") == kernel.sizes[0]  # one thread has all the work
        assert alone or kernels[0].launch == launch
        assert derivation.start is kernel.program
        programs[derivation.program] = str(derivation)
    for program, text in programs.items():
        assert kernel.error(arrays, tp.interpret(program, *arrays)) < 1e-6, text


@pytest.mark.parametrize("name", RISE_KERNELS)
def test_threads_compute_the_right_numbers_without_races(name):
    kernel, arrays = small(name)
    derivation, launch = kernel.derive(BASE[name])
    (result, *_), _, kernels = simulated(derivation.program, arrays, launch)
    shaped = result.reshape(tp.interpret(kernel.program, *arrays).shape)
    assert kernel.error(arrays, shaped) <= TOLERANCE
    assert kernels[0].launch == launch


@pytest.mark.opencl
@pytest.mark.parametrize(
    "name",
    [
        *list(RISE_KERNELS)[::2],
        *(pytest.param(n, marks=pytest.mark.thorough) for n in list(RISE_KERNELS)[1::2]),
    ],
)
@pytest.mark.few(1)
def test_opencl_runs_configurations(name):
    kernel, arrays = small(name)
    for configuration in (BASE[name], sampled(name)[0]):
        compiled = kernel.compile(configuration)
        assert isinstance(compiled, opencl.OpenCLKernel)
        assert kernel.error(arrays, compiled(*arrays)) <= TOLERANCE, configuration


@pytest.mark.parametrize("name", RISE_KERNELS)
def test_every_parameter_matters(name):
    kernel = small(name)[0]
    base = seen(kernel, BASE[name])
    for p in kernel.space.parameters:
        values = p.values if hasattr(p, "values") else range(p.low, p.high + 1)
        others = ({**BASE[name], p.name: v} for v in values if v != BASE[name][p.name])
        allowed = next(c for c in others if kernel.fitting_space().is_feasible(c))
        assert seen(kernel, allowed) != base, p.name


def seen(kernel, configuration):
    """The source and the launches of a configuration."""
    code, kernels = kernel.grid(configuration)
    launches = [(k.grid({}), k.launch.threads) for k in kernels]
    return print_grid(kernels, "opencl", code.reserved), launches


def test_local_and_global_sizes_are_those_of_opencl():
    launch = launch_of({"ls0": 4, "ls1": 2, "gs0": 8, "gs1": 16})
    assert launch == tp.ThreadGrid((poly(2), poly(8), poly(1)), (4, 2, 1))
    assert launch_of(FEW) == tp.ThreadGrid((poly(2), poly(1), poly(1)), (2, 1, 1))


def test_the_product_is_that_of_rise():
    kernel = small("rise_mm_gpu")[0]
    text = kernel.source(BASE["rise_mm_gpu"])
    assert "get_group_id(1); i0 < 2;" in text  # 16 rows in blocks of v5
    assert "get_group_id(0); i1 < 4;" in text  # 32 columns in blocks of v7
    local = {int(size) for size in re.findall(r"local float \w+\[(\d+)\]", text)}
    assert local == {8 * 8, 4 * 8}  # sums: v5 v7; operands of a step: v5 v8 and v7 v8
    assert len(re.findall("local float", text)) == 3
    assert "float acc0[8]" in text  # v4 v3 sums of a thread
    assert "vload4(0, A" in text
    assert "vload4(0, B" in text
    assert "vstore4" in text
    cuda = kernel.source(BASE["rise_mm_gpu"], "cuda")
    assert "__syncthreads()" in cuda


def test_neighbouring_threads_of_the_sum_read_neighbouring_elements():
    kernel = small("rise_asum_gpu")[0]
    # stride = sp0 / sp1: a thread's elements are as far apart as a group has threads
    text = kernel.source({"sp0": 1024, "sp1": 256, "stride": 4} | FEW)
    assert "x[1024 * i0 + i1 + 4 * i2]" in text


def test_vectors_of_scaling_are_loaded_in_pieces():
    kernel = small("rise_scal_gpu")[0]
    for vec, accesses in ((2, 1), (4, 1), (8, 2), (16, 4)):
        text = kernel.source({"s0": 128, "s1": 2, "vec": vec} | FLAT)
        assert text.count(f"= vload{min(vec, 4)}(") == accesses


def test_tiles_of_harris_need_not_divide_the_image():
    kernel, arrays = small("rise_harris_gpu")
    uneven = {**BASE["rise_harris_gpu"], "tile_x": 10, "tile_y": 8, "vec": 2}
    derivation, launch = kernel.derive(uneven)
    assert "round_up_chain2(8, 10)" in str(derivation)
    (result,), _, _ = simulated(derivation.program, arrays, launch)
    assert kernel.error(arrays, result.reshape(12, 16)) <= TOLERANCE


def test_what_does_not_fit_is_refused_with_the_reason():
    kernel = small("rise_mm_gpu")[0]
    large = {**BASE["rise_mm_gpu"], "v5": 32}
    with pytest.raises(tp.RewriteError, match="a multiple of 32"):
        kernel.derive(large)
    with pytest.raises(tp.SizeError, match=r"v5 % v4 == 0"):
        kernel.derive({**BASE["rise_mm_gpu"], "v4": 16})
    with pytest.raises(ConfigurationError):
        kernel.derive({**BASE["rise_mm_gpu"], "v4": 3})
    with pytest.raises(tp.PatternError, match="there are rise_mm_gpu, rise_asum_gpu"):
        rise_kernel("mm")
    with pytest.raises(tp.PatternError, match="has 3 sizes, not 1"):
        rise_kernel("rise_mm_gpu", [8])
    with pytest.raises(tp.PatternError, match="the smallest v5 is 4, the size only 2"):
        rise_kernel("rise_mm_gpu", [2, 8, 8]).fitting_space()


def test_too_much_local_memory_is_refused(monkeypatch):
    monkeypatch.setattr("tilewright.patterns.rise.kernels.LOCAL_BYTES", 500)
    with pytest.raises(tp.LoweringError, match="512 bytes of local memory; there are 500"):
        small("rise_mm_gpu")[0].grid(BASE["rise_mm_gpu"])


@pytest.mark.opencl
def test_the_tuner_measures_kernels():
    kernel = small("rise_kmeans_gpu")[0]
    objective = RiseObjective(kernel)
    assert not objective.is_stand_in
    found = tune(objective, objective.space, budget=1, queue=[BASE[kernel.name]])
    assert found.best is not None
    assert 0 < found.best.value < 10


@pytest.mark.opencl
def test_a_wrong_result_is_found_out():
    kernel = small("rise_stencil_gpu")[0]
    payload = {"kernel": kernel.name, "sizes": kernel.sizes, "target": "opencl"}
    launch = RiseLaunch(payload | {"configuration": BASE[kernel.name]})
    assert launch.verify().ok
    launch._inputs[0][0, 0] += 1  # the kernel keeps its copy
    assert not launch.verify().ok


def test_failures_of_the_objective_have_their_reason():
    objective = RiseObjective(small("rise_mm_gpu")[0])
    with pytest.raises(FailedError, match="a multiple of 32") as raised:
        objective({**BASE["rise_mm_gpu"], "v5": 32})
    assert raised.value.status == "build_failed"


def test_rules_of_the_product_say_why_they_do_not_apply():
    p = small("rise_mm_gpu")[0].program
    levels = [tp.nodes.MapLevel(k, d) for k in ("wrg", "lcl") for d in (1, 0)]
    blocks = rw.derive(p, rw.block_product(8, 8, 4)).program
    with pytest.raises(tp.RewriteError, match="is not run by a work-group as a whole"):
        rw.apply(rw.accumulate_locally(*levels[2:]), blocks)
    groups = rw.derive(blocks, rw.lower_nest(*levels[:2])).program
    with pytest.raises(tp.RewriteError, match="it is not accumulated in local memory"):
        rw.apply(rw.stage_operands(8, 4), groups)
    with pytest.raises(tp.RewriteError, match="only 2 maps are nested in a step"):
        rw.apply(rw.accumulate_locally(*levels[2:], *levels[2:]), groups)
    with pytest.raises(tp.RewriteError, match=r"no thread runs it alone|not two arrays"):
        rw.apply(rw.keep_operands, groups)
