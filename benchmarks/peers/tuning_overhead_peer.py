"""CPU milliseconds a suggestion of Optuna's samplers on ``tuning_overhead.py``'s problem.

``tuning_overhead_peer.py TOOL SEED`` prints one line of JSON.
"""

import json
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
import optuna

TILES = (1, 2, 4, 8, 16, 32, 64, 128)


def suggest(trial):
    c = {f"tile{i}": 2 ** trial.suggest_int(f"tile{i}", 0, 7) for i in range(4)}
    c |= {f"unroll{i}": trial.suggest_int(f"unroll{i}", 1, 16) for i in range(3)}
    c["schedule"] = trial.suggest_categorical("schedule", ["static", "dynamic", "guided"])
    c["vector"] = trial.suggest_categorical("vector", [False, True])
    c["threads"] = (1, 2, 3, 4, 6, 8, 12, 16)[trial.suggest_int("threads", 0, 7)]
    return c


def cost(c):
    from math import log2

    if c["tile2"] * c["unroll1"] > 512 or (c["threads"] == 12 and c["vector"]):
        return None
    total = (log2(c["tile0"]) - 4) ** 2 + (log2(c["tile1"]) - 2) ** 2
    total += (log2(c["tile2"]) + log2(c["tile3"]) - 7) ** 2 * 0.3 + abs(c["unroll0"] - 4) * 0.4
    total += {"static": 0, "dynamic": 2, "guided": 1}[c["schedule"]] + 8 / c["threads"]
    return 1.0 + total + (0 if c["vector"] else 1.5) + 0.1 * abs(c["unroll2"] - c["unroll1"])


def main():
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    tool, seed = sys.argv[1], int(sys.argv[2])
    if tool == "optuna_gp":
        import torch

        torch.set_num_threads(1)
        sampler: optuna.samplers.BaseSampler = optuna.samplers.GPSampler(seed=seed)
    else:
        sampler = optuna.samplers.TPESampler(seed=seed)
    study = optuna.create_study(sampler=sampler)
    ms = []
    for _ in range(200):
        start = time.process_time()
        trial = study.ask()
        c = suggest(trial)
        spent = time.process_time() - start
        value = cost(c)
        start = time.process_time()
        if value is None:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        else:
            study.tell(trial, value)
        ms.append(1e3 * (spent + time.process_time() - start))
    print(
        json.dumps(
            {
                "seed": seed,
                "ms_at_60": sum(ms[50:70]) / 20,
                "ms_at_200": sum(ms[180:200]) / 20,
                "ms": [round(v, 3) for v in ms],
            }
        )
    )


if __name__ == "__main__":
    main()
