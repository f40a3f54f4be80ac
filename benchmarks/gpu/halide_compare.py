"""One program on the device: ours, the peers' and the hand-written schedule, interleaved.

Every schedule is checked against a plain one on the host, except in a dry run. The times come
with what every kernel uses (registers, spills, shared memory), what the model said of it, what
was really launched and how long each launch took.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import common
from gpu.halide_peers import schedules, task_of
from gpu.halide_plans import K, plans
from gpu.halide_tuned import searched as searched_before
from gpu.halide_tuned import tuned
from gpu.pieces import Setting
from gpu.roofline import least_work
from gpu.sessions import opened
from tilewright.halide.comparison import peer_variant, source_of
from tilewright.halide.execution.launches import Launched, kernel_of, seconds_by_group, traces
from tilewright.halide.execution.session import Variant
from tilewright.halide.ir.plan import PlannedSchedule
from tilewright.halide.schedulers.prediction import with_prediction
from tilewright.halide.schedulers.registry import naive
from tilewright.halide.search.top_k import timing
from tilewright.measure import Finals, Measurement

ROUNDS = 15
HAND, ONESHOT, TOP, NAIVE = "hand-written", "one shot", f"top {K}", "naive"
LEARNED, PROBED = "learned", "one shot, constants of probes"
TUNED, PUBLISHED = "tuned", "searched as published"
# Our schedules in the order of the model.
RANKED = (ONESHOT, *(f"planned {rank}" for rank in range(2, K + 1)))
PEERS = ("Li2018", "Anderson2021", "Anderson2021, as published")


def compare(name: str, setting: Setting) -> dict[str, Any]:
    """One program's row. Raises `RuntimeError` where no schedule of ours ran."""
    module = common.example(name)
    task = task_of(name, setting)
    made = plans(name, setting)
    known = partial(with_prediction, task=task)
    searched = schedules(task, setting)
    field = [peer_variant(s, task.target) for s in searched.values() if s.serialized]
    if common.hand_written(module, "gpu"):
        hand = partial(module.hand, **module.SMALL) if setting.small else module.hand
        field.append(Variant(handwritten=source_of(hand), target=task.target, name=HAND))
    field.append(Variant(naive(task), target=task.target, name=NAIVE))
    ours = [
        Variant(planned.schedule, target=task.target, name=label)
        for label, planned in zip(RANKED[: setting.planned], made.ours, strict=False)
    ]
    field += ours
    before = searched_before(name, setting)
    others = {
        LEARNED: made.learned,
        PROBED: made.probed,
        TUNED: tuned(name, setting),
        PUBLISHED: before.published if before else None,
    }
    same: dict[str, str] = {}
    for label, planned in others.items():
        if planned is not None:
            variant = Variant(
                planned.schedule,
                target=task.target,
                name=label,
                max_registers=planned.max_registers,
            )
            made_before = [v.name for v in field if v.configuration == variant.configuration]
            if made_before:
                same[label] = made_before[0]
            else:
                field.append(variant)
    with opened(task, setting, timing(0.5), build_seconds=60.0) as session:
        finals = session.finals(field, ROUNDS, seconds=setting.rounds_seconds)
        ((launched, why),) = traces(session, ours[:1])
    entries: dict[str, Any] = {
        peer: {"status": s.status, "message": s.message, "search_seconds": s.cpu_seconds}
        for peer, s in searched.items()
    }
    for candidate, measurement in zip(finals.candidates, finals.measurements, strict=True):
        entries.setdefault(candidate.key, {}).update(_entry(finals, candidate.key, measurement))
    require_ours(name, entries)
    labels = [variant.name for variant in ours]
    best = _fastest(every_second(finals, 0), [x for x in labels if "seconds" in entries[x]])
    if setting.planned >= K:
        same[TOP] = best
    entries |= {label: entries[other] for label, other in same.items()}
    if made.failure:
        entries[LEARNED] = {"status": "failed", "message": made.failure}
    if before and before.failure:
        entries[PUBLISHED] = {"status": "failed", "message": before.failure}
    return {
        "program": name,
        "entries": entries,
        "best": best,
        "predicted": {
            label: known(planned).seconds for label, planned in zip(labels, made.ours, strict=False)
        },
        "launches": {ONESHOT: launches(known(made.ours[0]), launched, why)},
        "work": least_work(task.algorithm),
        **ratios(every_second(finals, 1), entries, same),
    }


def every_second(finals: Finals, first: int) -> Finals:
    """The even (`first` is 0) or odd (1) rounds: what chose a schedule is no evidence for it."""
    measurements = (replace(m, times=m.times[first::2]) for m in finals.measurements)
    return replace(finals, measurements=tuple(measurements))


def _fastest(finals: Finals, labels: Sequence[str]) -> str:
    return min(labels, key=lambda label: finals.measurement(label).median)


def require_ours(name: str, entries: Mapping[str, Any]) -> None:
    """Raise `RuntimeError` where no schedule of ours has a time, whatever others have."""
    ours = {label: entry for label, entry in entries.items() if label in RANKED}
    if not any("seconds" in entry for entry in ours.values()):
        said = {f"{entry['status']}: {entry['message']}"[:300] for entry in ours.values()}
        raise RuntimeError(f"no schedule of ours of {name} ran: {'; '.join(sorted(said))}")


def _entry(finals: Finals, key: str, measurement: Measurement) -> dict[str, Any]:
    entry: dict[str, Any] = {"status": measurement.status, "message": measurement.message[:500]}
    if measurement.ok and measurement.times:
        interval = finals.interval(key)
        entry.update(
            seconds=measurement.median,
            low=interval.low,
            high=interval.high,
            minimum=measurement.minimum,
            rounds=len(measurement.times),
            max_error=measurement.max_error,
        )
    elif measurement.ok:
        entry["status"] = "timeout"
    entry["build_seconds"] = measurement.build_seconds
    entry["kernels"] = measurement.details.get("kernels", [])
    return entry


