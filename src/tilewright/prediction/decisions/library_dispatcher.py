"""A dispatcher for a kernel of the registry: variants, their settings, and storage.

The predicted time of a route is the time of its variant plus the time to convert operands and the
result if they are in another storage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from tilewright.prediction.data.kernel import Kernel
from tilewright.prediction.decisions.compiled_routes import ExtraCost, ModelCall, compile_together
from tilewright.prediction.decisions.dispatcher import (
    Dispatcher,
    Forecast,
    Query,
    merged_ranges,
)
from tilewright.prediction.decisions.selector import Selector
from tilewright.prediction.decisions.signature import (
    DENSE,
    GLANCE,
    SAMPLES,
    SPARSE,
    Outline,
    is_sparse,
    outline,
)
from tilewright.prediction.errors import PredictionError

# Outside its data a model of log time is a straight line of log sizes, which is good enough to
# compare routes for some distance; and the range of densities, drawn as powers of two, ends by
# chance.
SLACK = 2.0
Wanted = Literal["any", "dense", "sparse", "like"]


def route_name(variant: str, settings: Mapping[str, float]) -> str:
    """Return a variant with its settings as text, such as ``eigen threads=2``."""
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
        wanted: the storage of the result: as the variant returns it, ``dense``, ``sparse``, or
            ``like`` SciPy: sparse if all operands are.
        result: from a query to the shape and non-zeros of the result, to predict what its
            conversion costs; for a matrix product `product_outline` is taken.
        samples: number of entries from which the density of a dense operand is estimated; a call
            whose shapes were seen before reads at most `signature.GLANCE` entries.
        slack: the factor beyond the training range up to which the models are used; queries
            farther away use the default.
        learn: see `Dispatcher`.
        **options: further arguments of `Dispatcher`.

    Raises:
        PredictionError: the selector has a variant that the kernel lacks, or `samples` is below 1.
    """
    if samples < 1:
        raise PredictionError(f"samples is {samples!r}; give at least 1 entry to read")
    names = tuple(_operand_names(kernel))
    costs = _Costs(kernel, selector, names, wanted, result, samples, slack)
    routes = {
        route_name(variant, settings): _runner(kernel, variant, settings, names, wanted)
        for variant, settings in costs.routes
    }
    own_key = options.get("key") is not None
    default = next(route_name(v, s) for v, s in reversed(costs.routes) if v == selector.default)
    return Dispatcher(
        routes,
        partial(costs.forecast, None) if own_key else costs.forecast,
        default=default,
        samples=min(samples, GLANCE),
        learn=learn,
        with_signature=not own_key,
        **options,
    )


def product_outline(query: Query) -> Outline:
    """Return the outline of a product with densities d1 and d2, with random non-zeros."""
    m, k = query["m"], query["k"]
    filled = 1 - (1 - query["d1"] * query["d2"]) ** query["n"]
    return Outline((int(m), int(k)), max(1.0, m * k * filled))


