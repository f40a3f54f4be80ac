"""How well the CPU's cost model ranks schedules, with its defaults and with a calibration.

``--record`` makes the pairs: for every program a dozen distinct legal schedules, what the search's
policies choose and others by chance, are built, verified and timed in interleaved rounds; kept is
each one's time over that of the one-shot schedule in the same rounds, so that a disturbance meets
both. The machine's description and its calibration, measured in the same run, are kept as well. The
file is written after every program; a run that was killed goes on where it was, and ``--fresh``
starts again. It takes about twelve minutes on two quiet cores.

Without ``--record`` nothing is timed: every recorded schedule is costed under both sets of numbers
and compared with its recorded time. Half of the programs are not from ``examples/``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import common
from support import cpu_plans

DATA = common.HERE / "data" / "halide_calibration.json"
SCHEMA = 1
COUNT = 12  # schedules of each program
SECONDS = 12.0  # of rounds, for each program
ROUNDS = 12
RUN_SECONDS = 10.0  # that one run of one schedule may take
EXAMPLES = (
    "bilateral_grid blur camera_pipe conv_layer demosaic depthwise_conv harris histogram iir_blur "
    "interpolate matmul max_filter nl_means stencil_chain unsharp"
).split()
STRANGERS = (
    "average_pool canny_edges composite_over daubechies dilate gaussian9 gemm_transposed_left "
    "gemm_transposed_right gemv_transposed logistic opening quantised_pointwise resize_cubic_up "
    "resize_lanczos_up variance_filter"
).split()
PROGRAMS = [*EXAMPLES, *STRANGERS]
# Programs whose recorded times led to a change of the model; `untouched` figures leave them out.
CONSULTED = {
    "dilate": "border_cycles",
    "blur": "block_cycles",
    "demosaic": "windows of whole blocks",
}

Data = dict[str, Any]


def build(name: str) -> Any:
    """A program's unscheduled pipeline at full size."""
    if name in EXAMPLES:
        return common.build(name)
    import strangers

    return strangers.PROGRAMS[name].pipeline(False)


# --- recording ----------------------------------------------------------------------------------


def recorded(name: str, args: argparse.Namespace) -> Data:
    """One program's schedules with their times over the one-shot schedule's."""
    from tilewright.halide.execution.session import Session, Variant
    from tilewright.halide.frontend.source import load
    from tilewright.machines import detect_cpu
    from tilewright.measure import RunLimits

    began = time.perf_counter()
    algorithm = load(build(name))
    made = list(cpu_plans.various(algorithm, detect_cpu(), args.count, seed=0))
    variants = [Variant(schedule, name=str(i)) for i, (schedule, _) in enumerate(made)]
    with Session(algorithm, limits=RunLimits(run_seconds=args.run_seconds)) as session:
        finals = session.finals(variants, ROUNDS, seconds=args.seconds)
    # The one-shot schedule; where it fails, the next one that is right.
    anchor = next((m for m in finals.measurements if m.ok), finals.measurements[0])
    entries = []
    for (_, plan), found in zip(made, finals.measurements, strict=True):
        entry: Data = {"status": found.status, **plan}
        if found.ok and found.times:
            pairs = zip(found.times, anchor.times, strict=False)
            entry["ratio"] = round(statistics.median(a / b for a, b in pairs), 5)
            entry["seconds"] = float(f"{found.minimum:.4g}")
        entries.append(entry)
    return {
        "program": name,
        "digest": algorithm.digest,
        "rounds": len(anchor.times),
        "took": round(time.perf_counter() - began, 1),
        "schedules": entries,
    }


def record(args: argparse.Namespace, names: list[str]) -> None:
    """Record what is missing, and write the file after every program."""
    from tilewright.errors import TilewrightError
    from tilewright.halide.calibration import calibrate
    from tilewright.machines import calibration_to_json, detect_cpu, machine_to_dict, processor_of

    machine = detect_cpu()
    data = {} if args.fresh or not args.data.exists() else read(args.data)
    if data.get("processor") != processor_of(machine):
        data = {"schema": SCHEMA, "programs": []}
    data |= {"processor": processor_of(machine), "machine": machine_to_dict(machine)}
    if data.get("calibration") is None or args.recalibrate:
        try:
            data["calibration"] = json.loads(calibration_to_json(calibrate(machine)))
        except TilewrightError as error:
            data["calibration"] = None
            print(f"no calibration: {error}", flush=True)
    for name in names:
        known = [p for p in data["programs"] if p["program"] == name]
        if known and not args.fresh:
            continue
        made = recorded(name, args)
        data["programs"] = [*(p for p in data["programs"] if p["program"] != name), made]
        data["pairs"] = sum(len(timed(p)) for p in data["programs"])
        write_data(args.data, data)
        statuses = [s["status"] for s in made["schedules"]]
        print(
            f"{name:24} {statuses.count('ok'):3} of {len(statuses)} right, {made['rounds']} "
            f"rounds, {made['took']:.0f} s; {data['pairs']} pairs",
            flush=True,
        )


def write_data(path: Path, data: Data) -> None:
    """One line for each program, so that a difference is readable."""
    head = {key: value for key, value in data.items() if key != "programs"}
    programs = sorted(data["programs"], key=lambda p: PROGRAMS.index(p["program"]))
    lines = ",\n".join(json.dumps(p, separators=(",", ":")) for p in programs)
    text = json.dumps(head, separators=(",", ":"))[:-1]
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(f'{text},"programs":[\n{lines}\n]}}\n')
    partial.replace(path)


