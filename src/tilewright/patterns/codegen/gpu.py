"""Printing of the kernels of `grid` as OpenCL C and CUDA C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.arith import Poly
from tilewright.patterns.codegen.code import (
    Allocate,
    Buffer,
    BufferLoad,
    ForLoop,
    Store,
    lanes_of,
    loads,
    statements,
    stores,
)
from tilewright.patterns.codegen.grid import GridKernel, loop_form
from tilewright.patterns.codegen.printer import Printer, tables
from tilewright.patterns.codegen.tidy import index_names
from tilewright.patterns.codegen.words import CUDA, OPENCL, CDialect, Words
from tilewright.patterns.types import f64


@dataclass(frozen=True, slots=True)
class Grid:
    """The differences between OpenCL and CUDA.

    Args:
        kernel: the text before the name of a kernel.
        pointer: the address space of arrays in global memory.
        local: the address space of local memory.
        aligned: aligns local memory to 16 bytes, for vectors; empty for OpenCL, which needs none.
        table: the text before the type of a constant array.
        barrier: the call of a barrier.
        group: a group's index in dimension ``{d}``, or ``{x}`` as a letter.
        groups: the number of groups in a dimension.
        thread: a thread's index in its group in a dimension.
        threads: the number of threads of a group in a dimension.
    """

    dialect: CDialect
    kernel: str
    pointer: str
    local: str
    aligned: str
    table: str
    barrier: str
    group: str
    groups: str
    thread: str
    threads: str


OPENCL_GRID = Grid(
    OPENCL,
    "kernel void",
    "global ",
    "local ",
    "",
    "constant",
    "barrier(CLK_LOCAL_MEM_FENCE);",
    "(int)get_group_id({d})",
    "(int)get_num_groups({d})",
    "(int)get_local_id({d})",
    "(int)get_local_size({d})",
)

CUDA_GRID = Grid(
    CUDA,
    'extern "C" __global__ void',
    "",
    "__shared__ ",
    "__align__(16) ",
    "static __constant__ const",
    "__syncthreads();",
    "(int)blockIdx.{x}",
    "(int)gridDim.{x}",
    "(int)threadIdx.{x}",
    "(int)blockDim.{x}",
)

GRIDS = {"opencl": OPENCL_GRID, "cuda": CUDA_GRID}


def print_grid(kernels: Sequence[GridKernel], target: str, reserved: frozenset[str]) -> str:
    """Return the source of kernels for ``opencl`` or ``cuda``."""
    grid = GRIDS[target]
    words = Words(grid.dialect)
    texts, fixed = [], []
    for kernel in kernels:
        printer = _Printer(words, kernel, grid, reserved)
        texts.append(printer.text())
        fixed += [printer.table(b, grid.table) + "\n" for b in tables(kernel.body)]
    head = []
    if target == "opencl" and any(f64 in _types(kernel) for kernel in kernels):
        head.append("#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n")
    if target == "cuda":
        head.append("#define restrict __restrict__\n")
    helpers = [f"{text}\n" for text in words.helpers.values()]
    return "\n".join([*head, *helpers, *dict.fromkeys(fixed), *texts])


def _types(kernel: GridKernel) -> set[object]:
    return {item.type for item in (*kernel.reads, *kernel.writes)}


class _Printer(Printer):
    def __init__(
        self, words: Words, kernel: GridKernel, grid: Grid, reserved: frozenset[str]
    ) -> None:
        super().__init__(words, index_names(kernel.body, reserved))
        self.kernel, self.grid = kernel, grid
        accesses: list[BufferLoad | Store] = [*loads(kernel.body), *stores(kernel.body)]
        self.vectors = {access.buffer for access in accesses if lanes_of(access) > 1}

    def text(self) -> str:
        k = self.kernel
        given = self.parameters(list(k.reads), list(k.writes), k.sizes, self.grid.pointer)
        memory = [s.buffer for s in statements(k.body) if isinstance(s, Allocate)]
        lines = [f"{self.grid.kernel} {k.name}(\n    " + ",\n    ".join(given) + "\n) {"]
        lines += [self._array(b, self.grid.local, 1) for b in memory if b.space == "local"]
        return "\n".join([*lines, *self.block(k.body, 1, False), "}", ""])

    def _array(self, buffer: Buffer, space: str, depth: int) -> str:
        if space and buffer in self.vectors:
            space += self.grid.aligned
        kind = self.words.type(buffer.type)
        return f"{'  ' * depth}{space}{kind} {buffer.name}[{self.words.index(buffer.size)}];"

    def allocate(self, buffer: Buffer, depth: int, freed: list[str]) -> list[str]:
        # OpenCL requires local memory to be declared at the top of a kernel.
        return [] if buffer.space == "local" else [self._array(buffer, "", depth)]

    def barrier(self) -> str:
        return self.grid.barrier

    def loop(self, loop: ForLoop, depth: int, spread: bool) -> list[str]:
        pad, i, extent = "  " * depth, loop.variable.name, loop.variable.extent
        n = self.words.index(extent)
        kind, dim = loop.level.kind, loop.level.dim
        if kind not in ("glb", "wrg", "lcl"):
            head = [f"{pad}for (int {i} = 0; {i} < {n}; {i}++) {{"]
        else:
            head = self._spread(kind, dim, extent, i, n, pad)
        return [*head, *self.block(loop.body, depth + 1, spread), f"{pad}}}"]

    def _spread(self, kind: str, dim: int, extent: Poly, i: str, n: str, pad: str) -> list[str]:
        """Return the first lines of a loop over groups or threads in its `loop_form`."""
        start, step = self._position(kind, dim)
        form = loop_form(self.kernel, kind, dim, extent)
        if form == "plain":
            return [f"{pad}{{", f"{pad}  const int {i} = {start};"]
        if form == "if":
            return [f"{pad}const int {i} = {start};", f"{pad}if ({i} < {n}) {{"]
        return [f"{pad}for (int {i} = {start}; {i} < {n}; {i} += {step}) {{"]

    def _position(self, kind: str, dim: int) -> tuple[str, str]:
        """Return the first iteration of a thread, and its stride to the next one."""
        grid, x = self.grid, "xyz"[dim]
        group, groups, thread, threads = (
            form.format(d=dim, x=x) for form in (grid.group, grid.groups, grid.thread, grid.threads)
        )
        if kind == "wrg":
            return group, groups
        if kind == "lcl":
            return thread, threads
        return f"{group} * {threads} + {thread}", f"{groups} * {threads}"
