"""Enumeration of equivalent programs: tilings, levels of loops, memories, unrolling.

Algorithmic rules are tried at every site, breadth first. Each result is lowered in every way that
the target allows. The order is deterministic: the same settings give the same programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from tilewright.arith import Poly
from tilewright.patterns import nodes as n
from tilewright.patterns.check import infer, type_of
from tilewright.patterns.errors import PatternError, RewriteError
from tilewright.patterns.rewriting.algorithmic import (
    interchange,
    partial_reduce,
    split_join,
    strided_reduce,
)
from tilewright.patterns.rewriting.fusion import map_fusion, reduce_map_fusion
from tilewright.patterns.rewriting.lowering import lower_nest, lower_reduce, stage_tile, store
from tilewright.patterns.rewriting.rule import Rule, Site, apply_at, sites
from tilewright.patterns.rewriting.sliding import slide_sequentially
from tilewright.patterns.rewriting.strategies import Derivation, bottom_up, derive, everywhere, one
from tilewright.patterns.rewriting.tiling import (
    round_up2,
    slide_tiling,
    split2,
    tiling2,
    zipped_tiling2,
)
from tilewright.patterns.rewriting.vectorisation import vectorise
from tilewright.patterns.types import UNIT, ArrayType, DataType, dimensions

Steps = tuple[tuple[Rule, n.Pattern], ...]
LoopNest = tuple[n.MapLevel, ...]
FAMILIES = ("tiling", "split", "fusion", "partial", "interchange")
MAPPINGS = {"glb": "global", "wrg": "group", "lcl": "group", "par": "cores", "simd": "lanes"}
MEMORIES = ("global", "local", "private")
MOST_PRIVATE = 256  # elements of an array that one thread keeps: 1 KiB of f32, as in Lift


@dataclass(frozen=True, slots=True)
class ExplorationSettings:
    """Settings of `explore`.

    Args:
        target: ``c`` (cores and vector lanes) or ``gpu`` (the grid of threads).
        families: the families of algorithmic rules to apply, from `FAMILIES`.
        depth: the maximum number of algorithmic rules in a derivation.
        times: the maximum number of rules of one family in a derivation.
        tiles: edges of tiles and lengths of chunks to try, if they divide the sizes.
        mappings: how loops may run: ``global`` (all threads of the grid) and ``group`` (groups and
            their threads) for target ``gpu``, ``cores`` and ``lanes`` for target ``c``.
        dimensions: the numbers of dimensions that a grid of threads may have; None for 1 and 2, and
            for 3 if the result has as many.
        memory: the memories in which intermediate results and copies of tiles may be stored:
            ``global``, ``local`` (of a work-group), ``private`` (of a thread).
        most_local: the maximum number of elements of a tile in local memory (48 KiB of f32).
        limit: the number of derivations after which the search stops.
        sliding: also keep windows in registers, from one iteration of a loop to the next. Not by
            default: the measured kernels that come with Tilewright have none of these.
        vectors: lengths of vectors to load and store on a GPU, 2 to 16; none by
            default, likewise.
    """

    target: str = "gpu"
    families: tuple[str, ...] = FAMILIES
    depth: int = 2
    times: int = 1
    tiles: tuple[int, ...] = (2, 4, 8, 16, 32, 64, 128)
    mappings: tuple[str, ...] = ("global", "group", "cores", "lanes")
    dimensions: tuple[int, ...] | None = None
    memory: tuple[str, ...] = ("global", "local")
    most_local: int = 12288
    limit: int = 1000
    sliding: bool = False
    vectors: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.target not in ("c", "gpu"):
            raise PatternError(f"target {self.target!r}; give 'c' or 'gpu'")
        for what, given, known in (
            ("family", self.families, FAMILIES),
            ("mapping", self.mappings, tuple(dict.fromkeys(MAPPINGS.values()))),
            ("memory", self.memory, MEMORIES),
            ("number of dimensions", self.dimensions or (), (1, 2, 3)),
        ):
            if unknown := [item for item in given if item not in known]:
                shown = ", ".join(map(str, known))
                raise PatternError(f"{what} {unknown[0]!r}; known are {shown}")
        of_target = {"gpu": ("global", "group"), "c": ("cores", "lanes")}[self.target]
        if not set(self.mappings) & set(of_target):
            raise PatternError(
                f"target {self.target!r} without a mapping; give {' or '.join(of_target)}"
            )
        for name in ("depth", "times", "limit"):
            if getattr(self, name) < 0:
                raise PatternError(f"{name} is {getattr(self, name)}; give 0 or more")


def explore(program: n.Pattern, settings: ExplorationSettings | None = None) -> list[Derivation]:
    """Derivations of lowered programs from one, each with another program at its end.

    Raises:
        PatternTypeError: the program is not well typed.
    """
    chosen = settings or ExplorationSettings()
    seen: dict[n.Pattern, Derivation] = {}
    found = (d for variant in variants(program, chosen) for d in lowered(variant, chosen))
    while len(seen) < chosen.limit and (derivation := next(found, None)) is not None:
        seen.setdefault(derivation.program, derivation)
    return list(seen.values())


def variants(program: n.Pattern, settings: ExplorationSettings) -> Iterator[Derivation]:
    """Yield the program and the results of algorithmic rules, breadth first."""
    seen = {program}
    layer: list[tuple[Derivation, tuple[str, ...]]] = [(Derivation(program), ())]
    for _ in range(settings.depth + 1):
        following: list[tuple[Derivation, tuple[str, ...]]] = []
        for derivation, used in layer:
            yield derivation
            for family, steps in _moves(derivation.program, settings, used):
                made = steps[-1][1]
                if made not in seen:
                    seen.add(made)
                    longer = Derivation(derivation.start, (*derivation.steps, *steps))
                    following.append((longer, (*used, family)))
        layer = following


def _moves(
    program: n.Pattern, settings: ExplorationSettings, used: tuple[str, ...]
) -> Iterator[tuple[str, Steps]]:
    open_families = [f for f in settings.families if used.count(f) < settings.times]
    for site in sites(program):
        for family in open_families:
            for rule in _instances(family, site, settings):
                made = apply_at(rule, site)
                if isinstance(made, n.Pattern):
                    yield family, ((rule, made),)
            if family == "tiling" and not site.around:
                for steps in _rounded(site, settings):
                    yield family, steps


def _rounded(site: Site, settings: ExplorationSettings) -> Iterator[Steps]:
    """Yield tilings of grids whose known sizes are not multiples of the tiles."""
    given = site.given if isinstance(site.stages[0], n.Map) else None
    lengths = dimensions(given)[0] if given is not None else ()
    if any(length.value is None for length in lengths):
        return
    for y, x in product(settings.tiles, repeat=2):
        rounding = round_up2(y, x)
        made = apply_at(rounding, site) if y * x <= settings.most_local else None
        if not isinstance(made, n.Pattern):
            continue
        try:
            tiled = derive(made, one(tiling2(y, x), zipped_tiling2(y, x)))
        except RewriteError:
            continue
        if dimensions(infer(made, UNIT)[0])[0][0].value is not None:
            yield ((rounding, made), *tiled.steps)


def _instances(family: str, site: Site, settings: ExplorationSettings) -> Iterator[Rule]:
    """Yield the rules of a family, with parameters that may apply at a site."""
    first = site.stages[0]
    if family == "tiling":
        yield from _tilings(first, site, settings)
    elif family == "split" and isinstance(first, n.Map):
        if not site.around:
            yield from (split_join(k) for k in _fitting(site.given, settings, None))
            if isinstance(first.f, n.Map):
                yield from (split2(y, x) for y, x in product(settings.tiles, repeat=2))
    elif family == "fusion":
        yield from (map_fusion, reduce_map_fusion)
    elif family == "partial" and isinstance(first, n.Reduce):
        for k in _fitting(site.given, settings, None):
            yield partial_reduce(k)
            yield strided_reduce(k)
    elif family == "interchange":
        yield interchange


def _tilings(first: n.Pattern, site: Site, settings: ExplorationSettings) -> Iterator[Rule]:
    """Yield the tilings of a window's input, and of the rows and columns of a whole program."""
    if isinstance(first, n.Slide) and not _in_slide2(site):
        yield from (slide_tiling(v) for v in _fitting(site.given, settings, first))
    elif isinstance(first, n.Map | n.Fork) and not site.around:
        for y, x in product(settings.tiles, repeat=2):
            if y * x <= settings.most_local:
                yield tiling2(y, x) if isinstance(first, n.Map) else zipped_tiling2(y, x)


