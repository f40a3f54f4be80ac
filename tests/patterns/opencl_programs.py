"""Run an OpenCL kernel of an explored program, and compare it with the interpreter; for Oclgrind.

    python opencl_programs.py NAME NUMBER [--no-barriers]

In a process that runs several programs, Oclgrind may take written memory for uninitialised.
"""

import sys

import tilewright.patterns as tp
from tilewright.patterns import opencl
from tilewright.patterns import rewriting as rw
from tilewright.patterns.codegen.gpu import print_grid
from tilewright.patterns.compiling import grid_code
from tilewright.patterns.programs import LINEAR_ALGEBRA, STENCILS

# Oclgrind lacks an instruction (freeze) that its compiler's optimiser makes.
OPTIONS = ("-cl-opt-disable",)


def main(name, number, barriers=""):
    build = STENCILS[name].build if name in STENCILS else LINEAR_ALGEBRA[name]
    sizes = (8, 16) if name in STENCILS else ()
    program = build(*sizes)
    if tp.size_names(program):
        program = tp.with_sizes(program, {"N": 24})
    inputs = tp.random_inputs(program)
    chosen = rw.ExplorationSettings(tiles=(2, 4, 8), families=("tiling", "partial"), limit=60)
    found = [d.program for d in rw.explore(program, chosen)]
    staged = [p for p in found if "to_local" in str(p)] or [p for p in found if "to_gl" in str(p)]
    p = staged[int(number)]
    code, kernels = grid_code(p, "kernel", None)
    text = print_grid(kernels, "opencl", code.reserved)
    if barriers:
        assert "barrier(" in text
        text = text.replace("barrier(CLK_LOCAL_MEM_FENCE);", "")
    kernel = opencl.OpenCLKernel(p, code, text, kernels, opencl.built(text, OPTIONS))
    error = tp.relative_error(kernel(*inputs), tp.interpret(program, *inputs))
    print(f"ran {p}: relative error {error}")
    return int(error > 1e-5 and not barriers)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
