import subprocess

import halide as hl
import pytest

from tilewright.halide.emit.apply import halide_target
from tilewright.halide.execution.cuda_kernels import (
    KernelResources,
    assembled,
    device_code,
    entries,
    kernel_resources,
    launches,
    parse_ptxas,
)

TARGET = "host-cuda-cuda_capability_80"

OUTPUT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_kernel_a' for 'sm_80'
ptxas info    : Function properties for _kernel_a
    48 bytes stack frame, 44 bytes spill stores, 60 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 440 bytes cmem[0]
ptxas info    : Compiling entry function '_kernel_b' for 'sm_80'
ptxas info    : Function properties for _kernel_b
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 17 registers, 380 bytes cmem[0]
"""


def stencil():
    """A kernel that keeps 10 x 10 values of 2 bytes in shared memory."""
    x, y, xi, yi = (hl.Var(name) for name in ("x", "y", "xi", "yi"))
    image = hl.ImageParam(hl.UInt(16), 2, "image")
    inner, outer = hl.Func("inner"), hl.Func("outer")
    inner[x, y] = image[x, y] * 3
    outer[x, y] = inner[x, y] + inner[x + 2, y + 2]
    outer.gpu_tile(x, y, xi, yi, 8, 8, hl.TailStrategy.RoundUp)
    inner.compute_at(outer, x).gpu_threads(x, y)
    return hl.Pipeline(outer)


def test_registers_and_spills_are_read_from_what_ptxas_says():
    assert parse_ptxas(OUTPUT) == [
        KernelResources("_kernel_a", registers=64, spill_bytes=104, local_bytes=48),
        KernelResources("_kernel_b", registers=17, spill_bytes=0, local_bytes=0),
    ]


def test_threads_and_shared_memory_are_those_of_the_launch():
    ptx, statement = device_code(stencil(), halide_target(TARGET))
    (kernel,) = launches(statement)
    assert entries(ptx) == [kernel.name]
    assert kernel.threads == (10, 10, 1)
    assert kernel.shared_bytes == 200


@pytest.mark.parametrize(
    ("sizes", "threads", "shared"),
    [
        ("t1 + 1, 2, 1, 32, 4, 1, 0 + (2660*4)", (32, 4, 1), 10640),
        ("f(1, (2)), 2, 1, max(t1, 4), 4, 1, 0", (None, 4, 1), 0),
        ("1, 1, 1, 8, 1, 1, t3*4", (8, 1, 1), None),
    ],
)
def test_sizes_that_depend_on_arguments_are_unknown(sizes, threads, shared):
    text = f'let r = halide_cuda_run(cuda[0], "_kernel_k", {sizes}, (void *)make_struct(1))'
    (kernel,) = launches(text)
    assert kernel == KernelResources("_kernel_k", threads=threads, shared_bytes=shared)


def test_every_kernel_is_reported_and_registers_where_ptxas_is_found(tmp_path, monkeypatch):
    ptxas = tmp_path / "ptxas"
    ptxas.write_text(
        "#!/bin/sh\n"
        'for last; do :; done; name=$(grep -o "entry [a-z_0-9]*" "$last" | cut -d" " -f2)\n'
        "echo \"Compiling entry function '$name' for 'sm_80'\" >&2\n"
        'echo "$*" | grep -q maxrregcount=96 && echo "Used 33 registers" >&2\n'
    )
    ptxas.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("HL_CUDA_JIT_MAX_REGISTERS", "96")
    (kernel,) = kernel_resources(stencil(), halide_target(TARGET))
    assert kernel["registers"] == 33
    assert kernel["spill_bytes"] is None
    assert kernel["shared_bytes"] == 200


def test_a_ptxas_that_refuses_the_code_says_nothing(tmp_path):
    ptxas = tmp_path / "ptxas"
    ptxas.write_text("#!/bin/sh\nexit 1\n")
    ptxas.chmod(0o755)
    assert assembled(".version 7.0", str(ptxas), "sm_80", 64) == []
    assert assembled(".version 7.0", str(tmp_path / "missing"), "sm_80", 64) == []


def test_a_ptxas_that_takes_longer_than_it_may_says_nothing(monkeypatch):
    given = []

    def run(*_args, timeout, **_rest):
        given.append(timeout)
        raise subprocess.TimeoutExpired("ptxas", timeout)

    monkeypatch.setattr(subprocess, "run", run)
    assert assembled(".version 7.0", "ptxas", "sm_80", 64, seconds=7.0) == []
    assert given == [7.0]
