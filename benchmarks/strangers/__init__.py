"""Pipelines after published operators that no scheduler was made for, by family.

``PROGRAMS`` has them by name. `held_out` says which ones are not looked at while improving the
schedules: only what crashes there is mended. ``CONSULTED`` has those of them that were looked at.
"""

from __future__ import annotations

import hashlib

from strangers import (
    blas,
    everyday,
    imaging,
    networks,
    pictures,
    quantised,
    resize,
    sciences,
    transforms,
    unusual,
)
from strangers.kit import Program

FAMILIES = {
    module.__name__.rpartition(".")[2]: module.PROGRAMS
    for module in (
        quantised,
        blas,
        resize,
        transforms,
        networks,
        imaging,
        unusual,
        everyday,
        pictures,
        sciences,
    )
}
PROGRAMS: dict[str, Program] = {
    program.name: program for programs in FAMILIES.values() for program in programs
}

# Programs whose slow schedules led to a change, or whose times decided about one.
CONSULTED = frozenset(
    (
        "adaptive_threshold",
        "auto_contrast",
        "balance_white",
        "bilateral5x5",
        "biquads",
        "checksums",
        "cholesky",
        "colours_mixed",
        "column_sums",
        "conv3d",
        "covariance",
        "dequantise_rows",
        "embedding_bag",
        "extern_chain",
        "follow_flow",
        "gradients",
        "gray",
        "guided_filter",
        "halftone",
        "l2_norm",
        "masked_variance",
        "mean",
        "nearest_centre",
        "nearest_colour",
        "outline",
        "pair_energy",
        "quantised_conv",
        "quantised_depthwise",
        "quantised_multiply",
        "quantised_pointwise",
        "quarter_turn",
        "residual_network",
        "resize_nearest",
        "scal",
        "sharpen",
        "softmax",
        "sparse_rows",
        "spread_labels",
        "summed_area",
        "thumbnail_and_mean",
        "tone_curve",
        "unpack_nv12",
        "warp",
    )
)


def family(name: str) -> str:
    """The family of a program."""
    return next(f for f, programs in FAMILIES.items() if any(p.name == name for p in programs))


def held_out(name: str) -> bool:
    """Whether it took no part in any choice: half by a hash of the name, less `CONSULTED`."""
    return name not in CONSULTED and hashlib.sha256(name.encode()).digest()[0] % 2 == 0
