"""Schedules picked by predicted time: Halide's blur and an FFT, on the CPU.

Of each size there are over 100 measured schedules with factors drawn as in the paper's Table IV,
the data sets ``halide_blur-cpu`` and ``halide_fft-cpu``. A model is trained on 250 of them, the
same number of each size, and the schedule that it predicts to be the fastest is the pick: of all
of a size's schedules, and (keys ending in ``held_out``) of those alone that it was not trained
on. ``thousands`` is the pick of all schedules that the factors allow, most of which were never
measured. ``verified`` is the fastest of the three that are predicted to be the fastest, by the
first half of a start's rounds, judged by the other half. These picks are a forest's. The keys
``MODEL_FACTORS_unmeasured…`` have the picks by the forest and by `Augmented` (``ours``, at most 75
numbers) among those schedules that no model was trained on, over the best of these: with all
factors (``wide``), and with Table IV's own (``table_iv``), without a choice of where blur's first
stage is computed, and without whole rows. ``prediction_selection_recorded`` has the same by the
recorded times alone.

In one run the picks are timed again, in turns, with the schedules that were the fastest in the
data set, with Mullapudi2016's schedule of this machine, and with the factors that it chose for
the paper's authors. All are started four times, as which memory a process is given decides up to
three times over how fast a schedule for large images is; of each the median start counts.
`blur_vs_mullapudi` is Mullapudi2016's time over the pick's, the others are the pick's time over
that of the best candidate, and the candidates' mean time over the pick's; geometric means over
the sizes.

``--seconds`` begins no further size after so long; a rerun goes on with the others.

Usage: ``python benchmarks/prediction_selection.py --seconds 60``
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import common
from tilewright.halide.execution.session import Session, Variant
from tilewright.halide.schedulers.halide_autoschedulers import peers, run_peers
from tilewright.measure import Timing, finalists
from tilewright.prediction import Augmented, Estimator, Forest
from tilewright.prediction.data.runs import Runs, read_csv
from tilewright.prediction.decisions.ranking import rank, rank_schedules
from tilewright.prediction.kernels.families import schedule_family
from tilewright.prediction.kernels.halide_blur import MULLAPUDI, TILE
from tilewright.prediction.kernels.schedules import LIMITS, ScheduleFamily, collect_schedules
from tilewright.records import Records

DATA = common.HERE / "data" / "prediction"
TRAINED = 250
MODELS: dict[str, Any] = {"ours": Augmented, "forest": Forest}
CANDIDATES, SEED = 104, 2020  # of a data set that is measured here
VERIFIED = 1 << 12
SIZES = {"halide_blur": tuple(1 << b for b in range(10, 15)), "halide_fft": (16, 32, 64, 128)}
# Of each kind that are timed again; starts; rounds of one; a visit.
FINALISTS, STARTS, ROUNDS = 3, 4, 12
THOUSANDS = 6000  # more than there are of blur
VISIT = Timing(min_samples=4, max_samples=10, seconds=0.1, sample_seconds=0.005, precision=0.01)


def data_set(chosen: ScheduleFamily, args: argparse.Namespace, deadline: float) -> Runs | None:
    """The measured schedules of a family, measured here where there is no data set."""
    path = args.data / f"{chosen.name}-cpu.csv"
    if path.exists():
        return read_csv(path)
    with Records(args.work / "prediction_selection.sqlite") as records:
        runs, complete = collect_schedules(
            chosen,
            SIZES[chosen.name],
            CANDIDATES,
            SEED,
            records,
            retime=False,
            deadline=deadline,
        )
    print(f"{chosen.name}: {len(runs)} schedules measured")
    return runs if complete else None


def seconds_of(runs: Runs) -> np.ndarray[Any, Any]:
    """Seconds of each run: the mean of its two measurements."""
    if runs.retimes is None:
        return runs.times
    return np.nanmean([runs.times, runs.retimes], axis=0)


def trained_on(runs: Runs, seed: int = 0) -> np.ndarray[Any, Any]:
    """The places of the runs that models are trained on, as many of each size."""
    rng, sizes = np.random.default_rng(seed), runs.table[:, 0]
    kinds = np.unique(sizes)
    places = []
    for i, size in enumerate(kinds):
        count = TRAINED // len(kinds) + (i < TRAINED % len(kinds))
        places.append(rng.choice(np.flatnonzero(sizes == size), count, replace=False))
    return np.concatenate(places)


def model_of(name: str, chosen: ScheduleFamily, runs: Runs, taken: Any) -> Estimator:
    """A model by its name in the summary, trained on these runs."""
    common_ = {"features": runs.names, "complexity": chosen.complexity, "work": chosen.work}
    return MODELS[name](**common_).fit(runs.table[taken], seconds_of(runs)[taken])


def of_table_iv(runs: Runs) -> np.ndarray[Any, Any]:
    """Whether a schedule has the factors of the paper's Table IV, shape (runs,)."""
    columns = dict(zip(runs.names, runs.table.T, strict=True))
    if "fusion" not in columns:
        return np.ones(len(runs), dtype=bool)
    return np.asarray((columns["fusion"] == TILE) & (columns["s2"] < columns["n"]))


