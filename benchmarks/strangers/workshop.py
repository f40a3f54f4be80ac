"""Video, sound, language models, prices and games, as their makers write them."""

from __future__ import annotations

import halide as hl
import numpy as np

from strangers.kit import F32, I16, U8, U16, Program, clamped, image, padded, pipeline, single


def decode_blocks(target, *, width, height):
    """Blocks of 8 by 8 coefficients of cosines, scaled back and turned into brightness."""
    x, y, i, k = hl.vars("x y i k")
    data, table = image("data", I16, width, height), image("table", U16, 8, 8)
    r, s = hl.RDom([(0, 8)], "r"), hl.RDom([(0, 8)], "s")
    basis, scaled, across, down = map(hl.Func, ("basis", "scaled", "across", "down"))
    share = hl.select(k == 0, float(0.125**0.5), 0.5)
    basis[i, k] = share * hl.cos(hl.f32((2 * i + 1) * k) * float(np.pi / 16))
    scaled[x, y] = hl.f32(data[x, y]) * hl.f32(table[x % 8, y % 8])
    across[x, y] += basis[x % 8, r] * scaled[x // 8 * 8 + r, y]
    down[x, y] += basis[y % 8, s] * across[x, y // 8 * 8 + s]
    out = hl.Func("out")
    out[x, y] = hl.clamp(down[x, y] + 128.0, 0.0, 255.0)
    return pipeline((out, (width, height)))


def _decode_blocks(inputs, *, width, height):
    i, k = np.mgrid[:8, :8]
    basis = np.where(k == 0, 0.125**0.5, 0.5) * np.cos((2 * i + 1) * k * np.pi / 16)
    table = np.tile(inputs["table"].astype(float), (width // 8, height // 8))
    blocks = (inputs["data"] * table).reshape(width // 8, 8, height // 8, 8)
    found = np.einsum("xk,yl,akbl->axby", basis, basis, blocks).reshape(width, height)
    return single(np.clip(found + 128, 0, 255))


def gradient_noise(target, *, size):
    """Perlin's noise in three octaves, from a table of hashes."""
    x, y, out = hl.Var("x"), hl.Var("y"), hl.Func("out")
    hashes = image("hashes", U8, 256)

    def slope(at_x, at_y, along, up):
        first = hl.i32(hashes[at_x & 255])
        drawn = hashes[(first + at_y) & 255]
        return hl.select(drawn & 1 == 0, along, -along) + hl.select(drawn & 2 == 0, up, -up)

    def faded(t):
        return t * t * t * (t * (t * 6.0 - 15.0) + 10.0)

    total = hl.f32(0)
    for octave in range(3):
        cell = 64 >> octave
        i, j = x // cell, y // cell
        along, up = (hl.f32(v % cell) / float(cell) for v in (x, y))
        low, high = (
            hl.lerp(
                slope(i, j + k, along, up - float(k)),
                slope(i + 1, j + k, along - 1.0, up - float(k)),
                faded(along),
            )
            for k in range(2)
        )
        total += hl.lerp(low, high, faded(up)) * 0.5**octave
    out[x, y] = total
    return pipeline((out, (size, size)))


def polar_view(target, *, size, angles):
    """A picture around its middle: one row per angle, interpolated."""
    r, a, out = hl.Var("r"), hl.Var("a"), hl.Func("out")
    data = image("data", F32, size, size)
    inside = clamped(data)
    turn, middle = hl.f32(a) * float(2 * np.pi / angles), 0.5 * size
    along, up = middle + hl.f32(r) * hl.cos(turn), middle + hl.f32(r) * hl.sin(turn)
    i, j = hl.i32(hl.floor(along)), hl.i32(hl.floor(up))
    low = hl.lerp(inside[i, j], inside[i + 1, j], along - hl.f32(i))
    high = hl.lerp(inside[i, j + 1], inside[i + 1, j + 1], along - hl.f32(i))
    out[r, a] = hl.lerp(low, high, up - hl.f32(j))
    return pipeline((out, (size // 2, angles)))


def wave_steps(target, *, size):
    """Four steps of the wave equation, each from the last two; the border is still."""
    x, y = hl.vars("x y")
    last, now = (clamped(image(name, F32, size, size)) for name in ("last", "now"))
    for step in range(4):
        made = hl.Func(f"step_{step}")
        around = now[x - 1, y] + now[x + 1, y] + now[x, y - 1] + now[x, y + 1] - 4.0 * now[x, y]
        made[x, y] = 2.0 * now[x, y] - last[x, y] + 0.2 * around
        inside = hl.BoundaryConditions.constant_exterior(made, 0.0, [(0, size), (0, size)])
        last, now = now, inside
    out = hl.Func("out")
    out[x, y] = now[x, y]
    return pipeline((out, (size, size)))


def _wave_steps(inputs, *, size):
    last, now = (padded(inputs[name].astype(float), 1) for name in ("last", "now"))
    for _ in range(4):
        around = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:]
        made = 2 * now[1:-1, 1:-1] - last[1:-1, 1:-1] + 0.2 * (around - 4 * now[1:-1, 1:-1])
        last, now = now, np.pad(made, 1)
    return single(now[1:-1, 1:-1])


def likeness(target, *, width, height):
    """Structural similarity of two pictures, by windows of 7 by 7."""
    x, y = hl.vars("x y")
    a, b = (clamped(image(name, U8, width, height)) for name in ("a", "b"))
    r, s = hl.RDom([(-3, 7)], "r"), hl.RDom([(-3, 7)], "s")
    moments, across, sums = map(hl.Func, ("moments", "across", "sums"))
    one, two = hl.i32(a[x, y]), hl.i32(b[x, y])
    moments[x, y] = (one, two, one * one, two * two, one * two)
    for func, read in ((across, moments[x + r, y]), (sums, across[x, y + s])):
        func[x, y] = tuple(hl.i32(0) for _ in range(5))
        func[x, y] = tuple(func[x, y][k] + read[k] for k in range(5))
    mean_a, mean_b, aa, bb, ab = (hl.f32(sums[x, y][k]) / 49.0 for k in range(5))
    out = hl.Func("out")
    both = (2.0 * mean_a * mean_b + 6.5) * (2.0 * (ab - mean_a * mean_b) + 58.5)
    each = (mean_a * mean_a + mean_b * mean_b + 6.5) * (
        aa - mean_a * mean_a + bb - mean_b * mean_b + 58.5
    )
    out[x, y] = both / each
    return pipeline((out, (width, height)))


def _likeness(inputs, **_):
    a, b = (padded(inputs[name].astype(float), 3) for name in ("a", "b"))

    def mean(values):
        return np.lib.stride_tricks.sliding_window_view(values, (7, 7)).mean(axis=(2, 3))

    one, two = mean(a), mean(b)
    both = (2 * one * two + 6.5) * (2 * (mean(a * b) - one * two) + 58.5)
    spread = mean(a * a) - one**2 + mean(b * b) - two**2
    return single(both / ((one**2 + two**2 + 6.5) * (spread + 58.5)))


def gated_conv(target, *, channels, length, apart):
    """A layer of a network for sound: convolutions of samples far apart, one the other's gate."""
    c, t = hl.Var("c"), hl.Var("t")
    data = image("data", F32, channels, length + 2 * apart)
    weights = image("weights", F32, 2 * channels, channels, 3)
    r = hl.RDom([(0, channels), (0, 3)], "r")
    sums, out = hl.Func("sums"), hl.Func("out")
    sums[c, t] += weights[c, r.x, r.y] * data[r.x, t + apart * r.y]
    gate = 1.0 / (1.0 + hl.exp(-sums[c + channels, t]))
    out[c, t] = hl.tanh(sums[c, t]) * gate + data[c, t + 2 * apart]
    return pipeline((out, (channels, length)))


def _gated_conv(inputs, *, channels, length, apart):
    data, weights = (inputs[name].astype(float) for name in ("data", "weights"))
    taps = [weights[:, :, k] @ data[:, k * apart : k * apart + length] for k in range(3)]
    sums = sum(taps)
    gate = 1 / (1 + np.exp(-sums[channels:]))
    return single(np.tanh(sums[:channels]) * gate + data[:, 2 * apart :])


def rotary_norm(target, *, width, tokens):
    """A language model's queries: scaled to length one, pairs turned by the token's position."""
    i, t = hl.vars("i t")
    data, gain = image("data", F32, width, tokens), image("gain", F32, width)
    cosine, sine = (image(name, F32, width // 2, tokens) for name in ("cosine", "sine"))
    r, square, scaled, out = hl.RDom([(0, width)], "r"), *map(hl.Func, ("square", "scaled", "out"))
    square[t] += data[r, t] * data[r, t]
    scaled[i, t] = data[i, t] * gain[i] / hl.sqrt(square[t] / width + 1e-5)
    one, two = scaled[i // 2 * 2, t], scaled[i // 2 * 2 + 1, t]
    c, s = cosine[i // 2, t], sine[i // 2, t]
    out[i, t] = hl.select(i % 2 == 0, one * c - two * s, one * s + two * c)
    return pipeline((out, (width, tokens)))


def _rotary_norm(inputs, *, width, **_):
    data, gain, c, s = (inputs[n].astype(float) for n in ("data", "gain", "cosine", "sine"))
    scaled = data * gain[:, None] / np.sqrt((data**2).sum(axis=0) / width + 1e-5)
    one, two = scaled[0::2], scaled[1::2]
    return single(np.stack([one * c - two * s, one * s + two * c], axis=1).reshape(data.shape))


def best_two(target, *, classes, rows):
    """The largest value of each row, where it is, and how far the second is behind."""
    y, data = hl.Var("y"), image("data", F32, classes, rows)
    r, best, out = hl.RDom([(0, classes)], "r"), hl.Func("best"), hl.Func("out")
    best[y] = (hl.f32(-1e30), 0, hl.f32(-1e30))
    value, (first, where, second) = data[r, y], (best[y][k] for k in range(3))
    best[y] = (
        hl.max(first, value),
        hl.select(value > first, r, where),
        hl.max(second, hl.min(first, value)),
    )
    out[y] = (best[y][0], best[y][1], best[y][0] - best[y][2])
    return pipeline((out, (rows,)))


def _best_two(inputs, **_):
    second, first = np.sort(inputs["data"], axis=0)[-2:]
    return (first, inputs["data"].argmax(axis=0).astype(np.int32), first - second)


def packed_weights(target, *, width, rows):
    """A matrix of numbers of four bits, with a scale per 32 of them, times a vector."""
    m, vector = hl.Var("m"), image("vector", F32, width)
    packed, scales = image("packed", U8, width // 2, rows), image("scales", F32, width // 32, rows)
    r, out = hl.RDom([(0, 2), (0, width // 2)], "r"), hl.Func("out")
    weight = hl.i32((packed[r.y, m] >> hl.u8(4 * r.x)) & 15) - 8
    out[m] += hl.f32(weight) * scales[r.y // 16, m] * vector[2 * r.y + r.x]
    return pipeline((out, (rows,)))


def _packed_weights(inputs, **_):
    packed = inputs["packed"]
    weights = np.stack([packed & 15, packed >> 4], axis=1).reshape(-1, packed.shape[1]) - 8.0
    scales = np.repeat(inputs["scales"].astype(float), 32, axis=0)
    return single(inputs["vector"].astype(float) @ (weights * scales))


def drawdowns(target, *, series, length):
    """Each price's worst fall from its highest so far, as a share, and when it ended."""
    s, prices = hl.Var("s"), image("prices", F32, series, length)
    r, worst, out = hl.RDom([(0, length)], "r"), hl.Func("worst"), hl.Func("out")
    worst[s] = (hl.f32(0), hl.f32(0), 0)
    top = hl.max(worst[s][0], prices[s, r])
    fall = (top - prices[s, r]) / top
    more = fall > worst[s][1]
    worst[s] = (top, hl.select(more, fall, worst[s][1]), hl.select(more, r, worst[s][2]))
    out[s] = (worst[s][1], worst[s][2])
    return pipeline((out, (series,)))


def _drawdowns(inputs, **_):
    prices = inputs["prices"]
    top = np.maximum.accumulate(prices, axis=1)
    falls = (top - prices) / top
    return (falls.max(axis=1), falls.argmax(axis=1).astype(np.int32))


def rolling_slope(target, *, series, length):
    """The slope of the line through the last 20 prices, at each time."""
    t, s = hl.Var("t"), hl.Var("s")
    prices, r = image("prices", F32, length + 19, series), hl.RDom([(0, 20)], "r")
    sums, moment, out = map(hl.Func, ("sums", "moment", "out"))
    sums[t, s] += prices[t + r, s]
    moment[t, s] += hl.f32(r) * prices[t + r, s]
    out[t, s] = (moment[t, s] - 9.5 * sums[t, s]) / 665.0
    return pipeline((out, (length, series)))


def _rolling_slope(inputs, **_):
    windows = np.lib.stride_tricks.sliding_window_view(inputs["prices"].astype(float), 20, axis=0)
    return single(windows @ (np.arange(20) - 9.5) / 665)


def spheres(target, *, width, height, count):
    """The nearest of some spheres along each ray, and the light on it."""
    x, y, place = hl.Var("x"), hl.Var("y"), image("place", F32, 4, count)
    r, ray, nearest = hl.RDom([(0, count)], "r"), hl.Func("ray"), hl.Func("nearest")
    across, up = hl.f32(x) / width - 0.5, hl.f32(y) / height - 0.5
    size = hl.sqrt(across * across + up * up + 1.0)
    ray[x, y] = (across / size, up / size, 1.0 / size)
    middle = [place[k, r] - 0.5 for k in range(2)] + [place[2, r] + 2.0]
    along = sum((ray[x, y][k] * middle[k] for k in range(1, 3)), ray[x, y][0] * middle[0])
    far = middle[0] * middle[0] + middle[1] * middle[1] + middle[2] * middle[2]
    inside = along * along - far + 0.02 * place[3, r]
    away = along - hl.sqrt(hl.max(inside, 0.0))
    nearest[x, y] = (hl.f32(1e9), -1)
    hit = (inside > 0.0) & (away < nearest[x, y][0])
    nearest[x, y] = (hl.select(hit, away, nearest[x, y][0]), hl.select(hit, r, nearest[x, y][1]))
    chosen = hl.clamp(nearest[x, y][1], 0, count - 1)
    toward = nearest[x, y][0] * ray[x, y][0] - (place[0, chosen] - 0.5)
    out = hl.Func("out")
    out[x, y] = hl.select(nearest[x, y][1] < 0, 0.0, hl.max(toward, 0.05))
    return pipeline((out, (width, height)))


def edit_distance(target, *, pairs, length):
    """How many letters to change, add or leave out to get from one word to another."""
    k, i, j = hl.vars("k i j")
    one, two = (image(name, U8, pairs, length) for name in ("one", "two"))
    r = hl.RDom([(1, length), (1, length)], "r")
    table, out = hl.Func("table"), hl.Func("out")
    table[k, i, j] = hl.u8(i + j)
    other = hl.u8(one[k, r.x - 1] != two[k, r.y - 1])
    table[k, r.x, r.y] = hl.min(
        table[k, r.x - 1, r.y - 1] + other,
        hl.min(table[k, r.x - 1, r.y], table[k, r.x, r.y - 1]) + 1,
    )
    out[k] = table[k, length, length]
    return pipeline((out, (pairs,)))


def _edit_distance(inputs, *, pairs, length):
    one, two = inputs["one"], inputs["two"]
    i, j = np.mgrid[: length + 1, : length + 1]
    table = np.broadcast_to(i + j, (pairs, length + 1, length + 1)).copy()
    for i in range(1, length + 1):
        for j in range(1, length + 1):
            change = table[:, i - 1, j - 1] + (one[:, i - 1] != two[:, j - 1])
            more = np.minimum(table[:, i - 1, j], table[:, i, j - 1]) + 1
            table[:, i, j] = np.minimum(change, more)
    return (table[:, length, length].astype(np.uint8),)


def chroma_key(target, *, width, height):
    """A presenter before a green wall, put before another picture; channels are interleaved."""
    c, x, y = hl.vars("c x y")
    front, back = (image(name, U8, 3, width, height) for name in ("front", "back"))
    limit, matte, out = map(hl.Func, ("limit", "matte", "out"))
    limit[x, y] = hl.max(front[0, x, y], front[2, x, y])
    excess = hl.i32(front[1, x, y]) - hl.i32(limit[x, y])
    matte[x, y] = hl.u8(hl.clamp(4 * excess - 64, 0, 255))
    kept = hl.select(c == 1, hl.min(front[c, x, y], limit[x, y]), front[c, x, y])
    share = hl.u16(matte[x, y])
    mixed = hl.u16(kept) * (255 - share) + hl.u16(back[c, x, y]) * share
    out[c, x, y] = hl.u8((hl.u32(mixed) + 127) / 255)
    return pipeline((out, (3, width, height)))


def _chroma_key(inputs, **_):
    front, back = (inputs[name].astype(int) for name in ("front", "back"))
    limit = np.maximum(front[0], front[2])
    matte = np.clip(4 * (front[1] - limit) - 64, 0, 255)
    kept = np.stack([front[0], np.minimum(front[1], limit), front[2]])
    return (((kept * (255 - matte) + back * matte + 127) // 255).astype(np.uint8),)


def camera_frames(target, *, width, height):
    """Frames of a web camera, two pixels in four bytes, as red, green and blue."""
    c, x, y = hl.vars("c x y")
    data, out = image("data", U8, 4, width // 2, height), hl.Func("out")
    light = 298 * (hl.i32(data[x % 2 * 2, x // 2, y]) - 16)
    blue, red = (hl.i32(data[k, x // 2, y]) - 128 for k in (1, 3))
    mixed = hl.mux(c, [light + 409 * red, light - 100 * blue - 208 * red, light + 516 * blue])
    out[c, x, y] = hl.u8(hl.clamp((mixed + 128) >> 8, 0, 255))
    return pipeline((out, (3, width, height)))


def _camera_frames(inputs, *, width, height):
    data = inputs["data"].astype(int)
    light = 298 * (data[0::2].transpose(1, 0, 2).reshape(width, height) - 16)
    blue, red = (np.repeat(data[k], 2, axis=0) - 128 for k in (1, 3))
    mixed = np.stack([light + 409 * red, light - 100 * blue - 208 * red, light + 516 * blue])
    return (np.clip((mixed + 128) >> 8, 0, 255).astype(np.uint8),)


def mix_channels(target, *, channels, length):
    """Sixteen-bit channels mixed to two, with gains in 4096ths; too loud is cut off."""
    c, t = hl.Var("c"), hl.Var("t")
    data, gains = image("data", I16, channels, length), image("gains", I16, 2, channels)
    r, sums, out = hl.RDom([(0, channels)], "r"), hl.Func("sums"), hl.Func("out")
    sums[c, t] += hl.i32(data[r, t]) * hl.i32(gains[c, r])
    out[c, t] = hl.i16(hl.clamp((sums[c, t] + 2048) >> 12, -32768, 32767))
    return pipeline((out, (2, length)))


def _mix_channels(inputs, **_):
    sums = inputs["gains"].astype(int) @ inputs["data"].astype(int)
    return (np.clip((sums + 2048) >> 12, -32768, 32767).astype(np.int16),)


def faster_samples(target, *, length):
    """A sound at 3 samples for each 2, by filters of 16 samples for each third."""
    t, data = hl.Var("t"), image("data", F32, length * 2 // 3 + 16)
    filters, r, out = image("filters", F32, 16, 3), hl.RDom([(0, 16)], "r"), hl.Func("out")
    out[t] += filters[r, t % 3] * data[t * 2 // 3 + r]
    return pipeline((out, (length,)))


def _faster_samples(inputs, *, length):
    windows = np.lib.stride_tricks.sliding_window_view(inputs["data"].astype(float), 16)
    t = np.arange(length)
    return single((windows[t * 2 // 3] * inputs["filters"].T[t % 3]).sum(axis=1))


PROGRAMS = (
    Program(
        decode_blocks,
        {"width": 1536, "height": 1024},
        {"width": 32, "height": 16},
        _decode_blocks,
        {"data": (-20, 20), "table": (1, 30)},
    ),
    Program(gradient_noise, {"size": 1024}, {"size": 90}),
    Program(polar_view, {"size": 1024, "angles": 1024}, {"size": 40, "angles": 30}),
    Program(wave_steps, {"size": 1024}, {"size": 20}, _wave_steps),
    Program(likeness, {"width": 1536, "height": 1024}, {"width": 40, "height": 30}, _likeness),
    Program(
        gated_conv,
        {"channels": 64, "length": 4096, "apart": 64},
        {"channels": 8, "length": 30, "apart": 4},
        _gated_conv,
        {"weights": (-0.1, 0.1)},
    ),
    Program(rotary_norm, {"width": 128, "tokens": 8192}, {"width": 16, "tokens": 9}, _rotary_norm),
    Program(best_two, {"classes": 1000, "rows": 2048}, {"classes": 30, "rows": 40}, _best_two),
    Program(
        packed_weights,
        {"width": 2048, "rows": 2048},
        {"width": 64, "rows": 20},
        _packed_weights,
        {"scales": (-0.1, 0.1)},
    ),
    Program(
        drawdowns,
        {"series": 2048, "length": 1024},
        {"series": 20, "length": 50},
        _drawdowns,
        {"prices": (50, 150)},
    ),
    Program(
        rolling_slope,
        {"series": 512, "length": 4096},
        {"series": 9, "length": 50},
        _rolling_slope,
        {"prices": (50, 150)},
    ),
    Program(
        spheres, {"width": 512, "height": 512, "count": 64}, {"width": 20, "height": 16, "count": 9}
    ),
    Program(
        edit_distance,
        {"pairs": 2048, "length": 60},
        {"pairs": 20, "length": 9},
        _edit_distance,
        {"one": (0, 3), "two": (0, 3)},
    ),
    Program(chroma_key, {"width": 1920, "height": 1080}, {"width": 40, "height": 30}, _chroma_key),
    Program(
        camera_frames, {"width": 1920, "height": 1080}, {"width": 40, "height": 30}, _camera_frames
    ),
    Program(
        mix_channels,
        {"channels": 8, "length": 1 << 18},
        {"channels": 5, "length": 90},
        _mix_channels,
        {"gains": (-4096, 4096)},
    ),
    Program(faster_samples, {"length": 1 << 20}, {"length": 90}, _faster_samples),
)
