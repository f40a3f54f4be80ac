"""How well the time model of GPU kernels ranks schedules that were simulated.

``benchmarks/data/gpu_sim`` has the cycles that schedules of the examples take in a cycle-level
simulator. Every schedule that has its JSON form is predicted from its loop nest; the constants are
fitted to the other programs (leave one program out), or to the other families of programs, or not
at all. The constants of counts (instructions of an index, registers of a stage) are not among them:
they were fitted once to the instructions and registers of all records. Launches take no time in the
simulator: `LAUNCH_CYCLES` are added for each kernel.

Within each program, schedules are ranked (Spearman) and the one that the model likes best is
compared with the fastest (regret); over all programs, logarithms of predicted and simulated cycles
are correlated. Counts of instructions are compared kernel by kernel. The cycles of schedules
written by hand, and of those of Anderson2021 and Li2018, are divided by those of the model's choice
(`hand_over_LABEL` and so on: above 1 the choice is faster).

Later schedules (`LATER`: planned by the model itself, with several points per thread and vectors)
are among those that constants are fitted to. They do not count in the figures above. Their own have
the suffix ``_later``, with ``bias_later``: the geometric mean of predicted over simulated cycles.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import gzip
import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import common

DATA = common.HERE / "data" / "gpu_sim" / "v100_fortieth.jsonl.gz"
LATER = DATA.with_name("v100_fortieth_later.jsonl.gz")
TARGET = "host-cuda-cuda_capability_70"
LAUNCH_CYCLES = 2000.0  # chosen: 1.8 microseconds, the gap between two kernels
LEAST = 3  # schedules of a program that is ranked
# Programs that compute alike, so that holding one out leaves its like in.
FAMILIES = {
    "pyramids and grids": ("bilateral_grid", "interpolate"),
    "cameras": ("camera_pipe", "demosaic"),
    "products": ("conv_layer", "depthwise_conv", "matmul"),
    "stencils": ("blur", "harris", "stencil_chain", "unsharp", "max_filter", "nl_means"),
    "scans and histograms": ("histogram", "iir_blur"),
    "transforms": ("fft",),
}

PEERS = ("hand", "anderson2021", "li2018")

Data = dict[str, Any]


@functools.cache
def machine() -> Any:
    """The simulated GPU: a fortieth of a V100."""
    from tilewright.machines import cuda_gpu

    return cuda_gpu(
        "one fortieth of a V100",
        (7, 0),
        sms=2,
        l2_bytes=196608,
        memory_bandwidth=21.76e9,
        clock_hz=1.132e9,
    )


def constants() -> Any:
    """The model's constants, with the launches that the records get."""
    from tilewright.halide.schedulers.analytic.gpu.constants import GpuConstants

    return GpuConstants(launch_seconds=LAUNCH_CYCLES / machine().clock_hz)


def priors() -> Any:
    """The constants before any fit."""
    from tilewright.halide.schedulers.analytic.gpu.fitting import PRIORS

    return dataclasses.replace(constants(), **PRIORS)


def recorded(path: Path, names: Sequence[str]) -> list[Data]:
    """The records of schedules that have their JSON form and gave the right answer."""
    return [row for row in everything(path, names) if row["schedule"]]


def everything(path: Path, names: Sequence[str]) -> list[Data]:
    """The records that gave the right answer, those of other schedulers and of people too."""
    with gzip.open(path, "rt") as file:
        rows = [json.loads(line) for line in file]
    return [r for r in rows if r["right"] and r["program"] in names]


def observed(rows: Iterable[Data]) -> list[Any]:
    """What the model needs of every record, in order."""
    from tilewright.halide.frontend.source import load
    from tilewright.halide.ir.json import from_data
    from tilewright.halide.schedulers.prediction import schedule_nest
    from tilewright.halide.schedulers.task import Task

    algorithms: dict[str, Any] = {}
    found = []
    for row in rows:
        key = json.dumps([row["program"], row["size"]])
        if key not in algorithms:
            module = common.example(row["program"])
            algorithms[key] = load(getattr(module, row["program"])(**row["size"]))
        task = Task(algorithms[key], TARGET, machine(), row["program"])
        nest = schedule_nest(task, from_data(row["schedule"], algorithms[key]))
        found.append(observation(row, nest))
    return found


