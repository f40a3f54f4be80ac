"""Pipelines scheduled by hand, built again in a worker and compared with the reference."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import halide as hl
import numpy as np

from tilewright.halide.comparison import source_of
from tilewright.halide.execution.handwritten import Handwritten
from tilewright.halide.execution.inputs import describe_inputs
from tilewright.halide.execution.verification import tolerance
from tilewright.halide.frontend.source import load

WIDTH, HEIGHT = 160, 120


def build() -> tuple[hl.Func, hl.Func, hl.Var, hl.Var]:
    """Floats decide between branches: a few values may hang on their rounding."""
    x, y = hl.vars("x y")
    image = hl.ImageParam(hl.Float(32), 2, "image")
    image.set_estimates([(0, WIDTH), (0, HEIGHT + 2)])
    summed, output = hl.Func("summed"), hl.Func("output")
    summed[x, y] = image[x, y] * hl.f32(0.3) + image[x, y + 1] + image[x, y + 2]
    output[x, y] = hl.select(summed[x, y] > hl.f32(1.0), summed[x, y], -summed[x, y])
    output.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return output, summed, x, y


def hand(target: hl.Target) -> hl.Pipeline:
    output, summed, x, y = build()
    output.vectorize(x, 8).parallel(y)
    summed.compute_at(output, y).vectorize(x, 8)
    return hl.Pipeline(output)


def runner(reference: Path | None) -> Handwritten:
    algorithm = load(build()[0])
    allowed = tolerance(algorithm)
    assert allowed.outliers > 0
    payload: dict[str, Any] = {
        "serialized": algorithm.serialized,
        "schedule": None,
        "target": "host",
        "inputs": describe_inputs(algorithm).to_json(),
        "reference": None if reference is None else (str(reference),),
        "tolerance": asdict(allowed),
        "handwritten": asdict(source_of(hand)),
    }
    return Handwritten(payload)


def test_the_pipeline_is_built_again_and_verified(tmp_path: Path) -> None:
    answers = runner(None).answers()
    path = tmp_path / "output.npy"
    np.save(path, answers[0])
    assert runner(path).verify().ok


def test_answers_that_strict_floats_do_not_explain_stay_wrong(tmp_path: Path) -> None:
    answers = runner(None).answers()
    wrong = np.array(answers[0])
    wrong[3:9, 5:15] += 7.0  # few enough for a second look
    path = tmp_path / "output.npy"
    np.save(path, wrong)
    measured = runner(path)
    assert not measured.verify().ok
    assert not measured.recheck().ok
