"""Write ``docs/benchmarks.md`` from the results: what was measured, on what, against which goal."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmarks.md"

# Of models of run time against others.
MODELS = {
    "vs_gp": ">= 1.1",
    "auto_vs_best_of_peers": ">= 1.0",
    "coverage_inside": ">= 0.85",
    "coverage_gap": ">= 0.85",
    "coverage_outside": ">= 0.85",
    "worst_blow_up": "<= 3",
}
# What each figure is to be: at least (>=) or at most (<=) so much.
GOALS = {
    "cli_faults": {
        "rows_lost": "<= 0",
        "tracebacks": "<= 0",
        "leftovers": "<= 0",
        "wrong_exit_codes": "<= 0",
    },
    "malformed_inputs": {
        "uncaught": "<= 0",
        "crashes": "<= 0",
        "hangs": "<= 0",
        "over_500_mb": "<= 0",
    },
    "house": {
        "upward_imports": "<= 0",
        "file_cycles": "<= 0",
        "deep_imports_between_rooms": "<= 0",
        "duplicate_public_names": "<= 0",
        "largest_file": "<= 500",
        "functions_over_60_lines": "<= 10",
        "worst_complexity": "<= 20",
    },
    "halide_coverage": {"failures": "<= 0"},
    "halide_random": {"failures": "<= 0", "pipelines": ">= 300"},
    "patterns_correct": {
        "expressions_least": ">= 200",
        "wrong": "<= 0",
        "refused_by_compiler": "<= 0",
        "races": "<= 0",
    },
    "patterns_explore": {
        "max_seconds": "<= 60",
        "max_memory_mb": "<= 1000",
        "source_bytes_max": "<= 64000",
    },
    "patterns_features": {"mismatches": "<= 0", "line_mismatches": "<= 0"},
    "patterns_speed": {
        "vs_plain_c": ">= 2.0",
        "vs_halide": ">= 0.9",
        "mm_vs_openblas": ">= 0.5",
        "wrong": "<= 0",
        "failed": "<= 0",
    },
    "patterns_rise_tuning": {"vs_expert_full": ">= 1.0", "evals_to_best_peer": "<= 0.5"},
    "patterns_rise_spaces": {
        "wrong": "<= 0",
        "refused_by_compiler": "<= 0",
        "races": "<= 0",
        "cubin_failures": "<= 0",
    },
    "patterns_ranking": {
        "correlation_median": ">= 0.9",
        "runs_to_90_median": "<= 1",
        "runs_to_90_worst": "<= 20",
        "fewer_runs_than_random": ">= 35",
    },
    "halide_nest": {
        "allocation_mismatches": "<= 0",
        "extent_mismatches": "<= 0",
        "launch_mismatches": "<= 0",
        "evaluations_per_second": ">= 200000",
    },
    "halide_features": {
        "plugin_agreement_adams2019": ">= 0.95",
        "plugin_agreement_anderson2021": ">= 0.95",
        "featurised_per_second": ">= 50000",
        "structures_per_second": ">= 300",
    },
    "halide_host": {
        "oneshot_vs_best_peer": ">= 1.0",
        "top_vs_best_peer": ">= 1.25",
        "top_vs_best_peer_min": ">= 0.8",
        "top_vs_hand": ">= 1.0",
    },
    "halide_search": {
        "max_seconds": "<= 2",
        "max_memory_mb": "<= 500",
        "vs_adams2019": "<= 0.1",
        "vs_anderson2021": "<= 0.1",
        "tilings_per_second": ">= 200000",
    },
    "halide_sizes": {"failures": "<= 0", "loss_at_estimates": "<= 1.02"},
    "halide_scaling": {
        "failures": "<= 0",
        "exponent_max": "<= 1.15",
        "seconds_at_300_max": "<= 5",
    },
    "halide_model_mutants": {"killed": ">= 0.85"},
    "halide_calibration": {
        "pairs": ">= 300",
        "regret_calibrated": "<= 1.08",
        "regret_default": ">= regret_calibrated",
    },
    "prediction_adapt": {"error_vs_20_alone": "<= 0.5", "error_vs_250": "<= 1.5"},
    "halide_model": {
        "spearman_median": ">= 0.85",
        "spearman_min": ">= 0.6",
        "ordering_rate": ">= 0.93",
        "top1_regret": "<= 1.15",
        "spearman_median_prior": "<= spearman_median",
        "top1_regret_prior": ">= top1_regret",
    },
    "halide_learned_host": {
        "our_failures": "<= 0",
        "oneshot_vs_best_peer": ">= 1.5",
        "top_vs_best_peer": ">= 1.65",
        "autotuned_vs_best_peer": ">= 1.85",
        "autotuned_vs_hand": ">= 1.2",
        "autotuned_vs_hand_min": ">= 0.95",
        "autotuned_vs_analytic": ">= 1.0",
        "search_max_seconds": "<= 10",
        "search_median_seconds": "<= 2",
    },
    "halide_learned_search": {
        "max_seconds": "<= 10",
        "median_seconds": "<= 2",
        "vs_adams2019": "<= 0.1",
        "vs_anderson2021": "<= 0.1",
        "max_memory_mb": "<= 800",
        "stages_300_seconds": "<= 30",
    },
    "halide_learned_static": {
        "failures": "<= 0",
        "released_model_score": "<= 0.9",
        "released_model_score_tuned": "<= 0.9",
        "search_ratio": "<= 0.1",
    },
    "prediction_peers": MODELS,
    "prediction_public": MODELS,
    "prediction_unseen": {
        "coverage_inside": ">= 0.85",
        "coverage_gap": ">= 0.85",
        "coverage_outside": ">= 0.85",
        "worst_blow_up": "<= 3",
    },
    "gpu_time_model": {
        "spearman_median": ">= 0.93",
        "spearman_min": ">= 0.6",
        "log_correlation": ">= 0.95",
        "top1_regret": "<= 1.04",
    },
    "gpu_coarsening": {
        "instructions_vs_before": "<= 0.75",
        "predicted_vs_before": "<= 0.7",
        "failures": "<= 0",
        "launch_mismatches": "<= 0",
        "grid_violations": "<= 0",
        "spill_bytes": "<= 24",
    },
    "gpu_registers": {"registers_spearman": ">= 0.9", "over64_auc": ">= 0.95"},
    "halide_strangers": {
        "crashes": "<= 0",
        "refused_by_halide": "<= 0",
        "wrong": "<= 0",
        "plans_of_5_median": ">= 5",
        "max_seconds": "<= 5",
        "oneshot_vs_best_peer": ">= 1.4",
        "top_vs_hand": ">= 1.1",
        "oneshot_vs_best_peer_min": ">= 0.7",
    },
    "halide_cuda_static": {
        "failures": "<= 0",
        "launch_mismatches": "<= 0",
        "spill_bytes": "<= spill_bytes_anderson2021",
    },
    "tuning_spaces": {
        "mm_gpu_seconds": "<= 0.2",
        "mm_gpu_memory_mb": "<= 50",
        "max_seconds_other": "<= 0.1",
    },
    "tuning_overhead": {"ms_at_60": "<= 30", "ms_at_200": "<= 80"},
    "tuning_quality": {
        "vs_best_peer_at_20": ">= 1.03",
        "vs_best_peer_at_40": ">= 1.03",
        "vs_best_peer_at_60": ">= 1.03",
        "vs_best_peer_at_120": ">= 1.03",
        "vs_best_peer_at_60_low": ">= 1.0",
        "evals_to_95_vs_best_peer": "<= 0.5",
        "conv_median_evals_to_90": "<= 60",
    },
    "tuning_stopping": {
        "loss_of_60": "<= 0.01",
        "loss_of_120": "<= 0.01",
    },
    "tuning_transfer": {"with_transfer_evals_to_95": "<= 0.25"},
    "tuning_parallel": {"evaluations_ratio": "<= 1.2", "wall_ratio": "<= 0.2"},
}

INTRODUCTION = """\
# Benchmarks

