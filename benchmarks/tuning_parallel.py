"""Wall time and evaluations to the quality of 40 sequential evaluations, with 8 at once.

The objective sleeps for one second, so that the number of cores has no effect, and returns the
values of a smooth problem with interactions. The target is the median over seeds of the best of 40
sequential evaluations. For each seed, one run is sequential and one has 8 workers; both continue
until they have found a configuration as good as the target, or have used three times as many
evaluations. `evaluations_ratio` and `wall_ratio` are medians over seeds with 8 workers, divided by
those of the sequential runs; 95% of the ratios over seeds drawn again with replacement are between
their `low` and `high`. With --dask, the workers are a local Dask cluster's processes.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np

import tuning_common
from tilewright.measure.statistics import bootstrap_interval
from tilewright.tuning import Trial, Tuner, tune
from tuning_overhead import objective, problem

WORKERS = 8
BUDGET = 40
AT_ONCE = 5  # sequential runs; more would wait for the machine's cores


class Reached(KeyboardInterrupt):
    """The wanted quality has been reached: ends the run as Ctrl-C does."""


def slow(configuration: dict[str, Any]) -> float | None:
    """The objective after a second."""
    time.sleep(1.0)
    return objective(configuration)


def run(seed: int, jobs: int, executor: Executor | None, target: float | None) -> dict[str, Any]:
    """One run: its best value, and the seconds until it was found."""
    start = time.monotonic()
    reached: list[float] = []

    def on_trial(trial: Trial, tuner: Tuner) -> None:
        if target is not None and tuner.best is not None and tuner.best.value <= target:
            reached.append(time.monotonic() - start)
            raise Reached

    budget = BUDGET if target is None else 3 * BUDGET
    found = tune(
        slow, problem(), budget, seed=seed, jobs=jobs, executor=executor, on_trial=on_trial
    )
    return {
        "seed": seed,
        "jobs": jobs,
        "best": None if found.best is None else found.best.value,
        "evaluations": len(found.trials),
        "evaluations_to_target": len(found.trials) if reached else None,
        "seconds": time.monotonic() - start,
        "reached_in": reached[0] if reached else None,
    }


def median(rows: list[dict[str, Any]], key: str) -> float:
    """Median over runs; one that did not reach the target counts as infinite."""
    return statistics.median(math.inf if row[key] is None else row[key] for row in rows)


def interval(
    name: str, parallel: list[dict[str, Any]], sequential: list[dict[str, Any]], key: str
) -> dict[str, float]:
    """The bounds of 95% of the ratios of medians over seeds drawn with replacement.

    The target stays the same. Both lists have the same seeds in the same places.
    """
    ours, theirs = (
        np.array([math.inf if row[key] is None else row[key] for row in rows])
        for rows in (parallel, sequential)
    )

    def ratio(places: Any, axis: int) -> Any:
        picked = np.asarray(places, dtype=int)
        return np.median(ours[picked], axis=axis) / np.median(theirs[picked], axis=axis)

    found = bootstrap_interval(range(len(parallel)), statistic=ratio)
    return {f"{name}_low": found.low, f"{name}_high": found.high}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=15)
    parser.add_argument("--dask", action="store_true")
    args = parser.parse_args()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        short = pool.map(lambda seed: run(seed, 1, None, None), range(args.seeds))
        target = statistics.median(row["best"] for row in short)
        sequential = list(pool.map(lambda seed: run(seed, 1, None, target), range(args.seeds)))
    parallel = []
    for seed in range(args.seeds):
        with ExitStack() as stack:
            executor: Executor
            if args.dask:
                from dask.distributed import Client

                client = stack.enter_context(Client(n_workers=WORKERS, threads_per_worker=1))
                executor = client.get_executor()
            else:
                executor = stack.enter_context(ThreadPoolExecutor(WORKERS))
            parallel.append(run(seed, WORKERS, executor, target))
        print(parallel[-1], flush=True)
    evaluations = [median(rows, "evaluations_to_target") for rows in (parallel, sequential)]
    seconds = [median(rows, "reached_in") for rows in (parallel, sequential)]
    summary = {
        "target": target,
        "evaluations": evaluations[0],
        "sequential_evaluations": evaluations[1],
        "evaluations_ratio": evaluations[0] / evaluations[1],
        **interval("evaluations_ratio", parallel, sequential, "evaluations_to_target"),
        "seconds": seconds[0],
        "sequential_seconds": seconds[1],
        "wall_ratio": seconds[0] / seconds[1],
        **interval("wall_ratio", parallel, sequential, "reached_in"),
        "workers": WORKERS,
        "executor": "dask" if args.dask else "threads",
    }
    tuning_common.write("tuning_parallel", sequential + parallel, summary)


if __name__ == "__main__":
    main()
