"""Violations of a schedule, and the limits of a device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """A reason for which a schedule is refused.

    `kind` is one word for programs, `message` a sentence for people that names the Func and
    the cure. `stage` is None where the Func as a whole is meant.
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
