"""A dispatcher for a kernel of the registry: variants, their settings, and storage.

The predicted time of a route is that of its variant, plus that of converting operands and result
that are in another storage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from tilewright.prediction.data.kernel import Kernel
from tilewright.prediction.decisions.dispatcher import (
    Dispatcher,
    Forecast,
    Query,
    merged_ranges,
    outside,
    single,
)
from tilewright.prediction.decisions.selector import Selector
from tilewright.prediction.decisions.signature import GLANCE, SAMPLES, Outline, is_sparse, outline
from tilewright.prediction.errors import PredictionError

# A model of log time is a straight line of log sizes where there is no data, which is good enough
# to compare routes by for a while; densities drawn as powers of two end anywhere.
SLACK = 2.0
Wanted = Literal["any", "dense", "sparse", "like"]


def route_name(variant: str, settings: Mapping[str, float]) -> str:
    """Return a variant with its settings in one word, such as ``eigen threads=2``."""
    return " ".join([variant, *(f"{k}={v:g}" for k, v in settings.items())])


def dispatcher(
    kernel: Kernel,
    selector: Selector,
    *,
    wanted: Wanted = "any",
    result: Callable[[Query], Outline] | None = None,
    samples: int = SAMPLES,
    slack: float = SLACK,
    learn: bool = False,
    **options: Any,
) -> Dispatcher:
    """Return a function of the kernel's operands, dense or sparse, in their order.

    Args:
        kernel: a kernel of the registry.
        selector: models of its variants (see `tilewright.prediction.decisions.selector.train`).
        wanted: the storage of the result: as the variant gives it, ``dense``, ``sparse``, or
            ``like`` SciPy: sparse where all operands are.
        result: from a query to the shape and non-zeros of the result, to predict what its
            conversion costs; for a matrix product `product_outline` is taken.
        samples: entries looked at to estimate the density of a dense operand; a call whose
            shapes were seen before looks at `operands.GLANCE` at most.
        slack: the factor beyond the training range up to which the models are used; queries
            farther away use the default.
        learn: see `Dispatcher`.
        **options: further arguments of `Dispatcher`.

    Raises:
        PredictionError: the selector has a variant that the kernel lacks.
    """
    names = tuple(_operand_names(kernel))
    costs = _Costs(kernel, selector, names, wanted, result, samples, slack)
    routes = {
        route_name(variant, settings): _runner(kernel, variant, settings, names, wanted)
        for variant, settings in costs.routes
    }
    default = next(route_name(v, s) for v, s in reversed(costs.routes) if v == selector.default)
    return Dispatcher(
        routes,
        costs.forecast,
        default=default,
        samples=min(samples, GLANCE),
        learn=learn,
        **options,
    )


def product_outline(query: Query) -> Outline:
    """Return the outline of a product with densities d1 and d2, with random non-zeros."""
    filled = 1 - (1 - query["d1"] * query["d2"]) ** query["n"]
    entries = query["m"] * query["k"]
    return Outline((int(query["m"]), int(query["k"])), max(1.0, entries * filled))


class _Costs:
    """Predicted seconds of the routes."""

    def __init__(
        self,
        kernel: Kernel,
        selector: Selector,
        names: tuple[str, ...],
        wanted: Wanted,
        result: Callable[[Query], Outline] | None,
        samples: int,
        slack: float,
    ) -> None:
        self.names, self.samples, self.kernel = names, samples, kernel.name
        self.describe = kernel.describe
        self.wanted = wanted
        self.result = product_outline if result is None and kernel.name == "matmul" else result
        self.routes: list[tuple[str, dict[str, float]]] = []
        self.singles: list[Callable[[Query], float]] = []
        self.storages: list[str] = []
        for name, modelled in selector.models.items():
            variant = kernel.variant(name)
            for settings in modelled.combinations():
                self.routes.append((name, settings))
                self.singles.append(single(modelled.model, settings))
                self.storages.append(variant.storage)
        self.kinds = sorted(set(self.storages))
        self.conversions = {
            name.removeprefix("to_"): single(m) for name, m in selector.conversions.items()
        }
        if len(self.kinds) > 1 and not {"dense", "sparse"} <= set(self.conversions):
            raise PredictionError(
                "variants of both storages need models of the conversion: train the selector "
                "with tilewright.prediction.decisions.selector.train, or give conversions="
            )
        numbers = {s for m in selector.models.values() for s in m.settings}
        models = [m.model for m in selector.models.values()]
        self.ranges = [
            (name, low / slack if low > 0 else low, high * slack if high > 0 else high)
            for name, low, high in merged_ranges(models, tuple(numbers))
        ]

    def forecast(self, *args: Any) -> Forecast:
        """Return the costs of a call with these operands."""
        if len(args) != len(self.names):
            raise PredictionError(
                f"{self.kernel} takes {len(self.names)} operands, {', '.join(self.names)}, "
                f"and was given {len(args)}"
            )
        # Lists have no shape; a route makes arrays of them.
        arrays = [np.asarray(a) if isinstance(a, list | tuple) else a for a in args]
        outlines = [outline(a, self.samples) for a in arrays]
        try:
            query = self.describe(dict(zip(self.names, outlines, strict=True)))
        except (AttributeError, IndexError, TypeError, ValueError):
            shapes = ", ".join(str(getattr(a, "shape", type(a).__name__)) for a in arrays)
            raise PredictionError(
                f"these are not operands of {self.kernel}, which takes {', '.join(self.names)}: "
                f"{shapes}"
            ) from None
        return self.of(query, outlines, ["sparse" if is_sparse(a) else "dense" for a in args])

    def of(self, query: Query, outlines: list[Any], given: list[str]) -> Forecast:
        """Return the costs of a query with operands of these outlines in the given storages."""
        wanted = _wanted(self.wanted, given)
        moved = dict.fromkeys(self.kinds, 0.0)
        for kind in self.kinds:
            for shape, storage in zip(outlines, given, strict=True):
                if storage != kind and type(shape) is Outline and len(shape.shape) == 2:
                    moved[kind] += self._convert(kind, shape)
            if wanted not in ("any", kind) and self.result is not None and wanted is not None:
                moved[kind] += self._convert(wanted, self.result(query))
        seconds = [
            f(query) + moved[kind] for f, kind in zip(self.singles, self.storages, strict=True)
        ]
        return Forecast(query, tuple(seconds), outside(query, self.ranges))

    def _convert(self, to: str, what: Outline) -> float:
        m, n = what.shape
        if not self.conversions or not m or not n:
            return 0.0
        return self.conversions[to]({"m": m, "n": n, "d": what.nnz / (m * n)})


def _wanted(wanted: Wanted, given: list[str]) -> str:
    if wanted != "like":
        return wanted
    return "sparse" if all(s == "sparse" for s in given) else "dense"


def _operand_names(kernel: Kernel) -> list[str]:
    rng = np.random.default_rng(0)
    return list(kernel.make(kernel.draw(rng), rng))


def _runner(
    kernel: Kernel,
    name: str,
    settings: Mapping[str, float],
    names: tuple[str, ...],
    wanted: Wanted,
) -> Callable[..., Any]:
    from tilewright.prediction.kernels.storage import csr, dense

    variant = kernel.variant(name)
    build = variant.build
    # Settings without a model take their largest value, as `KernelVariant.prepare` has it.
    whole = {k: v[-1] for k, v in variant.settings.items()}
    whole |= {k: int(v) for k, v in settings.items()}
    if wanted == "any":
        return lambda *args: build(dict(zip(names, args, strict=True)), whole)()

    def run(*args: Any) -> Any:
        answer = build(dict(zip(names, args, strict=True)), whole)()
        storage = _wanted(wanted, ["sparse" if is_sparse(a) else "dense" for a in args])
        if storage == "sparse":
            return answer if is_sparse(answer) else csr(answer)
        return dense(answer) if is_sparse(answer) else answer

    return run