Written by `make docs` from `benchmarks/results/`; do not edit. `make bench NAME=halide_host`
runs one again (`ARGS='--only harris'` a part of it). Ratios of times are medians of the quotients
within interleaved rounds. Peers run in separate processes with limits; a peer that fails counts as
absent for that program.
"""


def main() -> None:
    """Write the page."""
    paths = sorted((HERE / "results").glob("*.json"))
    parts = [INTRODUCTION]
    parts += [
        section(json.loads(path.read_text()), path.stem)
        for path in paths
        if not path.stem.endswith("-partial")
    ]
    PAGE.write_text("\n".join(parts))
    print(f"written: {PAGE.relative_to(HERE.parent)}")


def section(result: dict[str, Any], stem: str) -> str:
    """One benchmark's part of the page."""
    name = result["name"]
    lines = [f"## {stem}", "", about(name), "", facts(result), ""]
    goals = GOALS.get(name, {})
    rows = [
        [f"`{key}`", shown(value), goals.get(key, ""), verdict(value, goals.get(key), result)]
        for key, value in result["summary"].items()
    ]
    lines += [table(["figure", "value", "goal", ""], rows), ""]
    details = DETAILS.get(name, scalar_rows)(result["rows"])
    if details:
        lines += ["<details><summary>Every case</summary>", "", details, "", "</details>", ""]
    return "\n".join(lines)


