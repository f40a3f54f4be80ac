"""The arrays, sizes and results of the kernels, as compiled code needs them.

Operands are checked to fit each other, as compiled code would otherwise read out of bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.prediction.data.kernel import Operands
from tilewright.prediction.errors import PredictionError


@dataclass(frozen=True)
class Form:
    """The form of a kernel whose first operand is the m x n matrix ``a``.

    Attributes:
        arrays: the names of its arrays.
        fits: whether operands fit each other.
        third: the size other than m and n, if it has one: columns of ``b``, or of filter or block.
        shape: the shape of the result by the sizes.
    """

    arrays: tuple[str, ...]
    fits: Callable[[Operands], bool]
    third: Callable[[Operands], int] | None
    shape: Callable[..., tuple[int, ...]]

    def sizes(self, operands: Operands) -> tuple[int, ...]:
        """Return m, n and the third size if there is one."""
        third = () if self.third is None else (self.third(operands),)
        return (*_shape(operands["a"]), *third)


def checked_form(kernel: str, operands: Operands) -> Form:
    """Return the form of a kernel.

    Raises:
        PredictionError: operands do not fit each other; the message has their shapes.
    """
    if not FORMS[kernel].fits(operands):
        shapes = ", ".join(f"{name} {_shape(thing)}" for name, thing in operands.items())
        raise PredictionError(f"the operands of {kernel} do not fit each other: {shapes}")
    return FORMS[kernel]


def _shape(thing: Any) -> tuple[int, ...]:
    return thing.shape if hasattr(thing, "shape") else np.shape(thing)


def _matrices(operands: Operands) -> bool:
    a, b = _shape(operands["a"]), _shape(operands["b"])
    return len(a) == 2 and len(b) == 2 and a[1] == b[0]


def _matrix_and_vector(operands: Operands) -> bool:
    a, x = _shape(operands["a"]), _shape(operands["x"])
    return len(a) == 2 and len(x) == 1 and a[1] == x[0]


def _image_and_filter(operands: Operands) -> bool:
    a, w = _shape(operands["a"]), _shape(operands["w"])
    return len(a) == 2 and len(w) == 2 and 0 < w[0] == w[1] <= min(a)


def _image_and_window(operands: Operands) -> bool:
    return len(_shape(operands["a"])) == 2 and int(operands["s"]) >= 1


FORMS = {
    "matmul": Form(
        ("a", "b"), _matrices, lambda given: _shape(given["b"])[1], lambda m, n, k: (m, k)
    ),
    "matvec": Form(("a", "x"), _matrix_and_vector, None, lambda m, n: (m,)),
    "convolution": Form(
        ("a", "w"),
        _image_and_filter,
        lambda given: _shape(given["w"])[0],
        lambda m, n, r: (m - r + 1, n - r + 1),
    ),
    "pooling": Form(
        ("a",),
        _image_and_window,
        lambda given: int(given["s"]),
        lambda m, n, s: (-(-m // s), -(-n // s)),
    ),
}
