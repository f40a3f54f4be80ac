"""What users hand in that is unusual: it works, or it is refused with its name."""

import json
import pickle
import sys

import numpy as np
import pytest
from sklearn.base import clone

from tilewright.prediction import (
    LRC,
    NLRC,
    NN,
    NNC,
    Augmented,
    Auto,
    Boosted,
    C,
    Estimator,
    GaussianProcess,
    PredictionError,
    compile_single,
    export_c,
    export_python,
)
from tilewright.prediction.data.user_kernels import from_callable
from tilewright.prediction.decisions.dispatcher import single
from tilewright.prediction.decisions.selector import Selector

SMALL = {
    NN: {"epochs": 40, "restarts": 1},
    NNC: {"epochs": 40, "restarts": 1},
    NLRC: {"trees": 4},
    Boosted: {"trees": 8, "folds": 2},
    GaussianProcess: {"folds": 2, "steps": 3},
}
KINDS = (Augmented, Boosted, GaussianProcess, NN, NNC, C, LRC, NLRC)


def sizes(count=16, columns=3):
    table = np.random.default_rng(0).integers(1, 200, (count, columns)).astype(float)
    return table, 1e-6 + 1e-9 * table.prod(axis=1)


X, Y = sizes()
CONSTANT = np.column_stack([X[:, :2], np.full(len(X), 4.0)])


class Frame:
    """The part of a data frame that matters, with columns in another order and one too many."""

    def __init__(self, table):
        self._columns = {"x2": table[:, 2], "spare": table[:, 0] * 0, "x1": table[:, 1]}
        self._columns["x0"] = table[:, 0]
        self.columns = list(self._columns)

    def __getitem__(self, name):
        return self._columns[name]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("table", "seconds"),
    [
        (X.tolist(), Y.tolist()),
        (X.astype(np.uint8), Y[:, None]),
        (CONSTANT, Y),
        (np.full((8, 3), 4.0), Y[:8]),
        (X, np.full(len(X), 1e-3)),
        (X - 100, Y),
        (X[:3], Y[:3]),
        (np.repeat(X[:2], 5, axis=0), np.repeat(Y[:2], 5)),
        (X * 1e9, Y * 1e3),
    ],
    ids="lists bytes constant all_constant same_times negative three_rows repeated huge".split(),
)
@pytest.mark.few(30)
def test_fit_predict_store_and_export(kind, table, seconds):
    made = kind(complexity="x0*x1*x2", **SMALL.get(kind, {}))
    model = clone(made).fit(table, seconds)
    expected = model.predict(table)
    assert np.isfinite(expected).all()
    low, high = model.predict_interval(table)
    assert (low <= high).all()
    assert np.isfinite(low).all()
    assert not model.outside(table).any()
    stored = Estimator.from_dict(json.loads(json.dumps(model.to_dict(), allow_nan=False)))
    assert np.allclose(stored.predict(table), expected, rtol=1e-12)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(table), expected)
    one = compile_single(model)
    rows = np.asarray(table, dtype=float).tolist()
    assert np.allclose([one(*row) for row in rows], expected, rtol=1e-9, atol=0)
    assert "double predict_seconds(double x0, double x1, double x2)" in export_c(model)


@pytest.mark.parametrize(
    ("table", "seconds", "said"),
    [
        (X[:0], Y[:0], "there are no instances"),
        (X[:1], Y[:1], "there is 1 instance"),
        (X[:, 0], Y, "X has 1 dimensions"),
        ([[1, 2, 3], [1, 2]], [1, 2], "rows of X have different lengths"),
        (X + 1j, Y, "Complex"),
        (np.ma.masked_greater(X, 150), Y, "is NaN in row"),
        ([[1, None, 2], [2, 3, 4]], [1, 2], "'x1' is NaN in row 0"),
        ([[1, "two", 2], [2, 3, 4]], [1, 2], "not a number"),
        (X, Y + 1j, "complex"),
        (X, -Y, "times are positive"),
        (X, np.where(Y[3] == Y, np.nan, Y), "the time of row 3 is nan"),
        (X, Y[:-1], "16 instances but 15 times"),
    ],
)
def test_unusable_inputs_are_named(table, seconds, said):
    with pytest.raises(PredictionError, match=said):
        LRC(complexity="x0").fit(table, seconds)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"features": "abc"}, "features is one text"),
        ({"features": (0, 1, 2)}, "feature name 0 is not text"),
        ({"folds": 2.5}, "folds is 2.5"),
        ({"folds": -1}, "folds is -1"),
        ({"seed": None}, "seed is None"),
        ({"complexity": 3}, "complexity is 3"),
        (
            {"complexity": "+".join(["x0"] * 500)},
            r"complexity 'x0.*\.\.\.': the expression is too long",
        ),
        ({"units": {"q": "m"}}, "a unit is given for 'q'"),
        ({"levels": {"q": ["a"]}}, "levels are given for 'q'"),
    ],
)
def test_settings_that_cannot_be_are_named(settings, said):
    with pytest.raises(PredictionError, match=said):
        LRC(**{"complexity": "x0", **settings}).fit(X, Y)
    with pytest.raises(PredictionError, match="threads is one text"):
        Augmented(threads="x0").fit(X, Y)


