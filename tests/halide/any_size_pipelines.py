"""Small pipelines of every kind that sizes matter to, with estimates that get them tiled."""

import halide as hl

WIDTH, HEIGHT = 640, 480


def _vars():
    return hl.Var("x"), hl.Var("y")


def _estimated(output, *more):
    output.set_estimates([(0, WIDTH), (0, HEIGHT), *more])
    return output


def _image(kind=None, dimensions=2):
    return hl.ImageParam(kind or hl.Float(32), dimensions, "image")


def stencils():
    """Three stencils in a row that read an input without a boundary condition."""
    x, y = _vars()
    image = _image(hl.UInt(16))
    across, down, out = hl.Func("across"), hl.Func("down"), hl.Func("out")
    across[x, y] = image[x, y] + image[x + 1, y] + image[x + 2, y]
    down[x, y] = across[x, y] + across[x, y + 1] + across[x, y + 2]
    out[x, y] = down[x, y] - down[x + 3, y + 1] + down[x, y + 2] * image[x, y]
    return _estimated(out)


def pyramid():
    """Down twice and up again, open at the borders: regions depend on where they start."""
    x, y = _vars()
    image = _image()
    down = [hl.Func(f"down{i}") for i in range(2)]
    up = [hl.Func(f"up{i}") for i in range(2)]
    source = image
    for level in down:
        level[x, y] = source[2 * x, 2 * y] + source[2 * x + 1, 2 * y] * source[2 * x, 2 * y + 1]
        source = level
    for level in up:
        level[x, y] = source[x // 2, y // 2] + source[(x + 1) // 2, y // 2] * 0.25
        source = level
    out = hl.Func("out")
    out[x, y] = up[1][x, y] + image[x, y]
    return _estimated(out)


def bordered_pyramid():
    """The same with the border repeated, so that nothing can be read further out."""
    x, y = _vars()
    image = _image()
    inside = hl.BoundaryConditions.repeat_edge(image)
    down, out = hl.Func("down"), hl.Func("out")
    down[x, y] = inside[2 * x - 1, 2 * y] + inside[2 * x, 2 * y] + inside[2 * x + 1, 2 * y + 1]
    out[x, y] = inside[x, y] - down[x // 2, y // 2] * down[(x + 1) // 2, y // 2]
    return _estimated(out)


def interleaved():
    """Four quarters interleaved to an image, then a stencil: pairs of points have phases."""
    x, y = _vars()
    image = _image(hl.UInt(16))
    near, full, out = hl.Func("near"), hl.Func("full"), hl.Func("out")
    near[x, y] = image[x, y] // 2 + image[x + 1, y] // 3 + image[x, y + 1] // 5
    place = x // 2, y // 2
    there = [near[place[0] + i, place[1] + j] for i in range(3) for j in range(3)]
    quarters = [hl.max(*there[i : i + 3]) * (i + 2) - hl.min(*there[3:6]) for i in (0, 3, 4, 6)]
    rows = [hl.select(x % 2 == 0, *quarters[i : i + 2]) for i in (0, 2)]
    full[x, y] = hl.select(y % 2 == 0, *rows)
    out[x, y] = full[x, y] + full[x + 1, y] * 3 + full[x, y + 1] * 5 + full[x + 1, y + 2]
    return _estimated(out)


def border_of_a_stage():
    """A boundary condition around a stage: its region follows the input's extents."""
    x, y = _vars()
    image = _image()
    grey, out = hl.Func("grey"), hl.Func("out")
    grey[x, y] = hl.sqrt(image[x, y]) + hl.sin(image[x, y])
    inside = hl.BoundaryConditions.repeat_edge(
        grey, [(0, image.dim(0).extent()), (0, image.dim(1).extent())]
    )
    out[x, y] = inside[x - 1, y] + inside[x + 1, y] + inside[x, y - 1] + inside[x, y + 1]
    return _estimated(out)


def row_sums():
    """A reduction over rows of the input's own width, read again for every pixel."""
    x, y = _vars()
    image = _image(hl.Int(32))
    r = hl.RDom([(0, image.dim(0).extent())], "r")
    total, out = hl.Func("total"), hl.Func("out")
    total[y] = 0
    total[y] += image[r, y]
    out[x, y] = image[x, y] * 3 - total[y]
    return _estimated(out)


def transposes():
    """A stencil between two transpositions."""
    x, y = _vars()
    image = _image()
    turned, smooth, out = hl.Func("turned"), hl.Func("smooth"), hl.Func("out")
    turned[x, y] = image[y, x] * 2.0
    smooth[x, y] = turned[x, y] + turned[x + 1, y] + turned[x + 2, y]
    out[x, y] = smooth[y, x] + 1.0
    return _estimated(out)


def two_outputs():
    """Two outputs of one size, one of which reads the other next to its points."""
    x, y = _vars()
    image = _image(hl.Int(32))
    grey, first, second = hl.Func("grey"), hl.Func("first"), hl.Func("second")
    grey[x, y] = image[x, y] + image[x + 1, y] * 5
    first[x, y] = grey[x, y] + grey[x, y + 1]
    second[x, y] = first[x, y] * grey[x, y]
    return hl.Pipeline([_estimated(first), _estimated(second)])


def tuples():
    """A Tuple of the largest neighbour and where it is."""
    x, y = _vars()
    image = _image(hl.UInt(8))
    r = hl.RDom([(0, 5)], "r")
    best, out = hl.Func("best"), hl.Func("out")
    best[x, y] = (hl.cast(hl.Int(32), -1), hl.cast(hl.Int(32), -1))
    value = hl.cast(hl.Int(32), image[x + r, y])
    better = value > best[x, y][0]
    best[x, y] = (hl.select(better, value, best[x, y][0]), hl.select(better, r, best[x, y][1]))
    out[x, y] = (best[x, y][0] + best[x, y + 1][1], best[x, y][1])
    return _estimated(out)


def updates():
    """An output with updates to all, to a column and to a diagonal of it."""
    x, y = _vars()
    image = _image(hl.Int(32))
    r = hl.RDom([(0, 3), (0, 3)], "r")
    out = hl.Func("out")
    out[x, y] = image[x, y]
    out[x, y] += image[x + r.x, y + r.y] * (r.x + 1)
    out[0, y] = out[0, y] * 2
    return _estimated(out)


def scan():
    """A recurrence down the rows, and a stencil of its results."""
    x, y = _vars()
    image = _image(hl.Int(32))
    r = hl.RDom([(1, image.dim(1).extent() - 1)], "r")
    run, out = hl.Func("run"), hl.Func("out")
    run[x, y] = image[x, y]
    run[x, r] = (run[x, r] + 3 * run[x, r - 1]) % 1009
    out[x, y] = run[x, y] + run[x, y] * 2
    return _estimated(out)


def slides():
    """Stages that each want few rows of the one before."""
    x, y = _vars()
    image = _image()
    source = image
    for i in range(4):
        stage = hl.Func(f"stage{i}")
        stage[x, y] = source[x, y] + source[x, y + 1] * 0.5 + source[x + 1, y + 2]
        source = stage
    return _estimated(source)


def channels():
    """Three channels, from a stage that has none and one that has them."""
    x, y = _vars()
    c = hl.Var("c")
    image = _image(hl.UInt(8), 3)
    grey, sharp, out = hl.Func("grey"), hl.Func("sharp"), hl.Func("out")
    wide = hl.Func("wide")
    wide[x, y, c] = hl.cast(hl.Int(16), image[x, y, c])
    grey[x, y] = wide[x, y, 0] + wide[x, y, 1] * 2 + wide[x, y, 2]
    sharp[x, y] = 4 * grey[x + 1, y + 1] - grey[x, y + 1] - grey[x + 2, y + 1] - grey[x + 1, y]
    out[x, y, c] = hl.cast(hl.UInt(8), hl.clamp(wide[x, y, c] + sharp[x, y] // 16, 0, 255))
    return _estimated(out, (0, 3))


def product():
    """A product of matrices, as deep as the input is wide."""
    x, y = _vars()
    a, b = hl.ImageParam(hl.Int(32), 2, "a"), hl.ImageParam(hl.Int(32), 2, "b")
    r = hl.RDom([(0, a.dim(0).extent())], "r")
    total, out = hl.Func("total"), hl.Func("out")
    total[x, y] = 0
    total[x, y] += a[r, y] * b[x, r]
    out[x, y] = total[x, y] + 1
    a.set_estimates([(0, 64), (0, HEIGHT)])
    b.set_estimates([(0, WIDTH), (0, 64)])
    return _estimated(out)


def deep_features():
    """A convolution over 32 features a point, each costly: their number depends on no size."""
    x, y = _vars()
    f = hl.Var("f")
    image, weights = _image(hl.Int(32), 3), hl.ImageParam(hl.Int(32), 1, "weights")
    features, total, out = hl.Func("features"), hl.Func("total"), hl.Func("out")
    value = image[f, x, y]
    features[f, x, y] = (value * value // 7 + value // 3) * (value // 11) // (value * value + 5)
    r = hl.RDom([(0, 32), (0, 3), (0, 3)], "r")
    total[x, y] += weights[r.x] * features[r.x, x + r.y, y + r.z]
    out[x, y] = total[x, y] // 3
    return _estimated(out)


def block_transform():
    """Rows, then columns of blocks of 8 x 8 values are transformed: bounds are aligned to 8."""
    x, y = _vars()
    k = hl.Var("k")
    image, table = _image(), hl.Func("table")
    rows, columns, out = hl.Func("rows"), hl.Func("columns"), hl.Func("out")
    r, q = hl.RDom([(0, 8)], "r"), hl.RDom([(0, 8)], "q")
    table[x, k] = x * k % 7 - 3
    rows[x, y] += image[x // 8 * 8 + r, y] * table[x % 8, r]
    columns[x, y] += rows[x, y // 8 * 8 + q] * table[y % 8, q]
    out[x, y] = columns[x, y] // 8
    return _estimated(out)


PIPELINES = {
    build.__name__: build
    for build in (
        stencils,
        pyramid,
        bordered_pyramid,
        interleaved,
        border_of_a_stage,
        row_sums,
        transposes,
        two_outputs,
        tuples,
        updates,
        scan,
        slides,
        channels,
        product,
        deep_features,
        block_transform,
    )
}
