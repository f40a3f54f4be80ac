"""Converts columns of numbers to a model's standardised inputs: logarithms and reciprocals.

Only the training instances decide how a column is transformed and scaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
_FUNCTIONS = ("log", "plain", "reciprocal")


@dataclass(frozen=True)
class ModelInputs:
    """Functions of columns, standardised.

    Attributes:
        columns: the column that each input is computed from.
        functions: ``log``, ``plain`` or ``reciprocal`` for each input.
        floor: a lower limit for each input's column: a query at or below zero has no logarithm.
        mean: of each input over the training instances.
        std: of each input over the training instances.
    """

    columns: tuple[int, ...]
    functions: tuple[str, ...]
    floor: Array
    mean: Array
    std: Array

    @classmethod
    def fit(
        cls, data: Array, wanted: Sequence[int] | None = None, reciprocals: Sequence[int] = ()
    ) -> ModelInputs:
        """Choose inputs for columns of shape (n, columns), the important ones first.

        A column that does not vary gives no input, and neither does one whose input is a linear
        function of the earlier inputs (such as log(m n k) of log m, log n and log k).

        Args:
            data: shape (n, columns).
            wanted: the columns to use, by default all.
            reciprocals: columns, such as threads, whose reciprocal is an input as well.
        """
        chosen = range(data.shape[1]) if wanted is None else wanted
        every = [(j, "log" if data[:, j].min() > 0 else "plain") for j in chosen]
        every += [(j, "reciprocal") for j in reciprocals if data[:, j].min() > 0]
        kept: list[tuple[int, str]] = []
        values: list[Array] = []
        basis = [np.full(len(data), len(data) ** -0.5)]
        for j, function in every:
            value = _apply(function, data[:, j])
            rest = value.copy()
            for _ in range(2):  # twice, for accuracy
                for direction in basis:
                    rest -= (direction @ rest) * direction
            size = float(np.linalg.norm(rest))
            spread = float(np.linalg.norm(value - value.mean()))
            if spread <= 1e-9 * max(1.0, float(np.abs(value).max())) or size <= 1e-6 * spread:
                continue
            basis.append(rest / size)
            kept.append((j, function))
            values.append(value)
        stacked = np.stack(values, axis=1) if values else np.zeros((len(data), 0))
        columns = tuple(j for j, _ in kept)
        return cls(
            columns,
            tuple(function for _, function in kept),
            np.array(
                [data[:, j].min() * 1e-3 if f != "plain" else -np.inf for j, f in kept], dtype=float
            ),
            stacked.mean(axis=0),
            stacked.std(axis=0),
        )

    def only(self, kept: Sequence[int]) -> ModelInputs:
        """These inputs without all but the ``kept`` ones."""
        rows = list(kept)
        return ModelInputs(
            tuple(self.columns[i] for i in rows),
            tuple(self.functions[i] for i in rows),
            self.floor[rows],
            self.mean[rows],
            self.std[rows],
        )

    def strongest(self, data: Array, logs: Array, most: int) -> ModelInputs:
        """Return at most `most` of these inputs: those that together explain log times best.

        They are chosen one after the other, each the most correlated with the residual of a linear
        model of the earlier ones (orthogonal matching pursuit, Pati et al. 1993). Squares of the
        inputs count as well, for kernels that are slow at both ends of a range.

        Args:
            data: columns of shape (n, columns).
            logs: log times, shape (n,).
            most: the number of inputs.
        """
        if len(self) <= most:
            return self
        linear = self(data)
        squares = linear**2 - (linear**2).mean(axis=0)
        rest = logs - logs.mean()
        basis: list[Array] = []
        kept: list[int] = []
        while len(kept) < most:
            sizes = [np.maximum(np.linalg.norm(both, axis=0), 1e-9) for both in (linear, squares)]
            known = [np.abs(rest @ b) / z for b, z in zip((linear, squares), sizes, strict=True)]
            share = np.maximum(*known)
            share[kept] = -1.0
            kept.append(int(share.argmax()))
            for direction in (linear[:, kept[-1]].copy(), squares[:, kept[-1]].copy()):
                for other in basis:
                    direction -= (other @ direction) * other
                size = float(np.linalg.norm(direction))
                if size > 1e-6 * len(logs) ** 0.5:
                    basis.append(direction / size)
                    rest = rest - (basis[-1] @ rest) * basis[-1]
        return self.only(sorted(kept))

    def describe(self, names: Sequence[str]) -> list[str]:
        """Return each input as text, such as ``log(m)`` and ``1/threads``."""
        pattern = {"log": "log({})", "plain": "{}", "reciprocal": "1/({})"}
        return [
            pattern[function].format(names[j])
            for j, function in zip(self.columns, self.functions, strict=True)
        ]

    def raw(self, data: Array) -> Array:
        """Return inputs before they are standardised, shape (n, inputs)."""
        result = np.empty((len(data), len(self.columns)))
        for i, (j, function) in enumerate(zip(self.columns, self.functions, strict=True)):
            result[:, i] = _apply(function, np.maximum(data[:, j], self.floor[i]))
        return result

    def __call__(self, data: Array) -> Array:
        """Standardised inputs, shape (n, inputs), of columns of shape (n, columns)."""
        return (self.raw(data) - self.mean) / self.std

    def __len__(self) -> int:
        return len(self.columns)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {
            "columns": list(self.columns),
            "functions": list(self.functions),
            "floor": [value if np.isfinite(value) else None for value in self.floor.tolist()],
            "mean": self.mean.tolist(),
            "std": self.std.tolist(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ModelInputs:
        """Return the inverse of `to_dict`."""
        functions = tuple(str(function) for function in data["functions"])
        if not set(functions) <= set(_FUNCTIONS):
            raise ValueError(f"functions are {functions}")
        floor = [-np.inf if value is None else float(value) for value in data["floor"]]
        return cls(
            tuple(int(column) for column in data["columns"]),
            functions,
            np.array(floor, dtype=float),
            np.asarray(data["mean"], dtype=float),
            np.asarray(data["std"], dtype=float),
        )


def _apply(function: str, column: Array) -> Array:
    if function == "log":
        return np.log(column)
    return 1.0 / column if function == "reciprocal" else column.astype(float)
