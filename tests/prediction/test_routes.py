"""Dispatching a kernel of the registry over dense and sparse storage."""

import sys
import threading

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse, random_array

from tilewright.prediction import LRC, Augmented, PredictionError
from tilewright.prediction.decisions import compiled_routes, signature
from tilewright.prediction.decisions.compiled_routes import (
    ExtraCost,
    ModelCall,
    compile_together,
)
from tilewright.prediction.decisions.library_dispatcher import (
    dispatcher,
    product_outline,
    route_name,
)
from tilewright.prediction.decisions.selector import Modelled, Selector
from tilewright.prediction.export.export import packed_c
from tilewright.prediction.kernels import KernelVariant, kernel
from tilewright.prediction.kernels.native import compiler
from tilewright.prediction.models.surface import Shape

FEATURES = ("m", "n", "k", "d1", "d2")


def drawn(count=150):
    rng = np.random.default_rng(1)
    sizes = rng.integers(1, 513, (count, 3))
    densities = 2.0 ** -rng.uniform(0, 12, (count, 2))
    corners = [[1, 1, 1, 1e-4, 1e-4], [512, 512, 512, 1.0, 1.0]]
    return np.vstack([np.column_stack([sizes, densities]), corners])


def fitted(seconds, features=FEATURES):
    table = drawn()[:, : len(features)]
    return Augmented(features=features, folds=0).fit(table, seconds(*table.T))


@pytest.fixture(scope="module")
def parts():
    """Dense products at 10 Gflop/s, sparse ones at 0.1 and 1 us a row; conversions by entry."""
    conversion = np.column_stack([drawn()[:, :2], drawn()[:, 3]])

    def converting(rate):
        model = LRC(features=("m", "n", "d"), complexity="m*n", folds=0)
        return model.fit(conversion, 1e-6 + rate * conversion[:, 0] * conversion[:, 1])

    return {
        "numpy": fitted(lambda m, n, k, d1, d2: 1e-6 + 2e-10 * m * n * k),
        "scipy_sparse": fitted(lambda m, n, k, d1, d2: 1e-6 * m + 2e-8 * m * n * k * d1 * d2),
        "to_sparse": converting(1e-8),
        "to_dense": converting(1e-9),
    }


@pytest.fixture(scope="module")
def selector(parts):
    return Selector(
        {n: parts[n] for n in ("numpy", "scipy_sparse")},
        kernel="matmul",
        conversions={n: parts[n] for n in ("to_sparse", "to_dense")},
    )


def matrices(size, density):
    rng = np.random.default_rng(2)
    a, b = (random_array((size, size), density=density, format="csr", rng=rng) for _ in range(2))
    return csr_array(a), csr_array(b)


def test_sparse_operands_go_to_the_sparse_product_and_dense_ones_do_not(selector):
    product = dispatcher(kernel("matmul"), selector)
    a, b = matrices(300, 0.01)
    assert product.decision(a, b).route == "scipy_sparse"
    full = np.ones((300, 300))
    assert product.decision(full, full).route == "numpy"
    np.testing.assert_allclose(product(a, b).toarray(), (a @ b).toarray())
    assert issparse(product(a, b))
    np.testing.assert_allclose(product(full, full), full @ full)


def test_conversion_is_charged(selector, parts):
    product = dispatcher(kernel("matmul"), selector)
    a, b = matrices(200, 0.005)
    stored = product.decision(a, b).seconds
    given = product.decision(a.toarray(), b.toarray()).seconds
    convert = parts["to_sparse"].predict([{"m": 200, "n": 200, "d": 0.005}])[0]
    densify = parts["to_dense"].predict([{"m": 200, "n": 200, "d": 0.005}])[0]
    assert given["scipy_sparse"] - stored["scipy_sparse"] == pytest.approx(2 * convert, rel=0.1)
    assert stored["numpy"] - given["numpy"] == pytest.approx(2 * densify, rel=0.1)


