"""Where the nodes of a directed graph are drawn: layer below layer (Sugiyama's method).

Nodes get layers by longest path, edges that skip layers get a place in each layer they pass,
the order within layers is improved by sweeps of barycentres, and coordinates follow from
placing each node near its neighbours' mean, kept apart by isotonic regression.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Name = Any  # anything hashable
Edge = tuple[Name, Name]

_SWEEPS = 12
_PLACEMENTS = 16
# The width of an edge in a layer that it passes, and the weight that keeps it straight.
_PASSING_WIDTH = 10.0
_PASSING_WEIGHT = 4.0


@dataclass(frozen=True)
class Layout:
    """The positions of nodes, the points that edges pass, and the total size.

    Args:
        centres: the centres of the nodes.
        routes: for every edge that skips layers, the way from its first end to its second.
        bands: top and bottom of each node's layer, which is as high as its highest node.
        width: the total width.
        height: the total height.
    """

    centres: dict[Name, tuple[float, float]]
    routes: dict[Edge, tuple[tuple[float, float], ...]]
    bands: dict[Name, tuple[float, float]]
    width: float
    height: float


@dataclass
class _Graph:
    """Proper layers: every edge joins adjacent layers; passing places are `_Passing` nodes."""

    layers: list[list[Name]]
    above: dict[Name, list[Name]]
    below: dict[Name, list[Name]]
    passing: dict[Edge, list[Name]]


@dataclass(frozen=True)
class _Passing:
    edge: Edge
    layer: int


def layered(
    sizes: Mapping[Name, tuple[float, float]],
    edges: Iterable[Edge],
    *,
    gap_x: float = 18.0,
    gap_y: float = 30.0,
    first: Collection[Name] = (),
    last: Collection[Name] = (),
) -> Layout:
    """Lay out a graph from top to bottom.

    `sizes` has each node's (width, height). An edge between unknown nodes is refused with a
    KeyError; loops and repeated edges are left out; edges that close a cycle run upwards.
    Nodes of `first`, to which no edge may lead, come in the top layer, those of `last`, from
    which none may lead, in the bottom one.
    """
    if not sizes:
        return Layout({}, {}, {}, 0.0, 0.0)
    kept = list(dict.fromkeys((a, b) for a, b in edges if a != b))
    down, flipped = _acyclic(list(sizes), kept)
    layer = _layers(list(sizes), [*down, *_pinned(sizes, down, first, last)])
    layer.update(dict.fromkeys(first, 0))
    layer.update(dict.fromkeys(last, max(layer.values())))
    graph = _proper(list(sizes), down, layer)
    _order(graph)
    x = _coordinates(graph, sizes, gap_x)

    tops, y = [], 0.0
    for nodes in graph.layers:
        height = max((sizes[n][1] for n in nodes if not isinstance(n, _Passing)), default=0.0)
        tops.append((y, y + height))
        y += height + gap_y
    left = min(x[n] - _width(n, sizes) / 2 for nodes in graph.layers for n in nodes)
    right = max(x[n] + _width(n, sizes) / 2 for nodes in graph.layers for n in nodes)
    centres = {n: (x[n] - left, sum(tops[layer[n]]) / 2) for n in sizes}
    routes: dict[Edge, tuple[tuple[float, float], ...]] = {}
    for (a, b), places in graph.passing.items():
        # Straight down through every layer passed, so that no node there is crossed.
        way = [
            (x[p] - left, side) for p in places if isinstance(p, _Passing) for side in tops[p.layer]
        ]
        if (a, b) in flipped:
            routes[(b, a)] = tuple(reversed(way))
        if (a, b) not in flipped or (a, b) in kept:
            routes[(a, b)] = tuple(way)
    bands = {n: tops[layer[n]] for n in sizes}
    return Layout(centres, routes, bands, right - left, y - gap_y)


def layer_numbers(nodes: Sequence[Name], edges: Sequence[Edge]) -> dict[Name, int]:
    """Return the layer of each node in `layered`, 0 for the top; sizes do not matter."""
    down, _ = _acyclic(nodes, list(dict.fromkeys((a, b) for a, b in edges if a != b)))
    return _layers(nodes, down)


def _pinned(
    nodes: Iterable[Name], edges: Sequence[Edge], first: Collection[Name], last: Collection[Name]
) -> list[Edge]:
    """Return edges that keep all other nodes below the first and above the last ones."""
    led_to, leading = {b for _, b in edges}, {a for a, _ in edges}
    others = [n for n in nodes if n not in first and n not in last]
    below = [(port, n) for port in list(first)[:1] for n in others if n not in led_to]
    above = [(n, port) for port in list(last)[:1] for n in others if n not in leading]
    return below + above


def _width(node: Name, sizes: Mapping[Name, tuple[float, float]]) -> float:
    return _PASSING_WIDTH if isinstance(node, _Passing) else sizes[node][0]


def _acyclic(nodes: Sequence[Name], edges: Sequence[Edge]) -> tuple[list[Edge], set[Edge]]:
    """Return the edges with those that close a cycle turned around; and these, as turned."""
    targets: dict[Name, list[Name]] = {n: [] for n in nodes}
    for a, b in edges:
        targets[b]  # refuses an unknown node
        targets[a].append(b)
    state: dict[Name, int] = {}
    flipped: set[Edge] = set()
    for root in nodes:
        if root in state:
            continue
        stack = [(root, iter(targets[root]))]
        state[root] = 1
        while stack:
            node, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                state[node] = 2
                stack.pop()
            elif state.get(following) == 1:
                flipped.add((following, node))
            elif following not in state:
                state[following] = 1
                stack.append((following, iter(targets[following])))
    down = [(b, a) if (b, a) in flipped else (a, b) for a, b in edges]
    return list(dict.fromkeys(down)), flipped


def _layers(nodes: Sequence[Name], edges: Sequence[Edge]) -> dict[Name, int]:
    """Layer by longest paths from the top; sources move down next to their targets."""
    above: dict[Name, list[Name]] = {n: [] for n in nodes}
    below: dict[Name, list[Name]] = {n: [] for n in nodes}
    for a, b in edges:
        below[a].append(b)
        above[b].append(a)
    waiting = {n: len(above[n]) for n in nodes}
    ready = [n for n in nodes if not waiting[n]]
    layer = dict.fromkeys(nodes, 0)
    for node in ready:
        for following in below[node]:
            layer[following] = max(layer[following], layer[node] + 1)
            waiting[following] -= 1
            if not waiting[following]:
                ready.append(following)
    for node in reversed(ready):
        if not above[node] and below[node]:
            layer[node] = min(layer[f] for f in below[node]) - 1
    return layer


def _proper(nodes: Sequence[Name], edges: Sequence[Edge], layer: Mapping[Name, int]) -> _Graph:
    graph = _Graph([[] for _ in range(max(layer.values()) + 1)], {}, {}, {})
    for node in nodes:
        graph.layers[layer[node]].append(node)
        graph.above[node], graph.below[node] = [], []
    for a, b in edges:
        chain: list[Name] = [a]
        for between in range(layer[a] + 1, layer[b]):
            place = _Passing((a, b), between)
            graph.layers[between].append(place)
            graph.above[place], graph.below[place] = [], []
            chain.append(place)
        if len(chain) > 1:
            graph.passing[(a, b)] = chain[1:]
        chain.append(b)
        for upper, lower in pairwise(chain):
            graph.below[upper].append(lower)
            graph.above[lower].append(upper)
    return graph


def _order(graph: _Graph) -> None:
    """Sweeps of barycentres down and up; the order with the fewest crossings stays."""
    best, fewest = [list(nodes) for nodes in graph.layers], _crossings(graph)
    for sweep in range(_SWEEPS):
        if fewest == 0:
            break
        downwards = sweep % 2 == 0
        neighbours = graph.above if downwards else graph.below
        indices = range(len(graph.layers))
        for i in indices if downwards else reversed(indices):
            adjacent = i - 1 if downwards else i + 1
            if not 0 <= adjacent < len(graph.layers):
                continue
            place = {n: k for k, n in enumerate(graph.layers[adjacent])}
            own = {n: k for k, n in enumerate(graph.layers[i])}

            def barycentre(
                node: Name,
                place: dict[Name, int] = place,
                own: dict[Name, int] = own,
                neighbours: dict[Name, list[Name]] = neighbours,
            ) -> float:
                near = neighbours[node]
                return sum(place[n] for n in near) / len(near) if near else float(own[node])

            graph.layers[i].sort(key=barycentre)
        crossings = _crossings(graph)
        if crossings < fewest:
            best, fewest = [list(nodes) for nodes in graph.layers], crossings
    graph.layers[:] = best


def _crossings(graph: _Graph) -> int:
    total = 0
    for upper, lower in pairwise(graph.layers):
        place = {n: k for k, n in enumerate(lower)}
        ends = [place[b] for a in upper for b in sorted(graph.below[a], key=place.__getitem__)]
        total += _inversions(ends)
    return total


def _inversions(values: list[int]) -> int:
    """Return pairs out of order, by merge sort."""
    if len(values) < 2:
        return 0
    middle = len(values) // 2
    left, right = values[:middle], values[middle:]
    count = _inversions(left) + _inversions(right)
    left.sort()
    right.sort()
    i = 0
    for value in right:
        while i < len(left) and left[i] <= value:
            i += 1
        count += len(left) - i
    return count


def _coordinates(
    graph: _Graph, sizes: Mapping[Name, tuple[float, float]], gap: float
) -> dict[Name, float]:
    """Return horizontal centres."""
    x: dict[Name, float] = {}
    for nodes in graph.layers:
        x.update(zip(nodes, _separations(nodes, sizes, gap), strict=True))
        middle = (x[nodes[0]] + x[nodes[-1]]) / 2
        for node in nodes:
            x[node] -= middle
    for step in range(_PLACEMENTS):
        last = step >= _PLACEMENTS - 2
        downwards = step % 2 == 0
        for nodes in graph.layers if downwards else reversed(graph.layers):
            wanted, weights = [], []
            for node in nodes:
                near = graph.above[node] if downwards else graph.below[node]
                if last or not near:
                    near = graph.above[node] + graph.below[node]
                wanted.append(sum(x[n] for n in near) / len(near) if near else x[node])
                weights.append(_PASSING_WEIGHT if isinstance(node, _Passing) else 1.0)
            offsets = _separations(nodes, sizes, gap)
            free = _isotonic([w - o for w, o in zip(wanted, offsets, strict=True)], weights)
            for node, place, offset in zip(nodes, free, offsets, strict=True):
                x[node] = place + offset
    return x


def _separations(
    nodes: Sequence[Name], sizes: Mapping[Name, tuple[float, float]], gap: float
) -> list[float]:
    """Return centres when the nodes stand as close as they may."""
    places: list[float] = []
    for i, node in enumerate(nodes):
        if i == 0:
            places.append(0.0)
        else:
            half = (_width(nodes[i - 1], sizes) + _width(node, sizes)) / 2
            places.append(places[-1] + half + gap)
    return places


def _isotonic(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the non-decreasing sequence nearest to `values` in weighted squares."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        mean, mass, size = value, weight, 1
        while blocks and blocks[-1][0] > mean:
            m, w, n = blocks.pop()
            mean, mass, size = (mean * mass + m * w) / (mass + w), mass + w, size + n
        blocks.append((mean, mass, size))
    return [mean for mean, _, size in blocks for _ in range(size)]
