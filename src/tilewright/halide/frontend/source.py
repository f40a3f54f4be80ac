"""Load pipelines from all supported sources."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.halide.frontend.estimates import (
    MissingEstimatesError,
    full_name,
    missing_estimates,
    output_spans,
    with_estimates,
)
from tilewright.halide.frontend.extents import derive_input_extents, descending, refitted
from tilewright.halide.frontend.importer import import_pipeline
from tilewright.halide.frontend.live import Capture, capture, to_pipeline
from tilewright.halide.frontend.serial.reset import without_schedule
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.measure import collection_paused

_MAX_FILE = 2**31 - 1  # the largest FlatBuffer, in bytes


class ScheduledError(TilewrightError):
    """The user has scheduled Funcs of the pipeline; `funcs` names them."""

    def __init__(self, funcs: tuple[str, ...]) -> None:
        """`funcs` are the names of the scheduled Funcs."""
        self.funcs = funcs
        super().__init__(
            f"the pipeline already has schedules of {', '.join(funcs)}. Use discard_schedule=True "
            "to discard them, or keep_schedule=True to leave these Funcs as they are"
        )


def load(
    pipeline: Any,
    *,
    estimates: Mapping[str, Any] | None = None,
    keep_schedule: bool = False,
    discard_schedule: bool = False,
) -> Algorithm:
    """Return a pipeline with the sizes and values to schedule it for.

    The pipeline's estimates are used. For a scalar without an estimate, its current value is used.
    For an input without one, the extents that the outputs' estimates require are used.

    Args:
        pipeline: A ``halide.Func``, a sequence of them, a ``halide.Pipeline``, a Python
            ``halide.Generator`` (class or instance), serialised bytes, or a path or string that
            `resolve` accepts.
        estimates: Estimates that take precedence over those of the pipeline (see
            `tilewright.halide.frontend.estimates.with_estimates`).
        keep_schedule: Accept Funcs that the user has scheduled, and leave them as they are.
        discard_schedule: Read the pipeline as if nothing had been scheduled. Estimates, bounds and
            constraints are kept (see `tilewright.halide.frontend.serial.reset`).

    Raises:
        ScheduledError: Funcs have been scheduled, and neither `keep_schedule` nor
            `discard_schedule` is set.
        MissingEstimatesError: Sizes or values are unknown; the error names all of them.
        TilewrightError: The pipeline cannot be loaded.
    """
    return load_sizes(
        pipeline,
        [estimates or {}],
        keep_schedule=keep_schedule,
        discard_schedule=discard_schedule,
    )[0]


@collection_paused()
def load_sizes(
    pipeline: Any,
    estimates: Sequence[Mapping[str, Any]],
    *,
    keep_schedule: bool = False,
    discard_schedule: bool = False,
) -> tuple[Algorithm, ...]:
    """Return a pipeline at several sizes, as `load` does at one; the largest first, no duplicates.

    An input without an estimate is resized with the outputs.

    Args:
        pipeline: As for `load`.
        estimates: The estimates of each size, at least one, in the form that `load` takes.
        keep_schedule: As for `load`.
        discard_schedule: As for `load`.

    Raises:
        TilewrightError: `estimates` is empty, two sizes differ in the value of a scalar, or any
            error of `load`.
    """
    if not estimates:
        raise TilewrightError("estimates=[] has no size; pass at least one, or omit estimates")
    if keep_schedule and discard_schedule:
        raise TilewrightError(
            "keep_schedule and discard_schedule exclude each other; give one of the two"
        )
    if isinstance(pipeline, str | os.PathLike):
        pipeline = resolve(os.fspath(pipeline))
    if isinstance(pipeline, bytes | bytearray | memoryview):
        captured = Capture(bytes(pipeline), {}, {}, {})
    else:
        captured = capture(to_pipeline(pipeline))
    if discard_schedule:
        captured = replace(captured, serialized=without_schedule(captured.serialized))
    algorithm = _add(import_pipeline(captured.serialized), captured)
    scheduled = tuple(func.name for func in algorithm.funcs if func.scheduled)
    if scheduled and not keep_schedule:
        raise ScheduledError(scheduled)
    if len(estimates) == 1:
        return (complete(algorithm, estimates[0]),)
    return several(algorithm, estimates)


def several(algorithm: Algorithm, estimates: Sequence[Mapping[str, Any]]) -> tuple[Algorithm, ...]:
    """Return the algorithm at each of several sizes, as `load_sizes` does."""
    try:
        own = complete(algorithm, {})
    except MissingEstimatesError:
        own = None
    found: list[Algorithm] = []
    for given in estimates:
        sized = complete(algorithm, given)
        if own is not None:
            named = frozenset(full_name(name, algorithm) for name in given)
            sized = refitted(own, sized, named)
        if found and sized.scalars != found[0].scalars:
            name = next(n for n, value in sized.scalars.items() if found[0].scalars[n] != value)
            raise TilewrightError(
                f"{name} has two values, but the sizes of one schedule may differ in extents only; "
                "use one value"
            )
        found.append(sized)
    return tuple(descending(found))


def complete(algorithm: Algorithm, estimates: Mapping[str, Any]) -> Algorithm:
    """Return the algorithm with `estimates` and the input extents that follow from them.

    Raises:
        MissingEstimatesError: Sizes or values remain unknown.
    """
    algorithm = with_estimates(algorithm, estimates)
    funcs = tuple(
        replace(
            func,
            estimates={a: s for a, s in zip(func.args, output_spans(func), strict=True) if s},
        )
        if func.name in algorithm.outputs
        else func
        for func in algorithm.funcs
    )
    algorithm = replace(algorithm, funcs=funcs)
    missing = missing_estimates(algorithm)
    if any(name in algorithm.outputs for name in missing):
        # Estimates of inputs are not required, because they follow from the outputs.
        inputs = {p.name for p in algorithm.parameters if p.is_buffer}
        missing = {name: dims for name, dims in missing.items() if name not in inputs}
    elif missing:
        algorithm = derive_input_extents(algorithm)
        missing = missing_estimates(algorithm)
    if missing:
        raise MissingEstimatesError(missing)
    return algorithm


def _add(algorithm: Algorithm, captured: Capture) -> Algorithm:
    parameters = []
    for parameter in algorithm.parameters:
        if parameter.is_buffer:
            known = parameter.estimates
            ranges = captured.ranges.get(parameter.name, known)
            parameter = replace(
                parameter,
                estimates=tuple(new or old for new, old in zip(ranges, known, strict=True)),
                strides=captured.strides.get(parameter.name, parameter.strides),
            )
        parameters.append(parameter)
    scalars = {
        p.name: captured.scalars[p.name] for p in algorithm.parameters if p.name in captured.scalars
    }
    # The value of a handle is an address in this process, so it is replaced by 0.
    scalars.update((p.name, 0) for p in algorithm.parameters if p.type.code == "handle")
    return replace(algorithm, parameters=tuple(parameters), scalars=scalars)


def resolve(source: str) -> Any:
    """Return the pipeline in a file, in a form that `load` accepts.

    Args:
        source: The path of a ``.hlpipe`` file, or ``FILE.py:NAME``. In that Python file, `NAME` is
            an argument of `load`, such as a Generator class, or a function without required
            arguments that returns one. The file is run in this process.

    Raises:
        TilewrightError: The file cannot be read or run.
    """
    path, _, name = source.rpartition(":") if ".py:" in source else (source, "", "")
    if not name and path.endswith(".py"):
        raise TilewrightError(
            f"{path} needs the name of a pipeline: {path}:NAME; it has "
            f"{', '.join(_candidates(_run(path))) or 'no pipeline'}"
        )
    if not name:
        return _read(path)
    thing = _find(_run(path), path, name)
    if inspect.isroutine(thing):
        try:
            thing = thing()
        except TilewrightError:
            raise
        except (Exception, SystemExit) as error:
            raise TilewrightError(
                f"{source} failed: {type(error).__name__}: {error}. It must be a function without "
                "required arguments that returns a Func, Funcs or a Pipeline"
            ) from error
    return resolve(os.fspath(thing)) if isinstance(thing, str | os.PathLike) else thing


def serialized(pipeline: Any) -> bytes:
    """Return the bytes of a pipeline, including its schedule; `pipeline` is as for `load`.

    Raises:
        TilewrightError: The pipeline cannot be loaded.
    """
    if isinstance(pipeline, str | os.PathLike):
        pipeline = resolve(os.fspath(pipeline))
    if isinstance(pipeline, bytes | bytearray | memoryview):
        return bytes(pipeline)
    return capture(to_pipeline(pipeline)).serialized


def _read(path: str) -> bytes:
    file = Path(path)
    try:
        if not file.is_file():
            raise TilewrightError(
                f"there is no file {path}; pass the path of a .hlpipe file or FILE.py:NAME"
            )
        if file.stat().st_size > _MAX_FILE:
            raise TilewrightError(f"{path} is larger than 2 GiB, so it is not a pipeline")
        return file.read_bytes()
    except OSError as error:
        raise TilewrightError(f"{path} cannot be read: {error.strerror}") from None


def _run(path: str) -> ModuleType:
    """Run a Python file, with its folder on the search path, and return it as a module."""
    file = Path(path).resolve()
    if not file.is_file():
        raise TilewrightError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"_tilewright_source_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise TilewrightError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent))
    sys.modules[spec.name] = module
    try:
        with own_generators():
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise TilewrightError(f"{path} failed: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(file.parent))
        del sys.modules[spec.name]
    return module


@contextmanager
def own_generators() -> Iterator[None]:
    """Empty Halide's registry of Generators in the block, so a file can register them again."""
    if "halide" not in sys.modules:
        yield  # nothing is registered yet, and the file may not need Halide at all
        return
    from halide import _generator_helpers

    registry: dict[str, Any] = _generator_helpers._python_generators
    before = dict(registry)
    registry.clear()
    try:
        yield
    finally:
        registry.clear()
        registry.update(before)


def _find(module: ModuleType, path: str, name: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        names = ", ".join(_candidates(module))
        raise TilewrightError(f"{path} has no {name!r}; it has {names}") from None


def _candidates(module: ModuleType) -> list[str]:
    """Return the public functions and Generators that the file defines, by name."""
    import halide as hl

    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        # Registering a Generator replaces it by another class, in a module of Halide.
        and getattr(getattr(value, "generate", value), "__module__", None) == module.__name__
        and (
            inspect.isfunction(value)
            or (inspect.isclass(value) and issubclass(value, hl.Generator))
        )
    ]
