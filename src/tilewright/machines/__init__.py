"""Machine descriptions of CPUs and GPUs, detection, occupancy arithmetic.

The room in the order in which data flows:

- ``cpu`` and ``gpu_machine``: the descriptions, `CpuMachine` and `GpuMachine`.
- ``compute_capability`` and ``gpu_table``: limits of CUDA's compute capabilities, GPUs by name.
- ``detect_cpu``, ``detect_gpu``, ``opencl``: the machines that are present, and an OpenCL platform
  that works.
- ``bandwidth``: the bandwidth of memory, measured.
- ``calibration``: a processor's measured rates and overheads, and the file that stores them.
- ``gpu_calibration``: the time model's constants fitted to measurements of a GPU, and their file.
- ``occupancy``: the number of a kernel's blocks that an SM holds.
- ``serialization``: machines to and from JSON.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
