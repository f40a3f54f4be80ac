"""Measures the data sets of `benchmarks/data/prediction` on this machine: every kernel, every
variant that runs here, 500 instances drawn from a seed, each measured twice.

Interrupt it whenever you like: a rerun goes on where it was. ``--seconds`` does a piece of so
long, for a machine that is not to be kept busy. A data set is written when it is complete.

Usage: ``python benchmarks/prediction_data.py --seconds 100``
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import common
from tilewright.prediction.collect import collect
from tilewright.prediction.kernels import kernels
from tilewright.prediction.runs import write_csv
from tilewright.records import Records

DATA = common.HERE / "data" / "prediction"
INSTANCES = 500
SEED = 2020
NOTES = {
    "matmul": "Table II's dimensions go to 1024; here to 512, as products of 1024 take uBLAS "
    "seconds each.",
    "conversion": "Not of the paper: what changing a matrix's storage costs.",
}


def names() -> list[str]:
    """Every data set, ``kernel-variant``, in the order in which they are measured."""
    every = [f"{k.name}-{v}" for k in kernels().values() for v in k.variants]
    first = [name for name in every if name.startswith(("matmul", "conversion"))]
    dense = [name for name in every if name.endswith(("dense", "numpy", "halide"))]
    return list(dict.fromkeys([*first, *dense, *every]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", help="kernel-variant,…")
    parser.add_argument("--instances", type=int, default=INSTANCES)
    parser.add_argument("--seconds", type=float, help="stop after so many")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--records", type=Path, default=common.HERE / ".work" / "prediction.sqlite")
    args = parser.parse_args()
    wanted = args.only.split(",") if args.only else names()
    unknown = sorted(set(wanted) - set(names()))
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(names())}")
    deadline = None if args.seconds is None else time.monotonic() + args.seconds
    with Records(args.records, wait=10) as records:
        for name in wanted:
            if not one(name, args, records, deadline):
                print("time is up; run it again to go on")
                return


def one(name: str, args: argparse.Namespace, records: Records, deadline: float | None) -> bool:
    """Measure a data set; False where there was not time enough."""
    path = args.data / f"{name}.csv"
    if path.exists():
        return True
    kernel = kernels()[name.split("-")[0]]
    variant = kernel.variant(name.split("-", 1)[1])
    usable, why = variant.available()
    if not usable:
        print(f"{name}: left out, {why}")
        return True
    began = time.monotonic()
    if deadline is not None and began >= deadline:
        return False
    done = [0, 0]

    def shown(progress: object) -> None:
        done[:] = progress.done, progress.total

    runs = collect(
        kernel, variant, args.instances, SEED, records, deadline=deadline, on_progress=shown
    )
    seconds = time.monotonic() - began
    if done[0] < done[1] or not done[1]:
        print(f"{name}: {done[0]} of {done[1]} in {seconds:.0f} s")
        return False
    runs.facts["note"] = NOTES.get(kernel.name, "Drawn as in the paper's Table II.")
    if runs.dropped:
        runs.facts["dropped"] = list(runs.dropped)
    write_csv(runs, path)
    noise = runs.facts["noise"]
    print(
        f"{name}: {len(runs)} runs of {runs.times.mean() * 1e3:.3g} ms on average, noise floor "
        f"{noise['floor']:.2%}, {noise['repeated']} repeated, {noise['still_dirty']} still dirty, "
        f"{seconds:.0f} s",
        flush=True,
    )
    return True


if __name__ == "__main__":
    main()
