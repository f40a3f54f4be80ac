"""How well the GPU models rank schedules that a real GPU has run.

``benchmarks/data/gpu_measured`` has the times of a campaign (`benchmarks/gpu`): of our schedules,
random ones, those of Halide's autoschedulers and those written by hand. Every schedule that has its
JSON form is predicted from its loop nest, with the model's constants

- as shipped (``shipped``; fitted to simulations, without any of these times),
- as the probes of the campaign's first piece give them (``probed``),
- fitted to the other programs' times (``program_out``) or those of other families of programs
  (``family_out``),

and by the released network of Anderson 2021 (``network``), whose figures, and ``shipped`` with them
(``shipped_where_network``), are those of the schedules that it can describe.

Within each program, schedules are ranked (Spearman), pairs that differ by `APART` are ordered, and
the schedule that the model likes best is compared with the fastest one (regret). Over all programs,
logarithms are correlated, and ``bias`` is the geometric mean of predicted over measured times.

    python benchmarks/gpu_measured.py --collect out/gpu-results

adds the schedules of a campaign's folder to the data. Those that were measured again are replaced.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import itertools
import json
import pickle
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import common
from gpu_time_model import LEAST, family, held_out, log_correlation, spearman

Data = dict[str, Any]
Array = np.ndarray[Any, Any]

DATA = common.HERE / "data" / "gpu_measured" / "h100.jsonl.gz"
APART = 1.3  # ratio of times from which the order of two schedules counts (chosen, as elsewhere)
HAND = "hand"


# --- the data ------------------------------------------------------------------------------------


def collected(folder: Path) -> tuple[Data, list[Data]]:
    """Return the device and the schedules with their times, from a campaign's folder."""
    from gpu.state import State

    (path,) = folder.glob("gpu_halide-*.json")
    result = json.loads(path.read_text())
    device = {
        "machine": result["machine"]["device"],
        "constants": State(folder).done()["device"]["constants"],
        "date": result["date"],
    }
    rows = [row for found in result["rows"] for row in _compared(found, folder, device["machine"])]
    for row in (found := rows + _sampled(folder)):
        row["date"] = device["date"]
    return device, found


def merged(before: Sequence[Data], rows: Sequence[Data]) -> list[Data]:
    """Return the rows of both, of schedules in both only the new ones."""

    def key(row: Data) -> str:
        named = row["variant"] if row["schedule"] is None else row["schedule"]
        return json.dumps([row["program"], named], sort_keys=True)

    new = {key(row) for row in rows}
    return [*(row for row in before if key(row) not in new), *rows]


def _compared(found: Data, folder: Path, device: Data) -> Iterator[Data]:
    """The schedules of one comparison."""
    from gpu.halide_compare import PROBED, RANKED
    from gpu.halide_peers import schedules, task_of
    from gpu.pieces import Setting
    from tilewright.halide.schedulers.registry import naive

    name, entries = found["program"], found["entries"]
    gpu = machine(device)
    setting = Setting(
        out=folder,
        target=gpu.halide_target,
        machine=gpu,
        small=False,
        programs=(name,),
        peer_seconds=0.0,
        samples=0,
        rounds_seconds=0.0,
    )
    task = task_of(name, setting)
    plans = pickle.loads((folder / f"plans-{name}.pickle").read_bytes())
    for i, (planned, label) in enumerate(zip(plans.ours, RANKED, strict=False)):
        yield from _row(
            name, f"planned {i + 1}", "planned", entries.get(label, {}), planned.schedule
        )
    probed = plans.probed
    if probed is not None and all(probed.schedule != other.schedule for other in plans.ours):
        yield from _row(name, PROBED, "planned", entries.get(PROBED, {}), probed.schedule)
    if plans.learned is not None:
        yield from _row(
            name, "learned", "learned", entries.get("learned", {}), plans.learned.schedule
        )
    yield from _row(name, "naive", "naive", entries["naive"], naive(task))
    for peer, searched in schedules(task, setting).items():
        schedule = read(searched.serialized, task) if searched.serialized else None
        yield from _row(name, peer, peer, entries.get(peer, {}), schedule)
    if "hand-written" in entries:
        yield from _row(name, HAND, HAND, entries["hand-written"], read(by_hand(name, task), task))


def by_hand(name: str, task: Any) -> bytes:
    """The bytes of the pipeline as scheduled by hand."""
    import halide as hl

    from tilewright.halide.frontend.source import serialized

    found: bytes = serialized(common.example(name).hand(hl.Target(task.target)))
    return found


