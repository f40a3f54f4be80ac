"""Execution on the first OpenCL device, through pyopencl."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from tilewright.patterns import nodes as n
from tilewright.patterns.codegen.code import Code
from tilewright.patterns.codegen.grid import GridKernel
from tilewright.patterns.codegen.limits import size_limits
from tilewright.patterns.errors import CompileError
from tilewright.patterns.kernel import BoundKernel, CompiledPattern, check_index_range


@cache
def context() -> Any:
    """Return the OpenCL context of the first device.

    Raises:
        CompileError: pyopencl is not installed, or finds no device.
    """
    try:
        import pyopencl as cl
    except ImportError:
        raise CompileError("OpenCL needs pyopencl: pip install 'tilewright[opencl]'") from None
    try:
        devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error as error:
        raise CompileError(f"no OpenCL platform was found: {error}") from None
    if not devices:
        raise CompileError("no OpenCL device was found")
    return cl.Context(devices[:1])


def built(source: str, options: tuple[str, ...] = ()) -> Any:
    """Compile a source to a ``pyopencl.Program``.

    Args:
        source: the OpenCL C source.
        options: options of OpenCL's compiler.

    Raises:
        CompileError: no device is found, or its compiler rejects the source.
    """
    import pyopencl as cl

    try:
        return cl.Program(context(), source).build(list(options))
    except cl.RuntimeError as error:
        lines = [line for line in str(error).splitlines() if "error" in line]
        raise CompileError(f"OpenCL refuses the generated code: {lines[:1]}") from None


class OpenCLKernel(CompiledPattern):
    """A program compiled for an OpenCL device: one or more kernels, run in order."""

    def __init__(
        self,
        program: n.Pattern,
        code: Code,
        source: str,
        kernels: tuple[GridKernel, ...],
        built: Any,
    ) -> None:
        super().__init__(program, code, source)
        import pyopencl as cl

        self.kernels, self._limits = kernels, size_limits(code, kernels)
        self._functions = [cl.Kernel(built, kernel.name) for kernel in kernels]

    def __call__(self, *arrays: Any, sizes: Mapping[str, int] | None = None) -> Any:
        """Run the program.

        Args:
            arrays: one array per input.
            sizes: values of sizes that no input's shape determines, by name.

        Raises:
            SizeError: arrays or sizes do not fit the program, or are too large for 32-bit
                indices.
            PatternError: an array has the wrong type.
        """
        bound = self.bound(*arrays, sizes=sizes)
        bound.run()
        return bound.result()

    def bound(self, *arrays: Any, sizes: Mapping[str, int] | None = None) -> BoundKernel:
        """Copy arguments to the device for repeated runs; takes and raises what a call does."""
        import numpy as np
        import pyopencl as cl

        given, known = self.prepare(arrays, sizes)
        check_index_range(self._limits, known)
        made = self.memory(known)
        queue, flags = cl.CommandQueue(context()), cl.mem_flags
        held: dict[str, Any] = {}
        for item in self.code.inputs:
            array = given[item.name]
            held[item.name] = (
                item.type.dtype.type(array[()])
                if array.ndim == 0
                else cl.Buffer(context(), flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=array)
            )
        for buffer, array in made.items():
            held[buffer.name] = cl.Buffer(context(), flags.READ_WRITE, array.nbytes)
        calls = []
        for kernel, function in zip(self.kernels, self._functions, strict=True):
            arguments = [held[item.name] for item in (*kernel.reads, *kernel.writes)]
            arguments += [np.int32(known[name]) for name in kernel.sizes]
            threads = kernel.launch.threads
            total = tuple(g * t for g, t in zip(kernel.grid(known), threads, strict=True))
            calls.append((function, total, threads, arguments))

        def run() -> None:
            for function, total, threads, arguments in calls:
                function(queue, total, threads, *arguments)
            queue.finish()

        def result() -> Any:
            for buffer in self.code.outputs:
                cl.enqueue_copy(queue, made[buffer], held[buffer.name])
            queue.finish()
            return self.result(made, known)

        return BoundKernel(run, result)
