"""The inputs, scalars and output sizes of a candidate, as plain data.

`Inputs` are created once from an `Algorithm` and sent to workers as JSON. Random contents depend
only on the seed and on the coordinates of each element. Two schedules that read different margins
of an input therefore see the same values where they overlap.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.halide.frontend.extents import metadata_used
from tilewright.halide.ir.algorithm import (
    Algorithm,
    Call,
    Const,
    Func,
    Parameter,
    Span,
    Stage,
    Type,
    walk,
)
from tilewright.halide.ir.expressions import uses

Scalar = int | float


class InputError(TilewrightError):
    """An input cannot be created or does not fit the pipeline."""


@dataclass(frozen=True, slots=True)
class BufferInput:
    """One input buffer: at least the box `dims`, with the given contents.

    Attributes:
        name: the name of the parameter.
        type: the type of its elements.
        dims: the box that the buffer must contain.
        strides: strides that the user fixed, in elements; None where free.
        pinned: dimensions on whose bounds the results depend (boundary conditions); the buffer
            then has exactly the range in `dims`.
        low: the lower bound of random contents, included.
        high: their upper bound, excluded.
        path: a ``.npy`` file with the contents. Axis d is dimension d and starts at the first
            coordinate of `dims`; outside the file's array, its nearest element is repeated.
        contents: the SHA-256 hash of that file, which identifies the contents in `Inputs.digest`.
    """

    name: str
    type: Type
    dims: tuple[Span, ...]
    strides: tuple[int | None, ...]
    pinned: tuple[bool, ...]
    low: Scalar = 0
    high: Scalar = 1
    path: str | None = None
    contents: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ScalarInput:
    """One scalar parameter and its value."""

    name: str
    type: Type
    value: Scalar


@dataclass(frozen=True, slots=True)
class OutputShape:
    """One output: the types of its values and the box to compute.

    `in_place` says that the pipeline reads or keeps the buffer's previous contents.
    """

    name: str
    types: tuple[Type, ...]
    dims: tuple[Span, ...]
    strides: tuple[int | None, ...]
    in_place: bool = field(default=False, repr=False)  # part of `Inputs.digest` where true


@dataclass(frozen=True, slots=True)
class Inputs:
    """The arguments of a run of the pipeline."""

    seed: int
    buffers: tuple[BufferInput, ...]
    scalars: tuple[ScalarInput, ...]
    outputs: tuple[OutputShape, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the inputs as JSON data."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Inputs:
        """Return the inputs in JSON data of `to_json`. Raises `InputError` if it is damaged."""
        try:
            return Inputs(
                int(data["seed"]),
                tuple(
                    BufferInput(**{**b, **_box(b), "pinned": tuple(b["pinned"])})
                    for b in data["buffers"]
                ),
                tuple(ScalarInput(**{**s, "type": Type(**s["type"])}) for s in data["scalars"]),
                tuple(
                    OutputShape(
                        o["name"],
                        tuple(Type(**t) for t in o["types"]),
                        tuple(Span(**s) for s in o["dims"]),
                        tuple(o["strides"]),
                        bool(o.get("in_place", False)),
                    )
                    for o in data["outputs"]
                ),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"the description of the inputs is damaged: {error!r}") from None

    @property
    def digest(self) -> str:
        """A hash of all data that can change outputs or times.

        Names of outputs are excluded, because they may be generated, and paths of files, which
        may change.
        """
        nameless = tuple(replace(output, name="") for output in self.outputs)
        buffers = tuple(replace(buffer, path=buffer.contents) for buffer in self.buffers)
        text = repr(replace(self, buffers=buffers, outputs=nameless))
        if any(output.in_place for output in self.outputs):
            text += "".join(f" {output.in_place}" for output in self.outputs)
        return hashlib.sha256(text.encode()).hexdigest()


def _box(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": Type(**data["type"]),
        "dims": tuple(Span(**span) for span in data["dims"]),
        "strides": tuple(data["strides"]),
    }


def describe_inputs(
    algorithm: Algorithm,
    *,
    seed: int = 0,
    contents: Mapping[str, Any] | None = None,
    directory: str | Path | None = None,
) -> Inputs:
    """Return the inputs to measure `algorithm` with, at the sizes of its estimates.

    By default, contents are uniformly random: floats in [0, 1), booleans and integers of up to 16
    bits over all their values, wider signed integers in [-1024, 1024), and wider unsigned integers
    in [0, 65536). With these, sums of products do not overflow.

    Args:
        algorithm: the pipeline.
        seed: the seed of random contents.
        contents: other contents by input name: a range ``(low, high)``, a NumPy array, the path of
            a ``.npy`` file, or a function that takes the shape and returns an array. Axis d of an
            array is dimension d and starts at the first coordinate of the estimate.
        directory: the folder in which to save arrays; workers must be able to read it.

    Raises:
        InputError: `contents` do not fit, or an extent or the value of a scalar is unknown.
    """
    used = metadata_used(algorithm)
    contents = dict(contents or {})
    buffers = []
    for parameter in algorithm.parameters:
        if not parameter.is_buffer:
            continue
        given = contents.pop(parameter.name, None)
        buffers.append(_buffer(parameter, used, given, directory))
    if _query_reads(algorithm):
        buffers = [replace(b, pinned=(True,) * len(b.dims)) for b in buffers]
    if contents:
        names = ", ".join(b.name for b in buffers) or "none"
        given = ", ".join(contents)
        raise InputError(f"contents are given for {given}, but the input buffers are {names}")
    scalars = []
    for parameter in algorithm.parameters:
        if parameter.is_buffer:
            continue
        if parameter.name not in algorithm.scalars:
            raise InputError(f"the scalar {parameter.name} has no value: give it an estimate")
        value = algorithm.scalars[parameter.name]
        scalars.append(ScalarInput(parameter.name, parameter.type, value))
    outputs = []
    for name in algorithm.outputs:
        func = algorithm.by_name[name]
        if any(arg not in func.estimates for arg in func.args):
            raise InputError(f"the output {name} has no estimates: give its extents")
        dims = tuple(func.estimates[arg] for arg in func.args)
        outputs.append(OutputShape(name, func.types, dims, func.strides, in_place(func)))
    return Inputs(seed, tuple(buffers), tuple(scalars), tuple(outputs))


def _query_reads(algorithm: Algorithm) -> bool:
    """Return whether Halide reads inputs to find their bounds.

    If an update stores at one place, which a loaded value decides, that place is a bound: Halide 21
    reads it from a buffer that has no memory yet, and crashes.
    """
    return any(_at_one_place(s) for func in algorithm.funcs for s in func.stages[1:])


def _at_one_place(stage: Stage) -> bool:
    """Return whether a value that is the same in all iterations decides where a stage stores."""
    once = {r.name for r in stage.rvars if isinstance(r.extent, Const) and r.extent.value == 1}
    loops = {loop.name for loop in stage.loops} - once
    loads = (n for n in walk(*stage.args) if isinstance(n, Call) and n.kind in ("func", "image"))
    return any(not uses(load, loops) for load in loads)


def in_place(func: Func) -> bool:
    """Return whether a Func keeps its buffer's contents: an initial value is ``undef``."""
    return bool(func.stages) and any(
        isinstance(node, Call) and node.name == "undef" for node in walk(*func.stages[0].values)
    )


