"""What each idea of the learned scheduler's search is worth: run times without it.

Per program and seed, the beam search runs once with all ideas (``full``) and once without each of
`IDEAS`, for the same CPU seconds; planning of the analytic schedules that it starts from, which all
share, is not counted. The schedules that the searches return are measured on the host in the same
interleaved rounds. A row is a program; keys of the summary:

- ``loss``: time of the schedule found without the idea over that of ``full`` with the same seed,
  as a geometric mean over programs and seeds; above 1 if the idea helps. ``loss_least`` and
  ``loss_most`` are the extremes over programs, of means over seeds.
- ``predicted_loss``: the same ratio of the times that the model predicts for the two schedules.
  Without ``prior``, ``linear model`` and ``correction``, the search minimises another prediction:
  its schedules are predicted again.
- ``structures``: schedules that were costed in these seconds, over those of ``full``.
- ``absent``: ideas of Adams 2019, Anderson 2021 and others that the search does not have.

Only `PROGRAMS` are searched by default: about 30 schedules of one are compiled in a minute;
``--only`` chooses others. With the defaults, this takes an estimated 17 minutes when quiet, and
continues where it was stopped.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import common
import halide_labels
from tilewright.halide.ir.schedule import Schedule
from tilewright.halide.schedulers.analytic.cpu.nest_costs import TERMS
from tilewright.halide.schedulers.learned.beam_search import BeamSearch, Effort, Sizes, State
from tilewright.halide.schedulers.learned.cost_model import LearnedModel, shipped
from tilewright.halide.schedulers.learned.evaluation import Evaluator, Prior
from tilewright.halide.schedulers.learned.moves import Move
from tilewright.halide.schedulers.learned.part_features import NestFeatures

Data = dict[str, Any]
PROGRAMS = ("unsharp", "harris", "histogram", "iir_blur", "bilateral_grid", "max_filter")
SEEDS = (0, 1, 2)
SEARCH_SECONDS = 2.0  # CPU seconds of a search: the median of whole searches of the 18 programs
ROUNDS = 15
SECONDS = 15.0  # of rounds, for each program
CANDIDATE_SECONDS = 60.0
FULL = "full"
# Counts that never end a search: its CPU seconds do.
UNLIMITED = Effort(structures=10**9, visits=10**12, rounds=10**9, patience=10**9)
TRIED = 20  # best states that are adapted to all sizes, until one is legal
ABSENT = {
    "freezing": "costs of unchanged parts are kept instead (memo)",
    "passes": "no repeated passes with hierarchical sampling of structures",
    "buckets": "whole arrays of sizes are rated; sizes are not drawn from buckets",
    "compute_with": "no move shares the loops of two Funcs",
    "pruning": "no bound of a structure's time is known",
}


class TimedSearch(BeamSearch):
    """A beam search that ends after some CPU seconds; subclasses lack an idea."""

    deadline = math.inf
    naive_start_only = False

    def expand(self, beam: Sequence[State]) -> None:
        """Draw and cost moves until time is over."""
        for state in beam:
            for move, after in self._successors(state):
                if time.process_time() >= self.deadline:
                    self.most = self.structures  # ends the rounds
                    return
                self._successor(after, move, state)


class WithoutMemo(TimedSearch):
    """Nothing is kept from one evaluation to the next."""

    def costed(self, schedule: Schedule, moves: tuple[Move, ...] = ()) -> State | None:
        """As `BeamSearch.costed`, from scratch."""
        self.evaluator = Evaluator(self.task.algorithm, self.machine)
        return super().costed(schedule, moves)


class SingleRows(Evaluator):
    """Rates sizes one by one."""

    def features(self, schedule: Schedule, factors: Any = None) -> NestFeatures | None:
        """As `Evaluator.features`, with one row at a time."""
        if factors is None:
            return super().features(schedule)
        count = len(next(iter(factors.values())))
        rows = []
        for i in range(count):
            one = super().features(schedule, {at: row[i : i + 1] for at, row in factors.items()})
            if one is None:
                return None
            rows.append(one)
        return replace(
            rows[0],
            rows=np.concatenate([one.rows for one in rows]),
            roofline=np.concatenate([np.atleast_1d(one.roofline) for one in rows]),
            terms=np.concatenate([one.terms for one in rows]),
        )


class WithoutArrays(TimedSearch):
    """Sizes are rated one by one."""

    def __post_init__(self) -> None:
        """Replace the evaluator."""
        super().__post_init__()
        self.evaluator = SingleRows(self.task.algorithm, self.machine)


class WithoutSizes(TimedSearch):
    """A structure keeps the sizes that its move gives."""

    def _sizes(self, schedule: Schedule, func: int) -> Sizes:
        return {}


class LinearOnly(Evaluator):
    """Predicts what the linear model does."""

    def prior(self, schedule: Schedule) -> Prior | None:
        """The time of the linear model in seconds, without terms."""
        found = self.features(schedule)
        if found is None:
            return None
        seconds = math.exp(float(shipped().linear(found, self.model.clock_hz)[0]))
        return Prior(seconds, (0.0,) * len(TERMS))


class WithoutPrior(TimedSearch):
    """The analytic model is replaced by the linear one."""

    def __post_init__(self) -> None:
        """Replace the evaluator."""
        super().__post_init__()
        self.evaluator = LinearOnly(self.task.algorithm, self.machine)


class WithoutStarts(TimedSearch):
    """The search starts from the naive schedule only."""

    naive_start_only = True


@dataclass(frozen=True)
class Idea:
    """What can be turned off: a class of search, limits, moves that remain, parts of the model."""

    search: type[TimedSearch] = TimedSearch
    effort: Mapping[str, Any] | None = None
    keeps: Callable[[Any], bool] | None = None
    model: Callable[[LearnedModel], LearnedModel] = lambda model: model


def _without_linear(model: LearnedModel) -> LearnedModel:
    return replace(model, coefficients={})


def _without_correction(model: LearnedModel) -> LearnedModel:
    return replace(model, schedules=replace(model.schedules, members=()))


def _one_level(move: Any) -> bool:
    return len(getattr(getattr(move, "shape", None), "tiles", ())) <= 1


def _plain_block(move: Any) -> bool:
    shape = getattr(move, "shape", None)
    return shape is None or (shape.rows == 1 and shape.vectors == 1)


def _no_sliding(move: Any) -> bool:
    return type(move).__name__ != "ComputeAt" or move.store == move.compute


def _not(*kinds: str) -> Callable[[Any], bool]:
    return lambda move: type(move).__name__ not in kinds


IDEAS: dict[str, Idea] = {
    "memo": Idea(WithoutMemo),
    "arrays": Idea(WithoutArrays),
    "sizes": Idea(WithoutSizes),
    "prior": Idea(WithoutPrior),
    "linear model": Idea(model=_without_linear),
    "correction": Idea(model=_without_correction),
    "analytic starts": Idea(WithoutStarts),
    "beam": Idea(effort={"beam": 1}),
    "diversity": Idea(effort={"penalty": 1.0}),
    "several levels": Idea(keeps=_one_level),
    "register blocks": Idea(keeps=_plain_block),
    "sliding": Idea(keeps=_no_sliding),
    "reduction steps": Idea(keeps=_not("Steps")),
    "loop order": Idea(keeps=_not("Swap", "Remap")),
    "rfactor": Idea(keeps=_not("Factor")),
    "staging": Idea(keeps=_not("StageCopy")),
}


def without(idea: Idea, task: Any, seed: int, analytic: Schedule) -> TimedSearch:
    """A search that lacks an idea; with the default `Idea`, nothing."""
    effort = replace(UNLIMITED, **(idea.effort or {}))
    search = idea.search(task, idea.model(shipped()), effort, seed, analytic)
    keeps = idea.keeps
    if keeps is not None:
        draw = search._drawn
        search._drawn = lambda moves: draw([m for m in moves if keeps(m)])  # type: ignore[method-assign]
    return search


def searched(name: str, args: argparse.Namespace) -> Data:
    """What the searches find for a program, by idea and seed, as JSON data."""
    from tilewright.halide.ir.json import to_data
    from tilewright.halide.ir.nest import exact_size
    from tilewright.halide.schedulers.learned.sampling import SEEDS as STARTS
    from tilewright.halide.schedulers.learned.scheduler import planned_state
    from tilewright.halide.schedulers.registry import naive, plan

    task = halide_labels.task_of(name)
    analytic = [each.schedule for each in plan(task, k=STARTS)]
    starts = [*map(exact_size, analytic), naive(task)]
    judge = TimedSearch(task, shipped(), UNLIMITED, 0, analytic[0])
    found: Data = {"digest": task.algorithm.digest, "searches": {}}
    for seed in args.seeds:
        for key, idea in {FULL: Idea(), **args.ideas}.items():
            search = without(idea, task, seed, analytic[0])
            search.deadline = time.process_time() + args.search_seconds
            states = search.run(starts[-1:] if search.naive_start_only else starts)
            planned = _first(planned_state(state, None, task) for state in states[:TRIED])
            if planned is None:
                continue
            judged = judge.costed(exact_size(planned.schedule))
            found["searches"][f"{key}/{seed}"] = {
                "schedule": to_data(planned.schedule),
                "predicted": judged.seconds if judged else None,
                "structures": search.structures,
            }
    return found


def _first(items: Iterator[Any]) -> Any:
    return next((item for item in items if item is not None), None)


def measure(name: str, made: Data, args: argparse.Namespace) -> Data:
    """One program's row."""
    from tilewright.halide.execution.session import Session, Variant
    from tilewright.halide.ir.json import from_data
    from tilewright.halide.search.top_k import limits

    task = halide_labels.task_of(name)
    variants: dict[Any, Variant] = {}
    names = {}
    for key, entry in made["searches"].items():
        schedule = from_data(entry["schedule"], task.algorithm)
        names[key] = variants.setdefault(schedule, Variant(schedule, name=key)).name
    with Session(task.algorithm, limits=limits(CANDIDATE_SECONDS)) as session:
        finals = session.finals(list(variants.values()), args.rounds, seconds=args.seconds)
    ok = {
        c.key: m.ok and bool(m.times)
        for c, m in zip(finals.candidates, finals.measurements, strict=True)
    }
    row: Data = {
        "program": name,
        "schedules": len(variants),
        "our_failures": sum(not each for each in ok.values()),
        "losses": {},
    }
    for key, mine in names.items():
        idea, seed = key.rsplit("/", 1)
        full = names.get(f"{FULL}/{seed}")
        if idea == FULL or full is None or not (ok[mine] and ok[full]):
            continue
        ratio = 1.0 if mine == full else float(finals.ratio_interval(mine, full).estimate)
        ours, theirs = (made["searches"][f"{k}/{seed}"] for k in (idea, FULL))
        row["losses"].setdefault(idea, {})[seed] = {
            "loss": ratio,
            "predicted_loss": _quotient(ours["predicted"], theirs["predicted"]),
            "structures": ours["structures"] / theirs["structures"],
        }
    return row


