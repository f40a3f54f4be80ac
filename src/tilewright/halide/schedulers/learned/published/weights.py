"""Weights of the published networks, in the format of Halide's ``.weights`` files.

A file has four unsigned 32-bit numbers (a signature, the versions of both kinds of features, the
number of arrays), then each array: the number of dimensions, their extents from the innermost one,
and the values as 32-bit floats; all little-endian. No weights are part of this package: give the
path of a file, such as ``baseline.weights`` in Halide's sources or one that its training tools
wrote.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.errors import TilewrightError

Array: TypeAlias = npt.NDArray[np.float64]

SIGNATURE = 0x68776631
VERSIONS = (3, 3)  # of the features of algorithms and of schedules that we compute
ALGORITHM_CHANNELS, SCHEDULE_CHANNELS, COEFFICIENTS = 8, 24, 32
ALGORITHM_SHAPE = (40, 7)
_ARRAYS = 6


class WeightsError(TilewrightError):
    """A file that does not hold weights of a published network."""


@dataclass(frozen=True, eq=False)
class Weights:
    """The weights of a network for F schedule features.

    Attributes:
        algorithm: Shape (8, 40, 7), before the sigmoid.
        algorithm_bias: Shape (8,).
        schedule: Shape (24, F).
        schedule_bias: Shape (24,).
        trunk: Shape (32, 8 + 24).
        trunk_bias: Shape (32,).
    """

    algorithm: Array
    algorithm_bias: Array
    schedule: Array
    schedule_bias: Array
    trunk: Array
    trunk_bias: Array

    @property
    def features(self) -> int:
        """The number of schedule features: 39 for Adams 2019, 73 for Anderson 2021."""
        return int(self.schedule.shape[1])

    @property
    def size(self) -> int:
        """The number of weights: 4264 for Adams 2019, 5080 for Anderson 2021."""
        arrays = (self.algorithm, self.schedule, self.trunk)
        biases = (self.algorithm_bias, self.schedule_bias, self.trunk_bias)
        return sum(array.size for array in (*arrays, *biases))


def load_weights(path: str | Path) -> Weights:
    """Return the weights in a file.

    Raises:
        WeightsError: The file cannot be read or has another format.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise WeightsError(f"the weights {path} cannot be read: {error.strerror}") from error
    return parse_weights(data, str(path))


def embedded_weights(plugin: str | Path) -> Weights:
    """Return the weights that are built into a plugin of Halide (Adams2019 or Anderson2021).

    Raises:
        WeightsError: The library cannot be read or has none.
    """
    try:
        data = Path(plugin).read_bytes()
    except OSError as error:
        raise WeightsError(f"the plugin {plugin} cannot be read: {error.strerror}") from error
    at = data.find(struct.pack("<4I", SIGNATURE, *VERSIONS, _ARRAYS))
    if at < 0:
        raise WeightsError(f"the plugin {plugin} has no weights of the known versions {VERSIONS}")
    return parse_weights(data[at:], str(plugin), longer=True)


def parse_weights(data: bytes, name: str = "the data", *, longer: bool = False) -> Weights:
    """Return the weights in the bytes of a file.

    Args:
        data: The bytes.
        name: What to call them in errors.
        longer: Whether other bytes may follow.

    Raises:
        WeightsError: The bytes have another format.
    """
    try:
        signature, *versions, count = struct.unpack_from("<4I", data)
        if signature != SIGNATURE or count != _ARRAYS:
            raise WeightsError(f"{name} is not a file of weights: its first bytes differ")
        if tuple(versions) != VERSIONS:
            raise WeightsError(f"{name} is for features of versions {versions}, not {VERSIONS}")
        arrays, at = _arrays(data, struct.calcsize("<4I"))
    except (struct.error, ValueError) as error:
        raise WeightsError(f"{name} ends within its weights") from error
    if at != len(data) and not longer:
        raise WeightsError(f"{name} has {len(data) - at} bytes after its weights")
    weights = Weights(*arrays)
    _check_shapes(weights, name)
    return weights


def _arrays(data: bytes, at: int) -> tuple[list[Array], int]:
    """Return the arrays, dimensions as in `Weights`, and the position after them."""
    found = []
    for _ in range(_ARRAYS):
        (dimensions,) = struct.unpack_from("<I", data, at)
        if not 1 <= dimensions <= len(ALGORITHM_SHAPE) + 1:
            raise WeightsError(f"an array of the weights has {dimensions} dimensions")
        shape = struct.unpack_from(f"<{dimensions}I", data, at + 4)
        at += 4 + 4 * dimensions
        count = int(np.prod(shape, dtype=np.int64))
        values = np.frombuffer(data, "<f4", count, at).astype(np.float64)
        at += 4 * count
        # Stored from the innermost dimension: the last dimension of an array here is the first.
        found.append(values.reshape(shape[::-1]).transpose())
    return found, at


def _check_shapes(weights: Weights, name: str) -> None:
    expected = (
        (ALGORITHM_CHANNELS, *ALGORITHM_SHAPE),
        (ALGORITHM_CHANNELS,),
        (SCHEDULE_CHANNELS, weights.schedule.shape[-1]),
        (SCHEDULE_CHANNELS,),
        (COEFFICIENTS, ALGORITHM_CHANNELS + SCHEDULE_CHANNELS),
        (COEFFICIENTS,),
    )
    arrays = (
        weights.algorithm,
        weights.algorithm_bias,
        weights.schedule,
        weights.schedule_bias,
        weights.trunk,
        weights.trunk_bias,
    )
    shapes = tuple(array.shape for array in arrays)
    if shapes != expected:
        raise WeightsError(f"{name} has arrays of the shapes {shapes}, not {expected}")
