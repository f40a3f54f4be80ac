"""Names in printed schedules: reserved words, and Func names without Halide's numbers."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Sequence

_CPP_WORDS = (
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl "
    "const constexpr const_cast continue decltype default delete do double dynamic_cast else "
    "enum explicit export extern false float for friend goto if inline int long mutable "
    "namespace new noexcept not not_eq nullptr operator or or_eq private protected public "
    "register reinterpret_cast requires return short signed sizeof static static_assert "
    "static_cast struct switch template this thread_local throw true try typedef typeid "
    "typename union unsigned using virtual void volatile wchar_t while xor xor_eq "
    "std Halide Func Var RVar Pipeline Stage TailStrategy MemoryType Partition LoopAlignStrategy "
    "PrefetchBoundStrategy"
)
RESERVED = {
    *keyword.kwlist,
    *keyword.softkwlist,
    *dir(builtins),
    *_CPP_WORDS.split(),
    *[
        "hl",
        "pipeline",
        "schedule",
        "func",
        "funcs",
        "find_funcs",
        "named",
        "name",
        "number",
        "base",
        "param",
        "find_params",
        "known",
    ],
}


def name_key(name: str) -> tuple[str, int]:
    """Split a Func's name into the given name and Halide's automatic number.

    >>> name_key("blur$2"), name_key("blur"), name_key("f12")
    (('blur', 2), ('blur', 0), ('f', 12))
    """
    match = re.fullmatch(r"(.*)\$(\d+)", name) or re.fullmatch(r"([a-z])(\d+)", name)
    return (match[1], int(match[2])) if match else (name, 0)


def name_keys(names: Sequence[str]) -> list[tuple[str, int]]:
    """Return for each name the given part, and its rank by number among names with that part."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        base, number = name_key(name)
        groups.setdefault(base, []).append((number, name))
    result = []
    for name in names:
        base, number = name_key(name)
        result.append((base, sorted(groups[base]).index((number, name))))
    return result


def shown(text: str) -> str:
    """Return text that is safe in a comment, with other characters replaced by ``?``."""
    return re.sub(r"[^\w$.:;,()\- ]", "?", text, flags=re.ASCII)
