"""Users' own kernels: a Python function or a command, with the ranges of its parameters."""

from __future__ import annotations

import hashlib
import inspect
import math
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.measure import filled, last_words, names_in, run_to_end
from tilewright.prediction.data.kernel import Array, Instance, Kernel, KernelVariant, Operands, Run
from tilewright.prediction.errors import PredictionError
from tilewright.prediction.models.complexity import Complexity

Range = tuple[float, float] | Sequence[float]
COMMAND_SECONDS = 60.0


def from_callable(
    function: Callable[..., Any],
    ranges: Mapping[str, Range],
    complexity: str,
    *,
    name: str = "",
    units: Mapping[str, str] | None = None,
    make: Callable[..., Mapping[str, Any]] | None = None,
    reference: Callable[..., Array] | None = None,
    variants: Mapping[str, Callable[..., Any]] | None = None,
    files: Sequence[str] = (),
) -> Kernel:
    """Return a kernel of a Python function.

    >>> kernel = from_callable(lambda n: sum(range(n)), {"n": (1, 1000)}, "n", name="total")
    >>> kernel.variants["lambda"].prepare({"n": 4})()
    6

    Args:
        function: called with the operands as keywords; its run time is predicted.
        ranges: per feature a tuple of its ends (whole numbers only if both are), or its choices.
        complexity: the number of operations, an expression of the features.
        name: the kernel's name; by default the function's.
        units: units of the features.
        make: makes the operands from the features, given as keywords, and ``rng``; by default
            the features are the operands.
        reference: the right answer from the operands; without it answers are not verified.
        variants: other implementations by name, called like `function`.
        files: further code; runs recorded before one of them was changed are not looked up.

    Raises:
        PredictionError: a range that is empty or not of numbers, no range at all, or a
            complexity that is not an expression of the features.
    """
    spaces = _spaces(ranges)
    Complexity(complexity, tuple(spaces))
    # Workers make the kernel again; they may have been started in another folder.
    files = [str(Path(file).resolve()) for file in files]
    called = getattr(function, "__name__", "function").strip("<>")
    made = _UserKernel(name or called, spaces, make, reference)
    arguments = {"function": function, "ranges": ranges, "complexity": complexity, "name": name}
    arguments |= {"units": units, "make": make, "reference": reference}
    arguments |= {"variants": variants, "files": files}
    return Kernel(
        made.name,
        {feature: (units or {}).get(feature, "1") for feature in spaces},
        complexity,
        made.draw,
        made.operands,
        made.answer if reference is not None else None,
        made.describe,
        _variants({called: function, **(variants or {})}, make, ranges, files),
        origin=("tilewright.prediction.data.user_kernels:from_callable", arguments),
    )


def _variants(
    functions: Mapping[str, Callable[..., Any]],
    make: Callable[..., Mapping[str, Any]] | None,
    ranges: Mapping[str, Range],
    files: Sequence[str],
) -> dict[str, KernelVariant]:
    """Return a variant for each function, measured in a separate process."""
    contents = {Path(file).name: _digest(Path(file).read_bytes()) for file in files}
    return {
        label: KernelVariant(
            label,
            _caller(function),
            isolate=True,
            versions=partial(_identity, (function, make), ranges, contents),
        )
        for label, function in functions.items()
    }


@dataclass(frozen=True)
class _UserKernel:
    """The functions of a `Kernel`, made from a user's functions."""

    name: str
    spaces: Mapping[str, Callable[[np.random.Generator], Any]]
    make: Callable[..., Mapping[str, Any]] | None
    reference: Callable[..., Array] | None

    def draw(self, rng: np.random.Generator) -> Instance:
        return {feature: space(rng) for feature, space in self.spaces.items()}

    def operands(self, instance: Instance, rng: np.random.Generator) -> Operands:
        return dict(instance) if self.make is None else dict(self.make(**instance, rng=rng))

    def answer(self, made: Operands) -> Array:
        assert self.reference is not None
        return np.asarray(self.reference(**made))

    def describe(self, made: Operands) -> Instance:
        if self.make is not None:
            raise PredictionError(f"the features of {self.name} are not known from operands")
        return {feature: made[feature] for feature in self.spaces}