def launches(planned: PlannedSchedule, found: list[Launched], why: str) -> dict[str, Any]:
    """What was launched, and what the model said: `mismatches` counts kernels that differ."""
    predicted: Counter[tuple[tuple[int, ...], int]] = Counter(
        (group.threads, group.shared_bytes) for group in planned.groups if group.threads
    )
    kernels = {(one.kernel, one.threads, one.shared_bytes) for one in found}
    really: Counter[tuple[tuple[int, ...], int]] = Counter(
        (threads, shared) for _, threads, shared in kernels
    )
    seconds = seconds_by_group(planned.groups, found)
    return {
        "failure": why,
        "mismatches": max((predicted - really).total(), (really - predicted).total()),
        "kernels": [asdict(launch) for launch in found],
        "groups": [
            {
                **asdict(group),
                "measured_seconds": took,
                "launches": len(kernel_of(group, found)),
            }
            for group, took in zip(planned.groups, seconds, strict=True)
        ],
    }


def ratios(finals: Finals, entries: Mapping[str, Any], same: Mapping[str, str]) -> dict[str, Any]:
    """Speedups of ours with their intervals, paired by round; None where one of them failed.

    Labels that were not timed themselves are the `same` schedule as another.
    """
    running = [p for p in PEERS if "seconds" in entries.get(p, {})]
    best = min(running, key=lambda p: entries[p]["seconds"], default=None)
    keys = {candidate.key for candidate in finals.candidates}
    found: dict[str, Any] = {"best_peer": best}
    compared = [
        (ours, label, other, against)
        for ours, label in (
            (ONESHOT, "oneshot"),
            (TOP, "top"),
            (TUNED, "tuned"),
            (LEARNED, "learned"),
        )
        for other, against in ((best, "best_peer"), (HAND, "hand"), (NAIVE, "naive"))
    ]
    compared.append((LEARNED, "learned", ONESHOT, "oneshot"))
    compared.append((PROBED, "probed", ONESHOT, "oneshot"))
    compared.append((TUNED, "tuned", ONESHOT, "oneshot"))
    compared.append((PUBLISHED, "published", PEERS[-1], "plugin"))
    compared.append((PUBLISHED, "published", ONESHOT, "oneshot"))
    for ours, label, other, against in compared:
        found[f"{label}_vs_{against}"] = None
        if other is not None and all("seconds" in entries.get(e, {}) for e in (ours, other)):
            first, second = (key if key in keys else same[key] for key in (other, ours))
            interval = finals.ratio_interval(first, second)
            found[f"{label}_vs_{against}"] = interval.estimate
            found[f"{label}_vs_{against}_interval"] = [interval.low, interval.high]
    return found


def summary(rows: Sequence[dict[str, Any]], device: dict[str, Any] | None) -> dict[str, Any]:
    """The figures that the claim is about."""

    def column(name: str) -> list[float]:
        return [row[name] for row in rows if row.get(name) is not None]

    def failures(labels: Sequence[str], missing: Any = None) -> int:
        entries = [row["entries"].get(label, missing or {}) for row in rows for label in labels]
        return sum("seconds" not in entry for entry in entries)

    traced = [found for row in rows for found in row["launches"].values()]
    top = column("top_vs_best_peer")
    return {
        "programs": len(rows),
        "oneshot_vs_best_peer": common.geometric_mean(column("oneshot_vs_best_peer")),
        "top_vs_best_peer": common.geometric_mean(top),
        "top_vs_best_peer_min": min(top, default=None),
        "top_vs_hand": common.geometric_mean(column("top_vs_hand")),
        "oneshot_vs_hand": common.geometric_mean(column("oneshot_vs_hand")),
        "hand_written": len(column("oneshot_vs_hand")),
        "top_vs_naive": common.geometric_mean(column("top_vs_naive")),
        "tuned_vs_best_peer": common.geometric_mean(column("tuned_vs_best_peer")),
        "tuned_vs_hand": common.geometric_mean(column("tuned_vs_hand")),
        "tuned_vs_hand_min": min(column("tuned_vs_hand"), default=None),
        "tuned_vs_oneshot": common.geometric_mean(column("tuned_vs_oneshot")),
        "tuned": len(column("tuned_vs_oneshot")),
        "published_vs_plugin": common.geometric_mean(column("published_vs_plugin")),
        "published_vs_plugin_programs": len(column("published_vs_plugin")),
        "published_vs_oneshot": common.geometric_mean(column("published_vs_oneshot")),
        "learned_vs_best_peer": common.geometric_mean(column("learned_vs_best_peer")),
        "learned_vs_hand": common.geometric_mean(column("learned_vs_hand")),
        "learned_vs_oneshot": common.geometric_mean(column("learned_vs_oneshot")),
        "probed_vs_oneshot": common.geometric_mean(column("probed_vs_oneshot")),
        "peer_failures": failures(PEERS),
        # With fewer than five in the comparison there is no best of five.
        "our_failures": failures((ONESHOT,)) + failures((TOP, TUNED), {"seconds": None}),
        "learned_failures": failures((LEARNED,), {"seconds": None}),
        "launch_mismatches": sum(t["mismatches"] for t in traced if not t["failure"]),
        "of_roofline": common.geometric_mean(column("of_roofline")),
        "bytes_per_second": device and device["bytes_per_second"],
        "flops_per_second": device and device["flops_per_second"],
    }