def read(serialized: bytes, task: Any) -> Any:
    """Another author's schedule; None if it has no form of ours, or is of another algorithm."""
    from tilewright.errors import TilewrightError
    from tilewright.halide.frontend.given import read_schedule

    try:
        schedule = read_schedule(serialized, task.target).schedule
    except TilewrightError:
        return None
    return schedule if schedule.algorithm == task.algorithm.digest else None


def _row(name: str, variant: str, kind: str, entry: Data, schedule: Any) -> Iterator[Data]:
    from tilewright.halide.ir.json import to_data

    if entry.get("seconds") is not None:
        yield {
            "program": name,
            "variant": variant,
            "kind": kind,
            "seconds": entry["seconds"],
            "kernels": kernels(entry.get("kernels", [])),
            "schedule": None if schedule is None else to_data(schedule),
        }


def kernels(found: Sequence[Data]) -> list[Data]:
    """What the driver said of the kernels: registers, and bytes per thread in local memory."""
    return [
        {"kernel": k["name"], "registers": k["registers"], "local": k["local_bytes"]} for k in found
    ]


def _sampled(folder: Path) -> list[Data]:
    """The random schedules."""
    path = folder / "training.jsonl.gz"
    lines = gzip.decompress(path.read_bytes()).decode().splitlines() if path.exists() else []
    return [
        {
            "program": row["program"],
            "variant": row.get("variant", f"sample {row['round'] + 1}.{row['index']}"),
            "kind": row.get("kind", "sampled"),
            "seconds": row["seconds"],
            "kernels": kernels(row["kernels"]),
            "schedule": row["schedule"],
        }
        for row in map(json.loads, lines)
        # Others ran with more registers than usual.
        if row.get("status") == "ok" and row.get("max_registers") is None
    ]


def loaded(path: Path) -> tuple[Data, list[Data]]:
    """Return the device and the schedules in a file of data; rows without a date get its date."""
    with gzip.open(path, "rt") as file:
        device, *rows = map(json.loads, file)
    return device, [{"date": device["date"], **row} for row in rows]


def machine(device: Data) -> Any:
    """The GPU as the driver described it."""
    from tilewright.machines import GpuMachine

    fields = {k: tuple(v) if isinstance(v, list) else v for k, v in device.items()}
    return GpuMachine(**fields)


# --- predictions ---------------------------------------------------------------------------------


def observed(rows: Sequence[Data], gpu: Any) -> tuple[list[Any], list[float]]:
    """Return the counts of every schedule's kernels, and the network's seconds (NaN: none)."""
    from tilewright.errors import TilewrightError
    from tilewright.halide.frontend.source import load
    from tilewright.halide.ir.json import from_data
    from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
    from tilewright.halide.schedulers.analytic.gpu.recorded import observation
    from tilewright.halide.schedulers.halide_autoschedulers import plugin_path
    from tilewright.halide.schedulers.learned.published.gpu_model import PublishedGpuModel
    from tilewright.halide.schedulers.learned.published.weights import embedded_weights
    from tilewright.halide.schedulers.prediction import schedule_nest
    from tilewright.halide.schedulers.task import Task

    weights = embedded_weights(plugin_path("Anderson2021"))
    models: dict[str, Any] = {}
    found, network = [], []
    for row in rows:
        name = row["program"]
        if name not in models:
            algorithm = load(getattr(common.example(name), name)())
            models[name] = PublishedGpuModel(Task(algorithm, gpu.halide_target, gpu, name), weights)
        model = models[name]
        schedule = from_data(row["schedule"], model.task.algorithm)
        nest = schedule_nest(model.task, schedule)
        found.append(observation(name, nest, gpu, GpuConstants(), row["seconds"]))
        try:
            network.append(model.rated(schedule).milliseconds / 1e3)
        except (TilewrightError, ValueError):
            network.append(float("nan"))
    return found, network


def seconds(found: Sequence[Any], gpu: Any, constants: Any) -> Array:
    """Predicted seconds."""
    from tilewright.halide.schedulers.analytic.gpu.fitting import predicted_cycles

    return np.asarray(predicted_cycles(found, gpu, constants)) / gpu.clock_hz


# --- figures -------------------------------------------------------------------------------------


