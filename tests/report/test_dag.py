"""The drawing of a graph, from the geometry of its SVG: edges run through no name."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tilewright.report.charts.dag import dag_picture
from tilewright.report.charts.svg import text_width
from tilewright.report.model import Dag, GraphNode

SVG = "{http://www.w3.org/2000/svg}"
# Points per curve at which an edge is looked at.
STEPS = 40
NAMES = ["first group", "a group with a very long name", "", "g"]


def box(rect):
    x, y, width, height = (float(rect.get(name)) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def inside(point, rect, margin=0.5):
    x0, y0, x1, y1 = rect
    return x0 + margin < point[0] < x1 - margin and y0 + margin < point[1] < y1 - margin


def way(path):
    """Points along an edge."""
    found = []
    for kind, text in re.findall(r"([MLC])([^MLC]*)", path):
        numbers = list(map(float, text.split()))
        ends = list(zip(numbers[::2], numbers[1::2], strict=True))
        if kind == "M":
            found += ends
            continue
        known = [found[-1], *ends]
        while len(known) < 4:  # a line is a curve whose middle points are its ends
            known.insert(1, known[0])
            known.insert(-1, known[-1])
        for i in range(1, STEPS + 1):
            t = i / STEPS
            shares = ((1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t**2, t**3)
            found.append(
                tuple(sum(s * p[k] for s, p in zip(shares, known, strict=True)) for k in (0, 1))
            )
    return found


def drawn(svg):
    """The drawing's parts from back to front."""
    return list(next(ElementTree.fromstring(svg).iter(f"{SVG}g")))


def edges(parts):
    """The edges by their ends, as points."""
    return [
        (tuple(part.find(f"{SVG}title").text.split(" → ")), way(part.get("d")))
        for part in parts
        if part.get("class") == "edge"
    ]


def check(svg):
    """No edge passes below or above a name that is not at its end."""
    parts = drawn(svg)
    places = {
        part.find(f"{SVG}text").text: box(part.find(f"{SVG}rect"))
        for part in parts
        if part.tag == f"{SVG}g"
    }
    ways = edges(parts)
    for ends, points in ways:
        for name, rect in places.items():
            if name not in ends:
                assert not any(inside(point, rect) for point in points), (ends, name)
    # Titles of groups stand on plates, in front of every edge.
    last_edge = max((i for i, part in enumerate(parts) if part.get("class") == "edge"), default=-1)
    for i, part in enumerate(parts):
        if "groupname" not in (part.get("class") or ""):
            continue
        assert i > last_edge
        x, y = float(part.get("x")), float(part.get("y"))
        letters = (x, y - 10, x + text_width(part.text), y + 2)
        if any(inside(point, letters) for _, points in ways for point in points):
            plate = parts[i - 1]
            assert plate.get("class") == "plate"
            x0, y0, x1, y1 = box(plate)
            assert x0 <= letters[0]
            assert y0 <= letters[1]
            assert letters[2] <= x1
            assert letters[3] <= y1
    return ways


@st.composite
def graphs(draw):
    """Graphs with groups of any members, so that groups may read one another in a circle."""
    n = draw(st.integers(1, 14))
    nodes = tuple(
        GraphNode(
            f"{'long_name_' if draw(st.booleans()) else 'f'}{i}",
            group=draw(st.one_of(st.none(), st.integers(0, len(NAMES) - 1))),
        )
        for i in range(n)
    )
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=30))
    wired = {(nodes[a].name, nodes[b].name) for a, b in pairs}
    return Dag(nodes, tuple(sorted(wired)))


# A small box next to a high one: what leaves it must not turn before the high one ends.
BESIDE = Dag(
    (
        GraphNode("input", "input"),
        GraphNode("lone", group=0),
        *(GraphNode(name, group=1) for name in ("top", "middle", "bottom")),
        GraphNode("left", group=2),
        GraphNode("right", group=3),
    ),
    (
        *pairwise(("input", "top", "middle", "bottom", "left")),
        ("input", "lone"),
        ("lone", "right"),
        ("lone", "left"),
        ("top", "right"),
        ("bottom", "right"),
    ),
)
# Each of two boxes reads the other.
CIRCLE = Dag(
    tuple(GraphNode(name, group=i // 2) for i, name in enumerate("abcd")),
    (("a", "c"), ("c", "b"), ("b", "d"), ("d", "a")),
)


@given(graphs())
@example(BESIDE)
@example(CIRCLE)
def test_edges_run_through_no_name(dag):
    ways = check(dag_picture(dag, NAMES))
    assert len(ways) == sum(a != b for a, b in dag.edges)


@given(graphs())
@example(BESIDE)
def test_edges_join_their_nodes(dag):
    parts = drawn(dag_picture(dag, NAMES))
    places = {
        part.find(f"{SVG}text").text: box(part.find(f"{SVG}rect"))
        for part in parts
        if part.tag == f"{SVG}g"
    }
    for (a, b), points in edges(parts):
        for name, (x, y) in ((a, points[0]), (b, points[-1])):
            x0, y0, x1, y1 = places[name]
            assert x0 <= x <= x1, (a, b)
            assert min(abs(y - y0), abs(y - y1)) < 3, (a, b)


def test_an_edge_through_a_name_is_found():
    picture = dag_picture(Dag((GraphNode("a"), GraphNode("b"), GraphNode("c")), (("a", "b"),)), [])
    (left, top, right, bottom) = next(
        box(part.find(f"{SVG}rect")) for part in drawn(picture) if "c" in part.itertext()
    )
    middle = (top + bottom) / 2
    through = f"M{left} {middle}L{right} {middle}"
    with pytest.raises(AssertionError):
        check(re.sub(r'(class="edge" d=")[^"]*', rf"\g<1>{through}", picture))
