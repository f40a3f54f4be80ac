"""Print functions, in Python and C++, that check at run time whether outputs fit a schedule.

Halide's error message for an output of a wrong size is about coordinates. The printed functions are
called before the pipeline and name the axis, the reason and the cure.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tilewright.halide.legality.sizes import Requirement


def cpp_string(text: str) -> str:
    """Return a C++ string literal; question marks are escaped, because two begin a trigraph."""
    shown = (f"\\{b:03o}" if not 32 <= b < 127 or b in b'"\\?' else chr(b) for b in text.encode())
    return '"' + "".join(shown) + '"'


def _by_output(requirements: Sequence[Requirement]) -> dict[int, list[Requirement]]:
    """Return the requirements on outputs, by the Func's position."""
    result: dict[int, list[Requirement]] = {}
    for need in requirements:
        if need.on == "output":
            result.setdefault(need.func, []).append(need)
    return result


def _tests(need: Requirement, extent: str) -> list[str]:
    """Return the conditions under which an extent does not fit, valid in Python and C++."""
    if need.maximum:
        return [f"{extent} != {need.maximum}"]
    small = [f"{extent} < {need.minimum}"] * (need.minimum > 1)
    return small + [f"{extent} % {need.multiple} != 0"] * (need.multiple > 1)


def python_check(name: str, requirements: Sequence[Requirement]) -> str:
    """Return a Python function ``NAME_refuses(**extents)`` of the outputs' extents."""
    lines = [
        f"def {name}_refuses(**extents):",
        '    """Return why outputs of these extents do not fit the schedule; None if they fit.',
        "",
        "    Pass a sequence of extents per output, by its name, innermost dimension first.",
        '    """',
    ]
    for needs in _by_output(requirements).values():
        key = f"extents[{json.dumps(needs[0].name)}]"
        for need in needs:
            for test in _tests(need, f"{key}[{need.dimension}]"):
                lines += [f"    if {test}:", f"        return {json.dumps(str(need))}"]
    return "\n".join([*lines, "    return None", ""])


def cpp_check(name: str, requirements: Sequence[Requirement]) -> str:
    """Return a C++ function ``NAME_refuses`` of the buffers of outputs with requirements."""
    found = _by_output(requirements)
    arguments = [f"const halide_buffer_t *output{i}" for i in range(len(found))]
    lines = ["", "// Returns why outputs do not fit the schedule; null if they fit."]
    for i, needs in enumerate(found.values()):
        lines.append(f"// output{i}: {cpp_string(needs[0].name)[1:-1]}")
    lines.append(f"inline const char *{name}_refuses({', '.join(arguments)}) {{")
    for i, needs in enumerate(found.values()):
        for need in needs:
            for test in _tests(need, f"output{i}->dim[{need.dimension}].extent"):
                lines += [
                    f"    if ({test}) {{",
                    f"        return {cpp_string(str(need))};",
                    "    }",
                ]
    return "\n".join([*lines, "    return nullptr;", "}", ""])
