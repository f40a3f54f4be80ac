"""The cost of the learned scheduler's one-shot search: CPU seconds, and memory.

As in ``halide_search``, each search runs in a fresh process, from serialised bytes to schedule;
imports are not timed, and memory is the largest resident size of that process. The learned
scheduler supports only CPUs: its search for the host is compared with that of Adams2019 for the
host and with that of Anderson2021 for a GPU, for the same program. Their pieces are shared with
``halide_search``: what one of the two measured is not measured again. A peer's time-out counts as
its limit; programs for which it ran out of memory, or was not run, are left out of its ratio. The
residual network of at least 300 Funcs is that of ``halide_scaling``, searched once; the others are
searched three times, and the median counts.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import common
import halide_scaling
import halide_search

STAGES = halide_scaling.CLAIMED
LARGE = {f"residual network of {STAGES}": "residual_network"}
PEERS = (("Adams2019", "host", None), ("Anderson2021", "cuda", halide_search.GPU))
NAMES = tuple(name for name, *_ in PEERS)


def search(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """One search for the host, in processes of its own."""
    program = repeats = None
    if name in LARGE:
        repeats = 1
        program = common.load_module(halide_scaling.SUPPORT).KINDS[LARGE[name]](STAGES)
    return halide_search.search(
        common.slug(name),
        None,
        args.work,
        scheduler="learned",
        program=program,
        repeats=repeats,
    )


class Kept(common.Pieces):
    """The pieces of earlier runs only."""

    def get(self, key: str, make: Callable[[], Any]) -> Any:
        """The piece, or a `LookupError`."""
        if not self.has(key):
            raise LookupError(key)
        return super().get(key, make)


def peers(name: str, pieces: common.Pieces) -> dict[str, Any]:
    """The peers' searches for a program, or what an earlier run on this machine kept of them."""
    found: dict[str, Any] = {}
    for peer, target, machine in PEERS:
        try:
            found |= halide_search.peers(name, target, machine, pieces, only=(peer,))
        except LookupError:
            found[peer] = {"status": "not measured", "cpu_seconds": None}
    return found


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures that the claim is about."""
    programs = [row for row in rows if row["program"] not in LARGE]
    seconds = [row["search"]["cpu_seconds"] for row in programs]
    large = [row["search"]["cpu_seconds"] for row in rows if row["program"] in LARGE]
    found: dict[str, Any] = {
        "programs": len(programs),
        "max_seconds": max(seconds, default=None),
        "median_seconds": statistics.median(seconds) if seconds else None,
        "max_memory_mb": max(row["search"]["peak_mb"] for row in rows),
        f"stages_{STAGES}_seconds": max(large, default=None),
    }
    for peer in NAMES:
        ratios = [
            ratio
            for row in programs
            for ratio in halide_search.ratio(row["search"]["cpu_seconds"], row["peers"][peer])
        ]
        found[f"vs_{peer.lower()}"] = common.geometric_mean(ratios)
        found[f"vs_{peer.lower()}_programs"] = len(ratios)
    return found


def shown(row: Mapping[str, Any]) -> list[Any]:
    """A row of the printed table."""
    there = [row.get("peers", {}).get(peer, {"status": None}) for peer in NAMES]
    return [
        row["program"],
        row["search"]["funcs"],
        row["search"]["cpu_seconds"],
        *(each["cpu_seconds"] if each["status"] == "ok" else each["status"] for each in there),
        row["search"]["peak_mb"],
    ]


def main() -> None:
    """Measure, print, write."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"  # one core; set before NumPy is imported
    names = [*common.PROGRAMS, *LARGE]
    parser = common.arguments(__doc__.splitlines()[0], names)
    parser.add_argument(
        "--kept-peers", action="store_true", help="start no searches of the autoschedulers"
    )
    args = parser.parse_args()
    pieces = common.Pieces(args.work, "halide_learned_search", args.fresh)
    kind = Kept if args.kept_peers else common.Pieces
    peer_pieces = kind(args.work, "peers", args.fresh, ours=False)
    rows = []
    for name in common.chosen(args, names):
        row: dict[str, Any] = {
            "program": name,
            "search": pieces.get(common.slug(name), partial(search, name, args)),
        }
        if name not in LARGE:
            row["peers"] = peers(name, peer_pieces)
        rows.append(row)
        print(f"{name}: {row['search']['cpu_seconds']:.2f} s", flush=True)
    print()
    common.print_table(
        ["CPU seconds", "Funcs", "learned", *NAMES, "peak MB"], [shown(row) for row in rows]
    )
    common.write(args, "halide_learned_search", rows, summary(rows), gpu=halide_search.GPU)


if __name__ == "__main__":
    main()