def from_command(
    words: Sequence[str],
    ranges: Mapping[str, Range],
    complexity: str,
    *,
    name: str = "",
    units: Mapping[str, str] | None = None,
    seconds: float = COMMAND_SECONDS,
) -> Kernel:
    """Return a kernel of a command, a list of words in which ``{feature}`` stands for a value.

    The whole command is timed, from its start to its end. It runs without a shell. Exit codes
    other than 0, and running longer than `seconds`, are failures: the run is left out and named
    in the runs' `dropped`.

    Raises:
        PredictionError: the words are one string or none, name a feature without a range, or
            a range is not one.
    """
    if isinstance(words, str) or not words:
        raise PredictionError("a command is a list of words, not one string")

    unknown = [name for name in names_in(words) if name not in ranges]
    if unknown:
        raise PredictionError(
            f"the command {' '.join(words)!r}: {unknown[0]!r} has no value; the features are "
            f"{', '.join(ranges)}"
        )
    try:
        filled(words, dict.fromkeys(ranges, 1))
    except ValueError as error:
        raise PredictionError(f"the command {' '.join(words)!r}: {error}") from None

    def run(**values: Any) -> None:
        _run_command(filled(words, values), seconds)

    run.__name__ = "command"
    made = from_callable(run, ranges, complexity, name=name or words[0], units=units)
    facts = {"command": " ".join(words), "ranges": _range_text(ranges)}
    known = {label: replace(v, versions=lambda: facts) for label, v in made.variants.items()}
    made = replace(made, variants=known)
    arguments = {
        "words": list(words),
        "ranges": ranges,
        "complexity": complexity,
        "name": name,
        "units": units,
        "seconds": seconds,
    }
    return replace(made, origin=("tilewright.prediction.data.user_kernels:from_command", arguments))


def _run_command(command: list[str], seconds: float) -> None:
    """Run a command to its end; PredictionError if it fails or takes longer than `seconds`."""
    try:
        done = run_to_end(command, seconds)
    except subprocess.TimeoutExpired:
        raise PredictionError(f"{' '.join(command)!r} took over {seconds:g} s") from None
    except OSError as error:
        raise PredictionError(f"{command[0]}: {error.strerror or error}") from None
    if done.exit_code != 0:
        code = done.exit_code
        if code > 0:
            how = f"with exit code {code}"
        else:
            how = f"by signal {-code} ({signal.strsignal(-code)})"
        said = last_words(done.stdout, done.stderr)
        raise PredictionError(f"{' '.join(command)!r} ended {how}: {said}")


def _caller(
    function: Callable[..., Any],
) -> Callable[[Operands, Mapping[str, int]], Run]:
    def build(operands: Operands, settings: Mapping[str, int]) -> Run:
        return lambda: function(**operands)

    return build


def _identity(
    functions: Sequence[Any], ranges: Mapping[str, Range], contents: Mapping[str, str]
) -> dict[str, str]:
    """Return the data that identify a user's kernel in the records with its name.

    They are its code, its ranges, and the digests of the `contents` of files. Functions that it
    calls, and its closure, are not included.
    """
    text = ""
    for function in functions:
        try:
            text += inspect.getsource(function)
        except (OSError, TypeError):
            code = getattr(function, "__code__", None)
            text += repr(getattr(function, "__qualname__", type(function).__name__))
            text += "" if code is None else f"{code.co_code.hex()} {code.co_names}"
    return {"code": _digest(text.encode()), "ranges": _range_text(ranges), **contents}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _range_text(ranges: Mapping[str, Range]) -> str:
    """Return ranges as text."""
    between = {name: " to " if isinstance(r, tuple) else ", " for name, r in ranges.items()}
    return "; ".join(
        f"{name} {between[name].join(f'{v:g}' for v in given)}" for name, given in ranges.items()
    )


def _spaces(ranges: Mapping[str, Range]) -> dict[str, Callable[[np.random.Generator], float]]:
    """Return functions that draw a value of each feature.

    Raises:
        PredictionError: a range that is empty or not of numbers, or no range at all.
    """
    if not ranges:
        raise PredictionError("there are no features: give ranges such as {'n': (1, 1000)}")
    return {feature: _space(feature, given) for feature, given in ranges.items()}


def _space(feature: str, given: Range) -> Callable[[np.random.Generator], float]:
    try:
        values = [float(value) for value in given]
    except (TypeError, ValueError):
        raise PredictionError(f"the range of {feature!r} must be numbers, not {given!r}") from None
    if not values or not all(map(math.isfinite, values)):
        raise PredictionError(f"the range of {feature!r} is empty or not finite: {given!r}")
    whole = all(value == int(value) for value in values)
    if isinstance(given, tuple) and len(values) == 2:
        low, high = values
        if low > high:
            raise PredictionError(f"the range of {feature!r} ends at {high:g}, before {low:g}")
        if whole:
            return lambda rng: int(rng.integers(int(low), int(high) + 1))
        return lambda rng: float(rng.uniform(low, high))
    chosen = [int(value) if whole else value for value in values]
    return lambda rng: chosen[int(rng.integers(len(chosen)))]
