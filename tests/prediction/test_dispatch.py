"""Calls go to the predicted best variant, safely, from many threads, and learn."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from tilewright.prediction import Augmented, PredictionError
from tilewright.prediction.decisions.dispatcher import Dispatcher, Forecast, by_models, dispatch
from tilewright.prediction.decisions.selector import Selector
from tilewright.prediction.decisions.signature import outline, signature
from tilewright.records import Records


def model_of(seconds, low=1, high=1000):
    """A model fitted to a function of n."""
    n = np.unique(np.geomspace(low, high, 60).round())
    return Augmented(features=("n",), folds=0).fit(n[:, None], seconds(n))


@pytest.fixture(scope="module")
def models():
    return {
        "linear": model_of(lambda n: 1e-6 * n),
        "constant": model_of(lambda n: 1e-4 + 0 * n),
    }


def length(a, *rest):
    return {"n": a.shape[0]}


def made(models, **options):
    calls = []

    def linear(a, scale=1):
        calls.append("linear")
        return a * scale

    def constant(a, scale=1):
        calls.append("constant")
        return a * scale

    routes = {"linear": linear, "constant": constant}
    return Dispatcher(routes, by_models(models, length), **options), calls


def test_each_call_goes_to_the_predicted_best(models):
    call, calls = made(models)
    for n in (10, 500, 10, 30, 900):
        np.testing.assert_array_equal(call(np.arange(n)), np.arange(n))
    assert calls == ["linear", "constant", "linear", "linear", "constant"]
    assert len(call) == 4
    told = call.decision(np.arange(10))
    assert (told.route, told.outside, told.query) == ("linear", False, {"n": 10})
    assert told.seconds["linear"] == pytest.approx(1e-5, rel=0.1)
    assert told.seconds["constant"] == pytest.approx(1e-4, rel=0.1)
    assert len(calls) == 5


def test_a_decision_is_made_once_and_the_oldest_is_forgotten(models):
    asked = []

    def forecast(a):
        asked.append(len(a))
        return Forecast({"n": len(a)}, (1.0, 2.0), False)

    call = Dispatcher({"a": len, "b": len}, forecast, size=2)
    for n in (1, 2, 1, 2, 3, 3, 1):
        assert call(np.zeros(n)) == n
    assert asked == [1, 2, 3, 1]
    assert len(call) == 2
    call.clear()
    assert len(call) == 0


def test_outside_the_training_range_the_default_runs(models):
    call, calls = made(models, default="constant")
    call(np.zeros(2000))
    assert calls == ["constant"]
    assert call.decision(np.zeros(2000)).outside
    call(np.zeros(0))
    assert calls == ["constant", "constant"]


def test_predictions_that_are_no_numbers_are_never_the_best():
    nan, inf = float("nan"), float("inf")
    seconds = {1: (nan, 2.0, 3.0), 2: (nan, inf, nan), 3: (5.0, nan, 4.0)}
    routes = {name: (lambda a, name=name: name) for name in "abc"}
    call = Dispatcher(routes, lambda a: Forecast({}, seconds[len(a)], False), default="b")
    assert [call(np.zeros(n)) for n in (1, 2, 3)] == ["b", "b", "c"]


def test_keywords_are_part_of_the_signature(models):
    call, calls = made(models)
    with pytest.raises(TypeError):
        call(np.ones(10), unknown=3)
    calls.clear()

    def forecast(a, scale=1):
        return Forecast({}, (1.0, 2.0) if scale == 1 else (2.0, 1.0), False)

    routes = {"a": lambda a, scale=1: ("a", scale), "b": lambda a, scale=1: ("b", scale)}
    call = Dispatcher(routes, forecast)
    assert call(np.ones(3)) == ("a", 1)
    assert call(np.ones(3), scale=2) == ("b", 2)
    assert call(np.ones(3), scale=1) == ("a", 1)
    assert call.decision(np.ones(3), scale=2).route == "b"


def test_the_decorator_keeps_the_function_as_the_default(models):
    def constant(a):
        return "constant"

    @dispatch({"constant": constant}, models, length)
    def linear(a):
        """Say which."""
        return "linear"

    assert linear.__doc__ == "Say which."
    assert [linear(np.zeros(n)) for n in (10, 500, 5000)] == ["linear", "constant", "linear"]
    with pytest.raises(PredictionError, match="no model of 'other'"):
        dispatch({"constant": constant}, models, length)(other)


def other(a):
    return "other"


def test_a_method_is_dispatched_with_its_object(models):
    def constant(self, a):
        return "constant", self.scale

    class Numbers:
        scale = 2

        @dispatch({"constant": constant}, models, lambda self, a: length(a))
        def linear(self, a):
            return "linear", self.scale

    assert [Numbers().linear(np.zeros(n)) for n in (10, 500)] == [("linear", 2), ("constant", 2)]


def test_features_may_be_words_that_each_model_numbers_itself():
    rows = [{"n": n, "how": how} for n in (1, 10, 100, 1000) for how in ("odd", "even")]

    def fitted(words, slow):
        seconds = [1e-6 * r["n"] * (5 if r["how"] == slow else 1) for r in rows]
        return Augmented(levels={"how": words}, folds=0).fit(rows, seconds)

    models = {"a": fitted(["odd", "even"], "odd"), "b": fitted(["even", "odd"], "even")}
    routes = {"a": lambda n, how: "a", "b": lambda n, how: "b"}
    call = Dispatcher(routes, by_models(models, lambda n, how: {"n": n, "how": how}), default="b")
    assert [call(50, "even"), call(50, "odd"), call(50, "neither")] == ["a", "b", "b"]
    assert call.decision(50, "neither").outside
    best = [s.best.variant for s in map(Selector(models).select, rows)]
    assert best == ["b", "a"] * 4


def test_lists_are_distinguished_by_their_length(models):
    routes = {"linear": lambda a: "linear", "constant": lambda a: "constant"}
    call = Dispatcher(routes, by_models(models, lambda a: {"n": len(a)}))
    assert [call([0.0] * n) for n in (10, 500, 10)] == ["linear", "constant", "linear"]


def test_errors_name_what_is_there(models):
    with pytest.raises(PredictionError, match="describe gives no 'n', a feature of the models"):
        by_models(models, lambda a: {"length": 3})(1)
    with pytest.raises(PredictionError, match="at least one"):
        Dispatcher({}, by_models({}, lambda: {}))
    with pytest.raises(PredictionError, match="'c' is not a route; there are linear, constant"):
        made(models, default="c")

    def fails(a):
        raise ZeroDivisionError

    call = Dispatcher({"a": fails}, lambda a: Forecast({}, (1.0,), False), learn=True)
    with pytest.raises(ZeroDivisionError):
        call(np.zeros(1))


class Clock:
    """A clock that moves only when advanced, so that learning is exact."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock.perf_counter)
    return clock


