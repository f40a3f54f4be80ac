"""A pipeline's graph with its groups."""

from __future__ import annotations

from collections.abc import Sequence
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
    by_name = {node.name: node for node in dag.nodes}
    edges = [(a, b) for a, b in dag.edges if a in by_name and b in by_name]
    members: dict[int, list[GraphNode]] = {}
    for node in dag.nodes:
        if node.group is not None:
            members.setdefault(node.group, []).append(node)
    inner = {group: _inner(nodes, edges) for group, nodes in members.items()}

    def box_of(node: GraphNode) -> _Box:
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
        drawn += _group_box(
            _title(group, nodes, group_names),
            group,
            outer.centres[("group", group)],
            sizes[("group", group)],
            inner[group],
        )
    for a, b in edges:
        own, other = by_name[a].group, by_name[b].group
        way: list[tuple[float, float]] = []
        if own is not None and own == other:
            origin = _origin(outer.centres[("group", own)], inner[own], lone=False)
            way += _moved(inner[own].routes.get((a, b), ()), origin)
        else:
            if own is not None and len(members[own]) > 1:
                way += _port_way(inner[own], outer.centres[("group", own)], a, ("out", a))
            way += outer.routes.get((box_of(by_name[a]), box_of(by_name[b])), ())
            if other is not None and len(members[other]) > 1:
                way += _port_way(inner[other], outer.centres[("group", other)], ("in", b), b)
        drawn.append(_edge(place[a], place[b], way, f"{a} → {b}"))
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


def _port_way(
    inner: Layout, centre: tuple[float, float], start: Any, end: Any
) -> list[tuple[float, float]]:
    """The way from a member to its port or from a port to its member, the port included."""
    way = list(inner.routes.get((start, end), ()))
    way = [*way, inner.centres[end]] if isinstance(end, tuple) else [inner.centres[start], *way]
    return _moved(way, _origin(centre, inner, lone=False))


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


def _place(
    node: GraphNode,
    centre: tuple[float, float],
    inner: dict[int, Layout],
    members: dict[int, list[GraphNode]],
) -> tuple[float, float]:
    if node.group is None:
        return centre
    x, y = _origin(centre, inner[node.group], len(members[node.group]) == 1)
    dx, dy = inner[node.group].centres[node.name]
    return (x + dx, y + dy)


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
