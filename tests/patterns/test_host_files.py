"""Files to keep: a C header, and a file that runs a kernel without Python, for every target."""

import ctypes
import ctypes.util
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from simulated_cuda import launched

import tilewright.patterns as tp
from tilewright.patterns import rewriting as rw
from tilewright.patterns.compiling import compiler, grid_code
from tilewright.patterns.nodes import MapLevel

N, M = tp.sizes("N M")
GRID = [MapLevel("wrg", 1), MapLevel("wrg", 0), MapLevel("lcl", 1), MapLevel("lcl", 0)]
MEAN = tp.fun(lambda w: (w[0, 1] + w[1, 0] + w[1, 2] + w[2, 1]) / 4, "mean")
STENCIL = tp.array("A", tp.f32[N, M]) >> tp.pad2(1, 1, tp.wrap) >> tp.slide2(3, 1) >> tp.map2(MEAN)
TILED = rw.derive(STENCIL, rw.tiling2(4, 8), rw.lower_nest(*GRID), rw.stage_tile()).program
ROUNDED = rw.derive(STENCIL, rw.round_up2(4, 8), rw.tiling2(4, 8), rw.lower_nest(*GRID)).program
SUMS = (
    tp.fork(tp.array("v", tp.i32[N]) >> tp.split(4), tp.array("k", tp.i32) >> tp.repeat(N / 4))
    >> tp.zip
    >> tp.to_global(
        tp.map_glb(
            tp.fork(tp.get(0) >> tp.reduce_seq(tp.add, 0), tp.get(1))
            >> tp.fun(lambda s, k: s * k, "times")
        )
    )
    >> tp.fork(tp.reduce_seq(tp.add, 0), tp.map_glb(tp.fun(lambda x: tp.f64(x) / 2, "half")))
)
MOVED = tp.array("v", tp.f32[N]) >> tp.map_glb(tp.copy) >> tp.scatter(lambda i, n: 3 * i % n)
PROGRAMS = {
    "tiled": (TILED, {"N": 8, "M": 16}, {"N": 8, "M": 12}),
    "rounded": (ROUNDED, {"N": 7, "M": 13}, {"N": 0, "M": 12}),
    "sums": (SUMS, {"N": 12}, {"N": 13}),
    "moved": (MOVED, {"N": 8}, {"N": 9}),
}
SMALL_CL = """
#include <stddef.h>
#include <stdint.h>
typedef int32_t cl_int; typedef uint32_t cl_uint; typedef uint64_t cl_bitfield;
typedef cl_bitfield cl_mem_flags; typedef cl_bitfield cl_device_type;
typedef void *cl_platform_id, *cl_device_id, *cl_context, *cl_command_queue, *cl_program;
typedef void *cl_kernel, *cl_mem;
#define CL_SUCCESS 0
#define CL_TRUE 1
#define CL_DEVICE_TYPE_ALL 0xFFFFFFFF
#define CL_MEM_READ_WRITE 1
#define CL_MEM_READ_ONLY 4
#define CL_MEM_COPY_HOST_PTR 32
cl_int clGetPlatformIDs(cl_uint, cl_platform_id *, cl_uint *);
cl_int clGetDeviceIDs(cl_platform_id, cl_device_type, cl_uint, cl_device_id *, cl_uint *);
cl_context clCreateContext(const void *, cl_uint, const cl_device_id *, void *, void *, cl_int *);
cl_command_queue clCreateCommandQueue(cl_context, cl_device_id, cl_bitfield, cl_int *);
cl_program clCreateProgramWithSource(cl_context, cl_uint, const char **, const size_t *, cl_int *);
cl_int clBuildProgram(cl_program, cl_uint, const cl_device_id *, const char *, void *, void *);
cl_kernel clCreateKernel(cl_program, const char *, cl_int *);
cl_mem clCreateBuffer(cl_context, cl_mem_flags, size_t, void *, cl_int *);
cl_int clReleaseMemObject(cl_mem);
cl_int clEnqueueReadBuffer(cl_command_queue, cl_mem, cl_uint, size_t, size_t, void *, cl_uint,
                           const void *, void *);
cl_int clSetKernelArg(cl_kernel, cl_uint, size_t, const void *);
cl_int clEnqueueNDRangeKernel(cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *,
                              const size_t *, cl_uint, const void *, void *);
"""
SMALL_CUDA = """
#include <cstdlib>
#include <cmath>
#include <cstring>
#define __global__
#define __device__
#define __shared__ static
#define __constant__
struct dim3 { unsigned x, y, z; dim3(unsigned a, unsigned b, unsigned c) : x(a), y(b), z(c) {} };
static dim3 blockIdx(0, 0, 0), gridDim(0, 0, 0), threadIdx(0, 0, 0), blockDim(0, 0, 0);
static void __syncthreads() {}
enum { cudaSuccess = 0, cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
static int cudaGetDeviceCount(int *count) { *count = 1; return 0; }
static int cudaMalloc(void **made, size_t bytes) { *made = malloc(bytes); return !*made; }
static int cudaFree(void *made) { free(made); return 0; }
static int cudaMemcpy(void *to, const void *from, size_t bytes, int) {
  memcpy(to, from, bytes);
  return 0;
}
extern "C" { int (*simulated_launch)(unsigned *, unsigned *, void **) = nullptr; }
static int cudaLaunchKernel(const void *, dim3 grid, dim3 block, void **values, size_t, int) {
  return simulated_launch(&grid.x, &block.x, values);
}
"""


