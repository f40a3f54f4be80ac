"""Schedules of blur: whatever is chosen, the answer is right."""

from tilewright.measure import Timing
from tilewright.prediction.kernels.halide_blur import INLINED, MULLAPUDI, ROW, TILE, family
from tilewright.prediction.kernels.schedules import measure_candidates

QUICK = Timing(warmup=0, min_samples=1, max_samples=1, seconds=0.0)


def test_blur_x_is_right_wherever_it_is_computed_in_tiles_and_in_whole_rows():
    blur, n = family(), 512
    candidates = [{"n": n, **MULLAPUDI}]
    for fusion in (TILE, ROW, INLINED):
        candidates += [
            {"n": n, "s1": 16, "s2": width, "s3": 32, "s4": 16, "fusion": fusion}
            for width in (64, n)
        ]
    tried = list(measure_candidates(blur, n, candidates, timing=QUICK))
    assert [t.factors for t in tried if t.measurement.ok and t.measurement.verified] == [
        t.factors for t in tried
    ]
    assert len(tried) == len(candidates)


def test_drawn_schedules_have_whole_rows_half_of_the_time_and_no_vectors_of_what_is_inlined():
    drawn = family().candidates(1 << 14, 400)
    whole = sum(row["s2"] == row["n"] for row in drawn)
    assert 100 < whole < 300
    assert {row["fusion"] for row in drawn} == {TILE, ROW, INLINED}
    assert all(row["s4"] <= row["s3"] <= 1024 and row["s3"] <= row["s2"] for row in drawn)
    assert all(row["s1"] == row["s4"] for row in drawn if row["fusion"] == INLINED)
