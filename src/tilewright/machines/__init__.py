"""What a machine is: CPU and GPU descriptions, detection, occupancy arithmetic.

Occupancy needs NumPy, and so does measuring bandwidth: they are in
`tilewright.machines.occupancy` and `tilewright.machines.bandwidth`.
"""

from tilewright.machines.compute_capability import Limits, limits
from tilewright.machines.cpu import Cache, CpuMachine
from tilewright.machines.detect_cpu import detect_cpu
from tilewright.machines.detect_gpu import detect_cuda, detect_gpus, detect_opencl
from tilewright.machines.gpu import HALIDE_JIT_MAX_REGISTERS, GpuMachine, cuda_gpu
from tilewright.machines.gpu_table import gpu, gpu_names
from tilewright.machines.opencl import OpenclError, load_opencl, opencl_failure
from tilewright.machines.serialization import (
    Machine,
    machine_from_dict,
    machine_from_json,
    machine_to_dict,
    machine_to_json,
)

__all__ = [
    "HALIDE_JIT_MAX_REGISTERS",
    "Cache",
    "CpuMachine",
    "GpuMachine",
    "Limits",
    "Machine",
    "OpenclError",
    "cuda_gpu",
    "detect_cpu",
    "detect_cuda",
    "detect_gpus",
    "detect_opencl",
    "gpu",
    "gpu_names",
    "limits",
    "load_opencl",
    "machine_from_dict",
    "machine_from_json",
    "machine_to_dict",
    "machine_to_json",
    "opencl_failure",
]