def ranked(rows: Sequence[Data], predicted: Array) -> list[Data]:
    """One row per program: how a prediction ranks its schedules; NaN is left out."""
    result = []
    for name in dict.fromkeys(row["program"] for row in rows):
        inside = [
            i for i, r in enumerate(rows) if r["program"] == name and np.isfinite(predicted[i])
        ]
        if len(inside) < LEAST:
            continue
        own = [float(predicted[i]) for i in inside]
        times = [rows[i]["seconds"] for i in inside]
        apart = [
            (a, b)
            for a, b in itertools.combinations(range(len(inside)), 2)
            if max(times[a], times[b]) >= APART * min(times[a], times[b])
        ]
        right = sum((own[a] < own[b]) == (times[a] < times[b]) for a, b in apart)
        result.append(
            {
                "program": name,
                "schedules": len(inside),
                "spearman": spearman(own, times),
                "pairs": len(apart),
                "pairs_in_order": right,
                "regret": times[own.index(min(own))] / min(times),
                "bias": common.geometric_mean(p / t for p, t in zip(own, times, strict=True)),
            }
        )
    return result


def figures(rows: Sequence[Data], predicted: Array) -> Data:
    """The figures of one prediction over all programs."""
    table = ranked(rows, predicted)
    known = np.isfinite(predicted)
    times = [row["seconds"] for row, ok in zip(rows, known, strict=True) if ok]
    pairs = sum(row["pairs"] for row in table)
    spearmans = [row["spearman"] for row in table]
    return {
        "spearman_median": statistics.median(spearmans) if spearmans else None,
        "spearman_min": min(spearmans, default=None),
        "ordering_rate": sum(r["pairs_in_order"] for r in table) / pairs if pairs else None,
        "top1_regret": common.geometric_mean(row["regret"] for row in table),
        "log_correlation": log_correlation([*predicted[known]], times),
        "bias": common.geometric_mean(p / t for p, t in zip(predicted[known], times, strict=True)),
    }


def main() -> None:
    """Collect the data, or predict every schedule under every set of constants."""
    from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants
    from tilewright.halide.schedulers.analytic.gpu.fitting import PRIORS, fitted

    parser = common.arguments(__doc__.splitlines()[0], common.PROGRAMS)
    parser.add_argument("--data", type=Path, default=DATA, help="the measured schedules")
    parser.add_argument("--collect", type=Path, metavar="DIR", help="make the data from a campaign")
    args: argparse.Namespace = parser.parse_args()
    if args.collect is not None:
        device, rows = collected(args.collect)
        if args.data.exists():
            rows = merged(loaded(args.data)[1], rows)
        args.data.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(line) + "\n" for line in (device, *rows))
        # Without the date, so that equal data give equal files.
        args.data.write_bytes(gzip.compress(text.encode(), mtime=0))
        print(f"{args.data}: {len(rows)} schedules")
        return
    device, rows = loaded(args.data)
    names = common.chosen(args, common.PROGRAMS)
    rows = [row for row in rows if row["program"] in names and row["schedule"]]
    gpu = machine(device["machine"])
    found, network = observed(rows, gpu)
    shipped, best = GpuConstants(), fitted(found, gpu)
    rated = np.array(network)
    predictions = {
        "shipped": seconds(found, gpu, shipped),
        "probed": seconds(found, gpu, dataclasses.replace(shipped, **device["constants"])),
        "program_out": held_out(found, lambda program: program, gpu, shipped) / gpu.clock_hz,
        "family_out": held_out(found, family, gpu, shipped) / gpu.clock_hz,
        "fitted_to_all": seconds(found, gpu, best),
        "network": rated,
    }
    predictions["shipped_where_network"] = np.where(
        np.isfinite(rated), predictions["shipped"], np.nan
    )
    table = [
        {**row, "model": label}
        for label, predicted in predictions.items()
        for row in ranked(rows, predicted)
    ]
    summary: Data = {
        "schedules": len(rows),
        "programs": len({row["program"] for row in rows}),
        "network_schedules": int(np.isfinite(rated).sum()),
    }
    for label, predicted in predictions.items():
        summary |= {f"{key}_{label}": v for key, v in figures(rows, predicted).items()}
    values = {name: float(f"{getattr(best, name):.4g}") for name in PRIORS}
    common.write(
        args, "gpu_measured", table, summary, fitted_to_all=values, gpu=device["machine"]["name"]
    )


if __name__ == "__main__":
    main()
