"""Source files that run a program without Python or Tilewright: a C header and a host file.

For every target, the host file defines the function that the header declares. It checks the sizes,
allocates memory for intermediate results, and runs the kernels in order. For OpenCL and CUDA it
copies inputs to the first device, and results back.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tilewright.arith import Poly
from tilewright.patterns import nodes as n
from tilewright.patterns.check import SizeRequirement
from tilewright.patterns.codegen.code import MOST_ELEMENTS, Buffer, Code
from tilewright.patterns.codegen.grid import GridKernel
from tilewright.patterns.codegen.host_devices import CUDA_INCLUDES, DEVICES
from tilewright.patterns.codegen.limits import SizeLimit, size_limits
from tilewright.patterns.codegen.printer import scratch
from tilewright.patterns.codegen.words import C, Words

MOST_ADDRESSED = 2**59  # elements of up to 8 bytes, with 64-bit addresses
SIGN = {"c": "", "opencl": "", "cuda": 'extern "C" '}


def print_header(code: Code, words: str) -> str:
    """Return a C header that declares the function of `print_host`.

    Args:
        code: the code of the program.
        words: a description of the program, in one or more lines.
    """
    guard = f"{code.name.upper()}_H"
    comment = "\n".join(f" * {line}".rstrip() for line in words.splitlines())
    return f"""\
#ifndef {guard}
#define {guard}

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {{
#endif

/*
{comment}
 *
 * Arrays are contiguous, row by row. Returns 0; 1 if memory ran out; 2 if the sizes do not fit the
 * program; 3 if there is no device, or it fails. A GPU kernel has 32-bit indices, so that sizes are
 * also refused if an array has over {MOST_ELEMENTS} elements.
 */
{_signature(code, "")};

#ifdef __cplusplus
}}
#endif

