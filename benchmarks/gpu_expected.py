"""The cycles that one-shot CUDA schedules are expected to take in the simulator.

For every program and size of ``benchmarks/data/gpu_sim``, the present one-shot schedule for the
simulated machine (a fortieth of a V100), and its predicted cycles, to be compared with a later
simulation. The simulator has no launch latency: `cycles` excludes launches, `with_launches` adds
`gpu_time_model.LAUNCH_CYCLES` per kernel. Rows also have the cycles, without launches, of recorded
schedules: hand-written ones, and those of Anderson2021 and Li2018.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import common
import gpu_time_model as time_model

Data = dict[str, Any]
PEERS = time_model.PEERS


def expected(program: str, size: Data, records: Sequence[Data]) -> Data:
    """What is expected of one program at one size."""
    from tilewright.halide.frontend.source import load
    from tilewright.halide.schedulers.registry import plan
    from tilewright.halide.schedulers.task import Task

    algorithm = load(getattr(common.example(program), program)(**size))
    task = Task(algorithm, time_model.TARGET, time_model.machine(), program)
    (planned,) = plan(task)
    launches = sum(1 for group in planned.groups if group.threads)
    constants = time_model.constants()
    own = type(constants)().launch_seconds
    seconds = planned.seconds if planned.seconds is not None else planned.cost
    cycles = (seconds - launches * own) * time_model.machine().clock_hz
    known = {r["kind"].lower(): float(r["cycles"]) for r in records if r["kind"].lower() in PEERS}
    return {
        "program": program,
        "size": size,
        "kernels": launches,
        "cycles": cycles,
        "with_launches": cycles + launches * time_model.LAUNCH_CYCLES,
        **{peer: known.get(peer) for peer in PEERS},
        **{f"{peer}_over_expected": known[peer] / cycles for peer in PEERS if peer in known},
    }


def summary(rows: Sequence[Data]) -> Data:
    """Geometric means of the peers' simulated cycles over ours, which are only expected."""
    found: Data = {"rows": len(rows)}
    for peer in PEERS:
        ratios = [row[key] for row in rows if (key := f"{peer}_over_expected") in row]
        found[f"{peer}_over_expected"] = common.geometric_mean(ratios)
        found[f"{peer}_over_expected_min"] = min(ratios, default=None)
    return found


def main() -> None:
    """Predict, print, write."""
    programs = sorted(name for members in time_model.FAMILIES.values() for name in members)
    args = common.arguments(__doc__.splitlines()[0], programs).parse_args()
    records = time_model.everything(time_model.DATA, common.chosen(args, programs))
    rows = []
    for key in dict.fromkeys(time_model.key_of(record) for record in records):
        program, size = json.loads(key)
        rows.append(expected(program, size, [r for r in records if time_model.key_of(r) == key]))
        print(f"{program} {size}: {rows[-1]['cycles']:.0f} cycles", flush=True)
    common.write(args, "gpu_expected", rows, summary(rows))


if __name__ == "__main__":
    main()
