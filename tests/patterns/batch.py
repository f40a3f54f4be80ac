"""Many programs compiled at once: starting a compiler costs more than a small kernel."""

import re

from tilewright.patterns.codegen.c import print_c
from tilewright.patterns.codegen.generate import generate
from tilewright.patterns.compiling import CKernel, built

OWN = re.compile(r"\b(f_\w+|index_\w+|table\d+)\b")


def kernels(programs):
    """A kernel for each program, all in one library."""
    codes = [generate(p, f"kernel_{i}") for i, p in enumerate(programs)]
    sources = [print_c(code) for code in codes]
    parts = [OWN.sub(rf"p{i}_\1", source) for i, source in enumerate(sources)]
    library = built("\n".join(parts), ("-O0",))
    found = zip(programs, codes, sources, strict=True)
    return [CKernel(p, code, source, library) for p, code, source in found]
