"""Converts users' data to one table of numbers with named columns."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tilewright.prediction.data.runs import read_csv
from tilewright.prediction.errors import PredictionError, WrongTypeError

__all__ = ["names_of", "read_csv", "table", "times"]

Array: TypeAlias = np.ndarray[Any, Any]


def names_of(data: Any, features: Sequence[str] | None) -> tuple[str, ...]:
    """Return the feature names: those given, else the data's own, else ``x0``, ``x1``, ..."""
    _check_dense(data)
    if features is not None:
        names = tuple(features)
    elif hasattr(data, "columns"):
        names = tuple(str(name) for name in data.columns)
    elif isinstance(data, Mapping):
        names = tuple(data)
    elif isinstance(data, list | tuple) and data and isinstance(data[0], Mapping):
        names = tuple(data[0])
    else:
        try:
            shape = np.asarray(data).shape
        except ValueError:
            raise PredictionError("the rows of X have different lengths") from None
        if len(shape) != 2:
            raise PredictionError(
                f"X has {len(shape)} dimensions; give a table of shape (instances, features). "
                "Reshape your data: X.reshape(-1, 1) for one feature"
            )
        if not shape[1]:
            raise PredictionError(
                f"X has 0 feature(s) (shape={shape}) while a minimum of 1 is required: give one"
            )
        names = tuple(f"x{i}" for i in range(shape[1]))
    if len(set(names)) != len(names):
        raise PredictionError(f"feature names repeat: {', '.join(names)}; name each once")
    if not names:
        raise PredictionError("there are no features; give at least one column")
    strange = [name for name in names if not isinstance(name, str)]
    if strange:
        raise PredictionError(f"the feature name {strange[0]!r} is not text; name features by text")
    return names


def table(
    data: Any, names: Sequence[str], levels: Mapping[str, Sequence[str]] | None = None
) -> Array:
    """Return floats of shape (n, features) from an array, a data frame, rows or columns by name.

    `levels` has the words of features that are words, in the order of their numbers.

    Raises:
        PredictionError: a column missing, the wrong number of columns, or values that are
            missing or not numbers.
    """
    if type(data) is np.ndarray and data.dtype == np.float64 and data.ndim == 2:
        array = data
    else:
        array = _numbers(data, names, levels or {})
    if array.ndim != 2 or array.shape[1] != len(names):
        cure = "" if array.ndim == 2 else ". Reshape your data: X.reshape(1, -1) for one instance"
        raise PredictionError(
            f"X has shape {array.shape}; it needs {len(names)} columns: {', '.join(names)}{cure}"
        )
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise PredictionError(
            f"feature {names[column]!r} is {str(array[row, column]).replace('nan', 'NaN')} in row "
            f"{row}; "
            "drop such rows or fill them in"
        )
    return array


def _numbers(data: Any, names: Sequence[str], levels: Mapping[str, Sequence[str]]) -> Array:
    _check_dense(data)
    rows = _rows(data, names, object if levels else None)
    if levels:
        rows = _coded(rows, names, levels)
    if isinstance(rows, np.ma.MaskedArray):
        rows = np.ma.filled(rows.astype(float), np.nan)
    try:
        if isinstance(rows, np.ndarray) and rows.dtype.kind == "c":
            raise ValueError("Complex data not supported")
        return np.asarray(rows, dtype=float)
    except (TypeError, ValueError) as error:
        kind = WrongTypeError if isinstance(error, TypeError) else PredictionError
        raise kind(
            f"X holds something that is not a number ({error}); encode settings as numbers"
        ) from None


def _check_dense(data: Any) -> None:
    if hasattr(data, "toarray"):
        raise PredictionError("X is a sparse matrix, which is not supported: give X.toarray()")


def _rows(data: Any, names: Sequence[str], kind: type | None) -> Any:
    """Return the values of these features row by row, from any supported form of data.

    Args:
        data: a mapping from names to columns or to one row's numbers, a list of such rows, a
            data frame, or rows already.
        names: the features.
        kind: the type of a data frame's values; None leaves them as they are.
    """
    if isinstance(data, Mapping):
        columns = [np.atleast_1d(np.asarray(_of(data, name), dtype=object)) for name in names]
        if len({len(column) for column in columns}) > 1:
            raise PredictionError("the columns have different lengths; give each instance a value")
        return np.stack(columns, axis=1)
    if isinstance(data, list | tuple) and data and isinstance(data[0], Mapping):
        return [[_of(row, name) for name in names] for row in data]
    if hasattr(data, "columns") and hasattr(data, "__getitem__"):
        absent = [name for name in names if name not in list(map(str, data.columns))]
        if absent:
            raise PredictionError(f"the data have no column {', '.join(absent)}")
        by_name = dict(zip(map(str, data.columns), data.columns, strict=True))
        return np.stack([np.asarray(data[by_name[name]], dtype=kind) for name in names], axis=1)
    return data


def _coded(rows: Any, names: Sequence[str], levels: Mapping[str, Sequence[str]]) -> Any:
    """Return words as their numbers; numbers stay unchanged."""
    cells = np.array(rows, dtype=object)
    if cells.ndim != 2 or cells.shape[1] != len(names):
        return rows
    for j, name in enumerate(names):
        if name not in levels:
            continue
        place = {word: float(i) for i, word in enumerate(levels[name])}
        for i, cell in enumerate(cells[:, j]):
            if isinstance(cell, str):
                if cell not in place:
                    raise PredictionError(
                        f"feature {name!r} is {cell!r} in row {i}, which is none of "
                        f"{', '.join(place)}"
                    )
                cells[i, j] = place[cell]
    return cells


def _of(row: Mapping[str, Any], name: str) -> Any:
    if not isinstance(row, Mapping):
        raise PredictionError(f"a row is {row!r}; give all rows by name, or none")
    try:
        return row[name]
    except KeyError:
        raise PredictionError(
            f"feature {name!r} is missing; there are {', '.join(map(str, row))}"
        ) from None


def _warn_of_a_column() -> None:
    theirs = sys.modules.get("sklearn.exceptions")
    kind = UserWarning if theirs is None else theirs.DataConversionWarning
    text = "A column-vector y was passed when a 1d array was expected; it is used as one"
    warnings.warn(text, kind, stacklevel=4)


def times(y: Any, count: int) -> Array:
    """Run times in seconds, shape (count,); NumPy's and pandas' durations are turned into them.

    Raises:
        PredictionError: another number of times, or times that are not positive and finite.
    """
    if y is None:
        raise PredictionError("this requires y to be passed, but the target y is None: give times")
    try:
        given = np.asarray(y)
        if given.dtype.kind == "c":
            raise TypeError("these are complex")
        if given.dtype.kind == "m":
            given = given / np.timedelta64(1, "s")
        if given.ndim > 1:
            _warn_of_a_column()
        seconds = np.asarray(given, dtype=float).reshape(-1)
    except (TypeError, ValueError) as error:
        raise PredictionError(f"times must be numbers of seconds: {error}") from None
    if len(seconds) != count:
        raise PredictionError(f"there are {count} instances but {len(seconds)} times")
    bad = np.flatnonzero(~(np.isfinite(seconds) & (seconds > 0)))
    if len(bad):
        raise PredictionError(
            f"the time of row {bad[0]} is {seconds[bad[0]]} s; drop failed runs, "
            "times are positive and finite"
        )
    return seconds