def learner(clock, real, predicted, away=False, **options):
    calls = []

    def route(name):
        def run(a):
            calls.append(name)
            clock.now += real[name](len(a))

        return run

    def forecast(a):
        return Forecast({"n": len(a)}, tuple(f(len(a)) for f in predicted.values()), away)

    return Dispatcher({n: route(n) for n in real}, forecast, learn=True, **options), calls


def test_it_learns_that_a_prediction_was_wrong(clock):
    call, calls = learner(
        clock,
        {"a": lambda n: 5.0, "b": lambda n: 2.0},
        {"a": lambda n: 1.0, "b": lambda n: 1.5},
    )
    for _ in range(30):
        call(np.zeros(4))
    assert calls[0] == "a"
    assert calls[-20:] == ["b"] * 20
    told = call.decision(np.zeros(4))
    assert told.route == "b"
    assert told.seconds == {"a": 5.0, "b": 2.0}
    queries, seconds = call.observed("a")
    assert queries[0] == {"n": 4}
    assert set(seconds) == {5.0}


@pytest.mark.parametrize("away", [False, True])
def test_measured_times_survive_the_process(clock, tmp_path, away):
    real = {"a": lambda n: 5.0, "b": lambda n: 2.0}
    predicted = {"a": lambda n: 1.0, "b": lambda n: 1.02}

    def first_route(**options):
        with Records(tmp_path / "records.sqlite") as records:
            call, calls = learner(clock, real, predicted, away, records=records, **options)
            call(np.zeros(4))
            corrected = call.decision(np.zeros(8)).seconds["a"]
            for _ in range(40):
                call(np.zeros(4))
            call.flush()
        return calls[0], calls[-1], corrected

    assert first_route(name="sums") == ("a", "b", 1.0)
    first, last, corrected = first_route(name="sums")
    assert (first, last) == ("b", "b")
    assert (corrected > 1.0) != away  # other sizes gain by it, within the training range
    assert first_route(name="others") == ("a", "b", 1.0)


