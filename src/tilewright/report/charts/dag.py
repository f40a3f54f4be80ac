"""A pipeline's graph with its groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tilewright.report.charts.layout import Layout, layered
from tilewright.report.charts.svg import colour, picture, shorten, text_width
from tilewright.report.model import Dag, GraphNode
from tilewright.report.pages.html import Html, tag

_NAME = 22  # characters
_HEIGHT = 24.0
_PAD = 12.0
_MARGIN = 8.0
_TITLE = 8.0  # in addition to the room that ports need
_PORT = (8.0, 0.0)

# A box of the outer layout: a group by number, or a node outside all groups by name.
_Box = tuple[str, int | str]


def dag_picture(dag: Dag, group_names: Sequence[str], *, label: str = "Pipeline") -> Html:
    """The graph from inputs at the top to outputs at the bottom.

    Members of a group stand together in a box of the group's colour that carries its number and
    its name. Inputs are rounded, outputs framed strongly, inlined Funcs dashed. Edges to nodes
    that are not there are left out.

    Edges that enter or leave a box do so at ports, which are nodes of the box's own layout, so
    that they pass its other members instead of crossing them.
    """
    boxes = _boxes(dag, group_names)
    drawn: list[Html] = []
    for group, nodes in boxes.members.items():
        drawn += _group_box(
            _title(group, nodes, group_names),
            group,
            boxes.outer.centres[("group", group)],
            boxes.sizes[("group", group)],
            boxes.inner[group],
        )
    places = {node.name: boxes.place(node) for node in dag.nodes}
    drawn += [_edge(places[a], places[b], boxes.way(a, b), f"{a} → {b}") for a, b in boxes.edges]
    drawn += [_node(node, places[node.name]) for node in dag.nodes]
    width, height = boxes.outer.width + 2 * _MARGIN, boxes.outer.height + 2 * _MARGIN
    body = tag("g", *drawn, transform=f"translate({_MARGIN:g} {_MARGIN:g})")
    return picture(width, height, label, tag("defs", _arrow()), body)


@dataclass(frozen=True)
class _Boxes:
    """Where everything is: boxes in the picture, and members in the box of their group.

    Args:
        nodes: the nodes by name.
        edges: those both ends of which are there.
        members: the nodes of each group.
        inner: the layout of each group's members and ports.
        sizes: width and height of each box of the outer layout, pixels.
        outer: the layout of groups and of nodes outside all groups.
    """

    nodes: dict[str, GraphNode]
    edges: list[tuple[str, str]]
    members: dict[int, list[GraphNode]]
    inner: dict[int, Layout]
    sizes: dict[_Box, tuple[float, float]]
    outer: Layout

    def place(self, node: GraphNode) -> tuple[float, float]:
        """The centre of a node in the picture."""
        centre = self.outer.centres[_box_of(node)]
        if node.group is None:
            return centre
        x, y = _origin(centre, self.inner[node.group], len(self.members[node.group]) == 1)
        dx, dy = self.inner[node.group].centres[node.name]
        return (x + dx, y + dy)

    def way(self, a: str, b: str) -> list[tuple[float, float]]:
        """The points between two nodes that an edge passes."""
        own, other = self.nodes[a].group, self.nodes[b].group
        if own is not None and own == other:
            origin = _origin(self.outer.centres[("group", own)], self.inner[own], lone=False)
            return _moved(self.inner[own].routes.get((a, b), ()), origin)
        out = self._port_way(own, a, ("out", a))
        between = self.outer.routes.get((_box_of(self.nodes[a]), _box_of(self.nodes[b])), ())
        return [*out, *between, *self._port_way(other, ("in", b), b)]

    def _port_way(self, group: int | None, start: Any, end: Any) -> list[tuple[float, float]]:
        """The way between a member and its port, the port included; a lone member has none."""
        if group is None or len(self.members[group]) == 1:
            return []
        inner = self.inner[group]
        way = list(inner.routes.get((start, end), ()))
        way = [*way, inner.centres[end]] if isinstance(end, tuple) else [inner.centres[start], *way]
        return _moved(way, _origin(self.outer.centres[("group", group)], inner, lone=False))


def _boxes(dag: Dag, group_names: Sequence[str]) -> _Boxes:
    """The layout of the groups, each with the layout of its members."""
    nodes = {node.name: node for node in dag.nodes}
    edges = [(a, b) for a, b in dag.edges if a in nodes and b in nodes]
    members: dict[int, list[GraphNode]] = {}
    for node in dag.nodes:
        if node.group is not None:
            members.setdefault(node.group, []).append(node)
    inner = {group: _inner(own, edges) for group, own in members.items()}
    sizes = {
        _box_of(node): _size(node)
        if node.group is None
        else _box_size(inner[node.group], members[node.group], group_names)
        for node in dag.nodes
    }
    between = [(_box_of(nodes[a]), _box_of(nodes[b])) for a, b in edges]
    outer = layered(sizes, between, gap_x=22, gap_y=34)
    return _Boxes(nodes, edges, members, inner, sizes, outer)


def _box_of(node: GraphNode) -> _Box:
    return ("node", node.name) if node.group is None else ("group", node.group)


def _arrow() -> Html:
    """The head of an edge."""
    return tag(
        "marker",
        tag("path", class_="arrow", d="M0 0L7 3.5L0 7z"),
        id="arrow",
        viewBox="0 0 7 7",
        refX="6.5",
        refY="3.5",
        markerWidth="6",
        markerHeight="6",
        orient="auto",
    )


def _size(node: GraphNode) -> tuple[float, float]:
    return (max(36.0, text_width(shorten(node.name, _NAME)) + 18), _HEIGHT)


def _inner(nodes: Sequence[GraphNode], edges: Sequence[tuple[str, str]]) -> Layout:
    """A group's members, with a port at the top for each that is fed from outside, and one at
    the bottom for each that is read from outside."""
    own = {node.name for node in nodes}
    sizes: dict[Any, tuple[float, float]] = {node.name: _size(node) for node in nodes}
    inside: list[tuple[Any, Any]] = [(a, b) for a, b in edges if a in own and b in own]
    if len(nodes) == 1:
        return layered(sizes, inside)
    entries = list(dict.fromkeys(("in", b) for a, b in edges if b in own and a not in own))
    exits = list(dict.fromkeys(("out", a) for a, b in edges if a in own and b not in own))
    inside += [(port, port[1]) for port in entries]
    inside += [(port[1], port) for port in exits]
    # Room for the title and at the bottom, also where nothing enters or leaves.
    if not entries:
        entries = [("in", "")]
        inside.append((entries[0], nodes[0].name))
    if not exits:
        exits = [("out", "")]
        inside.append((nodes[-1].name, exits[0]))
    sizes.update(dict.fromkeys([*entries, *exits], _PORT))
    return layered(sizes, inside, gap_x=12, gap_y=22, first=entries, last=exits)


def _moved(
    way: Sequence[tuple[float, float]], by: tuple[float, float]
) -> list[tuple[float, float]]:
    return [(x + by[0], y + by[1]) for x, y in way]


def _title(group: int, nodes: Sequence[GraphNode], names: Sequence[str]) -> str:
    """What a group's box is called; a lone Func needs no other name."""
    name = names[group] if group < len(names) else ""
    return f"{group + 1}" if len(nodes) == 1 else f"{group + 1}  {shorten(name, _NAME)}"


