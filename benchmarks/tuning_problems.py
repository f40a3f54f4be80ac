"""The search spaces that the tuners are compared on, and which of them are held out.

Recordings of other people come from a folder (``--data``): T4 results with their T1 descriptions,
and Kernel Tuner's caches, of which the T1 description of the kernel gives the known constraints.
The package's own recordings and those of RISE's kernels (``data/rise``) come with the repository.
Spaces that are too large for a table are evaluated instead (`tuning_large.problems`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from tilewright.tuning.interop.replay import Replay, read_cache, read_t1, read_t4
from tilewright.tuning.problems import recorded
from tuning_large import Live

RISE = Path(__file__).parent / "data" / "rise"

# Kernels whose recordings chose a setting of the tuner, by the decision pages. All recordings of
# such a kernel count as used, also those on machines that were not looked at.
CHOSE_SETTINGS = (
    "convolution_milo",
    "dedispersion_milo",
    "pnpoly",
    "cc_flags",
    "c_loop_nest",
    "halide_harris",
    "opencl_matmul",
    "rise_scal",
    "rise_harris",
    # of the large ones, these were declared for choices before any tuner had run on them
    "flags_codec",
    "flags_matrices",
    "factors_iir_blur",
    "factors_bilateral_grid",
)


def held_out(name: str) -> bool:
    """Whether no recording of the problem's kernel has chosen a setting."""
    return not name.startswith(CHOSE_SETTINGS)


def problems(data: Path | None) -> list[Replay]:
    """Return every recorded problem: those of the folder, the package's, RISE's."""
    found = []
    if data is not None:
        found += [read_t4(path) for path in sorted(data.glob("*_T4.json*"))]
        found += [_cache(path) for path in sorted(data.glob("*_cache.json*"))]
    found += recorded()
    return found + [replace(p, name=f"rise_{p.name}") for p in recorded(RISE)]


def _cache(path: Path) -> Replay:
    """Return the problem of a cache; the kernel is what its name begins with."""
    described = path.with_name(f"{path.name.partition('_')[0]}.T1.json")
    constraints = read_t1(described).constraint_sources if described.exists() else ()
    found = read_cache(path, constraints)
    return replace(found, name=found.name.removesuffix("_cache"))


def within(problem: Replay | Live, part: float) -> float:
    """Return the share of configurations whose objective is at least ``part`` as good.

    Of a large space, it is the share of a uniform sample.
    """
    if isinstance(problem, Live):
        good = np.array(problem.known["sampled"])
        return float((good <= problem.optimum / part).sum()) / problem.known["sample"]
    good = np.array([v for v in problem.values.values() if isinstance(v, float)])
    return float((good <= problem.optimum / part).sum()) / len(problem.values)
