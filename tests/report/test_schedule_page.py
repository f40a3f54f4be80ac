"""The page of a schedule: complete, self-contained, and true to its data."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tilewright.report.charts.dag import dag_picture
from tilewright.report.model import (
    Attempt,
    Bar,
    Dag,
    GraphNode,
    GroupRow,
    NestLine,
    ScheduleReport,
)
from tilewright.report.pages.page import html_table
from tilewright.report.pages.schedule import schedule_page
from tilewright.report.standing import against_naive
from tilewright.report.table import (
    Column,
    attempt_table,
    comparison_table,
    group_table,
    table,
    to_text,
)
from tilewright.report.text import explain, headline

GROUPS = (
    GroupRow("blur_x", ("in_wrap", "blur_x"), (("x", 64), ("y", 8)), parallel=120, vector=16),
    GroupRow(
        "out<b>",
        ("out<b>",),
        (("x", 32), ("y", 16)),
        blocks=(24, 96),
        threads=(32, 16),
        shared_bytes=2048,
        registers=40,
        occupancy=0.625,
        predicted=0.002,
        measured=0.0021,
        note="inside threads",
    ),
)
REPORT = ScheduleReport(
    pipeline="blur <1>",
    target="cuda",
    machine="NVIDIA H100",
    mode="top",
    verified=True,
    seconds=0.002,
    naive_seconds=0.1,
    groups=GROUPS,
    dag=Dag(
        (
            GraphNode("input", "input"),
            GraphNode("in_wrap", group=0, inlined=True),
            GraphNode("blur_x", group=0),
            GraphNode("out<b>", "output", group=1),
        ),
        (("input", "in_wrap"), ("in_wrap", "blur_x"), ("blur_x", "out<b>"), ("gone", "blur_x")),
    ),
    nest=(
        NestLine(0, "produce", "out", group=1),
        NestLine(1, "for", "y", mapping="gpu_block", extent=96, group=1),
        NestLine(2, "allocate", "blur_x", memory="gpu_shared", bytes=2048, group=0),
        NestLine(2, "compute", "out", group=1),
    ),
    attempts=(Attempt("first", "ok", measured=0.002), Attempt("second", "crashed", note="signal")),
    comparison=(
        Bar("naive", 0.1),
        Bar("Mullapudi2016", 0.003, 0.0029, 0.0031),
        Bar("Li2018", status="crashed", message="terminate called"),
        Bar("Tilewright", 0.002, 0.0019, 0.0021, ours=True),
    ),
    python="out.gpu_tile(x, y, xi, yi, 32, 16)",
    cpp="out.gpu_tile(x, y, xi, yi, 32, 16);",
    notes=("a remark",),
    facts={"Halide": "21.0.0"},
)


class Balance(HTMLParser):
    """Checks that elements are closed in order, and collects text and links."""

    def __init__(self):
        super().__init__()
        self.stack, self.text, self.links = [], [], []

    def handle_starttag(self, tag, attrs):
        self.links += [v for k, v in attrs if k in ("src", "href", "xlink:href")]
        if tag not in ("meta", "br", "hr", "img", "link", "input"):
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def parsed(html):
    parser = Balance()
    parser.feed(html)
    parser.close()
    assert parser.stack == []
    return parser


def test_the_page_is_well_formed_and_loads_nothing():
    html = schedule_page(REPORT)
    page = parsed(html)
    assert page.links == []
    outside = re.sub(r'xmlns="[^"]*"', "", html)
    assert not re.search(r"https?://|@import|<script|url\((?!#)", outside)


def test_the_page_shows_everything():
    text = " ".join(parsed(schedule_page(REPORT)).text)
    for expected in (
        "blur <1>",
        "NVIDIA H100",
        "50×",
        "1.5×",
        "verified",
        "out<b>",
        "24×96",
        "32×16",
        "2 KiB",
        "62%",
        "2.1 ms",
        "crashed: terminate called",
        "gpu shared",
        "a remark",
        "21.0.0",
        "out.gpu_tile",
        "second",
    ):
        assert expected in text, expected


def test_the_predicted_time_is_shown_next_to_the_measured_one():
    html = schedule_page(replace(REPORT, predicted=0.00175))
    assert "<b>1.75 ms</b><span>predicted</span>" in html
    assert "<b>2 ms</b><span>per run</span>" in html


def test_an_empty_report_is_a_page_too():
    page = parsed(schedule_page(ScheduleReport("p", "host")))
    assert "not run" in page.text


def test_a_wrong_answer_cannot_be_overlooked():
    report = ScheduleReport("p", "host", verified=False, seconds=1.0)
    assert "WRONG ANSWER" in headline(report)
    assert 'class="bad">wrong' in schedule_page(report)


def test_dark_light_and_print_are_styled():
    html = schedule_page(REPORT)
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html


def test_the_graph_boxes_groups_and_leaves_out_unknown_ends():
    svg = dag_picture(REPORT.dag, [g.name for g in GROUPS])
    assert svg.count(" tint") == 2
    assert svg.count('class="edge"') == 3
    assert "in_wrap → blur_x" in svg
    assert "gone" not in svg


@pytest.mark.parametrize("n", [1, 70])
def test_graphs_of_any_size_are_drawn(n):
    nodes = tuple(GraphNode(f"f{i}", group=i // 4) for i in range(n))
    edges = [(f"f{i}", f"f{j}") for i in range(n) for j in (i + 1, i + 3, i + 9) if j < n]
    svg = dag_picture(Dag(nodes, tuple(edges)), [f"g{i}" for i in range(n)])
    assert svg.count('class="edge"') == len(edges)


def test_the_text_has_the_same_figures():
    text = explain(REPORT)
    assert "50× as fast as the naive schedule (100 ms), 1.5× as fast as Mullapudi2016 (" in text
    lines = text.splitlines()
    row = next(line for line in lines if line.startswith("out<b>"))
    assert re.split(r"\s{2,}", row)[1:] == [
        "out<b>", "x 32, y 16", "24×96", "32×16", "–", "–",
        "2 KiB", "40", "62%", "2 ms", "2.1 ms", "inside threads",
    ]  # fmt: skip
    assert any(line.startswith("Li2018") and "crashed" in line for line in lines)


def test_columns_with_nothing_to_say_are_left_out():
    columns = [
        c.heading for c in group_table(ScheduleReport("p", "host", groups=GROUPS[:1])).columns
    ]
    assert columns == ["group", "Funcs", "tile", "tasks", "vector"]


def test_costs_without_a_unit_are_shares():
    groups = (GroupRow("a", ("a",), predicted=3.0), GroupRow("b", ("b",), predicted=1.0))
    report = ScheduleReport("p", "host", groups=groups, predicted_unit="cost")
    assert [row[-1] for row in group_table(report).rows] == ["75%", "25%"]
    assert "share of the model's cost" in explain(report)


def test_a_comparison_is_relative_to_ours():
    rows = {row[0]: row for row in comparison_table(REPORT).rows}
    assert rows["Mullapudi2016"][1:4] == ("3 ms", "2.9 ms to 3.1 ms", "1.5×")
    assert rows["Li2018"][1] == "crashed"
    paired = comparison_table(with_best_other((0.98, 0.951, 1.01))).rows
    assert [row[3] for row in paired] == ["32.7×", "0.98× (0.951 to 1.01)", "1×"]


def test_a_table_without_rows():
    assert to_text(table([Column("a"), Column("b")], [])).splitlines()[0] == "a"


def test_a_report_is_json():
    data = json.loads(json.dumps(REPORT.to_dict()))
    assert data["speedup"] == pytest.approx(50)
    assert data["groups"][1]["threads"] == [32, 16]


def with_best_other(slower=None, low=0.0029, high=0.0031):
    other = Bar("Mullapudi2016", 0.003, low, high, slower=slower)
    ours = Bar("Tilewright", 0.00306, 0.0030, 0.0031, ours=True)
    return replace(REPORT, comparison=(Bar("naive", 0.1), other, ours))


def test_a_tie_with_the_best_other_is_called_one_and_not_red():
    for report in (with_best_other(), with_best_other((0.98, 0.95, 1.01))):
        text = " ".join(parsed(schedule_page(report)).text)
        assert "as fast as Mullapudi2016 (the best other)" in text
        assert "0.98×" not in text.split("Comparison")[0]
        assert 'class="bad"' not in schedule_page(report)
        assert ", as fast as Mullapudi2016 (the best other)," in headline(report)


def test_a_loss_against_the_best_other_is_red_and_names_it():
    for report in (with_best_other((0.98, 0.97, 0.99)), with_best_other(None, 0.0028, 0.00299)):
        assert "0.98×" in schedule_page(report)
        assert "as fast as Mullapudi2016 (the best other)" in schedule_page(report)
        assert 'class="bad"' in schedule_page(report)


@pytest.mark.parametrize(("high", "tie"), [(1.02, True), (0.99, False)])
def test_a_tie_with_the_naive_schedule_is_not_red(high, tie):
    bars = (Bar("naive", 0.00196, slower=(0.98, 0.9, high)), Bar("T", 0.002, ours=True))
    slow = replace(REPORT, naive_seconds=0.00196, comparison=())
    for report in (replace(slow, comparison=bars), replace(slow, speedup_interval=(0.9, high))):
        assert ('class="bad"' in schedule_page(report)) is not tie
        factor = "" if tie else "0.98× "
        assert f"2 ms, {factor}as fast as the naive schedule (1.96 ms)" in headline(report)


def test_a_large_factor_of_disturbed_times_is_uncertain_and_no_tie():
    bars = (Bar("naive", 0.16, slower=(14.1, 0.65, 171.0)), Bar("T", 0.01, ours=True))
    report = replace(REPORT, comparison=bars)
    words = "14.1× as fast as the naive schedule (uncertain: 0.65× to 171×)"
    assert words in headline(report)
    assert words.split("× ", 1)[1] in " ".join(parsed(schedule_page(report)).text)
    assert against_naive(report).tone == ""


def test_candidates_have_one_time_each_and_say_where_it_was_taken():
    attempts = (
        Attempt("schedule 1", "ok", measured=0.002, source="final rounds", chosen=True),
        Attempt("schedule 2", "ok", measured=0.004, source="alone, recorded"),
        Attempt("schedule 3", "ok", source="alone", cut_short=True, note="reads too much"),
    )
    rows = attempt_table(replace(REPORT, attempts=attempts)).rows
    assert rows == (
        ("schedule 1 (chosen)", "ok", "2 ms", "final rounds", ""),
        ("schedule 2", "ok", "4 ms", "alone, recorded", ""),
        ("schedule 3", "cut short", "–", "alone", "reads too much"),
    )


def test_rows_of_wide_tables_have_their_headings_for_narrow_screens():
    wide = html_table(table("name | >time | tile | note", [("a", "1 s", "x 4", "b")]))
    assert '<td class="right" data-heading="time">1 s</td>' in wide
    assert 'class="lists"' in wide
    narrow = html_table(table("name | >time", [("a", "1 s")]))
    assert "data-heading" not in narrow
    assert 'class="lists"' not in narrow