def built(tmp_path, name, target, *options):
    """The shared library of a host file, with its header in front of it."""
    program, _, _ = PROGRAMS[name]
    source = tmp_path / f"{name}.{'cpp' if target == 'cuda' else 'c'}"
    (tmp_path / "it.h").write_text(tp.header(program, name))
    source.write_text('#include "it.h"\n' + tp.host(program, target, name))
    cc = shutil.which("g++") or shutil.which("c++") if target == "cuda" else compiler()
    assert cc is not None, "no C++ compiler, which the tests need"
    warnings = ["-Wall", "-Werror", "-Wno-unknown-pragmas", "-Wno-unused-variable"]
    library = tmp_path / f"{name}.so"
    command = [cc, *warnings, "-Wno-unused-function", "-shared", "-fPIC", "-I", str(tmp_path)]
    command += ["-o", str(library), str(source), *options, "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(library))


def called(library, name, sizes, expected=True):
    """What the function in a library returns, and its results."""
    program, usual, _ = PROGRAMS[name]
    inputs = tp.random_inputs(program, usual)
    wanted = tp.interpret(program, *inputs)
    flat = wanted if isinstance(wanted, tuple) else (wanted,)
    made = [np.zeros_like(np.asarray(part)) for part in flat]
    arguments: list = [
        a.ctypes.data_as(ctypes.c_void_p)
        if a.ndim
        else np.ctypeslib.as_ctypes_type(a.dtype)(a.item())
        for a in inputs
    ]
    arguments += [a.ctypes.data_as(ctypes.c_void_p) for a in made]
    arguments += [ctypes.c_long(sizes[key]) for key in sorted(sizes)]
    code = getattr(library, f"{name}_run")(*arguments)
    if code == 0:
        assert all(np.allclose(a, b) for a, b in zip(made, flat, strict=True))
    return code


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("options", [(), ("-fopenmp",)], ids=["one core", "all cores"])
def test_a_c_file_runs_alone(tmp_path, name, options):
    library = built(tmp_path, name, "c", *options)
    _, usual, wrong = PROGRAMS[name]
    assert called(library, name, usual) == 0
    assert called(library, name, wrong) == 2


@pytest.mark.opencl
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_opencl_file_runs_alone(tmp_path, name):
    import pyopencl

    tp.compile(STENCIL, "opencl")  # finds the platform
    (tmp_path / "CL").mkdir()
    (tmp_path / "CL" / "cl.h").write_text(SMALL_CL)
    bundled = sorted((Path(pyopencl.__file__).parent / ".libs").glob("libOpenCL*"))
    loader = str(bundled[0]) if bundled else ctypes.util.find_library("OpenCL")
    link = [loader] if bundled else [f"-l:{loader}"]
    library = built(tmp_path, name, "opencl", *link)
    _, usual, wrong = PROGRAMS[name]
    assert called(library, name, usual) == 0
    assert called(library, name, wrong) == 2


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_cuda_file_launches_its_kernels_in_order(tmp_path, name):
    (tmp_path / "cuda_runtime.h").write_text(SMALL_CUDA)
    library = built(tmp_path, name, "cuda")
    program, usual, wrong = PROGRAMS[name]
    code, kernels = grid_code(program, name, None)
    waiting, failures = list(kernels), []

    @ctypes.CFUNCTYPE(
        ctypes.c_int,
        ctypes.POINTER(ctypes.c_uint),
        ctypes.POINTER(ctypes.c_uint),
        ctypes.POINTER(ctypes.c_void_p),
    )
    def launch(grid, block, values):
        try:
            kernel = waiting.pop(0)
            count = len(kernel.reads) + len(kernel.writes) + len(kernel.sizes)
            launched(kernel, code, usual, grid[:3], block[:3], values[:count])
        except Exception as error:  # it would be lost in the caller
            failures.append(error)
        return 0

    ctypes.c_void_p.in_dll(library, "simulated_launch").value = ctypes.cast(
        launch, ctypes.c_void_p
    ).value
    assert called(library, name, usual) == 0
    assert (failures, waiting) == ([], [])
    assert called(library, name, wrong) == 2


def test_a_header_says_what_it_declares():
    text = tp.header(SUMS, "sums")
    assert (
        "int sums_run(\n    const int *v,\n    const int k,\n    int *out0,\n    double *out1,"
        in text
    )
    assert "long N\n);" in text
    assert "* (i32, f64[N / 4]): " in text
