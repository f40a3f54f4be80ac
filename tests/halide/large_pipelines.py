"""Pipelines of any number of Funcs: networks, chains of elementwise operators, pyramids.

Each function takes the least number of Funcs (inputs not counted) and gives the output Func. A
larger pipeline continues a smaller one of its kind, so that work per Func can be compared.
"""

from __future__ import annotations

from collections.abc import Callable

import halide as hl

CHANNELS = 32  # of every layer of a network
EDGE = 56  # width and height of its images
WIDTH, HEIGHT = 1536, 1024  # of what chains and pyramids compute
LEVELS = 6  # of a pyramid


def _weights(name: str, *extents: int) -> hl.ImageParam:
    weights = hl.ImageParam(hl.Float(32), len(extents), name)
    weights.set_estimates([(0, extent) for extent in extents])
    return weights


def residual_network(least: int) -> hl.Func:
    """Residual blocks of two 3x3 convolutions each, with bias and rectifier: 9 Funcs a block."""
    c, x, y = hl.vars("c x y")
    image = _weights("image", CHANNELS, EDGE, EDGE)
    current = hl.Func("first")
    current[c, x, y] = image[c, x, y]
    count = 1

    def convolved(source: hl.Func, layer: str) -> hl.Func:
        taps = _weights(f"taps_{layer}", CHANNELS, 3, 3, CHANNELS)
        bias = _weights(f"bias_{layer}", CHANNELS)
        r = hl.RDom([(0, CHANNELS), (0, 3), (0, 3)], f"r_{layer}")
        padded, total = hl.Func(f"padded_{layer}"), hl.Func(f"total_{layer}")
        biased, result = hl.Func(f"biased_{layer}"), hl.Func(f"result_{layer}")
        inside = (x >= 0) & (x < EDGE) & (y >= 0) & (y < EDGE)
        at = (c, hl.clamp(x, 0, EDGE - 1), hl.clamp(y, 0, EDGE - 1))
        padded[c, x, y] = hl.select(inside, source[at], hl.f32(0.0))
        total[c, x, y] = hl.f32(0.0)
        total[c, x, y] += taps[r.x, r.y, r.z, c] * padded[r.x, x + r.y - 1, y + r.z - 1]
        biased[c, x, y] = total[c, x, y] + bias[c]
        result[c, x, y] = hl.max(biased[c, x, y], hl.f32(0.0))
        return result

    block = 0
    while count < least:
        second = convolved(convolved(current, f"{block}a"), f"{block}b")
        added = hl.Func(f"added_{block}")
        added[c, x, y] = second[c, x, y] + current[c, x, y]
        current, block, count = added, block + 1, count + 9
    current.set_estimates([(0, CHANNELS), (0, EDGE), (0, EDGE)])
    return current


def elementwise_chain(least: int) -> hl.Func:
    """Pointwise operators one after the other; some read an earlier one too, some a neighbour."""
    x, y = hl.vars("x y")
    image = _weights("image", WIDTH + least, HEIGHT)
    funcs = [hl.Func("first")]
    funcs[0][x, y] = image[x, y]
    for i in range(1, least):
        func, last = hl.Func(f"step_{i}"), funcs[-1]
        if i % 7 == 0:
            func[x, y] = last[x, y] + last[x + 1, y] * hl.f32(0.5)
        elif i % 5 == 0:
            func[x, y] = hl.sqrt(hl.abs(last[x, y])) + funcs[-4][x, y]
        elif i % 3 == 0:
            func[x, y] = hl.exp(-hl.abs(last[x, y]))
        else:
            func[x, y] = last[x, y] * hl.f32(1.0 + 1.0 / i) + hl.f32(i)
        funcs.append(func)
    funcs[-1].set_estimates([(0, WIDTH), (0, HEIGHT)])
    return funcs[-1]


def pyramids(least: int) -> hl.Func:
    """Laplacian pyramids one after the other, each put together again with other weights."""
    x, y = hl.vars("x y")
    image = _weights("image", WIDTH, HEIGHT)
    source = hl.Func("first")
    source[x, y] = image[hl.clamp(x, 0, WIDTH - 1), hl.clamp(y, 0, HEIGHT - 1)]
    number, count = 0, 1
    while count < least:
        low = source
        details: list[hl.Func] = []
        for level in range(LEVELS):
            tag = f"{number}_{level}"
            across, down = hl.Func(f"across_{tag}"), hl.Func(f"down_{tag}")
            detail = hl.Func(f"detail_{tag}")
            across[x, y] = (low[2 * x - 1, y] + 2.0 * low[2 * x, y] + low[2 * x + 1, y]) * 0.25
            down[x, y] = (
                across[x, 2 * y - 1] + 2.0 * across[x, 2 * y] + across[x, 2 * y + 1]
            ) * 0.25
            detail[x, y] = low[x, y] - _twice(down, x, y, f"{tag}_down")
            details.append(detail)
            low, count = down, count + 4
        for level in reversed(range(LEVELS)):
            tag = f"{number}_{level}"
            whole = hl.Func(f"whole_{tag}")
            raised = _twice(low, x, y, f"{tag}_up")
            whole[x, y] = raised + details[level][x, y] * hl.f32(1.0 + level / 8)
            low, count = whole, count + 2
        source, number = hl.Func(f"result_{number}"), number + 1
        source[x, y] = low[hl.clamp(x, 0, WIDTH - 1), hl.clamp(y, 0, HEIGHT - 1)]
        count += 1
    source.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return source


def _twice(coarse: hl.Func, x: hl.Var, y: hl.Var, tag: str) -> hl.Expr:
    """A coarser level read at finer coordinates; a Func of its own interpolates along rows."""
    rows = hl.Func(f"rows_{tag}")
    rows[x, y] = (coarse[x // 2, y] + coarse[(x + 1) // 2, y]) * 0.5
    return (rows[x, y // 2] + rows[x, (y + 1) // 2]) * 0.5


def stencil_chain(least: int) -> hl.Func:
    """Stencils in both directions one after the other, each too costly to compute again."""
    x, y = hl.vars("x y")
    image = _weights("image", WIDTH + 4 * least, HEIGHT + 4 * least)
    last = hl.Func("first")
    last[x, y] = image[x, y]
    for i in range(1, least):
        func = hl.Func(f"stencil_{i}")
        total = sum((last[x + dx, y + dy] for dx in range(3) for dy in range(3)), hl.f32(0.0))
        func[x, y] = hl.sqrt(hl.abs(total)) * hl.f32(1.0 / i)
        last = func
    last.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return last


def branches(least: int) -> hl.Func:
    """One Func read by many, each of which feeds the sum that is the output."""
    x, y = hl.vars("x y")
    image = _weights("image", WIDTH + least, HEIGHT)
    source, output = hl.Func("source"), hl.Func("output")
    source[x, y] = hl.exp(-hl.abs(image[x, y]))
    total = hl.f32(0.0)
    for i in range((least - 2) // 2):
        across, root = hl.Func(f"across_{i}"), hl.Func(f"root_{i}")
        across[x, y] = source[x, y] * hl.f32(i) + hl.sqrt(source[x + i + 1, y])
        root[x, y] = hl.exp(across[x, y] - across[x + 1, y]) * hl.f32(0.5)
        total = total + root[x, y] * root[x + 1, y]
    output[x, y] = total
    output.set_estimates([(0, WIDTH), (0, HEIGHT)])
    return output


KINDS: dict[str, Callable[[int], hl.Func]] = {
    "residual_network": residual_network,
    "elementwise_chain": elementwise_chain,
    "pyramids": pyramids,
    "stencil_chain": stencil_chain,
    "branches": branches,
}
