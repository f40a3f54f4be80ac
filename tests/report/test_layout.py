"""Layered drawings: nothing overlaps, arrows go down, routes avoid nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.report.charts.layout import layered


@st.composite
def graphs(draw, cycles=False):
    n = draw(st.integers(1, 14))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=30))
    if not cycles:
        pairs = [(min(p), max(p)) for p in pairs]
    sizes = {
        i: (draw(st.floats(10, 120)), draw(st.sampled_from([0.0, 24.0, 80.0]))) for i in range(n)
    }
    return sizes, pairs


def _box(layout, sizes, node):
    (x, y), (w, h) = layout.centres[node], sizes[node]
    return x - w / 2, y - h / 2, x + w / 2, y + h / 2


@given(graphs())
def test_nodes_do_not_overlap_and_lie_inside(graph):
    sizes, edges = graph
    layout = layered(sizes, edges)
    boxes = {n: _box(layout, sizes, n) for n in sizes}
    for a, (ax0, ay0, ax1, ay1) in boxes.items():
        assert ax0 >= -1e-6
        assert ay0 >= -1e-6
        assert ax1 <= layout.width + 1e-6
        assert ay1 <= layout.height + 1e-6
        for b, (bx0, by0, bx1, by1) in boxes.items():
            if a < b:
                apart = ax1 <= bx0 + 1e-6 or bx1 <= ax0 + 1e-6 or ay1 <= by0 or by1 <= ay0
                assert apart, (a, b)


@given(graphs())
def test_producers_are_above_consumers(graph):
    sizes, edges = graph
    layout = layered(sizes, edges)
    for a, b in edges:
        if a != b:
            assert layout.centres[a][1] < layout.centres[b][1]


@given(graphs())
def test_routes_pass_no_node(graph):
    sizes, edges = graph
    layout = layered(sizes, edges)
    for way in layout.routes.values():
        for x, y in way:
            for node in sizes:
                x0, y0, x1, y1 = _box(layout, sizes, node)
                assert not (x0 < x < x1 and y0 < y < y1)


@given(graphs(cycles=True))
def test_cycles_are_drawn_too(graph):
    sizes, edges = graph
    layout = layered(sizes, edges)
    assert set(layout.centres) == set(sizes)


def test_a_chain_is_straight():
    layout = layered(dict.fromkeys("abcd", (50, 20)), [("a", "b"), ("b", "c"), ("c", "d")])
    assert len({round(x, 3) for x, _ in layout.centres.values()}) == 1


def test_an_edge_that_skips_layers_has_a_way_around():
    layout = layered(dict.fromkeys("abc", (50, 20)), [("a", "b"), ("b", "c"), ("a", "c")])
    assert len(layout.routes[("a", "c")]) == 2
    assert ("a", "b") not in layout.routes


def test_ports_stay_at_the_top_and_the_bottom():
    sizes = dict.fromkeys(["in", "a", "b", "lone", "out"], (30, 20))
    layout = layered(sizes, [("in", "b"), ("a", "b"), ("a", "out")], first=["in"], last=["out"])
    heights = {n: y for n, (_, y) in layout.centres.items()}
    assert heights["in"] == min(heights.values())
    assert heights["out"] == max(heights.values())
    assert heights["in"] < heights["lone"] < heights["out"]


def test_nothing_to_draw():
    assert layered({}, []).width == 0


def test_an_unknown_node_is_refused():
    with pytest.raises(KeyError):
        layered({"a": (1, 1)}, [("a", "b")])
