"""Redirect calls to wrappers (``Func.in_``) and clones (``Func.clone_in``).

A wrapped Func's schedule lists the wrappers, but Halide redirects calls only when it lowers the
pipeline. The same rules are applied here, so that an `Algorithm` has the calls after lowering.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.halide.frontend.serial.reader import MalformedError, Record


def redirections(funcs: Sequence[Record]) -> dict[str, dict[str, str]]:
    """Return, for each calling Func, the wrapper that replaces each callee.

    A wrapper for one caller takes precedence over a wrapper for all callers. A wrapper still calls
    the Func that it wraps. `funcs` are all Funcs of the file, in file order, because wrappers are
    referred to by position.
    """
    names = [func.name for func in funcs]
    result: dict[str, dict[str, str]] = {name: {} for name in names}
    for func in sorted(funcs, key=lambda func: str(func.name)):
        wrappers = {}
        for wrapper in func.func_schedule.wrappers:
            if not 0 <= wrapper.func_index < len(names):
                raise MalformedError(f"a wrapper of {func.name} is not in the pipeline")
            wrappers[wrapper.func_name or ""] = names[wrapper.func_index]
        own = {func.name, *wrappers.values()}
        for caller, wrapper in sorted(wrappers.items()):
            if caller:
                if caller in result:
                    _redirect(result[caller], func.name, wrapper)
                continue
            for name in names:
                if name not in own and name not in wrappers:
                    _redirect(result[name], func.name, wrapper)
    return result


def _redirect(calls: dict[str, str], wrapped: str, wrapper: str) -> None:
    """Add one redirection; chains through wrappers of wrappers become one redirection."""
    for original, target in list(calls.items()):
        if target == wrapped:
            calls[original] = wrapper
            return
        if original == wrapper:
            del calls[original]
            calls[wrapped] = target
            return
    calls[wrapped] = wrapper
