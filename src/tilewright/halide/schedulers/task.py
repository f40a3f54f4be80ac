"""The task of a scheduler: pipeline, target and machine."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.halide.emit.apply import halide_target
from tilewright.halide.frontend.source import load_sizes
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.names import readable
from tilewright.halide.ir.targets import is_gpu, vector_bits
from tilewright.halide.legality.rounded_constants import rounded_constant
from tilewright.machines import (
    Calibration,
    CpuMachine,
    GpuCalibration,
    GpuMachine,
    detect_cpu,
    detect_cuda,
    detect_opencl,
    gpu,
    gpu_key,
    gpu_names,
    opencl_failure,
    processor_key,
    read_calibration,
    read_gpu_calibration,
)
from tilewright.records import calibration_path

Machine = CpuMachine | GpuMachine
Estimates = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None


# Instruction set extensions with registers of 256 and of 512 bits.
_AVX = ("avx", "avx2", "fma", "f16c")
_AVX512 = ("avx512",)


@dataclass(frozen=True)
class Task:
    """A pipeline, a Halide target, and a machine with that target.

    Attributes:
        algorithm: the pipeline with its estimates; for several sizes, with the largest size.
        target: a Halide target string.
        machine: the machine to schedule for.
        name: the name of the pipeline in reports.
        exact_sizes: schedules must only be correct at the estimated sizes.
        calibration: measured rates of a CPU; None: defaults of its family.
        smaller: the pipeline with further sizes, in descending order.
        gpu_calibration: constants fitted to a GPU; None: constants fitted to simulations.
    """

    algorithm: Algorithm
    target: str
    machine: Machine
    name: str
    exact_sizes: bool = False
    calibration: Calibration | None = None
    smaller: tuple[Algorithm, ...] = ()
    gpu_calibration: GpuCalibration | None = None

    @property
    def sizes(self) -> tuple[Algorithm, ...]:
        """The algorithm with each size to schedule for, largest first."""
        return self.algorithm, *self.smaller

    @property
    def gpu(self) -> bool:
        """Whether the target is a GPU."""
        return is_gpu(self.target)

    @property
    def machine_text(self) -> str:
        """A short description of the machine."""
        if isinstance(self.machine, GpuMachine):
            return self.machine.name
        cores = self.machine.cores
        return f"{self.machine.name}, {cores} {'core' if cores == 1 else 'cores'}"

    @cached_property
    def present(self) -> bool:
        """Whether this computer has the target's device, so that schedules can be run."""
        return not self.gpu or bool(_detect(_api(self.target)))

    def must_run(self, purpose: str) -> None:
        """Raise `TilewrightError` if pipelines cannot be run on the target here."""
        if not self.present:
            raise TilewrightError(
                f"{purpose} runs the pipeline, but there is no device here for the target "
                f"{self.target!r}: use mode='oneshot' without verify, or a computer that has one"
                + _why(_api(self.target))
            )


def make_task(
    pipeline: Any,
    *,
    target: str | None = None,
    machine: Machine | str | None = None,
    estimates: Estimates = None,
    keep_schedule: bool = False,
    discard_schedule: bool = False,
    exact_sizes: bool = False,
    name: str = "",
    calibration: bool = False,
) -> Task:
    """Return the task: read the pipeline and determine target and machine.

    Args:
        pipeline: the pipeline, in any form that `load` accepts.
        target: ``host``, ``cuda``, ``opencl`` or a Halide target string; by default the target of
            `machine`.
        machine: a machine or the name of a GPU; by default this computer's CPU or GPU.
        estimates: missing sizes and values. A sequence of such mappings requests one schedule with
            separate loop nests for several sizes.
        keep_schedule: keep the schedule of the pipeline's Funcs.
        discard_schedule: remove the schedule of the pipeline's Funcs.
        exact_sizes: schedules must only be correct at the estimated sizes.
        name: the name in reports; by default from the pipeline.
        calibration: use the stored calibration of the CPU or GPU, if there is one.

    Raises:
        TilewrightError: target and machine do not fit, the target is a GPU that is neither given
            nor present, or constants would lose digits in its kernels; also the errors of `load`.
    """
    if isinstance(machine, str):
        machine = gpu(machine)
    target, machine = _settle(target, machine)
    several = [estimates or {}] if isinstance(estimates, Mapping | None) else list(estimates)
    algorithm, *smaller = load_sizes(
        pipeline,
        several,
        keep_schedule=keep_schedule,
        discard_schedule=discard_schedule,
    )
    if "opencl" in target.split("-"):
        _keeps_constants(algorithm)
    measured, fitted = None, None
    if calibration and isinstance(machine, CpuMachine):
        measured = stored_calibration(machine)
    elif calibration and isinstance(machine, GpuMachine):
        fitted = read_gpu_calibration(calibration_path(gpu_key(machine)), machine)
    if isinstance(machine, CpuMachine):
        machine = compiled_for(machine, target)
    name = name or name_of(pipeline) or readable(algorithm.outputs[0])
    return Task(algorithm, target, machine, name, exact_sizes, measured, tuple(smaller), fitted)


