"""The launches of a schedule on a device, each with its time.

With the target feature ``debug``, Halide's runtime waits for the device after each launch and
prints the launch and its time, in the same form on CUDA and OpenCL. A measuring worker reads this
output. Each time includes some microseconds for launching and waiting.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.halide.execution.profiling import printed
from tilewright.halide.execution.runner import Runner
from tilewright.halide.execution.session import Session, Variant
from tilewright.halide.ir.plan import GroupReport
from tilewright.measure import Candidate, Measurement, Timing, measure_all

_BUILDER = "tilewright.halide.execution.launches:Traced"
_TIMING = Timing(warmup=1, min_samples=3, max_samples=5, seconds=1.0, sample_seconds=0.0,
                 verify=False)  # fmt: skip
_LAUNCH = re.compile(
    r"halide_(?:cuda|opencl)_run \(.*entry: (\S+), blocks: (\d+)x(\d+)x(\d+), "
    r"threads: (\d+)x(\d+)x(\d+), shmem: (\d+)"
)
_TIME = re.compile(r"Time: ([0-9.e+-]+) ms\s*$")
_NEXT = re.compile(r"^(CL: |CUDA: |Exiting Pipeline)")


@dataclass(frozen=True, slots=True)
class Launched:
    """One launch: kernel name, blocks, threads per block, bytes of shared memory, and seconds."""

    kernel: str
    blocks: tuple[int, int, int]
    threads: tuple[int, int, int]
    shared_bytes: int
    seconds: float | None = None

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Launched:
        """Return the launch in JSON data of `Traced.details`."""
        x, y, z = data["blocks"]
        tx, ty, tz = data["threads"]
        return Launched(
            data["kernel"], (x, y, z), (tx, ty, tz), data["shared_bytes"], data["seconds"]
        )


def parse(lines: Iterable[str]) -> list[Launched]:
    """Return the launches in the runtime's output, where a time follows each launch.

    A launch has no time if the clock was set back while it ran.
    """
    found: list[Launched] = []
    inside = False
    for line in lines:
        launch = _LAUNCH.search(line)
        if launch:
            bx, by, bz, tx, ty, tz, shared = (int(launch[i]) for i in range(2, 9))
            found.append(Launched(launch[1], (bx, by, bz), (tx, ty, tz), shared))
            inside = True
            continue
        if _NEXT.match(line):
            inside = False
        time = _TIME.search(line)
        if inside and time:
            # OpenCL prints the time to look up the kernel first: the last time is the launch's.
            # The runtime reads the time of day, which may be set back in between.
            seconds = float(time[1]) / 1e3
            found[-1] = replace(found[-1], seconds=seconds if seconds > 0 else None)
    return found


class Traced(Runner):
    """A schedule with the runtime that prints its launches; the payload is that of `Runner`."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        """Compile and bind the pipeline."""
        self._runs: list[list[Launched]] = []
        super().__init__({**payload, "target": f"{payload['target']}-debug"})

    def run(self) -> None:
        """Run once and read the launches that the runtime prints."""
        lines: list[str] = []
        with printed(lines):
            super().run()
            self.sync()
        self._runs.append(parse(lines))

    def details(self) -> dict[str, Any]:
        """Return the launches of a run in order, each with its shortest time over all runs."""
        launches = [
            {
                "kernel": first.kernel,
                "blocks": list(first.blocks),
                "threads": list(first.threads),
                "shared_bytes": first.shared_bytes,
                "seconds": min((x.seconds for x in same if x.seconds is not None), default=None),
            }
            for first, *same in ((runs[0], *runs) for runs in zip(*self._runs, strict=False))
        ]
        return {"launches": launches}


def traces(session: Session, variants: Sequence[Variant]) -> list[tuple[list[Launched], str]]:
    """Return (launches on the device, reason if there are none) of each variant.

    All variants are built at once.
    """
    problem = session.prepare()
    candidates = []
    for variant in variants:
        made = problem.candidate(variant)
        key = f"launches of {variant.name}"
        candidates.append(Candidate(_BUILDER, made.payload, key, made.env))
    # By identity: two variants may have equal candidates.
    found = {
        id(candidate): _launches_in(measurement)
        for candidate, measurement in measure_all(
            candidates,
            limits=session.limits,
            timing=_TIMING,
            workers=session.workers,
            deadline=session.deadline,
        )
    }
    missing: tuple[list[Launched], str] = ([], "the time limit was reached")
    return [found.get(id(candidate), missing) for candidate in candidates]


def _launches_in(measurement: Measurement) -> tuple[list[Launched], str]:
    launches = measurement.details.get("launches", [])
    why = "" if measurement.ok else f"{measurement.status}: {measurement.message}"
    return [Launched.from_json(item) for item in launches], why


def kernel_of(group: GroupReport, launches: Iterable[Launched]) -> list[Launched]:
    """Return the launches of a group's kernel, identified by Halide's name for it."""
    prefix = f"_kernel_{_flat(group.output)}_s{group.stage}_"
    return [launch for launch in launches if _flat(launch.kernel).startswith(prefix)]


def seconds_by_group(
    groups: Iterable[GroupReport], launches: Iterable[Launched]
) -> tuple[float | None, ...]:
    """Return the device time of each group in seconds; None for groups without launches."""
    by_kernel: defaultdict[str, list[Launched]] = defaultdict(list)
    for launch in launches:
        by_kernel[launch.kernel].append(launch)
    found: list[float | None] = []
    for group in groups:
        own = kernel_of(group, (launch for same in by_kernel.values() for launch in same))
        times = [launch.seconds for launch in own if launch.seconds is not None]
        found.append(sum(times) if times else None)
    return tuple(found)


def _flat(name: str) -> str:
    """Return a name without special characters, for comparison with names of kernels."""
    return re.sub(r"[\W_]+", "_", name)
