"""Programs compiled and called from Python: NumPy arrays in, NumPy arrays out."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.arith import Poly
from tilewright.patterns import nodes as n
from tilewright.patterns.binding import bind, conforming
from tilewright.patterns.check import requirements, type_of
from tilewright.patterns.codegen.c import print_c, scratch
from tilewright.patterns.codegen.code import Buffer, Code, Name
from tilewright.patterns.codegen.generate import generate
from tilewright.patterns.errors import CompileError, PatternError, SizeError
from tilewright.patterns.types import ArrayType, TupleType, Type, dimensions

FLAGS = ("-std=gnu11", "-fopenmp", "-shared", "-fPIC", "-w")
FAST = ("-O3", "-march=native")
COMPILE_SECONDS = 120
TARGETS = ("c",)

Array = np.ndarray[Any, Any]


class Kernel:
    """A program compiled for this machine's CPU.

    Calling it with arrays, in the order of the program's inputs, returns the result.

    Attributes:
        program: the patterns.
        source: the C source.
        code: what the source was printed from.
    """

    def __init__(self, program: n.Pattern, code: Code, source: str, library: Path) -> None:
        self.program, self.type, self.code, self.source = program, type_of(program), code, source
        self.inputs = n.inputs(program)
        self.requirements = requirements(program)
        self._function = getattr(ctypes.CDLL(str(library)), code.name)

    def __call__(
        self, *arrays: Any, threads: int | None = None, sizes: Mapping[str, int] | None = None
    ) -> Any:
        """Run it.

        Args:
            arrays: one for each input.
            threads: cores to use; by default all that this process may use.
            sizes: sizes that no input's shape determines.

        Raises:
            SizeError: arrays or sizes do not fit the program.
            PatternError: arrays of another type, or an impossible number of threads.
        """
        given = conforming(self.inputs, arrays)
        known = bind(self.inputs, given, sizes or {})
        for requirement in self.requirements:
            requirement.check(known)
        missing = [name for name in self.code.sizes if name not in known]
        if missing:
            raise SizeError(
                f"no input's shape gives {missing[0]}: pass sizes={{'{missing[0]}': ...}}"
            )
        outputs = [_empty(buffer, known) for buffer in self.code.outputs]
        held = [_empty(buffer, known) for buffer in scratch(self.code)]
        arguments: list[Any] = [_argument(p, given[p.name]) for p in self.code.inputs]
        arguments += [a.ctypes.data_as(ctypes.c_void_p) for a in [*outputs, *held]]
        arguments += [ctypes.c_long(known[name]) for name in self.code.sizes]
        if self._function(*arguments, ctypes.c_int(_threads(threads))):
            raise MemoryError(f"{self.code.name}: no memory for an intermediate array")
        return _shaped(self.type, iter(outputs), known, ())


def compile(program: n.Pattern, target: str = "c", name: str = "kernel") -> Kernel:
    """Compile a program.

    Args:
        program: patterns that start at their inputs. Maps that no rule decided on run in loops,
            the outermost one on all cores.
        target: ``c``: C with OpenMP.
        name: of the function.

    Raises:
        PatternTypeError: the program is not well typed.
        MappingError: a result needs memory that the program does not name.
        CompileError: there is no C compiler, or it refuses the source.
    """
    if target not in TARGETS:
        raise PatternError(f"target {target!r}; known are {', '.join(TARGETS)}")
    if not name.isidentifier() or not name.isascii():
        raise PatternError(f"name {name!r}; give one of letters and digits")
    code = generate(program, name)
    source = print_c(code)
    return Kernel(program, code, source, built(source))


@cache
def compiler() -> str:
    """The C compiler: that of the environment variable CC, else the first that is found.

    Raises:
        CompileError: there is none.
    """
    named = os.environ.get("CC")
    names = [named] if named else ["gcc", "clang", "cc"]
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        raise CompileError(f"no C compiler ({', '.join(names)}): install gcc or clang, or set CC")
    return found


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tilewright-patterns-")


@cache
def built(source: str, optimisation: tuple[str, ...] = FAST) -> Path:
    """The shared library of a C source, compiled once in this process.

    Raises:
        CompileError: the compiler fails; the message has its first error.
    """
    key = hashlib.sha256(" ".join((*optimisation, source)).encode()).hexdigest()[:16]
    folder = Path(_folder().name)
    text, library = folder / f"{key}.c", folder / f"{key}.so"
    text.write_text(source)
    command = [compiler(), *FLAGS, *optimisation, "-o", str(library), str(text), "-lm"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise CompileError(f"compiling took over {COMPILE_SECONDS} s") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).splitlines()
        said = next((line for line in lines if "error" in line), lines[-1] if lines else "")
        raise CompileError(f"{Path(command[0]).name} refuses the generated code: {said}")
    return library


def _threads(threads: int | None) -> int:
    if threads is None:
        return len(os.sched_getaffinity(0))
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise PatternError(f"threads is {threads!r}; give a whole number from 1")
    return threads


def _argument(p: Buffer | Name, array: Array) -> Any:
    if isinstance(p, Buffer):
        return array.ctypes.data_as(ctypes.c_void_p)
    return np.ctypeslib.as_ctypes_type(p.type.dtype)(array[()].item())


def _empty(buffer: Buffer, known: Mapping[str, int]) -> Array:
    return np.empty(buffer.size.evaluate(known), buffer.type.dtype)


def _shaped(
    kind: Type, flat: Iterator[Array], known: Mapping[str, int], outer: tuple[Poly, ...]
) -> Any:
    """Flat arrays in the shapes of a type, tuples as tuples of arrays."""
    lengths, item = dimensions(kind)
    if isinstance(item, TupleType):
        return tuple(_shaped(part, flat, known, (*outer, *lengths)) for part in item.items)
    assert not isinstance(item, ArrayType)
    shape = [length.evaluate(known) for length in (*outer, *lengths)]
    return next(flat).reshape(shape)
