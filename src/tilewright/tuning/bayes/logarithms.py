"""The scale on which objectives are modelled: logarithms, where they are all of one sign."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]


def logarithms(values: Array) -> Array | None:
    """Return costs, shape (n,), as logarithms in the same order; None if their signs differ.

    A negative cost is what a quantity that is maximised becomes (a throughput). Its logarithm is
    that of the reciprocal quantity, so that throughputs are modelled as the times they stand for.
    """
    if (values > 0).all():
        return np.asarray(np.log(values))
    if (values < 0).all():
        return np.asarray(-np.log(-values))
    return None
