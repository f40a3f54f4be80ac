"""Run the autoschedulers that come with Halide, for comparison.

Their schedules are never results of Tilewright. Each search runs in a separate process with limits
on CPU time and memory. It reads the pipeline's bytes and returns the scheduled pipeline as bytes.
"""

from __future__ import annotations

import base64
import contextlib
import re
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.halide.execution.inputs import Inputs
from tilewright.halide.execution.session import versions
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.targets import is_gpu
from tilewright.machines import CpuMachine, GpuMachine, detect_cpu
from tilewright.measure import (
    Candidate,
    Event,
    Measurement,
    RunLimits,
    Status,
    Timing,
    Workers,
)
from tilewright.records import CandidateTrial, Records, measure_recorded

CPU_SECONDS = 120.0
MEMORY_BYTES = 8 << 30

_BUILDER = "tilewright.halide.schedulers.halide_autoschedulers:AutoschedulerSearch"
_ONCE = Timing(warmup=0, min_samples=1, max_samples=1, seconds=0.0, verify=False)
# The limit on wall time is _PATIENCE times the CPU time plus _PATIENCE_SECONDS, because other
# processes may use the machine.
_PATIENCE = 3.0
_PATIENCE_SECONDS = 60.0
_LONGEST_COUNT = 100_000  # maximum number of automatic names to skip


@dataclass(frozen=True)
class Peer:
    """One of Halide's autoschedulers with its parameters.

    `plugin` is the name of the library and `parameters` those of ``halide.AutoschedulerParams``.
    `env` holds environment variables for searching and for compiling its schedules.
    """

    name: str
    plugin: str
    parameters: Mapping[str, str] = field(default_factory=dict, hash=False)
    env: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class PeerSchedule:
    """The schedule of a peer for a pipeline.

    Attributes:
        peer: the autoscheduler.
        status: ``ok``, or how the search failed.
        serialized: the scheduled pipeline if `status` is ``ok``, else None.
        cpu_seconds: CPU time of the search, from bytes to schedule or to the failure.
        memory_bytes: peak resident memory of its process.
        message: the reason for a failure.
        source: the schedule as C++.
        featurization: the plugin's features of the schedule, in the format of its training tools,
            as base64; empty for plugins without features.
    """

    peer: Peer
    status: Status
    serialized: bytes | None = None
    cpu_seconds: float | None = None
    memory_bytes: int = 0
    message: str = ""
    source: str = ""
    featurization: str = ""


# Parameters for the search as published by Anderson et al. 2021: tilings are sampled from buckets
# ("hierarchical sampling"), and cheap decisions are frozen after a first pass ("freezing low cost
# stages"). By default the plugin does neither.
AS_PUBLISHED = {"randomize_tilings": "1", "freeze_inline_compute_root": "1"}


def peers(
    target: str, machine: CpuMachine | GpuMachine | None = None, *, published: bool = False
) -> tuple[Peer, ...]:
    """Return the autoschedulers for a target, with the machine's parallelism and cache sizes.

    The defaults of the plugins are for other machines (16 to 32 cores, 80 SMs).

    Args:
        target: a Halide target.
        machine: the machine to schedule for; required for a GPU.
        published: whether Anderson2021 runs a second time, with the settings of its paper.

    Raises:
        TilewrightError: the target is a GPU and `machine` is not.
    """
    if is_gpu(target):
        if not isinstance(machine, GpuMachine):
            raise TilewrightError(
                f"the target {target!r} needs a machine: give the GPU to schedule for"
            )
        parallelism = {"parallelism": str(machine.sms)}
        shared = {
            "shared_memory_limit_kb": str(machine.shared_per_block >> 10),
            "shared_memory_sm_limit_kb": str(machine.shared_per_sm >> 10),
            "active_block_limit": str(machine.max_blocks_per_sm),
            "active_warp_limit": str(machine.max_warps_per_sm),
        }
        anderson = {**parallelism, **shared}
        paper = Peer("Anderson2021, as published", "Anderson2021", {**anderson, **AS_PUBLISHED})
        return (
            Peer("Li2018", "Li2018", parallelism),
            Peer("Anderson2021", "Anderson2021", anderson),
            *((paper,) if published else ()),
        )
    cpu = machine if isinstance(machine, CpuMachine) else detect_cpu()
    parallelism = {"parallelism": str(cpu.cores)}
    cache = {"last_level_cache_size": str(cpu.last_level_bytes)} if cpu.last_level_bytes else {}
    # Adams 2019 unrolls loops whose extent Halide cannot always prove constant.
    unroll = {"HL_PERMIT_FAILED_UNROLL": "1"}
    return (
        Peer("Mullapudi2016", "Mullapudi2016", {**parallelism, **cache}),
        Peer("Adams2019", "Adams2019", parallelism, unroll),
        Peer("Adams2019, beam 1", "Adams2019", {**parallelism, "beam_size": "1"}, unroll),
        Peer("Li2018", "Li2018", parallelism),
    )


