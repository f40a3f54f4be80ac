"""Rules that compute stencils in overlapping tiles.

Let windows have ``n`` elements and step ``s``, and tiles ``u`` elements and step ``v``. If
``u - v = n - s`` and ``s`` divides ``v``, the windows of all tiles are exactly the windows of the
array (Hagedorn et al. 2018, "High performance stencil code generation with Lift").
"""

from __future__ import annotations

from tilewright.arith import Poly, poly
from tilewright.patterns import nodes as n
from tilewright.patterns.check import infer
from tilewright.patterns.rewriting.rule import Change, Rule, Site, Stages, run_already
from tilewright.patterns.types import ArrayType, dimensions

OWN = "Tilewright: sizes that tiles do not divide"
HAGEDORN = "Hagedorn et al. 2018 (overlapped tiling)"

COVER = "tiles cover the points exactly"
JOIN, TRANSPOSE = n.Join(), n.Transpose()
UNTILE2: Stages = (n.Map(TRANSPOSE), JOIN, n.Map(JOIN))
ZIP2: Stages = (n.Zip(), n.Map(n.Zip()))


def _tile(window: n.Slide, step: Poly) -> n.Slide | str:
    """Return the slide that makes tiles with this step, or why there is none."""
    quotient = (step / window.step).value
    if quotient is not None and not isinstance(quotient, int):
        return f"a tile of {step} is not a multiple of the windows' step {window.step}"
    return n.Slide(window.size - window.step + step, step)


def slide_tiling(step: Poly | int) -> Rule:
    """Return the rule that takes windows from overlapping tiles; a map after them moves inside."""
    v = poly(step)

    def at(site: Site) -> Change | str | None:
        first, *rest = site.stages
        if not isinstance(first, n.Slide):
            return None
        tiles = _tile(first, v)
        if isinstance(tiles, str):
            return tiles
        if tiles is first:
            return f"the windows move by {v} already"
        inner: Stages = (first,)
        if rest and isinstance(rest[0], n.Map) and rest[0].level is None:
            inner = (first, rest[0])
        return Change(len(inner), (tiles, n.Map(n.pipe(*inner)), JOIN))

    after = f"slide(n - s + {v}, {v}) >> map(slide(n, s) >> map(f)) >> join"
    condition = f"s divides {v}, and {v} divides s times the number of windows"
    return Rule(f"slide_tiling({v})", "slide(n, s) >> map(f)", after, HAGEDORN, at, condition)


def _slide2(stages: Stages) -> tuple[n.Slide, n.Slide] | None:
    """Return the row and column windows, if the stages begin with a 2-D slide."""
    if len(stages) < 3:
        return None
    columns, rows, last = stages[:3]
    if not isinstance(columns, n.Map) or not isinstance(columns.f, n.Slide):
        return None
    if not isinstance(rows, n.Slide) or last is not n.Map(TRANSPOSE):
        return None
    return rows, columns.f


def slide2_stages(rows: n.Slide, columns: n.Slide) -> Stages:
    """Return the stages of a 2-D slide with different windows for rows and columns."""
    return n.Map(columns), rows, n.Map(TRANSPOSE)


def _map2(p: n.Pattern) -> n.Pattern | None:
    """Return the function of two nested maps without levels; None for other patterns."""
    if isinstance(p, n.Map) and p.level is None and isinstance(p.f, n.Map) and p.f.level is None:
        return p.f.f
    return None


def _run_already2(p: n.Pattern | None) -> str | None:
    """Return the refusal if one of two nested maps has a level; None otherwise."""
    nested = isinstance(p, n.Map) and isinstance(p.f, n.Map)
    return run_already(p, p.f) if nested and isinstance(p, n.Map) else None


