"""Loads pipelines from all supported sources."""

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

_MAX_FILE = 2**31 - 1  # of a FlatBuffer


class ScheduledError(TilewrightError):
    """The user has scheduled Funcs of the pipeline; `funcs` names them."""

    def __init__(self, funcs: tuple[str, ...]) -> None:
        """`funcs` are the names of the scheduled Funcs."""
        self.funcs = funcs
        super().__init__(
            f"the pipeline has been scheduled already: {', '.join(funcs)}. Use "
            "discard_schedule=True to drop these schedules, or keep_schedule=True to leave these "
            "Funcs as they are"
        )


def load(
    pipeline: Any,
    *,
    estimates: Mapping[str, Any] | None = None,
    keep_schedule: bool = False,
    discard_schedule: bool = False,
) -> Algorithm:
    """Read a pipeline with the sizes and values to schedule it for.

    `pipeline` is a ``halide.Func``, a sequence of them, a ``halide.Pipeline``, a Python
    ``halide.Generator`` (class or instance), serialised bytes, or a path or string as
    `resolve` takes it. Estimates come from the pipeline; `estimates` adds to them and
    takes precedence (see `tilewright.halide.frontend.estimates.with_estimates`). A scalar
    without an estimate has its current value as one, an input without one the extents that
    the outputs' estimates imply.

    With `discard_schedule` the pipeline is read as if nothing had been scheduled; estimates,
    bounds and constraints stay (see `tilewright.halide.frontend.serial.reset`).

    Raises `ScheduledError` if Funcs have been scheduled and neither `keep_schedule` nor
    `discard_schedule` is true, `MissingEstimatesError`, naming all of them, if sizes or values are
    unknown, and `TilewrightError` if no pipeline can be loaded.
    """
    return load_sizes(
        pipeline,
        [estimates or {}],
        keep_schedule=keep_schedule,
        discard_schedule=discard_schedule,
    )[0]


def load_sizes(
    pipeline: Any,
    estimates: Sequence[Mapping[str, Any]],
    *,
    keep_schedule: bool = False,
    discard_schedule: bool = False,
) -> tuple[Algorithm, ...]:
    """Load like `load`, once for each of several sizes; the largest first, each size once.

    With several sizes, an input without an estimate grows and shrinks with the outputs.

    Raises `TilewrightError` if there are no estimates at all, or if sizes differ in the value of a
    scalar.
    """
    if not estimates:
        raise TilewrightError("estimates=[] has no size: give at least one, or none at all")
    if keep_schedule and discard_schedule:
        raise TilewrightError("a schedule is kept or discarded: give one of the two")
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
    """Return the algorithm with each of several sizes, as `load_sizes` says."""
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
                f"{name} has two values: sizes of one schedule differ in extents alone; give one"
            )
        found.append(sized)
    return tuple(descending(found))


def complete(algorithm: Algorithm, estimates: Mapping[str, Any]) -> Algorithm:
    """Return the algorithm with `estimates` and everything that follows from them.

    Raises `MissingEstimatesError` if something remains unknown.
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
        # Inputs follow from outputs, so they are not required.
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
    # A handle's value is an address of this process, which no other process can use.
    scalars.update((p.name, 0) for p in algorithm.parameters if p.type.code == "handle")
    return replace(algorithm, parameters=tuple(parameters), scalars=scalars)


def resolve(source: str) -> Any:
    """Return the pipeline in a file, in a form that `load` accepts.

    `source` is the path of a ``.hlpipe`` file, or ``FILE.py:NAME`` where `NAME` is, in that Python
    file, a function without required arguments that returns an argument of `load`, a Generator
    class, or such an argument itself. The file is run in this process.

    Raises `TilewrightError` if the file cannot be read or run.
    """
    path, _, name = source.rpartition(":") if ".py:" in source else (source, "", "")
    if not name and path.endswith(".py"):
        raise TilewrightError(
            f"say which pipeline of {path}: {path}:NAME; it has "
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
        except Exception as error:
            raise TilewrightError(
                f"{source} failed: {type(error).__name__}: {error}. It must be a function that "
                "can be called without arguments and returns a Func, Funcs or a Pipeline"
            ) from error
    return resolve(os.fspath(thing)) if isinstance(thing, str | os.PathLike) else thing


def serialized(pipeline: Any) -> bytes:
    """Return the bytes of a pipeline, schedule included; `pipeline` is as for `load`.

    Raises `TilewrightError` as `load` does.
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
            raise TilewrightError(f"there is no file {path}: expected a .hlpipe or FILE.py:NAME")
        if file.stat().st_size > _MAX_FILE:
            raise TilewrightError(f"{path} is larger than a serialised pipeline can be (2 GiB)")
        return file.read_bytes()
    except OSError as error:
        raise TilewrightError(f"{path} cannot be read: {error.strerror}") from None


def _run(path: str) -> ModuleType:
    """Return the module that the file defines; its folder is on the search path while it runs."""
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
    except Exception as error:
        raise TilewrightError(f"{path} failed: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(file.parent))
        del sys.modules[spec.name]
    return module


@contextmanager
def own_generators() -> Iterator[None]:
    """Set the names of registered Generators aside: a file that runs again registers them again."""
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
    """Return public functions and Generators that the file itself defines."""
    import halide as hl

    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        # Registering a Generator makes another class of it, in a module of Halide's.
        and getattr(getattr(value, "generate", value), "__module__", None) == module.__name__
        and (
            inspect.isfunction(value)
            or (inspect.isclass(value) and issubclass(value, hl.Generator))
        )
    ]
