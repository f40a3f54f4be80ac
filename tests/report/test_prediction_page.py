"""The page of a model of run time: complete, self-contained, and true to its data."""

import re
from dataclasses import replace
from html.parser import HTMLParser

from tilewright.report.pages.prediction import PredictionReport, prediction_page, rows_table

REPORT = PredictionReport(
    title="Runs of <matmul>",
    model="ours (74 fitted numbers)",
    machine="a machine",
    how="held out",
    measured=[1e-5, 2e-4, 3e-3, 4e-3, 1.0],
    predicted=[1.1e-5, 2e-4, 2e-3, 4e-3, 1.5],
    low=[0.9e-5, 1.9e-4, 1.9e-3, 3e-3, 1.4],
    high=[1.2e-5, 2.1e-4, 2.1e-3, 5e-3, 1.6],
    outside=[False, False, False, False, True],
    texts=["m 1", "m 2", "m 3", "m 4", "m <5>"],
    coverages={0.5: 0.4, 0.9: 0.6},
    mape=0.1867,
    mape_long=0.21,
    spearman=0.9,
    floor=0.014,
    parameters=74,
    features=[("m", "rows", 1.0, 512.0), ("d", "1", 1e-5, 1.0)],
    chosen={
        "inputs": ["log(m)", "log(d)"],
        "error": 0.0319,
        "errors": {"ours": 0.03, "gp": 0.04},
        "tried": [{"terms": 1, "error": 0.05}, {"terms": 4, "error": 0.03}],
    },
    dropped=["line 7: no <n>"],
    notes=["a remark"],
    results=[
        {
            "name": "prediction_tables",
            "note": "of this machine",
            "summary": {"mape_ours": 2.5},
            "rows": [{"kernel": "matmul", "mape": {"nnc": 50.0, "ours": None}, "splits": [{}]}],
            "tables": {
                "VI": {
                    "title": "MAPE of matmul <i>",
                    "columns": ["numpy", "eigen"],
                    "rows": {"NN+C": [12.345, None], "ours": [[1.5, 1.25, 0.99], 2.0]},
                },
                "IX": {"title": "pooling", "columns": [], "rows": {"NN+C": []}},
            },
        }
    ],
    facts={"seed": "0"},
)


class Checker(HTMLParser):
    """Tags that are open, and whatever would be fetched from elsewhere."""

    VOID = ("meta", "br", "hr", "img", "link", "input")

    def __init__(self, text):
        super().__init__()
        self.open, self.fetched = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        self.fetched += [v for k, v in attributes if k in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_everything_known_is_on_the_page_and_nothing_is_fetched():
    html = prediction_page(REPORT)
    checked = Checker(html)
    assert not checked.open
    assert not checked.fetched
    assert "Table IX" not in html  # nothing is in it
    for words in (
        "Runs of &lt;matmul&gt;",
        "Predicted against measured",
        "Error against run time",
        "Intervals",
        "log(m), log(d)",
        "ours 3.0%, gp 4.0%",
        "All 2 configurations",
        "Training range",
        "1 row left out",
        "line 7: no &lt;n&gt;",
        "a remark",
        "Prediction tables",
        "mape nnc",
        "of this machine",
        "Table VI. MAPE of matmul &lt;i&gt;",
        "12.3",
        "1.5 (1.25), 0.990",
        "m &lt;5&gt;: measured 1 s, predicted 1.5 s",
        "differs by the noise floor, 1.4%",
    ):
        assert words in html, words


def test_each_run_is_drawn_once_in_each_picture_by_what_became_of_it():
    html = prediction_page(REPORT)
    # Two pictures, each for wide and for narrow screens.
    assert html.count("<circle") == 4 * len(REPORT.measured)
    against = html[html.index("Predicted against measured") : html.index("Error against")]
    groups = re.findall(r'<g class="c(\d) fill"[^>]*>(.*?)</g>', against)
    # inside the interval, outside of it, outside the training range
    assert [inner.count("<circle") for _, inner in groups] == 2 * [3, 1, 1]


def test_the_share_inside_the_intervals_is_that_of_the_data():
    assert sum(REPORT.inside) == 3
    assert "<b" in prediction_page(REPORT)
    assert ">60%</b><span>inside intervals of 90%</span>" in prediction_page(REPORT)


def test_unknown_values_are_left_out():
    bare = PredictionReport(title="t", model="c", measured=[1.0, 2.0], predicted=[1.0, -1.0])
    html = prediction_page(bare)
    assert not Checker(html).open
    for words in ("Intervals", "Training range", "Chosen", "noise floor", "Left out"):
        assert words not in html
    assert "1 prediction at or below zero" in html
    assert "Predicted against" not in prediction_page(replace(bare, measured=[], predicted=[]))


def test_rows_of_results_become_a_table():
    found = rows_table([{"a": 1, "b": {"x": 0.5}}, {"a": 22, "b": {"x": float("nan")}, "c": "z"}])
    assert [c.heading for c in found.columns] == ["a", "b x", "c"]
    assert [c.align for c in found.columns] == ["right", "right", "left"]
    assert found.rows == (("1", "0.5", ""), ("22", "–", "z"))