def tiling2(rows: Poly | int, columns: Poly | int) -> Rule:
    """Return the rule that computes 2-D windows in overlapping tiles of rows x columns points."""
    steps = poly(rows), poly(columns)

    def at(site: Site) -> Change | str | None:
        windows = _slide2(site.stages)
        body = site.stages[3] if len(site.stages) > 3 else None
        if windows is None or body is None or _map2(body) is None:
            return None if windows is None else _run_already2(body)
        tiles = _tiles(windows, steps)
        if isinstance(tiles, str):
            return tiles
        inner = n.pipe(*slide2_stages(*windows), body)
        return Change(4, (*slide2_stages(*tiles), n.Map(n.Map(inner)), *UNTILE2))

    after = f"slide2 of tiles {rows} x {columns} >> map2(slide2(n, s) >> map2(f)) >> untile2"
    name = f"tiling2({rows}, {columns})"
    condition = f"no level runs the maps, s divides {rows} and {columns}, and {COVER}"
    return Rule(name, "slide2(n, s) >> map2(f)", after, HAGEDORN, at, condition)


def _tiles(
    windows: tuple[n.Slide, n.Slide], steps: tuple[Poly, Poly]
) -> tuple[n.Slide, n.Slide] | str:
    rows, columns = (_tile(w, v) for w, v in zip(windows, steps, strict=True))
    if isinstance(rows, str) or isinstance(columns, str):
        return rows if isinstance(rows, str) else str(columns)
    if (rows, columns) == windows:
        return f"the windows move by {steps[0]} x {steps[1]} already"
    return rows, columns


def zipped_tiling2(rows: Poly | int, columns: Poly | int) -> Rule:
    """Return the rule `tiling2` for windows zipped with other grids; their tiles do not overlap."""
    steps = poly(rows), poly(columns)

    def at(site: Site) -> Change | str | None:
        first, body = site.stages[0], site.stages[3] if len(site.stages) > 3 else None
        if not isinstance(first, n.Fork) or site.stages[1:3] != ZIP2:
            return None
        if body is None or _map2(body) is None:
            return _run_already2(body)
        ends = [_slide2(n.stages(item)[-3:]) for item in first.items]
        if not any(ends):
            return "no grid is read in windows: split the maps instead"
        grids: list[n.Pattern] = []
        inner: list[n.Pattern] = []
        for item, windows in zip(first.items, ends, strict=True):
            if windows is None:
                flat = n.Slide(steps[0], steps[0]), n.Slide(steps[1], steps[1])
                grids.append(n.pipe(item, *slide2_stages(*flat)))
                inner.append(n.IDENTITY)
                continue
            if windows[0].step != 1 or windows[1].step != 1:
                return "windows of zipped grids must move by 1"
            tiles = _tiles(windows, steps)
            if isinstance(tiles, str):
                return tiles
            grids.append(n.pipe(*n.stages(item)[:-3], *slide2_stages(*tiles)))
            inner.append(n.pipe(*slide2_stages(*windows)))
        tile = n.pipe(n.Par(tuple(inner)), *ZIP2, body)
        return Change(4, (n.Fork(tuple(grids)), *ZIP2, n.Map(n.Map(tile)), *UNTILE2))

    after = f"zip2(tiles {rows} x {columns}) >> map2(zip2(windows) >> map2(f)) >> untile2"
    name = f"zipped_tiling2({rows}, {columns})"
    condition = f"no level runs the maps, a grid is read in windows, and {COVER}"
    return Rule(name, "zip2(slide2(n, 1), grids) >> map2(f)", after, HAGEDORN, at, condition)


def _missing(length: Poly, k: Poly) -> Poly:
    """Return how many elements a length lacks to the next multiple of k."""
    return (length + k - 1) // k * k - length


