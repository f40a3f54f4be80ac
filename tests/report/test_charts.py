"""Charts are well-formed SVG that shows what it is given."""

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tilewright.report.charts.bars import bar_chart
from tilewright.report.charts.gantt import GanttTask, gantt_chart
from tilewright.report.charts.lines import Line, line_chart
from tilewright.report.charts.parallel import Axis, parallel_coordinates
from tilewright.report.charts.scatter import MOST_POINTS, Points, scatter_plot
from tilewright.report.charts.svg import NARROW, WIDTH, reflowing
from tilewright.report.model import Bar
from tilewright.report.pages.html import Html, escape, number, tag

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg):
    """The text of a picture, without what is shown on hovering."""
    return [
        (e.text or "") + "".join(child.tail or "" for child in e)
        for e in ElementTree.fromstring(svg).iter(f"{SVG}text")
    ]


def widths(svg, kind):
    root = ElementTree.fromstring(svg)
    return [
        float(e.get("width")) for e in root.iter(f"{SVG}rect") if kind in (e.get("class") or "")
    ]


def coordinates(svg):
    """Every number of the drawing that is a place."""
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        for name in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height"):
            if element.get(name) is not None:
                yield float(element.get(name))
        for value in re.findall(r"-?[\d.]+", element.get("points") or ""):
            yield float(value)


def test_text_is_escaped_and_markup_is_not():
    assert escape("<b>") == "&lt;b&gt;"
    assert escape(Html("<b>")) == "<b>"
    assert tag("p", "<script>", title='"') == '<p title="&quot;">&lt;script&gt;</p>'


def test_values_that_cannot_be_drawn_are_refused():
    with pytest.raises(ValueError, match="nan"):
        number(math.nan)


def test_bars_are_as_long_as_their_values():
    svg = bar_chart([Bar("a", 1.0), Bar("b", 2.0), Bar("c", 4.0, ours=True)], label="x")
    a, b = widths(svg, "muted")
    (c,) = widths(svg, "accent")
    assert b == pytest.approx(2 * a, rel=0.01)
    assert c == pytest.approx(4 * a, rel=0.01)


def test_a_very_long_bar_is_cut_and_says_so():
    svg = bar_chart([Bar("slow", 1000.0), Bar("fast", 1.0)], label="x", cut=8)
    slow, fast = widths(svg, "muted")
    assert slow == pytest.approx(8 * fast, rel=0.01)
    assert 'class="cut"' in svg
    assert "1000 s" in texts(svg)
    assert 'class="cut"' not in bar_chart([Bar("slow", 7.0), Bar("fast", 1.0)], label="x")


def test_failures_are_shown_with_their_cause():
    svg = bar_chart([Bar("peer", status="out_of_memory", message="9 GB"), Bar("a", 1.0)], label="x")
    assert any("out of memory: 9 GB" in text for text in texts(svg))
    assert len(widths(svg, "muted")) == 1


def test_intervals_are_drawn():
    assert "whisker" in bar_chart([Bar("a", 1.0, 0.9, 1.1)], label="x")
    assert "whisker" not in bar_chart([Bar("a", 1.0)], label="x")


@pytest.mark.parametrize("bars", [[], [Bar("a", status="crashed")], [Bar("a", 0.0)]])
def test_bars_without_anything_to_draw(bars):
    ElementTree.fromstring(bar_chart(bars, label="x"))


def test_lines_with_bands_legend_and_gaps():
    lines = [
        Line("ours", [1, 2, 3], [3.0, 2.0, 1.0], [2.5, 1.5, 0.9], [4.0, 2.2, 1.1], steps=True),
        Line("other", [1, 2, 3, 4], [3.0, math.nan, 2.5, 2.4]),
    ]
    svg = line_chart(lines, label="x", x_label="evaluations", y_label="time", log_y=True)
    assert {"ours", "other", "evaluations", "time"} <= set(texts(svg))
    root = ElementTree.fromstring(svg)
    assert len(list(root.iter(f"{SVG}polygon"))) == 1
    curves = list(root.iter(f"{SVG}polyline"))
    assert [len(e.get("points").split()) for e in curves] == [5, 2]


