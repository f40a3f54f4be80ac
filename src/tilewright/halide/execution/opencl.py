"""An OpenCL driver from wheels: PoCL, which runs GPU schedules on the CPU.

The ``opencl`` extra installs ``pyopencl`` (with an OpenCL loader) and
``pocl-binary-distribution`` (with PoCL). Halide's runtime looks for OpenCL symbols in the
process before it looks for a system library, so that loading that loader globally is enough.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from pathlib import Path


def load_pocl() -> bool:
    """Make PoCL the OpenCL driver of this process, if its wheels are installed.

    Call it before anything of Halide runs for an OpenCL target. Returns whether at least one
    OpenCL platform is there afterwards.
    """
    # The module is looked for, not imported: it is the libraries beside it that are wanted.
    spec = importlib.util.find_spec("pyopencl")
    if spec is None or spec.origin is None:
        return False
    package = Path(spec.origin).parent
    loaders = sorted((package / ".libs").glob("libOpenCL*.so*"))
    drivers = sorted((package / ".libs").glob("libpocl*.so*"))
    if not loaders or not drivers:
        return False
    # The shipped loader crashes where PYOPENCL_HOME is not set. It takes the name of a driver's
    # library in place of a directory of drivers.
    os.environ["PYOPENCL_HOME"] = str(package)
    os.environ["OCL_ICD_VENDORS"] = str(drivers[0])
    try:
        loader = ctypes.CDLL(str(loaders[0]), mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    count = ctypes.c_uint(0)
    status = loader.clGetPlatformIDs(0, None, ctypes.byref(count))
    return status == 0 and count.value > 0
