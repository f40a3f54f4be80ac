"""Splits of loops at whose variable a predicate of a reduction domain reads.

An update with ``r.where(start[i] + r < start[i + 1])`` reads ``start`` in a predicate. If the loop
over ``i`` is split, Halide 21 may evaluate the predicate outside the guard of the split. It then
requires ``start`` up to the next multiple of the factor, which the caller's buffer need not have.
A split by 16 does that, and so do three splits, one in another. Two at root do not, if the second
factor is a proper divisor of the first (of 240 random nests, none read further at four sizes).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from tilewright.halide.ir.loops import part_of
from tilewright.halide.ir.schedule import ScheduledLoop, Split, StageSchedule

# Where vectors are the only split, tiles of as many of them are put around.
_VECTORS = 4
# The largest split that is put inside tiles.
_INSIDE = 16


def splits_of(nest: StageSchedule, loop: str) -> list[Split] | None:
    """Return the splits of a loop of the definition, each of the inner part of the one before.

    Return None if an outer part is split as well, or fused.
    """
    chain: list[Split] = []
    inner, others = loop, set[str]()
    for change in nest.splits:
        if not isinstance(change, Split):
            if {change.inner, change.outer} & {inner, *others}:
                return None
        elif change.old == inner:
            chain.append(change)
            others.add(change.outer)
            inner = change.inner
        elif change.old in others:
            return None
    return chain


def reads_no_further(nest: StageSchedule, loop: str) -> bool:
    """Return whether a predicate reads no further than if the loop were whole."""
    chain = splits_of(nest, loop)
    if not chain:
        return chain is not None
    return len(chain) == 2 and _divide([each.factor for each in chain])


def split_twice(nest: StageSchedule, loop: str) -> StageSchedule | None:
    """Return a similar nest with two splits of the loop; None if there is none."""
    chain = splits_of(nest, loop)
    if chain is not None and len(chain) == 1:
        mapped = {each.name: each.mapping for each in nest.loops}
        tiled = mapped.get(chain[0].inner) not in ("vectorized", "unrolled")
        return _split_inside(nest, chain[0]) if tiled else _tiles_around(nest, chain[0])
    if chain is not None and len(chain) == 3 and _divide([chain[0].factor, chain[2].factor]):
        _, blocks, vectors = chain
        merged = replace(vectors, old=blocks.old, outer=blocks.outer)
        splits = [merged if each is vectors else each for each in nest.splits if each is not blocks]
        loops = [each for each in nest.loops if each.name != vectors.outer]
        return replace(nest, splits=tuple(splits), loops=tuple(loops))
    return None


def _divide(sizes: list[int]) -> bool:
    """Return whether each size is a proper divisor of the one before, and more than 1."""
    return all(1 < small < large and large % small == 0 for large, small in pairwise(sizes))


def _split_inside(nest: StageSchedule, tiles: Split) -> StageSchedule | None:
    sizes = [n for n in range(2, _INSIDE + 1) if _divide([tiles.factor, n])]
    if not sizes:
        return None
    outer, inner = part_of(tiles.inner, "o"), part_of(tiles.inner, "i")
    added = Split(tiles.inner, outer, inner, sizes[-1], tiles.tail)
    loops: list[ScheduledLoop] = []
    for each in nest.loops:
        if each.name == tiles.inner:
            loops += [replace(each, name=inner), replace(each, name=outer)]
        else:
            loops.append(each)
    at = nest.splits.index(tiles) + 1
    return replace(nest, splits=(*nest.splits[:at], added, *nest.splits[at:]), loops=tuple(loops))


def _tiles_around(nest: StageSchedule, vectors: Split) -> StageSchedule | None:
    if vectors.factor < 2:
        return None
    outer, within = part_of(vectors.outer, "o"), part_of(vectors.outer, "i")
    tiles = Split(vectors.old, outer, within, _VECTORS * vectors.factor, vectors.tail)
    at = nest.splits.index(vectors)
    splits = (*nest.splits[:at], tiles, replace(vectors, old=within), *nest.splits[at + 1 :])
    loops: list[ScheduledLoop] = []
    for each in nest.loops:
        if each.name == vectors.outer:
            loops += [replace(each, mapping="serial"), replace(each, name=outer)]
        else:
            loops.append(each)
    return replace(nest, splits=splits, loops=tuple(loops))
