"""Measures instances in worker processes, so that a crash or hang affects only one instance.

A variant that crashes, hangs, or allocates without end has a measurement that says so, and the
collection continues with the next instance.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tilewright.files import scratch_folder
from tilewright.measure import (
    Candidate,
    Measurement,
    RunLimits,
    Timing,
    load_builder,
    measure_one,
    reference_to,
)
from tilewright.prediction.data.kernel import Kernel, KernelVariant
from tilewright.prediction.errors import PredictionError

# One run of a worker is a complete measurement: verified, and repeated if it was disturbed.
LIMITS = RunLimits(build_seconds=60.0, run_seconds=60.0, memory_bytes=8 << 30)
# Seconds after which a worker takes no further instance.
TOGETHER = 2.0
_ONCE = Timing(warmup=0, min_samples=1, max_samples=1, seconds=math.inf, sample_seconds=0.0)
_PRELOAD = ("scipy.sparse", "threadpoolctl", "tilewright.prediction.data.isolated")


def origin(kernel: Kernel, variant: KernelVariant) -> dict[str, Any] | None:
    """Return data from which another process can recreate the variant; None if it cannot.

    Kernels of the library are found by name; users' own ones are recreated from functions that can
    be imported.
    """
    from tilewright.prediction.kernels.library import library

    base = variant.whole or variant
    made_from = {"variant": base.name, "whole_call": variant.whole is not None}
    known = library().get(kernel.name)
    same = known is not None and (known.draw, known.make, known.reference) == (
        kernel.draw,
        kernel.make,
        kernel.reference,
    )
    if known is not None and same and known.variants.get(base.name) is base:
        return {**made_from, "kernel": kernel.name}
    if kernel.origin is None or kernel.variants.get(base.name) is not base:
        return None
    maker, arguments = kernel.origin
    try:
        shipped = {name: _shipped(value) for name, value in arguments.items()}
    except PredictionError:
        return None
    return {**made_from, "maker": maker, "arguments": shipped}


def measure_isolated(
    kernel_origin: Mapping[str, Any],
    indices: Sequence[int],
    seed: int,
    *,
    verify: bool,
    timing: Timing,
    limits: RunLimits = LIMITS,
) -> list[Measurement]:
    """Measure instances in a worker process; return the first ones of those requested.

    A process of a few milliseconds has neither warm memory nor settled threads, so one worker
    measures several instances, as many as `TOGETHER` seconds allow. An instance that breaks its
    worker is measured again alone, so that the outcome concerns only this instance.

    Returns:
        At least one measurement.
    """
    with scratch_folder("tilewright-instances-") as folder:
        path = folder / "measurements"
        payload = {
            "origin": dict(kernel_origin),
            "indices": list(indices),
            "seed": seed,
            "verify": verify,
            "timing": asdict(timing),
            "path": str(path),
        }
        name = f"instance {indices[0]}"
        candidate = Candidate("tilewright.prediction.data.isolated:Instances", payload, name)
        room = limits
        if len(indices) > 1:
            room = replace(limits, run_seconds=limits.run_seconds + TOGETHER)
        worker = measure_one(candidate, room, _ONCE, _PRELOAD)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = [Measurement.from_json(json.loads(line)) for line in lines]
    failed = [replace(worker, times=(), cpu_times=(), runs=0)]
    if worker.ok or worker.details.get("lost"):
        return found or failed
    if len(indices) == 1:
        return failed
    culprit = indices[len(found)] if len(found) < len(indices) else indices[-1]
    found = found[: len(indices) - 1]
    return found + measure_isolated(
        kernel_origin, [culprit], seed, verify=verify, timing=timing, limits=limits
    )


class Instances:
    """The worker's side: instances prepared, verified, and timed with their repetitions.

    Each measurement is written to a file immediately, so that it is not lost with the worker.
    """

    def __init__(self, payload: Mapping[str, Any]) -> None:
        """Take the payload that `measure_isolated` sends, and prepare the first instance."""
        from tilewright.prediction.data.work import VariantWork, quiet_blas

        self._kernel, self._variant = _made(payload["origin"])
        self._indices, self._seed = payload["indices"], payload["seed"]
        self._path = Path(payload["path"])
        self._blas = quiet_blas()
        timing = Timing(**payload["timing"])
        self._work = VariantWork(self._kernel, self._variant, payload["verify"], timing)
        self._first = self._begun(self._indices[0])

    def _begun(self, index: int) -> tuple[Any, dict[str, Any]]:
        from tilewright.prediction.data.instances import drawn_at

        instance, settings, operands = drawn_at(self._kernel, self._variant, index, self._seed)
        return self._work.begin(operands, settings), {**instance, **settings}

    def run(self) -> None:
        """Time the first with all its samples, and more while there is time."""
        end = time.monotonic() + TOGETHER
        begun, features = self._first
        for following in (*self._indices[1:], None):
            made = self._work.end(begun)
            made = replace(made, details={**made.details, "features": features})
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(made.to_json()) + "\n")
            if following is None or time.monotonic() > end:
                return
            begun, features = self._begun(following)


def _made(made_from: Mapping[str, Any]) -> tuple[Kernel, KernelVariant]:
    from tilewright.prediction.data.whole_call import whole_call
    from tilewright.prediction.kernels.library import library

    if "kernel" in made_from:
        kernel = library()[made_from["kernel"]]
    else:
        arguments = {name: _landed(value) for name, value in made_from["arguments"].items()}
        maker: Callable[..., Kernel] = load_builder(made_from["maker"])
        kernel = maker(**arguments)
    variant = kernel.variant(made_from["variant"])
    return kernel, whole_call(variant) if made_from["whole_call"] else variant


def _shipped(value: Any) -> Any:
    """Return plain data for a value; functions are given by module and name."""
    if isinstance(value, Mapping):
        return {"mapping": [[_shipped(k), _shipped(v)] for k, v in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_shipped(v) for v in value]}
    if isinstance(value, list | range):
        return {"list": [_shipped(v) for v in value]}
    if callable(value):
        return {"function": reference_to(value, PredictionError)}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays
        return _shipped(value.tolist())
    raise PredictionError(f"{value!r} cannot be sent to another process")


def _landed(made_from: Mapping[str, Any]) -> Any:
    """Return the inverse of `_shipped`."""
    ((kind, value),) = made_from.items()
    if kind == "mapping":
        return {_landed(k): _landed(v) for k, v in value}
    if kind in ("tuple", "list"):
        items = [_landed(v) for v in value]
        return tuple(items) if kind == "tuple" else items
    return load_builder(value) if kind == "function" else value
