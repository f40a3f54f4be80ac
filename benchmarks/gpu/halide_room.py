"""The pieces of the Halide room: references, a comparison per program, samples, peers."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from typing import Any

import common
from gpu import (
    halide_compare,
    halide_peers,
    halide_plans,
    halide_references,
    halide_samples,
    halide_tuned,
    roofline,
)
from gpu.pieces import Piece, Setting

# Seconds of a comparison: up to thirteen schedules built on several cores, then timed in rounds.
COMPARE_SECONDS = 100.0
# Seconds of a piece of samples, and how many programs share it: on an H100's 16 cores, 25 schedules
# of one program took 16 seconds, and those that had 8 seconds ended after two.
SAMPLES_SECONDS = 60.0
PROGRAMS_PER_PIECE = 3
REFERENCES_SECONDS = 90.0
PLANS_SECONDS = 90.0
TUNE_SECONDS = 75.0
PEERS_SECONDS = 520.0


def pieces(setting: Setting) -> list[Piece]:
    """The most telling first: tuning, comparisons, samples, then peers that were not prepared.

    Samples come in rounds. Every round has some of every program, so that whenever the time
    is up, all programs have about equally many.
    """
    found = [Piece("halide references", REFERENCES_SECONDS, halide_references.compute_all)]
    found.append(Piece("halide plans", PLANS_SECONDS, halide_plans.plan_all))
    ordered = sorted(setting.programs, key=lambda name: -worth(name, setting))
    found += [
        Piece(f"halide tuned {name}", TUNE_SECONDS, partial(halide_tuned.tune, name))
        for name in ordered
    ]
    found += [
        Piece(f"halide {name}", COMPARE_SECONDS, partial(halide_compare.compare, name))
        for name in ordered
    ]
    for number in range(math.ceil(setting.samples / halide_samples.PER_ROUND)):
        for first in range(0, len(setting.programs), PROGRAMS_PER_PIECE):
            names = setting.programs[first : first + PROGRAMS_PER_PIECE]
            label = f"halide samples {number + 1}.{first // PROGRAMS_PER_PIECE + 1}"
            run = partial(halide_samples.measure, names, number)
            found.append(Piece(label, SAMPLES_SECONDS, run))
    found.append(Piece("halide peers", PEERS_SECONDS, halide_peers.search_all))
    return found


def worth(name: str, setting: Setting) -> int:
    """How many schedules by others ours can be compared with on this program."""
    peers = halide_peers.prepared(name, setting)
    return sum(peers.values()) + common.hand_written(common.example(name), "gpu")


def results(setting: Setting, done: dict[str, Any]) -> dict[str, Any]:
    """``gpu_halide``: the comparison; ``gpu_halide_samples``: what was drawn."""
    device = done.get("device")
    rows = []
    for name in setting.programs:
        row = done.get(f"halide {name}")
        if row is None:
            continue
        least = roofline.bound(row["work"], device)
        entries = row["entries"]
        top = entries.get("top 5", entries["one shot"]).get("seconds")
        rows.append(
            {
                **row,
                "tuning": done.get(f"halide tuned {name}"),
                "roofline_seconds": least,
                "of_roofline": least / top if least and top else None,
            }
        )
    found: dict[str, Any] = {}
    if rows:
        found["halide"] = (rows, halide_compare.summary(rows, device))
    drawn = _drawn(done)
    if drawn:
        summary = {
            "programs": len(drawn),
            "samples": sum(sum(row["statuses"].values()) for row in drawn),
            "ok": sum(row["statuses"].get("ok", 0) for row in drawn),
        }
        found["halide_samples"] = (drawn, summary)
    return found


def _drawn(done: dict[str, Any]) -> list[dict[str, Any]]:
    """The samples of all rounds, by program."""
    statuses: dict[str, Counter[str]] = {}
    for name, result in done.items():
        if name.startswith("halide samples "):
            for row in result:
                statuses.setdefault(row["program"], Counter()).update(row["statuses"])
    return [{"program": name, "statuses": dict(found)} for name, found in statuses.items()]
