"""CUDA's memory and launches without a GPU: arrays in this process, kernels run thread by thread."""

import ctypes

import numpy as np
from threads import Memory, Run

from tilewright.patterns.codegen import code as c


def launched(kernel, code, known, grid, block, addresses):
    """Run a kernel on the memory that a launch names.

    Args:
        kernel: a `GridKernel`.
        code: that it is of.
        known: the value of every size.
        grid: groups by dimension, as they were launched.
        block: threads in a group.
        addresses: of the values of its arguments.
    """
    assert tuple(grid) == kernel.grid(known)
    assert tuple(block) == kernel.launch.threads
    memory, scalars, views = {}, {}, {}
    items = (*kernel.reads, *kernel.writes)
    for item, address in zip(items, addresses, strict=False):
        kind = np.ctypeslib.as_ctypes_type(item.type.dtype)
        if isinstance(item, c.Name):
            scalars[item.name] = item.type.dtype.type(kind.from_address(address).value)
            continue
        pointer = ctypes.c_void_p.from_address(address).value
        from tilewright.arith import evaluate

        size = int(evaluate(item.size, known))
        views[item] = np.ctypeslib.as_array((kind * size).from_address(pointer))
        memory[item] = Memory(item, size, views[item])
    for name, address in zip(kernel.sizes, addresses[len(items) :], strict=True):
        assert ctypes.c_int32.from_address(address).value == known[name]
    Run(kernel, known, memory, scalars).everything()
    for buffer in kernel.writes:
        views[buffer][:] = memory[buffer].values