def _in_slide2(site: Site) -> bool:
    """Return whether the slide is one of the two of a 2-D slide: those are tiled together."""
    around = site.around[-1] if site.around else None
    below = isinstance(around, n.Map) and len(n.stages(around.f)) == 1
    return below or site.stages[1:2] == (n.Map(n.Transpose()),)


def _fitting(given: DataType, settings: ExplorationSettings, window: n.Slide | None) -> list[int]:
    """Return the tiles that divide a length; all tiles if the length is unknown."""
    assert isinstance(given, ArrayType)
    length: Poly = given.length if window is None else given.length - window.size + window.step
    value = length.value
    if not isinstance(value, int):
        return list(settings.tiles)
    return [k for k in settings.tiles if k < value and value % k == 0]


_C_NESTS: dict[int, list[tuple[str, ...]]] = {
    1: [("par",), ("simd",)],
    2: [("par", "simd"), ("par", "seq"), ("seq", "simd")],
    3: [("par", "seq", "simd"), ("par", "seq", "seq")],
    4: [("par", "seq", "seq", "simd"), ("par", "seq", "seq", "seq")],
}

_GPU_NESTS: dict[int, list[tuple[str, ...]]] = {
    1: [("glb0",)],
    2: [("glb0", "seq"), ("wrg0", "lcl0"), ("glb1", "glb0"), ("glb0", "glb1")],
    3: [("glb1", "glb0", "seq"), ("wrg0", "lcl0", "seq"), ("glb2", "glb1", "glb0")],
    4: [("wrg1", "wrg0", "lcl1", "lcl0"), ("glb1", "glb0", "seq", "seq")],
    6: [("wrg2", "wrg1", "wrg0", "lcl2", "lcl1", "lcl0")],
}


