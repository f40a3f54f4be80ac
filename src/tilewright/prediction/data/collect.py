"""Instances of a kernel measured on this machine: timed, verified, recorded, resumed.

Every instance is drawn from the seed and its index, and is timed after a warm-up, while no other
Tilewright process measures. All instances are timed in two rounds, and those whose quickest samples
differ by more than `AGREE` in further rounds, with new operands. The quickest sample of all counts:
it is the time of the undisturbed kernel. If the wall time is far above the CPU time, or other
processes used the CPUs at the same time, an instance is timed again, up to three times; if all were
disturbed, it is timed once more in the next collection. Failed instances are not tried again.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tilewright.measure import Measurement, RunLimits, Timing, TimingToken, machine_id
from tilewright.prediction.data.instances import drawn_at
from tilewright.prediction.data.isolated import LIMITS, measure_isolated, origin
from tilewright.prediction.data.kernel import Kernel, KernelVariant, Operands
from tilewright.prediction.data.runs import Runs
from tilewright.prediction.data.work import VariantWork, quiet_blas
from tilewright.prediction.errors import PredictionError
from tilewright.records import MeasurementRecord, Records, failed_by_tighter_limits

# Many short samples: data sets have hundreds of instances, most of them below a millisecond.
TIMING = Timing(
    warmup=2, min_samples=5, max_samples=10, seconds=0.04, sample_seconds=0.002, precision=0.006
)
# Maximum number of passes over all instances per measurement. Another tenant of the host may slow a
# virtual machine by up to two times for seconds without taking CPU time from it: only a later
# measurement reveals that.
ROUNDS = 6
# An instance is settled when the quickest samples of two rounds agree to this ratio.
AGREE = 0.01
# Maximum number of instances per worker.
AT_ONCE = 64
REPEATS = 2


@dataclass(frozen=True)
class CollectionProgress:
    """The progress of a collection.

    `done` of `total` measurements; `dirty` of them were repeated; `failed` instances so far.
    """

    kernel: str
    variant: str
    done: int
    total: int
    dirty: int
    failed: int


def collect(
    kernel: Kernel,
    variant: KernelVariant | str,
    count: int = 500,
    seed: int = 0,
    records: Records | None = None,
    *,
    retime: bool = True,
    rounds: int = ROUNDS,
    verify: bool = True,
    timing: Timing = TIMING,
    isolate: bool | None = None,
    limits: RunLimits | None = None,
    deadline: float | None = None,
    keep_interrupted: bool = False,
    on_progress: Callable[[CollectionProgress], object] | None = None,
) -> Runs:
    """Draw instances and measure them; recorded instances are not measured again.

    Instances are verified against the kernel's reference and timed in rounds, as the module's
    docstring says. Each measurement is in the records before the next begins, so that a collection
    that was interrupted continues where it stopped.

    Args:
        kernel: the kernel to measure.
        variant: the implementation, or its name.
        count: the number of instances.
        seed: the seed that the instances are drawn from.
        records: the store of measurements; None stores none.
        retime: whether every instance is measured a second time, in separate rounds between those
            of the first; the difference is the noise floor.
        rounds: the maximum number of rounds.
        verify: whether answers are compared with the reference.
        timing: how an instance is timed.
        isolate: whether each instance is measured in a worker process, so that a crash, a hang or
            exhausted memory affects it only. By default so for compiled variants and users' own
            kernels, if their functions are at the top level of a module.
        limits: limits of time and memory of an instance in a worker process.
        deadline: when to stop, of ``time.monotonic``; the runs are those measured by then.
        keep_interrupted: whether Ctrl-C ends the collection as the deadline does; by default the
            KeyboardInterrupt is raised.
        on_progress: called after every measurement.

    Returns:
        The runs that went well, in the order of their index; those that failed are in
        `Runs.dropped`. The facts have the machine, versions and ``noise``.

    Raises:
        PredictionError: `rounds` is below 1, no run went well, or the variant cannot be used here.
    """
    if rounds < 1:
        raise PredictionError(f"{rounds} rounds measure nothing; at least 1 is needed")
    chosen = kernel.variant(variant) if isinstance(variant, str) else variant
    made_from = _measurable(kernel, chosen, isolate)
    work = _Collection(
        kernel, chosen, seed, records, verify, timing, made_from, limits or LIMITS, retime
    )
    with suppress(KeyboardInterrupt) if keep_interrupted else nullcontext():
        _measure_all(work, seed, count, rounds * (REPEATS if retime else 1), deadline, on_progress)
    return work.runs(count)


def _measurable(
    kernel: Kernel, variant: KernelVariant, isolate: bool | None
) -> dict[str, Any] | None:
    """Return how a worker process recreates the kernel; None if this process measures.

    Raises:
        PredictionError: the variant cannot be used here, or cannot be isolated and has to be.
    """
    usable, why = variant.available()
    if not usable:
        raise PredictionError(f"{kernel.name} by {variant.name} cannot be measured here: {why}")
    if not (variant.isolate if isolate is None else isolate):
        return None
    made_from = origin(kernel, variant)
    if isolate and made_from is None:
        raise PredictionError(
            f"{kernel.name} by {variant.name} cannot be measured in another process: its functions "
            "have to be at the top level of a module"
        )
    return made_from


def _measure_all(
    work: _Collection,
    seed: int,
    count: int,
    repeats: int,
    deadline: float | None,
    on_progress: Callable[[CollectionProgress], object] | None,
) -> None:
    """Measure every instance `repeats` times, unless it is settled or the deadline comes."""
    settled = 0
    with _token() as token, quiet_blas():
        for repeat in range(repeats):
            # A different order every time, so that a drift does not affect the same instances.
            order = np.random.default_rng([seed, repeat]).permutation(count)
            queue = [index for index in order.tolist() if not work.settled(index, repeat)]
            settled += count - len(queue)
            if on_progress is not None and not queue:
                on_progress(work.progress(settled, count * repeats))
            for place in range(len(queue)):
                if deadline is not None and time.monotonic() >= deadline:
                    return
                work.measure(queue[place : place + AT_ONCE], repeat, token)
                if on_progress is not None:
                    on_progress(work.progress(settled, count * repeats))


def measure_once(
    kernel: Kernel,
    variant: KernelVariant,
    operands: Operands,
    settings: Mapping[str, int] | None = None,
    *,
    timing: Timing = TIMING,
) -> Measurement:
    """Verify and time a variant on these operands, as `collect` does; nothing is recorded."""
    work = VariantWork(kernel, variant, True, timing)
    with _token() as token, quiet_blas():
        begun = work.begin(operands, settings or {})
        with _held(token):
            return work.end(begun)


class _Collection:
    """The measurements of one call of `collect`, by index and repeat."""

    def __init__(
        self,
        kernel: Kernel,
        variant: KernelVariant,
        seed: int,
        records: Records | None,
        verify: bool,
        timing: Timing,
        made_from: Mapping[str, Any] | None,
        limits: RunLimits,
        retime: bool,
    ) -> None:
        self.kernel, self.variant, self.seed = kernel, variant, seed
        # rounds of the first and of the second measurement take turns
        self._stride = REPEATS if retime else 1
        self._records, self._verify, self._timing = records, verify, timing
        self._made_from, self._limits = made_from, limits
        self.problem = f"prediction/{kernel.name}/{variant.name}"
        self.machine = machine()
        self.versions = variant.versions()
        self.found: dict[tuple[int, int], Measurement] = {}
        self._ahead: dict[tuple[int, int], Measurement] = {}

    def settled(self, index: int, repeat: int) -> bool:
        """Return whether the earlier rounds settle an instance."""
        earlier = self._rounds(index, range(repeat % self._stride, repeat, self._stride))
        if any(not m.ok for m in earlier):
            return True
        quickest = sorted(min(m.times) for m in earlier)[:2]
        return len(quickest) == 2 and quickest[1] <= (1 + AGREE) * quickest[0]

    def _rounds(self, index: int, repeats: Iterable[int]) -> list[Measurement]:
        return [self.found[index, r] for r in repeats if (index, r) in self.found]

    def measure(self, queue: Sequence[int], repeat: int, token: TimingToken) -> None:
        """Measure the first instance of a queue, or look it up.

        A worker also measures the instances after it.
        """
        index = queue[0]
        if self._known(index, repeat):
            return
        if self._made_from is None:
            measurement = self._here(index, token)
        else:
            if (index, repeat) not in self._ahead:
                wanted = [i for i in queue if i == index or not self._known(i, repeat)]
                made = measure_isolated(
                    self._made_from,
                    wanted,
                    self.seed,
                    verify=self._verify,
                    timing=self._timing,
                    limits=self._limits,
                )
                self._ahead = {(i, repeat): m for i, m in zip(wanted, made, strict=False)}
            measurement = self._ahead.pop((index, repeat))
        self._keep(index, repeat, replace(measurement, machine=machine_id()))

    def _known(self, index: int, repeat: int) -> bool:
        """Take up an instance's measurement from the records; return whether there was one."""
        if self._records is None:
            return False
        configuration = {"seed": self.seed, "index": index, "repeat": repeat}
        known = self._records.lookup(self.problem, configuration, self.machine, self.versions)
        if known is None or not self._settled(known):
            return False
        self.found[index, repeat] = known.measurement
        return True

    def _keep(self, index: int, repeat: int, measurement: Measurement) -> None:
        if self._records is not None:
            configuration = {"seed": self.seed, "index": index, "repeat": repeat}
            context = {"timing": asdict(self._timing)}
            if self._made_from is not None:
                context["limits"] = asdict(self._limits)
            self._records.add(
                MeasurementRecord(
                    self.problem,
                    configuration,
                    self.machine,
                    self.versions,
                    measurement,
                    context,
                )
            )
        self.found[index, repeat] = measurement

    def _here(self, index: int, token: TimingToken) -> Measurement:
        """Measure an instance in this process."""
        instance, settings, operands = drawn_at(self.kernel, self.variant, index, self.seed)
        work = VariantWork(self.kernel, self.variant, self._verify, self._timing)
        begun = work.begin(operands, settings)
        with _held(token):
            measurement = work.end(begun)
        details = {**measurement.details, "features": {**instance, **settings}}
        return replace(measurement, details=details)

    def _settled(self, record: MeasurementRecord) -> bool:
        """Return whether a recorded measurement counts: undisturbed, and verified if required.

        A failure counts, unless it was caused by tighter limits than now, or by Ctrl-C.
        """
        known = record.measurement
        if known.ok:
            return (known.verified or not self._verify) and not known.details.get("dirty")
        if known.details.get("lost"):
            return False
        if known.status == "wrong_answer" and not self._verify:
            return False
        if self._made_from is None or record.context.get("limits") is None:
            return True
        return not failed_by_tighter_limits(record, self._limits)

    def progress(self, settled: int, total: int) -> CollectionProgress:
        """Progress, with `settled` measurements not needed."""
        found = self.found.values()
        repeated = sum(m.details.get("tries", 1) > 1 for m in found)
        failed = len({index for (index, _), m in self.found.items() if not m.ok})
        done = len(found) + settled
        return CollectionProgress(
            self.kernel.name, self.variant.name, done, total, repeated, failed
        )

    def runs(self, count: int) -> Runs:
        """Return the measured runs as a table."""
        features = self.kernel.features_of(self.variant)
        rows, times, retimes, dropped = [], [], [], []
        last = max((repeat for _, repeat in self.found), default=0)
        firsts, seconds = (range(k, last + 1, self._stride) for k in range(REPEATS))
        for index in range(count):
            first = self._rounds(index, firsts)
            if not first:
                continue
            failed = next((m for m in first if not m.ok), None)
            if failed is not None:
                dropped.append(f"instance {index}: {failed.status}: {failed.message}")
                continue
            again = self._rounds(index, seconds) if self._stride == REPEATS else []
            rows.append([float(first[0].details["features"][name]) for name in features])
            times.append(min(min(m.times) for m in first))
            retimes.append(min((min(m.times) for m in again if m.ok), default=math.nan))
        if not rows:
            reason = dropped[0] if dropped else "there was no time for any"
            raise PredictionError(
                f"{self.kernel.name} by {self.variant.name}: no instance was measured; {reason}"
            )
        facts = describe(self.kernel, self.variant)
        facts["seed"] = self.seed
        table = np.array(rows)
        again_array = np.array(retimes)
        both = None if np.isnan(again_array).all() else again_array
        runs = Runs(features, table, np.array(times), both, facts, tuple(dropped))
        facts["noise"] = self._noise(runs)
        return runs

    def _noise(self, runs: Runs) -> dict[str, Any]:
        """Return the noise floor, and how often another process disturbed a measurement."""
        done = [m for m in self.found.values() if m.ok]
        return {
            "floor": runs.floor,
            "repeated": sum(m.details.get("tries", 1) > 1 for m in done),
            "still_dirty": sum(bool(m.details.get("dirty")) for m in done),
            "measurements": len(done),
        }


def describe(kernel: Kernel, variant: KernelVariant) -> dict[str, Any]:
    """Return the facts of a data set: kernel and variant, machine, software."""
    return {
        "kernel": kernel.name,
        "variant": variant.name,
        "complexity": kernel.complexity_of(variant),
        "features": kernel.features_of(variant),
        "dense": variant.storage == "dense",
        "threads": "threads" in variant.settings,
        "machine": machine(),
        "versions": variant.versions(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def machine() -> dict[str, Any]:
    """This machine for the records: processor with the CPUs it may use, and system."""
    return {"processor": machine_id().split(", ", 1)[1], "system": platform.system()}


@contextmanager
def _token() -> Iterator[TimingToken]:
    token = TimingToken()
    try:
        yield token
    finally:
        token.close()


@contextmanager
def _held(token: TimingToken) -> Iterator[None]:
    """Hold the machine's timing token."""
    token.acquire()
    try:
        yield
    finally:
        token.release()
