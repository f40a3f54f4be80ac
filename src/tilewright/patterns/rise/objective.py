"""RISE's kernels as objectives of the tuner: compiled, verified and timed in worker processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.measure import Measurement, VerifyResult
from tilewright.patterns.errors import PatternError
from tilewright.patterns.rise.kernels import TOLERANCE, RiseKernel, rise_kernel
from tilewright.tuning import FailedError, Space
from tilewright.tuning.problems import MeasuredProblem

PRELOAD = ("numpy", __name__)


@dataclass(frozen=True)
class RiseObjective:
    """The run time of a configuration in seconds, for `tilewright.tuning.tune`.

    A configuration is derived, compiled for the first OpenCL device (or CUDA GPU), compared with
    NumPy and timed, in a process of its own. A CPU with an OpenCL driver such as PoCL is accepted,
    but its times are not those of a GPU and do not rank a GPU's kernels: local memory and barriers
    cost a CPU time.

    Args:
        kernel: the kernel, of `rise_kernel`.
        target: ``opencl`` or ``cuda``.
        is_stand_in: whether values are made up; they are measured.
    """

    kernel: RiseKernel
    target: str = "opencl"
    is_stand_in: bool = field(default=False, init=False)

    @property
    def name(self) -> str:
        """The name of the published space."""
        return self.kernel.name

    @property
    def space(self) -> Space:
        """The published space."""
        return self.kernel.space

    def problem(self) -> MeasuredProblem:
        """Return the problem as workers measure it, for limits and timing of your own."""
        arguments = {"kernel": self.name, "sizes": self.kernel.sizes, "target": self.target}
        builder = f"{__name__}:RiseLaunch"
        return MeasuredProblem(self.name, self.space, builder, arguments, PRELOAD)

    def measurement(self, configuration: Mapping[str, Any]) -> Measurement:
        """Return the measurement of a configuration that can be derived; errors as `grid`."""
        self.kernel.grid(configuration)
        return self.problem()(configuration)

    def __call__(self, configuration: Mapping[str, Any]) -> float:
        """Return the median time of a run in seconds.

        Raises:
            FailedError: a rule, the code generator, the compiler or the device refuses the
                configuration, or its result is wrong; the message has the reason.
        """
        try:
            measured = self.measurement(configuration)
        except PatternError as error:
            raise FailedError("build_failed", str(error)) from None
        if not measured.ok:
            raise FailedError(measured.status, measured.message)
        return measured.median


class RiseLaunch:
    """A configuration's kernels in a worker, as `tilewright.measure.Candidate` describes."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        """Take ``{"kernel": name, "sizes": numbers, "target": target, "configuration": choices}``.

        Raises:
            PatternError: a rule refuses the configuration, or no device was found.
        """
        self._kernel = rise_kernel(payload["kernel"], payload["sizes"])
        compiled = self._kernel.compile(payload["configuration"], payload["target"])
        self._inputs = self._kernel.inputs()
        self._bound = compiled.bound(*self._inputs)
        self.run = self._bound.run

    def verify(self) -> VerifyResult:
        """Run the kernels once, and compare the result with NumPy's."""
        self.run()
        error = self._kernel.error(self._inputs, self._bound.result())
        message = f"relative error {error:.2g} of NumPy's result"
        return VerifyResult(error <= TOLERANCE, message, error)
