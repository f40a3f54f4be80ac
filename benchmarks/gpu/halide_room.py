"""The pieces of the Halide room: peers, a comparison a program, random schedules a program."""

from __future__ import annotations

from functools import partial
from typing import Any

from gpu import halide_compare, halide_peers, halide_samples, roofline
from gpu.pieces import Piece, Setting


def pieces(setting: Setting) -> list[Piece]:
    """In the order of their worth."""
    return [
        Piece("halide peers", 520.0, halide_peers.search_all),
        *(
            Piece(f"halide {name}", 150.0, partial(halide_compare.compare, name))
            for name in setting.programs
        ),
        *(
            Piece(f"halide samples {name}", 300.0, partial(halide_samples.measure, name))
            for name in setting.programs
            if setting.samples > 0
        ),
    ]


def results(setting: Setting, done: dict[str, Any]) -> dict[str, Any]:
    """``gpu_halide``: the comparison; ``gpu_halide_samples``: what was drawn."""
    device = done.get("device")
    rows = []
    for name in setting.programs:
        row = done.get(f"halide {name}")
        if row is None:
            continue
        least = roofline.bound(row["work"], device)
        top = row["entries"]["top 5"].get("seconds")
        rows.append(
            {
                **row,
                "roofline_seconds": least,
                "of_roofline": least / top if least and top else None,
            }
        )
    found: dict[str, Any] = {}
    if rows:
        found["halide"] = (rows, halide_compare.summary(rows, device))
    drawn = [
        done[f"halide samples {name}"]
        for name in setting.programs
        if f"halide samples {name}" in done
    ]
    if drawn:
        summary = {
            "programs": len(drawn),
            "samples": sum(sum(row["statuses"].values()) for row in drawn),
            "ok": sum(row["statuses"].get("ok", 0) for row in drawn),
        }
        found["halide_samples"] = (drawn, summary)
    return found
