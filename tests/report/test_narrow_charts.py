"""Charts on a narrow screen: letters as large as on a wide one, inside the picture, and apart."""

import re
from itertools import combinations, pairwise
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.mapping import Device, Graph, GraphTask, Platform, plan, plan_page
from tilewright.report import units
from tilewright.report.charts.bars import bar_chart
from tilewright.report.charts.gantt import GanttTask, gantt_chart
from tilewright.report.charts.lines import Line, line_chart
from tilewright.report.charts.parallel import Axis, parallel_coordinates
from tilewright.report.charts.scatter import MOST_POINTS, Points, scatter_plot
from tilewright.report.charts.svg import NARROW, text_width
from tilewright.report.model import Bar
from tilewright.report.pages.prediction import PredictionReport, prediction_page
from tilewright.tuning import Integer, Ordinal, Space, Suggestion, Trial
from tilewright.tuning.report import tuning_page

SVG = "{http://www.w3.org/2000/svg}"
HEIGHT = 11  # of letters above their base line


def letters(svg):
    """Every text that is not slanted, with its box as the charts estimate it."""
    for text in ElementTree.fromstring(svg).iter(f"{SVG}text"):
        written = (text.text or "") + "".join(child.tail or "" for child in text)
        if text.get("transform") is None and written:
            x, y, width = float(text.get("x")), float(text.get("y")), text_width(written)
            x -= {"middle": width / 2, "end": width}.get(text.get("text-anchor"), 0.0)
            yield written, (x, y - HEIGHT, x + width, y)


def check(svg):
    """The picture is as wide as a telephone, and its texts can be read."""
    root = ElementTree.fromstring(svg)
    assert float(root.get("width")) <= NARROW
    assert root.get("viewBox").split()[2] == root.get("width")  # drawn at its own size
    found = list(letters(svg))
    for text, (left, top, right, bottom) in found:
        # Half of the last number of an axis may stand beyond it, in the margin of the page.
        assert left >= -4, text
        assert right <= NARROW + 20, text
        assert top >= -4, text
        assert bottom <= float(root.get("height")) + 4, text
    for (text, a), (other, b) in combinations(found, 2):
        apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        assert apart, (text, other)
    return [text for text, _ in found]


seconds = st.lists(st.floats(1e-7, 1e3), min_size=1, max_size=12)


@given(seconds, st.booleans())
def test_axes(values, log):
    texts: dict[str, Any] = {"x_text": units.seconds, "y_text": units.seconds, "width": NARROW}
    check(scatter_plot([Points("a", values, values)], label="x", log_x=log, log_y=log, **texts))
    check(line_chart([Line("a", values, values)], label="x", log_x=log, log_y=log, **texts))


def test_there_is_more_than_one_tick():
    svg = scatter_plot([Points("a", [1e-5, 1e-3], [1, 2])], label="x", log_x=True, width=NARROW)
    assert len(re.findall(r'class="tick"', svg)) >= 4


def test_a_narrow_picture_has_fewer_points():
    many = Points("a", range(1, 10 * MOST_POINTS), range(1, 10 * MOST_POINTS))
    assert scatter_plot([many], label="x", width=NARROW).count("<circle") <= MOST_POINTS // 4


@given(st.lists(st.text("abcdefgh_", min_size=1, max_size=40), min_size=1, max_size=5))
def test_rows_with_names(names):
    devices = list(dict.fromkeys(names))
    tasks = [GanttTask(f"task {i}", d, i, i + 1.5, i) for i, d in enumerate(devices)]
    check(gantt_chart(tasks, devices, label="x", width=NARROW))
    check(bar_chart([Bar(name, 0.5) for name in names], label="x", cut=None, width=NARROW))


@pytest.mark.parametrize("parameters", [1, 2, 4, 5, 12])
def test_axes_that_have_no_room_lie(parameters):
    axes = [
        Axis("a_long_name_of_a_parameter", [2**i for i in range(10)], log=True),
        Axis("order", [f"loops {i} first" for i in range(10)]),
        Axis("factor", [float(i) for i in range(10)]),
        Axis("flag", [True, False] * 5),
    ]
    chosen = [axes[i % 4] for i in range(parameters)]
    objective = [float(i) for i in range(9)] + [None]
    svg = parallel_coordinates(chosen, objective, label="x", width=NARROW)
    strands = [
        [tuple(map(float, p.split(","))) for p in e.get("points").split()]
        for e in ElementTree.fromstring(svg).iter(f"{SVG}polyline")
    ]
    assert [len(s) for s in strands] == [parameters] * 10
    texts = check(svg)
    if parameters > 4:
        assert texts.count("order") == len([a for a in chosen if a.name == "order"])
        assert "512" in texts
        assert all(a[1] < b[1] for s in strands for a, b in pairwise(s))


def pages():
    """A page of every kind that has charts of points, lines or rows."""
    space = Space([Ordinal("tile", (4, 8, 16, 32)), *(Integer(f"p{i}", 0, 9) for i in range(6))])
    rng = np.random.default_rng(0)
    trials = [
        Trial(Suggestion(i, space.decode(code), "random"), "ok", tuple(rng.random(2)))
        for i, code in enumerate(space.sample(rng, 30))
    ]
    yield tuning_page([trials], space, "kernel")
    times = list(rng.random(20))
    report = PredictionReport(
        title="a", model="b", measured=times, predicted=times, coverages={0.5: 0.6, 0.9: 0.9}
    )
    yield prediction_page(report)
    graph = Graph((GraphTask("small", {"cpu": 1.0}), GraphTask("large", {"cpu": 2.0})))
    yield plan_page(plan(graph, Platform((Device("cpu"),))))


def test_every_chart_of_a_page_is_drawn_for_both_screens():
    for page in pages():
        wide = re.findall(r'<div class="wide"><svg', page)
        narrow = re.findall(r'<div class="narrow"><svg', page)
        assert len(wide) == len(narrow) == page.count("<svg") / 2 > 0


def test_names_of_bars_are_whole_on_a_narrow_screen():
    name = "Adams2019, with a beam of one"
    assert name in check(bar_chart([Bar(name, 0.5), Bar("a", 0.25)], label="x", width=NARROW))
