"""Science, learning, audio, finance and bits, as their users write them on a normal day."""

from __future__ import annotations

import math
import zlib

import halide as hl
import numpy as np

from strangers.kit import F32, F64, I32, U8, U32, Program, clamped, image, pipeline, scalar, single

I8, I16, I64, U64 = hl.Int(8), hl.Int(16), hl.Int(64), hl.UInt(64)


def option_prices(target, *, n):
    """European calls and puts by Black and Scholes."""
    i = hl.Var("i")
    spot, strike, years = (image(name, F32, n) for name in ("spot", "strike", "years"))
    rate, volatility = scalar("rate", F32, 0.03), scalar("volatility", F32, 0.25)
    spread = volatility * hl.sqrt(years[i])
    above = (hl.log(spot[i] / strike[i]) + rate * years[i]) / spread + 0.5 * spread
    one, two = (0.5 + 0.5 * hl.erf(z * float(0.5**0.5)) for z in (above, above - spread))
    call, put, later = hl.Func("call"), hl.Func("put"), hl.Func("later")
    later[i] = strike[i] * hl.exp(-rate * years[i])
    call[i] = spot[i] * one - later[i] * two
    put[i] = call[i] - spot[i] + later[i]
    return pipeline((call, (n,)), (put, (n,)))


def _option_prices(inputs, **_):
    spot, strike, years = (inputs[name].astype(float) for name in ("spot", "strike", "years"))
    spread = 0.25 * np.sqrt(years)
    above = (np.log(spot / strike) + 0.03 * years) / spread + spread / 2
    one, two = (0.5 + 0.5 * np.vectorize(math.erf)(z / 2**0.5) for z in (above, above - spread))
    later = strike * np.exp(-0.03 * years)
    call = spot * one - later * two
    return single(call) + single(call - spot + later)


def random_walks(target, *, walkers, steps):
    """Where walkers get to that draw their steps, and when they were last at home."""
    i, seeds = hl.Var("i"), image("seeds", U32, walkers)
    r, walk, out = hl.RDom([(0, steps)], "r"), hl.Func("walk"), hl.Func("out")
    walk[i] = (seeds[i], hl.i32(0), hl.i32(0))
    drawn = walk[i][0] * hl.u32(1664525) + hl.u32(1013904223)
    place = walk[i][1] + 2 * hl.i32(drawn >> 31) - 1
    walk[i] = (drawn, place, hl.select(place == 0, r + 1, walk[i][2]))
    out[i] = (walk[i][1], walk[i][2])
    return pipeline((out, (walkers,)))


def _random_walks(inputs, *, walkers, steps):
    drawn, place = inputs["seeds"], np.zeros(walkers, np.int32)
    home = np.zeros(walkers, np.int32)
    for step in range(steps):
        drawn = drawn * np.uint32(1664525) + np.uint32(1013904223)
        place = place + 2 * (drawn >> 31).astype(np.int32) - 1
        home = np.where(place == 0, np.int32(step + 1), home)
    return (place, home)


def shallow_water(target, *, size):
    """A step of water under gravity: the level first, then both speeds by the new level."""
    x, y = hl.vars("x y")
    h, u, v = (clamped(image(name, F32, size, size)) for name in "huv")

    def slopes(f):
        return 0.5 * (f[x + 1, y] - f[x - 1, y]), 0.5 * (f[x, y + 1] - f[x, y - 1])

    east, north, level = hl.Func("east"), hl.Func("north"), hl.Func("level")
    east[x, y], north[x, y] = h[x, y] * u[x, y], h[x, y] * v[x, y]
    level[x, y] = h[x, y] - 0.1 * (slopes(east)[0] + slopes(north)[1])
    new_h, new_u, new_v = map(hl.Func, ("new_h", "new_u", "new_v"))
    a, b, new_h[x, y] = u[x, y], v[x, y], level[x, y]
    new_u[x, y] = a - 0.1 * (a * slopes(u)[0] + b * slopes(u)[1] + 9.81 * slopes(level)[0])
    new_v[x, y] = b - 0.1 * (a * slopes(v)[0] + b * slopes(v)[1] + 9.81 * slopes(level)[1])
    return pipeline(*((f, (size, size)) for f in (new_h, new_u, new_v)))