def _buffer(
    parameter: Parameter, used: frozenset[str], given: Any, directory: str | Path | None
) -> BufferInput:
    name = parameter.name
    if parameter.type.code == "handle":
        raise InputError(f"the input {name} contains pointers, so that no contents can be created")
    dims = tuple(span for span in parameter.estimates if span is not None)
    if len(dims) != parameter.dimensions:
        raise InputError(f"the extents of the input {name} are unknown: give its estimates")
    pinned = tuple(
        f"{name}.min.{d}" in used or f"{name}.extent.{d}" in used for d in range(len(dims))
    )
    strides = parameter.strides or (None,) * len(dims)
    low, high = default_range(parameter.type)
    path = None
    if isinstance(given, tuple):
        low, high = _range(name, given)
    elif given is not None:
        path = _file(name, parameter.type, dims, given, directory)
    contents = None if path is None else _hash(path)
    return BufferInput(name, parameter.type, dims, strides, pinned, low, high, path, contents)


def default_range(kind: Type) -> tuple[Scalar, Scalar]:
    """Return the default range ``[low, high)`` of random contents of a type."""
    if kind.code in ("float", "bfloat"):
        return 0.0, 1.0
    if kind.bits <= 16:
        low = -(1 << (kind.bits - 1)) if kind.code == "int" else 0
        return low, low + (1 << kind.bits)
    return (-1024, 1024) if kind.code == "int" else (0, 65536)


def _range(name: str, given: tuple[Any, ...]) -> tuple[Scalar, Scalar]:
    numbers = [number for number in given if isinstance(number, int | float)]
    if len(given) != 2 or len(numbers) != 2 or not numbers[0] < numbers[1]:
        raise InputError(f"the range of {name} must be (low, high) with low < high, not {given}")
    return numbers[0], numbers[1]


def _hash(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _file(
    name: str, kind: Type, dims: tuple[Span, ...], given: Any, directory: str | Path | None
) -> str:
    """Return the path of a ``.npy`` file with the contents; check their shape and type."""
    import numpy as np

    from tilewright.halide.ir.types import numpy_type

    shape = tuple(span.extent for span in dims)
    if callable(given):
        given = given(shape)
    try:
        array = np.load(given, mmap_mode="r") if isinstance(given, str | Path) else given
    except (OSError, ValueError) as error:
        raise InputError(f"the contents of {name} cannot be read: {error}") from None
    array = np.asanyarray(array)
    wanted = np.dtype(np.float32) if kind.code == "bfloat" else numpy_type(kind)
    if array.ndim != len(dims) or 0 in array.shape:
        raise InputError(
            f"the input {name} has {len(dims)} dimensions, but its contents have the shape "
            f"{array.shape}"
        )
    if array.dtype != wanted:
        raise InputError(f"the input {name} has the type {kind}, its contents {array.dtype}")
    if isinstance(given, str | Path):
        return str(Path(given).resolve())
    if directory is None:
        raise InputError(f"the contents of {name} are an array: give a directory to save it in")
    path = Path(directory).resolve() / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.npy"
    # Another run may use a file of this name, with the same contents.
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        np.save(Path(scratch) / path.name, array, allow_pickle=False)
        (Path(scratch) / path.name).replace(path)
    return str(path)
