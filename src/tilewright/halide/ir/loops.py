"""Build and parse canonical loop names: ``v1`` is dimension 1, ``v1t`` a loop split from it.

The loops of a definition are ``v0``, ``v1`` … and ``r0``, ``r1`` …
(see `tilewright.halide.ir.schedule`). The schedulers name a loop that they introduce after the loop
it comes from: that loop's name, a role (a letter) and, in an update definition, the stage's number.
The number is needed because Halide identifies loops of one name in two stages of a Func.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

_ORIGIN = re.compile(r"([vr])(\d+)(?!\d)")
NAMES = 4096  # names of loops whose origins are kept


def pure_loop(dimension: int) -> str:
    """Return the name of the loop over a dimension of the Func.

    >>> pure_loop(10)
    'v10'
    """
    return f"v{dimension}"


def reduction_loop(index: int) -> str:
    """Return the name of the loop over the reduction variable at a position of the domain.

    >>> reduction_loop(0)
    'r0'
    """
    return f"r{index}"


def part_of(loop: str, role: str, stage: int = 0) -> str:
    """Return the name of the loop with role `role` that is split from the definition's loop `loop`.

    >>> part_of("v1", "t"), part_of("v1", "t", stage=2)
    ('v1t', 'v1t_2')
    """
    return f"{loop}{role}{stage_suffix(stage)}"


def stage_suffix(stage: int) -> str:
    """Return the suffix of the loops that a stage introduces: empty for the pure definition."""
    return "" if stage == 0 else f"_{stage}"


@lru_cache(maxsize=NAMES)
def origin(loop: str) -> tuple[Literal["v", "r"], int] | None:
    """Return the kind and index of the definition's loop that a loop comes from, by its name.

    Return None for names that do not begin with a loop of the definition.

    >>> origin("v10t_1"), origin("r0"), origin("p0")
    (('v', 10), ('r', 0), None)
    """
    found = _ORIGIN.match(loop)
    if found is None:
        return None
    return ("v" if found[1] == "v" else "r"), int(found[2])


def is_original(loop: str) -> bool:
    """Return whether a loop belongs to the definition, rather than to a split or fusion.

    >>> is_original("v10"), is_original("v1t")
    (True, False)
    """
    return re.fullmatch(r"[vr]\d+", loop) is not None


def dimension_of(loop: str) -> int | None:
    """Return the dimension of the Func that a loop comes from, by its name; None for other loops.

    >>> dimension_of("v10"), dimension_of("r0")
    (10, None)
    """
    found = origin(loop)
    return found[1] if found is not None and found[0] == "v" else None


def runs_over(loop: str, dimension: int | None) -> bool:
    """Return whether a loop runs over a dimension of the Func or a part of it, by its name.

    >>> runs_over("v1t", 1), runs_over("v10", 1), runs_over("v1", None)
    (True, False, False)
    """
    return dimension is not None and origin(loop) == ("v", dimension)
