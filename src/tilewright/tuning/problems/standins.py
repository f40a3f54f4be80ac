"""The search spaces of the BaCO paper's compilers, with analytic stand-ins for their compilers.

A stand-in is a formula: smooth in the logarithms of tile sizes, with the interactions, the
order of loops and the hidden failures that such spaces have. Its constants are random, seeded by
the space's name, and mean nothing; it serves to exercise a search where the compiler is not
installed. RISE's spaces have none: `tilewright.patterns.rise` compiles their kernels.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.tuning.errors import SpaceError
from tilewright.tuning.space.json import space_from_dict
from tilewright.tuning.space.parameters import Categorical, Parameter, Permutation
from tilewright.tuning.space.space import Space
from tilewright.tuning.tune import FailedError

FOLDER = Path(__file__).parent / "spaces"
COMPILED = "rise_"  # begins the names of spaces whose kernels `tilewright.patterns.rise` compiles


def paper_spaces() -> tuple[str, ...]:
    """Return the names of the spaces."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def paper_space(name: str) -> Space:
    """Return one of the spaces (see `paper_spaces`).

    Raises:
        SpaceError: no space has that name.
    """
    if name not in paper_spaces():
        raise SpaceError(f"no space is named {name!r}; there are {', '.join(paper_spaces())}")
    return space_from_dict(json.loads((FOLDER / f"{name}.json").read_text()))


@dataclass(frozen=True)
class StandIn:
    """An analytic objective instead of a compiler's: called with a configuration.

    ``is_stand_in`` is True: its values are not measurements.
    """

    name: str
    space: Space
    terms: tuple[Callable[[Mapping[str, Any]], float], ...] = field(repr=False)
    fails: Callable[[Mapping[str, Any]], bool] = field(repr=False)
    is_stand_in: bool = True

    def __call__(self, configuration: Mapping[str, Any]) -> float:
        """Return the made-up cost, at least 1 for ideal choices.

        Raises:
            FailedError: the configuration is one of the stand-in's hidden failures.
        """
        if self.fails(configuration):
            raise FailedError("run_failed", "a hidden constraint of the stand-in")
        return math.exp(sum(term(configuration) for term in self.terms))


def standin(name: str) -> StandIn:
    """Return the stand-in of a space (see `paper_spaces`) of a compiler that is not installed.

    Raises:
        SpaceError: no space has that name, or its kernels can be measured (RISE's spaces).
    """
    if name.startswith(COMPILED) and name in paper_spaces():
        raise SpaceError(
            f"{name} has real kernels: give the tuner RiseObjective(rise_kernel({name!r})), both "
            "of tilewright.patterns.rise"
        )
    return landscape(name)


def landscape(name: str) -> StandIn:
    """Return a made-up objective over any of the spaces, to study a search without measuring.

    Each number has a preferred position and a weight, mostly small; some pairs of numbers should
    balance; each category has a cost; loops have a preferred order. The part of the space beyond a
    plane through the most weighted numbers fails.

    Raises:
        SpaceError: there is no space of that name.
    """
    space = paper_space(name)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    varying = [p for p in space.parameters if isinstance(p, Permutation) or len(p) > 1]  # type: ignore[arg-type]
    numbers = [p for p in varying if not isinstance(p, Categorical | Permutation)]
    weights = dict(zip((p.name for p in numbers), rng.gamma(0.5, 2.0, len(numbers)), strict=True))
    total = sum(weights.values()) or 1.0
    terms: list[Callable[[Mapping[str, Any]], float]] = []
    for p in varying:
        if isinstance(p, Categorical):
            terms.append(_category(p, rng.uniform(0.0, 0.25, len(p))))
        elif isinstance(p, Permutation):
            terms.append(_order(p, rng.permutation(len(p)), 0.8))
        else:
            terms.append(_valley(p, rng.uniform(0.1, 0.9), 3.0 * weights[p.name] / total))
    pairs = len(numbers) // 2
    for _ in range(pairs):
        a, b = rng.choice(len(numbers), 2, replace=False)
        terms.append(_balance(numbers[a], numbers[b], rng.uniform(0.5, 1.5), 1.6 / pairs))
    leading = sorted(numbers, key=lambda p: -weights[p.name])[:2]
    return StandIn(name, space, tuple(terms), _beyond(leading, 1.45))


def _place(p: Parameter, value: Any) -> float:
    """Return a number's position in its range, from 0 to 1, on a log scale if it has one."""
    values = (p.low, p.high) if hasattr(p, "low") else (min(p.values), max(p.values))  # type: ignore[union-attr]
    low, high = map(float, values)
    if p.scale == "log":  # type: ignore[union-attr]
        return float(math.log(value / low) / math.log(high / low))
    return float((value - low) / (high - low))


def _valley(p: Parameter, centre: float, weight: float) -> Callable[[Mapping[str, Any]], float]:
    return lambda c: weight * (_place(p, c[p.name]) - centre) ** 2


def _balance(
    p: Parameter, q: Parameter, total: float, weight: float
) -> Callable[[Mapping[str, Any]], float]:
    return lambda c: weight * (_place(p, c[p.name]) + _place(q, c[q.name]) - total) ** 2


def _category(p: Categorical, costs: Any) -> Callable[[Mapping[str, Any]], float]:
    cost = dict(zip(p.values, (costs - min(costs)).tolist(), strict=True))
    return lambda c: float(cost[c[p.name]])


def _order(p: Permutation, best: Any, weight: float) -> Callable[[Mapping[str, Any]], float]:
    """Return squared displacement from a preferred order, the innermost loop counting most."""
    n = len(p)
    importance = [1.0 + (i == int(best.argmax())) for i in range(n)]
    largest = sum(importance) * (n - 1) ** 2 / 2

    def cost(c: Mapping[str, Any]) -> float:
        places = [p.item_names.index(item) for item in c[p.name]]
        moved = (w * (a - b) ** 2 for w, a, b in zip(importance, places, best, strict=True))
        return weight * float(sum(moved)) / largest

    return cost


def _beyond(leading: Sequence[Parameter], limit: float) -> Callable[[Mapping[str, Any]], bool]:
    return lambda c: sum(_place(p, c[p.name]) for p in leading) > limit
