"""Kernels and their variants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from tilewright.prediction.errors import PredictionError

Array: TypeAlias = np.ndarray[Any, Any]
Instance: TypeAlias = dict[str, float]
Operands: TypeAlias = dict[str, Any]
Storage = Literal["dense", "sparse"]
Run: TypeAlias = Callable[[], Any]


def always() -> tuple[bool, str]:
    """Return that a variant is available everywhere."""
    return True, ""


def no_versions() -> dict[str, str]:
    """Return no versions, for a variant that depends on no other software."""
    return {}


@dataclass(frozen=True)
class KernelVariant:
    """One implementation of a kernel on one device.

    `build` takes operands (dense NumPy arrays or SciPy sparse ones) and settings, converts the
    operands to its own storage, and gives a function of no arguments that computes and returns the
    answer, an array or a SciPy sparse array; the run of that function is timed. `available` returns
    why the variant cannot be used here, or nothing if it can. `storage` is the form that it
    converts to. `settings` are its controllable settings, each a feature of its run time, with the
    values it may take, smallest first. `device` is ``cpu`` or ``gpu``. `versions` names the
    software that its run time depends on. `isolate` says that it may crash or hang, so that it is
    measured in a separate process. `complexity` gives its number of operations (`Complexity`), if
    it differs from the kernel's because of a schedule: whole tiles, in as many rounds as the
    threads need. `whole` is the variant of which this one is the whole call
    (`tilewright.prediction.data.whole_call.whole_call`).
    """

    name: str
    build: Callable[[Operands, Mapping[str, int]], Run]
    available: Callable[[], tuple[bool, str]] = always
    storage: Storage = "dense"
    settings: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    device: Literal["cpu", "gpu"] = "cpu"
    versions: Callable[[], dict[str, str]] = no_versions
    isolate: bool = False
    complexity: Callable[[], str] | None = None
    whole: KernelVariant | None = field(default=None, hash=False, repr=False)

    def prepare(self, operands: Operands, settings: Mapping[str, float] | None = None) -> Run:
        """Prepare to run on these operands; missing settings take their largest value.

        Raises:
            PredictionError: the variant is not available here, or a setting is not one of its
                values.
        """
        usable, why = self.available()
        if not usable:
            raise PredictionError(f"variant {self.name} cannot be used here: {why}")
        chosen = {name: values[-1] for name, values in self.settings.items()}
        for name, value in (settings or {}).items():
            if name not in self.settings or value not in self.settings[name]:
                known = ", ".join(f"{n} in {list(v)}" for n, v in self.settings.items()) or "none"
                raise PredictionError(
                    f"variant {self.name} has no setting {name}={value:g}; there are {known}"
                )
            chosen[name] = int(value)
        return self.build(operands, chosen)


@dataclass(frozen=True)
class Kernel:
    """An operation with several implementations.

    Args:
        name: such as ``matmul``.
        features: its parameters, which predict its run time, with their units.
        complexity: the number of operations as an expression of the features (`Complexity`).
        draw: draws an instance, a value for each feature, from a random generator.
        make: makes operands for an instance. It may refine the instance in place: a density
            becomes that of the actual non-zeros.
        reference: the right answer by NumPy, a dense array; None if answers are not verified.
        describe: returns the instance of given operands, to dispatch a call by its arguments.
        variants: implementations by name; `with_variant` adds one.
        tolerance: the largest error of an answer, relative to the largest reference value.
        origin: how another process recreates the kernel: a function, ``module:name``, and its
            keyword arguments; None if only the library's table has it, or it cannot be recreated.
    """

    name: str
    features: Mapping[str, str]
    complexity: str
    draw: Callable[[np.random.Generator], Instance]
    make: Callable[[Instance, np.random.Generator], Operands]
    reference: Callable[[Operands], Array] | None
    describe: Callable[[Operands], Instance]
    variants: Mapping[str, KernelVariant] = field(default_factory=dict)
    tolerance: float = 1e-9
    origin: tuple[str, Mapping[str, Any]] | None = field(default=None, hash=False, repr=False)

    def variant(self, name: str) -> KernelVariant:
        """Return the variant of that name.

        Raises:
            PredictionError: there is none; the message lists the variants.
        """
        if name not in self.variants:
            raise PredictionError(
                f"kernel {self.name} has no variant {name!r}; it has {', '.join(self.variants)}"
            )
        return self.variants[name]

    def features_of(self, variant: KernelVariant) -> dict[str, str]:
        """Return the names and units of the variant's features: the kernel's and the settings."""
        return {**self.features, **dict.fromkeys(variant.settings, "1")}

    def complexity_of(self, variant: KernelVariant) -> str:
        """Return the variant's number of operations, by default the kernel's."""
        return self.complexity if variant.complexity is None else variant.complexity()

    def with_variant(self, variant: KernelVariant) -> Kernel:
        """Return the kernel with one variant added, or replaced if it has the same name."""
        variants = {**self.variants, variant.name: variant}
        return replace(self, variants=variants, origin=None)