def _quotient(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours and theirs else None


def summary(rows: list[Data], ideas: Sequence[str]) -> Data:
    """The figures that the claim is about."""
    result: Data = {
        "programs": len(rows),
        "our_failures": sum(row["our_failures"] for row in rows),
        "absent": ABSENT,
    }
    for idea in ideas:
        each = [list(row["losses"].get(idea, {}).values()) for row in rows]
        for key in ("loss", "predicted_loss", "structures"):
            values = [one[key] for some in each for one in some if one[key] is not None]
            result.setdefault(key, {})[idea] = common.geometric_mean(values) if values else None
        means = [
            mean
            for some in each
            if (mean := common.geometric_mean(one["loss"] for one in some)) is not None
        ]
        result.setdefault("loss_least", {})[idea] = min(means) if means else None
        result.setdefault("loss_most", {})[idea] = max(means) if means else None
    return result


def main() -> None:
    """Search, measure, write."""
    parser = common.arguments(__doc__.splitlines()[0], common.PROGRAMS)
    parser.add_argument("--search-seconds", type=float, default=SEARCH_SECONDS, help="of CPU")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of rounds, a program")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--ideas", nargs="+", choices=IDEAS, default=list(IDEAS))
    args = parser.parse_args()
    args.ideas = {key: IDEAS[key] for key in args.ideas}
    pieces = common.Pieces(args.work, "halide_learned_ablations", args.fresh)
    rows = []
    for name in common.chosen(args, common.PROGRAMS) if args.only else PROGRAMS:
        settings = f"{args.search_seconds:g}-{len(args.seeds)}-{len(args.ideas)}"
        made = pieces.get(f"{name}-{settings}", partial(searched, name, args))
        rows.append(pieces.get(f"{name}-{settings}-row", partial(measure, name, made, args)))
        print(line(rows[-1]), flush=True)
    common.write(
        args,
        "halide_learned_ablations",
        rows,
        summary(rows, list(args.ideas)),
        search_seconds=args.search_seconds,
        seeds=args.seeds,
    )


def line(row: Data) -> str:
    """One program, as it is finished."""
    shown = (
        f"{idea} {common.geometric_mean(one['loss'] for one in seeds.values()):.2f}"
        for idea, seeds in row["losses"].items()
    )
    return f"{row['program']:16} {row['schedules']} schedules; without {', '.join(shown)}"


if __name__ == "__main__":
    main()