# Tiles of windows that move down the rows: the threads of a group have the columns.
_SLIDING_NEST = ("wrg1", "wrg0", "lcl0")


def _level(name: str) -> n.MapLevel:
    return n.MapLevel(name[:3], int(name[3])) if name[-1].isdigit() else n.MapLevel(name)


def _nests(program: n.Pattern, settings: ExplorationSettings) -> list[LoopNest]:
    """Return who may run nested loops, outermost first, the deepest nests first."""
    count = len(dimensions(type_of(program))[0])
    allowed = settings.dimensions or ((1, 2, 3) if count >= 3 else (1, 2))
    nests = _C_NESTS if settings.target == "c" else _GPU_NESTS
    every = [names for depth in sorted(nests, reverse=True) for names in nests[depth]]
    if settings.target == "gpu" and any(isinstance(p, n.SlideSeq) for p in n.walk(program)):
        every.insert(0, _SLIDING_NEST)
    found = []
    for nest in (tuple(map(_level, names)) for names in every):
        used = {MAPPINGS[level.kind] for level in nest if level.kind in MAPPINGS}
        grid = {level.dim for level in nest if level.kind in n.GRID_KINDS}
        if used <= set(settings.mappings) and (not grid or len(grid) in allowed):
            found.append(nest)
    return found


def lowered(variant: Derivation, settings: ExplorationSettings) -> Iterator[Derivation]:
    """Yield the ways to run a program's outermost loops, stage its tiles and unroll reductions."""
    storing = store("global")
    for form in _forms(variant, settings):
        yield from _mapped(form, settings)
        for site in sites(form.program) if "global" in settings.memory else ():
            made = None if site.around else apply_at(storing, site)
            if isinstance(made, n.Pattern):
                yield from _mapped(form.then(storing, made), settings)


