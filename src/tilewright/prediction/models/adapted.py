"""Models of other machines, adapted to this one by a few runs here.

The logarithm of a time on this machine is modelled as a Gaussian process around the predictions of
the models of other machines (the sources): the same code is slow there for the same reasons, by
other factors.

| symbol | meaning | shape, unit |
|---|---|---|
| `known` | log seconds that the sources predict | (n, sources) |
| `inputs` | standardised logarithms of features and complexity | (n, inputs) |
| `rest` | log measured seconds less the mean of `known` and of that over the runs | (n,), log |
| τ | standard deviation of the sources' weights around equal ones | 1 |
| σ | standard deviation of a smooth function of the inputs that no source has | log |
| ℓ | its length, in standard deviations of all inputs together | 1 |
| ν | standard deviation of the noise | log |

Covariance of `rest`: K = level² + τ² known knownᵀ + σ² Matérn(inputs / ℓ) + ν² I, `known` centred.
τ, σ, ℓ and ν maximise the marginal likelihood on a grid (Rasmussen and Williams 2006, equation
2.30): twenty runs carry too little information for more.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np

from tilewright.prediction.errors import PredictionError
from tilewright.prediction.models.augmented import Augmented
from tilewright.prediction.models.estimator import Estimator
from tilewright.prediction.models.gaussian_process import matern
from tilewright.prediction.models.inputs import ModelInputs
from tilewright.prediction.models.intervals import IntervalCalibration

Array: TypeAlias = np.ndarray[Any, Any]
_LEVEL = 1.0  # log; standard deviation of the factor between machines around the factor of the runs
_TRUSTS = (0.0, 0.1, 0.3, 1.0)  # values of τ that are tried
_OWN = (0.0, 0.1, 0.2, 0.4, 0.8)  # of σ
_LENGTHS = (0.7, 1.5, 3.0)  # of ℓ
_NOISES = (0.02, 0.05, 0.1, 0.2, 0.4)  # of ν
_NUMBERS = ("trust", "own", "length", "noise")
# Standard errors of the difference by which a model of the runs alone has to be better: it is the
# best of many, so that among few runs it looks good by chance.
_CERTAIN = 2.0
_CAP = 2.0  # maximum relative error of a held-out run
_MOST = 1000  # runs: with more, a model fitted to them alone is as good, and the covariance is slow


@dataclass(eq=False)
class Adapted(Estimator):
    """A model of run time on one machine from models of others and a few runs on this one.

    Args:
        sources: fitted models of the same kernel on other machines, whose features are among those
            of the runs.

    If `Augmented` of the runs alone cross-validates better, by two standard errors over pairs of
    runs, it is the model.

    After ``fit``, ``chosen_`` has ``trust`` (τ), ``own`` (σ), ``length`` (ℓ) and ``noise`` (ν), and
    ``errors``, the mean relative errors of the two in cross-validation, each at most 2.
    """

    kind: ClassVar[str] = "adapted"

    sources: tuple[Estimator, ...] | list[Estimator] = ()

    def _fit(self, data: Array, seconds: Array) -> None:
        if not self.sources:
            raise PredictionError("there is no source: give fitted models of other machines")
        if len(data) > _MOST:
            raise PredictionError(
                f"{len(data)} runs are more than the {_MOST} that a model is adapted with: fit a "
                f"model to these runs alone"
            )
        columns, known = self._with_complexity(data), self._known(data)
        self.inputs_ = ModelInputs.fit(columns)
        self.points_ = self.inputs_(columns)
        rest = np.log(seconds) - known.mean(axis=1)
        self.middle_, self.shift_ = known.mean(axis=0), float(rest.mean())
        self.known_, rest = known - self.middle_, rest - self.shift_
        likely = max(
            itertools.product(_TRUSTS, _OWN, _LENGTHS, _NOISES), key=self._likelihood(rest)
        )
        self._condition(dict(zip(_NUMBERS, likely, strict=True)), rest)
        self.parameter_count_ = len(rest) + sum(source.parameter_count_ for source in self.sources)
        self.alone_: Augmented | None = None
        if self.folds > 1 and len(data) > 2:
            held_out, spread = self._held_out(data, seconds)
            self.calibration_ = IntervalCalibration.fit(held_out, seconds, spread)
            self._compare(data, seconds, held_out)

    def _held_out(self, data: Array, seconds: Array) -> tuple[Array, Array]:
        """Return seconds and spread of each run by a model without its fold, (n,) each."""
        folds = min(self.folds, len(data))
        place = np.random.default_rng([self.seed, 1]).permutation(len(data)) % folds
        found, spread = np.empty(len(data)), np.empty(len(data))
        for fold in range(folds):
            out = place == fold
            model = Adapted(**{**self.get_params(), "features": self.names_, "folds": 0})
            model.fit(data[~out], seconds[~out])
            found[out], spread[out] = model._centre(data[out]), model._spread(data[out])
        return found, spread

    def _compare(self, data: Array, seconds: Array, held_out: Array) -> None:
        """Use a model of the runs alone if it is clearly better: no source resembles them."""
        alone = Augmented(
            features=self.names_, complexity=self.complexity, folds=self.folds, seed=self.seed
        ).fit(data, seconds)
        assert self.calibration_ is not None
        assert alone.calibration_ is not None
        rows, logs = alone.held_out_
        one, other = (
            np.minimum(np.abs(found / seconds[rows] - 1), _CAP)
            for found in (held_out[rows], np.exp(logs))
        )
        gain = one - other
        if gain.mean() > _CERTAIN * gain.std(ddof=1) / len(gain) ** 0.5:
            self.alone_, self.calibration_ = alone, alone.calibration_
            self.parameter_count_ = alone.parameter_count_
        self.chosen_["errors"] = {"adapted": float(one.mean()), "alone": float(other.mean())}

    def _likelihood(self, rest: Array) -> Any:
        """Return the log marginal likelihood of the runs as a function of τ, σ, ℓ and ν."""
        squares = self.known_ @ self.known_.T
        smooth = {length: self._smooth(self.points_, length) for length in _LENGTHS}

        def score(numbers: tuple[float, ...]) -> float:
            trust, own, length, noise = numbers
            gram = _LEVEL**2 + trust**2 * squares + own**2 * smooth[length]
            factor = np.linalg.cholesky(gram + noise**2 * np.eye(len(rest)))
            half = np.linalg.solve(factor, rest)
            return float(-0.5 * half @ half - np.log(np.diag(factor)).sum())

        return score

    def _condition(self, chosen: dict[str, float], rest: Array) -> None:
        """Condition the process with these numbers on the runs."""
        self.chosen_ |= chosen
        self.rest_ = rest
        noise = chosen["noise"] ** 2 * np.eye(len(rest))
        gram = self._covariance(self.points_, self.known_) + noise
        self.inverse_ = np.linalg.inv(gram)
        self.weights_ = self.inverse_ @ rest

    def _known(self, data: Array) -> Array:
        """Return the log seconds that the sources predict, shape (n, sources)."""
        places = {name: i for i, name in enumerate(self.names_)}
        found = []
        for source in self.sources:
            missing = [name for name in source.names_ if name not in places]
            if missing:
                raise PredictionError(f"the runs have no column {missing[0]}, which a source needs")
            found.append(np.log(source._centre(data[:, [places[n] for n in source.names_]])))
        return np.column_stack(found)

    def _smooth(self, points: Array, length: float) -> Array:
        """Return correlations of a smooth function of the inputs with the runs', (n, runs)."""
        if not len(self.inputs_):
            return np.ones((len(points), len(self.points_)))
        reach = length * np.sqrt(len(self.inputs_))
        return matern(points / reach, self.points_ / reach)

    def _covariance(self, points: Array, known: Array) -> Array:
        c = self.chosen_
        linear = c["trust"] ** 2 * known @ self.known_.T
        return np.asarray(_LEVEL**2 + linear + c["own"] ** 2 * self._smooth(points, c["length"]))

    def _at(self, data: Array) -> tuple[Array, Array]:
        """Return covariances of queries with the runs, (n, runs), and the sources' logs there."""
        known = self._known(data)
        points = self.inputs_(self._with_complexity(data))
        return self._covariance(points, known - self.middle_), known

    def _predict(self, data: Array) -> Array:
        if self.alone_ is not None:
            return self.alone_._predict(data)
        covariance, known = self._at(data)
        return np.asarray(np.exp(known.mean(axis=1) + self.shift_ + covariance @ self.weights_))

    def _spread(self, data: Array) -> Array | None:
        if self.alone_ is not None:
            return self.alone_._spread(data)
        covariance, known = self._at(data)
        c, centred = self.chosen_, known - self.middle_
        own = _LEVEL**2 + c["trust"] ** 2 * (centred**2).sum(axis=1) + c["own"] ** 2
        left = own - ((covariance @ self.inverse_) * covariance).sum(axis=1)
        return np.asarray(np.sqrt(np.maximum(left, 0.0)))

    def to_dict(self) -> dict[str, Any]:
        """Return the fitted model as JSON data, its sources included."""
        found = super().to_dict()
        found["params"]["sources"] = [source.to_dict() for source in self.sources]
        return found

    @classmethod
    def _from_dict(cls, data: dict[str, Any]) -> Self:
        sources = [Estimator.from_dict(source) for source in data["params"]["sources"]]
        return super()._from_dict({**data, "params": {**data["params"], "sources": sources}})

    def _state(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs_.to_dict(),
            "points": self.points_.tolist(),
            "known": self.known_.tolist(),
            "middle": self.middle_.tolist(),
            "shift": self.shift_,
            "rest": self.rest_.tolist(),
            "alone": None if self.alone_ is None else self.alone_.to_dict(),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.inputs_ = ModelInputs.from_dict(state["inputs"])
        alone = state["alone"]
        self.alone_ = None if alone is None else Augmented.from_dict(alone)
        self.middle_ = np.asarray(state["middle"], dtype=float)
        self.shift_ = float(state["shift"])
        rest = np.asarray(state["rest"], dtype=float)
        self.known_ = np.asarray(state["known"], dtype=float).reshape(len(rest), len(self.sources))
        self.points_ = np.asarray(state["points"], dtype=float)
        self.points_ = self.points_.reshape(len(rest), len(self.inputs_))
        self._condition({name: float(self.chosen_[name]) for name in _NUMBERS}, rest)
