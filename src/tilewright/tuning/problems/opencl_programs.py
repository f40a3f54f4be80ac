"""An OpenCL matrix product with work-group sizes to tune, on PoCL or any other driver.

It has hidden constraints: a driver rejects work-groups that do not divide the range, that are too
large, or that need more local memory than there is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.machines import load_opencl
from tilewright.measure import VerifyResult
from tilewright.tuning.problems.measured import MeasuredProblem, compared
from tilewright.tuning.space.parameters import Categorical, Ordinal
from tilewright.tuning.space.space import Space

_SOURCE = Path(__file__).parent / "sources" / "matmul.cl"


def opencl_matmul(size: int = 192) -> MeasuredProblem:
    """Return the product of square matrices: work-group sizes, outputs per thread, staging."""
    space = Space(
        [
            Ordinal("wx", (1, 8, 16, 32, 64), scale="log", default=16),
            Ordinal("wy", (1, 2, 4, 8), scale="log", default=4),
            Ordinal("tx", (1, 2, 4), scale="log", default=1),
            Ordinal("ty", (1, 2, 4), scale="log", default=1),
            Categorical("staged", (False, True), default=False),
        ]
    )
    preload = ("numpy", __name__)
    return MeasuredProblem(
        "opencl_matmul", space, f"{__name__}:OpenClLaunch", {"size": size}, preload
    )


class OpenClLaunch:
    """The kernel built for a configuration, in a worker."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        """Take ``{"size": rows, "configuration": choices}``.

        Raises:
            OpenclError: no OpenCL platform works here.
            TilewrightError: pyopencl is missing.
            pyopencl.Error: the driver refuses the kernel.
        """
        platform = load_opencl()
        os.environ["PYOPENCL_NO_CACHE"] = "1"
        try:
            import pyopencl as cl
        except ImportError as error:
            raise TilewrightError(f"{error}: pip install 'tilewright[opencl]'") from None
        named = [p for p in cl.get_platforms() if platform.name in p.name]
        if not named:
            raise TilewrightError(f"pyopencl does not find {platform.name}, which works here")
        devices = named[0].get_devices()
        choices, size = payload["configuration"], int(payload["size"])
        context = cl.Context(devices[:1])
        self._queue = cl.CommandQueue(context)
        rng = np.random.default_rng(0)
        left, right = (rng.random((size, size), dtype=np.float32) for _ in "ab")
        self._expected = left @ right
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        a, b = (cl.Buffer(context, flags, hostbuf=matrix) for matrix in (left, right))
        self._c = cl.Buffer(context, cl.mem_flags.READ_WRITE, left.nbytes)
        options = [f"-D{name.upper()}={int(value)}" for name, value in choices.items()]
        program = cl.Program(context, _SOURCE.read_text())
        program.build([*options, f"-DN={size}"])
        self._kernel = cl.Kernel(program, "product")
        self._kernel.set_args(a, b, self._c)
        self._kept = (a, b)  # the kernel does not keep its arguments
        self._whole = (size // choices["tx"], size // choices["ty"])
        self._group = (choices["wx"], choices["wy"])

    def run(self) -> None:
        """Launch it once."""
        import pyopencl as cl

        cl.enqueue_nd_range_kernel(self._queue, self._kernel, self._whole, self._group)
        self.sync()

    def sync(self) -> None:
        """Wait for what was launched."""
        self._queue.finish()

    def verify(self) -> VerifyResult:
        """Return whether the answer is NumPy's."""
        import pyopencl as cl

        self.run()
        found = np.empty_like(self._expected)
        cl.enqueue_copy(self._queue, found, self._c)
        self._queue.finish()
        return VerifyResult(*compared(found, self._expected, 1e-4))