def test_times_that_cannot_be_kept_are_a_warning(clock, tmp_path):
    records = Records(tmp_path / "records.sqlite")
    call, calls = learner(clock, *WRONG, records=records, name="closed")
    records.close()
    with pytest.warns(UserWarning, match="not kept"):  # noqa: PT031 (it comes from a thread)
        for _ in range(5):
            call(np.zeros(4))
        call.flush()
    assert len(calls) == 5


WRONG = (
    {"a": lambda n: 3.4, "b": lambda n: 1.0, "c": lambda n: 8.0},
    {"a": lambda n: 1.0, "b": lambda n: 6.0, "c": lambda n: 4.0},
)


def test_routes_that_are_predicted_to_be_slow_are_tried_within_the_budget(clock):
    call, calls = learner(clock, *WRONG, explore=0.1)
    lost = 0.0
    for i in range(200):
        before = clock.now
        fastest = min((WRONG[0][name](4) for name in calls), default=3.4)
        call(np.zeros(4))
        lost += max(0.0, clock.now - before - fastest)
        # One try may take longer than was predicted: c is predicted to take 4, and takes 8.
        assert lost <= 0.1 * clock.now + 4.6 + 3 * 2.4 or i < 3
    assert calls[-100:] == ["b"] * 100
    # It takes over twice as long as a: once is enough.
    assert calls.count("c") == 1


def test_nothing_is_tried_without_a_budget(clock):
    call, calls = learner(clock, *WRONG, explore=0.0)
    for _ in range(100):
        call(np.zeros(4))
    assert set(calls) == {"a"}
    with pytest.raises(PredictionError, match="share from 0"):
        Dispatcher({"a": len}, lambda a: Forecast({}, (1.0,), False), explore=1.5)


def test_outside_their_range_models_are_overruled_by_measured_times(clock):
    real, predicted = WRONG
    call, calls = learner(clock, real, {**predicted, "b": lambda n: 0.1}, away=True)
    for _ in range(200):
        call(np.zeros(4))
    # The default comes first, though b is predicted to be faster.
    assert calls[:3] == ["a"] * 3
    assert calls[-100:] == ["b"] * 100
    assert call.decision(np.zeros(4)).outside


def test_learned_corrections_carry_over_to_new_shapes(clock):
    call, calls = learner(
        clock,
        {"a": lambda n: 9.0 * n, "b": lambda n: 2.0 * n},
        {"a": float, "b": lambda n: 1.5 * n},
    )
    for n in range(1, 40):
        for _ in range(3):
            call(np.zeros(n))
    calls.clear()
    call(np.zeros(100))
    assert calls == ["b"]


def test_without_learning_nothing_is_timed(models, clock):
    call, _ = made(models)
    call(np.zeros(10))
    assert call.observed("linear") == ([], [])


