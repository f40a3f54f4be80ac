import halide as hl
import pytest

from tilewright.errors import TilewrightError
from tilewright.machines import gpu, gpu_names, limits


@pytest.mark.parametrize(
    ("spelling", "name", "sms"),
    [
        ("h100", "NVIDIA H100 SXM5", 132),
        ("H100", "NVIDIA H100 SXM5", 132),
        ("NVIDIA H100 SXM5", "NVIDIA H100 SXM5", 132),
        ("h200", "NVIDIA H200", 132),
        ("rtx 2080 ti", "NVIDIA GeForce RTX 2080 Ti", 68),
        ("GeForce RTX-2080_Ti", "NVIDIA GeForce RTX 2080 Ti", 68),
        ("RTX 2070", "NVIDIA GeForce RTX 2070", 36),
        ("Tesla K40c", "NVIDIA Tesla K40c", 15),
        ("GTX TITAN", "NVIDIA GeForce GTX TITAN", 14),
        ("V100", "NVIDIA Tesla V100 SXM2", 80),
        ("xavier", "NVIDIA Jetson AGX Xavier", 8),
        ("A100", "NVIDIA A100 SXM4 40GB", 108),
        ("pocl", "PoCL (OpenCL on the CPU)", 2),
    ],
)
def test_lookup(spelling, name, sms):
    machine = gpu(spelling)
    assert (machine.name, machine.sms) == (name, sms)


def test_the_intel_gpu_has_groups_of_512():
    machine = gpu("intel")
    assert machine.api == "opencl"
    assert machine.max_threads_per_block == 512
    assert machine.compute_capability is None


@pytest.mark.parametrize("wrong", ["h1000", "RTX 2080 Tie", "", "zzzz"])
def test_an_unknown_name_is_refused_with_what_is_known(wrong):
    with pytest.raises(TilewrightError, match=r"Known are: .*h100"):
        gpu(wrong)


def test_near_matches_are_named():
    with pytest.raises(TilewrightError, match=r"Did you mean .*rtx2080ti"):
        gpu("RTX 2080 Tie")


def test_an_unknown_capability_is_refused():
    with pytest.raises(TilewrightError, match=r"compute capability 4\.2"):
        limits((4, 2))


@pytest.mark.parametrize("name", gpu_names())
def test_machines_are_consistent(name):
    machine = gpu(name)
    assert machine.max_threads_per_block <= machine.max_threads_per_sm
    assert machine.max_warps_per_sm * machine.warp_size == machine.max_threads_per_sm
    assert machine.shared_per_block <= machine.shared_per_block_optin
    assert (
        machine.shared_per_block_optin + machine.reserved_shared_per_block <= machine.shared_per_sm
    )
    assert machine.registers_per_block <= machine.registers_per_sm


@pytest.mark.parametrize("name", gpu_names())
def test_halide_understands_the_target(name):
    target = hl.Target(gpu(name).halide_target)
    assert target.has_gpu_feature()


@pytest.mark.parametrize(
    ("name", "capability"),
    [("k40c", 35), ("p100", 50), ("xavier", 70), ("a100", 80), ("h100", 86), ("h200", 86)],
)
def test_the_target_has_the_newest_capability_that_halide_knows(name, capability):
    assert gpu(name).halide_target == f"host-cuda-cuda_capability_{capability}"


def test_peak_is_the_vendors_figure():
    assert gpu("a100").peak_flops == pytest.approx(19.5e12, rel=0.01)
    assert gpu("v100").peak_flops == pytest.approx(15.7e12, rel=0.01)
    assert gpu("h100").peak_flops == pytest.approx(66.9e12, rel=0.01)
    assert gpu("pocl").peak_flops is None
