"""The immutable `Schedule` of a pipeline: plain data with a JSON form.

A schedule applies to every build of the same pipeline, because it uses no names that Halide or the
user chose. A Func is identified by its position in realisation order (producers first), and a loop
by a canonical name. ``v0``, ``v1`` … are the pure dimensions of a stage in the order of the Func's
arguments; ``r0``, ``r1`` … are its reduction variables in the order of the reduction domain. Splits
and fusions introduce further names, which are unique within the stage.
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

    `tail` selects what happens if `factor` does not divide the extent of `old`. With `factor` 8 and
    extent 20::

        before            guard_with_if                 round_up
        for x in 0..20:   for xo in 0..3:               for xo in 0..3:
          f[x] = ..         for xi in 0..8:               for xi in 0..8:
                              if 8 * xo + xi < 20:          f[8 * xo + xi] = ..
                                f[8 * xo + xi] = ..

        shift_inwards: for xo in 0..3: for xi in 0..8: f[min(8 * xo, 12) + xi] = ..

    ``round_up`` computes 24 values, so the output must have room for 24. ``shift_inwards`` computes
    some values twice, and the extent must be at least `factor`. To unroll a small dimension fully
    and stay correct at any extent, split it by its expected extent with ``guard_with_if`` and
    unroll `inner`.
    """

    old: str
    outer: str
    inner: str
    factor: int
    tail: Tail


@dataclass(frozen=True, slots=True)
class Fuse:
    """Adjacent loops `inner` and `outer` become the single loop `fused`.

    The fused loop runs the same iterations in the same order. Several dimensions can then be
    parallelised as one. With `w` iterations of the inner loop::

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

    `partition` controls loop partitioning: whether Halide splits the loop's range into a prologue,
    a steady state without border conditions and an epilogue. Each partitioned loop multiplies the
    code inside it. With ``auto`` Halide decides::

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
    """A condition on a number that the caller passes: a scalar, or a bound of an input.

    `parameter` is the position of the input or scalar among the algorithm's parameters. `field` is
    ``value`` for a scalar, or ``min``, ``extent`` or ``stride`` of dimension `dimension` of an
    input. The condition is ``number == value``, ``number >= value`` if `least` is set, or
    ``number % value == 0`` if `multiple` is. Example: a stage with an unrolled loop over the `n`
    channels of an input, specialised on `n` = 3::

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
    multiple: bool = False


@dataclass(frozen=True, slots=True)
class OutputExtent:
    """The condition that an output is large enough along one dimension.

    The extent of dimension `dimension` of output `func` (a position in realisation order, clones
    included) is at least `minimum` and a multiple of `multiple`. Its first coordinate is a multiple
    of `start`.
    """

    func: int
    dimension: int
    minimum: int
    multiple: int = 1
    start: int = 1


@dataclass(frozen=True, slots=True)
class OutputValue:
    """The condition that a bound of an output has a certain value.

    The first coordinate, extent or stride (in elements) of dimension `dimension` of output `func`,
    a position in realisation order with clones included, is `value`. For a pixel's 3 colours next
    to each other, `stride` of the next dimension is 3.
    """

    func: int
    field: Literal["min", "extent", "stride"]
    dimension: int
    value: int


# What a specialisation may depend on: numbers that a call determines.
CallCondition = KnownValue | OutputExtent | OutputValue


