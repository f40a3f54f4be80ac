"""Eigen and uBLAS against NumPy: threads, odd and empty shapes, operands without non-zeros."""

import shutil
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_array, csr_array, random_array

from tilewright.prediction.data.instances import drawn
from tilewright.prediction.data.work import error_of
from tilewright.prediction.errors import PredictionError
from tilewright.prediction.kernels import kernel, native
from tilewright.prediction.kernels.cpp import EIGEN, UBLAS, CppLibrary

COMPILED = ("eigen_dense", "eigen_sparse", "ublas_dense", "ublas_sparse")
KERNELS = ("matmul", "matvec", "convolution", "pooling")


def check(name, operands, variants=COMPILED):
    """Every variant, at every setting, agrees with the reference."""
    chosen = kernel(name)
    for variant in map(chosen.variant, variants):
        usable, why = variant.available()
        assert usable, why
        for threads in variant.settings.get("threads", (None,)):
            setting = {} if threads is None else {"threads": threads}
            answer = variant.prepare(operands, setting)()
            error, message = error_of(answer, chosen, operands)
            assert not message, f"{name} by {variant.name} {setting}: {message}"
            assert error <= chosen.tolerance


@pytest.mark.parametrize("name", KERNELS)
def test_drawn_instances_agree_with_numpy(name):
    for _, _, operands in drawn(kernel(name), kernel(name).variant("eigen_dense"), 3, 11):
        check(name, operands)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(0, 10), st.booleans())
def test_small_and_odd_products_agree_with_numpy(m, n, k, tenths, negative):
    rng = np.random.default_rng([m, n, k, tenths])
    a, b = (
        np.where(rng.uniform(size=shape) * 10 < tenths, rng.uniform(-1, 1, shape), 0.0)
        for shape in ((m, n), (n, k))
    )
    check("matmul", {"a": -a if negative else a, "b": b})
    check("matvec", {"a": a, "x": b[:, 0]})


@pytest.mark.parametrize(("m", "n", "k"), [(0, 3, 2), (3, 0, 2), (3, 2, 0), (0, 0, 0), (1, 0, 1)])
def test_empty_products_are_empty_or_zero(m, n, k):
    check("matmul", {"a": np.ones((m, n)), "b": np.ones((n, k))})
    check("matmul", {"a": csr_array((m, n)), "b": csr_array((n, k))})
    check("matvec", {"a": np.ones((m, n)), "x": np.ones(n)})


def test_sparse_operands_without_a_non_zero():
    check("matmul", {"a": csr_array((5, 7)), "b": csr_array((7, 3))})
    check("matmul", {"a": csr_array((5, 7)), "b": csr_array(np.ones((7, 3)))})
    check("matvec", {"a": csr_array((5, 7)), "x": np.ones(7)})
    check("convolution", {"a": csr_array((9, 8)), "w": np.ones((3, 3))})
    check("pooling", {"a": csr_array((9, 7)), "s": 2})
    stored = csr_array(np.eye(6))
    stored.data[:] = 0  # zeros that are stored
    check("matmul", {"a": stored, "b": stored})


@pytest.mark.parametrize(("m", "n", "r"), [(3, 3, 3), (7, 3, 3), (3, 7, 3), (11, 13, 5), (7, 7, 7)])
def test_filters_as_large_as_the_image_and_odd_images(m, n, r):
    rng = np.random.default_rng(m * n)
    a = np.where(rng.uniform(size=(m, n)) < 0.3, rng.uniform(-1, 1, (m, n)), 0.0)
    check("convolution", {"a": a, "w": rng.uniform(-1, 1, (r, r))})


@pytest.mark.parametrize(("m", "n", "s"), [(1, 1, 2), (5, 4, 2), (4, 5, 2), (7, 7, 1), (1, 9, 2)])
def test_windows_that_do_not_divide_the_image(m, n, s):
    rng = np.random.default_rng(m * n)
    check("pooling", {"a": np.where(rng.uniform(size=(m, n)) < 0.4, 1.0 + rng.random(), 0), "s": s})