def unmeasured(runs: Runs, taken: Any, size: int) -> dict[str, np.ndarray[Any, Any]]:
    """The places of a size's schedules that models were not trained on, by their factors."""
    fresh = np.setdiff1d(np.flatnonzero(runs.table[:, 0] == size), taken)
    return {"wide": fresh, "table_iv": fresh[of_table_iv(runs)[fresh]]}


def final(chosen: ScheduleFamily, runs: Runs, size: int) -> dict[str, Any]:
    """The picks of a size, timed in turns with the best candidates and the autoscheduler's."""
    taken = trained_on(runs)
    models = {name: model_of(name, chosen, runs, taken) for name in MODELS}
    model = models["forest"]
    seconds = seconds_of(runs)
    own = np.flatnonzero(runs.table[:, 0] == size)
    fresh = np.setdiff1d(own, taken)
    predicted = [int(own[r.index]) for r in rank(model, runs.table[own], FINALISTS)]
    held_out = int(fresh[rank(model, runs.table[fresh], 1)[0].index])
    best = [int(i) for i in own[np.argsort(seconds[own])][:FINALISTS]]
    picks, pools = {}, unmeasured(runs, taken, size)
    for factors_of, pool in pools.items():
        for name, other in models.items():
            pick = int(pool[rank(other, runs.table[pool], 1)[0].index])
            leaders = [int(i) for i in pool[np.argsort(seconds[pool])][:FINALISTS]]
            picks[f"{name}_{factors_of}"] = [pick, *leaders]
    algorithm = chosen.algorithm(size)
    variants = {}
    several = [place for places in picks.values() for place in places]
    for place in dict.fromkeys([*predicted, held_out, *best, *several]):
        factors = {n: int(v) for n, v in zip(runs.names, runs.table[place], strict=True)}
        variants[f"candidate {place}"] = Variant(
            chosen.schedule(algorithm, factors), target=chosen.target, name=f"candidate {place}"
        )
    anywhere = rank_schedules(model, chosen, size, THOUSANDS, SEED)
    variants["thousands"] = Variant(
        chosen.schedule(algorithm, {n: int(v) for n, v in anywhere[0].features.items()}),
        target=chosen.target,
        name="thousands",
    )
    verify = chosen.name != "halide_blur" or size <= VERIFIED
    with Session(algorithm, limits=LIMITS, verify=verify) as session:
        if chosen.name == "halide_blur":
            peer = next(p for p in peers("host") if p.name == "Mullapudi2016")
            (scheduled,) = run_peers(session.problem.algorithm, session.inputs, [peer])
            variants[peer.name] = Variant(serialized=scheduled.serialized, name=peer.name)
            variants["paper's"] = Variant(
                chosen.schedule(algorithm, {"n": size, **MULLAPUDI}), name="paper's"
            )
        problem = session.prepare()
        candidates = [problem.candidate(v) for v in variants.values()]
        how: dict[str, Any] = {"limits": LIMITS, "visit": VISIT, "verify": verify}
        starts = [
            finalists(candidates, 1 + ROUNDS, **how, workers=session.workers).measurements
            for _ in range(STARTS)
        ]
    measured = dict(zip(variants, zip(*starts, strict=True), strict=True))
    failed = {
        name: next(m.message for m in own_starts if not m.ok)
        for name, own_starts in measured.items()
        if not all(m.ok for m in own_starts)
    }
    # In the first round outputs are fresh memory.
    rounds = {
        name: [m.times[1:] for m in own_starts]
        for name, own_starts in measured.items()
        if name not in failed
    }
    medians, early, late = (
        {
            name: statistics.median(statistics.median(start[part]) for start in times)
            for name, times in rounds.items()
        }
        for part in (slice(None), slice(ROUNDS // 2), slice(ROUNDS // 2, None))
    )
    names = [f"candidate {i}" for i in predicted]
    verified = min((n for n in names if n in early), key=early.__getitem__)
    alive = [n for n in medians if n.startswith("candidate")]
    return {
        "size": size,
        "candidates": len(own),
        "pick": runs.table[predicted[0]].tolist(),
        "pick_seconds": medians[names[0]],
        "held_out_seconds": medians[f"candidate {held_out}"],
        "unmeasured": {
            name: medians[f"candidate {pick}"]
            / min(
                medians[f"candidate {i}"] for i in (pick, *leaders) if f"candidate {i}" in medians
            )
            for name, (pick, *leaders) in picks.items()
        },
        "verified_over_best": late[verified] / min(late[n] for n in alive),
        "thousands": [len(anywhere), anywhere[0].features],
        "thousands_seconds": medians["thousands"],
        "best_seconds": min(medians[n] for n in alive),
        "mean_seconds": float(seconds[own].mean()),
        "mullapudi_seconds": medians.get("Mullapudi2016"),
        "paper_factors_seconds": medians.get("paper's"),
        "rounds": rounds,
        "measured": np.column_stack([runs.table[own], seconds[own]]).tolist(),
        "trained_on": [bool(i in taken) for i in own],
        "failed": failed,
    }


def figures(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The summary's keys of a family."""

    def mean(of: str, over: str) -> float | None:
        return common.geometric_mean(r[of] / r[over] for r in rows)

    found = {
        f"{name}_vs_best_candidate": mean("pick_seconds", "best_seconds"),
        f"{name}_vs_best_candidate_held_out": mean("held_out_seconds", "best_seconds"),
        f"{name}_vs_best_candidate_verified": common.geometric_mean(
            r["verified_over_best"] for r in rows
        ),
        f"{name}_vs_best_candidate_of_thousands": mean("thousands_seconds", "best_seconds"),
        f"{name}_vs_mean": mean("mean_seconds", "pick_seconds"),
        f"{name}_vs_mean_held_out": mean("mean_seconds", "held_out_seconds"),
        f"{name}_vs_min": mean("pick_seconds", "best_seconds"),
        f"{name}_candidates": min(r["candidates"] for r in rows),
    }
    found |= {
        f"{name}_{which}_unmeasured_vs_best_candidate": common.geometric_mean(
            r["unmeasured"][which] for r in rows
        )
        for which in rows[0]["unmeasured"]
    }
    if all(r["mullapudi_seconds"] for r in rows):
        found |= {
            f"{name}_vs_mullapudi": mean("mullapudi_seconds", "pick_seconds"),
            f"{name}_vs_mullapudi_held_out": mean("mullapudi_seconds", "held_out_seconds"),
            f"{name}_vs_mullapudi_of_thousands": mean("mullapudi_seconds", "thousands_seconds"),
            f"{name}_vs_paper_factors": mean("paper_factors_seconds", "pick_seconds"),
        }
    return found


def main() -> None:
    families = list(SIZES)
    parser = common.arguments(__doc__ or "", families)
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin nothing after so long")
    parser.add_argument("--collect", action="store_true", help="measure missing data sets only")
    parser.add_argument("--data", type=Path, default=DATA)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + args.seconds
    rows = []
    summary: dict[str, Any] = {}
    for name in common.chosen(args, families):
        chosen = schedule_family(name)
        runs = data_set(chosen, args, deadline)
        own = [] if runs is None or args.collect else finals(chosen, runs, args, deadline)
        if len(own) < len(SIZES[name]):
            print(f"{name} is not complete; run it again to go on")
            continue
        rows += own
        summary |= figures(name.removeprefix("halide_"), own)
    if rows:
        common.write(args, "prediction_selection", rows, summary, trained_on=TRAINED)


def finals(
    chosen: ScheduleFamily, runs: Runs, args: argparse.Namespace, deadline: float
) -> list[dict[str, Any]]:
    """The sizes that have been timed until the deadline, in this run or an earlier one."""
    done = []
    pieces = common.Pieces(args.work, "prediction_selection", args.fresh)
    told = hashlib.sha256(runs.table.tobytes() + seconds_of(runs).tobytes()).hexdigest()[:12]
    for size in SIZES[chosen.name]:
        key = f"{chosen.name}-{size}-{told}"
        if time.monotonic() > deadline and not pieces.has(key):
            break
        row = pieces.get(key, partial(final, chosen, runs, size))
        done.append({"family": chosen.name, **row})
        shown = {k: v for k, v in done[-1].items() if not isinstance(v, list | dict)}
        print({k: common.shown(v) for k, v in shown.items()}, flush=True)
    return done


if __name__ == "__main__":
    main()