def read(path: Path) -> Data:
    """The recorded pairs."""
    data: Data = json.loads(path.read_text())
    if data.get("schema") != SCHEMA:
        sys.exit(f"{path} has another schema: record again (--record --fresh)")
    return data


def timed(program: Data) -> list[Data]:
    """A program's schedules that ran with the right answer."""
    return [s for s in program["schedules"] if s["status"] == "ok" and "ratio" in s]


# --- ranking --------------------------------------------------------------------------------------


def ranked(program: Data, data: Data) -> Data:
    """One program's row: how the model ranks its schedules with each set of numbers."""
    from tilewright.halide.frontend.source import load
    from tilewright.halide.schedulers.analytic.cpu.families import calibrated
    from tilewright.machines import CpuMachine, calibration_from_json, machine_from_dict

    name = program["program"]
    row: Data = {
        "program": name,
        "origin": "examples" if name in EXAMPLES else "strangers",
        "schedules": len(program["schedules"]),
        "pairs": len(timed(program)),
    }
    algorithm = load(build(name))
    if algorithm.digest != program["digest"]:
        return {**row, "status": "changed since it was recorded"}
    if row["pairs"] < 2:
        return {**row, "status": "fewer than two pairs"}
    machine = machine_from_dict(data["machine"])
    assert isinstance(machine, CpuMachine)
    sets = {"default": calibrated(machine, None)}
    if data.get("calibration") is not None:
        measured = calibration_from_json(json.dumps(data["calibration"]))
        sets["calibrated"] = calibrated(machine, measured)
    base = cpu_plans.analysed(algorithm)
    ratios = [s["ratio"] for s in timed(program)]
    for label, (known, constants) in sets.items():
        costs = [cpu_plans.recosted(algorithm, base, known, constants, s) for s in timed(program)]
        row[f"regret_{label}"] = regret(costs, ratios)
        row[f"spearman_{label}"] = spearman(costs, ratios)
    return {**row, "status": "ok"}


def regret(costs: list[float], times: list[float]) -> float:
    """Time of the schedule that the model likes best, over that of the fastest."""
    return times[costs.index(min(costs))] / min(times)


def spearman(costs: list[float], times: list[float]) -> float | None:
    """Rank correlation; None where either side has one value only."""
    from scipy.stats import spearmanr

    if len(set(costs)) < 2 or len(set(times)) < 2:
        return None
    return float(spearmanr(costs, times).statistic)


def summary(rows: list[Data]) -> Data:
    """The figures that the claim is about."""
    right = [row for row in rows if row["status"] == "ok"]

    def over(label: str, some: list[Data]) -> float | None:
        return common.geometric_mean(row[label] for row in some if label in row)

    def mean(label: str) -> float | None:
        values = [row[label] for row in right if row.get(label) is not None]
        return statistics.fmean(values) if values else None

    strangers = [row for row in right if row["origin"] == "strangers"]
    untouched = [row for row in right if row["program"] not in CONSULTED]
    return {
        "programs": len(right),
        "not_from_examples": len(strangers),
        "pairs": sum(row["pairs"] for row in right),
        "left_out": len(rows) - len(right),
        "regret_default": over("regret_default", right),
        "regret_calibrated": over("regret_calibrated", right),
        "regret_default_strangers": over("regret_default", strangers),
        "regret_calibrated_strangers": over("regret_calibrated", strangers),
        "regret_default_untouched": over("regret_default", untouched),
        "regret_calibrated_untouched": over("regret_calibrated", untouched),
        "regret_default_max": max((row["regret_default"] for row in right), default=None),
        "spearman_default": mean("spearman_default"),
        "spearman_calibrated": mean("spearman_calibrated"),
    }


def main() -> None:
    """Record if asked to, rank, write."""
    parser = common.arguments(__doc__.splitlines()[0], PROGRAMS)
    parser.add_argument("--record", action="store_true", help="time what is not recorded yet")
    parser.add_argument("--data", type=Path, default=DATA, help="the recorded pairs")
    parser.add_argument("--count", type=int, default=COUNT, help="schedules of each program")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of rounds, a program")
    parser.add_argument(
        "--run-seconds", type=float, default=RUN_SECONDS, help="limit of one run of one schedule"
    )
    parser.add_argument("--recalibrate", action="store_true", help="measure the machine again")
    args = parser.parse_args()
    names = common.chosen(args, PROGRAMS)
    if args.record:
        record(args, names)
    data = read(args.data)
    rows = []
    for program in data["programs"]:
        if program["program"] in names:
            rows.append(ranked(program, data))
            print(line(rows[-1]), flush=True)
    common.write(args, "halide_calibration", rows, summary(rows))


def line(row: Data) -> str:
    """One program, as it is finished."""
    if row["status"] != "ok":
        return f"{row['program']:24} {row['status']}"
    shown = [
        f"{label}: regret {row[f'regret_{label}']:.3f}, "
        f"Spearman {common.shown(row[f'spearman_{label}'])}"
        for label in ("default", "calibrated")
        if f"regret_{label}" in row
    ]
    return f"{row['program']:24} {row['pairs']:3} pairs  " + "; ".join(shown)


if __name__ == "__main__":
    main()
