import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.prediction import Complexity, PredictionError

NAMES = ("m", "n", "r")


def test_the_papers_complexities():
    table = np.array([[10.0, 7.0, 3.0], [9.0, 9.0, 5.0]])
    conv = Complexity("(m-r+1)*(n-r+1)*r**2", NAMES)
    assert conv(table).tolist() == [8 * 5 * 9, 5 * 5 * 25]
    pool = Complexity("ceil(n/r)*ceil(m/r)*r**2", NAMES)
    assert pool(table).tolist() == [3 * 4 * 9, 2 * 2 * 25]
    assert Complexity("n*log2(n)", NAMES)(np.array([[1.0, 8.0, 1.0]])).tolist() == [24.0]
    assert conv.names == NAMES
    assert Complexity("n + 1", NAMES).names == ("n",)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "m.real",
        "m[0]",
        "[m for m in (1, 2)]",
        "lambda: m",
        "m if n else r",
        "m < n",
        "q + 1",
        "exit()",
        "min(m)",
        "sqrt(m, n)",
        "log(m, base=2)",
        "'text'",
        "True",
        "1e999",
        "m +",
        "",
        "m; n",
        "(" * 300 + "m" + ")" * 300,
        "+".join(["m"] * 500),
    ],
)
def test_only_arithmetic_is_accepted(text):
    with pytest.raises(PredictionError, match="complexity"):
        Complexity(text, NAMES)


@given(
    st.recursive(
        st.sampled_from(["m", "n", "r", "2", "0.5", "3"]),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from("+ - * / // %".split()), inner).map(
                lambda t: f"({t[0]} {t[1]} {t[2]})"
            ),
            inner.map(lambda a: f"max({a}, 1)"),
            inner.map(lambda a: f"ceil({a})"),
            inner.map(lambda a: f"-{a}"),
        ),
        max_leaves=8,
    ),
    st.tuples(*[st.integers(1, 1000)] * 3),
)
def test_the_printed_python_computes_the_same(text, values):
    complexity = Complexity(text, NAMES)
    with np.errstate(all="ignore"):
        expected = complexity(np.array([values], dtype=float))[0]
    scope = {"ceil": math.ceil, "fabs": abs, "m": 0.0, "n": 0.0, "r": 0.0}
    scope.update(zip(NAMES, map(float, values), strict=True))
    try:
        printed = eval(complexity.python(NAMES), scope)
    except (ZeroDivisionError, OverflowError, ValueError):
        assert not np.isfinite(expected) or abs(expected) > 1e300 or "/" in text or "%" in text
        return
    if np.isfinite(expected):
        assert printed == pytest.approx(expected, rel=1e-12)
