"""Runs the autoschedulers that come with Halide, for comparison.

Their schedules never become results of ours. Each runs in a separate process, from the pipeline's
bytes, with limits on CPU time and memory, and returns the scheduled pipeline as bytes.
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
# Wall time allowed: others may use the machine too.
_PATIENCE = 3.0  # of the CPU time allowed, and
_PATIENCE_SECONDS = 60.0
_LONGEST_COUNT = 100_000  # of automatic names to step over


@dataclass(frozen=True)
class Peer:
    """One of Halide's autoschedulers with the parameters it is given.

    `plugin` is the library's name, `parameters` those of ``halide.AutoschedulerParams``, and
    `env` what its schedules need in the environment, when searching and when compiling.
    """

    name: str
    plugin: str
    parameters: Mapping[str, str] = field(default_factory=dict, hash=False)
    env: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class PeerSchedule:
    """The schedule of a peer for a pipeline.

    `serialized` is the scheduled pipeline if `status` is ``ok``, else None. `cpu_seconds` is the
    CPU time of the search, from bytes to schedule (or until it ended, if it failed), `memory_bytes`
    the largest resident size of its process. `source` is the schedule as C++.
    """

    peer: Peer
    status: Status
    serialized: bytes | None = None
    cpu_seconds: float | None = None
    memory_bytes: int = 0
    message: str = ""
    source: str = ""


# The search of Anderson et al. 2021 as the paper describes it ("hierarchical sampling",
# "freezing low cost stages"): tilings drawn from buckets, cheap decisions frozen after a first
# pass. The plugin has both switched off by default.
AS_PUBLISHED = {"randomize_tilings": "1", "freeze_inline_compute_root": "1"}


def peers(
    target: str, machine: CpuMachine | GpuMachine | None = None, *, published: bool = False
) -> tuple[Peer, ...]:
    """Return the autoschedulers for a target, with the machine's parallelism and cache sizes.

    The plugins' own defaults are made for other machines (16 to 32 cores, 80 SMs).

    Args:
        target: a Halide target.
        machine: the machine to schedule for; required for a GPU.
        published: whether Anderson2021 runs a second time, with the settings of its paper.

    Raises:
        TilewrightError: the target is a GPU and `machine` is not.
    """
    if is_gpu(target):
        if not isinstance(machine, GpuMachine):
            raise TilewrightError("say which GPU the autoschedulers are to schedule for")
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
    """Run each of the peers on the pipeline; yield their schedules as they arrive.

    They get every estimate in `inputs`: serialisation loses those of inputs, scalars and outputs.
    For a peer that crashes or exceeds its limits, the status is yielded. Recorded searches on this
    `machine` are not repeated, unless `remeasure`.
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
    """Return the full path of a plugin in the wheel; Halide finds none by name."""
    import halide as hl

    return Path(hl.__file__).parent / "lib64" / f"libautoschedule_{name.lower()}.so"


class AutoschedulerSearch:
    """One search of an autoscheduler, inside a worker; the payload is that of `_candidate`."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        """Search. The process dies of SIGXCPU when it has used the CPU time it may."""
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
        self._serialized = bytes(hl.serialize_pipeline(live.pipeline))

    def run(self) -> None:
        """Do nothing: the search was the work."""

    def details(self) -> dict[str, Any]:
        """Return the scheduled pipeline, the schedule as C++, and the CPU seconds of the search."""
        return {
            "serialized": base64.b64encode(self._serialized).decode(),
            "source": self._source,
            "cpu_seconds": self._seconds,
        }


def _limit_cpu(seconds: float) -> None:
    used = time.process_time()
    soft = int(used + seconds) + 1
    with contextlib.suppress(ValueError, OSError):  # a lower limit is in force already
        resource.setrlimit(resource.RLIMIT_CPU, (soft, soft + 5))


def _step_over(names: Mapping[str, int]) -> None:
    """Use up Halide's automatic names, which a fresh process would give out again.

    Li2018 fails on a Var that it makes itself if the pipeline has one of the same name.
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
