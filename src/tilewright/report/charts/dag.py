"""A pipeline's graph with its groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from tilewright.report.charts.layout import Layout, layer_numbers, layered
from tilewright.report.charts.svg import colour, picture, shorten, text_width
from tilewright.report.model import Dag, GraphNode
from tilewright.report.pages.html import Html, join, tag

_NAME = 22  # characters
_HEIGHT = 24.0
_PAD = 12.0
_MARGIN = 8.0
_TITLE = 8.0  # in addition to the room that ports need
_PORT = (8.0, 0.0)
_TITLE_HEIGHT = 16.0
_TIP = 2.0  # between the head of an edge and its node

# A box of the outer layout: a group by number, or a node outside all groups by name.
_Box = tuple[str, int | str]
_Edge = tuple[str, str]
_Side = Literal["top", "bottom"]


def dag_picture(dag: Dag, group_names: Sequence[str], *, label: str = "Pipeline") -> Html:
    """Return the graph from inputs at the top to outputs at the bottom.

    Members of a group stand together in a box of the group's colour that carries its number and
    its name. Inputs are rounded, outputs have a thick frame, inlined Funcs a dashed one. Edges to
    unknown nodes are left out, and so are those from a node to itself.

    Edges that enter or leave a box do so at ports, which are nodes of the box's own layout, so
    that they pass its other members instead of crossing them. Between the boxes they turn where
    no box is. The title of a box covers edges that pass below it.
    """
    boxes = _boxes(dag, group_names)
    frames, titles = [], []
    for group, nodes in boxes.members.items():
        centre, size = boxes.outer.centres[("group", group)], boxes.sizes[("group", group)]
        frames.append(_group_box(group, centre, size))
        title = _title(group, nodes, group_names)
        titles.append(_group_title(title, group, centre, size, boxes.inner[group]))
    places = {node.name: boxes.place(node) for node in dag.nodes}
    edges = [_edge(places[a], places[b], boxes.way(a, b), f"{a} → {b}") for a, b in boxes.edges]
    drawn = [*frames, *edges, *titles, *(_node(node, places[node.name]) for node in dag.nodes)]
    width, height = boxes.outer.width + 2 * _MARGIN, boxes.outer.height + 2 * _MARGIN
    body = tag("g", *drawn, transform=f"translate({_MARGIN:g} {_MARGIN:g})")
    return picture(width, height, label, tag("defs", _arrow()), body)


@dataclass(frozen=True)
class _Boxes:
    """The positions of boxes in the picture, and of members in the box of their group.

    Args:
        nodes: the nodes by name.
        edges: the edges between two known nodes.
        upward: the edges that lead to a box farther up, which only cycles of boxes need.
        members: the nodes of each group.
        inner: the layout of each group's members and ports.
        sizes: width and height of each box of the outer layout, pixels.
        outer: the layout of groups and of nodes outside all groups.
    """

    nodes: dict[str, GraphNode]
    edges: list[_Edge]
    upward: set[_Edge]
    members: dict[int, list[GraphNode]]
    inner: dict[int, Layout]
    sizes: dict[_Box, tuple[float, float]]
    outer: Layout

    def place(self, node: GraphNode) -> tuple[float, float]:
        """Return the centre of a node in the picture."""
        centre = self.outer.centres[_box_of(node)]
        if node.group is None:
            return centre
        x, y = _origin(centre, self.inner[node.group], len(self.members[node.group]) == 1)
        dx, dy = self.inner[node.group].centres[node.name]
        return (x + dx, y + dy)

    def way(self, a: str, b: str) -> list[tuple[float, float]]:
        """Return the points between two nodes that an edge passes."""
        own, other = self.nodes[a].group, self.nodes[b].group
        if own is not None and own == other:
            origin = _origin(self.outer.centres[("group", own)], self.inner[own], lone=False)
            return _moved(self.inner[own].routes.get((a, b), ()), origin)
        up = (a, b) in self.upward
        box, next_box = _box_of(self.nodes[a]), _box_of(self.nodes[b])
        out = self._port_way(a, "top" if up else "bottom")
        into = self._port_way(b, "bottom" if up else "top")[::-1]
        # Straight to the end of the layer: boxes further right or left may be higher.
        end, start = self.outer.bands[box][not up], self.outer.bands[next_box][up]
        return [
            *(out or self._straight(a, end)),
            *((x, end) for x, _ in out[-1:]),
            *self.outer.routes.get((box, next_box), ()),
            *((x, start) for x, _ in into[:1]),
            *(into or self._straight(b, start)),
        ]

    def _straight(self, name: str, y: float) -> list[tuple[float, float]]:
        """Return the point of height `y` above or below a node; none if the node reaches it."""
        x, centre = self.place(self.nodes[name])
        return [(x, y)] if abs(y - centre) > _HEIGHT / 2 + _TIP else []

    def _port_way(self, name: str, side: _Side) -> list[tuple[float, float]]:
        """Return the way from a member to its port, the port included; a lone member has none."""
        group = self.nodes[name].group
        if group is None or len(self.members[group]) == 1:
            return []
        inner, port = self.inner[group], (side, name)
        if side == "top":
            way = inner.routes.get((port, name), ())[::-1]
        else:
            way = inner.routes.get((name, port), ())
        origin = _origin(self.outer.centres[("group", group)], inner, lone=False)
        return _moved([*way, inner.centres[port]], origin)


def _boxes(dag: Dag, group_names: Sequence[str]) -> _Boxes:
    """Return the layout of the groups, each with the layout of its members."""
    nodes = {node.name: node for node in dag.nodes}
    edges = [(a, b) for a, b in dag.edges if a in nodes and b in nodes and a != b]
    members: dict[int, list[GraphNode]] = {}
    for node in dag.nodes:
        if node.group is not None:
            members.setdefault(node.group, []).append(node)
    between = [(_box_of(nodes[a]), _box_of(nodes[b])) for a, b in edges]
    layer = layer_numbers(list(dict.fromkeys(map(_box_of, dag.nodes))), between)
    upward = {e for e, (a, b) in zip(edges, between, strict=True) if layer[a] > layer[b]}
    inner = {group: _inner(own, edges, upward) for group, own in members.items()}
    sizes = {
        _box_of(node): _size(node)
        if node.group is None
        else _box_size(inner[node.group], members[node.group], group_names)
        for node in dag.nodes
    }
    outer = layered(sizes, between, gap_x=22, gap_y=34)
    return _Boxes(nodes, edges, upward, members, inner, sizes, outer)


def _box_of(node: GraphNode) -> _Box:
    return ("node", node.name) if node.group is None else ("group", node.group)


def _arrow() -> Html:
    """Return the head of an edge."""
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


def _inner(nodes: Sequence[GraphNode], edges: Sequence[_Edge], upward: set[_Edge]) -> Layout:
    """Return a group's members with their ports.

    Ports are places at the top and bottom where edges from and to other boxes pass the group's
    frame, at most one per member and side.
    """
    own = {node.name for node in nodes}
    sizes: dict[Any, tuple[float, float]] = {node.name: _size(node) for node in nodes}
    inside: list[tuple[Any, Any]] = [(a, b) for a, b in edges if a in own and b in own]
    if len(nodes) == 1:
        return layered(sizes, inside)
    ports: dict[tuple[_Side, str], None] = {}
    for a, b in edges:
        if (a in own) != (b in own):
            leads_down = (a, b) not in upward
            ports["bottom" if leads_down == (a in own) else "top", a if a in own else b] = None
    entries = [port for port in ports if port[0] == "top"]
    exits = [port for port in ports if port[0] == "bottom"]
    inside += [(port, port[1]) for port in entries]
    inside += [(port[1], port) for port in exits]
    # Room for the title and at the bottom, also where nothing enters or leaves.
    if not entries:
        entries = [("top", "")]
        inside.append((entries[0], nodes[0].name))
    if not exits:
        exits = [("bottom", "")]
        inside.append((nodes[-1].name, exits[0]))
    sizes.update(dict.fromkeys([*entries, *exits], _PORT))
    return layered(sizes, inside, gap_x=12, gap_y=22, first=entries, last=exits)


def _moved(
    way: Sequence[tuple[float, float]], by: tuple[float, float]
) -> list[tuple[float, float]]:
    return [(x + by[0], y + by[1]) for x, y in way]


def _title(group: int, nodes: Sequence[GraphNode], names: Sequence[str]) -> str:
    """Return the title of a group's box: its number, and its name unless it is a single Func."""
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
    """Return the origin of a group's inner layout: below its name, or right of its number."""
    x, y = centre[0] - inner.width / 2, centre[1] - inner.height / 2
    return (x + 7, y) if lone else (x, y + _TITLE / 2)


