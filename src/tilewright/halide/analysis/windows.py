"""Sliding windows along one serial loop of a block, in the case that is simple enough to be exact.

A block computes a tile and walks it along one dimension in a serial loop. Funcs stored in the block
and computed in that loop compute only new planes per iteration (Halide 21, ``SlidingWindow.cpp``).
The loop starts earlier, so that its first iterations fill the windows. The storage is folded to the
power of two that holds the planes touched in one iteration (``StorageFolding.cpp``)::

    for z in z0 - 1 .. z0 + 16 step 2:                     z0 .. z0 + 16 are the planes of the tile
      a[x, y, z + 1 .. z + 2] = in[x, y, z + 1] + ..       two new planes
      if z >= z0: b[x, y, z .. z + 1] = a[x, y, z - 1] + ..  reads a[z - 1 .. z + 2]: four planes

Each Func must have one reader, in the loop, at constant offsets along the walked dimension. If two
Funcs read it, Halide does not always fold its storage.

| symbol | meaning | unit |
|---|---|---|
| `step` | planes of the host that one iteration computes | coordinates |
| `ahead` | how far the new planes of a Func are ahead of those of the host | coordinates |
| `held` | planes of earlier iterations that an iteration touches | coordinates |
| `extra` | planes that a block computes of a Func beyond those of the host | coordinates |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilewright.halide.analysis.bounds import Access, Bound, Box, Interval, Linear
from tilewright.halide.analysis.loop_ranges import Change, SizedSplit
from tilewright.halide.analysis.nest_structure import StageKey, StageNest
from tilewright.halide.ir.algorithm import Variable, walk
from tilewright.halide.ir.nest import GUARDED
from tilewright.halide.ir.schedule import FuncSchedule, Fuse, Split

if TYPE_CHECKING:
    from tilewright.halide.analysis.scheduled_nest import ScheduledNest

# The largest extent that Halide folds to, in elements (``AttemptStorageFoldingOfFunction``).
MOST_FOLDED = 1024.0


@dataclass(frozen=True, slots=True)
class Reads:
    """The reads of a Func: at `low` to `high` beyond the reader's position, along `dimension`."""

    dimension: int
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Reach:
    """The planes of a Func that slides, along `dimension`: see the table of this module.

    `reader` is the only Func that reads it.
    """

    dimension: int
    ahead: float = 0.0
    held: float = 0.0
    extra: float = 0.0
    reader: str = ""

    def folded(self, step: Bound) -> Bound:
        """Return the extent of the storage."""
        return power_of_two(step + self.held)


@dataclass(frozen=True, slots=True)
class ExactWindow:
    """A Func that slides along a loop.

    Attributes:
        reach: The planes that it computes and keeps.
        loop: The serial loop: the stage of the host, and the name.
        step: Planes per iteration.
        start: Additional iterations of the loop that fill the windows of all Funcs.
        planes: Planes that a block computes.
    """

    reach: Reach
    loop: tuple[StageKey, str]
    step: Bound
    start: Bound
    planes: Bound

    @property
    def dimension(self) -> int:
        """The dimension of the Func along which it slides."""
        return self.reach.dimension

    @property
    def folded(self) -> Bound:
        """The extent of the storage along that dimension."""
        return self.reach.folded(self.step)

    def computed(self, required: Box) -> Box:
        """Return the part of a required box that one iteration computes: its last planes."""
        d = self.dimension
        last = required[d].hi
        return (*required[:d], Interval(last - self.step + 1.0, last), *required[d + 1 :])


def power_of_two(size: Bound) -> Bound:
    """Return the smallest power of two that is at least `size` (at most `MOST_FOLDED`).

    >>> power_of_two(5.0)
    8.0
    """
    array = np.exp2(np.ceil(np.log2(np.clip(np.asarray(size, dtype=np.float64), 1.0, MOST_FOLDED))))
    return float(array) if array.ndim == 0 else array


def reads_along(access: Access, variable: str) -> Reads | None:
    """Return where an access reads along a loop; None if not at constant offsets with step 1."""
    found = None
    for d, forms in enumerate(access.forms):
        if not any(_depends(form, variable) for form, _, _ in forms):
            continue
        if found is not None or len(forms) != 1:
            return None
        form, low, high = forms[0]
        terms = [(atom, factor) for atom, factor in form.terms if factor]
        if len(terms) != 1 or not isinstance(terms[0][0], Variable) or terms[0][1] != 1.0:
            return None
        found = Reads(d, float(low), float(high))
    return found


def _depends(form: Linear, variable: str) -> bool:
    nodes = walk(*(atom for atom, factor in form.terms if factor))
    return any(isinstance(node, Variable) and node.name == variable for node in nodes)


def reaches(
    names: Iterable[str],
    host: tuple[str, int],
    readers: Callable[[str], Iterable[str]],
    reads: Callable[[str, str, int], Reads | None],
) -> dict[str, Reach]:
    """Return the reach of every Func that can slide; a Func with several readers cannot.

    Args:
        names: The Funcs to slide, readers first.
        host: The Func that has the loop, and the dimension that the loop walks along.
        readers: Returns the Funcs that read a Func.
        reads: Returns how a reader reads a Func along a dimension of the reader.
    """
    found = {host[0]: Reach(host[1])}
    for name in names:
        own = list(readers(name))
        if len(own) != 1 or own[0] not in found:
            continue
        reader = found[own[0]]
        span = reads(own[0], name, reader.dimension)
        if span is not None:
            ahead = reader.ahead + span.high
            held = max(span.high - span.low, 0.0)
            extra = reader.extra + span.high - span.low
            found[name] = Reach(span.dimension, ahead, held, extra, own[0])
    del found[host[0]]
    return found


