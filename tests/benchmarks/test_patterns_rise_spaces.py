"""RISE's spaces: what is drawn fits and has few threads; reasons are counted without numbers."""

import patterns_rise_spaces as spaces
from tilewright.patterns import SizeError
from tilewright.patterns.rise import rise_kernel, small_kernel


def test_what_is_drawn_is_feasible_different_and_small(monkeypatch):
    monkeypatch.setattr(spaces, "CONFIGURATIONS", 5)
    for name in ("rise_asum_gpu", "rise_mm_gpu"):
        kernel = small_kernel(name)
        found = spaces.drawn(kernel)
        assert len({str(c) for c in found}) == len(found) == 5
        assert all(kernel.fitting_space().is_feasible(c) for c in found)
        assert max(map(spaces.threads, found)) <= spaces.MOST_THREADS
        assert spaces.drawn(kernel) == found


def test_threads_are_those_of_both_dimensions():
    assert spaces.threads({"gs0": 8, "ls0": 2}) == 8
    assert spaces.threads({"gs0": 8, "ls0": 2, "gs1": 4, "ls1": 1}) == 32


def test_reasons_differ_in_more_than_numbers():
    first, second = (spaces.reason(SizeError(f"size:\n  {n} is not 8")) for n in (1, 2))
    assert first == second == "N is not N"


def test_refused_configurations_are_counted_with_their_reason(monkeypatch):
    monkeypatch.setattr(spaces, "DERIVED", 20)
    monkeypatch.setattr(
        "tilewright.patterns.rise.rise_kernel", lambda name: rise_kernel(name, (256,) * 3)
    )
    row = spaces.at_default_sizes("rise_mm_gpu")  # some tiles are larger than 256
    failed = sum(row["reasons"].values())
    assert row["derive_share"] == 1 - failed / row["drawn"]
    assert 0 < failed < row["drawn"] == 20
    assert not any(letter.isdigit() for reason in row["reasons"] for letter in reason)
