"""Our default model of run time: see `tilewright.prediction.models.surface` for its form.

Beyond the paper: log time of log sizes, a sum of monomials added to the hidden layer, second-order
training on a relative error that is robust to outliers, a choice among such configurations by
cross-validation, which also gives the intervals, and a Gaussian process as a teacher of the chosen.

| symbol | meaning | shape, unit |
|---|---|---|
| `data`, `seconds` | features and run times of the instances | (n, features), (n,) |
| `columns` | features, then the values of `expressions_` | (n, columns) |
| `logs`, `centre_` | logarithms of the times, and their median | (n,), log seconds |
| `place` | fold of each instance in the cross-validation | (n,) |
| `theta` | parameters of the surface | (count,) |
| `committee_` | those of the folds' models, also as before a teacher | (models, count) |
| `held_out_` | instances of the cross-validation, and their held-out log times | (part,), (part,) |
| `process_` | the teacher's Gaussian process, of all instances; None without one | |
| `probes` | made-up queries, to compare the folds' models on | (probes, features) |
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, ClassVar, TypeAlias

import numpy as np
from threadpoolctl import threadpool_limits

from tilewright.prediction.errors import PredictionError
from tilewright.prediction.models import candidate_inputs as extras
from tilewright.prediction.models.complexity import Complexity
from tilewright.prediction.models.distillation import Teacher, shuffled
from tilewright.prediction.models.estimator import Estimator
from tilewright.prediction.models.gaussian_process import GaussianProcess
from tilewright.prediction.models.inputs import ModelInputs
from tilewright.prediction.models.intervals import IntervalCalibration
from tilewright.prediction.models.model_selection import (
    ScoredConfiguration,
    SelectionProblem,
    capped,
    choose,
    score,
    train,
    with_ones,
)
from tilewright.prediction.models.surface import Shape, value

_MOST = 600  # instances of the cross-validation
_FEWEST = 20  # instances for a teacher
_CHOOSING, _TEACHING = 0.275, 0.55  # shares of the time after which neither begins anything
_TRAINED = 5000  # instances; below this, few numbers are fitted
_PROBES = 1000  # of each kind
_BEYOND = 4.0  # times the sizes of an instance
_SIZES = 8  # minimum number of distinct values of a feature that is probed beyond its range
# A model that is far from those of the folds for a larger share of the probes is chosen only if no
# other is about as good.
_UNSTEADY, _AS_GOOD = 0.02, 1.15
_THREADS = set("threads nthreads n_threads num_threads thread workers cores procs".split())
Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(eq=False)
class Augmented(Estimator):
    """Run time from at most ``max_parameters`` fitted numbers, in at most 4 s.

    Args:
        max_parameters: the limit on weights and biases (standardisation by the training
            instances' statistics is not counted).
        threads: the features that count threads; by default those called threads.
        work: expressions of actual work, such as non-zeros, used in addition to the
            complexity. Without them, expressions such as how full a sparse product is are tried.
        max_seconds: CPU seconds of training. No further configuration is tried after a quarter of
            it, and after half of it no Gaussian process teaches the chosen one. None for no limit,
            so that the choice is the same everywhere.
    """

    kind: ClassVar[str] = "augmented"

    max_parameters: int = 75
    threads: tuple[str, ...] | list[str] | None = None
    work: tuple[str, ...] | list[str] | None = None
    max_seconds: float | None = 4.0

    def _fit(self, data: Array, seconds: Array) -> None:
        if isinstance(self.max_parameters, bool) or not isinstance(self.max_parameters, int):
            raise PredictionError(
                f"max_parameters is {self.max_parameters!r}; give a whole number (for no limit "
                "use Boosted, GaussianProcess, or Auto, which chooses)"
            )
        # Imported before the time for training begins to count.
        import_module("scipy.optimize")
        with threadpool_limits(1):
            self._choose(data, seconds)

    def _choose(self, data: Array, seconds: Array) -> None:
        began = time.thread_time()
        some = np.arange(len(data))
        if len(data) > _TRAINED:
            some = np.random.default_rng([self.seed, 5]).permutation(len(data))[:_TRAINED]
            data, seconds = data[some], seconds[some]
        threads = frozenset(self._threads())
        always = [self.complexity] if self.complexity is not None else []
        always += list(self.work or [])
        counts = [self.names_[j] for j in sorted(threads)]
        self.expressions_ = [*always, *extras.expressions(self.names_, data, counts)]
        self._parsed = [Complexity(text, self.names_) for text in self.expressions_]
        columns = self._columns(data)
        logs = np.log(seconds)
        self.centre_ = float(np.median(logs))
        random = np.random.default_rng([self.seed, 1])
        # The maximum number of instances used to choose and to calibrate.
        part = random.permutation(len(data))[:_MOST]
        folds = max(2, min(self.folds or 5, len(part)))
        first = self.n_features_in_ + len(always)
        limit = np.inf if self.max_seconds is None else self.max_seconds
        problem = SelectionProblem(
            columns=columns[part],
            names=(*self.names_, *self.expressions_),
            features=self.n_features_in_,
            targets=logs[part] - self.centre_,
            place=np.arange(len(part)) % folds,
            threads=threads,
            optional=tuple(range(first, columns.shape[1])),
            limit=self.max_parameters,
            seed=self.seed,
            until=began + _CHOOSING * limit,
        )
        choices = choose(problem)
        probes = self._probes(data)
        choice, theta = self._steadiest(choices, problem, columns, logs - self.centre_, probes)
        in_time = time.thread_time() <= began + _TEACHING * limit
        share, self.process_ = 0.0, None
        if _FEWEST <= len(data) <= _MOST and in_time:
            process = self._process(data[part], seconds[part])
            taught = problem, data[part], process, probes
            choice, theta, share = self._taught(choice, theta, *taught)
            self.process_ = process.renumbered(part)
        self._keep(choice, theta)
        held_out = np.clip(choice.held_out + self.centre_, -200, 200)
        self.held_out_ = some[part], held_out
        if self.folds > 1:
            spread = self._spread(data[part])
            self.calibration_ = IntervalCalibration.fit(np.exp(held_out), seconds[part], spread)
        self.parameter_count_ = self.shape_.count
        assert self.parameter_count_ <= self.max_parameters
        self.chosen_ = {
            **choice.report(problem.names),
            "teacher": share,
            "tried": [other.report(problem.names) for other in choices],
        }

    def _steadiest(
        self,
        choices: Sequence[ScoredConfiguration],
        problem: SelectionProblem,
        columns: Array,
        targets: Array,
        probes: Array,
    ) -> tuple[ScoredConfiguration, Array]:
        """Return the best configuration that is stable at the probes, fitted to all data."""
        fits: list[tuple[float, ScoredConfiguration, Array]] = []
        for choice in choices[:4]:
            if choice.error > _AS_GOOD * choices[0].error:
                break
            theta, far = train(choice, columns, targets, problem.threads, self.seed, probes)
            fitted = value(choice.shape, theta[None], with_ones(choice.inputs(columns)))[0]
            # A fit to all data that is much worse than those to the folds has diverged.
            before = score(choice.held_out, problem.targets)
            if score(fitted, targets) > 1.5 * before + 1e-3:
                continue
            fits.append((far, choice, theta))
            if far <= _UNSTEADY:
                break
        first = (1.0, choices[0], choices[0].models[0])
        _, choice, theta = min(fits, key=lambda fit: fit[0], default=first)
        return choice, theta

    def _process(self, data: Array, seconds: Array) -> GaussianProcess:
        named = {"features": self.names_, "complexity": self.complexity, "seed": self.seed}
        return GaussianProcess(folds=0).set_params(**named).fit(data, seconds)

    def _taught(
        self,
        choice: ScoredConfiguration,
        theta: Array,
        problem: SelectionProblem,
        data: Array,
        process: GaussianProcess,
        probes: Array,
    ) -> tuple[ScoredConfiguration, Array, float]:
        """Return the configuration trained on a teacher's answers, if that reduces its error.

        The last is the weight of the Gaussian process in the teacher, 0 without a teacher.
        """
        problem = capped(problem, choice.held_out)
        teacher = Teacher(problem, choice, theta, process, self.centre_, data)
        if not teacher.share:
            return choice, theta, 0.0
        made = shuffled(data, self.seed)
        columns = np.column_stack([made, *(expression(made) for expression in self._parsed)])
        sound = np.isfinite(columns).all(axis=1)
        if not sound.any():
            return choice, theta, 0.0
        folds = teacher.folds(made[sound], columns[sound])
        if folds.error >= score(choice.held_out, problem.targets, problem.cap):
            return choice, theta, 0.0
        taught, far = teacher.student(folds, probes)
        if far > _UNSTEADY:
            return choice, theta, 0.0
        # Students agree where their teachers do, also where none of them has seen anything; the
        # models before a teacher continue as each fold's instances say.
        return replace(folds, models=(*folds.models, *choice.models)), taught, teacher.share

    def _probes(self, data: Array) -> Array:
        """Return columns of made-up queries, among the instances and around them.

        Some mix the features of two instances, some lie between two, some have one feature up to
        `_BEYOND` times smaller or larger.
        """
        random = np.random.default_rng([self.seed, 4])
        one, other = data[random.integers(0, len(data), (2, _PROBES))]
        mixed = np.where(random.random(one.shape) < 0.5, one, other)
        made = np.vstack([mixed, self._between(one, other, random), self._beyond(data, random)])
        columns = np.column_stack([made, *(expression(made) for expression in self._parsed)])
        sound = np.isfinite(columns).all(axis=1)
        return np.vstack([columns[sound], self._columns(data[:_PROBES])])

    def _between(self, one: Array, other: Array, random: np.random.Generator) -> Array:
        """Return queries between pairs of instances, features rounded where all are whole."""
        share = random.random((len(one), 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            geometric = np.exp(share * np.log(one) + (1 - share) * np.log(other))
        made = np.where((one > 0) & (other > 0), geometric, one)
        whole = (one == np.round(one)).all(axis=0)
        return np.where(whole, np.round(made), made)

    def _beyond(self, data: Array, random: np.random.Generator) -> Array:
        """Return instances with one of their sizes made smaller or larger."""
        low, high = self.ranges_
        sizes = [
            j for j in range(data.shape[1]) if low[j] > 0 and len(np.unique(data[:, j])) >= _SIZES
        ]
        made = data[random.integers(0, len(data), _PROBES if sizes else 0)]
        if sizes:
            rows, chosen = np.arange(len(made)), random.choice(sizes, len(made))
            factor = _BEYOND ** random.uniform(-1, 1, len(made))
            value = made[rows, chosen] * factor
            whole = (data == np.round(data)).all(axis=0)[chosen]
            value = np.where(whole, np.maximum(np.round(value), 1), value)
            made[rows, chosen] = np.minimum(value, np.where(high[chosen] <= 1, 1.0, np.inf))
        return made

    def _keep(self, choice: ScoredConfiguration, theta: Array) -> None:
        """Store the chosen model, with only those expressions that it uses."""
        count = self.n_features_in_
        used = sorted({j for j in choice.inputs.columns if j >= count})
        places = {j: j for j in range(count)} | {j: count + i for i, j in enumerate(used)}
        self.expressions_ = [self.expressions_[j - count] for j in used]
        self.inputs_ = replace(
            choice.inputs, columns=tuple(places[j] for j in choice.inputs.columns)
        )
        self.shape_, self.theta_ = choice.shape, theta
        self.committee_ = np.stack(choice.models)
        self._prepare()

    def _prepare(self) -> None:
        self._parsed = [Complexity(text, self.names_) for text in self.expressions_]
        self._ready = self.folded()

    def _columns(self, data: Array) -> Array:
        """Return the features, then the expressions."""
        if not self.expressions_:
            return data
        return np.column_stack([data, *(parsed.column(data) for parsed in self._parsed)])

    def _threads(self) -> set[int]:
        """Return the columns that count threads."""
        names = [name.lower() for name in self.names_]
        if self.threads is None:
            return {j for j, name in enumerate(names) if name in _THREADS}
        absent = [name for name in self.threads if name not in self.names_]
        if absent:
            raise PredictionError(f"threads names {', '.join(absent)}, which is not a feature")
        return {self.names_.index(name) for name in self.threads}

    def _predict(self, data: Array) -> Array:
        terms, units, outputs = self._ready
        columns = self._columns(data)
        inputs = with_ones(self.inputs_.raw(columns))
        with np.errstate(over="ignore"):
            total = np.exp(terms @ inputs).sum(axis=0)
            if len(units):
                total *= np.exp(outputs @ np.tanh(units @ inputs))
        return np.asarray(total)

    def _spread(self, data: Array) -> Array | None:
        """Return how far the folds' models are from ours, root mean square in log time, (n,)."""
        if not len(self.committee_):  # a model that was stored before they were
            return None
        inputs = with_ones(self.inputs_(self._columns(data)))
        with np.errstate(over="ignore", invalid="ignore"):
            own = value(self.shape_, self.theta_[None], inputs)
            squares = (value(self.shape_, self.committee_, inputs) - own) ** 2
        return np.asarray(np.sqrt(np.nan_to_num(squares, nan=np.inf).mean(axis=0)))

    def folded(self) -> tuple[Array, Array, Array]:
        """Return terms, units (constants last) and outputs for inputs before standardisation.

        The median log time is in the terms' constants, so that the model gives seconds.
        """
        terms, units, outputs = self.shape_.split(self.theta_)
        rows = []
        for block in (terms, units):
            weights = block[:, :-1] / self.inputs_.std
            constant = block[:, -1] - weights @ self.inputs_.mean
            rows.append(np.column_stack([weights, constant]))
        rows[0][:, -1] += self.centre_
        return rows[0], rows[1], outputs

    def _state(self) -> dict[str, Any]:
        return {
            "expressions": list(self.expressions_),
            "inputs": self.inputs_.to_dict(),
            "shape": [self.shape_.inputs, self.shape_.terms, self.shape_.hidden],
            "theta": self.theta_.tolist(),
            "committee": self.committee_.tolist(),
            "centre": self.centre_,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.inputs_ = ModelInputs.from_dict(state["inputs"])
        self.shape_ = Shape(*(int(number) for number in state["shape"]))
        self.theta_ = np.asarray(state["theta"], dtype=float)
        if len(self.theta_) != self.shape_.count:
            raise ValueError("another number of parameters")
        self.committee_ = np.asarray(state.get("committee", []), dtype=float)
        if len(self.committee_) and self.committee_.shape[1:] != self.theta_.shape:
            raise ValueError("the folds' models have another number of parameters")
        self.centre_ = float(state["centre"])
        self.expressions_ = [str(text) for text in state["expressions"]]
        self._prepare()
