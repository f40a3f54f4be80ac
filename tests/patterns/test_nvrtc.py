"""CUDA compiled in this process: machine code, what kernels need, and errors."""

import pytest

import tilewright.patterns as tp
from tilewright.patterns import programs
from tilewright.patterns import rewriting as rw
from tilewright.patterns.nvrtc import compile_cuda, library


def installed():
    try:
        library()
    except tp.CompileError:
        return False
    return True


needs_nvrtc = pytest.mark.skipif(not installed(), reason="no NVRTC: the extra cuda-static has it")


@needs_nvrtc
def test_kernels_become_machine_code():
    chosen = rw.ExplorationSettings(tiles=(4, 8), families=("tiling",), limit=40)
    found = rw.explore(programs.STENCILS["jacobi5"].build(32, 64), chosen)
    staged = next(d.program for d in found if "to_local" in str(d.program))
    binary = compile_cuda(tp.source(staged, "cuda"))
    assert binary.cubin[:4] == b"\x7fELF"
    (use,) = binary.kernels
    assert use.name == "kernel_0"
    assert use.shared_bytes == tp.features.features(staged)[0].local_memory
    assert 0 < use.registers <= 255
    assert use.spill_bytes == 0


@needs_nvrtc
def test_what_nvrtc_refuses_is_said():
    with pytest.raises(tp.CompileError, match='identifier "missing" is undefined'):
        compile_cuda('extern "C" __global__ void f(float *a) { *a = missing; }')


def test_without_nvrtc_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.metadata.files", lambda name: None)
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    library.cache_clear()
    with pytest.raises(tp.CompileError, match="cuda-static"):
        library()
    library.cache_clear()
