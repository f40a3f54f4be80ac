"""Read the data of a live pipeline that serialisation loses."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.halide.frontend.importer import import_pipeline
from tilewright.halide.ir.algorithm import Algorithm, Const, Span
from tilewright.halide.ir.schedule import KnownValue

Scalar = int | float


@dataclass(frozen=True)
class Capture:
    """A pipeline's bytes, and the data that only its live parameters have.

    Attributes:
        serialized: The bytes.
        scalars: The estimate of each scalar parameter or, without one, its value.
        ranges: The range of each dimension of an input buffer: its estimate or, without one, its
            constraint or, without one, the size of the buffer bound to it.
        strides: The strides, in elements, that an input must have.
    """

    serialized: bytes
    scalars: dict[str, Scalar]
    ranges: dict[str, tuple[Span | None, ...]]
    strides: dict[str, tuple[int | None, ...]]


def capture(pipeline: Any) -> Capture:
    """Serialise a ``halide.Pipeline`` and read the data that serialisation loses.

    Raises:
        TilewrightError: Halide cannot serialise the pipeline.
    """
    import halide as hl

    try:
        serialized, parameters = hl.serialize_pipeline(pipeline, get_params=True)
    except hl.HalideError as error:
        raise TilewrightError(f"Halide could not serialise the pipeline: {error}") from None
    wanted: dict[tuple[str, str, int], Any] = {}
    for name, parameter in parameters.items():
        if parameter.is_buffer():
            for d in range(parameter.dimensions()):
                for what in _DIMENSION:
                    wanted[name, what, d] = getattr(parameter, what)(d)
        else:
            wanted[name, "estimate", 0] = parameter.estimate()
            wanted[name, "value", 0] = _value(parameter)
    known = _constants(wanted)
    result = Capture(bytes(serialized), {}, {}, {})
    for name, parameter in parameters.items():
        if not parameter.is_buffer():
            value = known.get((name, "estimate", 0), known.get((name, "value", 0)))
            if value is not None:
                result.scalars[name] = value
            continue
        ranges, strides = [], []
        for d in range(parameter.dimensions()):
            low, extent, fixed_low, fixed_extent, stride = (
                known.get((name, what, d)) for what in _DIMENSION
            )
            if low is None or extent is None:
                low, extent = fixed_low, fixed_extent
            if low is None or extent is None:
                ranges.append(_bound_range(parameter, d))
            else:
                ranges.append(Span(int(low), int(extent)))
            strides.append(None if stride is None else int(stride))
        result.ranges[name] = tuple(ranges)
        result.strides[name] = tuple(strides)
    return result


_DIMENSION = (
    "min_constraint_estimate",
    "extent_constraint_estimate",
    "min_constraint",
    "extent_constraint",
    "stride_constraint",
)


def _bound_range(parameter: Any, d: int) -> Span | None:
    """Return the range of the buffer bound to an input; None if there is none."""
    buffer = parameter.buffer()
    if not buffer.defined() or buffer.dim(d).extent() < 1:
        return None
    return Span(buffer.dim(d).min(), buffer.dim(d).extent())


def _value(parameter: Any) -> Any:
    import halide as hl

    try:
        return parameter.scalar_expr()
    except hl.HalideError:
        return hl.Expr()  # it has no value


def _constants(wanted: Mapping[tuple[str, str, int], Any]) -> dict[tuple[str, str, int], Scalar]:
    """Return the exact values of the expressions that are literals.

    Halide's Python binding converts literals to rounded text only. Therefore a pipeline that
    contains them is serialised and read back.
    """
    import halide as hl

    defined = {key: expr for key, expr in wanted.items() if expr.defined()}
    if not defined:
        return {}
    holder = hl.Func()
    holder[()] = hl.Tuple(list(defined.values()))
    func = import_pipeline(bytes(hl.serialize_pipeline(hl.Pipeline(holder)))).funcs[-1]
    values = zip(defined, func.stages[0].values, strict=True)
    return {
        key: value.value
        for key, value in values
        if isinstance(value, Const) and not isinstance(value.value, str)
    }


def to_pipeline(thing: Any) -> Any:
    """Return the ``halide.Pipeline`` of a Func, Funcs, a Pipeline or a Python Generator.

    A Generator class is built with its default parameters for this machine.

    Raises:
        TilewrightError: `thing` is something else, or Halide or the Generator fails.
    """
    import halide as hl

    if isinstance(thing, hl.Pipeline):
        return thing
    try:
        if isinstance(thing, hl.Generator):
            built = thing._pipeline
            return _build(type(thing), thing._build_pipeline) if built is None else built
        if inspect.isclass(thing) and issubclass(thing, hl.Generator):
            with hl.GeneratorContext(hl.get_jit_target_from_environment()):
                return _build(thing, lambda: thing()._build_pipeline())
        if isinstance(thing, hl.Func):
            thing = [thing]
        if isinstance(thing, Sequence) and thing and all(isinstance(f, hl.Func) for f in thing):
            undefined = [f.name() for f in thing if not f.defined()]
            if undefined:
                raise TilewrightError(f"the Func {undefined[0]} has no definition yet")
            return hl.Pipeline(list(thing))
    except hl.HalideError as error:
        raise TilewrightError(f"Halide could not build the pipeline: {error}") from None
    raise TilewrightError(
        f"a {type(thing).__name__} is not a pipeline; pass a halide.Func, a list of them, a "
        "halide.Pipeline, a halide.Generator, serialised bytes or the path of a .hlpipe file"
    )


def _build(generator: Any, build: Callable[[], Any]) -> Any:
    """Build a Generator class; report any exception in it as a failure of the Generator."""
    import halide as hl

    name = generator.__name__
    if not hasattr(generator, "_halide_registered_name"):
        raise TilewrightError(
            f"the Generator {name} is not registered, so Halide cannot build it; put "
            f"@hl.generator({name.lower()!r}) before the class"
        )
    try:
        return build()
    except (TilewrightError, hl.HalideError):
        raise
    except (Exception, SystemExit) as error:
        raise TilewrightError(
            f"the Generator {name} failed{_place(generator, error)}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _place(generator: Any, error: BaseException) -> str:
    """Return the innermost line of the Generator's file in an exception's traceback, as text."""
    code = getattr(generator.generate, "__code__", None)
    file = code.co_filename if code is not None else ""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f" in line {lines[-1]} of {file}" if lines else ""


def live_funcs(algorithm: Algorithm, pipeline: Any) -> list[Any]:
    """Return the ``halide.Func`` objects of a live pipeline, in the algorithm's order.

    `algorithm` must have been read from this pipeline object. Wrappers and clones (``Func.in_``,
    ``Func.clone_in``) are found through the Funcs that they replace.
    """
    import halide as hl

    found: dict[str, Any] = {}
    index = 0
    while True:
        try:
            func = pipeline.get_func(index)
        except hl.HalideError:
            break  # past the last one
        found[func.name()] = func
        index += 1
    missing = [func.name for func in algorithm.funcs if func.name not in found]
    while missing:
        before = len(missing)
        for wrapper in list(missing):
            func = _wrapper(algorithm, wrapper, found)
            if func is not None:
                found[wrapper] = func
                missing.remove(wrapper)
        if len(missing) == before:
            raise TilewrightError(f"the pipeline has no Func called {', '.join(missing)}")
    return [found[func.name] for func in algorithm.funcs]


class LiveFuncs(Sequence[Any]):
    """The Funcs of a live pipeline, as `live_funcs` returns them, each fetched when it is needed.

    Halide walks the whole pipeline to find one Func, so fetching all of them takes quadratic time.
    """

    def __init__(self, algorithm: Algorithm, pipeline: Any) -> None:
        """`algorithm` must have been read from this `pipeline` object."""
        self._algorithm = algorithm
        self._pipeline = pipeline
        self._found: list[Any] = [None] * len(algorithm.funcs)

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, index: Any) -> Any:
        if self._found[index] is None:
            name = self._algorithm.funcs[index].name
            func = None if self._algorithm.wrappers else self._fetch(name)
            if func is not None and func.name() == name:
                self._found[index] = func
            else:
                self._found = live_funcs(self._algorithm, self._pipeline)
        return self._found[index]

    def _fetch(self, name: str) -> Any:
        import halide as hl

        try:
            return self._pipeline.get_func(self._algorithm.halide_order[name])
        except hl.HalideError:
            return None


def _wrapper(algorithm: Algorithm, name: str, found: Mapping[str, Any]) -> Any:
    """Return the wrapper or clone called `name`; None if the Func it replaces is not in `found`."""
    for link in algorithm.wrappers:
        if link.wrapper != name or link.wrapped not in found:
            continue
        wrapped = found[link.wrapped]
        if not link.caller:
            return wrapped.in_()
        if link.caller in found:
            return wrapped.in_(found[link.caller])
    return None


def live_parameters(pipeline: Any) -> dict[str, Any]:
    """Return the ``halide.Parameter`` of every input and scalar of a live pipeline, by name."""
    import halide as hl

    _, parameters = hl.serialize_pipeline(pipeline, get_params=True)
    return dict(parameters)


def known_condition(parameter: Any, known: KnownValue) -> Any:
    """Return the condition `known` as an expression of a live ``halide.Parameter``.

    Halide gives access to the parameters of a pipeline, but not to expressions of them. Therefore
    the condition is written in a separate Func with a stand-in of the same name, serialised, and
    read back with the parameter in place of the stand-in.
    """
    import halide as hl

    name = parameter.name()
    number: Any
    if parameter.is_buffer():
        image = hl.ImageParam(parameter.type(), parameter.dimensions(), name)
        number = getattr(image.dim(known.dimension), known.field)()
    else:
        number = hl.Param(parameter.type(), name)
    condition = hl.Func("known")
    equal = number % known.value == 0 if known.multiple else number == known.value
    condition[()] = number >= known.value if known.least else equal
    serialized = hl.serialize_pipeline(hl.Pipeline(condition))
    return hl.deserialize_pipeline(serialized, {name: parameter}).get_func(0).value()