def residual_norm(target, *, size):
    """How far a grid is from solving Poisson's equation: mean square and largest, in doubles."""
    x, y = hl.vars("x y")
    grid, source = image("grid", F64, size + 2, size + 2), image("source", F64, size, size)
    r, s = hl.RDom([(0, 3), (0, 3)], "r"), hl.RDom([(0, size), (0, size)], "s")
    laplacian, residual, norms = hl.Func("laplacian"), hl.Func("residual"), hl.Func("norms")
    weight = hl.select((r.x == 1) & (r.y == 1), -20, (r.x == 1) | (r.y == 1), 4, 1)
    laplacian[x, y] += weight * grid[x + r.x, y + r.y]
    residual[x, y] = source[x, y] - laplacian[x, y] / 6
    norms[()] = (hl.f64(0), hl.f64(0))
    at = residual[s.x, s.y]
    norms[()] = (norms[()][0] + at * at, hl.max(norms[()][1], hl.abs(at)))
    square, largest = hl.Func("square"), hl.Func("largest")
    square[()], largest[()] = norms[()][0] / (size * size), norms[()][1]
    return pipeline((square, ()), (largest, ()))


def _residual_norm(inputs, **_):
    windows = np.lib.stride_tricks.sliding_window_view(inputs["grid"], (3, 3))
    weights = np.array([[1, 4, 1], [4, -20, 4], [1, 4, 1]]) / 6
    residual = inputs["source"] - np.einsum("xyij,ij->xy", windows, weights)
    return (np.mean(residual**2), np.abs(residual).max())


# Of the nine directions of a lattice gas: the step, and the share at rest.
EAST, NORTH = (0, 1, 0, -1, 0, 1, -1, -1, 1), (0, 0, 1, 0, -1, 1, 1, -1, -1)
SHARES = (4 / 9, *(1 / 9,) * 4, *(1 / 36,) * 4)


def lattice_flow(target, *, size):
    """The lattice Boltzmann method, on a torus: streaming, then collision."""
    x, y, c = hl.vars("x y c")
    data = image("data", F32, size, size, 9)
    arrived, flow, out = hl.Func("arrived"), hl.Func("flow"), hl.Func("out")
    moved = [data[(x - EAST[k]) % size, (y - NORTH[k]) % size, k] for k in range(9)]
    arrived[x, y, c] = hl.mux(c, moved)
    density, u, v = hl.f32(0), hl.f32(0), hl.f32(0)
    for k in range(9):
        at = arrived[x, y, k]
        density, u, v = density + at, u + EAST[k] * at, v + NORTH[k] * at
    flow[x, y] = (density, u / density, v / density)
    density, u, v = (flow[x, y][k] for k in range(3))
    rest = []
    for k in range(9):
        along = 3.0 * (EAST[k] * u + NORTH[k] * v)
        square = 1.0 + along + 0.5 * along * along - 1.5 * (u * u + v * v)
        rest.append(SHARES[k] * density * square)
    out[x, y, c] = arrived[x, y, c] + 0.6 * (hl.mux(c, rest) - arrived[x, y, c])
    return pipeline((out, (size, size, 9)))


def red_black(target, *, size):
    """A sweep of Gauss and Seidel in place: one colour of the chessboard, then the other."""
    x, y = hl.vars("x y")
    guess, source = (image(name, F32, size, size) for name in ("guess", "source"))
    out = hl.Func("out")
    out[x, y] = guess[x, y]
    for colour in range(2):
        r = hl.RDom([(1, size - 2), (1, size - 2)], f"r_{colour}")
        r.where((r.x + r.y) % 2 == colour)
        around = out[r.x - 1, r.y] + out[r.x + 1, r.y] + out[r.x, r.y - 1] + out[r.x, r.y + 1]
        out[r.x, r.y] = 0.25 * (around - source[r.x, r.y])
    return pipeline((out, (size, size)))


