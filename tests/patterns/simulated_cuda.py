"""CUDA without a GPU: memory is that of this process, kernels run thread by thread."""

import ctypes

import numpy as np
from threads import Memory, Run

from tilewright.arith import evaluate
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
        size = int(evaluate(item.size, known))
        views[item] = np.ctypeslib.as_array((kind * size).from_address(pointer))
        memory[item] = Memory(item, size, views[item])
    for name, address in zip(kernel.sizes, addresses[len(items) :], strict=True):
        assert ctypes.c_int32.from_address(address).value == known[name]
    Run(kernel, known, memory, scalars).everything()
    for buffer in kernel.writes:
        views[buffer][:] = memory[buffer].values


class SimulatedDriver:
    """The functions of the CUDA driver that `patterns.cuda` calls, by their names.

    Args:
        kernels: that may be launched, by their names.
        known: the value of every size.
        gpus: how many there are.
    """

    def __init__(self, kernels, known, gpus=1):
        self.kernels, self.known, self.gpus = kernels, known, gpus
        self.memory, self.launches = {}, []

    def cuInit(self, flags):
        return 0

    def cuDeviceGetCount(self, count):
        count._obj.value = self.gpus
        return 0

    def cuDeviceGet(self, device, ordinal):
        return 0

    def cuDeviceGetAttribute(self, value, attribute, device):
        value._obj.value = {75: 9, 76: 0}[attribute]
        return 0

    def cuDevicePrimaryCtxRetain(self, context, device):
        return 0

    def cuCtxSetCurrent(self, context):
        return 0

    def cuCtxSynchronize(self):
        return 0

    def cuModuleLoadData(self, module, image):
        return 0

    def cuModuleGetFunction(self, function, module, name):
        function._obj.value = 1 + list(self.kernels).index(name.decode())
        return 0

    def cuMemAlloc_v2(self, pointer, size):
        made = ctypes.create_string_buffer(size.value)
        pointer._obj.value = ctypes.addressof(made)
        self.memory[ctypes.addressof(made)] = made
        return 0

    def cuMemFree_v2(self, pointer):
        del self.memory[pointer.value]
        return 0

    def cuMemcpyHtoD_v2(self, to, source, size):
        ctypes.memmove(to.value, source.value, size.value)
        return 0

    def cuMemcpyDtoH_v2(self, to, source, size):
        ctypes.memmove(to.value, source.value, size.value)
        return 0

    def cuLaunchKernel(self, function, *rest):
        shape, (shared, stream, packed, extra) = rest[:6], rest[6:]
        assert (shared, stream, extra) == (0, None, None)
        name = list(self.kernels)[function.value - 1]
        self.launches.append((name, shape))
        kernel = self.kernels[name]
        launched(kernel, None, self.known, shape[:3], shape[3:], list(packed))
        return 0

    def cuGetErrorString(self, status, text):
        text._obj.value = b"out of memory"
        return 0
