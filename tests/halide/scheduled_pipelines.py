"""Small pipelines to schedule, one of every kind, and what tests do with them."""

import functools
import os
import re
import traceback

import halide as hl
import numpy as np

from tilewright.halide.emit.apply import apply, halide_target
from tilewright.halide.emit.printing import to_python
from tilewright.halide.frontend.importer import import_pipeline
from tilewright.halide.frontend.live import to_pipeline
from tilewright.halide.ir.json import from_json, to_json


def blur():
    x, y = hl.Var("x"), hl.Var("y")
    image = hl.ImageParam(hl.UInt(16), 2, "image")
    across, blurred = hl.Func("across"), hl.Func("blurred")
    across[x, y] = (image[x, y] + image[x + 1, y] + image[x + 2, y]) / 3
    blurred[x, y] = (across[x, y] + across[x, y + 1] + across[x, y + 2]) / 3
    return hl.Pipeline(blurred)


def reductions():
    """Automatic names, a convolution, a histogram and a recurrence."""
    x, y, i = hl.Var("x"), hl.Var(), hl.Var("i")
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    wide = hl.Func()
    wide[x, y] = hl.cast(hl.Int(32), image[x, y])
    r = hl.RDom([(0, 3), (0, 5)])
    convolved = hl.Func("convolved")
    convolved[x, y] = 0
    convolved[x, y] += wide[x + r.x, y + r.y] * (r.x + 2 * r.y)
    q = hl.RDom([(0, 12), (0, 7)], "q")
    histogram = hl.Func("histogram")
    histogram[i] = 0
    histogram[hl.clamp(wide[q.x, q.y] % 16, 0, 15)] += 1
    t = hl.RDom([(1, 9)])
    scan = hl.Func("scan")
    scan[x, y] = convolved[x, y]
    scan[t, y] = scan[t, y] + 3 * scan[t - 1, y]
    scan[x, 0] += 1
    result = hl.Func("result")
    result[x, y] = scan[x, y] + histogram[hl.clamp(x, 0, 15)] + wide[x, y]
    return hl.Pipeline(result)


def tuples():
    x, y = hl.Var("x"), hl.Var("y")
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    r = hl.RDom([(0, 6)], "r")
    best = hl.Func("best")
    best[x, y] = (hl.cast(hl.Int(32), -1), hl.cast(hl.Int(32), -1))
    value = hl.cast(hl.Int(32), image[x + r, y])
    better = value > best[x, y][0]
    best[x, y] = (hl.select(better, value, best[x, y][0]), hl.select(better, r, best[x, y][1]))
    both = hl.Func("both")
    both[x, y] = (best[x, y][0] + best[x, y + 1][1], best[x, y][1])
    return hl.Pipeline(both)


def outputs():
    """Two outputs, one of which reads the other; a small dimension; clamped reads."""
    x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    inside = hl.BoundaryConditions.repeat_edge(image, [(0, 40), (0, 30)])
    colour, grey = hl.Func("colour"), hl.Func("grey")
    half = hl.Func("half")
    half[x, y] = hl.cast(hl.Int(32), inside[2 * x, y])
    colour[x, y, c] = half[x, y] * (c + 1) + half[x + 1, y]
    grey[x, y] = colour[x, y, 0] + colour[x, y, 2] + half[x, y]
    return hl.Pipeline([colour, grey])


def separate():
    """Two outputs of which neither reads the other."""
    x, y, c = hl.Var("x"), hl.Var("y"), hl.Var("c")
    image = hl.ImageParam(hl.UInt(8), 2, "image")
    colour, grey = hl.Func("colour"), hl.Func("grey")
    colour[x, y, c] = hl.cast(hl.Int(32), image[x, y]) * (c + 1)
    grey[x, y] = hl.cast(hl.Int(32), image[x, y + 1]) + 3
    return hl.Pipeline([colour, grey])


PIPELINES = {"blur": blur, "reductions": reductions, "tuples": tuples, "outputs": outputs}
BUILDERS = {**PIPELINES, "separate": separate}


def imported(pipeline):
    return import_pipeline(bytes(hl.serialize_pipeline(pipeline)))


# In place of code: Halide found no bounds for something, and does not lower it.
UNBOUNDED = "Halide: an allocation has a size greater than 2^31"