def test_queries_that_cannot_be_read_are_named():
    model = LRC(complexity="x0").fit(X, Y)
    assert len(model.predict(X[:0])) == 0
    good = {"x0": 1, "x1": 2, "x2": 3}
    for query, said in (
        (X[0], "needs 3 columns"),
        ([], "needs 3 columns"),
        (None, "needs 3 columns"),
        ([good, {"x0": 1}], "'x1' is missing"),
        ([good, [1, 2, 3]], "all rows by name"),
        ({**good, "x1": [1, 2]}, "different lengths"),
    ):
        with pytest.raises(PredictionError, match=said):
            model.predict(query)


def test_damaged_files_are_refused(tmp_path):
    model = LRC(complexity="x0").fit(X, Y)
    data = json.loads(json.dumps(model.to_dict()))
    parts: tuple[dict, ...] = (
        {"state": {"intercept": 1, "coefficients": [1]}},  # too few for its features
        {"features": []},
        {"target": {}},
        {"params": {"complexity": "__import__('os').abort()"}},
        {"calibration": {"residuals": []}},
    )
    for part in parts:
        with pytest.raises(PredictionError, match="damaged"):
            Estimator.from_dict({**data, **part})
    with pytest.raises(PredictionError, match="schema version '1'"):
        Estimator.from_dict({**data, "version": "1"})
    for kind in ("", None, "Estimator", 3):  # "" is the kind of the base class
        with pytest.raises(PredictionError, match="no models of kind"):
            Estimator.from_dict({**data, "kind": kind})
    for path in (tmp_path, tmp_path / "none" / "model.json"):
        with pytest.raises(PredictionError, match="the model is not written"):
            model.save(path)


def test_two_rows_are_fitted_without_intervals():
    model = LRC(complexity="x0").fit(X[:2], Y[:2])
    assert np.allclose(model.predict(X[:2]), Y[:2])
    with pytest.raises(PredictionError, match="no intervals"):
        model.predict_interval(X[:2])


def test_auto_needs_no_more_than_the_others():
    model = Auto(complexity="x0").fit(X[:2], Y[:2])
    assert np.allclose(model.predict(X[:2]), Y[:2], rtol=1e-3)
    assert Auto(folds=1, max_parameters=20).fit(X, Y).calibration_ is None


def test_a_process_of_many_rows_rests_on_some_of_them():
    model = GaussianProcess(complexity="x0*x1*x2", folds=0, steps=2, most=10).fit(X, Y)
    assert len(model.weights_) == 10
    many = np.repeat(X, 300, axis=0)  # more than are predicted at once
    assert np.allclose(model.predict(many), np.repeat(model.predict(X), 300))
    assert np.median(np.abs(model.predict(X) / Y - 1)) < 0.1
    assert len(model.predict(X[:0])) == 0


@pytest.mark.parametrize("names", [("block size", "lambda", "n-m"), ("min", "ceil", "log")])
def test_names_that_no_expression_can_have(names):
    model = Augmented(features=names, folds=2).fit(X, Y)
    assert compile_single(model)(*X[0]) == pytest.approx(model.predict(X[:1])[0], rel=1e-9)


