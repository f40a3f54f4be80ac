"""Users' own kernels: what they may do wrong is named, and the records do not mix them up."""

import functools

import numpy as np
import pytest

from tilewright.measure import Timing
from tilewright.prediction import PredictionError
from tilewright.prediction.data.collect import collect
from tilewright.prediction.data.isolated import origin
from tilewright.prediction.data.user_kernels import from_callable, from_command
from tilewright.records import Records

QUICK = Timing(warmup=0, min_samples=1, max_samples=1, seconds=0.001, sample_seconds=0.0)


def measured(kernel, records=None, count=3):
    variant = next(iter(kernel.variants))
    return collect(kernel, variant, count, 0, records, retime=False, timing=QUICK, isolate=False)


def leaves(n):
    raise SystemExit(3)


def none(n):
    return None


def text(n):
    return "text"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (leaves, "run_failed: SystemExit: 3"),
        (none, "wrong_answer: the answer is None in place of numbers"),
        (text, "wrong_answer: the answer is 'text' in place of numbers"),
        (lambda n: n + 1, "wrong_answer: the value is"),
        (lambda n: [n], "wrong_answer: the answer has shape"),
    ],
)
def test_faults_of_a_function_are_its_outcome(function, said):
    kernel = from_callable(function, {"n": (1, 9)}, "n", reference=lambda n: n)
    with pytest.raises(PredictionError, match=said):
        measured(kernel)


def test_operands_and_references_that_fail_are_named():
    def fails(**arguments):
        raise ZeroDivisionError("nothing there")

    kernel = from_callable(len, {"n": (3, 3)}, "n", make=fails)
    with pytest.raises(PredictionError, match="len: operands for n=3 cannot be made: Zero"):
        measured(kernel)
    kernel = from_callable(lambda n: n, {"n": (3, 3)}, "n", reference=fails)
    with pytest.raises(PredictionError, match="the reference of lambda failed: Zero"):
        measured(kernel)


def test_the_records_tell_ranges_code_and_commands_apart(tmp_path):
    def total(n):
        return sum(range(n))

    def other(n):
        return n * (n - 1) // 2

    other.__name__ = "total"
    with Records(tmp_path / "records.sqlite") as records:
        for function, low, high in ((total, 1, 9), (total, 1000, 2000), (other, 1000, 2000)):
            kernel = from_callable(function, {"n": (low, high)}, "n")
            runs = measured(kernel, records)
            assert (low <= runs.table).all()
            assert (runs.table <= high).all()
        assert len(records) >= 9
    versions = [
        from_command(["prog", flag, "{n}"], {"n": (1, 9)}, "n").variants["command"].versions()
        for flag in ("--fast", "--slow")
    ]
    assert versions[0] != versions[1]
    listed = from_callable(total, {"n": [1, 9]}, "n").variants["total"].versions()
    assert listed != from_callable(total, {"n": (1, 9)}, "n").variants["total"].versions()


def test_builtins_and_partials_are_kernels():
    for function in (abs, functools.partial(pow, 2)):
        kernel = from_callable(
            function, {"x": (1, 9)}, "x", make=lambda x, rng: {}, variants={"max": max}
        )
        assert set(kernel.variants) >= {"max"}
        assert kernel.variants["max"].versions()["ranges"] == "x 1 to 9"


def test_drawn_values_have_the_kind_of_their_range():
    kernel = from_callable(lambda n, d, k: n, {"n": (1, 9), "d": (0.1, 0.2), "k": [2, 4]}, "n")
    drawn = [kernel.draw(np.random.default_rng(seed)) for seed in range(20)]
    assert all(isinstance(i["n"], int) and 1 <= i["n"] <= 9 for i in drawn)
    assert all(0.1 <= i["d"] <= 0.2 for i in drawn)
    assert {i["k"] for i in drawn} == {2, 4}


def test_runs_recorded_before_a_file_was_changed_are_not_looked_up(tmp_path):
    code = tmp_path / "code.py"
    code.write_text("one")

    def keys():
        kernel = from_callable(int, {"n": (1, 9)}, "n", files=[str(code)])
        return kernel.variants["int"].versions()

    before = keys()
    assert before == keys()
    kernel = from_callable(leaves, {"n": (1, 9)}, "n", files=[str(code)])
    made_from = origin(kernel, kernel.variants["leaves"]) or {}
    assert made_from["arguments"]["files"]["list"]
    assert set(before) == {"code", "ranges", "code.py"}
    code.write_text("two")
    assert {name for name, value in keys().items() if value != before[name]} == {"code.py"}


def test_files_are_found_from_any_folder(tmp_path, monkeypatch):
    (tmp_path / "code.py").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    kernel = from_callable(leaves, {"n": (1, 9)}, "n", files=["code.py"])
    monkeypatch.chdir("/")
    assert kernel.origin is not None
    _, arguments = kernel.origin
    assert list(from_callable(**arguments).variants) == list(kernel.variants)