@pytest.mark.parametrize(
    ("wanted", "sparse_in", "sparse_out"),
    [("dense", True, False), ("sparse", False, True), ("like", True, True), ("like", False, False)],
)
def test_the_result_has_the_storage_that_is_wanted(selector, wanted, sparse_in, sparse_out):
    for default in ("numpy", "scipy_sparse"):
        chosen = Selector(
            {n: m.model for n, m in selector.models.items() if n == default},
            conversions=selector.conversions,
        )
        product = dispatcher(kernel("matmul"), chosen, wanted=wanted)
        a, b = matrices(60, 0.05)
        result = product(a, b) if sparse_in else product(a.toarray(), b.toarray())
        assert issparse(result) == sparse_out
        got = result.toarray() if sparse_out else result
        np.testing.assert_allclose(got, (a @ b).toarray())


def test_settings_are_routes_of_their_own(parts):
    rng = np.random.default_rng(0)
    table = np.column_stack([drawn(), rng.integers(1, 3, len(drawn()))])
    table[-1, -1] = 2
    model = Augmented(features=(*FEATURES, "threads"), folds=0)
    model.fit(
        table, 2e-10 * table[:, 0] * table[:, 1] * table[:, 2] / table[:, 5] + 1e-5 * table[:, 5]
    )
    seen = []

    def build(operands, settings):
        seen.append(settings)
        return lambda: operands["a"] @ operands["b"]

    ours = kernel("matmul").with_variant(KernelVariant("ours", build, settings={"threads": (1, 2)}))
    chosen = Selector({"ours": Modelled(model, {"threads": (1.0, 2.0)})})
    product = dispatcher(ours, chosen)
    assert product.routes == ("ours threads=1", "ours threads=2")
    assert product.default == "ours threads=2"
    product(np.ones((4, 4)), np.ones((4, 4)))
    product(np.ones((400, 400)), np.ones((400, 400)))
    assert seen == [{"threads": 1}, {"threads": 2}]
    assert route_name("a", {}) == "a"


def test_outside_the_training_range_the_default_runs(selector):
    product = dispatcher(kernel("matmul"), selector)
    told = product.decision(csr_array((4, 5000)), csr_array((5000, 4)))
    assert told.outside
    assert told.route == "numpy"


def test_both_storages_need_models_of_the_conversion(parts):
    with pytest.raises(PredictionError, match="conversion"):
        dispatcher(kernel("matmul"), Selector({n: parts[n] for n in ("numpy", "scipy_sparse")}))


def test_the_outline_of_a_product_is_that_of_random_operands():
    rng = np.random.default_rng(3)
    a, b = ((rng.uniform(size=(80, 80)) < 0.1).astype(float) for _ in range(2))
    query = {"m": 80, "n": 80, "k": 80, "d1": a.mean(), "d2": b.mean()}
    assert product_outline(query).nnz == pytest.approx(np.count_nonzero(a @ b), rel=0.1)


@pytest.fixture(scope="module")
def three(selector):
    """Over both storages, with whatever is asked for."""
    return dispatcher(kernel("matmul"), selector, wanted="like")


def test_operands_in_any_form_give_numpy_s_answer(three):
    rng = np.random.default_rng(4)
    a, b = rng.integers(0, 3, (30, 20)), rng.integers(0, 3, (20, 25))
    right = (a @ b).astype(float)
    forms = [
        lambda x: x,
        lambda x: x.astype(np.float32),
        lambda x: x.astype(bool) * x,
        lambda x: np.asfortranarray(x, dtype=float),
        lambda x: np.repeat(x, 2, axis=0)[::2],
        lambda x: x[::-1, ::-1][::-1, ::-1],
        lambda x: x.tolist(),
        lambda x: tuple(map(tuple, x.tolist())),
        csr_array,
        lambda x: csr_array(x).tocsc(),
        lambda x: csr_array(x).tocoo(),
        lambda x: csr_array(x.astype(np.float32)),
    ]
    for left in forms:
        for other in forms:
            given = left(a), other(b)
            got = three(*given)
            assert issparse(got) == all(map(issparse, given))
            np.testing.assert_array_equal(got.toarray() if issparse(got) else got, right)