def cholesky(target, *, batch, n):
    """The triangular roots of many small matrices, column by column."""
    b, i, j = hl.vars("b i j")
    data, r = image("data", F32, batch, n, n), hl.RDom([(0, n)], "r")
    gram, root, out = hl.Func("gram"), hl.Func("root"), hl.Func("out")
    gram[b, i, j] = hl.select(i == j, 1.0, 0.0)
    gram[b, i, j] += data[b, i, r] * data[b, j, r]
    root[b, i, j] = gram[b, i, j]
    for k in range(n):
        root[b, k, k] = hl.sqrt(root[b, k, k])
        if k == n - 1:
            break
        below = hl.RDom([(k + 1, n - k - 1)], f"below_{k}")
        root[b, below, k] /= root[b, k, k]
        rest = hl.RDom([(k + 1, n - k - 1), (k + 1, n - k - 1)], f"rest_{k}")
        rest.where(rest.x >= rest.y)
        root[b, rest.x, rest.y] -= root[b, rest.x, k] * root[b, rest.y, k]
    out[b, i, j] = hl.select(i >= j, root[b, i, j], 0.0)
    return pipeline((out, (batch, n, n)))


def _cholesky(inputs, *, n, **_):
    data = inputs["data"].astype(float)
    return single(np.linalg.cholesky(np.einsum("bir,bjr->bij", data, data) + np.eye(n)))


def means_by_key(target, *, n, groups):
    """The mean of the values of each group, as doubles, and how many there are."""
    g = hl.Var("g")
    keys, values = image("keys", I32, n), image("values", F64, n)
    r, sums = hl.RDom([(0, n)], "r"), hl.Func("sums")
    mean, count = hl.Func("mean"), hl.Func("count")
    sums[g] = (hl.f64(0), hl.cast(I64, 0))
    key = keys[r] % groups
    sums[key] = (sums[key][0] + values[r], sums[key][1] + 1)
    count[g] = sums[g][1]
    mean[g] = sums[g][0] / hl.cast(F64, hl.max(count[g], 1))
    return pipeline((mean, (groups,)), (count, (groups,)))


def _means_by_key(inputs, *, groups, **_):
    keys = inputs["keys"] % groups
    count = np.bincount(keys, minlength=groups)
    sums = np.bincount(keys, inputs["values"], minlength=groups)
    return (sums / np.maximum(count, 1), count.astype(np.int64))


