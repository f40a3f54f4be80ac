"""Loads the pipeline that a command line names, from a ``.hlpipe`` or a Python file."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tilewright.errors import TilewrightError


@dataclass(frozen=True)
class NamedPipeline:
    """A pipeline with its name and its file.

    `pipeline` is the bytes of a ``.hlpipe`` file, the value that the function returned, or a
    Generator class. `path` is the file, `function` the name in it (empty for a ``.hlpipe``). `hand`
    is the file's function ``hand(target, …)``, which builds the same pipeline with a hand-written
    schedule, or None.
    """

    name: str
    pipeline: Any
    path: Path
    function: str = ""
    hand: Callable[..., Any] | None = None


def load_pipeline(text: str, arguments: Mapping[str, Any] | None = None) -> NamedPipeline:
    """Load the pipeline that `text` names; `arguments` are passed to its function.

    ``file.py`` alone names the function (or Generator) with the name of the file. Raises
    `TilewrightError` if the pipeline does not exist, or if the user's code fails.
    """
    given = dict(arguments or {})
    path_text, _, function = text.partition(":") if ".py:" in text else (text, "", "")
    path = Path(path_text)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise TilewrightError(
            f"{path_text} {what}: name a pipeline as file.py:function, file.py:Generator or a "
            ".hlpipe file"
        )
    if path.suffix == ".py":
        return _from_python(path, function or path.stem, given)
    if given:
        raise TilewrightError(
            f"{path_text} is a serialised pipeline and takes no --arg; for the value of one of "
            "its parameters use --set"
        )
    try:
        return NamedPipeline(path.stem, path.read_bytes(), path)
    except OSError as error:
        raise TilewrightError(f"cannot read {path_text}: {error.strerror}") from error


def _from_python(path: Path, function: str, arguments: dict[str, Any]) -> NamedPipeline:
    module = load_module(path)
    found = getattr(module, function, None)
    if found is None or not callable(found):
        there = ", ".join(_functions(module)) or "none"
        raise TilewrightError(f"{path} has no function {function!r}; it has: {there}")
    hand = getattr(module, "hand", None)
    if inspect.isclass(found):
        if arguments:
            found = _generator_with(found, arguments)
        return NamedPipeline(function, found, path, function, hand)
    check_arguments(path, function, found, arguments)
    pipeline = call_user(path, found, **arguments)
    if pipeline is None:
        raise TilewrightError(
            f"{path}:{function} returned nothing: return the output Func, a list of them, or a "
            "Pipeline"
        )
    return NamedPipeline(function, pipeline, path, function, hand)


def _generator_with(generator: Any, arguments: dict[str, Any]) -> Any:
    """Return the Generator class with new values of some of its parameters."""
    import halide as hl

    there = {
        name: parameter._value
        for base in reversed(generator.__mro__)
        for name, parameter in vars(base).items()
        if isinstance(parameter, hl.GeneratorParam)
    }
    for name, value in arguments.items():
        # Types and dimensions of inputs and outputs (a.type, a.dim) are Halide's to check.
        if name not in there and not ("." in name and hasattr(generator, name.split(".")[0])):
            raise TilewrightError(
                f"{generator.__name__} has no parameter {name!r}; it has "
                f"{', '.join(there) or 'none'}"
            )
        kind = type(there.get(name))
        if not _suits(value, kind):
            raise TilewrightError(
                f"{generator.__name__} wants a value of type {kind.__name__} for {name!r}, not "
                f"{value!r}"
            )

    def init(self: Any) -> None:
        generator.__init__(self, arguments)

    return type(generator.__name__, (generator,), {"__init__": init})


def _suits(value: Any, kind: type) -> bool:
    """Return whether the type of a Generator parameter fits a value; Halide would convert any."""
    if kind is bool:
        return isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return True


def _functions(module: ModuleType) -> list[str]:
    """Return the public functions and classes that the file itself defines."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        # Registering a Generator creates another class, in a module of Halide's.
        and getattr(value, "generate", value).__module__ == module.__name__
    ]


def check_arguments(path: Path, name: str, function: Any, arguments: dict[str, Any]) -> None:
    """Reject unknown and missing arguments of a user's function.

    Raises:
        TilewrightError: the arguments do not fit its signature.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # not written in Python: the call itself will raise
        return
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise TilewrightError(
            f"{path}:{name}{signature}: {error}; give arguments with --arg NAME=VALUE"
        ) from error


def load_module(path: Path) -> ModuleType:
    """Run a user's Python file as a module; its folder is on the path for its own imports."""
    from tilewright.halide import own_generators

    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TilewrightError(f"{path} cannot be loaded as a Python file")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        # At the end, so that a file named like an installed package hides nothing.
        sys.path.append(folder)
    with own_generators():
        call_user(path, spec.loader.exec_module, module)
    return module


def load_object(text: str) -> Any:
    """Return the object that ``file.py:name`` names.

    Raises:
        TilewrightError: the file or the object does not exist, or the user's code fails.
    """
    path, _, name = text.rpartition(":")
    if not Path(path).is_file():
        raise TilewrightError(f"there is no file {path}")
    module = load_module(Path(path))
    # Worker processes import functions from here.
    sys.modules.setdefault(module.__name__, module)
    if not hasattr(module, name):
        raise TilewrightError(f"{path} has no {name!r}")
    return getattr(module, name)


def call_user(path: Path, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a user's function; an exception becomes an error that names the file and line."""
    try:
        return function(*args, **kwargs)
    except SystemExit as error:
        raise TilewrightError(f"{path} called sys.exit({error.code!r}) while loading") from error
    except TilewrightError as error:
        where = _user_line(path, error)
        if where == str(path) or str(path) in str(error):
            raise
        raise TilewrightError(f"{where}: {error}") from error
    except Exception as error:
        where = _user_line(path, error)
        raise TilewrightError(f"{where}: {type(error).__name__}: {error}") from error


def _user_line(path: Path, error: Exception) -> str:
    """Return the file and, where the error passed through it, its innermost line there."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename) == path or Path(frame.filename).resolve() == path.resolve()
    ]
    if isinstance(error, SyntaxError) and error.lineno:
        lines.append(error.lineno)
    return f"{path}, line {lines[-1]}" if lines else str(path)


def load_inputs(text: str | None) -> dict[str, Any] | None:
    """Load inputs by name: the arrays of an ``.npz`` file, or the result of ``file.py:function``.

    Returns None for None. Raises `TilewrightError` if the file or function does not exist.
    """
    if text is None:
        return None
    path_text, _, function = text.partition(":") if ".py:" in text else (text, "", "")
    path = Path(path_text)
    if not path.is_file():
        raise TilewrightError(f"there is no file {path_text} to take inputs from")
    if function:
        found = getattr(load_module(path), function, None)
        if not callable(found):
            raise TilewrightError(f"{path} has no function {function!r}")
        inputs = call_user(path, found)
        if not isinstance(inputs, Mapping):
            raise TilewrightError(
                f"{text} returned {type(inputs).__name__}: return a dict of arrays by input name"
            )
        return dict(inputs)
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, AttributeError, EOFError) as error:
        raise TilewrightError(f"{path_text} is not an .npz file of arrays: {error}") from error