def test_operands_are_not_changed(three):
    a, b = matrices(40, 0.2)
    before = a.copy(), b.toarray().copy()
    given = b.toarray()
    three(a, given)
    assert (a != before[0]).nnz == 0
    np.testing.assert_array_equal(given, before[1])


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((np.ones(()), np.ones((2, 2))), "not operands of matmul"),
        ((np.ones(3), np.ones((3, 2))), "not operands of matmul"),
        ((np.ones((2, 2, 2)), np.ones((2, 2))), "not operands of matmul"),
        ((3.0, np.ones((2, 2))), "not operands of matmul"),
        (("ab", np.ones((2, 2))), "not operands of matmul"),
        ((np.ones((2, 2)),), "2 operands by position, a, b, and was given 1"),
        ((np.ones((2, 2)),) * 3, "was given 3"),
        ((np.ones((2, 2)) * 1j, np.ones((2, 2))), "complex"),
        ((csr_array(np.ones((2, 2)) * 1j), csr_array(np.ones((2, 2)))), "complex"),
        ((np.ma.masked_array(np.ones((2, 2)), [[0, 1], [0, 0]]), np.ones((2, 2))), "masked"),
        ((np.array([["a", "b"]]), np.ones((2, 2))), "not an array of numbers"),
    ],
)
def test_an_unsuitable_operand_is_refused_by_name(three, args, words):
    with pytest.raises(PredictionError, match=words):
        three(*args)


def test_operands_by_name_are_refused(three):
    with pytest.raises(PredictionError, match="by position, a, b, and was given 1 and b by name"):
        three(np.ones((2, 2)), b=np.ones((2, 2)))


def test_there_is_at_least_one_entry_to_read(selector):
    with pytest.raises(PredictionError, match="samples is 0"):
        dispatcher(kernel("matmul"), selector, samples=0)


def test_a_decision_reads_no_entries_that_the_signature_has(three, monkeypatch):
    read = []
    hits = signature._hits

    def counted(array, samples):
        read.append(samples)
        return hits(array, samples)

    monkeypatch.setattr(signature, "_hits", counted)
    full, half = np.ones((40, 40)), np.where(np.arange(1600).reshape(40, 40) % 2, 1.0, 0.0)
    found = three.decision(full, half)
    assert read == [signature.GLANCE] * 2 + [signature.SAMPLES]
    assert found.query["d1"] == 1.0
    assert found.query["d2"] == pytest.approx(0.5, abs=0.1)


def test_operands_that_do_not_fit_are_an_error_and_later_calls_are_right(three):
    with pytest.raises((PredictionError, ValueError)):
        three(np.ones((3, 4)), np.ones((5, 2)))
    np.testing.assert_array_equal(three(np.ones((3, 4)), np.ones((4, 2))), np.full((3, 2), 4.0))


@pytest.mark.parametrize(("m", "n", "k"), [(0, 3, 2), (3, 0, 2), (3, 2, 0), (0, 0, 0)])
def test_empty_operands_give_empty_or_zero_answers(three, m, n, k):
    for kind in (np.asarray, csr_array):
        got = three(kind(np.ones((m, n))), kind(np.ones((n, k))))
        np.testing.assert_array_equal(got.toarray() if issparse(got) else got, np.zeros((m, k)))


def test_a_little_beyond_the_training_range_the_models_are_still_asked(selector):
    a, b = matrices(600, 0.01)  # trained up to 512
    assert not dispatcher(kernel("matmul"), selector).decision(a, b).outside
    assert dispatcher(kernel("matmul"), selector, slack=1.0).decision(a, b).outside


