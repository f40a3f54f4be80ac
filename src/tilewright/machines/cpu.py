"""The description of a CPU: the immutable `CpuMachine`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cache:
    """One data or unified cache of `bytes` in total, shared by `shared_by` hardware threads."""

    level: int
    bytes: int
    line_bytes: int
    shared_by: int


@dataclass(frozen=True, slots=True)
class CpuMachine:
    """One CPU as a scheduler sees it; sizes in bytes.

    `cores` are the hardware threads that this process may use (affinity and container limits
    considered). `isa` holds the vector extensions that matter here (``sse4.1``, ``avx``, ``avx2``,
    ``fma``, ``f16c``, ``avx512``, ``neon``, ``sve``), `vector_bits` the width of the widest
    registers among them. `caches` are ordered by level. `clock_hz` and `memory_bandwidth` (bytes
    per second, read and written together) are None where unknown. `vendor`, `family` and `model`
    are the processor's identification (on Arm the implementer and the part). `assumed` names the
    fields that could not be detected and hold a common value instead.
    """

    name: str
    architecture: str
    cores: int
    isa: tuple[str, ...]
    vector_bits: int
    caches: tuple[Cache, ...]
    memory_bytes: int | None = None
    clock_hz: float | None = None
    memory_bandwidth: float | None = None
    halide_target: str = "host"
    assumed: tuple[str, ...] = ()
    vendor: str = ""
    family: int | None = None
    model: int | None = None

    def cache(self, level: int) -> Cache | None:
        """Return the data or unified cache of that level, or None."""
        return next((c for c in self.caches if c.level == level), None)

    def cache_bytes(self, level: int) -> int:
        """Size of a level's cache, 0 if there is none."""
        found = self.cache(level)
        return found.bytes if found else 0

    def cache_bytes_per_core(self, level: int) -> int:
        """Return a hardware thread's share of a level's cache, 0 if there is none."""
        found = self.cache(level)
        return found.bytes // max(1, min(found.shared_by, self.cores)) if found else 0

    @property
    def last_level_bytes(self) -> int:
        """Size of the largest cache, 0 if none is known."""
        return max((c.bytes for c in self.caches), default=0)

    @property
    def line_bytes(self) -> int:
        """Size of a line of the first-level cache, 64 where none is known."""
        return self.caches[0].line_bytes if self.caches else 64

    def lanes(self, bits: int) -> int:
        """Return the number of elements of `bits` bits in one vector register, at least 1.

        >>> CpuMachine("x", "x86-64", 1, ("avx2",), 256, ()).lanes(32)
        8
        """
        return max(1, self.vector_bits // bits)
