"""Compilation of programs to functions of NumPy arrays, and to source files."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.arith import Poly
from tilewright.patterns import nodes as n
from tilewright.patterns.check import requirements, type_of
from tilewright.patterns.codegen.c import print_c
from tilewright.patterns.codegen.code import Buffer, Code, Name
from tilewright.patterns.codegen.generate import generate
from tilewright.patterns.codegen.gpu import print_grid
from tilewright.patterns.codegen.grid import GridKernel, ThreadGrid, grid_kernels
from tilewright.patterns.codegen.host import print_header, print_host
from tilewright.patterns.codegen.limits import exceeded, size_limits
from tilewright.patterns.codegen.vectors import multiples, with_vectors
from tilewright.patterns.errors import CompileError, LoweringError, PatternError
from tilewright.patterns.kernel import Array, BoundKernel, CompiledPattern, check_index_range
from tilewright.patterns.places import about, located
from tilewright.patterns.rewriting.lowering import default_grid

FLAGS = ("-std=gnu11", "-fopenmp", "-shared", "-fPIC", "-w")
# Without these flags, GCC does not vectorise loops in which a square root may set errno, a division
# may trap, or a division by a constant cannot become a multiplication. The last flag changes
# results by up to one ulp.
VECTORS = ("-fno-math-errno", "-fno-trapping-math", "-freciprocal-math")
# GCC 12: its cost tables for AMD processors reload a vector in every instruction that reads it;
# jump threading turns nested vector minimums into masks.
GCC = ("-mtune=generic", "-fno-thread-jumps")
FAST = ("-O3", "-march=native", *VECTORS)
COMPILE_SECONDS = 120
TARGETS = ("c", "opencl", "cuda")


class CKernel(CompiledPattern):
    """A program compiled for this machine's CPU."""

    def __init__(self, program: n.Pattern, code: Code, source: str, library: Path) -> None:
        super().__init__(program, code, source)
        self._function = getattr(ctypes.CDLL(str(library)), code.name)

    def __call__(
        self, *arrays: Any, threads: int | None = None, sizes: Mapping[str, int] | None = None
    ) -> Any:
        """Run the program.

        Args:
            arrays: one array per input.
            threads: CPU cores to use; by default all that this process may use.
            sizes: values of sizes that no input's shape determines, by name.

        Raises:
            SizeError: arrays or sizes do not fit the program.
            PatternError: an array has the wrong type, or the number of threads is below 1.
        """
        bound = self.bound(*arrays, threads=threads, sizes=sizes)
        bound.run()
        return bound.result()

    def bound(
        self, *arrays: Any, threads: int | None = None, sizes: Mapping[str, int] | None = None
    ) -> BoundKernel:
        """Bind arguments for repeated runs; arguments and errors are those of a call."""
        cores = ctypes.c_int(_threads(threads))
        given, known = self.prepare(arrays, sizes)
        made = self.memory(known)
        arguments: list[Any] = [_argument(p, given[p.name]) for p in self.code.inputs]
        arguments += [a.ctypes.data_as(ctypes.c_void_p) for a in made.values()]
        arguments += [ctypes.c_long(known[name]) for name in self.code.sizes]

        def run() -> None:
            if self._function(*arguments, cores):
                raise MemoryError(f"{self.code.name}: no memory for an intermediate array")

        return BoundKernel(run, lambda: self.result(made, known))


def compile(
    program: n.Pattern, target: str = "c", name: str = "kernel", launch: ThreadGrid | None = None
) -> Any:
    """Compile a program to a callable `CompiledPattern`.

    Args:
        program: patterns that start at their inputs. In C, maps without a level run in loops, the
            outermost one on all cores. On a grid of threads, a program whose maps have no level
            runs with one thread per element of its outer dimensions.
        target: ``c``: C with OpenMP; ``opencl``: on the first OpenCL device; ``cuda``: on the first
            CUDA GPU.
        name: the name of the function.
        launch: work-groups and threads, instead of the default (`codegen.grid`).

    Raises:
        PatternTypeError: the program is not well typed.
        LoweringError: the target cannot run the levels or memories of the program; the message says
            what to change.
        CompileError: no compiler or device is found, or the compiler rejects the source.
    """
    if target == "c":
        code = generate(program, _name(name))
        text = print_c(code)
        return CKernel(program, code, text, built(text))
    if target == "opencl":
        from tilewright.patterns import opencl

        code, kernels = grid_code(program, name, launch)
        text = print_grid(kernels, target, code.reserved)
        return opencl.OpenCLKernel(program, code, text, kernels, opencl.built(text))
    if target == "cuda":
        from tilewright.patterns import cuda

        code, kernels = grid_code(program, name, launch)
        return cuda.CudaKernel(program, code, print_grid(kernels, target, code.reserved), kernels)
    raise PatternError(f"target {target!r}; known are {', '.join(TARGETS)}")


