"""The CUDA variants: compiled where there is a compiler, and run on the CPU, slowly and exactly."""

import ctypes
import subprocess

import numpy as np
import pytest

from tilewright.prediction.data.work import error_of
from tilewright.prediction.errors import PredictionError
from tilewright.prediction.kernels import cuda, kernel, native

NAMES = ("matmul", "matvec", "convolution", "pooling")
# A block's threads are threads, and what they share is static; blocks run one after the other.
BEFORE = """
#include <algorithm>
#include <barrier>
#include <cstddef>
#include <cstring>
#include <thread>
#include <vector>
using std::max;
using std::min;
struct Place { int x, y; };
static thread_local Place threadIdx, blockIdx;
static std::barrier<> *together;
static void __syncthreads() { together->arrive_and_wait(); }
static double block[1 << 14];
#define __global__ static
"""
AFTER = """
template <typename F> static void each(int gx, int gy, int bx, int by, F f) {
  for (int i = 0; i < gx * gy; ++i) {
    std::barrier<> barrier(bx * by);
    together = &barrier;
    std::vector<std::thread> threads;
    for (int t = 0; t < bx * by; ++t)
      threads.emplace_back([=, &barrier] {
        threadIdx = {t % bx, t / bx};
        blockIdx = {i % gx, i / gx};
        f();
        barrier.arrive_and_drop();
      });
    for (auto &thread : threads) thread.join();
  }
}
#define IF(f, ...) \\
  if (!strcmp(name, #f)) return each(gx, gy, bx, by, [=] { f(__VA_ARGS__); });
#define THREE(f) IF(f, I(0), I(1), I(2), D(3), D(4), D(5))
#define TWO(f) IF(f, I(0), I(1), D(2), D(3), D(4))
#define POOL(f) IF(f, I(0), I(1), I(2), D(3), D(4))
#define I(i) (*static_cast<int *>(a[i]))
#define D(i) (*static_cast<double **>(a[i]))
extern "C" void launch(const char *name, int gx, int gy, int bx, int by, void **a) {
  THREE(matmul_global) THREE(matmul_shared) THREE(convolution_global) THREE(convolution_shared)
  TWO(matvec_global) TWO(matvec_shared) POOL(pooling_global) POOL(pooling_shared)
}
"""


class Array:
    """An array in the computer's memory in place of one on a GPU."""

    def __init__(self, values):
        self.values, self.shape = values, values.shape
        self.pointer = ctypes.c_uint64(values.ctypes.data)

    def __array__(self, dtype=None, copy=None):
        return self.values


class Host:
    """In place of the CUDA driver."""

    name = "host"

    def __init__(self, library):
        self._library = library

    def enter(self):
        pass

    def upload(self, array):
        return Array(array.copy())

    def empty(self, shape):
        return Array(np.full(shape, np.nan))

    def function(self, module, name):
        return name

    def launch(self, function, grid, block, shared, arguments):
        assert shared <= 8 << 14
        places = [ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in arguments]
        self._library.launch(
            function.encode(), *grid, *block, (ctypes.c_void_p * len(places))(*places)
        )


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cuda")
    text = cuda.SOURCE.read_text().replace("extern __shared__ double block[];", "")
    source = folder / "kernels.cpp"
    source.write_text(BEFORE + text.replace("__shared__", "static") + AFTER)
    made = folder / "kernels.so"
    words = [native.compiler() or "c++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-pthread"]
    subprocess.run([*words, "-o", made, source], check=True)
    return ctypes.CDLL(str(made))


@pytest.fixture
def host(library, monkeypatch):
    monkeypatch.setattr(cuda, "driver", lambda: Host(library))
    monkeypatch.setattr(cuda, "_module", lambda: None)


def check(name, operands, memories=("global", "shared")):
    chosen = kernel(name)
    for memory in memories:
        variant = chosen.variant(f"cuda_{memory}")
        error, message = error_of(variant.build(operands, {})(), chosen, operands)
        assert not message, f"{name} by {variant.name}: {message}"
        assert error <= chosen.tolerance


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (17, 33, 15), (16, 16, 16), (3, 0, 4)])
def test_products(host, m, n, k):
    rng = np.random.default_rng(m)
    a, b = rng.uniform(-1, 1, (m, n)), rng.uniform(-1, 1, (n, k))
    check("matmul", {"a": a, "b": b})
    check("matvec", {"a": a, "x": rng.uniform(-1, 1, n)})


def test_a_vector_of_more_than_a_block(host):
    rng = np.random.default_rng(0)
    check("matvec", {"a": rng.uniform(-1, 1, (5, 300)), "x": rng.uniform(-1, 1, 300)})


@pytest.mark.parametrize(("m", "n", "r"), [(3, 3, 3), (19, 24, 5), (7, 22, 7)])
def test_convolutions(host, m, n, r):
    rng = np.random.default_rng(m)
    check("convolution", {"a": rng.uniform(-1, 1, (m, n)), "w": rng.uniform(-1, 1, (r, r))})


@pytest.mark.parametrize(("m", "n", "s"), [(1, 1, 2), (33, 9, 2), (17, 16, 1), (35, 33, 4)])
def test_poolings(host, m, n, s):
    check("pooling", {"a": np.random.default_rng(m).uniform(1, 2, (m, n)), "s": s})


@pytest.mark.parametrize(("m", "n", "k"), [(0, 2, 3), (2, 2, 0)])
def test_an_empty_result_starts_no_grid(host, m, n, k):
    check("matmul", {"a": np.ones((m, n)), "b": np.ones((n, k))})


def test_operands_too_large_for_shared_memory_or_unfitting_are_refused(host):
    wide = {"a": np.ones((20, 20)), "w": np.ones((9, 9))}
    check("convolution", wide, ["global"])
    for name, operands, words in (
        ("convolution", wide, "filters up to 7, not 9"),
        ("pooling", {"a": np.ones((20, 20)), "s": 5}, "blocks up to 4, not 5"),
        ("matmul", {"a": np.ones((2, 3)), "b": np.ones((2, 3))}, "do not fit"),
    ):
        with pytest.raises(PredictionError, match=words):
            kernel(name).variant("cuda_shared").build(operands, {})


def test_the_source_is_compiled_where_there_is_a_compiler(tmp_path, monkeypatch):
    if cuda.nvcc() is not None:
        ptx = cuda.compiled(tmp_path).decode()
        for name in NAMES:
            assert f".entry {name}_global(" in ptx
            assert f".entry {name}_shared(" in ptx
        assert cuda.compiled(tmp_path).decode() == ptx
    monkeypatch.setattr(cuda, "nvcc", lambda: None)
    with pytest.raises(PredictionError, match="install the CUDA toolkit"):
        cuda.compiled(tmp_path / "other")


def test_a_variant_says_why_it_is_unavailable(monkeypatch):
    asked = cuda.available.__wrapped__
    monkeypatch.setattr(cuda, "nvcc", lambda: None)
    assert asked() == (False, "there is no CUDA compiler: install the CUDA toolkit (nvcc)")

    def missing():
        raise PredictionError("the CUDA driver finds no GPU")

    monkeypatch.setattr(cuda, "nvcc", lambda: "/usr/bin/nvcc")
    monkeypatch.setattr(cuda, "driver", missing)
    assert asked() == (False, "the CUDA driver finds no GPU")
