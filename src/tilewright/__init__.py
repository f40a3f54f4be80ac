"""Tilewright finds fast schedules for array programs: verified, measured, explained.

Everything here is imported when it is first used.
"""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # ``python -m tilewright`` imports this file before it can make Ctrl-C silent: the less is here,
    # the better. What is attached takes the place of these functions.
    import lazy_loader

    attribute, names, public = lazy_loader.attach_stub(__name__, __file__)
    globals().update(__getattr__=attribute, __dir__=names, __all__=public)
    return public if name == "__all__" else attribute(name)


def __dir__() -> list[str]:
    __getattr__("__all__")
    return sorted(globals()["__all__"])
