"""What the device can do at best: bandwidth of a copy, and operations of a long chain.

Both are Halide pipelines scheduled by hand and measured as every other, so that the roofline
holds what a Halide kernel can reach at all.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from gpu import probes
from gpu.pieces import Piece, Setting
from tilewright.halide.comparison import source_of
from tilewright.halide.execution.session import Session, Variant
from tilewright.halide.frontend.source import load
from tilewright.measure import Limits, Timing

_TIMING = Timing(min_samples=10, max_samples=50, seconds=2.0, sample_seconds=0.002)
_QUICK = Timing(min_samples=3, max_samples=5, seconds=0.2)


def measure(setting: Setting) -> dict[str, Any]:
    """Bytes a second of a copy (reads and writes) and operations a second of the chain."""
    size = 1 << 16 if setting.small else 1 << 26
    found: dict[str, Any] = {"size": size}
    for name, build, by_hand in (
        ("copy", probes.copy, probes.copy_by_hand),
        ("chain", probes.chain, probes.chain_by_hand),
    ):
        algorithm = load(build(size))
        variant = Variant(
            handwritten=source_of(partial(by_hand, size=size)), target=setting.target, name=name
        )
        with Session(
            algorithm,
            targets=[setting.target],
            verify=False,
            limits=Limits(build_seconds=60.0, run_seconds=30.0),
            timing=_QUICK if setting.small else _TIMING,
            deadline=setting.deadline,
        ) as session:
            (measured,) = session.measure([variant])
        measurement = measured.measurement
        if not measurement.ok:
            raise RuntimeError(f"{name}: {measurement.status}: {measurement.message}")
        found[name] = {"seconds": measurement.minimum, "median": measurement.median}
    found["bytes_per_second"] = 8.0 * size / found["copy"]["seconds"]
    found["flops_per_second"] = 2.0 * probes.CHAIN * size / found["chain"]["seconds"]
    return found


def pieces(setting: Setting) -> list[Piece]:
    """One piece: everything else refers to it."""
    return [Piece("device", 60.0, measure, essential=True)]


def results(setting: Setting, done: dict[str, Any]) -> dict[str, Any]:
    """None of its own: it is part of the others' results."""
    return {}