def exact(found: Mapping[str, Reach], step: Bound) -> bool:
    """Return whether Halide folds the storage of all Funcs that slide in steps of `step` planes.

    The windows of the Funcs that others read must be filled by whole iterations. Otherwise, the
    first iteration computes fewer planes, and Halide cannot always bound what it reads.
    """
    inner = [found[reach.reader].extra for reach in found.values() if reach.reader in found]
    return all(bool(np.all(np.mod(extra, step) == 0.0)) for extra in inner)


def starting_iterations(found: Iterable[Reach], step: Bound) -> Bound:
    """Return how many iterations earlier a loop starts, so that all windows are filled."""
    most = max((reach.extra for reach in found), default=0.0)
    return np.ceil(most / step) if np.ndim(step) else float(math.ceil(most / float(step)))


def windows_of(nest: ScheduledNest) -> dict[int, ExactWindow]:
    """Return the windows of a nest, by the position of the Func, where they are exact."""
    structure = nest.structure
    together: dict[tuple[StageKey, str], list[int]] = {}
    for i, entry in structure.entries.items():
        store, compute = entry.store, entry.compute
        if store.kind == compute.kind == "at" and store.loop != compute.loop:
            together.setdefault(((compute.func, 0), compute.loop), []).append(i)
    found: dict[int, ExactWindow] = {}
    for loop, funcs in together.items():
        entries = [structure.entries[i] for i in funcs]
        host = structure.stages.get(loop[0])
        if host is None or not all(map(_plain, entries)):
            continue
        if all(
            e.store.func == host.key[0] and _walks(host, e.store.loop, loop[1]) for e in entries
        ):
            found |= _windows(nest, loop, funcs)
    return found


def _plain(entry: FuncSchedule) -> bool:
    """Return whether a Func computes no more than what is required, in loops of its own."""
    special = (entry.bounds, entry.storage, entry.hoist, entry.run_async, entry.ring_buffer)
    return not any(special) and all(
        nest.compute_with is None and all(map(_guarded, nest.splits)) for nest in entry.stages
    )


def _guarded(change: Split | Fuse) -> bool:
    return isinstance(change, Split) and change.tail in GUARDED


def _walks(host: StageNest, store: str, compute: str) -> bool:
    """Return whether `compute` is a serial loop directly inside the block loop `store`."""
    if not host.func.pure:
        return False
    loops = dict(host.loops)
    order = [name for name, _ in host.loops]
    return (
        loops.get(store) == "gpu_block"
        and loops.get(compute) == "serial"
        and order.index(compute) == order.index(store) + 1
    )


def _windows(
    nest: ScheduledNest, loop: tuple[StageKey, str], funcs: list[int]
) -> dict[int, ExactWindow]:
    structure, names = nest.structure, nest.structure.names
    host = structure.stages[loop[0]]
    walked = _walked(nest.changes(host), loop[1])
    if walked is None or walked[0] not in host.variables or walked[0][0] != "v":
        return {}
    canonical, tile, step = walked
    position = {names[i]: i for i in structure.entries}

    def readers(name: str) -> list[str]:
        return [names[func] for func, _ in structure.consumers[position[name]]]

    def reads(reader: str, name: str, dimension: int) -> Reads | None:
        variable = nest.analysis.view.by_name[reader].args[dimension]
        for access in nest.analysis.summaries(reader)[0].accesses:
            if access.callee == name:
                return reads_along(access, variable)
        return None

    pure = [i for i in sorted(funcs, reverse=True) if structure.stages[i, 0].func.pure]
    walked_dimension = host.func.name, int(canonical[1:])
    reach = reaches((names[i] for i in pure), walked_dimension, readers, reads)
    folds = all(bool(np.all(step + part.held <= MOST_FOLDED)) for part in reach.values())
    if len(reach) < len(funcs) or not folds or not exact(reach, step):
        return {}
    start = starting_iterations(reach.values(), step)
    return {
        position[name]: ExactWindow(found, loop, step, start, tile + found.extra)
        for name, found in reach.items()
    }


def _walked(changes: tuple[Change, ...], loop: str) -> tuple[str, Bound, Bound] | None:
    """Return the loop that `loop` walks along, the tile and the step; None if not exact.

    The tile must be complete in every block, and consist of at least two complete steps.
    """
    splits = [change for change in changes if isinstance(change, SizedSplit)]
    inner = next((s for s in splits if s.split.outer == loop), None)
    outer = next(
        (s for s in splits if inner is not None and s.split.inner == inner.split.old), None
    )
    if inner is None or outer is None or outer.split.tail != "shift_inwards":
        return None
    inside = {inner.split.inner}
    for change in splits:
        if change.split.old in inside:
            if change.split.tail not in GUARDED:
                return None
            inside |= {change.split.outer, change.split.inner}
    tile, step = outer.factor, inner.factor
    whole = np.all(np.mod(tile, step) == 0.0) and np.all(np.asarray(tile) >= 2.0 * np.asarray(step))
    return (outer.split.old, tile, step) if whole else None


def folded_extents(
    extents: tuple[Bound, ...], order: tuple[int, ...], window: ExactWindow
) -> tuple[Bound, ...]:
    """Return the extents of an allocation after folding; `order` has its dimensions in memory."""
    found = list(extents)
    found[order.index(window.dimension)] = window.folded
    return tuple(found)


def loops_of(windows: Mapping[int, ExactWindow]) -> dict[tuple[StageKey, str], ExactWindow]:
    """Return the loops along which Funcs slide, each with one of its windows."""
    return {window.loop: window for window in windows.values()}