def lowered(source, schedule_it, path, target="host"):
    """The lowered code of a fresh pipeline after `schedule_it(pipeline)`, or `UNBOUNDED`.

    `source` is an algorithm, or a function that builds the pipeline.

    Each lowering runs in a process forked for it, so that Halide's counters of automatic names,
    on whose spelling the order of some code depends, start where those of the others do.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            pipeline = source() if callable(source) else with_image(source)[0]
            schedule_it(pipeline)
            lower(pipeline, path, target)
            status = 0
        except Exception as error:
            unbounded = isinstance(error, hl.HalideError) and "greater than 2^31" in str(error)
            path.write_text(UNBOUNDED if unbounded else traceback.format_exc())
            status = 0 if unbounded else 1
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    text = path.read_text() if path.exists() else f"the lowering died with status {status}"
    path.unlink(missing_ok=True)
    assert status == 0, text
    return text


def lower(pipeline, path, target="host"):
    arguments = pipeline.infer_arguments()
    form = hl.StmtOutputFormat.Text
    bare = halide_target(target).with_feature(hl.TargetFeature.NoRuntime)
    pipeline.compile_to_lowered_stmt(str(path), arguments, form, bare)


def normalised(text):
    """Lowered code with names numbered by order of appearance, not by Halide."""
    ranks: dict = {}

    def rank(match):
        name = match[0]
        numbered = re.fullmatch(r"(.*)\$\d+|(_?[a-z])\d+", name)
        base = (numbered[1] or numbered[2]) if numbered else name
        seen = ranks.setdefault(base, {})
        return f"{base}{seen.setdefault(name, len(seen))}"

    text = re.sub(r"^module name=\S+", "module", text, flags=re.MULTILINE)
    text = re.sub(r"^(external\S*|internal\S*) func \S+", r"\1 func", text, flags=re.MULTILINE)
    text = re.sub(r"_par_for_\w+", "_par_for", text)
    # The length of a kernel's source counts the digits of automatic names.
    text = re.sub(r"(source_kernels\.buffer\)), \d+\)", r"\1, length)", text)
    return re.sub(r"[A-Za-z_]\w*(\$\w+)*", rank, text)


def unnumbered(text):
    """A text without the numbers that Halide gives names which were taken in this process."""
    return re.sub(r"\$\d+\b", "", text)


LOW, SIZE = -1000, 2500


@functools.cache
def pixels(kind):
    """An image that is large enough for whatever a schedule reads.

    Cached, because a ``halide.Buffer`` does not keep the array alive that it is made of.
    """
    rows, columns = np.mgrid[LOW : LOW + SIZE, LOW : LOW + SIZE]
    return np.ascontiguousarray((rows * 7 + columns * 13 + rows * columns % 29) % 251).astype(kind)


def with_image(algorithm):
    """A fresh pipeline and the parameter for its image, which is set."""
    (parameter,) = algorithm.parameters
    kind = hl.UInt(parameter.type.bits)
    image = hl.ImageParam(kind, 2, parameter.name)
    buffer = hl.Buffer(pixels(f"uint{parameter.type.bits}"))
    buffer.set_min([LOW, LOW])
    buffer.set_host_dirty(True)
    image.set(buffer)
    return hl.deserialize_pipeline(algorithm.serialized, {parameter.name: image.parameter()}), image


def run(pipeline, algorithm, extents, target="host"):
    """Every output over ``[0, extents[d])`` in dimension d."""
    buffers = []
    for output in algorithm.outputs:
        func = algorithm.by_name[output]
        for kind in func.types:
            hl_kind = (hl.UInt if kind.code == "uint" else hl.Int)(kind.bits)
            buffers.append(hl.Buffer(hl_kind, list(extents[: len(func.args)])))
    pipeline.realize(buffers, halide_target(target))
    for buffer in buffers:
        buffer.copy_to_host()
    return [np.array(buffer, copy=True) for buffer in buffers]


@functools.cache
def unscheduled(algorithm):
    return with_image(algorithm)


def reference(algorithm, extents):
    """What `run` gives without a schedule, compiled once for each algorithm."""
    return run(unscheduled(algorithm)[0], algorithm, extents)


def printed_alike(schedule, algorithm, build, folder):
    """The code of `schedule` applied; as JSON and as printed Python it must mean the same."""
    assert from_json(to_json(schedule), algorithm) == schedule
    namespace: dict = {}
    exec(to_python(schedule, algorithm), namespace)

    def source():
        return to_pipeline(build())

    path = folder / "lowered.stmt"
    applied = lowered(source, lambda p: apply(schedule, algorithm, p), path)
    assert applied == lowered(source, lambda p: namespace["schedule"](p), path)
    return applied
