"""``tilewright machine``: a description of this computer, or of a GPU known by name."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli import arguments, options
from tilewright.cli.output import present
from tilewright.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.machines import Calibration, CpuMachine, GpuCalibration, GpuMachine

# Note on quantities whose measurements differ every time.
DOUBTFUL = "did not settle, not used"


def add_parser(commands: Any) -> None:
    """Add the command to `commands`, the subparsers of the command line."""
    parser = commands.add_parser(
        "machine",
        example="tilewright machine --json -o machine.json",
        help="describe this machine or a GPU",
        description="Describe this machine's CPU and GPUs, or a GPU known by name.",
        run=run,
    )
    options.add_options(
        parser.add_mutually_exclusive_group(),
        {
            "--gpu NAME": "describe this GPU instead, such as h100, or one in a JSON file",
            "--list": "list the GPUs known by name",
            "--bandwidth": "measure the CPU's memory bandwidth (half a second)",
            "--calibrate": "measure the rates of this CPU that the cost model uses (up to 20 "
            "seconds), for schedule and compare",
        },
    )
    options.add_options(
        parser,
        {
            "--calibrate-gpu RECORDS": "fit the time model of GPUs to measured schedules, a file "
            "of JSON lines with program, schedule and seconds (or cycles): those of the GPU that "
            "--gpu names, or of this computer's",
            **options.JSON,
            "-o --output FILE.json": "write the description as JSON, for --machine; - prints it",
            **options.QUIET,
        },
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    import json

    from tilewright.machines import (
        detect_cpu,
        detect_gpus,
        gpu,
        gpu_names,
        machine_to_dict,
        opencl_failure,
    )

    arguments.check_outputs(args)
    if args.output and (args.list or args.calibrate):
        raise TilewrightError(
            "-o writes the description of a machine: leave it out with --list and --calibrate"
        )
    if args.calibrate_gpu:
        if args.output:
            raise TilewrightError(
                "-o writes the description of a machine: leave it out with --calibrate-gpu"
            )
        if args.list or args.bandwidth or args.calibrate:
            raise TilewrightError(
                "--calibrate-gpu fits the model of one GPU: with it give only --gpu"
            )
        return calibrate_gpu(args.calibrate_gpu, args.gpu, args.json, args.quiet)
    if args.list:
        names = gpu_names()
        print(json.dumps(names) if args.json else "\n".join(f"{n:14} {gpu(n).name}" for n in names))
        return 0
    if args.gpu:
        machine = named_gpu(args.gpu)
        present(args, machine_to_dict(machine), gpu_text(machine))
        return 0
    cpu = detect_cpu()
    if args.calibrate:
        return calibrate(cpu, args.json, args.quiet)
    if args.bandwidth:
        from tilewright.machines import with_bandwidth

        cpu = with_bandwidth(cpu)
    gpus = detect_gpus()
    data = {"cpu": machine_to_dict(cpu), "gpus": [machine_to_dict(g) for g in gpus]}
    text = "\n\n".join([cpu_text(cpu), *(gpu_text(g) for g in gpus)])
    if not gpus and not args.quiet:
        text += f"\n\nNo CUDA GPU found, and {opencl_failure()}."
    present(args, data, text)
    return 0


def calibrate(cpu: CpuMachine, as_json: bool, quiet: bool) -> int:
    """Measure the CPU, print the result and keep it."""
    from tilewright.halide.calibration import calibrate as measured
    from tilewright.machines import calibration_to_json, processor_key, write_calibration
    from tilewright.records import calibration_path

    found = measured(cpu)
    path = calibration_path(processor_key(cpu))
    # Printed first, so that an error while writing the file loses no result.
    print(calibration_to_json(found).strip() if as_json else calibration_text(found))
    write_calibration(path, found)
    _written(path, as_json or quiet)
    return 0


def _written(path: Path, quiet: bool) -> None:
    """Print where a calibration is kept and which commands use it."""
    if not quiet:
        print(f"\nwritten to {path}; schedule and compare use it from now on")


def named_gpu(name: str) -> GpuMachine:
    """Return a GPU by its name, or from a JSON file."""
    from tilewright.machines import GpuMachine

    machine = arguments.named_machine(name)
    if not isinstance(machine, GpuMachine):
        raise TilewrightError(f"{name} describes a CPU, and --gpu wants a GPU")
    return machine


def calibrate_gpu(records: str, name: str | None, as_json: bool, quiet: bool) -> int:
    """Fit the time model of a GPU, print the result and keep it."""
    from tilewright.halide.calibration import calibrate_gpu as fitted
    from tilewright.machines import (
        detect_cuda,
        gpu_calibration_to_json,
        gpu_key,
        write_gpu_calibration,
    )
    from tilewright.records import calibration_path

    if name is None and not detect_cuda():
        raise TilewrightError(
            "no CUDA GPU was found here: name the one of the records, as in --gpu v100 or "
            "--gpu FILE.json"
        )
    machine = detect_cuda()[0] if name is None else named_gpu(name)
    found = fitted(records, machine, recorded_pipeline)
    path = calibration_path(gpu_key(machine))
    # Printed first, so that an error while writing the file loses no result.
    print(gpu_calibration_to_json(found).strip() if as_json else gpu_calibration_text(found))
    write_gpu_calibration(path, found)
    _written(path, as_json or quiet)
    return 0


def recorded_pipeline(program: str, size: Mapping[str, Any]) -> Any:
    """Return the pipeline that a record names: an example, or a file."""
    from tilewright.cli.examples import names, path_of
    from tilewright.cli.pipeline import load_pipeline

    text = str(path_of(program)) if program in names() else program
    return load_pipeline(text, size).pipeline


def gpu_calibration_text(calibration: GpuCalibration) -> str:
    """Format the fitted constants as lines of text."""
    from tilewright.halide.calibration import fitted_numbers

    facts = [
        (name.replace("_", " "), f"{value:.4g} {unit}")
        for name, value, unit in fitted_numbers(calibration)
    ]
    off = f"{calibration.error:.2f}, with the defaults {calibration.default_error:.2f}"
    facts.append(("times off by a factor of", f"{off} (median)"))
    count, programs = calibration.schedules, len(calibration.programs)
    title = f"{calibration.gpu['name']}, fitted to {count} schedules of {programs} programs"
    return _facts(f"CUDA GPU  {title}", facts)


def calibration_text(calibration: Calibration) -> str:
    """Format a calibration as lines of text."""
    names = {
        "clock": ("clock", 1e9, "GHz"),
        "l2_core": ("L2, one core", 1e9, "GB/s"),
        "l2_all": ("L2, all cores", 1e9, "GB/s"),
        "l3_core": ("L3, one core", 1e9, "GB/s"),
        "l3_all": ("L3, all cores", 1e9, "GB/s"),
        "memory_core": ("memory, one core", 1e9, "GB/s"),
        "memory_all": ("memory, all cores", 1e9, "GB/s"),
        "l2_latency": ("L2 latency", 1e-9, "ns"),
        "l3_latency": ("L3 latency", 1e-9, "ns"),
        "memory_latency": ("memory latency", 1e-9, "ns"),
        "gather": ("gathered value", 1e-9, "ns"),
        "fault": ("fresh page of 4 KiB", 1e-6 / 4096, "µs"),
        "task": ("parallel task", 1e-9, "ns"),
        "launch": ("parallel loop", 1e-6, "µs"),
    }
    facts = []
    for name, (label, unit, symbol) in names.items():
        quantity = calibration.quantities.get(name)
        if quantity is not None:
            text = f"{quantity.value / unit:.3g} {symbol}" if quantity.settled else DOUBTFUL
            facts.append((label, text))
    return _facts(f"CPU  {calibration.processor['name']}, measured", facts)


def cpu_text(cpu: CpuMachine) -> str:
    """Format a CPU as lines of text."""
    from tilewright.report import units

    facts = [
        ("cores usable", str(cpu.cores)),
        ("vectors", f"{cpu.vector_bits} bits ({', '.join(cpu.isa)})"),
    ]
    for cache in cpu.caches:
        shared = f", shared by {cache.shared_by}" if cache.shared_by > 1 else ""
        facts.append(
            (
                f"L{cache.level} cache",
                f"{units.size(cache.bytes)}, {cache.line_bytes} B lines{shared}",
            )
        )
    if cpu.memory_bytes:
        facts.append(("memory", units.size(cpu.memory_bytes)))
    if cpu.memory_bandwidth:
        facts.append(("bandwidth", f"{cpu.memory_bandwidth / 1e9:.1f} GB/s (copy, measured)"))
    if cpu.clock_hz:
        facts.append(("clock", f"{cpu.clock_hz / 1e9:.2f} GHz"))
    facts.append(("Halide target", cpu.halide_target))
    if cpu.assumed:
        facts.append(("assumed", ", ".join(cpu.assumed)))
    return _facts(f"CPU  {cpu.name} ({cpu.architecture})", facts)


def gpu_text(gpu: GpuMachine) -> str:
    """Format a GPU as lines of text."""
    from tilewright.report import units

    facts = []
    if gpu.compute_capability:
        facts.append(("compute capability", ".".join(map(str, gpu.compute_capability))))
    shared = units.size(gpu.shared_per_block)
    if gpu.shared_per_block_optin != gpu.shared_per_block:
        shared += f" (opt-in {units.size(gpu.shared_per_block_optin)})"
    facts += [
        ("SMs" if gpu.api == "cuda" else "compute units", str(gpu.sms)),
        ("threads", f"{gpu.max_threads_per_block} per block, {gpu.max_threads_per_sm} per SM"),
        ("warps of", f"{gpu.warp_size} threads"),
        ("blocks", f"{gpu.max_blocks_per_sm} per SM"),
        (
            "registers",
            f"{gpu.registers_per_sm} per SM, at most {gpu.max_registers_per_thread} per thread",
        ),
        ("shared memory", f"{shared} per block, {units.size(gpu.shared_per_sm)} per SM"),
        ("L2 cache", units.size(gpu.l2_bytes)),
    ]
    if gpu.memory_bandwidth:
        facts.append(("bandwidth", f"{gpu.memory_bandwidth / 1e9:.0f} GB/s"))
    if gpu.clock_hz:
        facts.append(("clock", f"{gpu.clock_hz / 1e9:.2f} GHz"))
    if gpu.peak_flops:
        facts.append(("peak", f"{gpu.peak_flops / 1e12:.1f} TFLOP/s single precision"))
    facts.append(("Halide target", gpu.halide_target))
    title = f"CUDA GPU  {gpu.name}" if gpu.api == "cuda" else f"OpenCL device  {gpu.name}"
    return _facts(title, facts)


def _facts(title: str, facts: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in facts)
    return "\n".join([title, *(f"  {name.ljust(width)}  {value}" for name, value in facts)])
