"""Violations of a schedule, and the limits of a device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """A reason why a schedule is rejected.

    `kind` is a fixed word that programs can test. `message` is a sentence that explains the problem
    of Func `func` and, where there is one, the cure. `stage` is None if the problem concerns the
    whole Func.
    """

    kind: str
    func: str
    stage: int | None
    message: str

    def __str__(self) -> str:
        """Return the Func, the stage and the reason."""
        where = self.func if self.stage in (None, 0) else f"{self.func}, update {self.stage - 1}"
        return f"{where}: {self.message}"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a device: threads and bytes of shared memory per block, blocks in x, y, z."""

    threads_per_block: int = 1024
    shared_memory_bytes: int | None = None
    grid: tuple[int, int, int] = (2**31 - 1, 65_535, 65_535)
