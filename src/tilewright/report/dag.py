"""A pipeline's graph with its groups."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tilewright.report.html import Html, tag
from tilewright.report.layout import Layout, layered
from tilewright.report.model import Dag, Node
from tilewright.report.svg import colour, picture, shorten, text_width

_NAME = 22  # characters
_HEIGHT = 24.0
_PAD = 12.0
_TITLE = 20.0
_MARGIN = 8.0

# A box of the outer layout: a group by number, or a node outside all groups by name.
_Box = tuple[str, int | str]


def dag_picture(dag: Dag, group_names: Sequence[str], *, label: str = "Pipeline") -> Html:
    """The graph from inputs at the top to outputs at the bottom.

    Members of a group stand together in a box of the group's colour that carries its number and
    its name. Inputs are rounded, outputs framed strongly, inlined Funcs dashed. Edges to nodes
    that are not there are left out.
    """
    by_name = {node.name: node for node in dag.nodes}
    edges = [(a, b) for a, b in dag.edges if a in by_name and b in by_name]
    members: dict[int, list[Node]] = {}
    for node in dag.nodes:
        if node.group is not None:
            members.setdefault(node.group, []).append(node)
    inner = {group: _inner(nodes, edges) for group, nodes in members.items()}

    def box_of(node: Node) -> _Box:
        return ("node", node.name) if node.group is None else ("group", node.group)

    sizes: dict[_Box, tuple[float, float]] = {}
    for node in dag.nodes:
        box = box_of(node)
        if node.group is None:
            sizes[box] = _size(node)
        else:
            sizes[box] = _box_size(inner[node.group], members[node.group], group_names)
    outer_edges = [(box_of(by_name[a]), box_of(by_name[b])) for a, b in edges]
    outer = layered(sizes, outer_edges, gap_x=22, gap_y=34)

    place = {
        node.name: _place(node, outer.centres[box_of(node)], inner, members) for node in dag.nodes
    }
    drawn: list[Html] = []
    for group, nodes in members.items():
        drawn += _group_box(group, nodes, outer.centres[("group", group)], sizes, group_names)
    for a, b in edges:
        route: tuple[tuple[float, float], ...]
        own = by_name[a].group
        if own is not None and own == by_name[b].group:
            dx, dy = _origin(outer.centres[("group", own)], inner[own], members[own])
            route = tuple((x + dx, y + dy) for x, y in inner[own].routes.get((a, b), ()))
        else:
            route = outer.routes.get((box_of(by_name[a]), box_of(by_name[b])), ())
        drawn.append(_edge(place[a], place[b], route, f"{a} → {b}"))
    drawn += [_node(node, place[node.name]) for node in dag.nodes]
    width, height = outer.width + 2 * _MARGIN, outer.height + 2 * _MARGIN
    marker = tag(
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
    body = tag("g", *drawn, transform=f"translate({_MARGIN:g} {_MARGIN:g})")
    return picture(width, height, label, tag("defs", marker), body)


def _size(node: Node) -> tuple[float, float]:
    return (max(36.0, text_width(shorten(node.name, _NAME)) + 18), _HEIGHT)


def _inner(nodes: Sequence[Node], edges: Sequence[tuple[str, str]]) -> Layout:
    own = {node.name for node in nodes}
    sizes = {node.name: _size(node) for node in nodes}
    return layered(sizes, [(a, b) for a, b in edges if a in own and b in own], gap_x=12, gap_y=22)


def _title(group: int, nodes: Sequence[Node], names: Sequence[str]) -> str:
    """What a group's box is called; a lone Func needs no name beside its own."""
    name = names[group] if group < len(names) else ""
    return f"{group + 1}" if len(nodes) == 1 else f"{group + 1}  {shorten(name, _NAME)}"


def _box_size(inner: Layout, nodes: Sequence[Node], names: Sequence[str]) -> tuple[float, float]:
    group = nodes[0].group
    assert group is not None
    if len(nodes) == 1:
        # The number stands to the left of the only member.
        return (inner.width + 2 * _PAD + 14, inner.height + 12)
    width = max(inner.width, text_width(_title(group, nodes, names)) + 8)
    return (width + 2 * _PAD, inner.height + _TITLE + _PAD + 4)


def _origin(
    centre: tuple[float, float], inner: Layout, nodes: Sequence[Node]
) -> tuple[float, float]:
    """Where a group's inner layout begins."""
    x = centre[0] - inner.width / 2
    y = centre[1] - inner.height / 2
    return (x + 7, y) if len(nodes) == 1 else (x, y + (_TITLE - _PAD + 4) / 2)


def _place(
    node: Node,
    centre: tuple[float, float],
    inner: dict[int, Layout],
    members: dict[int, list[Node]],
) -> tuple[float, float]:
    if node.group is None:
        return centre
    x, y = _origin(centre, inner[node.group], members[node.group])
    dx, dy = inner[node.group].centres[node.name]
    return (x + dx, y + dy)


def _group_box(
    group: int,
    nodes: Sequence[Node],
    centre: tuple[float, float],
    sizes: dict[_Box, tuple[float, float]],
    names: Sequence[str],
) -> list[Html]:
    width, height = sizes[("group", group)]
    x, y = centre[0] - width / 2, centre[1] - height / 2
    title = _title(group, nodes, names)
    text_y = y + (height / 2 + 4 if len(nodes) == 1 else 15)
    return [
        tag(
            "rect",
            class_=f"{colour(group)} tint",
            x=x,
            y=y,
            width=width,
            height=height,
            rx=6,
        ),
        tag("text", title, class_=f"{colour(group)} fill groupname", x=x + 7, y=text_y),
    ]


def _node(node: Node, place: tuple[float, float]) -> Html:
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
