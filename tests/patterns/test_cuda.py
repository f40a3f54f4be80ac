"""Programs run through the CUDA driver, here one that simulates a GPU."""

import gc

import numpy as np
import pytest
from simulated_cuda import SimulatedDriver
from test_host_files import PROGRAMS

import tilewright.patterns as tp
from tilewright.patterns import cuda
from tilewright.patterns.compiling import grid_code
from tilewright.patterns.nvrtc import CudaBinary


@pytest.fixture
def simulated(monkeypatch):
    """Return a function that puts a simulated GPU in the place of the driver's."""

    def use(kernels, known, gpus=1):
        made = SimulatedDriver({k.name: k for k in kernels}, known, gpus)
        monkeypatch.setattr(cuda, "driver", lambda: cuda.CudaDriver(made))
        compiled = []

        def compile_cuda(source, architecture):
            compiled.append((source, architecture))
            return CudaBinary(b"machine code", ())

        monkeypatch.setattr(cuda, "compile_cuda", compile_cuda)
        return made, compiled

    return use


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run_on_a_gpu(simulated, name):
    program, known, _ = PROGRAMS[name]
    _, kernels = grid_code(program, "kernel", None)
    gpu, compiled = simulated(kernels, known)
    kernel = tp.compile(program, "cuda")
    assert compiled == [(tp.source(program, "cuda"), "sm_90")]
    inputs = tp.random_inputs(program, known)
    for _ in range(2):
        assert tp.relative_error(kernel(*inputs), tp.interpret(program, *inputs)) < 1e-6
    assert [name for name, _ in gpu.launches] == 2 * [k.name for k in kernels]
    gc.collect()
    assert not gpu.memory  # all of it is freed


def test_a_driver_that_fails_is_said(simulated, monkeypatch):
    program, known, _ = PROGRAMS["tiled"]
    gpu, _ = simulated((), known, gpus=0)
    with pytest.raises(tp.CompileError, match="finds no GPU"):
        tp.compile(program, "cuda")
    gpu, _ = simulated(grid_code(program, "kernel", None)[1], known)
    monkeypatch.setattr(gpu, "cuMemAlloc_v2", lambda pointer, size: 2)
    with pytest.raises(tp.CompileError, match="cuMemAlloc_v2 fails: out of memory"):
        tp.compile(program, "cuda")(np.ones((8, 16)))


def test_without_a_driver_the_cure_is_named(monkeypatch):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", missing)
    cuda.driver.cache_clear()
    with pytest.raises(tp.CompileError, match=r"no CUDA driver .*source\(program, 'cuda'\)"):
        tp.compile(PROGRAMS["tiled"][0], "cuda")
    cuda.driver.cache_clear()
