"""RISE's GPU kernels of BaCO's evaluation: programs, published spaces, derivations.

The paper prints no sizes. Those here are the sizes of the scripts that tuned the kernels in the
public repository of RISE's compiler (`programs`), except for the sum, whose space goes up to 2^24
elements and the script's up to 2^26.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tilewright.arith import poly
from tilewright.patterns import nodes as n
from tilewright.patterns import rewriting as rw
from tilewright.patterns.codegen.code import Code
from tilewright.patterns.codegen.grid import GridKernel, ThreadGrid, local_bytes
from tilewright.patterns.compiling import compile, grid_code, source
from tilewright.patterns.errors import LoweringError, PatternError, SizeError
from tilewright.patterns.programs import APPLICATIONS, LINEAR_ALGEBRA
from tilewright.patterns.rise import derivations, programs
from tilewright.patterns.rise.derivations import Numbers, Steps
from tilewright.patterns.rise.programs import Array, Reference, compared_with
from tilewright.patterns.verification import random_inputs
from tilewright.tuning import Ordinal, Space
from tilewright.tuning.problems import paper_space

LOCAL_BYTES = 49152  # of a work-group: the limit in the constraints of the space rise_mm_gpu
# Of the largest number. 2^24 numbers added one after the other in f32 are off by 1.7e-5 (measured).
TOLERANCE = 1e-4


@dataclass(frozen=True)
class _Published:
    """What belongs to a published space.

    Args:
        build: returns the program for sizes.
        sizes: the default ones, and small ones.
        steps: the rules of a configuration.
        error: of a result, relative to NumPy's.
        expert: the configuration that the scripts of RISE's authors compare with.
        extents: the largest values of parameters that fit sizes.
    """

    build: Callable[..., n.Pattern]
    sizes: tuple[int, ...]
    small: tuple[int, ...]
    steps: Callable[[n.Pattern, Numbers], Steps]
    error: Reference
    expert: Mapping[str, int]
    extents: Callable[..., Mapping[str, int]]


_THREADS = {"ls0": 256, "ls1": 1, "gs0": 1024, "gs1": 1}
_PUBLISHED = {
    "rise_mm_gpu": _Published(
        APPLICATIONS["matmul_at"],
        (1024, 1024, 1024),
        (16, 32, 16),
        derivations.product_steps,
        compared_with(programs.product),
        {"v3": 4, "v4": 8, "v5": 64, "v6": 128, "v7": 128, "v8": 16}
        | {"ls0": 32, "ls1": 8, "gs0": 256, "gs1": 128},
        lambda rows, columns, depth: {"v5": rows, "v7": columns, "v8": depth},
    ),
    "rise_asum_gpu": _Published(
        LINEAR_ALGEBRA["asum"],
        (2**24,),
        (2**12,),
        derivations.sum_steps,
        compared_with(programs.absolute_sum),
        {"sp0": 2**18, "sp1": 2048, "stride": 128, "ls0": 128, "gs0": 1024},
        lambda length: {"sp0": length},
    ),
    "rise_scal_gpu": _Published(
        LINEAR_ALGEBRA["scal"],
        (2**25,),
        (2**9,),
        derivations.scale_steps,
        compared_with(programs.scaled),
        {"s0": 512, "s1": 1, "vec": 2} | _THREADS,
        lambda length: {"s0": length},
    ),
    "rise_kmeans_gpu": _Published(
        programs.centres_of,
        (2**19, 10, 34),
        (20, 3, 4),
        derivations.centres_steps,
        programs.centres_error,
        _THREADS,
        lambda points, centres, coordinates: {},
    ),
    "rise_harris_gpu": _Published(
        programs.colour_harris,
        (1024, 1024),
        (12, 16),
        derivations.harris_steps,
        compared_with(programs.corner_response),
        {"tile_x": 64, "tile_y": 16, "vec": 4, "ls0": 8, "ls1": 32, "gs0": 128, "gs1": 1024},
        lambda rows, columns: {},
    ),
    "rise_stencil_gpu": _Published(
        programs.box11,
        (1024, 1024),
        (10, 12),
        derivations.box_steps,
        compared_with(programs.box_sums),
        {"ls0": 4, "ls1": 4, "gs0": 1024, "gs1": 1024},
        lambda rows, columns: {},
    ),
}
RISE_KERNELS = tuple(_PUBLISHED)


@dataclass(frozen=True, eq=False)
class RiseKernel:
    """A program of RISE with the space that was published for it.

    Every configuration of the space is a derivation of the program and a launch. A configuration
    that a rule or the code generator refuses is an outcome, a hidden constraint: it raises a
    `PatternError`.

    Args:
        name: the space's name (`tilewright.tuning.problems.paper_space`).
        sizes: the sizes of the program, in numbers of elements.
        program: the program with these sizes.
        space: the published space.
        expert: the configuration that RISE's authors compare with, which fits the default sizes.
    """

    name: str
    sizes: tuple[int, ...]
    program: n.Pattern
    space: Space
    expert: Mapping[str, int]

    def derive(self, configuration: Numbers) -> tuple[rw.Derivation, ThreadGrid]:
        """Return the derivation and the launch of a configuration.

        Raises:
            ConfigurationError: a value is not one of the space.
            SizeError: the configuration breaks a constraint of the space, named in the message.
            RewriteError: a rule refuses it, for example because a split does not divide a size.
        """
        broken = self.space.broken(configuration)
        if broken is not None:
            raise SizeError(f"{dict(configuration)} is not in the space {self.name}: {broken}")
        steps = _PUBLISHED[self.name].steps(self.program, configuration)
        return rw.derive(self.program, *steps), launch_of(configuration)

    def grid(self, configuration: Numbers) -> tuple[Code, tuple[GridKernel, ...]]:
        """Return the code and the kernels of a configuration.

        Raises:
            ConfigurationError: as `derive`.
            SizeError: as `derive`.
            RewriteError: as `derive`.
            LoweringError: the generator refuses it, or it needs more than `LOCAL_BYTES` of local
                memory.
        """
        _, _, code, kernels = self._checked(configuration)
        return code, kernels

    def _checked(
        self, configuration: Numbers
    ) -> tuple[n.Pattern, ThreadGrid, Code, tuple[GridKernel, ...]]:
        """Return the derived program, its launch, its code and its kernels; errors as `grid`."""
        derivation, launch = self.derive(configuration)
        code, kernels = grid_code(derivation.program, "kernel", launch)
        needed = max(map(local_bytes, kernels))
        if needed > LOCAL_BYTES:
            raise LoweringError(f"{needed} bytes of local memory; there are {LOCAL_BYTES}")
        return derivation.program, launch, code, kernels

    def source(self, configuration: Numbers, target: str = "opencl") -> str:
        """Return the source of a configuration for ``opencl`` or ``cuda``; errors as `grid`."""
        program, launch, _, _ = self._checked(configuration)
        return source(program, target, launch=launch)

    def compile(self, configuration: Numbers, target: str = "opencl") -> Any:
        """Return the compiled kernels of a configuration (`tilewright.patterns.compile`).

        Raises:
            PatternError: the errors of `grid`; no device was found.
            CompileError: the device's compiler refuses the source.
        """
        program, launch, _, _ = self._checked(configuration)
        return compile(program, target, launch=launch)

    def inputs(self, seed: int = 0) -> list[Array]:
        """Return random inputs between -0.5 and 0.5, in f32."""
        return [array - 1 for array in random_inputs(self.program, None, seed)]

    def error(self, inputs: Sequence[Array], result: Any) -> float:
        """Return the error of a result, relative to the largest number of NumPy's in f64.

        For K-means it is the distance by which a chosen centre is farther than the nearest one.
        """
        return _PUBLISHED[self.name].error(inputs, result)

    def fitting_space(self) -> Space:
        """Return the part of the space whose tiles and chunks are not larger than the sizes.

        It has the same parameters and constraints, and fewer values. Other configurations of the
        published space fail: at small sizes, those are most.
        """
        most = _PUBLISHED[self.name].extents(*self.sizes)
        return Space(
            [
                _up_to(p, most[p.name]) if isinstance(p, Ordinal) and p.name in most else p
                for p in self.space.parameters
            ],
            self.space.constraint_sources,
        )


def _up_to(p: Ordinal, most: int) -> Ordinal:
    """Return a parameter with its values up to a limit."""
    values = tuple(v for v in p.values if v <= most)
    if not values:
        raise PatternError(f"the smallest {p.name} is {min(p.values)}, the size only {most}")
    return replace(p, values=values, default=p.default if p.default in values else None)


def launch_of(configuration: Numbers) -> ThreadGrid:
    """Return the launch of OpenCL's local sizes ls0 and ls1, and global sizes gs0 and gs1."""
    local = [int(configuration.get(f"ls{d}", 1)) for d in range(2)]
    total = [int(configuration.get(f"gs{d}", 1)) for d in range(2)]
    x, y = (poly(t // t_local) for t, t_local in zip(total, local, strict=True))
    return ThreadGrid((x, y, poly(1)), (local[0], local[1], 1))


@cache
def _space(name: str) -> Space:
    return paper_space(name)


def rise_kernel(name: str, sizes: Sequence[int] | None = None) -> RiseKernel:
    """Return one of `RISE_KERNELS`.

    Args:
        name: the name of the published space, as ``rise_mm_gpu``.
        sizes: the sizes of the program; by default those of the scripts of RISE's authors. The
            product has rows, columns and depth; sum and scaling a length; K-means points, centres
            and coordinates; Harris and the stencil rows and columns.

    Raises:
        PatternError: no kernel has that name, or the number of sizes is wrong.
    """
    if name not in _PUBLISHED:
        raise PatternError(f"no kernel is named {name!r}; there are {', '.join(RISE_KERNELS)}")
    published = _PUBLISHED[name]
    chosen = published.sizes if sizes is None else tuple(sizes)
    if len(chosen) != len(published.sizes):
        raise PatternError(f"{name} has {len(published.sizes)} sizes, not {len(chosen)}")
    program = published.build(*chosen)
    return RiseKernel(name, chosen, program, _space(name), published.expert)


def small_kernel(name: str) -> RiseKernel:
    """Return one of `RISE_KERNELS` with sizes that simulators run in seconds; errors likewise."""
    return rise_kernel(name, _PUBLISHED[name].small if name in _PUBLISHED else None)
