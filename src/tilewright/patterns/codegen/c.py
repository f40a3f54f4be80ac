"""Code as C with OpenMP: one function, which runs on the cores and vector lanes of a CPU.

All maps of a thread grid are loops here: the outermost one is spread over the cores. A GPU's
program thus runs, and can be checked, on a CPU.
"""

from __future__ import annotations

from tilewright.patterns.codegen.code import (
    Allocate,
    Assign,
    Barrier,
    Block,
    Buffer,
    Code,
    Declare,
    Loop,
    Name,
    Statement,
    Store,
    loads,
)
from tilewright.patterns.codegen.generate import UNDECIDED
from tilewright.patterns.codegen.tidy import IndexNames, index_names
from tilewright.patterns.codegen.words import C, Words

MOST_ON_STACK = 65536  # bytes of one array; a thread's stack has 2 MiB and more
ALIGNMENT = 64  # bytes of a cache line, and of the longest vectors
SPREAD = ("par", "glb", "wrg")

PRELUDE = """\
#include <math.h>
#include <stdlib.h>
"""


def print_c(code: Code) -> str:
    """The C source of some code.

    The function takes inputs, outputs, memory for intermediate results of the whole program
    (`scratch`), sizes, and a number of threads. It returns 0, or 1 if memory ran out.
    """
    return _Printer(code).text()


def scratch(code: Code) -> list[Buffer]:
    """Intermediate arrays outside of all loops, which the caller provides."""
    return [s.buffer for s in code.body if isinstance(s, Allocate)]


def tables(code: Code) -> list[Buffer]:
    """Arrays of fixed numbers, in the order of their first use."""
    found = (v.buffer for v in loads(code.body) if v.buffer.space == "table")
    return list(dict.fromkeys(found))


class _Printer:
    def __init__(self, code: Code) -> None:
        self.code = code
        self.indices: IndexNames = index_names(code.body, code.reserved)
        self.words = Words(C, self.indices.names)

    def text(self) -> str:
        body = self._block(self.code.body, 1, False, top=True)
        parts = [PRELUDE, *(f"{text}\n" for text in self.words.helpers.values())]
        parts += [self._table(buffer) + "\n" for buffer in tables(self.code)]
        signature = ",\n    ".join(self._parameters())
        head = [f"int {self.code.name}(\n    {signature}\n) {{", "  int failed = 0;"]
        return "\n".join([*parts, *head, *body, "  return failed;", "}", ""])

    def _parameters(self) -> list[str]:
        found = []
        for item in self.code.inputs:
            kind = self.words.type(item.type)
            if isinstance(item, Name):
                found.append(f"const {kind} {item.name}")
            else:
                found.append(f"const {kind} *restrict {item.name}")
        written = [*self.code.outputs, *scratch(self.code)]
        found += [f"{self.words.type(b.type)} *restrict {b.name}" for b in written]
        found += [f"const {C.index} {name}" for name in self.code.sizes]
        return [*found, "const int threads"]

    def _table(self, buffer: Buffer) -> str:
        values = ", ".join(self.words.number(v, buffer.type) for v in buffer.values)
        kind = self.words.type(buffer.type)
        return f"static const {kind} {buffer.name}[{len(buffer.values)}] = {{{values}}};"

    def _block(self, block: Block, depth: int, spread: bool, top: bool = False) -> list[str]:
        pad = "  " * depth
        lines = [
            f"{pad}const {C.index} {self.indices.names[atom]} = {self.words.define(atom)};"
            for atom in self.indices.at[id(block)]
        ]
        freed: list[str] = []
        for s in block:
            if isinstance(s, Allocate):
                if not top:
                    lines += self._allocate(s.buffer, pad, freed)
            elif isinstance(s, Loop):
                lines += self._loop(s, depth, spread)
            elif not isinstance(s, Barrier):
                lines.append(pad + self._simple(s))
        return lines + [f"{pad}free({name});" for name in freed]

    def _simple(self, s: Statement) -> str:
        if isinstance(s, Declare):
            const = "" if s.changes else "const "
            return f"{const}{self.words.type(s.type)} {s.name} = {self.words.value(s.value)};"
        if isinstance(s, Assign):
            return f"{s.name} = {self.words.value(s.value)};"
        assert isinstance(s, Store)
        return f"{s.buffer.name}[{self.words.index(s.index)}] = {self.words.value(s.value)};"

    def _allocate(self, buffer: Buffer, pad: str, freed: list[str]) -> list[str]:
        kind, size = self.words.type(buffer.type), buffer.size.value
        if isinstance(size, int) and size * buffer.type.size <= MOST_ON_STACK:
            return [f"{pad}{kind} {buffer.name}[{size}] __attribute__((aligned({ALIGNMENT})));"]
        freed.append(buffer.name)
        bytes_ = f"(size_t)({self.words.index(buffer.size)}) * sizeof({kind})"
        return [
            f"{pad}{kind} *restrict {buffer.name} = malloc({bytes_});",
            f"{pad}if (!{buffer.name}) {{ failed = 1; continue; }}",
        ]

    def _loop(self, loop: Loop, depth: int, spread: bool) -> list[str]:
        pad, i = "  " * depth, loop.variable.name
        kind = loop.level.kind
        outermost = loop.level is UNDECIDED and depth == 1
        parallel = not spread and (kind in SPREAD or outermost)
        lines = []
        if parallel:
            inner = self._collapsible(loop)
            collapse = " collapse(2)" if inner else ""
            lines.append(f"{pad}#pragma omp parallel for num_threads(threads){collapse}")
        elif kind == "simd":
            lines.append(f"{pad}#pragma omp simd")
        lines.append(f"{pad}for ({C.index} {i} = 0; {i} < {self._extent(loop)}; {i}++) {{")
        lines += self._block(loop.body, depth + 1, spread or parallel or kind == "simd")
        return [*lines, f"{pad}}}"]

    def _extent(self, loop: Loop) -> str:
        return self.words.index(loop.variable.extent)

    def _collapsible(self, loop: Loop) -> bool:
        """Whether the loop and the one in it can be spread together over the cores."""
        if len(loop.body) != 1 or self.indices.at[id(loop.body)]:
            return False
        inner = loop.body[0]
        same = isinstance(inner, Loop) and inner.level.kind == loop.level.kind
        return same and loop.level.kind in SPREAD