def group_norm(target, *, size, channels, batch):
    """Pictures less their mean over their deviation, by eight channels."""
    x, y, c, g, n = hl.vars("x y c g n")
    data = image("data", F32, size, size, channels, batch)
    gain, bias = image("gain", F32, channels), image("bias", F32, channels)
    r = hl.RDom([(0, size), (0, size), (0, 8)], "r")
    mean, variance, out = hl.Func("mean"), hl.Func("variance"), hl.Func("out")
    mean[g, n] += data[r.x, r.y, g * 8 + r.z, n] / float(size * size * 8)
    apart = data[r.x, r.y, g * 8 + r.z, n] - mean[g, n]
    variance[g, n] += apart * apart / float(size * size * 8)
    even = (data[x, y, c, n] - mean[c // 8, n]) / hl.sqrt(variance[c // 8, n] + 1e-5)
    out[x, y, c, n] = even * gain[c] + bias[c]
    return pipeline((out, (size, size, channels, batch)))


def grouped_conv(target, *, size, channels, groups, batch):
    """A 3x3 convolution in groups that skips every other pixel, and x * sigmoid(x) after it."""
    x, y, f, n = hl.vars("x y f n")
    each = channels // groups
    data = image("data", F32, size + 4, size + 4, channels, batch)
    weights = image("weights", F32, 3, 3, each, channels)
    r, conv, out = hl.RDom([(0, 3), (0, 3), (0, each)], "r"), hl.Func("conv"), hl.Func("out")
    at = data[x + 2 * r.x, y + 2 * r.y, f // each * each + r.z, n]
    conv[x, y, f, n] += at * weights[r.x, r.y, r.z, f]
    out[x, y, f, n] = conv[x, y, f, n] / (1.0 + hl.exp(-conv[x, y, f, n]))
    return pipeline((out, (size, size, channels, batch)))


def _grouped_conv(inputs, *, size, channels, groups, batch):
    data = inputs["data"].astype(float).reshape(size + 4, size + 4, groups, -1, batch)
    weights = inputs["weights"].reshape(3, 3, -1, groups, channels // groups)
    windows = np.lib.stride_tricks.sliding_window_view(data, (5, 5), (0, 1))[..., ::2, ::2]
    conv = np.einsum("xygcnij,ijcgf->xygfn", windows, weights)
    return single((conv / (1 + np.exp(-conv))).reshape(size, size, channels, batch))


def lstm_cell(target, *, width, hidden, batch):
    i, b = hl.vars("i b")
    data, state = image("data", F32, width, batch), image("state", F32, hidden, batch)
    memory, bias = image("memory", F32, hidden, batch), image("bias", F32, 4 * hidden)
    inward = image("inward", F32, width, 4 * hidden)
    again = image("again", F32, hidden, 4 * hidden)
    r, s, gates = hl.RDom([(0, width)], "r"), hl.RDom([(0, hidden)], "s"), hl.Func("gates")
    gates[i, b] = bias[i]
    gates[i, b] += inward[r, i] * data[r, b]
    gates[i, b] += again[s, i] * state[s, b]
    take, keep, fresh, show = (gates[i + k * hidden, b] for k in range(4))
    take, keep, show = (1.0 / (1.0 + hl.exp(-gate)) for gate in (take, keep, show))
    new_memory, new_state = hl.Func("new_memory"), hl.Func("new_state")
    new_memory[i, b] = keep * memory[i, b] + take * hl.tanh(fresh)
    new_state[i, b] = show * hl.tanh(new_memory[i, b])
    return pipeline((new_state, (hidden, batch)), (new_memory, (hidden, batch)))


def _lstm_cell(inputs, **_):
    given = {name: array.astype(float) for name, array in inputs.items()}
    gates = given["inward"].T @ given["data"] + given["again"].T @ given["state"]
    take, keep, fresh, show = np.split(gates + given["bias"][:, None], 4)
    take, keep, show = (1 / (1 + np.exp(-gate)) for gate in (take, keep, show))
    memory = keep * given["memory"] + take * np.tanh(fresh)
    return single(show * np.tanh(memory)) + single(memory)


def embedding_bag(target, *, width, entries, longest, bags):
    """The mean of the entries that a bag names; bags have different numbers of words."""
    c, b = hl.vars("c b")
    table, words = image("table", F32, width, entries), image("words", U32, longest, bags)
    lengths = image("lengths", I32, bags)
    r, sums, out = hl.RDom([(0, longest)], "r"), hl.Func("sums"), hl.Func("out")
    r.where(r < lengths[b])
    sums[c, b] += table[c, hl.i32(words[r, b] % entries)]
    out[c, b] = sums[c, b] / hl.clamp(lengths[b], 1, longest)
    return pipeline((out, (width, bags)))


def _embedding_bag(inputs, *, entries, longest, **_):
    picked = inputs["table"].astype(float)[:, inputs["words"] % np.uint32(entries)]
    there = np.arange(longest)[:, None] < inputs["lengths"]
    return single((picked * there).sum(axis=1) / inputs["lengths"].clip(1, longest))


def cross_entropy(target, *, classes, rows):
    """The loss of each row, and how many rows have their largest score at the label."""
    y = hl.Var("y")
    scores, labels = image("scores", F32, classes, rows), image("labels", I32, rows)
    r, s = hl.RDom([(0, classes)], "r"), hl.RDom([(0, rows)], "s")
    best, total, loss, hits = (hl.Func(name) for name in ("best", "total", "loss", "hits"))
    best[y] = hl.argmax(scores[r, y])
    total[y] += hl.exp(scores[r, y] - best[y][1])
    label = hl.clamp(labels[y], 0, classes - 1)
    loss[y] = hl.log(total[y]) + best[y][1] - scores[label, y]
    hits[()] = 0
    hits[()] += hl.select(best[s][0] == labels[s], 1, 0)
    return pipeline((loss, (rows,)), (hits, ()))


def _cross_entropy(inputs, *, classes, rows):
    scores, labels = inputs["scores"].astype(float), inputs["labels"]
    loss = np.log(np.exp(scores).sum(axis=0))
    loss -= scores[labels.clip(0, classes - 1), np.arange(rows)]
    return (*single(loss), np.asarray((scores.argmax(axis=0) == labels).sum(), np.int32))


def signatures(target, *, points, width):
    """Points as the signs of 128 projections, 64 to a word; how many signs differ in pairs."""
    i, j, p, w = hl.vars("i j p w")
    data, planes = image("data", I8, width, points), image("planes", I8, width, 128)
    r, s, t = (hl.RDom([(0, n)], name) for name, n in (("r", width), ("s", 64), ("t", 2)))
    side, code, out = hl.Func("side"), hl.Func("code"), hl.Func("out")
    side[p, i] += hl.i32(data[r, i]) * hl.i32(planes[r, p])
    code[w, i] = hl.u64(0)
    code[w, i] |= hl.cast(U64, side[64 * w + s, i] > 0) << hl.cast(U64, s)
    out[i, j] += hl.cast(U8, hl.popcount(code[t, i] ^ code[t, j]))
    return pipeline((out, (points, points)))


def _signatures(inputs, **_):
    signs = inputs["planes"].T.astype(int) @ inputs["data"].astype(int) > 0
    return ((signs[:, :, None] != signs[:, None, :]).sum(axis=0).astype(np.uint8),)


def checksums(target, *, length, rows):
    """The CRC-32 of each row, byte by byte, with a table that is made first."""
    i, y = hl.vars("i y")
    data, r = image("data", U8, length, rows), hl.RDom([(0, length)], "r")
    table, state, out = hl.Func("table"), hl.Func("state"), hl.Func("out")
    table[i] = hl.u32(i)
    for _ in range(8):
        table[i] = (table[i] >> 1) ^ hl.select(table[i] % 2 == 1, hl.u32(0xEDB88320), hl.u32(0))
    state[y] = hl.u32(0xFFFFFFFF)
    state[y] = table[hl.cast(U8, state[y]) ^ data[r, y]] ^ (state[y] >> 8)
    out[y] = ~state[y]
    return pipeline((out, (rows,)))


def _checksums(inputs, **_):
    return (np.array([zlib.crc32(row.tobytes()) for row in inputs["data"].T], np.uint32),)


def mel_energies(target, *, frames, size):
    """Of overlapping frames of a sound: window, spectrum by a matrix, and energy in 40 bands."""
    k, t, f, m = hl.vars("k t f m")
    sound = image("sound", F32, (frames + 1) * size // 2)
    filters = image("filters", F32, size // 2 + 1, 40)
    r, s = hl.RDom([(0, size)], "r"), hl.RDom([(0, size // 2 + 1)], "s")
    window, basis, framed = hl.Func("window"), hl.Func("basis"), hl.Func("framed")
    spectrum, power, energy, out = map(hl.Func, ("spectrum", "power", "energy", "out"))
    turn = 2 * np.pi / size
    window[t] = 0.5 - 0.5 * hl.cos(t * turn)
    basis[k, t] = (hl.cos(k * t % size * turn), hl.sin(k * t % size * turn))
    framed[t, f] = sound[f * (size // 2) + t] * window[t]
    spectrum[k, f] = (hl.f32(0), hl.f32(0))
    spectrum[k, f] = tuple(spectrum[k, f][q] + framed[r, f] * basis[k, r][q] for q in range(2))
    power[k, f] = spectrum[k, f][0] * spectrum[k, f][0] + spectrum[k, f][1] * spectrum[k, f][1]
    energy[m, f] += filters[s, m] * power[s, f]
    out[m, f] = hl.log(hl.max(energy[m, f], 1e-6))
    return pipeline((out, (40, frames)))


def _mel_energies(inputs, *, size, **_):
    windows = np.lib.stride_tricks.sliding_window_view(inputs["sound"].astype(float), size)
    framed = windows[:: size // 2] * (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size))
    energy = inputs["filters"].T @ np.abs(np.fft.rfft(framed, axis=1).T) ** 2
    return single(np.log(np.maximum(energy, 1e-6)))


def biquads(target, *, channels, length):
    """Four second-order filters in a row, inside in doubles; channels are interleaved."""
    c, t = hl.vars("c t")
    data = image("data", F32, channels, length)
    ahead, back = image("ahead", F64, 3, 4), image("back", F64, 2, 4)
    current = hl.BoundaryConditions.constant_exterior(data, 0.0)
    for k in range(4):
        r, section = hl.RDom([(0, length)], f"r_{k}"), hl.Func(f"section_{k}")
        terms = [ahead[q, k] * hl.cast(F64, current[c, t - q]) for q in range(3)]
        section[c, t] = terms[0] + terms[1] + terms[2]
        section[c, r] -= back[0, k] * section[c, r - 1] + back[1, k] * section[c, r - 2]
        current = section
    out = hl.Func("out")
    out[c, t] = hl.cast(F32, current[c, t])
    return pipeline((out, (channels, length)))


def _biquads(inputs, **_):
    from scipy.signal import sosfilt

    filters = np.concatenate([inputs["ahead"], np.ones((1, 4)), inputs["back"]]).T
    return single(sosfilt(filters.copy(), inputs["data"].astype(float), axis=1))


def autocorrelation(target, *, length, lags):
    """How like itself a sound is, some samples later: sums in 64 bits, then shares."""
    k, data = hl.Var("k"), image("data", I16, length + lags)
    r, sums, out = hl.RDom([(0, length)], "r"), hl.Func("sums"), hl.Func("out")
    sums[k] = hl.cast(I64, 0)
    sums[k] += hl.cast(I64, data[r]) * hl.cast(I64, data[r + k])
    out[k] = hl.cast(F32, hl.cast(F64, sums[k]) / hl.cast(F64, sums[0]))
    return pipeline((out, (lags,)))


def _autocorrelation(inputs, *, length, lags, **_):
    data = inputs["data"].astype(np.int64)
    sums = np.array([data[:length] @ data[k : k + length] for k in range(lags)])
    return single(sums / sums[0])


def best_paths(target, *, batch, steps):
    """Viterbi's most likely paths through 16 hidden states: forwards, and the way back."""
    b, j, t = hl.vars("b j t")
    seen = image("seen", F64, batch, 16, steps)
    change = image("change", F64, 16, 16)
    r = hl.RDom([(0, 16), (0, 16), (1, steps - 1)], "r")
    s, back = hl.RDom([(0, 16)], "s"), hl.RDom([(1, steps - 1)], "back")
    best, last, path, score = (hl.Func(name) for name in ("best", "last", "path", "score"))
    best[b, j, t] = (hl.select(t == 0, seen[b, j, t], hl.f64(-1e30)), 0)
    value = best[b, r.x, r.z - 1][0] + change[r.x, r.y] + seen[b, r.y, r.z]
    old = best[b, r.y, r.z]
    better = value > old[0]
    best[b, r.y, r.z] = (hl.select(better, value, old[0]), hl.select(better, r.x, old[1]))
    last[b] = hl.argmax(best[b, s, steps - 1][0])
    path[b, t] = hl.cast(U8, last[b][0])
    after = hl.clamp(hl.i32(path[b, steps - back]), 0, 15)
    path[b, steps - 1 - back] = hl.cast(U8, best[b, after, steps - back][1])
    score[b] = last[b][1]
    return pipeline((path, (batch, steps)), (score, (batch,)))


def pair_energy(target, *, points):
    """Lennard and Jones's energy of each point with the near ones before it, and of all."""
    i, place = hl.Var("i"), image("place", F32, points, 3)
    r, s = hl.RDom([(0, points)], "r"), hl.RDom([(0, points)], "s")
    apart = [place[i, k] - place[r, k] for k in range(3)]
    square = apart[0] * apart[0] + apart[1] * apart[1] + apart[2] * apart[2]
    r.where((r < i) & (square < 0.25))
    energy, total, near = hl.Func("energy"), hl.Func("total"), 0.04 / (square + 0.02)
    sixth = near * near * near
    energy[i] += 16.0 * (sixth * sixth - sixth) * (0.25 - square)
    total[()] = hl.sum(hl.cast(F64, energy[s]))
    return pipeline((energy, (points,)), (total, ()))


def _pair_energy(inputs, *, points):
    place = inputs["place"].astype(float)
    square = ((place[:, None] - place) ** 2).sum(axis=2)
    sixth = (0.04 / (square + 0.02)) ** 3
    pairs = 16 * (sixth**2 - sixth) * np.maximum(0.25 - square, 0)
    energy = (pairs * np.tri(points, k=-1)).sum(axis=1)
    return (*single(energy), energy.sum())


PROGRAMS = (
    Program(
        option_prices,
        {"n": 1 << 19},
        {"n": 300},
        _option_prices,
        {"spot": (50, 150), "strike": (50, 150), "years": (0.1, 2)},
    ),
    Program(
        random_walks, {"walkers": 8192, "steps": 1024}, {"walkers": 30, "steps": 50}, _random_walks
    ),
    Program(shallow_water, {"size": 1024}, {"size": 20}),
    Program(residual_norm, {"size": 1024}, {"size": 20}, _residual_norm),
    Program(lattice_flow, {"size": 512}, {"size": 12}),
    Program(red_black, {"size": 768}, {"size": 20}),
    Program(cholesky, {"batch": 20000, "n": 6}, {"batch": 20, "n": 4}, _cholesky),
    Program(means_by_key, {"n": 1 << 19, "groups": 512}, {"n": 300, "groups": 8}, _means_by_key),
    Program(
        group_norm,
        {"size": 32, "channels": 64, "batch": 16},
        {"size": 6, "channels": 16, "batch": 2},
    ),
    Program(
        grouped_conv,
        {"size": 56, "channels": 64, "groups": 4, "batch": 2},
        {"size": 8, "channels": 8, "groups": 2, "batch": 2},
        _grouped_conv,
    ),
    Program(
        lstm_cell,
        {"width": 128, "hidden": 256, "batch": 64},
        {"width": 6, "hidden": 8, "batch": 5},
        _lstm_cell,
        {"inward": (-0.1, 0.1), "again": (-0.1, 0.1)},
    ),
    Program(
        embedding_bag,
        {"width": 64, "entries": 20000, "longest": 32, "bags": 4096},
        {"width": 8, "entries": 50, "longest": 20, "bags": 20},
        _embedding_bag,
        {"lengths": (0, 32)},
    ),
    Program(
        cross_entropy,
        {"classes": 1000, "rows": 1024},
        {"classes": 30, "rows": 40},
        _cross_entropy,
        {"labels": (0, 35)},
    ),
    Program(signatures, {"points": 1024, "width": 64}, {"points": 20, "width": 5}, _signatures),
    Program(checksums, {"length": 1024, "rows": 1024}, {"length": 40, "rows": 9}, _checksums),
    Program(mel_energies, {"frames": 500, "size": 256}, {"frames": 7, "size": 16}, _mel_energies),
    Program(biquads, {"channels": 64, "length": 16384}, {"channels": 5, "length": 60}, _biquads),
    Program(
        autocorrelation, {"length": 16384, "lags": 512}, {"length": 50, "lags": 7}, _autocorrelation
    ),
    Program(best_paths, {"batch": 128, "steps": 128}, {"batch": 6, "steps": 9}),
    Program(pair_energy, {"points": 3000}, {"points": 40}, _pair_energy),
)
