"""What the published search decides next: where a Func is computed, then its tile at root.

Options are put into buckets by their structural hash. Of a bucket of B, floor(log2 B) are drawn; an
option that is not legal is replaced by another of its bucket.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random

from tilewright.halide.schedulers.learned.gpu.choices import INLINED, Placement, State, Tile
from tilewright.halide.schedulers.learned.gpu.published_search.constants import CONSTANTS as C
from tilewright.halide.schedulers.learned.gpu.published_search.constants import SearchSettings
from tilewright.halide.schedulers.learned.gpu.published_search.space import (
    PlacementSite,
    PublishedSpace,
    with_inlined,
    with_member,
)
from tilewright.halide.schedulers.learned.gpu.published_search.states import (
    PlacedKernel,
    SearchState,
)
from tilewright.halide.schedulers.learned.gpu.published_search.structural_hash import (
    StructuralHash,
)
from tilewright.halide.schedulers.learned.gpu.published_search.tiles import (
    block_tiles,
    root_tiles,
)
from tilewright.halide.schedulers.learned.gpu.space import KernelPlacement
from tilewright.halide.schedulers.learned.published.pipeline import FuncNode

PRE_PASS = -1  # the index of the pass in which Funcs are inlined or at root only


@dataclass(frozen=True, slots=True)
class _Option:
    """A kernel that a decision changes, and the placement of the Func."""

    choice: Placement
    placed: KernelPlacement
    wasteful: bool = False  # leaves SMs idle


Buckets = Mapping[Hashable, list[_Option]]


class Decisions:
    """The decisions on one pipeline.

    Args:
        space: Its kernels.
        settings: What can be varied.
    """

    def __init__(self, space: PublishedSpace, settings: SearchSettings) -> None:
        self.space, self.settings = space, settings
        self.hashes = StructuralHash(space.shapes, space.first)
        self.nodes = space.pipeline.nodes
        self.count = 2 * len(self.nodes)
        self.frozen: dict[int, Placement] = {}  # by position
        self._tiles: dict[tuple[int, int], Buckets] = {}

    def start(self) -> SearchState:
        """Return the state without decisions; Funcs that only pass on an input are inlined."""
        state: list[Placement | None] = [None] * len(self.space.algorithm.funcs)
        for node in self.space.nodes:
            if node.input:
                inlined = node.position in self.space.inlinable
                state[node.position] = INLINED if inlined else Placement("root")
        return SearchState(tuple(state), ())

    def children(self, state: SearchState, index: int, draws: Random) -> list[SearchState]:
        """Return the states after one more decision that the GPU can run.

        Args:
            state: A state, not complete.
            index: That of the pass, the depth of hashes; `PRE_PASS` for the pre-pass.
            draws: For draws from buckets.
        """
        node = self.nodes[state.made // 2]
        scheduled = self._is_scheduled(node)
        if state.made % 2:
            tiled = scheduled and state.whole == node.position
            found = self._tilings(state, node, index, draws) if tiled else []
            return found if tiled else [_next(state)]
        return self._placements(state, node, index, draws) if scheduled else [_next(state)]

    def forced(self, state: SearchState) -> list[SearchState]:
        """Return the state with the next Func at root, whatever that costs; empty if it cannot."""
        node = self.nodes[state.made // 2]
        if state.made % 2 or not self._is_scheduled(node):
            return [_next(state)]
        child = self._at_root(state, node, self.space.at_root(node.position))
        return [child] if _runs(child) else []

    def _is_scheduled(self, node: FuncNode) -> bool:
        return not node.input and node.position in self.space.entries

    # --- where a Func is computed -----------------------------------------------------------

    def _placements(
        self, state: SearchState, node: FuncNode, index: int, draws: Random
    ) -> list[SearchState]:
        frozen = self.frozen.get(node.position)
        inlined = [] if frozen and frozen.kind == "root" else self._inlined(state, node)
        must = node.id in self.space.pointwise and len(node.readers) == 1
        if inlined and (must or frozen):
            return inlined
        if frozen and frozen.kind == "root":
            child = self._at_root(state, node, frozen)
            return [child] if _runs(child) else []
        found = inlined + [
            child
            for child in [self._at_root(state, node, self._whole(node), whole=True)]
            if self._is_legal(child, child.kernels[-1])
        ]
        if index == PRE_PASS:
            return found
        buckets: dict[Hashable, list[_Option]] = {}
        for site in self.space.sites(state.choices, state.kernels, node):
            for option in self._at_site(site, node):
                seen = self.hashes.kernel(option.placed, index)
                buckets.setdefault(seen, []).append(option)
        make = _Made(self, state, node).at_site
        return found + self._drawn(buckets, make, draws, bool(found))

    def _inlined(self, state: SearchState, node: FuncNode) -> list[SearchState]:
        """Return the state in which a Func is inlined, if it may be."""
        if node.position not in self.space.inlinable or node.output:
            return []
        readers = {edge.consumer.node.id for edge in node.readers}
        kernels = tuple(
            self.space.kernel(with_inlined(kernel.placed, node))
            if readers & kernel.nodes
            else kernel
            for kernel in state.kernels
        )
        choices = _with(state.choices, node, INLINED)
        inlined = state.inlined | {node.id}
        child = SearchState(choices, kernels, inlined, state.made + 1, -1, state)
        if not _runs(child):
            return []
        exempt = self._is_always_considered(state, node)
        often = self.space.is_inlined_too_often(node, kernels)
        return [] if often and not exempt else [child]

    def _is_always_considered(self, state: SearchState, node: FuncNode) -> bool:
        """Return whether a Func may be inlined however often that computes it again.

        It is trivial, or pointwise with one reader that is not inlined.
        """
        if node.id in self.space.trivial:
            return True
        if node.id not in self.space.pointwise:
            return False
        readers, pending, seen = set(), [node], {node.id}
        while pending:
            for edge in pending.pop().readers:
                reader = edge.consumer.node
                if reader.id not in state.inlined:
                    readers.add(reader.id)
                elif reader.id not in seen:
                    seen.add(reader.id)
                    pending.append(reader)
        return len(readers) == 1

    def _whole(self, node: FuncNode) -> Placement:
        """Return the placement at root before the tile is decided: one warp per block."""
        place = node.position
        if place not in self.space.tiled:
            return Placement("root")
        extents, first = self.space.extents(place), self.space.first[place]
        threads = [1] * len(extents)
        threads[first] = int(min(C.warp, extents[first]))
        return Placement("root", -1, Tile((1,) * len(extents), tuple(threads)))

    def _at_root(
        self, state: SearchState, node: FuncNode, choice: Placement, whole: bool = False
    ) -> SearchState:
        kernel = self.space.kernel(KernelPlacement(node.position, choice, (), frozenset()))
        choices = _with(state.choices, node, choice)
        untiled = node.position if whole and choice.tile is not None else -1
        kernels = (*state.kernels, kernel)
        return SearchState(choices, kernels, state.inlined, state.made + 1, untiled, state)

    def _at_site(self, site: PlacementSite, node: FuncNode) -> Iterator[_Option]:
        """Yield the options to compute a Func at one place."""
        place, placed = node.position, site.kernel.placed
        tiles = [Tile((1,) * len(site.extents))]
        if site.choice.kind == "block":
            shapes, first = self.space.shapes[place], self.space.first[place]
            tiles = block_tiles(site.extents, first, shapes, self.space.siblings(placed))
        for tile in tiles:
            choice = replace(site.choice, tile=tile)
            yield _Option(choice, with_member(placed, place, choice))

    # --- tiles at root ----------------------------------------------------------------------

    def _tilings(
        self, state: SearchState, node: FuncNode, index: int, draws: Random
    ) -> list[SearchState]:
        key = node.position, index
        if key not in self._tiles:
            self._tiles[key] = self._tile_buckets(node, index)
        return self._drawn(self._tiles[key], _Made(self, state, node).tiled, draws, False)

    def _tile_buckets(self, node: FuncNode, index: int) -> Buckets:
        place = node.position
        extents = [int(extent) for extent in self.space.extents(place)]
        shapes, first = self.space.shapes[place], self.space.first[place]
        buckets: dict[Hashable, list[_Option]] = {}
        for each in root_tiles(extents, first, shapes, self.space.limits.sms):
            choice = Placement("root", -1, each.tile)
            placed = KernelPlacement(place, choice, (), frozenset())
            seen = self.hashes.kernel(placed, index)
            wasteful = each.idle > C.most_idle_cores
            buckets.setdefault(seen, []).append(_Option(choice, placed, wasteful))
        return buckets

    # --- draws ------------------------------------------------------------------------------

    def _drawn(
        self,
        buckets: Buckets,
        make: Callable[[_Option], SearchState],
        draws: Random,
        others: bool,
    ) -> list[SearchState]:
        """Return states of options drawn from buckets.

        Options that leave much of the GPU idle are taken only if there is nothing else.

        Args:
            buckets: The options.
            make: Makes the state of an option.
            draws: For the draws.
            others: Whether there are other options.
        """
        found: list[SearchState] = []
        spare: list[list[_Option]] = []
        for bucket in buckets.values():
            useful = [option for option in bucket if not option.wasteful]
            wasteful = [option for option in bucket if option.wasteful]
            if self.settings.buckets:
                draws.shuffle(useful)
            most = _draws(len(useful)) if self.settings.buckets else len(useful)
            taken = 0
            for option in useful:
                if taken >= most:
                    break
                child = make(option)
                changed = self.space.kernel(option.placed)
                if not self._is_legal(child, changed):
                    continue
                if changed.idle > C.most_idle_lanes:
                    wasteful.append(option)
                    continue
                found.append(child)
                taken += 1
            spare.append(wasteful)
        if found or others:
            return found
        for options in spare:
            legal = (
                child
                for child, option in ((make(option), option) for option in options)
                if self._is_legal(child, self.space.kernel(option.placed))
            )
            found += [child for child, _ in zip(legal, range(1), strict=False)]
        return found

    def _is_legal(self, child: SearchState, changed: PlacedKernel) -> bool:
        """Return whether the GPU can run a state, and computes few points again."""
        return changed.part is not None and not changed.recomputed and _runs(child)


class _Made:
    """Makes the states of options for one Func."""

    def __init__(self, decisions: Decisions, state: SearchState, node: FuncNode) -> None:
        self.space, self.state, self.node = decisions.space, state, node

    def at_site(self, option: _Option) -> SearchState:
        """Return the state in which the Func is computed in the loops of another."""
        return self._replaced(option, option.placed.root)

    def tiled(self, option: _Option) -> SearchState:
        """Return the state in which the Func at root has a tile."""
        return self._replaced(option, self.node.position)

    def _replaced(self, option: _Option, root: int) -> SearchState:
        state, new = self.state, self.space.kernel(option.placed)
        kernels = tuple(new if k.placed.root == root else k for k in state.kernels)
        choices = _with(state.choices, self.node, option.choice)
        return SearchState(choices, kernels, state.inlined, state.made + 1, -1, state)


def _draws(size: int) -> int:
    """Return how many options are drawn from a bucket.

    >>> [_draws(size) for size in (0, 1, 2, 3, 4, 1000)]
    [0, 1, 1, 1, 2, 9]
    """
    return int(math.log2(size)) if size > 1 else size


def _next(state: SearchState) -> SearchState:
    """Return a state after a decision that has one outcome."""
    return replace(state, made=state.made + 1, parent=state, whole=-1)


def _runs(state: SearchState) -> bool:
    return all(kernel.part is not None for kernel in state.kernels)


def _with(choices: State, node: FuncNode, choice: Placement) -> State:
    place = node.position
    return (*choices[:place], choice, *choices[place + 1 :])
