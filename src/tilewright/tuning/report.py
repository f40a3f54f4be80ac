"""A page about tuning runs: progress, importance of parameters, failures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tilewright.files import write_text
from tilewright.report import Bar, units
from tilewright.report.charts import (
    Axis,
    Line,
    Points,
    bar_chart,
    line_chart,
    parallel_coordinates,
    reflowing,
    scatter_plot,
)
from tilewright.report.pages import Figure, Html, Section, html_page, html_table, tag
from tilewright.report.table import table
from tilewright.tuning.bayes.encoding import encoder
from tilewright.tuning.bayes.forest import grow
from tilewright.tuning.bayes.logarithms import logarithms
from tilewright.tuning.bayes.pareto import front
from tilewright.tuning.space.parameters import Integer, Ordinal, Real
from tilewright.tuning.space.space import Space
from tilewright.tuning.trial import Trial, confirming, ranked

Runs = Sequence[Sequence[Trial]]


def best_so_far(trials: Sequence[Trial]) -> list[float]:
    """Return the best first objective after each trial; infinite until one works."""
    curve: list[float] = []
    best = math.inf
    for trial in trials:
        if trial.ok and not trial.lower_bound:
            best = min(best, trial.value)
        curve.append(best)
    return curve


def importance(space: Space, trials: Sequence[Trial]) -> dict[str, float]:
    """Return the importance of each parameter for the objective; shares that add up to one.

    By permutation importance: a random forest is fitted to the logarithm of the objective
    (the objective itself where it has values of both signs), and a parameter's share is how much
    worse it predicts when that parameter's values are shuffled among the trials. Empty with fewer
    than five successful trials.

    Source: Breiman, Random Forests, Machine Learning 45, 2001, section 10.
    """
    good = [t for t in trials if t.ok]
    if len(good) < 5:
        return {}
    values = np.array([t.value for t in good])
    logs = logarithms(values)
    outputs = values if logs is None else logs
    codes = np.array([space.encode(t.configuration) for t in good])
    embed = encoder(space, alignment=False)
    points = embed(codes)
    rng = np.random.default_rng(0)
    forest = grow(points, outputs, rng, trees=64, share=0.7, leaf=2)
    error = float(((forest.mean(points) - outputs) ** 2).mean())
    rises: dict[str, float] = {}
    for block, name in enumerate(embed.labels):
        columns = np.flatnonzero(embed.blocks == block)
        rise = 0.0
        for _ in range(8):
            shuffled = points.copy()
            shuffled[:, columns] = points[rng.permutation(len(points))][:, columns]
            rise += float(((forest.mean(shuffled) - outputs) ** 2).mean()) - error
        rises[name] = max(0.0, rise / 8)
    total = sum(rises.values())
    return {name: rise / total for name, rise in rises.items()} if total > 0 else {}


def tuning_page(
    runs: Runs,
    space: Space,
    title: str,
    *,
    unit: str = "",
    negated: bool = False,
    facts: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the page as text: one or more runs of the same problem, as by different seeds.

    `unit` is the unit of the objective (times in ``s`` are shown with a suitable prefix); `negated`
    shows values with the opposite sign, where a quantity is maximised; `facts` say how the page
    was made, by name.
    """
    sign = -1.0 if negated else 1.0
    trials = [trial for run in runs for trial in run]
    good = [t for t in trials if t.ok and not t.lower_bound]
    failures = Counter(t.status for t in trials if not t.ok)
    best = min(
        (b for run in runs for b in _leader(run, space)), key=lambda t: t.value, default=None
    )
    figures = _counts(trials, len(good), sum(failures.values()))
    if best is not None:
        shown = sign * best.value
        value = units.seconds(shown) if unit == "s" else f"{shown:.5g} {unit}".strip()
        figures.insert(0, Figure(value, "best", "good"))
    sections = [progress_section(runs, unit, sign)]
    if best is not None:
        sections.append(Section("Best configuration", _configuration(best)))
        if any(len(t.values) > 1 for t in good):
            sections.append(Section("Pareto front", _pareto(good, sign)))
        sections.append(
            Section(
                "Configurations",
                _strands(trials, space),
                "Each line is a configuration; the better it is, the stronger it is drawn. "
                "Red ones failed.",
            )
        )
        shares = importance(space, trials)
        if shares:
            sections.append(
                Section(
                    "Which parameters matter",
                    _shares(shares),
                    "How much worse a forest fitted to the trials predicts when one "
                    "parameter's values are shuffled.",
                )
            )
    if failures:
        sections.append(Section("Feasibility", _failures(trials, failures)))
    subtitle = _subtitle(space)
    return html_page(f"Tuning {title}", sections, subtitle=subtitle, figures=figures, facts=facts)


def _counts(trials: Sequence[Trial], good: int, failed: int) -> list[Figure]:
    """Return how many evaluations there were, and how they ended."""
    again = confirming(trials)
    figures = [
        Figure(str(len(trials) - again), "evaluations"),
        Figure(str(good), "succeeded", "good" if good else "bad"),
        Figure(str(failed), "failed", "bad" if failed else ""),
    ]
    if again:
        figures.append(Figure(str(again), "to confirm the best"))
    return figures


