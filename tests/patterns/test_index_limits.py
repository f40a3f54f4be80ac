"""Kernels for GPUs index with 32 bits: sizes that need more are refused, with cause and cure."""

import ctypes
import random
import subprocess

import numpy as np
import pytest

import tilewright.patterns as tp
from tilewright.arith import LoopVariable, evaluate
from tilewright.patterns import rewriting as rw
from tilewright.patterns.codegen.code import indices_of, statements
from tilewright.patterns.codegen.limits import SizeLimit, _all_bounds, size_limits
from tilewright.patterns.compiling import compiler, grid_code
from tilewright.patterns.cuda import CudaKernel
from tilewright.patterns.nodes import MapLevel

N, M, K = tp.sizes("N M K")
DOUBLE = tp.fun(lambda v: v + v, "double")
SUM = tp.reduce_seq(tp.add, 0)


def vector(length):
    return tp.array("A", tp.f32[length])


def rows(*lengths):
    return tp.array("A", tp.f32[lengths]) >> tp.map_glb(tp.map_seq(DOUBLE))


# Of each: a program with 2^31 elements or more, or such an index, and what is said.
LARGE = {
    "input": (rows(65536, 65536), "array A has 4294967296 elements"),
    "output": (
        vector(65536) >> tp.map_glb(tp.repeat(65536) >> tp.map_seq(DOUBLE)),
        "array out0 has 4294967296 elements",
    ),
    "intermediate": (
        vector(65536)
        >> tp.to_global(tp.map_glb(tp.repeat(65536) >> tp.map_seq(DOUBLE)))
        >> tp.map_glb(SUM),
        "array g0 has 4294967296 elements",
    ),
    "index": (
        vector(2**30)
        >> tp.pad(1, 1, tp.mirror)
        >> tp.slide(3, 1)
        >> tp.map_glb(tp.at(0) >> DOUBLE),
        "an index may reach 4294967295",
    ),
    "loop": (
        vector(4) >> tp.map_glb(tp.repeat(2**40) >> SUM),
        "an index may reach 1099511627776",
    ),
    "threads": (
        tp.generate(2**40) >> tp.map_glb(DOUBLE) >> tp.crop(4),
        "kernel_0 counts its groups and threads up to 1099511627776",
    ),
}


@pytest.mark.parametrize("target", ["cuda", "opencl"])
@pytest.mark.parametrize("name", LARGE)
def test_constant_sizes_that_need_longer_indices_are_refused(name, target):
    program, said = LARGE[name]
    with pytest.raises(tp.LoweringError, match=f"{said}; .* 32 bits.*: split the program, or"):
        tp.source(program, target)


def test_c_has_no_such_limit():
    assert "long i0" in tp.source(LARGE["input"][0], "c")


@pytest.mark.parametrize("layout", [tp.identity, tp.gather(lambda i, n: n - 1 - i), tp.split(4)])
def test_the_largest_arrays_are_allowed(layout):
    f = tp.map_seq(DOUBLE) if layout is tp.split(4) else DOUBLE
    assert "kernel_0" in tp.source(vector(2**30) >> layout >> tp.map_glb(f), "cuda")


def test_symbolic_sizes_are_checked_before_memory_is_allocated():
    program = (
        tp.array("x", tp.f32) >> tp.repeat(N) >> tp.map_glb(tp.repeat(M) >> tp.map_seq(tp.copy))
    )
    code, kernels = grid_code(program, "kernel", None)
    kernel = object.__new__(CudaKernel)  # without a GPU, and so without a driver
    super(CudaKernel, kernel).__init__(program, code, "")
    kernel.kernels, kernel._limits = kernels, size_limits(code, kernels)
    with pytest.raises(tp.SizeError, match=r"array out0 has 1099511627776 elements; .* 32 bits"):
        kernel.bound(np.float32(1), sizes={"N": 2**20, "M": 2**20})
    with pytest.raises(tp.SizeError, match="size M is 4294967296; kernels for GPUs"):
        tp.launch_sizes(program, {"N": 2**32, "M": 2**32})
    assert tp.launch_sizes(program, {"N": 2**15, "M": 2**15})["kernel_0"][0] == (2**8, 1, 1)


@pytest.mark.parametrize("target", ["c", "cuda", "opencl"])
def test_host_files_check_sizes_without_overflow(tmp_path, target):
    text = tp.host(tp.array("A", tp.f32[N, M, K]) >> tp.map3(DOUBLE), target)
    (start,) = [k for k in range(len(text)) if text.startswith("  if (K < 1)", k)]
    checks = [line for line in text[start:].splitlines() if "return 2;" in line]
    body = "\n".join(checks)
    source, library = tmp_path / "checks.c", tmp_path / "checks.so"
    source.write_text(f"int check(long K, long M, long N) {{\n{body}\nreturn 0; }}\n")
    subprocess.run([compiler(), "-shared", "-fPIC", "-o", library, source], check=True)
    check = ctypes.CDLL(str(library)).check
    assert check(*map(ctypes.c_long, (2**10, 2**10, 2**10))) == 0
    for sizes in [(2**32, 2**32, 1), (2**31, 2**31, 2**31), (1, 2**60, 1)]:
        assert check(*map(ctypes.c_long, sizes)) == 2
    assert check(ctypes.c_long(1), ctypes.c_long(2**31), ctypes.c_long(1)) == (target != "c") * 2
    assert "over 1073741824 elements" in tp.header(rows(N, M))


def test_bounds_hold_for_every_index():
    mean = tp.fun(lambda w: w[0, 1] + w[1, 0] + w[1, 2] + w[2, 1], "mean")
    made = []
    for edge in (tp.clamp, tp.wrap, tp.mirror):
        p = tp.array("A", tp.f32[N, M]) >> tp.pad2(1, 1, edge) >> tp.slide2(3, 1) >> tp.map2(mean)
        levels = [MapLevel("wrg", 1), MapLevel("wrg", 0), MapLevel("lcl", 1), MapLevel("lcl", 0)]
        tiles = rw.derive(p, rw.round_up2(4, 8), rw.tiling2(4, 8), rw.lower_nest(*levels))
        made += [p, tiles.program]
    made.append(vector(N) >> tp.gather(lambda i, n: (5 * i - 3) % n) >> tp.map_glb(DOUBLE))
    chance, known = random.Random(1), {"N": 11, "M": 13}
    for p in made:
        for kernel in grid_code(p, "kernel", None)[1]:
            for index in {i for s in statements(kernel.body) for i in indices_of(s)}:
                most = max(SizeLimit("", b, 0).number(known) or 0 for b in _all_bounds(index))
                for _ in range(50):
                    given = values(index, known, chance)
                    assert abs(evaluate(index, given)) <= most


def values(index, known, chance):
    """The sizes and a value of each loop variable of an index, often the largest one."""
    found = dict(known)
    for atom in index.all_atoms():
        if isinstance(atom, LoopVariable):
            last = evaluate(atom.extent, found) - 1
            found.setdefault(atom.name, chance.choice([last, chance.randint(0, last)]))
    return found