def _forms(variant: Derivation, settings: ExplorationSettings) -> Iterator[Derivation]:
    """Yield a program, and what rules make of it that concern its innermost loops."""
    yield variant
    lengths = settings.vectors if settings.target == "gpu" else ()
    sliding = [everywhere(slide_sequentially)] if settings.sliding else []
    for rule in [*sliding, *(bottom_up(vectorise(length)) for length in lengths)]:
        try:
            made = rule(Derivation(variant.program))
        except RewriteError:
            continue
        yield Derivation(variant.start, (*variant.steps, *made.steps))


def _mapped(variant: Derivation, settings: ExplorationSettings) -> Iterator[Derivation]:
    nests = _nests(variant.program, settings)
    for nest in nests:
        try:
            mapped = derive_from(variant, lower_nest(*nest))
        except RewriteError:
            continue
        if settings.target == "gpu":
            mapped = _all_kernels(mapped, [nest, *nests])
            if _adds_arrays_without_threads(mapped.program):
                continue
        for staged in [mapped, *_staged(mapped, settings)]:
            for kept in [staged, *_kept(staged, settings)]:
                yield from _reductions(kept)


def _all_kernels(mapped: Derivation, nests: list[LoopNest]) -> Derivation:
    """Return a derivation whose other kernels have threads, too: of the first nest that fits."""
    for site in sites(mapped.program):
        if any(isinstance(p, n.Map | n.Reduce | n.Iterate) for p in site.around):
            continue
        for rule in (lower_nest(*nest) for nest in nests):
            made = apply_at(rule, site)
            if isinstance(made, n.Pattern):
                return _all_kernels(mapped.then(rule, made), nests)
    return mapped


def _adds_arrays_without_threads(program: n.Pattern) -> bool:
    """Return whether a reduction of arrays is outside of all threads: no grid can run its loops."""
    return any(
        isinstance(site.stages[0], n.Reduce)
        and isinstance(infer(site.stages[0], site.given)[0], ArrayType)
        and not any(level.kind in ("glb", "lcl") for level in site.levels())
        for site in sites(program)
    )


def _kept(mapped: Derivation, settings: ExplorationSettings) -> Iterator[Derivation]:
    """Yield ways to store what a thread reads several times in its private memory."""
    storing = store("private")
    for site in sites(mapped.program) if "private" in settings.memory else ():
        if not any(level.kind not in ("wrg", "seq", "unroll") for level in site.levels()):
            continue
        made = apply_at(storing, site)
        first = site.stages[0]
        decided = any(isinstance(p, n.Map) and p.level is not None for p in n.walk(first))
        if not isinstance(made, n.Pattern) or decided:
            continue
        if _elements(infer(first, site.given)[0]) <= MOST_PRIVATE:
            yield mapped.then(storing, made)


def derive_from(derivation: Derivation, rule: Rule) -> Derivation:
    """Return a derivation with a rule at the first site where it applies; raises as `derive`."""
    ((step, program),) = derive(derivation.program, rule).steps
    return derivation.then(step, program)


def _staged(mapped: Derivation, settings: ExplorationSettings) -> Iterator[Derivation]:
    groups = (
        isinstance(p, n.Map) and p.level and p.level.kind == "wrg" for p in n.walk(mapped.program)
    )
    if "local" not in settings.memory or not any(groups):
        return
    for components in ((0,), (1,), (0, 1)):
        try:
            made = derive_from(mapped, stage_tile(components))
        except RewriteError:
            continue
        if _local_elements(made.program) <= settings.most_local:
            yield made


def _local_elements(program: n.Pattern) -> float:
    """Return the number of elements in local memory."""
    firsts = ((site.stages[0], site.given) for site in sites(program))
    return sum(
        _elements(given) for p, given in firsts if isinstance(p, n.To) and p.space == "local"
    )


def _elements(kind: DataType) -> float:
    """Return the elements of an array; a length that is not a number counts as 1."""
    lengths = dimensions(kind)[0]
    return prod(k.value if isinstance(k.value, int) else 1 for k in lengths)


def _reductions(d: Derivation) -> Iterator[Derivation]:
    """With reductions left in loops, and without loops where their lengths are numbers."""
    yield d
    try:
        made = everywhere(lower_reduce(n.UNROLL))(Derivation(d.program))
    except RewriteError:
        return
    yield Derivation(d.start, (*d.steps, *made.steps))