def round_up(length: Poly | int) -> Rule:
    """Return the rule that pads a map to a multiple of ``length`` and crops its result."""
    k = poly(length)

    def at(site: Site) -> Change | str | None:
        first = site.stages[0]
        if not isinstance(first, n.Map) or not n.computes(first):
            return None
        if reason := run_already(first):
            return reason
        assert isinstance(site.given, ArrayType)
        missing = _missing(site.given.length, k)
        if missing == 0:
            return f"its length {site.given.length} is a multiple of {k}"
        widened = n.Pad(poly(0), missing, "clamp")
        return Change(1, (widened, first, n.Crop(site.given.length)))

    after = f"pad(0, ..., clamp) >> map(f) >> crop(n), to a multiple of {k}"
    condition = f"no level runs the map, f computes, and {k} does not divide its length"
    return Rule(f"round_up({k})", "map(f)", after, OWN, at, condition)


def _widened(stages: Stages, missing: list[Poly]) -> Stages | str:
    """Return stages with added rows and columns in their result, padded before any windows."""
    wide = tuple(n.Pad(poly(0), m, "clamp") for m in missing)
    windows = _slide2(stages[-3:])
    if windows is None:
        return (*stages, wide[0], n.Map(wide[1]))
    if windows[0].step != 1 or windows[1].step != 1:
        return "the windows must move by 1"
    return (*stages[:-3], wide[0], n.Map(wide[1]), *stages[-3:])


def round_up2(rows: Poly | int, columns: Poly | int) -> Rule:
    """Return the rule that pads grids of windows to whole tiles and crops the result.

    Zipped grids are padded equally.
    """
    steps = poly(rows), poly(columns)

    def at(site: Site) -> Change | str | None:
        first, body = site.stages[0], site.stages[3] if len(site.stages) > 3 else None
        zipped = isinstance(first, n.Fork) and site.stages[1:3] == ZIP2
        if body is None or (not zipped and _slide2(site.stages) is None):
            return None
        if _map2(body) is None:
            return _run_already2(body)
        lengths, _ = dimensions(infer(n.pipe(*site.stages[:3]), site.given)[0])
        missing = [_missing(length, v) for length, v in zip(lengths[:2], steps, strict=True)]
        if missing == [0, 0]:
            return f"there are multiples of {rows} x {columns} points"
        cut = n.Crop(lengths[0]), n.Map(n.Crop(lengths[1]))
        if not isinstance(first, n.Fork):
            start = _widened(site.stages[:3], missing)
            return start if isinstance(start, str) else Change(4, (*start, body, *cut))
        items = [_widened(n.stages(item), missing) for item in first.items]
        wrong = next((item for item in items if isinstance(item, str)), None)
        if wrong is not None:
            return wrong
        fork = n.Fork(tuple(n.pipe(*item) for item in items if not isinstance(item, str)))
        return Change(4, (fork, *ZIP2, body, *cut))

    after = f"pad to multiples of {rows} x {columns} >> slide2(n, 1) >> map2(f) >> crop2"
    condition = "no level runs the maps, and tiles do not cover the points already"
    name = f"round_up2({rows}, {columns})"
    return Rule(name, "slide2(n, 1) >> map2(f)", after, OWN, at, condition)


def split2(rows: Poly | int, columns: Poly | int) -> Rule:
    """Return the rule that runs two nested maps in tiles that do not overlap."""
    y, x = poly(rows), poly(columns)

    def at(site: Site) -> Change | str | None:
        f = _map2(site.stages[0])
        if f is None:
            return _run_already2(site.stages[0])
        cut: Stages = (n.SplitPattern(y), n.Map(n.pipe(n.Map(n.SplitPattern(x)), TRANSPOSE)))
        return Change(1, (*cut, n.Map(n.Map(n.Map(n.Map(f)))), *UNTILE2))

    after = f"split({y}) >> map(map(split({x})) >> transpose) >> map2(map2(f)) >> untile2"
    source = "Steuwer et al. 2015 (split-join in two dimensions)"
    condition = f"no level runs the maps, {y} divides the rows and {x} the columns"
    return Rule(f"split2({y}, {x})", "map2(f)", after, source, at, condition)


