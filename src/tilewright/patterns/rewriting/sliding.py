"""Rules that compute neighbouring windows in a sequential loop, with the window in registers.

The loop reads each element once; separate windows of ``n`` elements with step ``s`` read it
``n / s`` times (Lift's mapSeqSlide, RISE's rotateValues). In two and three dimensions, the
dimension of the loop becomes the innermost one; in three this is 2.5-D blocking.
"""

from __future__ import annotations

from tilewright.patterns import nodes as n
from tilewright.patterns.check import infer
from tilewright.patterns.codegen.windows import elements
from tilewright.patterns.rewriting.rule import Change, Rule, Site, Stages
from tilewright.patterns.types import ArrayType, DataType, TupleType

HAGEDORN = "Hagedorn et al. 2018 (mapSeqSlide); RISE's rotateValues"
MOST_KEPT = 255  # elements per window: 32-bit registers per thread (CUDA C programming guide)
MOST_DIMS = 3  # dimensions of a stencil: `build` has no short forms for more, either

TRANSPOSE = n.Transpose()


def transposed(p: n.Pattern, depth: int = 0) -> list[int] | None:
    """Return the map depth of each transposition in a layout; None if it has other parts."""
    if p is TRANSPOSE:
        return [depth]
    if isinstance(p, n.Map) and p.level is None:
        p, depth = p.f, depth + 1
        return transposed(p, depth)
    if not isinstance(p, n.Pipe) or not p.stages:
        return None
    found: list[int] = []
    for stage in p.stages:
        inner = transposed(stage, depth)
        if inner is None:
            return None
        found += inner
    return found


def _dims_moved(stages: Stages) -> int | None:
    """Return the number of dimensions that the windows of a slide and its layout add to one.

    ``slide(n, s)`` alone makes one-dimensional windows. ``slide(n, s) >> map(transpose)`` makes
    two-dimensional windows if each row was divided into windows before. None for other stages.
    """
    if not stages or not isinstance(stages[0], n.Slide):
        return None
    moved: list[int] = []
    for stage in stages[1:]:
        inner = transposed(stage)
        if inner is None:
            return None
        moved += inner
    return len(moved) if moved == [*range(1, len(moved) + 1)] else None


def _nested(p: n.Pattern, depth: int) -> n.Pattern | None:
    """Return the function of directly nested maps without levels."""
    for _ in range(depth):
        if not isinstance(p, n.Map) or p.level is not None:
            return None
        p = p.f
    return p if n.computes(p) else None


def _map(p: n.Pattern, depth: int) -> n.Pattern:
    return p if depth == 0 else n.Map(_map(p, depth - 1))


def _inwards(dims: int) -> Stages:
    """Return the layout that makes the outermost dimension the innermost of ``dims + 1``."""
    return tuple(_map(TRANSPOSE, k) for k in range(dims))


def _row(given: DataType, dims: int) -> DataType:
    """Return the type of an element of the outermost dimension, at one point of the others."""
    for _ in range(dims + 1):
        assert isinstance(given, ArrayType)
        given = given.item
    return given


def _unfit(slide: n.Slide, given: DataType, dims: int) -> str:
    """Return why a window cannot be kept in registers; empty if it can."""
    size, step, each = slide.size.value, slide.step.value, elements(_row(given, dims))
    if not isinstance(size, int) or not isinstance(step, int) or each is None:
        return f"the size of its windows is not a number: {slide}"
    if step >= size:
        return f"the windows of {slide} do not overlap: no element is read twice"
    if size * each > MOST_KEPT:
        return f"a window of {size * each} elements; registers keep at most {MOST_KEPT}"
    return ""


def _tiles(body: n.Pattern) -> str:
    if any(isinstance(p, n.Slide | n.SlideSeq) for p in n.walk(body)):
        return "its windows are tiles, which are divided into windows again: slide inside of them"
    return ""


def _readers(site: Site, position: int) -> str:
    reader = next((s for s in site.stages[position + 1 :] if n.computes(s)), site.reader)
    return f"{reader} reads its result: fuse the two or store it first" if reader else ""


def _at(site: Site) -> Change | str | None:
    first = site.stages[0]
    if isinstance(first, n.Fork | n.Par):
        return _zipped(first, site)
    if not isinstance(first, n.Slide):
        return None
    for position in range(1, min(len(site.stages), MOST_DIMS + 1)):
        dims = _dims_moved(site.stages[:position])
        body = None if dims is None else _nested(site.stages[position], dims + 1)
        if dims is None or body is None:
            continue
        if reason := _tiles(body) or _unfit(first, site.given, dims) or _readers(site, position):
            return reason
        run = n.pipe(n.SlideSeq(first.size, first.step), n.Map(body, n.SEQ))
        layout = _inwards(dims)
        return Change(position + 1, (*layout, _map(run, dims), *reversed(layout)))
    return None


def _zipped(first: n.Fork | n.Par, site: Site) -> Change | str | None:
    """Apply the rule to windows zipped with other grids, which the loop reads point by point."""
    zips = 0
    while zips + 1 < len(site.stages) and site.stages[zips + 1] == _map(n.Zip(), zips):
        zips += 1
    position, dims = zips + 1, zips - 1
    if not 0 <= dims < MOST_DIMS or position >= len(site.stages):
        return None
    body = _nested(site.stages[position], zips)
    if body is None:
        return None
    grids: list[n.Pattern] = []
    inner: list[n.Pattern] = []
    reasons: list[str] = []
    for k, item in enumerate(first.items):
        given = site.given
        if isinstance(first, n.Par):
            assert isinstance(given, TupleType)
            given = given.items[k]
        before, slide = _ending(n.stages(item), dims)
        if slide is not None:
            reasons.append(_unfit(slide, infer(n.pipe(*before), given)[0], dims))
        grids.append(n.pipe(*before, *_inwards(dims)))
        inner.append(n.IDENTITY if slide is None else n.SlideSeq(slide.size, slide.step))
    if not reasons:
        return None
    if reason := _tiles(body) or next(filter(None, reasons), "") or _readers(site, position):
        return reason
    run = n.pipe(n.Par(tuple(inner)), n.Zip(), n.Map(body, n.SEQ))
    if dims == 0:
        items = [n.pipe(a, b) for a, b in zip(grids, inner, strict=True)]
        return Change(position + 1, (type(first)(tuple(items)), n.Zip(), n.Map(body, n.SEQ)))
    outer = tuple(_map(n.Zip(), k) for k in range(dims))
    made = (type(first)(tuple(grids)), *outer, _map(run, dims), *reversed(_inwards(dims)))
    return Change(position + 1, made)


def _ending(stages: Stages, dims: int) -> tuple[Stages, n.Slide | None]:
    """Return the stages before the slide that makes ``dims + 1``-dimensional windows, and it."""
    for start in reversed(range(len(stages))):
        slide = stages[start]
        if isinstance(slide, n.Slide) and _dims_moved(stages[start:]) == dims:
            return stages[:start], slide
    return stages, None


slide_sequentially = Rule(
    "slide_sequentially",
    "slide(n, s) >> map(f)",
    "slide_seq(n, s) >> map_seq(f)",
    HAGEDORN,
    _at,
    "the windows overlap, their size and step are numbers, and no level runs the map",
)