@dataclass(frozen=True, slots=True)
class Prefetch:
    """In loop `at`, prefetch what `distance` iterations of `along` later will be read of `func`.

    `strategy` selects what happens at addresses outside the region of `func`. With `at` and `along`
    both the loop over ``y``, and `distance` 2::

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

    Both Funcs must have the same compute and store levels. Shared loops must have one mapping, and
    the same name unless both come from splits of the same shape. If their extents differ, `align`
    gives, per loop of this stage (by name), the end at which the two are aligned::

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

    `loops` lists every loop that remains after the splits and fusions, innermost first. With a
    `Split` of ``v0`` into ``v0_o`` and ``v0_i`` by 8 and the loops ``(v0_i vectorized, v1, v0_o
    parallel)``::

        before             after
        for v1 in 0..h:    parallel for v0_o in 0..w / 8:
          for v0 in 0..w:    for v1 in 0..h:
            f[v0, v1] = ..     vectorized for v0_i in 0..8:
                                 f[8 * v0_o + v0_i, v1] = ..

    `atomic` makes the stage's writes atomic, so that an associative reduction may run in parallel
    or in vectors. With `single_thread` a GPU runs the whole nest as one thread of one block; the
    nest then maps no loop to blocks or threads.

    If `specialize` lists conditions, Halide compiles the nest and everything computed in it twice.
    Calls in which all conditions hold run the first version, where loops of known length can be
    unrolled, divisions by known numbers become cheap, and vectors that are known to be aligned are
    loaded at once. All other calls run the second.

    If `sizes` lists conditions, calls in which all of them hold run the nest as it is written here.
    All other calls run it with every split guarded (`tilewright.halide.ir.nest.guarded`), which
    is correct at every size. `specialize` then applies to the calls in which `sizes` hold only.

    With `allow_races`, loops over a reduction may run in parallel or in vectors even if Halide
    cannot prove that this is safe. The author of the schedule is then responsible for the result.
    """

    splits: tuple[Split | Fuse, ...] = ()
    loops: tuple[ScheduledLoop, ...] = ()
    atomic: bool = False
    single_thread: bool = False
    specialize: tuple[CallCondition, ...] = ()
    prefetch: tuple[Prefetch, ...] = ()
    compute_with: ComputeWith | None = None
    allow_races: bool = False
    sizes: tuple[CallCondition, ...] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """Where a Func is computed or stored: inlined, at root, or at a loop of a consumer.

    For ``at``, `func` is the consumer's position in realisation order, `stage` the consumer's stage
    that has the loop, and `loop` the loop's name there. Like Halide, we do not distinguish loops
    with the same name in several stages of a Func. If several stages read a producer, the producer
    is computed again at the loop of that name in each of them. The compute levels of a Func ``f``
    that ``g`` reads::

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
    elements allocated along the dimension; 0 lets bounds inference decide. `fold` stores only the
    last `fold` elements, in a circular buffer; 0 lets Halide decide whether to fold. `forward` is
    whether the consumer moves along the folded dimension in increasing order::

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
    can be unrolled; 0 promises nothing. The region is widened until its extent is a multiple of
    `modulus`. If `remainder` is given, the first coordinate modulo `modulus` equals it
    (``align_bounds``). Otherwise the first coordinate stays as it is (``align_extent``)::

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

    `stages` is empty for an inlined Func. For any other Func it has one entry per stage, or is
    empty if every stage keeps the nest of its definition. `align_storage` pads the innermost
    storage dimension to a multiple of this number of elements. `storage_order` lists the dimensions
    from innermost to outermost in memory; empty means the order of the arguments. `storage` has
    further directives for single dimensions.

    `hoist` is the level at which memory is allocated and freed, if that is outside the store level.
    Values still live only as long as `store` says::

        store at x            store at x, hoist at y
        for y:                for y:
          for x:                allocate f
            allocate f          for x:
            f = ..                f = ..
            out = f               out = f
            free f              free f

    `run_async` computes the Func in a separate thread, ahead of its readers. `ring_buffer` is the
    number of copies of its storage that the thread fills in turn (0: one copy).
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
    """A copy of Func `func` that `readers` read instead of it, with a separate schedule.

    `func` and `readers` are positions in the algorithm without clones, which has n Funcs. A reader
    may be a copy, too: clone number i of a schedule has position n + i here.

    With `wrapper` (``Func.in_``) the copy does not repeat the computation. It reads the Func and
    stores its values in separate memory, to stage them near a reader or in another layout. A later
    wrapper may wrap it again::

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
class Factored:
    """A reduction split in two (``Stage.rfactor``): partial results, then their combination.

    Update `stage` of Func `func` reduces by an associative operator. After `splits` of its
    reduction loops, the loops `rvars` become pure dimensions of a new Func of partial results. The
    update then combines only these. Splits are guarded, and refer to loops by their canonical
    names. With a `Split` of ``r0`` into ``ro`` and ``ri`` by 8 and the `rvars` ``("ri",)``::

        before             after
        f = 0              for u in 0..8: p[u] = 0
        for r in 0..n:     for u in 0..8:
          f += g[r]          for ro in 0..n / 8: p[u] += g[8 * ro + u]
                           f = 0
                           for ri in 0..8: f += p[ri]

    Without `rvars`, there is one partial result per result, of the whole domain, and the update
    combines it with the initial value. A wrapper can keep it in registers, also if `func` is an
    output. The new Func's dimensions are those of `func`, then one per loop of `rvars`, in the
    order of the loops in the nest, innermost first; it comes directly before `func`. Floats are
    added in another order. `func` is a position in the algorithm without clones, which has n Funcs;
    the new Func of entry number i of `Schedule.clones` has position n + i there. `func` may be such
    a position.
    """

    func: int
    stage: int
    rvars: tuple[str, ...]
    splits: tuple[Split, ...] = ()


@dataclass(frozen=True, slots=True)
class SizeVariant:
    """Other nests for the calls in which all of `sizes` hold.

    `nests` has the nests of every entry of `Schedule.funcs`, in the same order, one per stage.
    Compute levels and storage are the same at every size, so these nests must also have every loop
    that a level names. Their `StageSchedule.sizes` is empty::

        sizes (x >= 1000)              all other calls
        for y parallel:                for y parallel:
          for xo by 256:                 for xo by 32:
            f computed here                f computed here
    """

    sizes: tuple[CallCondition, ...]
    nests: tuple[tuple[StageSchedule, ...], ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """A whole pipeline's schedule for one target, tied to an algorithm by its digest.

    `target` is a Halide target string, or ``host``, ``cuda``, ``opencl``. Fixed Funcs (extern,
    memoised) and those that keep the user's schedule have no entry.

    If there are `clones`, positions in `funcs` and its levels refer to the algorithm with the
    Funcs that they add (`tilewright.halide.ir.clones.with_clones`), where every copy follows its
    original, and partial results precede the Func that combines them. Entries of kind `Factored`
    come before copies.

    A call runs the nests of the first of `variants` whose conditions hold. If none holds, it runs
    the nests of `funcs`.
    """

    algorithm: str
    target: str
    funcs: tuple[FuncSchedule, ...]
    clones: tuple[Clone | Factored, ...] = ()
    variants: tuple[SizeVariant, ...] = ()

    def _repr_html_(self) -> str:
        from tilewright.halide.ir.notebook import schedule_html

        return schedule_html(self)