finite = st.floats(-1e12, 1e12)
anything = st.one_of(finite, st.just(math.nan), st.just(math.inf))


@given(st.lists(st.tuples(anything, anything), max_size=20), st.booleans(), st.booleans())
@example([(5e-324, 5e-324)], True, False)
@example([(1.0, 1.0 + 1e-16), (1.0, 1.0)], False, True)
@example([(-1e12, 5e-324), (1e12, -5e-324)], False, False)
@example([(13512.0, 0.0), (5e-282, 0.0)], True, False)
def test_any_line_and_any_points_can_be_drawn(pairs, log_x, log_y):
    xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
    for svg in (
        line_chart([Line("a", xs, ys)], label="x", log_x=log_x, log_y=log_y),
        scatter_plot([Points("a", xs, ys)], label="x", log_x=log_x, log_y=log_y, diagonal=True),
    ):
        assert all(-1 <= c <= 900 for c in coordinates(svg))


def test_scatter_draws_and_thins():
    many = Points("a", range(1, 20001), range(1, 20001))
    svg = scatter_plot([many, Points("b", [5.0], [7.0], ["this one"])], label="x", log_x=True)
    root = ElementTree.fromstring(svg)
    circles = list(root.iter(f"{SVG}circle"))
    assert 2000 <= len(circles) <= MOST_POINTS + 1
    assert "this one" in svg


def test_the_diagonal_joins_equal_values():
    svg = scatter_plot([Points("a", [1, 10], [2, 30])], label="x", diagonal=True)
    (guide,) = [
        e for e in ElementTree.fromstring(svg).iter(f"{SVG}line") if e.get("class") == "guide"
    ]
    assert float(guide.get("x1")) < float(guide.get("x2"))
    assert float(guide.get("y1")) > float(guide.get("y2"))


def test_parallel_coordinates_draw_the_best_last_and_failures_apart():
    axes = [
        Axis("tile", [8, 16, 32], log=True),
        Axis("order", ["xy", "yx", "xy"]),
        Axis("flag", [True, False, True]),
    ]
    svg = parallel_coordinates(axes, [2.0, 1.0, None], label="x")
    strands = list(ElementTree.fromstring(svg).iter(f"{SVG}polyline"))
    assert len(strands) == 3
    assert "c3" in strands[0].get("class")
    assert strands[-1].get("stroke-width") == "2.2"
    assert {"tile", "order", "flag", "xy", "yx"} <= {t.strip() for t in texts(svg)}


def test_many_strands_are_thinned_but_the_best_stay():
    n = 6000
    svg = parallel_coordinates(
        [Axis("a", list(range(n))), Axis("b", [0] * n)], list(map(float, range(n))), label="x"
    )
    strands = list(ElementTree.fromstring(svg).iter(f"{SVG}polyline"))
    assert 1000 <= len(strands) <= 1600
    assert strands[-1].get("stroke-width") == "2.2"


def test_gantt():
    svg = gantt_chart(
        [GanttTask("mm 1", "cpu", 0, 1), GanttTask("mm 2", "gpu", 0.5, 3, kind=1)],
        ["cpu", "gpu"],
        label="x",
    )
    first, second = widths(svg, "tint")
    assert second == pytest.approx(2.5 * first, rel=0.01)
    assert {"cpu", "gpu", "mm 1"} <= set(texts(svg))


def test_a_reflowing_chart_has_letters_of_one_size_on_wide_and_narrow_screens():
    bars = [Bar("Tilewright with a long name, one shot", 2.0, ours=True), Bar("naive", 4.0)]
    html = reflowing(lambda width: bar_chart(bars, label="times", width=width))
    widths = [float(w) for w in re.findall(r'<svg[^>]* width="(\d+)"', html)]
    assert widths == [WIDTH, NARROW]
    assert widths[1] <= 400
    wide, narrow = html.split('class="narrow"')
    assert "long name" in wide
    for x, text in re.findall(r'<text[^>]* x="([0-9.]+)"[^>]*>([^<]*)</text>', narrow):
        assert 0 <= float(x) <= NARROW, text