def _box_size(
    inner: Layout, nodes: Sequence[GraphNode], names: Sequence[str]
) -> tuple[float, float]:
    group = nodes[0].group
    assert group is not None
    if len(nodes) == 1:
        # The number stands to the left of the only member.
        return (inner.width + 2 * _PAD + 14, inner.height + 12)
    width = max(inner.width, text_width(_title(group, nodes, names)) + 8)
    return (width + 2 * _PAD, inner.height + _TITLE)


def _origin(centre: tuple[float, float], inner: Layout, lone: bool) -> tuple[float, float]:
    """Where a group's inner layout begins: below its name, or right of a lone member's number."""
    x, y = centre[0] - inner.width / 2, centre[1] - inner.height / 2
    return (x + 7, y) if lone else (x, y + _TITLE / 2)


def _group_box(
    title: str,
    group: int,
    centre: tuple[float, float],
    size: tuple[float, float],
    inner: Layout,
) -> list[Html]:
    """The box of a group; its title stands where fewer edges enter, to the left by preference."""
    width, height = size
    x, y = centre[0] - width / 2, centre[1] - height / 2
    ports = [place[0] for name, place in inner.centres.items() if isinstance(name, tuple)]
    reach = text_width(title) + 4 - _PAD
    to_left = sum(1 for port in ports if port <= reach)
    to_right = sum(1 for port in ports if port >= inner.width - reach)
    right = bool(ports) and to_right < to_left
    return [
        tag("rect", class_=f"{colour(group)} tint", x=x, y=y, width=width, height=height, rx=6),
        tag(
            "text",
            title,
            class_=f"{colour(group)} fill groupname halo",
            x=x + width - 7 if right else x + 7,
            y=y + 14 if ports else y + height / 2 + 4,
            text_anchor="end" if right else None,
        ),
    ]


def _node(node: GraphNode, place: tuple[float, float]) -> Html:
    width, height = _size(node)
    x, y = place[0] - width / 2, place[1] - height / 2
    classes = ["input" if node.kind == "input" else "node"]
    if node.inlined:
        classes.append("inlined")
    if node.kind == "output":
        classes.append("output")
    told = f"{node.name}: {node.detail}" if node.detail else node.name
    return tag(
        "g",
        tag("title", told),
        tag(
            "rect",
            class_=" ".join(classes),
            x=x,
            y=y,
            width=width,
            height=height,
            rx=height / 2 if node.kind == "input" else 4,
        ),
        tag(
            "text",
            shorten(node.name, _NAME),
            class_="faint" if node.inlined else None,
            x=place[0],
            y=place[1] + 4,
            text_anchor="middle",
        ),
    )


def _edge(
    start: tuple[float, float],
    end: tuple[float, float],
    route: Sequence[tuple[float, float]],
    told: str,
) -> Html:
    """A curve that leaves and enters nodes vertically."""
    downwards = end[1] >= start[1]
    half = _HEIGHT / 2 if downwards else -_HEIGHT / 2
    way = [(start[0], start[1] + half), *route, (end[0], end[1] - half - (2 if downwards else -2))]
    path = [f"M{way[0][0]:.1f} {way[0][1]:.1f}"]
    for (x0, y0), (x1, y1) in pairwise(way):
        if abs(x0 - x1) < 0.5:
            path.append(f"L{x1:.1f} {y1:.1f}")
        else:
            bend = (y0 + y1) / 2
            path.append(f"C{x0:.1f} {bend:.1f} {x1:.1f} {bend:.1f} {x1:.1f} {y1:.1f}")
    return tag("path", tag("title", told), class_="edge", d="".join(path), marker_end="url(#arrow)")