def run_peers(
    algorithm: Algorithm,
    inputs: Inputs,
    chosen: Iterable[Peer],
    *,
    target: str = "host",
    cpu_seconds: float = CPU_SECONDS,
    memory_bytes: int = MEMORY_BYTES,
    records: Records | None = None,
    machine: Mapping[str, Any] | None = None,
    remeasure: bool = False,
    workers: Workers | None = None,
    on_event: Callable[[Event], object] | None = None,
    deadline: float | None = None,
) -> Iterator[PeerSchedule]:
    """Run the chosen peers on the pipeline and yield their schedules as they arrive.

    Peers get all estimates from `inputs`, because serialisation loses those of inputs, scalars and
    outputs. For a peer that crashes or exceeds its limits, the status says so. Searches recorded on
    this `machine` are only repeated with `remeasure`.
    """
    trials = [
        CandidateTrial(
            {**asdict(peer), "target": target, "cpu_seconds": cpu_seconds},
            _candidate(algorithm, inputs, peer, target, cpu_seconds),
            peer,
        )
        for peer in chosen
    ]
    limits = RunLimits(
        build_seconds=_PATIENCE * cpu_seconds + _PATIENCE_SECONDS,
        run_seconds=10.0,
        memory_bytes=memory_bytes,
    )
    for outcome in measure_recorded(
        trials,
        records,
        problem=f"autoschedulers/{algorithm.digest[:32]}/{inputs.digest[:32]}",
        machine=machine or {},
        versions=versions(),
        remeasure=remeasure,
        limits=limits,
        timing=_ONCE,
        preload=(
            "tilewright.halide.execution.runner",
            "tilewright.halide.schedulers.halide_autoschedulers",
        ),
        workers=workers,
        on_event=on_event,
        deadline=deadline,
    ):
        yield _conclude(outcome.trial.tag, outcome.measurement, cpu_seconds)


def _candidate(
    algorithm: Algorithm, inputs: Inputs, peer: Peer, target: str, cpu_seconds: float
) -> Candidate:
    payload = {
        "serialized": algorithm.serialized,
        "inputs": inputs.to_json(),
        "plugin": peer.plugin,
        "parameters": dict(peer.parameters),
        "target": target,
        "cpu_seconds": cpu_seconds,
        "names": _automatic_names(algorithm),
    }
    return Candidate(_BUILDER, payload, peer.name, peer.env)