def test_queries_of_nothing_have_an_answer():
    X_, seconds = sizes(count=40)
    X_[:, 2] %= 3  # threads, of which 0 may mean all
    model = Augmented(features=("m", "n", "threads"), complexity="m*n").fit(X_, seconds)
    queries = np.array([[0, 0, 0], [0, 5, 1], [5, 0, -1], [-3, 2, 2]], dtype=float)
    answers = model.predict(queries)
    assert np.isfinite(answers).all()
    assert model.outside(queries).all()
    single_ones = [compile_single(model)(*query) for query in queries.tolist()]
    assert np.allclose(single_ones, answers, rtol=1e-9)


def test_one_feature_and_a_frame():
    one = Augmented().fit(X[:, :1], 1e-6 * X[:, 0])
    assert one.predict([[50.0]])[0] == pytest.approx(5e-5, rel=1e-3)
    model = LRC(features=("x0", "x1", "x2"), complexity="x0*x1*x2").fit(Frame(X), Y)
    assert np.allclose(model.predict(X), Y)
    with pytest.raises(PredictionError, match="no column x9"):
        LRC(features=("x9",), complexity="x9").fit(Frame(X), Y)


def test_durations_are_turned_into_seconds():
    model = LRC(complexity="x0").fit(X[:3], np.array([1, 2, 3], dtype="timedelta64[ms]"))
    assert model.target_range_ == (0.001, 0.003)


def test_words_are_numbers_that_the_model_knows(tmp_path):
    rows = [{"n": n, "how": how} for n in (10, 20, 40, 80) for how in ("plain", "tiled")]
    seconds = [1e-6 * r["n"] * (3 if r["how"] == "tiled" else 1) for r in rows]
    model = Augmented(levels={"how": ["plain", "tiled"]}, complexity="n").fit(rows, seconds)
    model.save(tmp_path / "model.json")
    stored = Estimator.load(tmp_path / "model.json")
    assert np.allclose(stored.predict(rows), seconds, rtol=0.1)
    assert np.array_equal(stored.predict({"n": [10], "how": ["tiled"]}), stored.predict([[10, 1]]))
    assert "0 for plain, 1 for tiled" in export_python(stored)
    with pytest.raises(PredictionError, match="'how' is 'fused' in row 0"):
        stored.predict({"n": 10, "how": "fused"})


def test_an_exported_model_answers_where_the_complexity_has_no_value():
    model = LRC(features=("n", "m"), complexity="log(n) / m + m ** 0.5").fit(X[:, :2], Y)
    one = compile_single(model)
    assert one(100, 3) == pytest.approx(model.predict([[100, 3]])[0], rel=1e-9)
    for query in ((100, 0), (0, 3), (100, -2)):
        assert np.isnan(one(*query))
    assert np.isnan(single(model)({"n": 0, "m": 1}))
    with pytest.raises(PredictionError, match="in row 0"):
        model.predict([[0, 3]])


def test_names_that_mean_something_in_c_or_python():
    names = ("linux", "NAN", "value_", "nan", "total_", "h0")
    table, seconds = sizes(columns=len(names))
    model = LRC(features=names, complexity="linux").fit(table, seconds)
    assert compile_single(model)(*table[0]) == pytest.approx(model.predict(table[:1])[0])
    header = export_c(model)
    assert "double x_linux, double x_NAN, double x_value_, double x_nan, double x_total_" in header


def test_a_prediction_that_is_not_a_number_is_never_chosen():
    class Broken(LRC):
        kind = "broken"

        def _predict(self, data):
            return np.full(len(data), np.nan)

    models = {
        "broken": Broken(complexity="x0").fit(X, Y),
        "sound": LRC(complexity="x0", folds=0).fit(X, Y),
    }
    assert Selector(models).choose(X[:4]) == ["sound"] * 4


def test_scikit_learn_is_named_where_it_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    for kind in (Boosted, NLRC):
        with pytest.raises(PredictionError, match=r"tilewright\[prediction\]"):
            kind(complexity="x0").fit(X, Y)


def test_a_forest_refuses_what_single_precision_cannot_hold():
    with pytest.raises(PredictionError, match="single precision"):
        NLRC(complexity="x0", trees=2).fit(X * 1e300, Y)


def test_an_own_kernels_complexity_is_checked_at_once():
    with pytest.raises(PredictionError, match="'k' is unknown"):
        from_callable(len, {"n": (1, 9)}, "n*k")