def observation(row: Data, nest: Any) -> Any:
    """One record with the counts of its kernels."""
    from tilewright.halide.schedulers.analytic.gpu import recorded as kernels_recorded
    from tilewright.halide.schedulers.analytic.gpu.nest_costs import kernels_of

    total = row["cycles"] + LAUNCH_CYCLES * len(row["kernels"])
    work, _ = kernels_of(nest, machine(), constants())
    found = kernels_recorded.matched(work, row["kernels"])
    row["instructions_of"] = [
        (issued_by_threads(kernel), float(each["insn"]))
        for kernel, each in zip(work, found, strict=True)
        if each is not None and each["insn"]
    ]
    return kernels_recorded.observation(
        row["program"], nest, machine(), constants(), total / machine().clock_hz, row["kernels"]
    )


def issued_by_threads(work: Any) -> float:
    """The predicted instructions of all threads of a kernel."""
    from tilewright.halide.schedulers.analytic.gpu.kernel_time import thread_instructions

    return float(thread_instructions(work, constants()))


# --- figures --------------------------------------------------------------------------------------


def held_out(
    found: Sequence[Any], group: Callable[[str], str], gpu: Any, start: Any
) -> np.ndarray[Any, Any]:
    """Cycles on a GPU predicted for each record by constants fitted without its group.

    `start` has the constants that are not fitted.
    """
    from tilewright.halide.schedulers.analytic.gpu.fitting import (
        PRIORS,
        fitted,
        predicted_cycles,
    )

    predicted = np.zeros(len(found))
    for name in dict.fromkeys(group(one.program) for one in found):
        inside = [i for i, one in enumerate(found) if group(one.program) == name]
        others = [one for one in found if group(one.program) != name]
        chosen = fitted(others, gpu, start) if others else dataclasses.replace(start, **PRIORS)
        known = predicted_cycles([found[i] for i in inside], gpu, chosen)
        predicted[inside] = known
    return predicted


def family(program: str) -> str:
    """The family that a program belongs to."""
    return next((name for name, members in FAMILIES.items() if program in members), program)


def key_of(row: Data) -> str:
    """The program and its size."""
    return json.dumps([row["program"], row["size"]])


def ranked(
    rows: Sequence[Data], predictions: Mapping[str, Sequence[float]], others: Sequence[Data] = ()
) -> list[Data]:
    """One row per program and size: how each prediction ranks its schedules."""
    keys = [key_of(row) for row in rows]
    result = []
    for key in dict.fromkeys(keys):
        inside = [i for i, k in enumerate(keys) if k == key]
        program, size = json.loads(key)
        cycles = [total_cycles(rows[i]) for i in inside]
        row: Data = {"program": program, "size": size, "schedules": len(inside)}
        row["instruction_error"] = instruction_error([rows[i] for i in inside])
        if len(inside) >= LEAST:
            for label, predicted in predictions.items():
                own = [float(predicted[i]) for i in inside]
                row[f"spearman_{label}"] = spearman(own, cycles)
                choice = cycles[own.index(min(own))]
                row[f"regret_{label}"] = choice / min(cycles)
                for other in others:
                    if key_of(other) == key:
                        row[f"{other['kind'].lower()}_over_{label}"] = total_cycles(other) / choice
        result.append(row)
    return result


def total_cycles(row: Data) -> float:
    """Simulated cycles with launches."""
    return float(row["cycles"] + LAUNCH_CYCLES * len(row["kernels"]))


def instruction_error(rows: Sequence[Data]) -> float | None:
    """The median absolute logarithm of predicted over simulated instructions, by kernel."""
    errors = [abs(math.log(a / b)) for row in rows for a, b in row["instructions_of"]]
    return statistics.median(errors) if errors else None


def spearman(predicted: list[float], cycles: list[float]) -> float:
    """Rank correlation; 0 where all predictions are one."""
    from scipy.stats import spearmanr

    return float(spearmanr(predicted, cycles).statistic) if len(set(predicted)) > 1 else 0.0


