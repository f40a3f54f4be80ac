"""CPU milliseconds a suggestion, summed over all threads, on a problem of 10 parameters.

The objective costs nothing, a fifth of the configurations fail, so that hyperparameters and
the feasibility model are fitted as in real use. Reported are the means over suggestions 51 to
70 and 181 to 200, and over 20 suggestions after 1000 and 5000 observations, which are random
configurations: to get there by suggestions takes minutes. With --peers PYTHON, Optuna's samplers
are timed as well.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

import tuning_common
from tilewright.tuning import Categorical, Integer, Ordinal, Space, Suggestion, Trial, Tuner


def problem() -> Space:
    """Ten parameters as compilers have them, with known constraints."""
    tiles = (1, 2, 4, 8, 16, 32, 64, 128)
    return Space(
        [
            *(Ordinal(f"tile{i}", tiles, scale="log") for i in range(4)),
            *(Integer(f"unroll{i}", 1, 16) for i in range(3)),
            Categorical("schedule", ("static", "dynamic", "guided")),
            Categorical("vector", (False, True)),
            Ordinal("threads", (1, 2, 3, 4, 6, 8, 12, 16)),
        ],
        ["tile0 % tile1 == 0", "tile2 * tile3 <= 4096", "unroll0 <= tile0"],
    )


def objective(c: dict[str, Any]) -> float | None:
    """A smooth stand-in with interactions; None for a hidden failure."""
    if c["tile2"] * c["unroll1"] > 512 or (c["threads"] == 12 and c["vector"]):
        return None
    from math import log2

    cost = (log2(c["tile0"]) - 4) ** 2 + (log2(c["tile1"]) - 2) ** 2
    cost += (log2(c["tile2"]) + log2(c["tile3"]) - 7) ** 2 * 0.3 + abs(c["unroll0"] - 4) * 0.4
    cost += {"static": 0, "dynamic": 2, "guided": 1}[c["schedule"]] + 8 / c["threads"]
    return 1.0 + cost + (0 if c["vector"] else 1.5) + 0.1 * abs(c["unroll2"] - c["unroll1"])


def run(seed: int, count: int) -> list[dict[str, Any]]:
    """The CPU seconds of each suggestion and telling."""
    tuner = Tuner(problem(), seed=seed)
    rows = []
    for index in range(1, count + 1):
        start = time.process_time()
        asked = tuner.ask()
        assert asked is not None
        spent = time.process_time() - start
        value = objective(asked.configuration)
        start = time.process_time()
        if value is None:
            tuner.tell(asked, status="run_failed")
        else:
            tuner.tell(asked, value)
        spent += time.process_time() - start
        rows.append({"index": index, "ms": 1e3 * spent, "status": "ok" if value else "run_failed"})
    return rows


def after(seed: int, count: int) -> float:
    """Mean CPU milliseconds of 20 suggestions after `count` random observations."""
    tuner = Tuner(problem(), seed=seed)
    trials = []
    for index, code in enumerate(tuner.space.sample(np.random.default_rng(seed), count)):
        configuration = tuner.space.decode(code)
        value = objective(configuration)
        given = Suggestion(index, configuration, "random")
        good = value is not None
        trials.append(Trial(given, "ok" if good else "run_failed", (value,) if good else ()))
    tuner.restore(trials)
    spent = []
    for _ in range(20):
        start = time.process_time()
        asked = tuner.ask()
        assert asked is not None
        value = objective(asked.configuration)
        tuner.tell(asked, value, status="run_failed" if value is None else "ok")
        spent.append(1e3 * (time.process_time() - start))
    return statistics.mean(spent)


def mean(rows: list[dict[str, Any]], low: int, high: int) -> float:
    """Mean CPU milliseconds of suggestions low to high."""
    return statistics.mean(r["ms"] for r in rows if low <= r["index"] <= high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--peers", help="the Python of the peers' environment")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for seed in range(args.seeds):
        found = run(seed, 200)
        rows.append(
            {
                "tool": "tilewright",
                "seed": seed,
                "ms_at_60": mean(found, 51, 70),
                "ms_at_200": mean(found, 181, 200),
                "ms_at_1000": after(seed, 1000),
                "ms_at_5000": after(seed, 5000),
                "failed": sum(r["status"] != "ok" for r in found),
                "ms": [round(r["ms"], 3) for r in found],
            }
        )
        print({k: v for k, v in rows[-1].items() if k != "ms"}, flush=True)
    if args.peers:
        script = Path(__file__).parent / "peers" / "tuning_overhead_peer.py"
        for tool in ("optuna_tpe", "optuna_gp"):
            done = subprocess.run(
                [args.peers, str(script), tool, "0"], capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                rows.append({"tool": tool, **json.loads(done.stdout.strip().splitlines()[-1])})
            else:
                rows.append({"tool": tool, "status": "run_failed", "message": done.stderr[-300:]})
            print({k: v for k, v in rows[-1].items() if k != "ms"}, flush=True)
    ours = [r for r in rows if r["tool"] == "tilewright"]
    keys = [key for key in ours[0] if key.startswith("ms_at")]
    summary = {k: statistics.mean(r[k] for r in ours) for k in keys}
    tuning_common.write("tuning_overhead", rows, summary)


if __name__ == "__main__":
    main()