def test_threads_of_numpy_s_blas_are_restored_by_calls_that_overlap():
    from tilewright.prediction.kernels.blas import _libraries

    before = [library.get_num_threads() for library in _libraries()]
    variant, a = kernel("matmul").variant("numpy"), np.ones((60, 60))
    start = threading.Barrier(4, timeout=300)

    def work(threads):
        start.wait()
        for _ in range(200):
            variant.prepare({"a": a, "b": a}, {"threads": threads})()

    values = variant.settings["threads"]
    jobs = [threading.Thread(target=work, args=(values[i % len(values)],)) for i in range(4)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(60)
    assert [library.get_num_threads() for library in _libraries()] == before


def test_all_routes_and_conversions_come_from_one_call_with_or_without_a_compiler(
    selector, monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    operands = [*matrices(120, 0.05), np.ones((120, 120))]
    pairs = [(a, b) for a in operands for b in operands]

    def decisions(**options):
        call = dispatcher(kernel("matmul"), selector, **options)
        return [tuple(call.decision(a, b).seconds.values()) for a, b in pairs]

    compiled = [decisions(wanted=how) for how in ("any", "dense", "sparse", "like")]
    if compiler() is not None:
        assert list((tmp_path / "tilewright" / "models").glob("routes-*.so"))
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    alone = [decisions(wanted=how) for how in ("any", "dense", "sparse", "like")]
    assert not list(tmp_path.glob("other/**/*.so"))
    np.testing.assert_allclose(compiled, alone, rtol=1e-9)
    # With the result's storage fixed, a route in the other storage pays for its conversion.
    assert np.all(np.array(compiled[1]) >= np.array(compiled[0]))
    assert np.any(np.array(compiled[1]) > np.array(compiled[0]))


def test_one_compiled_call_gives_what_the_models_predict(parts):
    names = (*FEATURES, "unused")
    calls = [
        ModelCall(parts["numpy"], FEATURES),
        ModelCall(parts["to_dense"], ("k", 3.0, "d2")),
        ModelCall(parts["numpy"], ("n", "m", "k", 0.5, "d1")),
    ]
    together = compile_together(calls, names)
    m, n, k, d1, d2 = query = (30.0, 40.0, 50.0, 0.25, 0.125)
    expected = [
        parts["numpy"].predict([query])[0],
        parts["to_dense"].predict([(k, 3.0, d2)])[0],
        parts["numpy"].predict([(n, m, k, 0.5, d1)])[0],
    ]
    np.testing.assert_allclose(together([*query, 0.0])[0], expected, rtol=1e-9)
    assert np.isnan(together(["word", *query[1:], 0.0])[0][0])  # type: ignore[list-item]


@pytest.mark.skipif(compiler() is None, reason="needs a C compiler")
@pytest.mark.parametrize("limit", [8, 24, 75, 150])
@pytest.mark.few(2)
def test_models_in_one_table_predict_what_each_does_alone(limit):
    """Of one term or several, with and without hidden units and expressions."""
    table = drawn()
    seconds = 1e-6 * (1 + table[:, 0] * table[:, 3]) + 2e-10 * table[:, :3].prod(axis=1)
    models = [
        Augmented(features=FEATURES, folds=2, max_parameters=limit, max_seconds=0.0, **more).fit(
            table, seconds
        )
        for more in ({}, {"complexity": "m*n*k"}, {"work": ("1 + m * d1",)})
    ]
    assert any(model.expressions_ for model in models) or limit == 8
    source, numbers = packed_c(models[0], "first", "(numbers + 3)")
    assert "tilewright_surface((numbers + 3), " in source
    assert len(numbers) == models[0].shape_.count
    together = compile_together([ModelCall(model, FEATURES) for model in models], FEATURES)
    for query in (*table[:20], [1e9, 1e-9, 1.0, 1e-12, 1.0]):
        found, _ = together(query)
        with np.errstate(over="ignore"):
            expected = [model.predict([query])[0] for model in models]
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    models[0]._ready[0][0, 0] = models[0].theta_[0] = np.nan
    with pytest.raises(PredictionError, match="not finite"):
        packed_c(models[0], "first", "numbers")


@pytest.mark.skipif(compiler() is None, reason="needs a C compiler")
@pytest.mark.parametrize(
    ("terms", "hidden"),
    [
        (1, 0),
        (3, 2),
        pytest.param(1, 2, marks=pytest.mark.thorough),
        pytest.param(3, 0, marks=pytest.mark.thorough),
    ],
)
@pytest.mark.few(1)
def test_every_shape_of_a_model_is_compiled_to_what_it_predicts(terms, hidden):
    model = fitted(lambda m, n, k, d1, d2: 1e-6 * m * n * d2)
    model.shape_ = Shape(len(model.inputs_), terms, hidden)
    model.theta_ = np.random.default_rng(terms + hidden).normal(size=model.shape_.count)
    model._prepare()
    together = compile_together([ModelCall(model, FEATURES)], FEATURES)
    for query in drawn(20):
        found, _ = together(query)
        np.testing.assert_allclose(found, model.predict([query]), rtol=1e-9)


@pytest.mark.parametrize("sparse", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_a_result_like_its_operands_is_converted_where_they_say(selector, parts, sparse):
    rng = np.random.default_rng(0)
    dense = [rng.uniform(size=(64, 64)) for _ in range(2)]
    operands = [csr_array(a) if s else a for a, s in zip(dense, sparse, strict=True)]
    costs = dispatcher(kernel("matmul"), selector, wanted="like").decision(*operands).seconds
    free = dispatcher(kernel("matmul"), selector, wanted="any").decision(*operands).seconds
    more = {route: costs[route] - free[route] for route in costs}
    both, size = all(sparse), [(64, 64, 1.0)]
    paid = {
        "numpy": parts["to_sparse"].predict(size)[0] if both else 0.0,
        "scipy_sparse": 0.0 if both else parts["to_dense"].predict(size)[0],
    }
    for name, expected in paid.items():
        (route,) = [r for r in more if r.split()[0] == name and not r.endswith("=2")][:1]
        assert more[route] == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_extra_costs_are_added_where_they_apply_and_ranges_are_compared(parts, monkeypatch):
    names = (*FEATURES, "stored")
    calls = [ModelCall(parts["numpy"], FEATURES), ModelCall(parts["scipy_sparse"], FEATURES)]
    extra = ExtraCost(ModelCall(parts["to_dense"], ("m", "n", "d1")), "stored", 2.0, (0,))
    ranges = [("m", 10.0, 100.0), ("d1", 0.0, 0.5)]
    compiled = compile_together(calls, names, [extra], ranges)
    monkeypatch.setenv("CXX", "no-such-compiler")
    alone = compile_together(calls, names, [extra], ranges)
    m, n, k, d1, d2 = query = (30.0, 40.0, 50.0, 0.25, 0.125)
    base = [parts[name].predict([query])[0] for name in ("numpy", "scipy_sparse")]
    more = parts["to_dense"].predict([(m, n, d1)])[0]
    for together in (compiled, alone):
        np.testing.assert_allclose(together([*query, 1.0])[0], base, rtol=1e-9)
        np.testing.assert_allclose(together([*query, 2.0])[0], [base[0] + more, base[1]], rtol=1e-9)
        for changed, away in (
            ((m, d1), False),
            ((10.0, 0.5), False),
            ((9.0, d1), True),
            ((m, 0.6), True),
            ((m, np.nan), True),
        ):
            values = [changed[0], n, k, changed[1], d2, 1.0]
            assert together(values)[1] == away


@pytest.mark.skipif(compiler() is None, reason="needs a C compiler")
def test_a_new_shape_costs_one_compiled_call_and_a_known_one_none(selector, monkeypatch):
    loaded, asked = compiled_routes._loaded, []

    def counted(source):
        function = loaded(source)

        def call(*pointers):
            asked.append(pointers)
            return function(*pointers)

        return call

    monkeypatch.setattr(compiled_routes, "_loaded", counted)
    product = dispatcher(kernel("matmul"), selector, wanted="like")
    for size in (20, 30, 40):
        stored = matrices(size, 0.2)
        for operands in (stored, (stored[0].toarray(), stored[1].toarray())):
            asked.clear()
            product(*operands)
            assert len(asked) == 1
            product(*operands)
            assert len(asked) == 1


@pytest.mark.skipif(compiler() is None, reason="needs a C compiler")
def test_threads_do_not_share_the_memory_of_a_compiled_call(parts):
    together = compile_together([ModelCall(parts["numpy"], FEATURES)], FEATURES)
    queries = [(10.0 * i, 40.0, 50.0, 0.25, 0.125) for i in range(1, 9)]
    expected = [together(query) for query in queries]
    wrong: list[int] = []

    def work(i):
        wrong.extend(1 for _ in range(2000) if together(queries[i]) != expected[i])

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that threads interrupt each other often
    try:
        jobs = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join(60)
    finally:
        sys.setswitchinterval(usual)
    assert not wrong