def test_many_threads_make_one_decision_each_signature():
    asked = []
    start = threading.Barrier(8, timeout=300)

    def forecast(a):
        asked.append(len(a))
        return Forecast({"n": len(a)}, (1.0, 2.0), False)

    call = Dispatcher({"a": len, "b": lambda a: -1}, forecast, learn=True)
    wrong = []

    def work():
        start.wait()
        for i in range(400):
            n = i % 20 + 1
            if call(np.zeros(n)) not in (n, -1):
                wrong.append(n)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(call) == 20
    # Threads that meet at a new signature may each ask; nobody asks again later.
    assert len(asked) <= 20 * 8
    assert sum(len(call.observed(r)[0]) for r in "ab") == 8 * 400


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 8))
def test_a_sparse_array_s_outline_is_exact_and_a_dense_one_s_near(rows, columns, j):
    rng = np.random.default_rng([rows, columns, j])
    a = np.where(rng.uniform(size=(rows, columns)) < 2.0**-j, 1.0, 0.0)
    assert outline(csr_array(a)).nnz == max(1, np.count_nonzero(a))
    found = outline(a, samples=10_000)
    assert found.nnz == max(1, np.count_nonzero(a))
    some = outline(a, samples=256)
    assert some.shape == (rows, columns)
    assert 1 <= some.nnz <= a.size
    assert outline(np.ones((rows, columns)), 16).nnz == a.size


def test_sampling_sees_diagonals_and_columns():
    n = 1024
    assert outline(np.eye(n)).nnz < 0.02 * n * n
    columns = np.zeros((n, n))
    columns[:, ::2] = 1
    assert 0.3 * n * n < outline(columns).nnz < 0.7 * n * n
    assert outline(np.asfortranarray(columns)).nnz == pytest.approx(n * n / 2, rel=0.4)


def test_signatures_tell_apart_what_matters():
    a = np.ones((8, 8))
    assert signature((a,)) == signature((np.zeros((8, 8)),))
    assert signature((a,), 64) != signature((np.eye(8),), 64)
    assert signature((a,)) != signature((a.astype(np.float32),))
    assert signature((a,)) != signature((a[:4],))
    assert signature((a, 1)) != signature((a, 2))
    sparse = csr_array(np.eye(8))
    assert signature((sparse,)) != signature((a,))
    assert signature((sparse,)) != signature((csr_array(a),))
    assert signature((sparse,)) != signature((sparse.tocsc(),))
    assert len({signature((object(),)), signature((object(),))}) == 1
    assert signature(([1, 2],)) == signature(([3, 4],)) != signature(([1, 2, 3],))
    assert signature((np.float64(1),)) != signature((np.float64(2),))
    hash(signature(({}, {1}, range(3), np.ma.ones(2), b"x", 1j, slice(2))))


def test_threads_that_call_clear_and_look_all_get_right_answers():
    def forecast(a):
        n = len(a)
        return Forecast({"n": n}, (1e-6 * n, 5e-6, float("nan")), n > 25)

    routes = {"a": np.sum, "b": np.add.reduce, "c": lambda a: pytest.fail("never predicted")}
    call = Dispatcher(routes, forecast, learn=True, size=7)
    start, wrong = threading.Barrier(8, timeout=300), []

    def work(number):
        start.wait()
        for i in range(600):
            n = (i * (number + 1)) % 30 + 1
            try:
                if call(np.ones(n)) != n:
                    wrong.append(n)
                if i % 50 == number:
                    call.clear()
                if i % 20 == 0 and call.decision(np.ones(n)).route not in ("a", "b"):
                    wrong.append(-n)
                call.observed("a")
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert len(call) <= 7


def test_equal_numbers_of_different_types_are_distinguished():
    asked = []

    def forecast(a):
        asked.append(a)
        return Forecast({}, (1.0,), False)

    call = Dispatcher({"a": lambda a: type(a)}, forecast)
    assert [call(x) for x in (1, True, 1.0, 1)] == [int, bool, float, int]
    assert len(asked) == 3