class _Costs:
    """Predicted seconds of the routes.

    One compiled call gives the seconds of all routes, and those of converting every operand, and
    the result, to either storage.
    """

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
        self.wanted_code, self.like = _CODES[wanted], wanted == "like"
        self.result = product_outline if result is None and kernel.name == "matmul" else result
        self.routes: list[tuple[str, dict[str, float]]] = []
        self.storages: list[str] = []
        calls: list[ModelCall] = []
        for name, modelled in selector.models.items():
            variant = kernel.variant(name)
            for settings in modelled.combinations():
                self.routes.append((name, settings))
                features = map(str, modelled.model.feature_names_in_)
                calls.append(ModelCall(modelled.model, tuple(settings.get(n, n) for n in features)))
                self.storages.append(variant.storage)
        converters = {name.removeprefix("to_"): m for name, m in selector.conversions.items()}
        if len(set(self.storages)) > 1 and not {"dense", "sparse"} <= set(converters):
            raise PredictionError(
                "variants of both storages need models of the conversion: train the selector "
                "with tilewright.prediction.decisions.selector.train, or give conversions="
            )
        asked = (a for call in calls for a in call.arguments if isinstance(a, str))
        self.features = tuple(dict.fromkeys(asked))
        self.places = (*range(len(names)), _RESULT) if converters else ()
        sizes, extras = self._conversions(converters)
        numbers = {s for m in selector.models.values() for s in m.settings}
        models = [m.model for m in selector.models.values()]
        ranges = [
            (name, low / slack if low > 0 else low, high * slack if high > 0 else high)
            for name, low, high in merged_ranges(models, tuple(numbers))
        ]
        self.seconds = compile_together(calls, (*self.features, *sizes), extras, ranges)

    def _conversions(self, converters: Mapping[str, Any]) -> tuple[list[str], list[ExtraCost]]:
        """Return the names of all places' sizes and storages, and the costs of conversions.

        An operand is converted from its storage to that of the variant, the result from that of
        the variant to the storage that is wanted.
        """
        sizes: list[str] = []
        extras: list[ExtraCost] = []
        for place in self.places:
            *here, stored = (f"{name} of {place}" for name in ("m", "n", "d", "storage"))
            sizes += (*here, stored)
            named = dict(zip("mnd", here, strict=True))
            for into, model in converters.items():
                other = "dense" if into == "sparse" else "sparse"
                pays, if_stored = (other, into) if place == _RESULT else (into, other)
                routes = tuple(i for i, own in enumerate(self.storages) if own == pays)
                call = ModelCall(model, tuple(named[str(n)] for n in model.feature_names_in_))
                if routes:
                    extras.append(ExtraCost(call, stored, _CODES[if_stored], routes))
        return sizes, extras

    def forecast(
        self, parts: Sequence[tuple[Any, ...]] | None, *args: Any, **named: Any
    ) -> Forecast:
        """Return the costs of a call with these operands; `parts` are those of its signature."""
        if named or len(args) != len(self.names):
            by_name = f" and {', '.join(named)} by name" if named else ""
            raise PredictionError(
                f"{self.kernel} takes {len(self.names)} operands by position, "
                f"{', '.join(self.names)}, and was given {len(args)}{by_name}"
            )
        outlines: dict[str, Any] = {}
        for i, (name, a) in enumerate(zip(self.names, args, strict=True)):
            if isinstance(a, _LISTS):
                # Lists have no shape; a route makes arrays of them.
                outlines[name] = outline(np.asarray(a), self.samples)
            else:
                outlines[name] = outline(a, self.samples, parts[i] if parts else None)
        try:
            query = self.describe(outlines)
        except (AttributeError, IndexError, TypeError, ValueError):
            shapes = ", ".join(
                str(getattr(a, "shape", type(a).__name__)) for a in outlines.values()
            )
            raise PredictionError(
                f"these are not operands of {self.kernel}, which takes {', '.join(self.names)}: "
                f"{shapes}"
            ) from None
        values = list(map(query.__getitem__, self.features))
        if self.places:
            code = self.wanted_code
            for one in outlines.values():
                values += _sizes(one)
                # The result of ``like`` is dense if any operand is.
                if code == SPARSE and self.like and getattr(one, "storage", DENSE) == DENSE:
                    code = DENSE
            values += _NO_SIZES if self.result is None else _sizes(self.result(query), code)
        return Forecast(query, *self.seconds(values))


_RESULT = -1
# What the result is to be stored as; 0 where nothing is converted. ``like`` may become dense.
_CODES = {"dense": DENSE, "sparse": SPARSE, "any": 0.0, "like": SPARSE}
_NO_SIZES = (1.0, 1.0, 1.0, 0.0)
_LISTS = (list, tuple)


def _sizes(what: Any, code: float | None = None) -> tuple[float, float, float, float]:
    """Return rows, columns, density and storage of a matrix's outline."""
    try:
        m, n = what.shape
        return m, n, what.nnz / (m * n), what.storage if code is None else code
    except (AttributeError, TypeError, ValueError, ZeroDivisionError):  # not a matrix, or empty
        return _NO_SIZES


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
        if wanted == "sparse" or (wanted == "like" and all(map(is_sparse, args))):
            return answer if is_sparse(answer) else csr(answer)
        return dense(answer) if is_sparse(answer) else answer

    return run
