"""Small pipelines, one for each construct of the language, after Halide's tutorial and tests.

``PIPELINES`` gives them by name: functions of no arguments that build an unscheduled Func or
Pipeline. ``EXPECTED`` gives, for the same names, what a run on a dictionary of inputs yields.
``random_inputs`` makes such inputs of the estimated sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np

from . import arithmetic, boundaries, generators, lessons, reductions

_MODULES = (lessons, boundaries, arithmetic, reductions, generators)

PIPELINES: dict[str, Callable[[], hl.Func | hl.Pipeline]] = {
    name: getattr(module, name) for module in _MODULES for name in module.EXPECTED
}
EXPECTED: dict[str, Callable[[dict[str, Any]], tuple[np.ndarray, ...]]] = {
    name: expected for module in _MODULES for name, expected in module.EXPECTED.items()
}


def random_inputs(pipeline: hl.Pipeline, seed: int = 0) -> dict[str, Any]:
    """Inputs of the estimated sizes by name, axes in Halide's order; scalars are the estimates.

    Floats lie between 0 and 1. Signed integers of 32 and more bits stay small, since their
    overflow is undefined in Halide.
    """
    rng = np.random.default_rng(seed)
    inputs: dict[str, Any] = {}
    for argument in pipeline.infer_arguments():
        estimates = argument.argument_estimates
        if argument.kind == hl.ArgumentKind.InputScalar:
            inputs[argument.name] = hl.evaluate(estimates.scalar_estimate)
            continue
        shape = [hl.evaluate(span.extent) for span in estimates.buffer_estimates]
        kind = argument.type
        if kind.is_float():
            values = rng.random(shape).astype(f"float{kind.bits()}")
        elif kind.is_int():
            limit = min(2 ** (kind.bits() - 1), 10**6)
            values = rng.integers(-limit, limit, shape).astype(f"int{kind.bits()}")
        else:
            dtype = f"uint{kind.bits()}"
            values = rng.integers(0, 2 ** kind.bits(), shape, dtype=dtype)
        inputs[argument.name] = np.asfortranarray(values)
    return inputs
