"""Printing of code as C with OpenMP: one function for the cores and vector lanes of a CPU.

Maps over a thread grid become loops; the outermost one is distributed over the cores. A program
for a GPU can therefore be run and checked on a CPU.
"""

from __future__ import annotations

from tilewright.patterns.codegen.borders import inner_range
from tilewright.patterns.codegen.code import Buffer, Code, ForLoop
from tilewright.patterns.codegen.generate import UNDECIDED
from tilewright.patterns.codegen.printer import Printer, scratch, tables
from tilewright.patterns.codegen.tidy import index_names
from tilewright.patterns.codegen.words import C, Words

MOST_ON_STACK = 65536  # bytes per array; the stack of a thread has at least 2 MiB
ALIGNMENT = 64  # bytes of a cache line, and of the longest vectors
SPREAD = ("par", "glb", "wrg")

PRELUDE = """\
#include <math.h>
#include <stdlib.h>
"""


def print_c(code: Code) -> str:
    """Return code as C source.

    The function takes inputs, outputs, memory for intermediate results of the whole program
    (`printer.scratch`), sizes, and a number of threads. It returns 0, or 1 if memory ran out.
    """
    printer = _Printer(Words(C), index_names(code.body, code.reserved))
    body = printer.block(code.body, 1, False)
    written = [*code.outputs, *scratch(code)]
    given = printer.parameters(list(code.inputs), written, code.sizes, "")
    signature = ",\n    ".join([*given, "const int threads"])
    parts = [PRELUDE, *(f"{text}\n" for text in printer.words.helpers.values())]
    parts += [printer.table(buffer, "static const") + "\n" for buffer in tables(code.body)]
    head = [f"int {code.name}(\n    {signature}\n) {{", "  int failed = 0;"]
    return "\n".join([*parts, *head, *body, "  return failed;", "}", ""])


class _Printer(Printer):
    def allocate(self, buffer: Buffer, depth: int, freed: list[str]) -> list[str]:
        if depth == 1 and buffer.space == "global":
            return []  # the caller provides this memory
        pad = "  " * depth
        kind, size = self.words.type(buffer.type), buffer.size.value
        if isinstance(size, int) and size * buffer.type.size <= MOST_ON_STACK:
            return [f"{pad}{kind} {buffer.name}[{size}] __attribute__((aligned({ALIGNMENT})));"]
        freed.append(buffer.name)
        size_text = f"(size_t)({self.words.index(buffer.size)}) * sizeof({kind})"
        return [
            f"{pad}{kind} *restrict {buffer.name} = malloc({size_text});",
            f"{pad}if (!{buffer.name}) {{ failed = 1; continue; }}",
        ]

    def barrier(self) -> str:
        return "// a barrier of a work-group: here one thread runs the group"

    def loop(self, loop: ForLoop, depth: int, spread: bool) -> list[str]:
        pad, i = "  " * depth, loop.variable.name
        kind = loop.level.kind
        outermost = loop.level is UNDECIDED and depth == 1
        parallel = not spread and (kind in SPREAD or outermost)
        lines = []
        if parallel:
            collapse = " collapse(2)" if self._collapsible(loop) else ""
            lines.append(f"{pad}#pragma omp parallel for num_threads(threads){collapse}")
        lanes = kind in ("simd", "vec")
        within = spread or parallel or lanes
        simd = f"{pad}#pragma omp simd" if lanes and not parallel else ""
        inner = None if parallel else inner_range(loop)
        extent = self.words.index(loop.variable.extent)
        if inner is None:
            return lines + self._iterations(loop, depth, within, ("0", extent), simd)
        first, last = "0", extent
        index, extreme = self.words.dialect.index, self.words.extreme
        before: list[str] = []
        after: list[str] = []
        if inner.starts:
            first = f"{i}_inner"
            start = extreme("least", [extreme("most", ["0", *inner.starts]), extent])
            lines.append(f"{pad}const {index} {first} = {start};")
            before = self._iterations(loop, depth, within, ("0", first), "")
        if inner.ends:
            last = f"{i}_border"
            end = extreme("most", [extreme("least", [extent, *inner.ends]), first])
            lines.append(f"{pad}const {index} {last} = {end};")
            after = self._iterations(loop, depth, within, (last, extent), "")
        self.words.inside = inner.tests
        middle = self._iterations(loop, depth, within, (first, last), simd)
        self.words.inside = frozenset()
        return [*lines, *before, *middle, *after]

    def _iterations(
        self, loop: ForLoop, depth: int, spread: bool, ends: tuple[str, str], pragma: str
    ) -> list[str]:
        """Return the lines of a part of a loop."""
        pad, i = "  " * depth, loop.variable.name
        head = f"for ({self.words.dialect.index} {i} = {ends[0]}; {i} < {ends[1]}; {i}++) {{"
        body = self.block(loop.body, depth + 1, spread)
        return [*filter(None, [pragma]), pad + head, *body, f"{pad}}}"]

    def _collapsible(self, loop: ForLoop) -> bool:
        """Return whether a loop and its inner loop can be distributed over the cores together."""
        if len(loop.body) != 1 or self.indices.at[id(loop.body)]:
            return False
        inner = loop.body[0]
        same = isinstance(inner, ForLoop) and inner.level.kind == loop.level.kind
        return same and loop.level.kind in SPREAD
