"""Random pipelines as data, and the Halide pipelines that they describe.

The kinds of stages are those of Adams 2019 (stencils, unrolled and as reductions; pooling; up- and
downsampling; all-to-all over channels; scans; pointwise operations; histograms; casts) and further
ones: pyramids, gathers, scatters, Tuples, argmin, several outputs, boundary conditions. The same
seed gives the same pipeline. Sizes are such that a run takes about 0.2 to 20 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

# Bounds of the operations per run, from which the output size is drawn: about 0.2 to 20 ms.
LEAST_WORK, MOST_WORK = 2e6, 1.5e8
CHANNELS = 3
TYPES = ("uint8", "uint16", "int16", "int32", "float32")
# Sums of 32-bit inputs would overflow, which Halide leaves undefined.
INPUTS = ("uint8", "uint16", "int16", "float32")
# With `limited`, the bound of 32-bit integers cast from floats that an index depends on. The
# weights of a stage's sum add up to at most 49, so that sums do not overflow.
LARGEST = 2.0**24
MOST_STAGES = 12
# Relative frequencies of the kinds of stages.
KINDS = {
    "pointwise": 3,
    "combine": 3,
    "stencil": 4,
    "reduced": 2,
    "down": 2,
    "up": 1,
    "pyramid": 1,
    "pool": 1,
    "gather": 1,
    "histogram": 1,
    "scan": 1,
    "channels": 1,
    "argmin": 1,
    "boundary": 1,
    "transpose": 1,
}


@dataclass(frozen=True, slots=True)
class RandomStage:
    """A stage that reads the results with the numbers `sources` (0: the input).

    `along` is the dimension of a one-dimensional stage, `radius` its radius in elements, `choice`
    selects a variant, and `type` is the type of its result.
    """

    kind: str
    sources: tuple[int, ...]
    along: int = 0
    radius: int = 1
    choice: int = 0
    type: str = "float32"


@dataclass(frozen=True, slots=True)
class RandomPipeline:
    """A pipeline: its stages, input type, and the extents of outputs before up- or downsampling."""

    seed: int
    type: str
    stages: tuple[RandomStage, ...]
    outputs: tuple[int, ...]
    extents: tuple[int, ...]


def random_pipeline(
    seed: int, work: tuple[float, float] = (LEAST_WORK, MOST_WORK)
) -> RandomPipeline:
    """Return the pipeline of a seed; `work` holds the bounds of its operations."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, MOST_STAGES + 1))
    kinds, weights = list(KINDS), np.array(list(KINDS.values()), dtype=float)
    stages: list[RandomStage] = []
    for i in range(count):
        kind = str(rng.choice(kinds, p=weights / weights.sum()))
        last = i if rng.random() < 0.7 else int(rng.integers(0, i + 1))
        sources = (last, int(rng.integers(0, i + 1))) if kind == "combine" else (last,)
        stages.append(
            RandomStage(
                kind,
                sources,
                along=int(rng.integers(0, 2)),
                radius=int(rng.integers(1, 4)),
                choice=int(rng.integers(0, 4)),
                type=str(rng.choice(TYPES, p=(0.15, 0.15, 0.1, 0.15, 0.45))),
            )
        )
    outputs: tuple[int, ...] = (count,)
    if count > 2 and rng.random() < 0.15:
        outputs = (count, int(rng.integers(1, count)))
    each = sum(_operations(stage) for stage in stages)
    points = np.exp(rng.uniform(*np.log(np.asarray(work) / each)))
    width = 2 ** rng.uniform(-1, 1) * np.sqrt(points / CHANNELS)
    extents = (_rounded(width), _rounded(points / CHANNELS / width), CHANNELS)
    return RandomPipeline(seed, str(rng.choice(INPUTS)), tuple(stages), outputs, extents)


