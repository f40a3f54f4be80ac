"""A two-dimensional FFT in Halide with six split factors as its schedule (Table IV).

The paper uses Halide's FFT application but does not define its factors; these are the corresponding
factors of a self-sorting (Stockham) FFT: two passes of stages of radix four, and one of radix two
if the size is not a power of four. In each pass a group of lines goes through all stages before the
next group does:

- s1: lanes of the stages before a pass's last;
- s2, s4: lines in a group, in the first and the second pass;
- s3, s5: lanes of the first and of the second pass's last stage, at most a group;
- s6: lanes in which the output is written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.halide.ir import (
    INLINE,
    ROOT,
    Algorithm,
    FuncSchedule,
    Level,
    Schedule,
    ScheduledLoop,
    Split,
    StageSchedule,
)
from tilewright.prediction.data import instances
from tilewright.prediction.kernels.schedules import Factors, ScheduleFamily

SIZES = (16, 32, 64, 128)
_NAMES = tuple(f"s{i}" for i in range(1, 7))


def family() -> ScheduleFamily:
    """Return the schedules of Table IV."""
    return ScheduleFamily(
        "halide_fft",
        {"n": "points", **dict.fromkeys(_NAMES, "iterations")},
        "n * log2(n)",
        SIZES,
        pipeline,
        schedule,
        instances.fft_cpu,
    )


def pipeline(n: int) -> Any:
    """Return the forward transform of n x n complex numbers; their parts are the last dimension."""
    import halide as hl

    image = hl.ImageParam(hl.Float(32), 3, "image")
    x, y, c = hl.vars("x y c")
    angles = -2 * np.pi * np.arange(n) / n
    roots = hl.Buffer(hl.Float(32), [n, 2], "roots")
    np.asarray(roots)[...] = np.cos(angles), np.sin(angles)
    current = hl.Func("across")
    current[x, y] = (image[y, x, 0], image[y, x, 1])
    for number in (1, 2):
        done = 1
        for radix in _radices(n):
            current = _stage(current, f"pass{number}_{done}", n, radix, done, roots)
            done *= radix
        if number == 1:
            down = hl.Func("down")
            down[x, y] = current[y, x]
            current = down
    output = hl.Func("output")
    output[x, y, c] = hl.mux(c, [current[x, y][0], current[x, y][1]])
    image.set_estimates([(0, n), (0, n), (0, 2)])
    output.set_estimates([(0, n), (0, n), (0, 2)])
    return hl.Pipeline(output)


def _radices(n: int) -> list[int]:
    bits = n.bit_length() - 1
    return [4] * (bits // 2) + [2] * (bits % 2)


def _stage(before: Any, name: str, n: int, radix: int, done: int, roots: Any) -> Any:
    """Return a stage along the second dimension, after stages whose radices' product is `done`."""
    import halide as hl

    line, place = hl.vars("line place")
    span = radix * done
    within = place % span
    source = (place // span) * done + within % done
    real, imaginary = hl.f32(0.0), hl.f32(0.0)
    for r in range(radix):
        value = before[line, source + r * (n // radix)]
        turn = ((r * within) % span) * (n // span)
        cosine, sine = roots[turn, 0], roots[turn, 1]
        real = real + value[0] * cosine - value[1] * sine
        imaginary = imaginary + value[0] * sine + value[1] * cosine
    stage = hl.Func(name)
    stage[line, place] = (real, imaginary)
    return stage


def schedule(algorithm: Algorithm, factors: Factors) -> Schedule:
    """Passes in groups of lines, each stage and the output in vectors."""
    s1, s2, s3, s4, s5, s6 = (factors[name] for name in _NAMES)
    names = [func.name.split("$")[0] for func in algorithm.funcs]
    funcs = []
    for place, name in enumerate(names):
        if not name.startswith(("pass1", "pass2", "output")):
            funcs.append(FuncSchedule(place, INLINE, INLINE))
            continue
        if name == "output":
            funcs.append(FuncSchedule(place, ROOT, ROOT, stages=(_vectors(s6, 3),)))
            continue
        which = name[:5]
        last = max(i for i, other in enumerate(names) if other.startswith(which))
        group, lanes = (s2, s3) if which == "pass1" else (s4, s5)
        if place == last:
            stage = _groups(group, min(lanes, group))
            funcs.append(FuncSchedule(place, ROOT, ROOT, stages=(stage,)))
        else:
            level = Level("at", last, 0, "g")
            funcs.append(FuncSchedule(place, level, level, stages=(_vectors(s1, 2),)))
    return Schedule(algorithm.digest, "host", tuple(funcs))


def _vectors(lanes: int, dimensions: int) -> StageSchedule:
    tail: Any = "round_up" if dimensions == 2 else "shift_inwards"
    rest = tuple(ScheduledLoop(f"v{d}") for d in range(1, dimensions))
    return StageSchedule(
        splits=(Split("v0", "o", "l", lanes, tail),),
        loops=(ScheduledLoop("l", "vectorized"), ScheduledLoop("o"), *rest),
    )


def _groups(group: int, lanes: int) -> StageSchedule:
    return StageSchedule(
        splits=(
            Split("v0", "g", "i", group, "round_up"),
            Split("i", "o", "l", lanes, "round_up"),
        ),
        loops=(
            ScheduledLoop("l", "vectorized"),
            ScheduledLoop("o"),
            ScheduledLoop("v1"),
            ScheduledLoop("g"),
        ),
    )
