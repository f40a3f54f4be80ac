"""Stencils for training, drawn from a family: no model is judged by them.

Lift's eight stencils are few to learn from: with one of them left out, seven are left. These have
another radius, shape, border, arithmetic, or number of grids.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

COUNT = 12
SEED = 0
RADII = (1, 1, 2)  # one is more frequent in published stencils
SHAPES = ("star", "box", "row", "column")
BORDERS = ("inside", "clamp", "mirror")  # inside: the input has a halo
FORMS = ("sum", "reduction", "ratio", "root", "extremes")
EXTRA_GRIDS = (0, 0, 1, 3)  # read at the point itself

Point = tuple[int, int]


@dataclass(frozen=True, slots=True)
class MadeStencil:
    """A stencil program.

    Args:
        radius: the distance that it reads on each side.
        shape: the points that it reads: a `SHAPES`.
        border: what lies outside of the grid: a `BORDERS`.
        form: how the points are combined: a `FORMS`; a reduction takes the whole box.
        extra: the number of further grids.
        weights: of the points in the box around the centre, row by row.
    """

    radius: int
    shape: str
    border: str
    form: str
    extra: int
    weights: tuple[float, ...]

    def points(self) -> list[Point]:
        """Return the places that are read in the window, from 0 to twice the radius."""
        r = self.radius
        wanted: dict[str, Callable[[int, int], bool]] = {
            "star": lambda y, x: y == r or x == r,
            "box": lambda y, x: True,
            "row": lambda y, x: y == r,
            "column": lambda y, x: x == r,
        }
        size = range(2 * r + 1)
        return [(y, x) for y in size for x in size if wanted[self.shape](y, x)]

    def build(self, rows: int, columns: int) -> Any:
        """Return the program for the rows and columns of its result."""
        from tilewright.patterns.build import array, clamp, fun, map2, mirror, pad2, slide2, zip2
        from tilewright.patterns.types import f32

        r = self.radius
        halo = r if self.border == "inside" else 0
        grid: Any = array("A", f32[rows + 2 * halo, columns + 2 * halo])
        if not halo:
            grid = grid >> pad2(r, r, {"clamp": clamp, "mirror": mirror}[self.border])
        windows = grid >> slide2(2 * r + 1, 1)
        if self.form == "reduction":
            return windows >> map2(self._reduction())
        others = [array(f"B{i}", f32[rows, columns]) for i in range(self.extra)]
        if not others:
            return windows >> map2(fun(lambda w: self._combined(w, []), "made"))
        # Functions' parameters are counted, so each number of grids has its own.
        if self.extra == 1:
            return zip2(windows, *others) >> map2(fun(lambda w, a: self._combined(w, [a]), "made"))
        f = fun(lambda w, a, b, c: self._combined(w, [a, b, c]), "made")
        return zip2(windows, *others) >> map2(f)

    def _reduction(self) -> Any:
        from tilewright.patterns.build import add, fork, join, map, mul, reduce, table, zip
        from tilewright.patterns.types import f32

        return fork(table(self.weights, f32), join) >> zip >> map(mul) >> reduce(add, 0.0)

    def _combined(self, w: Any, others: list[Any]) -> Any:
        from tilewright.patterns.scalar import maximum, minimum, sqrt

        centre, size = w[self.radius, self.radius], 2 * self.radius + 1
        read = [(self.weights[y * size + x], w[y, x]) for y, x in self.points()]
        total = read[0][0] * read[0][1]
        for weight, value in read[1:]:
            if self.form == "extremes":
                total = maximum(total, minimum(value, weight * centre))
            elif self.form == "root":
                total = total + (value - centre) * (value - centre)
            else:
                total = total + weight * value
        for other in others:
            total = total + other * centre
        if self.form == "ratio":
            return total / (1 + centre * centre)
        return 1 / sqrt(1 + total * total) if self.form == "root" else total


def made_stencils() -> dict[str, MadeStencil]:
    """Return the programs by name; the same ones in each call."""
    draw = random.Random(SEED)
    found: dict[str, MadeStencil] = {}
    while len(found) < COUNT:
        radius, form = draw.choice(RADII), draw.choice(FORMS)
        one = MadeStencil(
            radius,
            "box" if form == "reduction" else draw.choice(SHAPES),
            draw.choice(BORDERS),
            form,
            0 if form == "reduction" else draw.choice(EXTRA_GRIDS),
            tuple(draw.choice((0.5, 0.25, 0.125)) for _ in range((2 * radius + 1) ** 2)),
        )
        if one not in found.values():
            found[f"made{len(found)}"] = one
    return found
