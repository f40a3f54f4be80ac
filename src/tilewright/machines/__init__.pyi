from .calibration import (
    Calibration as Calibration,
    Quantity as Quantity,
    calibration_from_json as calibration_from_json,
    calibration_to_json as calibration_to_json,
    processor_key as processor_key,
    processor_of as processor_of,
    read_calibration as read_calibration,
    write_calibration as write_calibration,
)
from .compute_capability import (
    CapabilityLimits as CapabilityLimits,
    limits as limits,
)
from .cpu import (
    Cache as Cache,
    CpuMachine as CpuMachine,
)
from .detect_cpu import detect_cpu as detect_cpu
from .detect_gpu import (
    detect_cuda as detect_cuda,
    detect_gpus as detect_gpus,
    detect_opencl as detect_opencl,
)
from .gpu_calibration import (
    GpuCalibration as GpuCalibration,
    gpu_calibration_from_json as gpu_calibration_from_json,
    gpu_calibration_to_json as gpu_calibration_to_json,
    gpu_facts as gpu_facts,
    gpu_key as gpu_key,
    read_gpu_calibration as read_gpu_calibration,
    write_gpu_calibration as write_gpu_calibration,
)
from .gpu_machine import (
    GpuMachine as GpuMachine,
    HALIDE_JIT_MAX_REGISTERS as HALIDE_JIT_MAX_REGISTERS,
    cuda_gpu as cuda_gpu,
)
from .gpu_table import (
    gpu as gpu,
    gpu_names as gpu_names,
)
from .serialization import (
    Machine as Machine,
    machine_from_dict as machine_from_dict,
    machine_from_json as machine_from_json,
    machine_to_dict as machine_to_dict,
    machine_to_json as machine_to_json,
)
from .occupancy import (
    BlockLimits as BlockLimits,
    Occupancy as Occupancy,
    block_limits as block_limits,
    max_registers as max_registers,
    occupancy as occupancy,
)
from .bandwidth import with_bandwidth as with_bandwidth
from .opencl import (
    OpenclError as OpenclError,
    load_opencl as load_opencl,
    opencl_failure as opencl_failure,
)