def _leader(trials: Sequence[Trial], space: Space) -> list[Trial]:
    """Return the best configuration of a run by its medians; empty if none works."""
    found: dict[bytes, list[Trial]] = {}
    for trial in trials:
        found.setdefault(space.key(space.encode(trial.configuration)), []).append(trial)
    return ranked(found.values())[:1]


def write_tuning_page(
    path: str | Path,
    runs: Runs,
    space: Space,
    title: str,
    *,
    unit: str = "",
    negated: bool = False,
    facts: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write `tuning_page` to a file."""
    page = tuning_page(runs, space, title, unit=unit, negated=negated, facts=facts)
    write_text(path, page)


def progress_section(runs: Runs, unit: str = "", sign: float = 1.0) -> Section:
    """Return the section with the best objective, times `sign`, after each evaluation."""
    return Section("Best so far", _curves(runs, unit, sign), _curve_note(runs, sign))


def _subtitle(space: Space) -> str:
    names = units.plural(len(space.parameters), "parameter")
    return f"{names}, {space.count:,} feasible configurations of {space.dense:,}"


def _curves(runs: Runs, unit: str, sign: float) -> Html:
    curves = [best_so_far(run) for run in runs]
    length = max(len(curve) for curve in curves)
    table = np.full((len(curves), length), np.nan)
    for row, curve in zip(table, curves, strict=True):
        row[: len(curve)] = curve
        row[len(curve) :] = curve[-1] if curve else math.inf
    table *= sign
    low, middle, high = np.percentile(table, [25, 50, 75], axis=0, method="nearest")
    band = {"low": low.tolist(), "high": high.tolist()} if len(runs) > 1 else {}
    x = list(range(1, length + 1))
    line = Line("best so far", x, middle.tolist(), steps=True, **band)
    finite = table[np.isfinite(table)]
    return reflowing(
        lambda width: line_chart(
            [line],
            label="best objective after each evaluation",
            x_label="evaluations",
            y_label=f"objective ({unit})" if unit not in ("", "s") else "objective",
            y_text=units.seconds if unit == "s" else units.digits,
            log_y=bool(len(finite)) and bool((finite > 0).all()),
            width=width,
        )
    )


def _curve_note(runs: Runs, sign: float) -> str:
    if len(runs) == 1:
        extreme = "largest" if sign < 0 else "smallest"
        single = f"Single evaluations; the best configuration is the one with the {extreme} median."
        return single if confirming(runs[0]) else ""
    return f"Median over {len(runs)} runs, with the band between their quartiles."


def _configuration(best: Trial) -> Html:
    rows = [
        (name, " ".join(map(str, value)) if isinstance(value, tuple) else str(value))
        for name, value in best.configuration.items()
    ]
    return html_table(table("parameter | >value", rows))


def _strands(trials: Sequence[Trial], space: Space) -> Html:
    axes = []
    for p in space.parameters:
        values: list[Any] = []
        for trial in trials:
            value = trial.configuration.get(p.name, "absent")
            values.append(" ".join(map(str, value)) if isinstance(value, tuple) else value)
        log = isinstance(p, Real | Integer | Ordinal) and p.scale == "log"
        axes.append(Axis(p.name, values, log=log and p.when is None))
    objective = [t.value if t.ok else None for t in trials]
    return reflowing(
        lambda width: parallel_coordinates(
            axes, objective, label="configurations and their objective", width=width
        )
    )


def _shares(shares: dict[str, float]) -> Html:
    ranked = sorted(shares.items(), key=lambda item: -item[1])
    bars = [Bar(name, share) for name, share in ranked]
    return reflowing(
        lambda width: bar_chart(
            bars,
            label="importance of each parameter",
            text=lambda v: f"{100 * v:.0f} %",
            cut=None,
            width=width,
        )
    )


def _failures(trials: Sequence[Trial], failures: Counter[str]) -> Html:
    rows = []
    for status, count in failures.most_common():
        said = Counter(t.message for t in trials if t.status == status and t.message)
        example = said.most_common(1)[0][0] if said else ""
        rows.append((status.replace("_", " "), str(count), example[:200]))
    return tag("div", html_table(table("cause | >times | ~most often said", rows)))


def _pareto(good: Sequence[Trial], sign: float) -> Html:
    values = np.array([t.values for t in good])
    kept = set(front(values))
    values *= sign
    groups = {
        "Pareto front": [i for i in range(len(good)) if i in kept],
        "others": [i for i in range(len(good)) if i not in kept],
    }
    kinds = [
        Points(
            name,
            [float(values[i, 0]) for i in rows],
            [float(values[i, 1]) for i in rows],
            [str(good[i].configuration) for i in rows],
        )
        for name, rows in groups.items()
    ]
    return reflowing(
        lambda width: scatter_plot(
            kinds,
            label="first and second objective",
            x_label="first objective",
            y_label="second objective",
            x_text=units.digits,
            y_text=units.digits,
            width=width,
        )
    )
