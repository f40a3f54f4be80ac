"""Search spaces and problems that come with the package.

`recorded` are real problems measured once and replayed from tables. `paper_space` gives the search
spaces of the BaCO paper's compilers, and `standin` analytic objectives that replace those of them
that are not installed; `tilewright.patterns.rise` compiles RISE's kernels. Real problems to tune on
this machine, measured in isolated processes: `halide_blur`, `halide_matmul`, `halide_harris` and
`halide_laplacian`, `cc_flags` and `c_loop_nest`, `opencl_matmul`. Each has a ``space`` and is
called with a configuration.
"""

from tilewright.tuning.problems.c_programs import c_loop_nest, cc_flags
from tilewright.tuning.problems.halide_templates import (
    halide_blur,
    halide_harris,
    halide_laplacian,
    halide_matmul,
)
from tilewright.tuning.problems.measured import MeasuredProblem
from tilewright.tuning.problems.opencl_programs import opencl_matmul
from tilewright.tuning.problems.recordings import recorded, write_recording
from tilewright.tuning.problems.standins import paper_space, paper_spaces, standin

__all__ = [
    "MeasuredProblem",
    "c_loop_nest",
    "cc_flags",
    "halide_blur",
    "halide_harris",
    "halide_laplacian",
    "halide_matmul",
    "opencl_matmul",
    "paper_space",
    "paper_spaces",
    "recorded",
    "standin",
    "write_recording",
]
