import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.report import units
from tilewright.report.charts.scale import Scale, scale

positive = st.floats(1e-9, 1e9)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=20))
def test_a_linear_scale_holds_its_values(values):
    s = scale(values, 0, 100)
    assert all(0 <= s(v) <= 100 for v in values)
    assert s(min(values)) <= s(max(values))
    assert all(s.low <= t * (1 + 1e-9) + 1e-9 for t in s.ticks())
    assert 1 <= len(s.ticks()) <= 20


@given(st.lists(positive, min_size=1, max_size=20))
def test_a_logarithmic_scale_holds_its_values(values):
    s = scale(values, 0, 100, log=True)
    assert all(-1e-6 <= s(v) <= 100 + 1e-6 for v in values)
    assert 1 <= len(s.ticks()) <= 24


def test_zero_and_empty():
    assert scale([3, 5], 0, 1, zero=True).low == 0
    assert scale([], 0, 1).low < scale([], 0, 1).high
    assert scale([math.nan, math.inf, -1, 0], 0, 1, log=True).low > 0


def test_ticks_are_round():
    assert Scale(0, 10, 0, 1).ticks(5) == [0, 2, 4, 6, 8, 10]
    assert Scale(1, 1000, 0, 1, log=True).ticks(4) == pytest.approx([1, 10, 100, 1000])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.inf, "–"),
        (0.0, "0 s"),
        (1.5e-9, "1.5 ns"),
        (2.5e-6, "2.5 µs"),
        (0.00234, "2.34 ms"),
        (0.9999, "1 s"),
        (75.0, "75 s"),
        (1234.0, "1234 s"),
    ],
)
def test_seconds(value, text):
    assert units.seconds(value) == text


@given(st.floats(1e-8, 1e5))
def test_seconds_keep_three_digits(value):
    number, unit = units.seconds(value).split()
    size = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}[unit]
    assert float(number) * size == pytest.approx(value, rel=0.006)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0 B"), (1023, "1023 B"), (49152, "48 KiB"), (1 << 20, "1 MiB")],
)
def test_sizes(value, text):
    assert units.size(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.0, "0%"), (0.034, "3.4%"), (0.5, "50%"), (1.0, "100%")]
)
def test_percent(value, text):
    assert units.percent(value) == text