def source(
    program: n.Pattern, target: str = "c", name: str = "kernel", launch: ThreadGrid | None = None
) -> str:
    """Return the source of a program for one of `TARGETS`; arguments and errors as `compile`."""
    if target not in TARGETS:
        raise PatternError(f"target {target!r}; known are {', '.join(TARGETS)}")
    if target == "c":
        return print_c(generate(program, _name(name)))
    code, kernels = grid_code(program, name, launch)
    return print_grid(kernels, target, code.reserved)


def grid_code(
    program: n.Pattern, name: str, launch: ThreadGrid | None
) -> tuple[Code, tuple[GridKernel, ...]]:
    """Return the code of a program for a grid of threads, and its kernels; errors as `compile`."""
    with about(program):
        code = generate(default_grid(program), _name(name))
    try:
        code.body = with_vectors(code.body, multiples(requirements(program)), code.reserved)
        kernels = grid_kernels(code, launch)
        if wrong := exceeded(size_limits(code, kernels), {}):
            raise LoweringError(wrong)
        return code, kernels
    except LoweringError as error:
        raise LoweringError(located(str(error), program)) from None


def header(program: n.Pattern, name: str = "kernel") -> str:
    """Return a C header that declares ``NAME_run``, which the files of `host` define.

    Raises:
        PatternTypeError: the program is not well typed.
        LoweringError: C cannot run the levels or memories of the program.
    """
    code = generate(program, _name(name))
    said = [f"{b.name}: {b.type} of {b.size} elements" for b in code.outputs]
    return print_header(code, "\n".join([f"{type_of(program)}: {program}", *said]))


def host(
    program: n.Pattern, target: str = "c", name: str = "kernel", launch: ThreadGrid | None = None
) -> str:
    """Return a source file that runs a program without Python: its kernels, and ``NAME_run``.

    The file is C for ``c`` and ``opencl``, CUDA C++ for ``cuda``. `header` declares the function.
    Arguments and errors are those of `source`.
    """
    text = source(program, target, name, launch)
    if target == "c":
        return print_host(generate(program, name), text, target, requirements=requirements(program))
    code, kernels = grid_code(program, name, launch)
    return print_host(code, text, target, kernels, requirements(program))


def launch_sizes(
    program: n.Pattern,
    sizes: Mapping[str, int],
    name: str = "kernel",
    launch: ThreadGrid | None = None,
) -> dict[str, tuple[tuple[int, int, int], tuple[int, int, int]]]:
    """Return `launches` for known sizes.

    Raises:
        SizeError: the sizes are too large for 32-bit indices.
    """
    code, kernels = grid_code(program, name, launch)
    check_index_range(size_limits(code, kernels), sizes)
    return {k.name: (k.grid(sizes), k.launch.threads) for k in kernels}


def launches(
    program: n.Pattern, name: str = "kernel", launch: ThreadGrid | None = None
) -> dict[str, tuple[tuple[Poly, Poly, Poly], tuple[int, int, int]]]:
    """Return the launch of each kernel of a program on a grid of threads.

    Arguments and errors are those of `compile`.

    Returns:
        By kernel name, in the order in which the kernels run: the number of work-groups per
        dimension, in the program's sizes, and the threads of a group per dimension.
    """
    kernels = grid_code(program, name, launch)[1]
    return {kernel.name: (kernel.groups, kernel.launch.threads) for kernel in kernels}


def _name(name: str) -> str:
    if not name.isidentifier() or not name.isascii():
        raise PatternError(
            f"name {name!r}; give a C identifier of ASCII letters, digits and underscores"
        )
    return name


@cache
def compiler() -> str:
    """Return the path of the C compiler: ``$CC`` if it is set, else the first of gcc, clang and cc.

    Raises:
        CompileError: none is installed.
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
def options() -> tuple[str, ...]:
    """Return the optimisation flags: `FAST`, with GCC also `GCC`; errors as `compiler`."""
    command = [compiler(), "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return FAST if "clang" in said.lower() else (*FAST, *GCC)


@cache
def built(source: str, optimisation: tuple[str, ...] | None = None) -> Path:
    """Compile a C source to a shared library, once per process.

    Args:
        source: the C source.
        optimisation: compiler flags; None for `options`.

    Returns:
        The path of the library.

    Raises:
        CompileError: the compiler fails; the message has its first error.
    """
    chosen = options() if optimisation is None else optimisation
    key = hashlib.sha256(" ".join((*chosen, source)).encode()).hexdigest()[:16]
    folder = Path(_folder().name)
    text, library = folder / f"{key}.c", folder / f"{key}.so"
    text.write_text(source)
    command = [compiler(), *FLAGS, *chosen, "-o", str(library), str(text), "-lm"]
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
