"""Time per Func and group, from Halide's sampling profiler in a measuring worker."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tilewright.halide.execution.runner import Runner
from tilewright.halide.execution.session import Session, Variant
from tilewright.halide.ir.clones import halide_names
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.measure import Candidate, Timing, measure_all

_BUILDER = "tilewright.halide.execution.profiling:Profiled"
# The profiler samples once per millisecond: resolving a percent needs some hundred samples.
_TIMING = Timing(warmup=1, min_samples=3, max_samples=200, seconds=1.0, precision=0.0, verify=False)
_LINE = re.compile(r"^\s+(\S+):\s+([0-9.]+)ms\s+\(\s*[0-9.]+%\)")
_NO_FUNC = frozenset(["halide_malloc", "halide_free", "overhead"])


class Profiled(Runner):
    """The pipeline compiled with the profiler; the payload is that of `Runner`."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        """Compile and bind the pipeline."""
        self._seconds: defaultdict[str, float] = defaultdict(float)
        super().__init__({**payload, "target": f"{payload['target']}-profile"})

    def run(self) -> None:
        """Run once and read the report that Halide prints at the end."""
        lines: list[str] = []
        with printed(lines):
            super().run()
            self.sync()
        for line in lines:
            found = _LINE.match(line)
            if found and found[1] not in _NO_FUNC:
                self._seconds[found[1]] += float(found[2]) / 1e3

    def details(self) -> dict[str, Any]:
        """Return the time of each Func as a share of the time of all Funcs."""
        total = sum(self._seconds.values())
        shares = {name: s / total for name, s in self._seconds.items()} if total else {}
        return {"shares": shares}


@contextmanager
def printed(lines: list[str]) -> Iterator[None]:
    """Collect the lines that Python and C code print during the block in `lines`."""
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        kept = [os.dup(1), os.dup(2)]
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            # Halide prints through Python, which buffers output that does not go to a terminal.
            sys.stdout.flush()
            sys.stderr.flush()
            for number, saved in zip((1, 2), kept, strict=True):
                os.dup2(saved, number)
                os.close(saved)
            file.seek(0)
            lines += file.read().decode("utf-8", "replace").splitlines()


def profile(session: Session, variant: Variant) -> dict[str, float]:
    """Return the share of the running time by Func; empty if it is unknown.

    Funcs with very short times may be missing.
    """
    problem = session.prepare()
    made = problem.candidate(variant)
    clones = () if variant.schedule is None else variant.schedule.clones
    copies = halide_names(problem.algorithm, clones)
    candidate = Candidate(_BUILDER, made.payload, "profile", made.env)
    for _, measurement in measure_all(
        [candidate],
        limits=session.limits,
        timing=_TIMING,
        workers=session.workers,
        deadline=session.deadline,
    ):
        shares: dict[str, float] = measurement.details.get("shares", {})
        return {copies.get(name, name): share for name, share in shares.items()}
    return {}


def group_seconds(
    planned: PlannedSchedule, shares: Mapping[str, float], seconds: float
) -> tuple[float | None, ...]:
    """Return the time of each group, from the shares of its Funcs in a run of `seconds` seconds.

    The profiler does not distinguish stages. If a Func's stages are separate groups, the first one
    gets the Func's time and the others None.
    """
    found: list[float | None] = []
    seen: set[str] = set()
    for group in planned.groups:
        new = [name for name in group.funcs if name not in seen]
        seen.update(new)
        found.append(sum(shares.get(name, 0.0) for name in new) * seconds if new else None)
    return tuple(found) if any(found) else (None,) * len(found)
