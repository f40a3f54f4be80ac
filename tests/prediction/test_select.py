"""Variants are chosen by predicted time, and the regret of the choice is reported."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.prediction import Augmented, PredictionError, is_selector
from tilewright.prediction.data.collect import ROUNDS
from tilewright.prediction.decisions.regret import regret
from tilewright.prediction.decisions.selector import Modelled, Selector, select, train_selector
from tilewright.prediction.kernels import Kernel, KernelVariant
from tilewright.records import Records


def fitted(features, seconds, count=80):
    rng = np.random.default_rng(0)
    columns = [np.exp(rng.uniform(0, np.log(500), count)).round() for _ in features]
    columns = [
        rng.integers(1, 5, count) if f == "threads" else c
        for f, c in zip(features, columns, strict=True)
    ]
    table = np.stack(columns, axis=1).astype(float)
    return Augmented(features=features).fit(table, seconds(*table.T))


@pytest.fixture(scope="module")
def selector():
    return Selector(
        {
            "dear": fitted(("n",), lambda n: 1e-3 + 1e-6 * n),
            "steep": fitted(("n",), lambda n: 1e-5 * n),
            "parallel": Modelled(
                fitted(("n", "threads"), lambda n, t: 2e-5 * n / t + 5e-4 * t),
                {"threads": (1.0, 4.0)},
            ),
        },
        kernel="thing",
    )


def test_the_fastest_comes_first_with_its_interval(selector):
    found = selector.select({"n": 10})
    assert found.best.variant == "steep"
    assert next(c.variant for c in found.choices) == "steep"
    assert found.best.seconds == pytest.approx(1e-4, rel=0.05)
    assert found.best.low <= found.best.seconds <= found.best.high
    assert not found.outside
    assert selector.select({"n": 450}).best.variant == "dear"


def test_settings_are_chosen_too(selector):
    def threads(n):
        choices = selector.select({"n": n}).choices
        return next(c.settings for c in choices if c.variant == "parallel")

    assert threads(5) == {"threads": 1.0}
    assert threads(480) == {"threads": 4.0}


def test_outside_the_training_range_the_default_is_used(selector):
    found = selector.select({"n": 100_000})
    assert found.outside
    assert found.best.variant == "dear"
    assert selector.choose([{"n": 10}, {"n": 100_000}]) == ["steep", "dear"]


def test_many_queries_at_once_agree_with_one_by_one(selector):
    queries = [{"n": float(n)} for n in (3, 40, 120, 300, 499)]
    chosen = selector.choose(queries)
    assert chosen == [selector.select(q).best.variant for q in queries]
    predicted = selector.predict({"n": [q["n"] for q in queries]})
    for i, query in enumerate(queries):
        for choice in selector.select(query).choices:
            assert predicted[choice.variant][i] == pytest.approx(choice.seconds)


def test_a_selector_survives_json(selector, tmp_path):
    path = tmp_path / "deep" / "selector.json"
    selector.save(path)
    again = Selector.load(path)
    assert again.select({"n": 33}) == selector.select({"n": 33})
    assert select("thing", {"n": 33}, path) == selector.select({"n": 33})


def test_a_selector_is_loaded_with_another_default(selector, tmp_path):
    path = tmp_path / "selector.json"
    selector.save(path)
    assert Selector.load(path).default == "dear"
    assert Selector.load(path, "steep").default == "steep"
    with pytest.raises(PredictionError, match="'none' is not a variant"):
        Selector.load(path, "none")
    model = tmp_path / "model.json"
    selector.models["dear"].model.save(model)
    found = [is_selector(p) for p in (path, model, tmp_path, tmp_path / "gone")]
    assert found == [True, False, False, False]


def test_a_new_process_reads_a_selector(selector, tmp_path):
    """Kinds of models are imported when they are needed, which is no later than here."""
    path = tmp_path / "selector.json"
    selector.save(path)
    lines = (
        "import sys",
        "from tilewright.prediction import Selector",
        f"Selector.load({str(path)!r})",
        # Only fitting needs it, and importing it takes longer than choosing.
        "assert 'scipy.optimize' not in sys.modules",
    )
    program = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_errors_say_what_to_do(selector, tmp_path):
    with pytest.raises(PredictionError, match="at least one"):
        Selector({})
    model = selector.models["dear"].model
    with pytest.raises(PredictionError, match="'b' is not a variant; there are a"):
        Selector({"a": model}, default="b")
    with pytest.raises(PredictionError, match="'threads' is not a feature"):
        Modelled(model, {"threads": (1.0,)})
    with pytest.raises(PredictionError, match="'n' is missing"):
        selector.select({"m": 3})
    with pytest.raises(PredictionError, match=r"call train\('thing'\) first"):
        select("thing", {"n": 3}, tmp_path / "none.json")
    with pytest.raises(PredictionError, match="cannot read"):
        Selector.load(tmp_path / "none.json")
    with pytest.raises(PredictionError, match="not a Tilewright selector"):
        Selector.from_dict({"format": "other"})
    with pytest.raises(PredictionError, match="train it again"):
        Selector.from_dict({**selector.to_dict(), "version": 99})
    with pytest.raises(PredictionError, match="damaged"):
        Selector.from_dict({**selector.to_dict(), "variants": {"a": {}}})


def toy_kernel():
    """Sums of n numbers, one variant unusable here."""

    def build(operands, settings):
        return lambda: np.array([operands["a"].sum()])

    return Kernel(
        "toy_sum",
        {"n": "1"},
        "n",
        lambda rng: {"n": int(rng.integers(1, 300))},
        lambda instance, rng: {"a": rng.uniform(size=int(instance["n"]))},
        lambda operands: np.array([operands["a"].sum()]),
        lambda operands: {"n": len(operands["a"])},
        {
            "whole": KernelVariant("whole", build),
            "gone": KernelVariant("gone", build, lambda: (False, "it is not here")),
        },
    )


def test_training_measures_fits_and_keeps(tmp_path):
    told: list = []
    with Records(tmp_path / "records.sqlite") as records:
        made = train_selector(
            toy_kernel(),
            count=12,
            records=records,
            path=tmp_path / "toy.json",
            on_progress=told.append,
        )
    assert list(made.models) == ["whole"]
    assert told[-1].done == told[-1].total == 12 * ROUNDS
    found = select(toy_kernel(), {"n": 100}, tmp_path / "toy.json")
    assert found.best.seconds > 0
    with pytest.raises(PredictionError, match="it is not here"):
        train_selector(toy_kernel(), ["gone"], count=3, path=tmp_path / "toy.json")


def test_regret_is_against_the_best_of_each_query():
    found = regret(
        {"a": [1.0, 4.0, 2.0, math.nan], "b": [2.0, 2.0, 8.0, 1.0]}, ["a", "a", "a", "b"]
    )
    np.testing.assert_allclose(found.ratios, [1, 2, 1, 1])
    assert found.mean == pytest.approx(0.25)
    assert found.worst == pytest.approx(1.0)
    assert found.geometric_mean == pytest.approx(2 ** (1 / 4))
    assert found.total == pytest.approx(8 / 6)
    assert found.right == 0.75
    # `a` failed once, so it could not have been used for everything.
    assert found.best_single == "b"
    assert found.vs_best_single == pytest.approx(13 / 8)


@given(st.lists(st.tuples(st.floats(1e-6, 1), st.floats(1e-6, 1)), min_size=1), st.booleans())
def test_regret_is_never_negative_and_nought_for_the_oracle(rows, oracle):
    times = {"a": [r[0] for r in rows], "b": [r[1] for r in rows]}
    best = ["a" if a <= b else "b" for a, b in rows]
    found = regret(times, best if oracle else ["a"] * len(rows))
    assert found.mean >= 0
    assert found.mean <= found.worst
    assert found.total >= 1 - 1e-12
    if oracle:
        assert found.worst == 0
        assert found.right == 1
        assert found.vs_best_single >= 1 - 1e-12


def test_without_a_variant_for_all_queries_nothing_is_compared_with_a_single_one():
    found = regret({"a": [1.0, math.nan], "b": [math.nan, 2.0]}, ["a", "b"])
    assert found.vs_best_single is None
    json.dumps(found.to_dict(), allow_nan=False)


def test_regret_of_nothing_is_an_error():
    with pytest.raises(PredictionError, match="each query"):
        regret({"a": []}, [])
    with pytest.raises(PredictionError, match="'c' was chosen"):
        regret({"a": [1.0]}, ["c"])
    with pytest.raises(PredictionError, match="has no time"):
        regret({"a": [math.inf], "b": [1.0]}, ["a"])