def figures(table: Sequence[Data], label: str) -> Data:
    """The medians and means over programs of one prediction."""
    known = [row for row in table if f"spearman_{label}" in row]
    spearmans = [row[f"spearman_{label}"] for row in known]
    return {
        "spearman_median": statistics.median(spearmans) if spearmans else None,
        "spearman_min": min(spearmans, default=None),
        "top1_regret": common.geometric_mean(row[f"regret_{label}"] for row in known),
        **{
            f"{peer}_over_choice": common.geometric_mean(
                row[f"{peer}_over_{label}"] for row in known if f"{peer}_over_{label}" in row
            )
            for peer in PEERS
        },
    }


def log_correlation(predicted: Sequence[float], cycles: Sequence[float]) -> float | None:
    """Correlation of the logarithms over all schedules of all programs."""
    if len(predicted) < LEAST or len(set(predicted)) < 2:
        return None
    return float(np.corrcoef(np.log(predicted), np.log(cycles))[0, 1])


def summary(rows: Sequence[Data], table: list[Data], predictions: dict[str, Any]) -> Data:
    """The figures that the claim is about; those without a suffix leave one program out."""
    cycles = [total_cycles(row) for row in rows]
    found: Data = {
        "schedules": len(rows),
        "programs_ranked": sum("spearman_paper" in row for row in table),
        "kernels": sum(len(row["kernels"]) for row in rows),
    }
    for label, predicted in predictions.items():
        suffix = "" if label == "program_out" else f"_{label}"
        for key, value in figures(table, label).items():
            found[key + suffix] = value
        found["log_correlation" + suffix] = log_correlation(predicted, cycles)
    found["instruction_error"] = instruction_error(rows)
    return found


def later_figures(later: Sequence[Data], predicted: np.ndarray[Any, Any]) -> Data:
    """The figures of later schedules, under constants fitted without their program."""
    table = ranked(later, {"later": list(predicted)})
    cycles = [total_cycles(row) for row in later]
    ratios = [p / c for p, c in zip(predicted, cycles, strict=True)]
    found = {"schedules": len(later), "bias": common.geometric_mean(ratios)}
    found["log_correlation"] = log_correlation(list(predicted), cycles)
    found |= {k: v for k, v in figures(table, "later").items() if not k.endswith("_over_choice")}
    return {f"{key}_later": value for key, value in found.items()}


def main() -> None:
    """Predict every record under every set of constants, rank, write."""
    from tilewright.halide.schedulers.analytic.gpu.fitting import (
        PRIORS,
        fitted,
        predicted_cycles,
    )

    programs = sorted(name for members in FAMILIES.values() for name in members)
    parser = common.arguments(__doc__.splitlines()[0], programs)
    parser.add_argument("--data", type=Path, default=DATA, help="the recorded simulations")
    args: argparse.Namespace = parser.parse_args()
    names = common.chosen(args, programs)
    rows, later = recorded(args.data, names), recorded(LATER, names)
    others = [row for row in everything(args.data, names) if row["kind"].lower() in PEERS]
    found = observed(rows + later)
    best = fitted(found, machine(), constants())
    predictions: dict[str, Any] = {
        "program_out": held_out(found, lambda program: program, machine(), constants()),
        "family_out": held_out(found, family, machine(), constants()),
        "fitted_to_all": predicted_cycles(found, machine(), best),
        "shipped": predicted_cycles(found, machine(), constants()),
        "unfitted": predicted_cycles(found, machine(), priors()),
    }
    first = {label: each[: len(rows)] for label, each in predictions.items()}
    first["paper"] = [row["predicted_cost"] for row in rows]
    table = ranked(rows, first, others)
    for row in table:
        print(line(row), flush=True)
    figures = summary(rows, table, first)
    figures |= later_figures(later, predictions["program_out"][len(rows) :])
    values = {name: float(f"{getattr(best, name):.4g}") for name in PRIORS}
    common.write(
        args, "gpu_time_model", table, figures, fitted_to_all=values, launch_cycles=LAUNCH_CYCLES
    )


def line(row: Data) -> str:
    """One program, as it is finished."""
    labels = ("program_out", "unfitted", "paper")
    shown = [
        f"{label}: Spearman {row[f'spearman_{label}']:.3f}, regret {row[f'regret_{label}']:.3f}"
        for label in labels
        if f"spearman_{label}" in row
    ]
    return f"{row['program']:16} {row['schedules']:3} schedules  " + "; ".join(shown)


if __name__ == "__main__":
    main()
