"""Search spaces and problems that come with the package.

`recorded` are real problems measured once and replayed by look-up; `paper_space` gives the
search spaces of the BaCO paper's compilers, `standin` analytic objectives in their compilers'
place; the module `c_programs` has real problems to tune on this machine.
"""

from tilewright.tuning.problems.recordings import recorded, write_recording
from tilewright.tuning.problems.standins import paper_space, paper_spaces, standin

__all__ = ["paper_space", "paper_spaces", "recorded", "standin", "write_recording"]