def compiled_for(machine: CpuMachine, target: str) -> CpuMachine:
    """Return the machine, limited to the vectors that code for the target may use."""
    bits = vector_bits(target)
    if bits is None or machine.vector_bits <= bits:
        return machine
    wider = {512: (), 256: _AVX512, 128: (*_AVX512, *_AVX)}[bits]
    isa = tuple(name for name in machine.isa if name not in wider)
    return replace(machine, isa=isa, vector_bits=bits)


def stored_calibration(machine: CpuMachine) -> Calibration | None:
    """Return the stored calibration of a processor; None if there is none.

    Raises `TilewrightError` if the file cannot be read or belongs to another processor.
    """
    return read_calibration(calibration_path(processor_key(machine)), machine)


def _settle(target: str | None, machine: Machine | None) -> tuple[str, Machine]:
    if target is None:
        target = machine.api if isinstance(machine, GpuMachine) else "host"
    api = _api(target) if is_gpu(target) else None
    if target not in ("host", "cuda", "opencl"):
        halide_target(target)  # raises if Halide does not know it; slow for a GPU
    if api is None:
        if isinstance(machine, GpuMachine):
            raise TilewrightError(
                f"the machine is a GPU ({machine.name}), but the target is {target!r}: "
                f"give the target {machine.api!r}"
            )
        return target, machine or detect_cpu()
    if isinstance(machine, CpuMachine):
        raise TilewrightError(
            f"the machine is a CPU, but the target is {target!r}: give a GPU, or the target 'host'"
        )
    if machine is None:
        present = _detect(api)
        if not present:
            raise TilewrightError(
                f"there is no {api} device here: give the machine to schedule for, one of "
                f"{', '.join(gpu_names())}" + _why(api)
            )
        machine = present[0]
    if machine.api != api:
        raise TilewrightError(
            f"{machine.name} is a device for {machine.api}, but the target is {target!r}: give the "
            f"target {machine.api!r}"
        )
    return machine.halide_target if target == api else target, machine


def _keeps_constants(algorithm: Algorithm) -> None:
    """Raise `TilewrightError` if a constant loses digits in OpenCL kernels."""
    found = rounded_constant(algorithm)
    if found is not None:
        func, value = found
        raise TilewrightError(
            f"{readable(func.name)} uses the 64-bit constant {value!r}, which Halide rounds to 32 "
            "bits in OpenCL kernels: read it from an input (halide.ImageParam), or give the target "
            "'cuda' or 'host'"
        )


def _detect(api: str) -> list[GpuMachine]:
    return detect_cuda() if api == "cuda" else detect_opencl()


def _why(api: str) -> str:
    """Return why there is no device, as the end of a sentence, if that is known."""
    failure = opencl_failure() if api == "opencl" else None
    return f"; {failure}" if failure else ""


def _api(target: str) -> str:
    for api in ("cuda", "opencl"):
        if api in target.split("-"):
            return api
    raise TilewrightError(
        f"the GPU interface of the target {target!r} is not supported: Tilewright schedules for "
        "CPUs, cuda and opencl"
    )


def name_of(pipeline: Any) -> str:
    """Return the name of a pipeline's file or class; empty if it has neither."""
    if isinstance(pipeline, str | os.PathLike):
        text = os.fspath(pipeline)
        return text.rpartition(":")[2] if ".py:" in text else Path(text).stem
    if inspect.isclass(pipeline):
        return pipeline.__name__
    return ""
