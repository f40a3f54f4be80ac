"""Measures the data sets of `benchmarks/data/prediction` on this machine.

For every kernel and every variant that runs here, 500 instances are drawn from a seed, and each is
measured twice. It can be interrupted at any time: a rerun continues where it stopped. With
``--seconds`` it stops after that time. A data set is written when it is complete.

Usage: ``python benchmarks/prediction_data.py --seconds 100``
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import common
from tilewright.prediction.data.collect import collect
from tilewright.prediction.data.runs import Runs, write_csv
from tilewright.prediction.kernels import kernels
from tilewright.prediction.kernels.families import schedule_family
from tilewright.prediction.kernels.halide_blur import MULLAPUDI
from tilewright.prediction.kernels.schedules import ScheduleFamily, collect_schedules
from tilewright.records import Records

DATA = common.HERE / "data" / "prediction"
INSTANCES = 500
SEED = 2020
VERIFIED = 1 << 12  # the largest blur whose answers are compared with the reference's
# Sizes, schedules a size, and rounds: how fast a large blur is depends on its start.
FAMILIES = {
    "halide_blur-cpu": (tuple(1 << b for b in range(10, 15)), 128, 6),
    "halide_fft-cpu": ((16, 32, 64, 128), 104, 1),
}
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
    return list(dict.fromkeys([*first, "halide_blur-cpu", *dense, "halide_fft-cpu", *every]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", help="data sets, KERNEL-VARIANT,…")
    parser.add_argument("--instances", type=int, default=INSTANCES)
    parser.add_argument("--seconds", type=float, help="stop after this time")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--records", type=Path, default=common.HERE / ".work" / "prediction.sqlite")
    args = parser.parse_args()
    wanted = args.only.split(",") if args.only else names()
    unknown = sorted(set(wanted) - set(names()))
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(names())}")
    deadline = None if args.seconds is None else time.monotonic() + args.seconds
    with Records(args.records) as records:
        for name in wanted:
            if not one(name, args, records, deadline):
                print("time is up; run it again to go on")
                return


def one(name: str, args: argparse.Namespace, records: Records, deadline: float | None) -> bool:
    """Measure a data set; False where there was not time enough."""
    path = args.data / f"{name}.csv"
    if path.exists():
        return True
    if name in FAMILIES:
        return schedules(name, args, records, deadline)
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

    def shown(progress: Any) -> None:
        done[:] = progress.done, progress.total

    runs = collect(
        kernel, variant, args.instances, SEED, records, deadline=deadline, on_progress=shown
    )
    seconds = time.monotonic() - began
    if done[0] < done[1] or not done[1]:
        print(f"{name}: {done[0]} of {done[1]} in {seconds:.0f} s")
        return False
    note = NOTES.get(kernel.name, "Drawn as in the paper's Table II.")
    write_csv(noted(runs, {"note": note}), path)
    noise = runs.facts["noise"]
    print(
        f"{name}: {len(runs)} runs of {runs.times.mean() * 1e3:.3g} ms on average, noise floor "
        f"{noise['floor']:.2%}, {noise['repeated']} repeated, {noise['still_dirty']} still dirty, "
        f"{seconds:.0f} s",
        flush=True,
    )
    return True


def noted(runs: Runs, facts: dict[str, Any]) -> Runs:
    """The runs with further facts, and with the rows that were left out if there are any."""
    dropped = {"dropped": list(runs.dropped)} if runs.dropped else {}
    return replace(runs, facts={**runs.facts, **facts, **dropped})


def schedules(
    name: str, args: argparse.Namespace, records: Records, deadline: float | None
) -> bool:
    """Measure a family's candidates, and what Mullapudi2016 makes of blur here."""
    began = time.monotonic()
    if deadline is not None and began >= deadline:
        return False
    (sizes, candidates, rounds), chosen = FAMILIES[name], schedule_family(name.split("-")[0])
    blur = chosen.name == "halide_blur"
    done = [0, 0]

    def shown(count: int, total: int) -> None:
        done[:] = count, total

    runs, complete = collect_schedules(
        chosen,
        sizes,
        candidates,
        SEED,
        records,
        also=(lambda n: [{"n": n, **MULLAPUDI}]) if blur else (lambda n: []),
        verify_up_to=VERIFIED if blur else None,
        rounds=rounds,
        deadline=deadline,
        on_progress=shown,
    )
    seconds = time.monotonic() - began
    if not complete:
        print(f"{name}: {done[0]} of {done[1]} in {seconds:.0f} s")
        return False
    more = " with whole rows and blur_x inlined next to them" if blur else ""
    facts: dict[str, Any] = {"note": f"Table IV{more}; {candidates} schedules per size."}
    if blur:
        found = peers(chosen, sizes, records, deadline)
        if len(found) < len(sizes):
            print(f"{name}: the autoscheduler's are left")
            return False
        facts["mullapudi2016"] = found
    write_csv(noted(runs, facts), args.data / f"{name}.csv")
    print(
        f"{name}: {len(runs)} schedules, {len(runs.dropped)} failed, "
        f"noise floor {runs.floor or 0:.2%}, {seconds:.0f} s",
        flush=True,
    )
    return True


def peers(
    chosen: ScheduleFamily, sizes: tuple[int, ...], records: Records, deadline: float | None
) -> dict[str, float]:
    """Seconds a run of the schedule by Halide's Mullapudi2016, by size, on this machine."""
    from tilewright.halide.execution.session import Session, Variant
    from tilewright.halide.schedulers.halide_autoschedulers import peers as all_peers
    from tilewright.halide.schedulers.halide_autoschedulers import run_peers
    from tilewright.prediction.data.collect import machine
    from tilewright.prediction.kernels.schedules import LIMITS, TIMING

    peer = next(p for p in all_peers("host") if p.name == "Mullapudi2016")
    found = {}
    for size in sizes:
        with Session(
            chosen.algorithm(size),
            records=records,
            machine={**machine(), "target": "host"},
            timing=TIMING,
            limits=LIMITS,
            verify=size <= VERIFIED,
            deadline=deadline,
        ) as session:
            (scheduled,) = run_peers(session.problem.algorithm, session.inputs, [peer])
            variant = Variant(serialized=scheduled.serialized, name=peer.name)
            for measured in session.measure([variant]):
                found[str(size)] = measured.measurement.median
    return found


if __name__ == "__main__":
    main()
