"""Cache lines that the threads of a warp touch together (Lift 2020, section 4.2.3).

The mean is over all warps, groups and iterations, but no iteration is enumerated: the number of
lines that a warp touches depends on the distances between its lanes' addresses and on the position
of the first address in its line. Both are periodic over the iterations, so one period suffices.

| symbol | meaning |
|---|---|
| round | iterations of a loop that the threads of a group execute together |
| step | the increment of a loop variable from one round to the next |
| residue | the position of an address in its line, in elements |
| lane | the number of a thread in its group |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import gcd, lcm, prod
from typing import Any, TypeAlias

import numpy as np

from tilewright.arith import (
    Atom,
    Boundary,
    Div,
    LoopVariable,
    Mod,
    Poly,
    Size,
    evaluate,
    poly,
    substitute,
)
from tilewright.patterns.codegen.code import ForLoop
from tilewright.patterns.codegen.grid import DIMS, GridKernel

IntArray: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Numbers: TypeAlias = tuple[int, int, int]

WARP = 32  # threads in a warp of an NVIDIA GPU (section 3.1)
LINE = 128  # bytes of a cache line (section 4.2.3)
MOST_CASES = 1024  # combinations of rounds evaluated for indices with quotients; more are sampled
# For each number n of elements in a line: i - k and i + k modulo n, of shape (n, n).
_LENGTHS = [LINE >> k for k in range(8)]
_CIRCLES = {n: (np.arange(n)[:, None] - np.arange(n)) % n for n in _LENGTHS}
_SUMS = {n: (np.arange(n)[:, None] + np.arange(n)) % n for n in _LENGTHS}


@dataclass(frozen=True, slots=True)
class _Rounds:
    """The rounds of a loop.

    Args:
        dim: the dimension of the threads that share the loop; None if each thread runs all of it.
        rest: iterations of the last round, if only some threads execute it; else 0.
    """

    variable: LoopVariable
    step: int
    full: int
    rest: int
    dim: int | None


def mean_lines(
    kernel: GridKernel,
    around: Sequence[ForLoop],
    accesses: Sequence[tuple[Poly, int]],
    known: Mapping[str, int],
) -> list[float]:
    """Return the lines that a warp touches in each access, on average.

    Borders are ignored: indices are those of the interior of a grid (section 4.4). The mean is
    exact unless quotients and remainders in an index need more than `MOST_CASES` combinations of
    rounds.

    Args:
        kernel: the kernel.
        around: the loops around the accesses.
        accesses: per access, its index and the bytes of an element.
        known: the values of the program's sizes.

    Returns:
        Mean lines per warp and execution, one per access.
    """
    threads = kernel.launch.threads
    rounds = [_rounds(loop, threads, known) for loop in around]
    # Accesses whose indices differ by a constant, as in a stencil, share all other computations.
    made: dict[tuple[Poly, int], Any] = {}
    found = []
    for index, size in accesses:
        (varying, start), per_line = _inner(index, tuple(sorted(known.items()))), LINE // size
        if (varying, per_line) not in made:
            parts = _parts(varying, per_line, rounds, threads)
            lines = sum(p.lines[_SUMS[per_line]] @ p.residues for p in parts)
            warps = sum(p.warps * p.residues.sum() for p in parts)
            made[varying, per_line] = lines / warps if parts else np.zeros(per_line)
        found.append(float(made[varying, per_line][start % per_line]))
    return found


def _rounds(loop: ForLoop, threads: Numbers, known: Mapping[str, int]) -> _Rounds:
    extent, level = int(evaluate(loop.variable.extent, known)), loop.level
    # Groups and rounds together run through all multiples of the threads of a group once.
    shared = level.kind in ("lcl", "glb")
    step = threads[level.dim] if shared else 1
    dim = level.dim if shared else None
    return _Rounds(loop.variable, step, extent // step, extent % step, dim)


@lru_cache(10_000)
def _inner(index: Poly, known: tuple[tuple[str, int], ...]) -> tuple[Poly, int]:
    """Return an index in the interior for known sizes: its variable part, and its constant."""
    sizes = dict(known)

    def change(atom: Atom) -> Poly | None:
        if isinstance(atom, Size) and atom.name in sizes:
            return poly(sizes[atom.name])
        return substitute(atom.x, change) if isinstance(atom, Boundary) else None

    inner = substitute(index, change)
    start = int(next((c for monomial, c in inner.terms if not monomial), 0))
    return inner - start, start


@dataclass(frozen=True, slots=True)
class _Lanes:
    """The threads of a group in an access.

    Args:
        threads: of a group.
        bound: the number of threads that execute the access, per dimension.
        stride: elements between the addresses of neighbouring threads, per dimension.
    """

    threads: Numbers
    bound: Numbers
    stride: Numbers

    def places(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return the place of each lane of whole warps in each dimension, each of shape (lanes,).

        Lanes past the last thread are included.
        """
        x, y, _ = self.threads
        lane = np.arange(-(-prod(self.threads) // WARP) * WARP)
        return lane % x, lane // x % y, lane // (x * y)

    def offsets(self) -> IntArray:
        """Return the elements from the first thread to each lane, of shape (lanes,)."""
        each = zip(self.places(), self.stride, strict=True)
        return np.asarray(sum(place * stride for place, stride in each))

    def active(self) -> Any:
        """Return which lanes execute the access, of shape (lanes,)."""
        inside = [place < most for place, most in zip(self.places(), self.bound, strict=True)]
        return np.logical_and.reduce(inside)


@dataclass(frozen=True, slots=True)
class _Part:
    """Executions of an access by the same set of threads.

    Args:
        residues: the number of executions per residue of the first address, (residues,).
        lines: lines touched by all warps of a group, per residue, (residues,).
        warps: the number of warps that `lines` sums.
    """

    residues: Any
    lines: Any
    warps: float


def _parts(index: Poly, per_line: int, rounds: list[_Rounds], threads: Numbers) -> list[_Part]:
    """Return the executions of an access: in full and in last rounds of all loops."""
    linear, rest = _separated(index)
    variables = {a for a in rest.all_atoms() if isinstance(a, LoopVariable)}
    found = []
    options = [[last for last in (False, True) if (r.rest if last else r.full)] for r in rounds]
    for chosen in product(*options):
        active, strides = list(threads), [0] * DIMS
        residues = np.zeros(per_line)
        residues[0] = 1.0
        varied: list[tuple[_Rounds, IntArray, IntArray]] = []
        for r, last in zip(rounds, chosen, strict=True):
            factor = linear.get(r.variable, 0)
            if r.dim is not None:
                strides[r.dim] += factor
                active[r.dim] = r.rest if last else threads[r.dim]
            if r.variable in variables:
                period = _period(rest + factor * Poly.of(r.variable), r.variable, per_line)
                varied.append((r, *_representatives(r, last, period)))
            else:
                first = r.full if last else 0
                count = 1 if last else r.full
                moves = _moves(factor * r.step % per_line, first, count, per_line)
                residues = residues[_CIRCLES[per_line]] @ moves
        x, y, z = active
        lanes = _Lanes(threads, (x, y, z), (strides[0], strides[1], strides[2]))
        if varied:
            found += _varied(rest, linear, varied, residues, lanes)
        else:
            found.append(_Part(residues, *_regular(lanes, per_line)))
    return found


def _separated(index: Poly) -> tuple[dict[Atom, int], Poly]:
    """Return the factors of loop variables, and all terms that are not of this form."""
    linear: dict[Atom, int] = {}
    rest: dict[Any, Any] = {}
    for monomial, c in index.terms:
        if isinstance(c, int) and len(monomial) == 1 and monomial[0][1] == 1 and _plain(monomial):
            linear[monomial[0][0]] = c
        else:
            rest[monomial] = c
    return linear, Poly.make(rest)


def _plain(monomial: Any) -> bool:
    return isinstance(monomial[0][0], LoopVariable)


@lru_cache(10_000)
def _moves(shift: int, first: int, count: int, per_line: int) -> Any:
    """Return how many rounds of a loop shift addresses by each residue, of shape (residues,).

    Args:
        shift: elements that one round adds to an address.
        first: the number of the first round.
        count: the number of rounds.
        per_line: the number of residues.
    """
    period = per_line // gcd(per_line, shift)
    k = np.arange(min(period, count))
    times = (count - k + period - 1) // period
    return np.bincount((first + k) * shift % per_line, times, per_line)


def _representatives(r: _Rounds, last: bool, period: int | None) -> tuple[IntArray, IntArray]:
    """Return representative rounds, and the number of rounds that each represents.

    Args:
        r: the loop.
        last: represent the last, partial round instead of the full ones.
        period: growth of the variable after which lines repeat; None if they never do.
    """
    if last:
        return np.array([r.full]), np.array([1])
    count = r.full if period is None else min(r.full, period // gcd(period, r.step))
    k = np.arange(count)
    return k, (r.full - k + count - 1) // count


def _period(p: Poly, variable: LoopVariable, modulus: int) -> int | None:
    """Return a growth of a variable for which ``p`` grows by a multiple of ``modulus``.

    The growth of ``p`` must be the same for all values of the other variables. None if no such
    growth is known.
    """
    found = 1
    for monomial, c in p.terms:
        if not any(variable in (a, *_inside(a)) for a, _ in monomial):
            continue
        if len(monomial) > 1 or monomial[0][1] != 1 or not isinstance(c, int):
            return None
        atom, needed = monomial[0][0], modulus // gcd(modulus, c)
        one: int | None = needed
        if isinstance(atom, Div | Mod):
            divisor = atom.d.value
            if not isinstance(divisor, int):
                return None
            one = _period(atom.x, variable, divisor * (needed if isinstance(atom, Div) else 1))
        if one is None:
            return None
        found = lcm(found, one)
    return found


def _inside(atom: Atom) -> tuple[Atom, ...]:
    return tuple(a for part in atom.parts() for a in part.all_atoms())


@lru_cache(10_000)
def _regular(lanes: _Lanes, per_line: int) -> tuple[Any, int]:
    """Return `_by_residue` for an access whose index is linear in its threads."""
    return _by_residue(lanes.offsets(), lanes.active(), per_line)


def _varied(
    rest: Poly,
    linear: Mapping[Atom, int],
    varied: list[tuple[_Rounds, IntArray, IntArray]],
    residues: Any,
    lanes: _Lanes,
) -> list[_Part]:
    """Return the executions of an index with quotients and remainders of some loop variables.

    Args:
        rest: the non-linear terms of the index.
        linear: the factors of the linear terms.
        varied: per loop of a variable in `rest`: the loop, its representative rounds, and how many
            rounds each represents.
        residues: the number of executions per residue over the rounds of the other loops.
        lanes: the threads, with the strides of the linear terms.
    """
    shape = tuple(len(k) for _, k, _ in varied)
    count = prod(shape)
    chosen = np.linspace(0, count - 1, min(count, MOST_CASES)).round().astype(int)
    places, address = lanes.places(), lanes.offsets()[None]
    weight, values = np.ones(len(chosen)), {}
    for (r, k, times), case in zip(varied, np.unravel_index(chosen, shape), strict=True):
        start = (k[case] * r.step)[:, None]
        values[r.variable.name] = start if r.dim is None else start + places[r.dim]
        address = address + linear.get(r.variable, 0) * start
        weight = weight * times[case]
    address = np.broadcast_to(address + evaluate(rest, values), (len(chosen), places[0].size))
    # Many cases differ only in their first address.
    distances = np.ascontiguousarray(address - address[:, :1])
    rows = distances.view(np.dtype((np.void, distances.strides[0]))).ravel()
    _, first, same = np.unique(rows, return_index=True, return_inverse=True)
    per_line, active = len(residues), lanes.active()
    found = []
    for number, row in enumerate(first):
        mine = same == number
        begins = np.bincount(address[mine, 0] % per_line, weight[mine], per_line)
        lines = _by_residue(distances[row], active, per_line)
        found.append(_Part(residues[_CIRCLES[per_line]] @ begins, *lines))
    return found


def _by_residue(address: IntArray, active: Any, per_line: int) -> tuple[Any, int]:
    """Return the lines touched by all warps, per offset of their addresses, and the active warps.

    Args:
        address: in elements, of shape (lanes,).
        active: the lanes that execute the access, of shape (lanes,).
        per_line: elements per line.

    Returns:
        Lines, of shape (per_line,), and the number of warps that they sum.
    """
    warps = active.reshape(-1, WARP)
    used = np.flatnonzero(warps.any(axis=1))
    # Inactive lanes get the address of the warp's first active lane, so they add no line.
    lanes = np.where(warps, np.arange(WARP), warps.argmax(axis=1)[:, None])[used]
    ordered = np.sort(address[lanes + used[:, None] * WARP], axis=1)
    line = (ordered[:, None] + np.arange(per_line)[:, None]) // per_line
    crossed = (line[:, :, 1:] != line[:, :, :-1]).sum(axis=(0, 2))
    return crossed + len(used), len(used)
