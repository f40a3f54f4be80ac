"""The library's kernels by what is always there; compiled variants are for longer tests."""

import numpy as np
import pytest

from tilewright.prediction.data.instances import drawn, drawn_at
from tilewright.prediction.data.user_kernels import from_callable, from_command
from tilewright.prediction.data.work import error_of
from tilewright.prediction.errors import PredictionError
from tilewright.prediction.kernels import kernel, kernels

PLAIN = ("numpy", "scipy_sparse", "to_sparse", "to_dense")


@pytest.mark.parametrize("name", ["matmul", "matvec", "convolution", "pooling", "conversion"])
def test_answers_agree_with_the_reference_and_operands_with_their_features(name):
    chosen = kernel(name)
    for variant in (v for v in chosen.variants.values() if v.name in PLAIN):
        for instance, settings, operands in drawn(chosen, variant, 4, 3):
            answer = variant.prepare(operands, settings)()
            error, message = error_of(answer, chosen, operands)
            assert not message
            assert error <= chosen.tolerance
            described = chosen.describe(operands)
            assert described == {n: pytest.approx(v) for n, v in instance.items()}


def test_an_instance_depends_on_seed_and_index_and_not_on_the_variant():
    chosen = kernel("matmul")
    one = drawn_at(chosen, chosen.variant("numpy"), 7, 1)
    other = drawn_at(chosen, chosen.variant("scipy_sparse"), 7, 1)
    assert one[0] == other[0]
    assert np.array_equal(one[2]["a"], other[2]["a"])
    assert drawn_at(chosen, chosen.variant("numpy"), 7, 2)[0] != one[0]


def test_a_wrong_answer_is_reported_with_its_place():
    chosen = kernel("matvec")
    _, _, operands = drawn_at(chosen, chosen.variant("numpy"), 0, 0)
    assert chosen.reference is not None
    wrong = chosen.reference(operands)
    wrong[0] = np.nan
    assert "the value at [0] is nan" in error_of(wrong, chosen, operands)[1]
    assert "shape" in error_of(wrong[1:], chosen, operands)[1]


def test_unknown_names_and_settings_are_errors_that_list_the_known():
    with pytest.raises(PredictionError, match="matmul"):
        kernel("product")
    with pytest.raises(PredictionError, match="scipy_sparse"):
        kernel("matmul").variant("fast")
    with pytest.raises(PredictionError, match="threads"):
        kernels()["matmul"].variant("numpy").prepare({}, {"threads": 10_000})


def test_own_kernels_draw_from_ranges_and_refuse_bad_ones():
    own = from_callable(lambda n, mode: n + mode, {"n": (1, 9), "mode": [2, 4]}, "n", name="own")
    values = [own.draw(np.random.default_rng(i)) for i in range(30)]
    assert {v["mode"] for v in values} == {2, 4}
    assert all(1 <= v["n"] <= 9 for v in values)
    with pytest.raises(PredictionError, match="ends at 1"):
        from_callable(print, {"n": (9, 1)}, "n")
    with pytest.raises(PredictionError, match="has no value"):
        from_command(["true", "{size}"], {"n": (1, 2)}, "n")


def test_a_command_that_fails_says_so():
    failing = from_command(["false"], {"n": (1, 2)}, "n")
    with pytest.raises(PredictionError, match="exit code 1"):
        failing.variant("command").prepare({"n": 1})()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo no device; exit 3", "exit code 3: it printed 'no device'$"),
        ("echo a; echo b; echo warning >&2; echo bad >&2; exit 3", "3: bad; it printed 'a b'$"),
        ("exit 3", "exit code 3: it printed nothing$"),
        ("echo working; kill -SEGV $$", r"by signal 11 \(.*\): it printed 'working'$"),
    ],
)
def test_a_command_that_fails_is_shown_with_what_it_said(script, said):
    failing = from_command(["sh", "-c", script], {"n": (1, 2)}, "n")
    with pytest.raises(PredictionError, match=said):
        failing.variant("command").prepare({"n": 1})()