def _conclude(peer: Peer, measurement: Measurement, cpu_seconds: float) -> PeerSchedule:
    details = measurement.details
    status, message = measurement.status, measurement.message
    used = details.get("cpu_seconds")
    if "SIGXCPU" in message:
        status, message, used = "timeout", f"no schedule in {cpu_seconds:g} CPU seconds", None
    elif status == "timeout":
        message = f"no schedule in {_PATIENCE * cpu_seconds + _PATIENCE_SECONDS:g} seconds"
    elif status == "crashed":
        said = _last_words(measurement.output)
        message = f"{message}: {said}" if said else message
    serialized = details.get("serialized")
    return PeerSchedule(
        peer,
        status,
        None if serialized is None or status != "ok" else base64.b64decode(serialized),
        cpu_seconds if status == "timeout" else used,
        measurement.peak_memory,
        message,
        details.get("source", ""),
        details.get("featurization", ""),
    )


def _last_words(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    said = [line for line in lines if "what():" in line or line.startswith("terminate called")]
    return " ".join(said or lines[-2:])[:300]


def _automatic_names(algorithm: Algorithm) -> dict[str, int]:
    """Return the largest number used per letter of Halide's automatic names (``v1``, ``f3``)."""
    names = {name for f in algorithm.funcs for name in (f.name, *f.args)}
    for func in algorithm.funcs:
        for stage in func.stages:
            names.update(loop.name for loop in stage.loops)
    largest: dict[str, int] = {}
    for name in names:
        match = re.match(r"([a-z])(\d+)", name)
        if match:
            largest[match[1]] = max(largest.get(match[1], 0), int(match[2]))
    return largest


def plugin_path(name: str) -> Path:
    """Return the full path of a plugin in Halide's package; Halide does not find it by name."""
    import halide as hl

    return Path(hl.__file__).parent / "lib64" / f"libautoschedule_{name.lower()}.so"


class AutoschedulerSearch:
    """One search of an autoscheduler in a worker; the payload is that of `_candidate`."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        """Run the search. SIGXCPU ends the process when it exceeds its CPU time."""
        import halide as hl

        from tilewright.halide.execution.binding import deserialize, set_estimates
        from tilewright.halide.execution.runner import prepare_target

        _limit_cpu(payload["cpu_seconds"])
        hl.load_plugin(str(plugin_path(payload["plugin"])))
        target = prepare_target(payload["target"])
        inputs = Inputs.from_json(payload["inputs"])
        began = time.process_time()
        _step_over(payload["names"])
        live = deserialize(payload["serialized"], inputs)
        set_estimates(live, inputs)
        parameters = hl.AutoschedulerParams(payload["plugin"], dict(payload["parameters"]))
        try:
            result = live.pipeline.apply_autoscheduler(target, parameters)
        except hl.HalideError as error:
            error.details = {"cpu_seconds": time.process_time() - began}
            raise
        self._seconds = time.process_time() - began
        self._source = str(result.schedule_source)
        self._featurization = bytes(result.featurization)
        self._serialized = bytes(hl.serialize_pipeline(live.pipeline))

    def run(self) -> None:
        """Do nothing: the search is done in the constructor."""

    def details(self) -> dict[str, Any]:
        """Return the scheduled pipeline, the schedule as C++, its features, and CPU seconds."""
        return {
            "serialized": base64.b64encode(self._serialized).decode(),
            "source": self._source,
            "featurization": base64.b64encode(self._featurization).decode(),
            "cpu_seconds": self._seconds,
        }


def _limit_cpu(seconds: float) -> None:
    used = time.process_time()
    soft = int(used + seconds) + 1
    with contextlib.suppress(ValueError, OSError):  # a lower limit applies already
        resource.setrlimit(resource.RLIMIT_CPU, (soft, soft + 5))


def _step_over(names: Mapping[str, int]) -> None:
    """Use up the automatic names in the pipeline, which Halide would reuse in a fresh process.

    Li2018 fails if it creates a Var with the name of a Var in the pipeline.
    """
    import halide as hl

    makers: dict[str, Callable[[], Any]] = {
        "v": hl.Var,
        "f": hl.Func,
        "r": lambda: hl.RDom([(0, 1)]),
    }
    for letter, largest in names.items():
        if letter in makers:
            for _ in range(min(largest + 2, _LONGEST_COUNT)):
                makers[letter]()