def _rounded(extent: float) -> int:
    return max(32, int(extent) // 16 * 16)


def _operations(stage: RandomStage) -> float:
    """Return a rough number of operations per point."""
    reach = 2 * stage.radius + 1
    each = {"stencil": reach, "reduced": reach**2, "pool": 4, "argmin": 3 * reach}
    return float(each.get(stage.kind, 3.0))


# --- as a Halide pipeline -------------------------------------------------------------------------


def build(recipe: RandomPipeline, *, limited: bool = False) -> Any:
    """Return the ``halide.Pipeline`` with estimates of its outputs.

    Halide infers bounds of values that indices depend on, and refuses the pipeline if the bound of
    a 32-bit sum overflows. With `limited`, such values are clamped so that none does. Without it,
    some pipelines do not compile; recorded labels belong to pipelines without it.
    """
    import halide as hl

    return hl.Pipeline(_Builder(recipe, limited).outputs())


class _Builder:
    """Builds the Funcs of a recipe; all have the dimensions x, y and c."""

    def __init__(self, recipe: RandomPipeline, limited: bool) -> None:
        import halide as hl

        self.in_indices = _read_by_indices(recipe) if limited else frozenset()
        self.limited = False

        self.hl = hl
        self.recipe = recipe
        self.x, self.y, self.c = hl.Var("x"), hl.Var("y"), hl.Var("c")
        image = hl.ImageParam(self.type(recipe.type), 3, "image")
        self.funcs = [hl.BoundaryConditions.repeat_edge(image)]
        self.kinds = [recipe.type]
        # Downsampling of each result in x and y, as exponents of two.
        self.scales = [(0, 0)]
        for i, stage in enumerate(recipe.stages):
            self.add(i, stage)

    def type(self, name: str) -> Any:
        hl = self.hl
        bits = int(name.lstrip("uintfloa"))
        kind = hl.Float if name.startswith("float") else hl.UInt if name[0] == "u" else hl.Int
        return kind(bits)

    def outputs(self) -> list[Any]:
        found = []
        for i in dict.fromkeys(self.recipe.outputs):
            out = self.hl.Func(f"out{i}")
            out[self.x, self.y, self.c] = self.funcs[i][self.x, self.y, self.c]
            width, height, channels = self.recipe.extents
            sx, sy = self.scales[i]
            spans = [(0, max(16, _scaled(width, sx))), (0, max(16, _scaled(height, sy)))]
            out.set_estimates([*spans, (0, channels)])
            found.append(out)
        return found

    def add(self, i: int, stage: RandomStage) -> None:
        source = self.funcs[stage.sources[0]]
        self.scale = self.scales[stage.sources[0]]
        self.kind = stage.type
        self.limited = i + 1 in self.in_indices
        make: Callable[..., Any] = getattr(self, f"_{stage.kind}")
        func = make(f"{stage.kind}{i}", source, stage)
        self.funcs.append(func)
        self.kinds.append(self.kind)
        self.scales.append(self.scale)

    # All makers (`_pointwise`, …) return a Func of x, y and c.

    def func(self, name: str, value: Any, kind: str | None = None) -> Any:
        """Return a Func with `value`, cast to the stage's type without undefined results."""
        hl = self.hl
        made = hl.Func(name)
        value = value if isinstance(value, hl.Expr) else hl.Expr(value)
        if self.limited and (kind or self.kind) == "int32" and not value.type().is_int():
            value = hl.clamp(hl.f32(value), -hl.f32(LARGEST), hl.f32(LARGEST))
        made[self.x, self.y, self.c] = hl.saturating_cast(self.type(kind or self.kind), value)
        return made

    def wide(self, value: Any) -> Any:
        """Return a value in a type in which sums do not overflow."""
        hl = self.hl
        value = value if isinstance(value, hl.Expr) else hl.Expr(value)
        return hl.f32(value) if value.type().is_float() else hl.i32(value)

    def shifted(self, source: Any, along: int, by: Any) -> Any:
        at = [self.x, self.y, self.c]
        at[along] = at[along] + by
        return source[tuple(at)]

    def index(self, value: Any, count: int) -> Any:
        """Return a value, clamped to an index in [0, count)."""
        hl = self.hl
        return hl.clamp(hl.i32(hl.clamp(self.wide(value), 0, 65535)), 0, count - 1)

    def mean(self, total: Any, count: int) -> Any:
        hl = self.hl
        total = total if isinstance(total, hl.Expr) else hl.Expr(total)
        return total * hl.f32(1.0 / count) if total.type().is_float() else total / count

    def _pointwise(self, name: str, source: Any, stage: RandomStage) -> Any:
        hl = self.hl
        value = self.wide(source[self.x, self.y, self.c])
        if stage.choice == 0:
            return self.func(name, hl.max(value, value / 2))
        if stage.choice == 1:
            return self.func(name, hl.exp(-hl.abs(hl.f32(value)) / 256.0) * 255.0)
        if stage.choice == 2:
            return self.func(name, hl.clamp(value * 3 / 2, 0, 255))
        return self.func(name, hl.select(value > 100, value / 2 + 50, value))

    def _combine(self, name: str, source: Any, stage: RandomStage) -> Any:
        hl = self.hl
        other = stage.sources[1]
        at = [self.x, self.y]
        for d in (0, 1):
            off = self.scales[other][d] - self.scale[d]
            at[d] = at[d] * 2**off if off >= 0 else at[d] / 2**-off
        left = self.wide(source[self.x, self.y, self.c])
        right = self.wide(self.funcs[other][at[0], at[1], self.c])
        if left.type() != right.type():
            left, right = hl.f32(left), hl.f32(right)
        half = self.mean(left - right, 2)
        pairs = (self.mean(left + right, 2), half, hl.min(left, right), hl.absd(left, right))
        return self.func(name, pairs[stage.choice])

    def _stencil(self, name: str, source: Any, stage: RandomStage) -> Any:
        taps = range(-stage.radius, stage.radius + 1)
        total = sum(
            (self.wide(self.shifted(source, stage.along, k)) * (stage.radius + 1 - abs(k)))
            for k in taps
        )
        return self.func(name, self.mean(total, (stage.radius + 1) ** 2))

    def _reduced(self, name: str, source: Any, stage: RandomStage) -> Any:
        hl, reach = self.hl, 2 * stage.radius + 1
        r = hl.RDom([(-stage.radius, reach), (-stage.radius, reach)], f"r_{name}")
        total = hl.Func(f"{name}_sum")
        value = self.wide(source[self.x + r.x, self.y + r.y, self.c])
        total[self.x, self.y, self.c] = hl.cast(value.type(), 0)
        total[self.x, self.y, self.c] += value
        return self.func(name, self.mean(total[self.x, self.y, self.c], reach**2))

    def _down(self, name: str, source: Any, stage: RandomStage) -> Any:
        x, y, c = self.x, self.y, self.c
        if stage.choice < 2:  # along one dimension
            d = stage.along
            at, by = [x, y, c], [x, y, c]
            at[d], by[d] = 2 * at[d], 2 * by[d] + 1
            total = self.wide(source[tuple(at)]) + self.wide(source[tuple(by)])
            self.scale = tuple(s + (e == d) for e, s in enumerate(self.scale))  # type: ignore[assignment]
            return self.func(name, self.mean(total, 2))
        total = sum(self.wide(source[2 * x + i, 2 * y + j, c]) for i in (0, 1) for j in (0, 1))
        self.scale = self.scale[0] + 1, self.scale[1] + 1
        return self.func(name, self.mean(total, 4))

    def _up(self, name: str, source: Any, stage: RandomStage) -> Any:
        x, y, c = self.x, self.y, self.c
        self.scale = self.scale[0] - 1, self.scale[1] - 1
        if stage.choice < 2:
            return self.func(name, source[x / 2, y / 2, c])
        total = self.wide(source[x / 2, y / 2, c]) + self.wide(source[(x + 1) / 2, (y + 1) / 2, c])
        return self.func(name, self.mean(total, 2))

    def _pyramid(self, name: str, source: Any, stage: RandomStage) -> Any:
        levels = [source]
        for level in range(1 + stage.radius):
            levels.append(self._down(f"{name}_down{level}", levels[-1], stage))
        found = levels[-1]
        x, y, c = self.x, self.y, self.c
        one = stage.choice < 2
        for level, finer in reversed(list(enumerate(levels[:-1]))):
            at = [
                x / 2 if not one or stage.along == 0 else x,
                y / 2 if not one or stage.along else y,
            ]
            value = self.wide(found[at[0], at[1], c]), self.wide(finer[x, y, c])
            if value[0].type() != value[1].type():
                value = self.hl.f32(value[0]), self.hl.f32(value[1])
            found = self.func(f"{name}_up{level}", self.mean(value[0] + value[1], 2))
        self.scale = self.scales[stage.sources[0]]
        return found

    def _pool(self, name: str, source: Any, stage: RandomStage) -> Any:
        hl = self.hl
        r = hl.RDom([(0, 2), (0, 2)], f"r_{name}")
        self.scale = self.scale[0] + 1, self.scale[1] + 1
        return self.func(
            name, hl.maximum(source[2 * self.x + r.x, 2 * self.y + r.y, self.c], f"{name}_max")
        )

    def _gather(self, name: str, source: Any, stage: RandomStage) -> Any:
        hl = self.hl
        table = hl.Func(f"{name}_table")
        i = hl.Var("i")
        table[i] = hl.saturating_cast(self.type(self.kind), hl.sqrt(hl.f32(i)) * 15)
        index = self.index(source[self.x, self.y, self.c], 256)
        if stage.choice == 0:
            reach = self.index(source[self.x, self.y, self.c], 5)
            return self.func(name, source[self.x + reach, self.y, self.c])
        return self.func(name, table[index])

    def _histogram(self, name: str, source: Any, stage: RandomStage) -> Any:
        hl = self.hl
        counts, i = hl.Func(f"{name}_counts"), hl.Var("i")
        r = hl.RDom([(0, 128), (0, 64)], f"r_{name}")
        counts[i] = 0
        counts[self.index(source[r.x, r.y, 0], 64)] += 1
        index = self.index(source[self.x, self.y, self.c], 64)
        return self.func(name, counts[index] % 256)

    def _scan(self, name: str, source: Any, stage: RandomStage) -> Any:
        hl = self.hl
        extent = max(16, _scaled(self.recipe.extents[stage.along], self.scale[stage.along]))
        r = hl.RDom([(1, extent - 1)], f"r_{name}")
        total = hl.Func(f"{name}_scan")
        total[self.x, self.y, self.c] = hl.f32(source[self.x, self.y, self.c])
        now, before = [self.x, self.y, self.c], [self.x, self.y, self.c]
        now[stage.along], before[stage.along] = r.x, r.x - 1
        total[tuple(now)] = total[tuple(now)] * 0.25 + total[tuple(before)] * 0.75
        return self.func(name, total[self.x, self.y, self.c])

    def _channels(self, name: str, source: Any, stage: RandomStage) -> Any:
        hl = self.hl
        if stage.choice < 2:
            total = sum(self.wide(source[self.x, self.y, k]) * (k + 1) for k in range(CHANNELS))
            return self.func(name, self.mean(total + self.c, 6))
        r = hl.RDom([(0, CHANNELS)], f"r_{name}")
        value = hl.f32(source[self.x, self.y, r.x]) * hl.f32(r.x + self.c)
        return self.func(name, hl.sum(value, f"{name}_sum") / 6)

    def _argmin(self, name: str, source: Any, stage: RandomStage) -> Any:
        hl = self.hl
        r = hl.RDom([(-stage.radius, 2 * stage.radius + 1)], f"r_{name}")
        value = self.shifted(source, stage.along, r.x)
        best = hl.argmin(value, f"{name}_best")
        return self.func(name, best[0] + 2 * stage.radius)

    def _boundary(self, name: str, source: Any, stage: RandomStage) -> Any:
        width, height, _ = self.recipe.extents
        hl = self.hl
        sx, sy = self.scale
        x = hl.clamp(self.x, 0, max(16, _scaled(width, sx)) - 1)
        y = hl.clamp(self.y, 0, max(16, _scaled(height, sy)) - 1)
        if stage.choice < 2:
            return self.func(name, source[x, y, self.c])
        value = self.wide(source[x, y, self.c])
        inside = (self.x >= 0) & (self.x < _scaled(width, sx))
        return self.func(name, hl.select(inside, value, hl.cast(value.type(), 0)))

    def _transpose(self, name: str, source: Any, stage: RandomStage) -> Any:
        return self.func(name, source[self.y, self.x, self.c])


def _read_by_indices(recipe: RandomPipeline) -> frozenset[int]:
    """Return the numbers of results that indices depend on."""
    found: set[int] = set()
    for i, stage in reversed(list(enumerate(recipe.stages))):
        if stage.kind in ("gather", "histogram") or i + 1 in found:
            found.update(stage.sources)
    return frozenset(found)


def _scaled(extent: int, scale: int) -> int:
    return extent >> scale if scale >= 0 else extent << -scale
