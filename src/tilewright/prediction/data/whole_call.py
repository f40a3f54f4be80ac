"""Timing variants as a dispatcher calls them: from operands to answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tilewright.prediction.data.kernel import KernelVariant, Operands, Run
from tilewright.prediction.kernels.storage import csr, dense


def whole_call(variant: KernelVariant) -> KernelVariant:
    """Return the variant with its preparation timed as well; operands are already in its storage.

    The overhead of a call (checks, wrappers, copies into a library's own form) is included;
    converting between dense and sparse storage is not.
    """

    def build(operands: Operands, settings: Mapping[str, int]) -> Run:
        ready = {name: stored(thing, variant.storage) for name, thing in operands.items()}
        return lambda: variant.build(ready, settings)()

    return replace(variant, name=f"{variant.name} call", build=build, whole=variant)


def stored(thing: Any, storage: str) -> Any:
    """Return a matrix in that storage; anything else unchanged."""
    if len(getattr(thing, "shape", ())) != 2:
        return thing
    return csr(thing) if storage == "sparse" else dense(thing)