def _chain2(stages: Stages) -> list[Stages]:
    """Return the 2-D windows that move by 1 and the maps that the stages begin with, in order."""
    found: list[Stages] = []
    rest = stages
    while rest:
        windows = _slide2(rest)
        if windows is not None and windows[0].step == 1 and windows[1].step == 1:
            found.append(rest[:3])
        elif _map2(rest[0]) is not None and n.computes(rest[0]):
            found.append(rest[:1])
        else:
            break
        rest = rest[len(found[-1]) :]
    return found


def round_up_chain2(rows: Poly | int, columns: Poly | int) -> Rule:
    """Return the rule `round_up2` for several stencils in a row: the first one's grid is padded.

    The points that it adds to the result are dropped; no other point depends on the padding.
    """
    steps = poly(rows), poly(columns)

    def at(site: Site) -> Change | str | None:
        chain = _chain2(site.stages)
        stages = tuple(stage for part in chain for stage in part)
        if not any(len(part) == 3 for part in chain):
            return None
        if len(chain[-1]) == 3:
            return _run_already2(site.stages[len(stages)]) if site.stages[len(stages) :] else None
        lengths, _ = dimensions(infer(n.pipe(*stages), site.given)[0])
        missing = [_missing(length, v) for length, v in zip(lengths[:2], steps, strict=True)]
        if missing == [0, 0]:
            return f"there are multiples of {rows} x {columns} points"
        wide = tuple(n.Pad(poly(0), m, "clamp") for m in missing)
        cut = n.Crop(lengths[0]), n.Map(n.Crop(lengths[1]))
        return Change(len(stages), (wide[0], n.Map(wide[1]), *stages, *cut))

    after = f"pad to multiples of {rows} x {columns} >> the same >> crop2"
    condition = "no level runs the maps, and tiles do not cover the points already"
    name = f"round_up_chain2({rows}, {columns})"
    return Rule(name, "map2(f) and slide2(n, 1) in turn", after, OWN, at, condition)


def _map2_slide2(site: Site) -> Change | str | None:
    first = site.stages[0]
    if not n.computes(first) or _slide2(site.stages[1:]) is None:
        return None
    if _map2(first) is None:
        return _run_already2(first)
    return Change(4, (*site.stages[1:4], n.Map(n.Map(first))))


def _slide2_slide2(site: Site) -> Change | str | None:
    inner, outer = _slide2(site.stages), _slide2(site.stages[3:])
    if inner is None or outer is None:
        return None
    rows, columns = (
        n.Slide((u.size - 1) * w.step + w.size, u.step * w.step)
        for w, u in zip(inner, outer, strict=True)
    )
    windows = n.Map(n.Map(n.pipe(*site.stages[:3])))
    return Change(6, (*slide2_stages(rows, columns), windows))


def _map2_fusion(site: Site) -> Change | str | None:
    if len(site.stages) < 2:
        return None
    f, g = _map2(site.stages[0]), _map2(site.stages[1])
    if f is None or g is None:
        return _run_already2(site.stages[0])
    return Change(2, (n.Map(n.Map(n.pipe(f, g))),))


map2_slide2 = Rule(
    "map2_slide2",
    "map2(f) >> slide2(n, s)",
    "slide2(n, s) >> map2(map2(f))",
    HAGEDORN,
    _map2_slide2,
    "no level runs the maps, and f computes",
)
slide2_slide2 = Rule(
    "slide2_slide2",
    "slide2(n, s) >> slide2(u, v)",
    "slide2((u - 1) * s + n, v * s) >> map2(slide2(n, s))",
    HAGEDORN,
    _slide2_slide2,
)
map2_fusion = Rule(
    "map2_fusion",
    "map2(f) >> map2(g)",
    "map2(f >> g)",
    "Lift 2020, section 3.3 (map fusion), in two dimensions",
    _map2_fusion,
    "no level runs the maps",
)
