"""The room stands by itself."""

import subprocess
import sys


def test_it_imports_neither_halide_nor_a_device():
    code = (
        "import sys, tilewright.patterns, tilewright.patterns.rewriting; "
        "print([m for m in ('halide', 'tilewright.halide', 'pyopencl') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
