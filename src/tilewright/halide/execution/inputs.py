"""The inputs, scalars and output sizes of a candidate, as plain data.

An `Inputs` is made once from an `Algorithm` and goes to workers as JSON. Its random contents
depend on the seed and on each element's coordinates alone, so that two schedules that read
different margins of an input see the same values wherever both read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.halide.frontend.extents import metadata_used
from tilewright.halide.ir.algorithm import Algorithm, Call, Func, Parameter, Span, Type, walk

Scalar = int | float


class InputError(TilewrightError):
    """An input cannot be made, or does not fit the pipeline."""


@dataclass(frozen=True, slots=True)
class BufferInput:
    """One input buffer: at least the box `dims`, with the given contents.

    `strides` are those that the user fixed. A dimension is `pinned` if the computation depends on
    its bounds (boundary conditions): it then has exactly that range. Contents are uniform in
    ``[low, high)``, or those of the ``.npy`` file at `path`, whose axis d is dimension d from the
    first coordinate of `dims` on; outside it its nearest element is repeated.
    """

    name: str
    type: Type
    dims: tuple[Span, ...]
    strides: tuple[int | None, ...]
    pinned: tuple[bool, ...]
    low: Scalar = 0
    high: Scalar = 1
    path: str | None = None


@dataclass(frozen=True, slots=True)
class ScalarInput:
    """One scalar parameter and its value."""

    name: str
    type: Type
    value: Scalar


@dataclass(frozen=True, slots=True)
class OutputShape:
    """One output: the types of its values and the box to compute.

    `in_place` says that the pipeline reads or keeps what the buffer holds beforehand.
    """

    name: str
    types: tuple[Type, ...]
    dims: tuple[Span, ...]
    strides: tuple[int | None, ...]
    in_place: bool = field(default=False, repr=False)  # part of `Inputs.digest` where true


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that a run of the pipeline needs, except its bytes."""

    seed: int
    buffers: tuple[BufferInput, ...]
    scalars: tuple[ScalarInput, ...]
    outputs: tuple[OutputShape, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Inputs:
        """Read what `to_json` returned. Raises `InputError` if it is something else."""
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
        """A hash of everything that could change outputs or times.

        Names of outputs do not count: they may be automatic.
        """
        nameless = tuple(replace(output, name="") for output in self.outputs)
        text = repr(replace(self, outputs=nameless))
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

    By default floats are uniform in [0, 1), integers of up to 16 bits and booleans over all
    their values, wider signed integers in [-1024, 1024) and wider unsigned ones in [0, 65536),
    so that sums of products do not overflow. `contents` gives others, by the input's name: a
    pair ``(low, high)``, a NumPy array or the path of a ``.npy`` file (axis d is dimension d,
    counted from the first coordinate of the estimate), or a function of the shape that returns
    such an array. Arrays are saved in `directory`, which workers must be able to read.

    Raises `InputError` if contents do not fit, or an extent is unknown.
    """
    used = metadata_used(algorithm)
    contents = dict(contents or {})
    buffers = []
    for parameter in algorithm.parameters:
        if not parameter.is_buffer:
            continue
        given = contents.pop(parameter.name, None)
        buffers.append(_buffer(parameter, used, given, directory))
    if contents:
        names = ", ".join(b.name for b in buffers) or "none"
        raise InputError(f"contents for {', '.join(contents)}, but the input buffers are {names}")
    scalars = []
    for parameter in algorithm.parameters:
        if parameter.is_buffer:
            continue
        if parameter.name not in algorithm.scalars:
            raise InputError(f"the scalar {parameter.name} has no value")
        value = algorithm.scalars[parameter.name]
        scalars.append(ScalarInput(parameter.name, parameter.type, value))
    outputs = []
    for name in algorithm.outputs:
        func = algorithm.by_name[name]
        if any(arg not in func.estimates for arg in func.args):
            raise InputError(f"the output {name} has no estimates")
        dims = tuple(func.estimates[arg] for arg in func.args)
        outputs.append(OutputShape(name, func.types, dims, func.strides, in_place(func)))
    return Inputs(seed, tuple(buffers), tuple(scalars), tuple(outputs))


def in_place(func: Func) -> bool:
    """Return whether a Func starts from what its memory holds: some value is undefined at first."""
    return bool(func.stages) and any(
        isinstance(node, Call) and node.name == "undef" for node in walk(*func.stages[0].values)
    )


def _buffer(
    parameter: Parameter, used: frozenset[str], given: Any, directory: str | Path | None
) -> BufferInput:
    name = parameter.name
    if parameter.type.code == "handle":
        raise InputError(f"the input {name} holds pointers: there is no data to measure it with")
    dims = tuple(span for span in parameter.estimates if span is not None)
    if len(dims) != parameter.dimensions:
        raise InputError(f"the extents of the input {name} are unknown: give an estimate of it")
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
    return BufferInput(name, parameter.type, dims, strides, pinned, low, high, path)


def default_range(kind: Type) -> tuple[Scalar, Scalar]:
    """Return the range ``[low, high)`` that inputs of a type are drawn from by default."""
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


def _file(
    name: str, kind: Type, dims: tuple[Span, ...], given: Any, directory: str | Path | None
) -> str:
    """Return the path of a ``.npy`` file with the contents, checked against the input's type."""
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
        raise InputError(f"{name} has {len(dims)} dimensions, its contents the shape {array.shape}")
    if array.dtype != wanted:
        raise InputError(f"{name} is of type {kind}, its contents are of type {array.dtype}")
    if isinstance(given, str | Path):
        return str(Path(given).resolve())
    if directory is None:
        raise InputError(f"contents of {name} are given as an array: give a directory to save it")
    path = Path(directory).resolve() / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.npy"
    np.save(path, array, allow_pickle=False)
    return str(path)
