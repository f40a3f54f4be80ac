"""A decorator for functions that are tuned by running them."""

from __future__ import annotations

import functools
import inspect
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from tilewright.errors import TilewrightError
from tilewright.tuning.space.arguments import ConstraintSource
from tilewright.tuning.space.parameters import Parameter
from tilewright.tuning.space.space import Configuration, Space
from tilewright.tuning.tune import FailedError, TuningResult, tune

P = ParamSpec("P")
T = TypeVar("T")


class Tunable(Generic[P, T]):
    """A function with tunable parameters, made by `tunable`.

    ``best`` is the configuration that calls use for parameters that they do not pass: the result of
    the last `tune`, or the space's defaults before it. ``space`` is the search space.
    """

    def __init__(self, function: Callable[P, T], space: Space) -> None:
        self.function = function
        self.space = space
        self.best: Configuration = space.default() or {}
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function with the given arguments, and the best known values for the others."""
        return self.function(*args, **{**self.best, **kwargs})  # type: ignore[arg-type]

    def tune(
        self,
        *args: Any,
        budget: int = 50,
        repeat: int = 3,
        check: Callable[[T], bool] | None = None,
        options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> TuningResult:
        """Find the parameters that minimise the time of a call with these arguments.

        Args:
            *args: positional arguments of the calls.
            budget: configurations to try.
            repeat: timed calls of each; the median counts. One that is clearly slower than
                the best is called fewer times.
            check: whether the result of a call is right; a wrong result is a failure.
            options: further arguments of `tilewright.tuning.tune`.
            **kwargs: keyword arguments of the calls.
        """

        def objective(configuration: Configuration, limit: float) -> dict[str, Any]:
            times = []
            for i in range(repeat):
                started = time.perf_counter()
                result = self.function(*args, **{**configuration, **kwargs})
                times.append(time.perf_counter() - started)
                if i == 0 and check is not None and not check(result):
                    raise FailedError("wrong_answer", "the check says no")
                if times[-1] > limit:
                    break
            cut = len(times) < repeat
            details = {"times": times}
            return {"value": statistics.median(times), "lower_bound": cut, "details": details}

        queue = [self.best] if self.best and self.space.is_feasible(self.best) else []
        given = {"queue": queue, "cutoff": 2.0, **(options or {})}
        found = tune(objective, self.space, budget, **given)
        if found.best is not None:
            self.best = found.best.configuration
        return found


def tunable(
    parameters: Sequence[Parameter] | Space, constraints: Sequence[ConstraintSource] = ()
) -> Callable[[Callable[P, T]], Tunable[P, T]]:
    """Make a function tunable over some of its keyword arguments.

    Raises:
        TilewrightError: the function has no argument of a parameter's name.

    Example:
        >>> from tilewright.tuning import Ordinal, tunable
        >>> @tunable([Ordinal("block", (8, 64, 512), default=64)])
        ... def total(n, block):
        ...     return sum(sum(range(i, min(i + block, n))) for i in range(0, n, block))
        >>> total(1000)
        499500
        >>> found = total.tune(1000, budget=3, check=lambda s: s == 499500)
        >>> total.best == found.best.configuration, total(1000)
        (True, 499500)
    """
    space = parameters if isinstance(parameters, Space) else Space(parameters, constraints)

    def decorate(function: Callable[P, T]) -> Tunable[P, T]:
        taken = inspect.signature(function).parameters
        anything = any(p.kind is p.VAR_KEYWORD for p in taken.values())
        for p in space.parameters:
            if p.name not in taken and not anything:
                raise TilewrightError(
                    f"{function.__name__} has no argument {p.name!r}; its arguments are "
                    f"{', '.join(taken)}"
                )
        return Tunable(function, space)

    return decorate