#endif
"""


def print_host(
    code: Code,
    source: str,
    target: str,
    kernels: Sequence[GridKernel] = (),
    requirements: Sequence[SizeRequirement] = (),
) -> str:
    """Return a file that defines the function, complete with its kernels.

    Args:
        code: the code of the program.
        source: the source of its kernels for the target.
        target: ``c``, ``opencl`` or ``cuda``.
        kernels: the kernels on a grid of threads, in the order in which they run.
        requirements: the requirements on the sizes.
    """
    words = Words(C)
    checks = _checks(code, words, target, kernels, requirements)
    body = _on_cpu(code, words) if target == "c" else _on_device(code, words, kernels)
    helpers = "".join(text + "\n\n" for text in words.helpers.values())
    run = f"{_signature(code, SIGN[target])} {{\n" + "\n".join([*checks, *body, "}", ""])
    # The kernels of CUDA are in the same file, with helpers of the same names.
    text = (helpers + run).replace("index_", "host_index_")
    return _before(code, source, target, kernels) + text


def _before(code: Code, source: str, target: str, kernels: Sequence[GridKernel]) -> str:
    """Return the text before the function: the kernels, and functions that run them."""
    if target == "c":
        return f"#ifdef _OPENMP\n#include <omp.h>\n#endif\n#include <stdbool.h>\n\n{source}\n"
    count = len(kernels)
    if target == "cuda":
        names = ", ".join(f"(const void *){k.name}" for k in kernels)
        table = f"static const void *const device_kernels[{count}] = {{{names}}};\n"
        return f"{CUDA_INCLUDES}{source}\n{table}\n{DEVICES[target]}\n"
    lines = [line.replace("\\", "\\\\").replace('"', '\\"') for line in source.splitlines()]
    text = "static const char device_source[] =\n" + "\n".join(f'    "{x}\\n"' for x in lines)
    names = ", ".join(f'"{k.name}"' for k in kernels)
    table = f"enum {{ KERNELS = {count} }};\n"
    table += f"static const char *const device_names[KERNELS] = {{{names}}};\n"
    return f"{text};\n\n{table}\n{DEVICES[target]}\n"


def _signature(code: Code, before: str) -> str:
    words = Words(C)
    given = []
    for item in code.inputs:
        kind = words.type(item.type).replace("_Bool", "bool")
        star = "*" if isinstance(item, Buffer) else ""
        given.append(f"const {kind} {star}{item.name}")
    given += [f"{words.type(b.type).replace('_Bool', 'bool')} *{b.name}" for b in code.outputs]
    given += [f"long {name}" for name in code.sizes]
    inner = ",\n    ".join(given) or "void"
    return f"{before}int {code.name}_run(\n    {inner}\n)"


def _checks(
    code: Code,
    words: Words,
    target: str,
    kernels: Sequence[GridKernel],
    requirements: Sequence[SizeRequirement],
) -> list[str]:
    """Return the lines that reject sizes which do not fit the program."""
    lines = [f"  if ({name} < 1) return 2;" for name in code.sizes]
    limits = size_limits(code, kernels) if target != "c" else _addressable(code)
    lines += [
        f"  if ({_double(limit.value, words)} > {limit.most}.0) return 2;"
        for limit in limits
        if limit.value.value is None
    ]
    for requirement in requirements:
        top, bottom = requirement.value.fraction
        if requirement.kind == "whole":
            lines.append(
                f"  if (({words.index(top)}) % ({words.index(bottom)}) != 0) return 2;"
                f"  /* {requirement.pattern} */"
            )
        elif requirement.kind == "least":
            lines.append(f"  if ({words.index(top)} < 0) return 2;")
        else:
            lines += _index_check(words, requirement)
    return lines


def _addressable(code: Code) -> list[SizeLimit]:
    """Return limits below which the bytes of arrays fit into 64 bits."""
    sizes = dict.fromkeys(b.size for b in _arrays(code))
    return [SizeLimit("an array has {} elements", size, MOST_ADDRESSED) for size in sizes]


def _double(p: Poly, words: Words) -> str:
    """Return an expression in double precision, which large sizes do not overflow."""
    texts = []
    for monomial, c in p.terms:
        top, bottom = [f"{Fraction(c).numerator}.0"], [f"{Fraction(c).denominator}.0"]
        for atom, power in monomial:
            (top if power > 0 else bottom).extend([f"(double){words.atom(atom)}"] * abs(power))
        top, bottom = (x[1:] if x[0] == "1.0" and x[1:] else x for x in (top, bottom))
        below = "" if bottom == ["1.0"] else "".join(f" / {x}" for x in bottom)
        texts.append(" * ".join(top) + below)
    return " + ".join(texts)


def _index_check(words: Words, requirement: SizeRequirement) -> list[str]:
    """Return the lines that check all values of an index function."""
    pattern = requirement.pattern
    assert isinstance(pattern, n.Gather | n.Scatter)
    once = requirement.kind == "permutation"
    return [
        f"  {{  /* {pattern} */",
        f"    const long _n = {words.index(requirement.value)};",
        "    char *_seen = (char *)calloc((size_t)_n, 1);" if once else "    int _wrong = 0;",
        *(["    int _wrong = 0;", "    if (!_seen) return 1;"] if once else []),
        "    for (long _i = 0; _i < _n; _i++) {",
        f"      const long _to = {words.index(pattern.index)};",
        "      if (_to < 0 || _to >= _n) { _wrong = 1; break; }",
        *(["      if (_seen[_to]++) { _wrong = 1; break; }"] if once else []),
        "    }",
        *(["    free(_seen);"] if once else []),
        "    if (_wrong) return 2;",
        "  }",
    ]


def _arrays(code: Code) -> list[Buffer]:
    return [b for b in (*code.inputs, *code.outputs, *scratch(code)) if isinstance(b, Buffer)]


def _bytes(buffer: Buffer, words: Words) -> str:
    return f"(size_t)({words.index(buffer.size)}) * sizeof({words.type(buffer.type)})"


def _on_cpu(code: Code, words: Words) -> list[str]:
    """Return the lines that call the C kernel."""
    made = scratch(code)
    lines = [
        "  int _threads = 1;",
        "#ifdef _OPENMP",
        "  _threads = omp_get_max_threads();",
        "#endif",
    ]
    lines += [f"  {words.type(b.type)} *{b.name} = malloc({_bytes(b, words)});" for b in made]
    names = [item.name for item in (*code.inputs, *code.outputs, *made)]
    call = f"{code.name}({', '.join([*names, *code.sizes, '_threads'])})"
    enough = " && ".join(b.name for b in made)
    lines.append(f"  const int _failed = {f'!({enough}) || ' if made else ''}{call};")
    return [*lines, *(f"  free({b.name});" for b in made), "  return _failed;"]


def _on_device(code: Code, words: Words, kernels: Sequence[GridKernel]) -> list[str]:
    """Return the lines that copy arrays, launch kernels and copy results."""
    arrays = _arrays(code)
    lines = ["  int _failed = 0;", "  if (!device_ready()) return 3;"]
    lines += [f"  const int _s_{name} = (int){name};" for name in code.sizes]
    for b in arrays:
        origin = b.name if b in code.inputs else "NULL"
        lines.append(
            f"  device_array _d_{b.name} = device_make({_bytes(b, words)}, {origin}, &_failed);"
        )
    for number, kernel in enumerate(kernels):
        lines += _launch(number, kernel, words)
    for b in code.outputs:
        lines.append(f"  device_fetch({b.name}, _d_{b.name}, {_bytes(b, words)}, &_failed);")
    lines += [f"  device_release(_d_{b.name});" for b in arrays]
    return [*lines, "  return _failed ? 3 : 0;"]


def _launch(number: int, kernel: GridKernel, words: Words) -> list[str]:
    names = [
        f"_d_{item.name}" if isinstance(item, Buffer) else item.name
        for item in (*kernel.reads, *kernel.writes)
    ]
    names += [f"_s_{name}" for name in kernel.sizes]
    groups = ", ".join(f"(size_t)({words.index(g)})" for g in kernel.groups)
    threads = ", ".join(map(str, kernel.launch.threads))
    return [
        f"  if (!_failed) {{  /* {kernel.name} */",
        f"    const size_t _groups[3] = {{{groups}}}, _threads[3] = {{{threads}}};",
        f"    const void *_values[] = {{{', '.join(f'&{name}' for name in names)}}};",
        f"    const size_t _sizes[] = {{{', '.join(f'sizeof {name}' for name in names)}}};",
        f"    device_launch({number}, _groups, _threads, _values, _sizes, {len(names)}, &_failed);",
        "  }",
    ]
