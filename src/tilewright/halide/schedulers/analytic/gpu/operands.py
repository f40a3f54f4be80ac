"""Count what the operands of unrolled loops take: rows with an address, and words in registers.

| symbol | meaning | unit |
|---|---|---|
| `places` | offsets of an access along one dimension, of all unrolled copies | elements |
| `words` | 32-bit registers of an operand | count |
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence

from tilewright.halide.analysis.instructions import MemoryAccess
from tilewright.halide.schedulers.analytic.gpu.staging import VECTOR
from tilewright.halide.schedulers.analytic.gpu.thread_loops import InnerLoop

WORD_BYTES = 4.0  # of a register


def different_rows(accesses: Iterable[MemoryAccess], unrolled: Sequence[InnerLoop]) -> float:
    """Return the number of rows in memory that unrolled copies access; each needs an address."""
    rows: dict[object, dict[int, set[float]]] = {}
    for access in accesses:
        own = rows.setdefault(access.folded, {})
        for d, _, constant, _ in access.rows:
            places = {constant}
            for loop in unrolled:
                step = step_along(access, loop, d)
                if step:
                    places = {p + i * step for p in places for i in range(int(loop.extent))}
            own.setdefault(d, set()).update(places)
    return float(sum(math.prod(map(len, own.values())) for own in rows.values()))


def held_words(
    access: MemoryAccess, unrolled: Sequence[InnerLoop], stored: Container[str]
) -> float:
    """Return the words of a copied operand that a thread keeps in registers at once.

    They are those of one term of the sums. But if the terms are contiguous in memory, a vector load
    fetches several of them, and the compiler loads more of them ahead: with ptxas 13, the kernels
    that spill are those with many words in the mean of one vector and all terms.
    """
    words = max(float(access.bytes), WORD_BYTES) / WORD_BYTES
    terms = 1.0
    for loop in unrolled:
        if any(variable in stored for variable in loop.variables):
            words *= loop.extent if loop.variables & access.moved else 1.0
        elif step_along(access, loop, 0) != 0.0:
            terms *= loop.extent
    return words * (min(terms, VECTOR) + terms) / 2.0


def step_along(access: MemoryAccess, loop: InnerLoop, d: int) -> float:
    """Return how far an iteration moves an access along dimension `d`; a guess if it varies."""
    step = 0.0
    for variable, moved in loop.moves.items():
        steps = access.strides.get(variable, ())
        step += moved * (1.0 if steps is None else steps[d] if len(steps) > d else 0.0)
    return step