def test_operands_in_every_storage_and_type():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 3, (17, 9)), rng.integers(0, 3, (9, 13))
    for left in (a.astype(np.float32), np.asfortranarray(a), a, csr_array(a), csc_array(a)):
        for right in (b.T.copy().T, b.tolist(), csc_array(b.astype(np.float32))):
            check("matmul", {"a": left, "b": np.asarray(right) if type(right) is list else right})
    unsorted = csr_array((np.array([1.0, 2.0]), np.array([1, 0]), np.array([0, 2])), shape=(1, 2))
    check("matmul", {"a": unsorted, "b": np.array([[1.0], [10.0]])})


@pytest.mark.parametrize(
    ("name", "operands"),
    [
        ("matmul", {"a": np.ones((3, 4)), "b": np.ones((5, 2))}),
        ("matmul", {"a": np.ones((3, 4)), "b": np.ones(4)}),
        ("matmul", {"a": np.float64(3), "b": np.ones((5, 2))}),
        ("matvec", {"a": np.ones((3, 4)), "x": np.ones(3)}),
        ("convolution", {"a": np.ones((3, 4)), "w": np.ones((5, 5))}),
        ("convolution", {"a": np.ones((9, 9)), "w": np.ones((3, 2))}),
        ("pooling", {"a": np.ones((9, 9)), "s": 0}),
    ],
)
def test_operands_that_do_not_fit_are_refused_before_they_are_read(name, operands):
    for variant in map(kernel(name).variant, COMPILED):
        with pytest.raises(PredictionError, match="do not fit"):
            variant.prepare(operands)


def test_many_threads_multiply_at_once():
    rng = np.random.default_rng(0)
    a = rng.uniform(size=(60, 50))
    s = random_array((50, 40), density=0.1, format="csr", rng=rng)
    right, wrong = a @ s.toarray(), []

    def work(name, threads):
        variant = kernel("matmul").variant(name)
        setting = {"threads": threads} if "threads" in variant.settings else {}
        for _ in range(20):
            answer = variant.prepare({"a": a, "b": s}, setting)()
            answer = answer if isinstance(answer, np.ndarray) else answer.toarray()
            if not np.allclose(answer, right):
                wrong.append(name)

    jobs = [threading.Thread(target=work, args=(n, 1 + i % 2)) for i, n in enumerate(COMPILED * 2)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(60)
    assert not wrong


def test_a_library_is_compiled_once_and_kept_by_its_content(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "one.cpp").write_text('extern "C" int one() { return 1; }')
    (folder / "bad.cpp").write_text("this is no C++")
    (folder / "dense_sparse.h").write_text("")
    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setattr(native, "SOURCES", folder)
        first = native.built("one.cpp", (), tmp_path / "cache")
        stamp = first.stat().st_mtime_ns
        assert native.built("one.cpp", (), tmp_path / "cache") == first
        assert first.stat().st_mtime_ns == stamp
        assert native.built("one.cpp", ("-DOTHER",), tmp_path / "cache") != first
        with pytest.raises(PredictionError, match=r"cannot compile bad\.cpp"):
            native.built("bad.cpp", (), tmp_path / "cache")


def test_missing_compilers_and_headers_are_named(monkeypatch):
    absent = CppLibrary("absent", "eigen.cpp", lambda: None, "pip install absent")
    assert absent.available() == (False, "its headers are missing: pip install absent")
    with pytest.raises(PredictionError, match="pip install absent"):
        absent.load()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert EIGEN.available() == (
        False,
        "there is no C++ compiler: install g++ or clang++, or set CXX",
    )


def test_versions_are_those_of_the_headers():
    assert EIGEN.versions()["eigen"].count(".") == 2
    assert UBLAS.versions()["ublas"].replace("_", "").isdigit()