def about(name: str) -> str:
    """What the script says that it measures."""
    for folder in (HERE, HERE / "gpu"):
        script = folder / f"{name}.py"
        if script.exists():
            return ast.get_docstring(ast.parse(script.read_text())) or ""
    return ""


def facts(result: dict[str, Any]) -> str:
    """When, where and with what."""
    machine = result["machine"]
    if isinstance(machine, dict):
        machine = machine.get("processor") or machine.get("name") or str(machine)
    else:
        machine = machine.split(", ", 1)[-1]  # without the computer's name
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return f"{result['date'][:10]}, {machine}; {versions}."


def verdict(value: Any, goal: str | None, result: dict[str, Any]) -> str:
    """Whether a figure is as it is to be."""
    if goal is None or not isinstance(value, int | float):
        return "" if goal is None else "unknown"
    relation, wanted = goal.split()
    bound = result["summary"].get(wanted)
    limit = float(bound if bound is not None else wanted)
    met = value >= limit if relation == ">=" else value <= limit
    return "met" if met else "**missed**"


def shown(value: Any) -> str:
    """A value as text: three significant digits, large numbers in full."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {shown(part)}" for key, part in value.items()) or "–"
    return str(value).replace("|", "\\|").replace("\n", " ")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; all columns but the first are right-aligned."""
    rule = ["---", *("--:" for _ in headings[1:])]
    lines = [list(headings), rule, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def scalar_rows(rows: list[dict[str, Any]], most: int = 60) -> str:
    """The rows' plain fields; none where there are too many rows to read."""
    if not rows or len(rows) > most:
        return ""
    keys = [
        key for key in rows[0] if all(not isinstance(row.get(key), dict | list) for row in rows)
    ]
    return table(keys, [[shown(row.get(key)) for key in keys] for row in rows])


def host_rows(rows: list[dict[str, Any]]) -> str:
    """Milliseconds of every schedule, and the ratios with their intervals."""
    labels = list(dict.fromkeys(label for row in rows for label in row["entries"]))

    def cell(entry: dict[str, Any] | None) -> str:
        if entry is None:
            return "–"
        if entry["status"] != "ok":
            return entry["status"].replace("_", " ")
        return f"{1e3 * entry['seconds']:.3g}"

    def ratio(row: dict[str, Any], name: str) -> str:
        if row.get(name) is None:
            return "–"
        low, high = row[f"{name}_interval"]
        return f"{row[name]:.2f} ({low:.2f} to {high:.2f})"

    ratios = {
        "one shot / best peer": "oneshot_vs_best_peer",
        "top / best peer": "top_vs_best_peer",
        "top / hand": "top_vs_hand",
    }
    return table(
        ["milliseconds", *labels, *ratios],
        [
            [
                row["program"],
                *(cell(row["entries"].get(label)) for label in labels),
                *(ratio(row, name) for name in ratios.values()),
            ]
            for row in rows
        ],
    )


def search_rows(rows: list[dict[str, Any]]) -> str:
    """CPU seconds of every search."""

    def cell(peer: dict[str, Any]) -> str:
        if peer["status"] != "ok":
            return peer["status"].replace("_", " ")
        return f"{peer['cpu_seconds']:.3g}"

    host, cuda = list(rows[0]["host_peers"]), list(rows[0]["cuda_peers"])
    return table(
        ["CPU seconds", "ours, host", *host, "ours, CUDA", *(f"{p}, CUDA" for p in cuda), "MB"],
        [
            [
                row["program"],
                shown(row["host"]["cpu_seconds"]),
                *(cell(row["host_peers"][p]) for p in host),
                shown(row["cuda"]["cpu_seconds"]),
                *(cell(row["cuda_peers"][p]) for p in cuda),
                f"{max(row['host']['peak_mb'], row['cuda']['peak_mb']):.0f}",
            ]
            for row in rows
        ],
    )


def coverage_rows(rows: list[dict[str, Any]]) -> str:
    """The status of every check."""
    cases = list(dict.fromkeys(case for row in rows for case in row["cases"]))
    return table(
        ["pipeline", *cases],
        [
            [
                row["program"],
                *(row["cases"].get(c, {}).get("status", "–").replace("_", " ") for c in cases),
            ]
            for row in rows
        ],
    )


def static_rows(rows: list[dict[str, Any]]) -> str:
    """Every program: kernels, launches that differ, and spills in each mode and of the peer."""

    def spilled(run: dict[str, Any]) -> str:
        status = "refused" if run.get("refused") else run["status"]
        return shown(run["spill_bytes"]) if status == "ok" else status.replace("_", " ")

    modes = list(rows[0]["ours"])
    return table(
        ["spilled bytes", *modes, "Anderson2021", "kernels", "launches that differ"],
        [
            [
                row["program"],
                *(spilled(row["ours"][mode]) for mode in modes),
                spilled(row["anderson2021"]),
                shown(row["ours"]["nested"].get("kernels")),
                shown(sum(run.get("mismatches", 0) for run in row["ours"].values())),
            ]
            for row in rows
        ],
    )


def strangers_rows(rows: list[dict[str, Any]]) -> str:
    """Every program: its search, how everything ended, and the ratio to the best peer."""

    def ended(results: dict[str, Any]) -> str:
        parts = (f"{where} {result['status']}" for where, result in results.items())
        return ", ".join(parts).replace("_", " ") or "–"

    def ratio(row: dict[str, Any]) -> str:
        timed = row["timed"] or {}
        if timed.get("oneshot_vs_best_peer") is None:
            return "–"
        low, high = timed["oneshot_vs_best_peer_interval"]
        return f"{timed['oneshot_vs_best_peer']:.2f} ({low:.2f} to {high:.2f})"

    return table(
        ["program", "held out", "CPU seconds", "plans", "lowered", "ran", "one shot / best peer"],
        [
            [
                row["program"],
                shown(row["held_out"]),
                shown(row["static"]["host"].get("seconds")),
                shown(row["static"]["host"].get("plans")),
                ended(row["static"]),
                ended(row["small"]),
                ratio(row),
            ]
            for row in rows
        ],
    )


DETAILS = {
    "halide_host": host_rows,
    "halide_search": search_rows,
    "halide_coverage": coverage_rows,
    "halide_strangers": strangers_rows,
    "halide_cuda_static": static_rows,
}


if __name__ == "__main__":
    main()
