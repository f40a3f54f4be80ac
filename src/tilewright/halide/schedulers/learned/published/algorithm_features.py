"""The 40 x 7 features of a stage's definition, of Adams et al. 2019 and Anderson et al. 2021.

Counts over the canonical form of the definition (`canonical`), by type: 24 kinds of operations and
4 kinds of access (`access_kinds`) for each of loads of Funcs, loads of itself, loads of images, and
stores. They do not depend on the schedule.

Source: the released code of both schedulers, as of 2026-08, where casts are not counted.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.halide.ir.algorithm import Call, Const, Expr, Type, Variable
from tilewright.halide.schedulers.learned.published.canonical import counted
from tilewright.halide.schedulers.learned.published.derivatives import access_kinds, jacobian
from tilewright.halide.schedulers.learned.published.pipeline import Pipeline, StageNode

Array: TypeAlias = npt.NDArray[np.float64]

TYPES = ("bool", "8 bits", "16 bits", "32 bits", "64 bits", "float", "double")
# A comparison "greater" counts as a "less" with its operands swapped.
OPERATIONS = (
    "const cast variable param add sub mod mul div min max eq ne lt le and or not select "
    "image_call func_call self_call extern_call let"
).split()
ACCESSES = ("func", "self", "image", "store")
KINDS = ("pointwise", "transpose", "broadcast", "slice")
NAMES = (*OPERATIONS, *(f"{kind} {access}" for kind in KINDS for access in ACCESSES))
_ROW = {name: i for i, name in enumerate(NAMES)}


def type_class(kind: Type) -> int:
    """Return the position of a type in `TYPES`; half floats count as float."""
    if kind.code in ("float", "bfloat"):
        return 6 if kind.bits > 32 else 5
    for place, bits in enumerate((1, 8, 16, 32)):
        if kind.bits <= bits:
            return place
    return 4


def algorithm_features(pipeline: Pipeline, as_released: bool = True) -> Array:
    """Return the features of every stage, in the order of `Pipeline.stages`.

    Args:
        pipeline: The pipeline.
        as_released: Whether casts are not counted, as in the released code, which has a row of
            zeros for them.

    Returns:
        Counts, shape (stages, 40, 7): a row per entry of `NAMES`, a column per entry of `TYPES`.
    """
    result = np.zeros((len(pipeline.stages), len(NAMES), len(TYPES)))
    for place, stage in enumerate(pipeline.stages):
        _count_stage(stage, result[place], as_released)
    return result


def _count_stage(stage: StageNode, counts: Array, as_released: bool) -> None:
    func = stage.node.func
    for kind in func.types:
        _access("store", stage.canonical_args, stage, kind, 1, counts)
    for root in (*stage.canonical_values, *stage.canonical_args):
        for node, times in counted(root):
            operation = _operation(node, func.name)
            if operation == "cast" and as_released:
                continue
            if operation is not None:
                counts[_ROW[operation], type_class(node.type)] += times
            if isinstance(node, Call) and node.kind in ("func", "image"):
                access = "image" if node.kind == "image" else "func"
                access = "self" if operation == "self_call" else access
                _access(access, node.args, stage, node.type, times, counts)


def _operation(node: Expr, own: str) -> str | None:
    """Return the kind of a node; None for those that are not counted."""
    if isinstance(node, Const):
        return None if isinstance(node.value, str) else "const"
    if isinstance(node, Variable):
        return "param" if node.kind == "param" else "variable"
    if isinstance(node, Call):
        if node.kind == "func":
            return "self_call" if node.name == own else "func_call"
        return "image_call" if node.kind == "image" else "extern_call"
    return node.name if node.name in OPERATIONS else None


def _access(
    access: str, args: tuple[Expr, ...], stage: StageNode, kind: Type, times: int, counts: Array
) -> None:
    found = access_kinds(jacobian(args, stage.loops), len(stage.loops))
    for name, holds in zip(KINDS, found, strict=True):
        if holds:
            counts[_ROW[f"{name} {access}"], type_class(kind)] += times
