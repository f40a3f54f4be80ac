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
    pixels,
    quantised,
    resize,
    sciences,
    transforms,
    unusual,
    workshop,
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
        workshop,
        pixels,
    )
}
PROGRAMS: dict[str, Program] = {
    program.name: program for programs in FAMILIES.values() for program in programs
}

# Programs whose slow schedules led to a change, or whose times decided about one.
CONSULTED = frozenset(
    (
        "accumulate_in_place",
        "adaptive_threshold",
        "auto_contrast",
        "balance_white",
        "bilateral5x5",
        "biquads",
        "box_by_sums",
        "camera_frames",
        "canny_edges",
        "checksums",
        "cholesky",
        "chroma_key",
        "colours_mixed",
        "column_sums",
        "compensated_sum",
        "conv3d",
        "covariance",
        "dequantise_rows",
        "distance_map",
        "drawdowns",
        "embedding_bag",
        "equalise_tiles",
        "error_diffusion",
        "extern_chain",
        "faster_samples",
        "fft16",
        "fft64",
        "follow_flow",
        "gradients",
        "gray",
        "guided_filter",
        "haar",
        "halftone",
        "halved",
        "hough",
        "l2_norm",
        "mandelbrot",
        "masked_variance",
        "mean",
        "mix_channels",
        "moving_average",
        "nearest_centre",
        "nearest_colour",
        "outline",
        "pad",
        "pair_energy",
        "pool2x2",
        "product",
        "quantised_conv",
        "quantised_depthwise",
        "quantised_multiply",
        "quantised_pointwise",
        "quarter_turn",
        "residual_network",
        "residual_norm",
        "resize_linear_down",
        "resize_nearest",
        "rotary_norm",
        "row_means",
        "running_columns",
        "scal",
        "sharpen",
        "soften",
        "softmax",
        "sparse_rows",
        "spread_labels",
        "stereo",
        "summed_area",
        "syrk",
        "thumbnail_and_mean",
        "tone_curve",
        "trsm",
        "unpack_nv12",
        "variance_filter",
        "warp",
    )
)


def family(name: str) -> str:
    """The family of a program."""
    return next(f for f, programs in FAMILIES.items() if any(p.name == name for p in programs))


def held_out(name: str) -> bool:
    """Whether it took no part in any choice: half by a hash of the name, less `CONSULTED`."""
    return name not in CONSULTED and hashlib.sha256(name.encode()).digest()[0] % 2 == 0
