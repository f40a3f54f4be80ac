"""The immutable `Schedule` of a pipeline: plain data with a JSON form.

Nothing here depends on names that Halide or a user chose, so that a schedule fits every build of
the same pipeline. A Func is identified by its position in realisation order, a loop by a
canonical name: ``v0``, ``v1`` … are the stage's pure dimensions in the order of the Func's
arguments, ``r0``, ``r1`` … its reduction variables in the order of the reduction domain, and
splits and fusions introduce further names, unique within the stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilewright.errors import TilewrightError

Mapping = Literal["serial", "unrolled", "vectorized", "parallel", "gpu_block", "gpu_thread"]
Partition = Literal["auto", "never", "always"]
Tail = Literal[
    "round_up",
    "guard_with_if",
    "predicate",
    "predicate_loads",
    "predicate_stores",
    "shift_inwards",
    "shift_inwards_and_blend",
    "round_up_and_blend",
]
MemoryType = Literal["auto", "heap", "stack", "register", "gpu_shared"]


LoopAlign = Literal["start", "end", "none", "auto"]
PrefetchStrategy = Literal["clamp", "guard_with_if", "non_faulting"]


class ScheduleError(TilewrightError):
    """A schedule that is malformed, illegal, or made for another pipeline."""


@dataclass(frozen=True, slots=True)
class Split:
    """Loop `old` becomes `outer` and `inner`, with `factor` iterations of `inner`.

    `tail` says what happens if `factor` does not divide the extent. With `factor` 8 and extent 20::

        before            guard_with_if                 round_up
        for x in 0..20:   for xo in 0..3:               for xo in 0..3:
          f[x] = ..         for xi in 0..8:               for xi in 0..8:
                              if 8 * xo + xi < 20:          f[8 * xo + xi] = ..
                                f[8 * xo + xi] = ..

        shift_inwards: for xo in 0..3: for xi in 0..8: f[min(8 * xo, 12) + xi] = ..

    ``round_up`` computes 24 values, so that the output needs room for them; ``shift_inwards``
    computes some values twice, and needs an extent of at least `factor`. A split by a dimension's
    expected extent, with ``guard_with_if``, fully unrolls a small dimension while the schedule
    stays correct at any extent.
    """

    old: str
    outer: str
    inner: str
    factor: int
    tail: Tail


@dataclass(frozen=True, slots=True)
class Fuse:
    """Adjacent loops `inner` and `outer` become the single loop `fused`.

    The fused loop runs through the same iterations in the same order, so that several dimensions
    can be parallelised as one. With `w` iterations of the inner loop::

        before             after
        for y in 0..h:     for t in 0..w * h:
          for x in 0..w:     f[t % w, t / w] = ..
            f[x, y] = ..
    """

    inner: str
    outer: str
    fused: str


@dataclass(frozen=True, slots=True)
class ScheduledLoop:
    """A loop of the final nest and its mapping.

    `partition` says whether Halide cuts the loop into a prologue, a body without border conditions
    and an epilogue. Every cut multiplies the code inside. Halide decides unless it is ``never`` or
    ``always``::

        auto                                never
        for x in 0..1: f[x] = clamped       for x in 0..n: f[x] = clamped
        for x in 1..n-1: f[x] = plain
        for x in n-1..n: f[x] = clamped
    """

    name: str
    mapping: Mapping = "serial"
    partition: Partition = "auto"


@dataclass(frozen=True, slots=True)
class KnownValue:
    """The condition that a number given by the caller has a certain value.

    `parameter` is the position of the input or scalar among the algorithm's parameters. `field` is
    ``value`` for a scalar, or ``min``, ``extent`` or ``stride`` of dimension `dimension` of an
    input. With `least` the number has to be at least as large. A stage with an unrolled loop over
    the `n` channels of an input, specialised on the extent `n` = 3::

        before            after
        for c in 0..n:    if n == 3:
          f += g[c]         f += g[0]; f += g[1]; f += g[2]
                          else:
                            for c in 0..n: f += g[c]
    """

    parameter: int
    field: Literal["value", "min", "extent", "stride"]
    dimension: int
    value: int
    least: bool = False


@dataclass(frozen=True, slots=True)
class OutputExtent:
    """The condition that an output is large enough along one dimension.

    The extent of dimension `dimension` of output `func` (a place in realisation order, clones
    counted) is at least `minimum` and a multiple of `multiple`.
    """

    func: int
    dimension: int
    minimum: int
    multiple: int = 1


@dataclass(frozen=True, slots=True)
class Prefetch:
    """At loop `at`, prefetch the values of Func `func` read `distance` iterations of `along` later.

    `strategy` says how addresses beyond the Func's region are treated. With `distance` 2::

        before                  after
        for y:                  for y:
          for x:                  prefetch f[.., y + 2]
            out[x, y] = f[x, y]   for x:
                                    out[x, y] = f[x, y]
    """

    func: int
    at: str
    along: str
    distance: int = 1
    strategy: PrefetchStrategy = "guard_with_if"


@dataclass(frozen=True, slots=True)
class ComputeWith:
    """Share the loops of stage `stage` of Func `func`, from the outermost to its loop `loop`.

    Both must be computed at one level, and the shared loops must be of one kind and, apart from
    splits of the same shape, of one name. If extents differ, `align` says for loops of this stage
    (by name) at which end they are aligned::

        before: for y: for x: f      after: for y:
                for y: for x: g               for x: f
                                              for x: g
    """

    func: int
    stage: int
    loop: str
    align: tuple[tuple[str, LoopAlign], ...] = ()


@dataclass(frozen=True, slots=True)
class StageSchedule:
    """One stage's nest: splits and fusions in order of application, then the loops.

    `loops` lists every loop that is left, innermost first. With a `Split` of ``v0`` into ``v0_o``
    and ``v0_i`` by 8 and the loops ``(v0_i vectorized, v1, v0_o parallel)``::

        before             after
        for v1 in 0..h:    parallel for v0_o in 0..w / 8:
          for v0 in 0..w:    for v1 in 0..h:
            f[v0, v1] = ..     vectorized for v0_i in 0..8:
                                 f[8 * v0_o + v0_i, v1] = ..

    `atomic` makes the stage's writes
    atomic, so that an associative reduction may run in parallel or in vectors. With
    `single_thread` a GPU runs the whole nest as one thread of one block; such a nest maps
    no loop to blocks or threads.

    If `specialize` lists conditions, the nest and everything computed in it are compiled twice: for
    calls in which all of them hold (loops of known length can be unrolled, divisions by known
    numbers become cheap), and for all other calls.

    If `sizes` lists conditions, calls in which all of them hold run the nest as it is written here,
    and all other calls run it with every split guarded (`tilewright.halide.ir.nest.guarded`), which
    is correct at every size. `specialize` then only applies to the former.

    With `allow_races`, loops over a reduction may run in parallel or in vectors even if Halide
    cannot prove that this is safe; the author of the schedule is responsible for the result.
    """

    splits: tuple[Split | Fuse, ...] = ()
    loops: tuple[ScheduledLoop, ...] = ()
    atomic: bool = False
    single_thread: bool = False
    specialize: tuple[KnownValue, ...] = ()
    prefetch: tuple[Prefetch, ...] = ()
    compute_with: ComputeWith | None = None
    allow_races: bool = False
    sizes: tuple[OutputExtent | KnownValue, ...] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """Where a Func is computed or stored: inlined, at root, or at a loop of a consumer.

    For ``at``, `func` is the consumer's position in realisation order, `stage` the consumer's stage
    whose nest has the loop, and `loop` the loop's name there. Like Halide, we do not distinguish
    loops with the same name in several stages of a Func: a producer that several stages read is
    computed again at the loop of that name in each of them. For a Func ``f`` that ``g`` reads in a
    loop over ``y``, as its compute level::

        inline               root              at g, y
        for y:               for y:            for y:
          for x:               for x:            for x:
            g = .. f's value     f = ..            f = ..
                             for y:              for x:
                               for x:              g = .. f
                                 g = .. f
    """

    kind: Literal["inline", "root", "at"]
    func: int = -1
    stage: int = 0
    loop: str = ""


INLINE = Level("inline")
ROOT = Level("root")


@dataclass(frozen=True, slots=True)
class StorageDim:
    """One dimension of a Func's storage.

    The stride of the next dimension is a multiple of `align` elements. `bound` is the number of
    elements allocated along the dimension, 0 for that of bounds inference. `fold` keeps only that
    many elements, in a ring; 0 for no ring, or one that Halide finds. The consumer moves forwards
    along the dimension, or else backwards::

        before: allocate f[w * h]            fold=4: allocate f[w * 4]
                for y:                               for y:
                  f[x, y + 1] = ..                     f[x, (y + 1) % 4] = ..
                  out = f[x, y] + f[x, y + 1]          out = f[x, y % 4] + f[x, (y + 1) % 4]
    """

    dimension: int
    align: int = 1
    bound: int = 0
    fold: int = 0
    forward: bool = True


@dataclass(frozen=True, slots=True)
class DimensionBounds:
    """The computed range of one dimension of a Func, if larger than its readers need.

    `extent` promises Halide the number of coordinates (``bound_extent``), so that loops over them
    can be unrolled; 0 promises nothing. With `modulus` the region is widened so that its extent is
    a multiple. If `remainder` is given, the first coordinate is congruent to it (``align_bounds``),
    otherwise it is arbitrary (``align_extent``)::

        readers need [3, 10]        for x in 3..11: f
        modulus 8, remainder 0      for x in 0..16: f
        modulus 8, no remainder     for x in 3..11: f
    """

    dimension: int
    extent: int = 0
    modulus: int = 1
    remainder: int | None = None


@dataclass(frozen=True, slots=True)
class FuncSchedule:
    """One Func: where it is computed and stored, in which memory, and its stages' nests.

    An inlined Func has no stages here. A Func that is not inlined has one entry per stage, or none
    if every stage keeps the nest of its definition. `align_storage` pads the innermost storage
    dimension to a multiple of this many elements. `storage_order` lists the dimensions from
    innermost to outermost in memory; empty means the order of the arguments. `storage` says more of
    single dimensions.

    `hoist` is the level at which memory is allocated and freed, if further out than the store
    level; the lifetime of values is still that of `store`::

        store at x            store at x, hoist at y
        for y:                for y:
          for x:                allocate f
            allocate f          for x:
            f = ..                f = ..
            out = f               out = f
            free f              free f

    `run_async` computes the Func in a separate thread, ahead of its readers, in a ring of
    `ring_buffer` copies of its storage (0: one copy).
    """

    func: int
    compute: Level
    store: Level
    memory: MemoryType = "auto"
    stages: tuple[StageSchedule, ...] = ()
    align_storage: int = 1
    storage_order: tuple[int, ...] = ()
    hoist: Level | None = None
    storage: tuple[StorageDim, ...] = ()
    bounds: tuple[DimensionBounds, ...] = ()
    run_async: bool = False
    ring_buffer: int = 0


@dataclass(frozen=True, slots=True)
class Clone:
    """A copy of Func `func`, with its own schedule, that `readers` read instead.

    `func` and the readers are identified by their positions in the original algorithm. A reader may
    be a copy itself: clone number i of a schedule for an algorithm of n Funcs is n + i here.

    A `wrapper` (``Func.in_``) recomputes nothing: it reads the Func and provides its values from
    separate memory, to stage them near a reader or in another layout. Later wrappers may wrap it::

        before             clone f for g        wrapper of f for g
        for x: f           for x: f             for x: f
        for x: out1 = f    for x: out1 = f      for x: out1 = f
        for x: g = f       for x: f' = ..       for x: f' = f
                           for x: g = f'        for x: g = f'
    """

    func: int
    readers: tuple[int, ...]
    wrapper: bool = False


@dataclass(frozen=True, slots=True)
class SizeVariant:
    """Other nests for the calls in which all of `sizes` hold.

    `nests` has the stages of every entry of `Schedule.funcs`, in the same order. Compute levels and
    storage are the same at every size, so each loop that a level names must be in these nests, too.
    `StageSchedule.sizes` is empty in them::

        sizes (x >= 1000)              all other calls
        for y parallel:                for y parallel:
          for xo by 256:                 for xo by 32:
            f computed here                f computed here
    """

    sizes: tuple[OutputExtent | KnownValue, ...]
    nests: tuple[tuple[StageSchedule, ...], ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """A whole pipeline's schedule for one target, tied to an algorithm by its digest.

    `target` is a Halide target string, or ``host``, ``cuda``, ``opencl``. Funcs that are
    fixed (extern, memoised) or kept as the user scheduled them have no entry.

    If `clones` lists copies of Funcs, `funcs` and its levels count the copies: they are positions
    in `tilewright.halide.ir.clones.with_clones`, where every copy comes right after its original.

    A call runs the nests of the first of `variants` whose conditions hold, or those of `funcs` if
    there is none.
    """

    algorithm: str
    target: str
    funcs: tuple[FuncSchedule, ...]
    clones: tuple[Clone, ...] = ()
    variants: tuple[SizeVariant, ...] = ()

    def _repr_html_(self) -> str:
        from tilewright.halide.ir.notebook import schedule_html

        return schedule_html(self)