def _group_box(group: int, centre: tuple[float, float], size: tuple[float, float]) -> Html:
    """Return the frame of a group."""
    width, height = size
    x, y = centre[0] - width / 2, centre[1] - height / 2
    return tag("rect", class_=f"{colour(group)} tint", x=x, y=y, width=width, height=height, rx=6)


def _group_title(
    title: str,
    group: int,
    centre: tuple[float, float],
    size: tuple[float, float],
    inner: Layout,
) -> Html:
    """Return the title of a group's box, where fewer edges enter, to the left by preference.

    Edges pass below the plate that it is written on.
    """
    width, height = size
    x, y = centre[0] - width / 2, centre[1] - height / 2
    ports = [place[0] for name, place in inner.centres.items() if isinstance(name, tuple)]
    room = text_width(title)
    reach = room + 4 - _PAD
    to_left = sum(1 for port in ports if port <= reach)
    to_right = sum(1 for port in ports if port >= inner.width - reach)
    left = x + width - 7 - room if ports and to_right < to_left else x + 7
    baseline = y + 14 if ports else y + height / 2 + 4
    plate = tag(
        "rect",
        class_="plate",
        x=left - 2,
        y=baseline - _TITLE_HEIGHT + 4,
        width=room + 4,
        height=_TITLE_HEIGHT,
        rx=3,
    )
    text = tag("text", title, class_=f"{colour(group)} fill groupname", x=left, y=baseline)
    return join(plate if ports else None, text)


def _node(node: GraphNode, place: tuple[float, float]) -> Html:
    width, height = _size(node)
    x, y = place[0] - width / 2, place[1] - height / 2
    classes = ["input" if node.kind == "input" else "node"]
    if node.inlined:
        classes.append("inlined")
    if node.kind == "output":
        classes.append("output")
    hint = f"{node.name}: {node.detail}" if node.detail else node.name
    return tag(
        "g",
        tag("title", hint),
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
    hint: str,
) -> Html:
    """Return a curve that leaves and enters nodes vertically."""
    sign = 1 if end[1] >= start[1] else -1
    half = sign * _HEIGHT / 2
    way = [(start[0], start[1] + half), *route, (end[0], end[1] - half - sign * _TIP)]
    path = [f"M{way[0][0]:.1f} {way[0][1]:.1f}"]
    for (x0, y0), (x1, y1) in pairwise(way):
        if abs(x0 - x1) < 0.5:
            path.append(f"L{x1:.1f} {y1:.1f}")
        else:
            bend = (y0 + y1) / 2
            path.append(f"C{x0:.1f} {bend:.1f} {x1:.1f} {bend:.1f} {x1:.1f} {y1:.1f}")
    return tag("path", tag("title", hint), class_="edge", d="".join(path), marker_end="url(#arrow)")
