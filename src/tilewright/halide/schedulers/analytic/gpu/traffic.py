"""The bytes that the kernels of a schedule move through DRAM, given the size of L2.

L2 is modelled as an LRU cache of Funcs and inputs: a kernel finds the output of the previous one
in L2 if it fits. The schedule is assumed to run repeatedly, so each run starts with the cache as
the previous run left it.

| symbol | meaning | unit |
|---|---|---|
| `kept` | bytes of each Func and input in the cache, the least recently used first | bytes |
| `room` | capacity of the cache | bytes |
| `whole` | size of a Func or input | bytes |
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.halide.schedulers.analytic.gpu.nest_work import HostWork, KernelWork


def memory_traffic(parts: Iterable[KernelWork | HostWork], room: float) -> list[float]:
    """Return the bytes that each part moves through DRAM; 0 for stages on the host.

    Args:
        parts: The kernels and host stages of a schedule, in execution order.
        room: Capacity of L2, in bytes.
    """
    parts = tuple(parts)
    cache = _Cache(room)
    runs: list[list[float]] = []
    for _ in range(2):
        moved = [cache.load(part) if isinstance(part, KernelWork) else 0.0 for part in parts]
        runs.append(moved)
    written = 1.0 - cache.share_kept(cache.touched)
    return [
        loaded + (written * part.written if isinstance(part, KernelWork) else 0.0)
        for part, loaded in zip(parts, runs[-1], strict=True)
    ]


class _Cache:
    """The contents of L2, as bytes of each Func and input."""

    def __init__(self, room: float) -> None:
        self._room = room
        self._kept: dict[str, float] = {}
        self._sizes: dict[str, float] = {}

    @property
    def touched(self) -> float:
        """The total bytes of all Funcs and inputs touched so far."""
        return sum(self._sizes.values())

    def share_kept(self, size: float) -> float:
        """Return the fraction of `size` bytes that stays cached if they are used cyclically."""
        return _returned(self._room, size)

    def load(self, kernel: KernelWork) -> float:
        """Update the cache for a kernel; return the bytes that it loads from DRAM."""
        loaded = 0.0
        for name, (footprint, whole) in kernel.read.items():
            loaded += self._touch(name, min(footprint * kernel.blocks, whole))
        updated = self._touch(kernel.func, kernel.written)
        # An update loads the values that it stores.
        return loaded + (updated if kernel.stage > 0 else 0.0)

    def _touch(self, name: str, size: float) -> float:
        """Use `size` bytes of a Func or input; return the bytes that were not in the cache."""
        held = self._kept.pop(name, 0.0)
        self._kept[name] = max(held, size)
        self._sizes[name] = max(self._sizes.get(name, 0.0), size)
        excess = sum(self._kept.values()) - self._room
        for other in self._kept if excess > 0.0 else ():
            cut = min(self._kept[other], max(excess, 0.0))
            self._kept[other] -= cut
            excess -= cut
        return size * (1.0 - _returned(held, size))


def _returned(held: float, size: float) -> float:
    """Return the fraction of `size` bytes that hits if `held` of them are cached.

    It is 0 up to one half: fetching the missing first part evicts the cached last part.
    """
    return min(max(2.0 * held / size - 1.0, 0.0), 1.0) if size > 0.0 else 1.0
