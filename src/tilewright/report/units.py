"""Numbers for people: times, sizes, counts and ratios in few characters."""

from __future__ import annotations

import math

NONE = "–"

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def digits(value: float, significant: int = 3) -> str:
    """Return a number with `significant` digits, without an exponent where it is readable.

    >>> digits(1234.5), digits(0.012345), digits(2.0)
    ('1234', '0.0123', '2')
    """
    if not math.isfinite(value):
        return "∞" if value > 0 else ("-∞" if value < 0 else "nan")
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if magnitude < -4 or magnitude > 6:
        return f"{value:.{significant - 1}g}"
    text = f"{value:.{max(0, significant - 1 - magnitude)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def seconds(value: float | None) -> str:
    """Return a time in the unit that suits it.

    >>> seconds(0.00234), seconds(None)
    ('2.34 ms', '–')
    """
    if value is None or not math.isfinite(value):
        return NONE
    for size, unit in _TIMES:
        # A value that would round up to 1000 of a unit belongs to the next one.
        if abs(value) >= 0.9995 * size:
            return f"{digits(value / size)} {unit}"
    return "0 s" if value == 0 else f"{digits(value / 1e-9)} ns"


def size(value: int | None) -> str:
    """Return bytes in binary units.

    >>> size(2048), size(100), size(3 * 2**20)
    ('2 KiB', '100 B', '3 MiB')
    """
    if value is None:
        return NONE
    if abs(value) < 1024:
        return f"{value} B"
    amount = float(value)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= 1024
        if abs(amount) < 1000 or unit == "GiB":
            return f"{digits(amount)} {unit}"
    return f"{value} B"


def percent(value: float | None) -> str:
    """Return a share as whole percent, with a decimal below ten.

    >>> percent(0.625), percent(0.0123)
    ('62%', '1.2%')
    """
    if value is None:
        return NONE
    return f"{100 * value:.1f}%" if 0 < abs(value) < 0.0995 else f"{100 * value:.0f}%"


def ratio(value: float | None) -> str:
    """Return a factor.

    >>> ratio(3.14159)
    '3.14×'
    """
    return NONE if value is None or not math.isfinite(value) else f"{digits(value)}×"


def count(value: int | None) -> str:
    r"""Return a whole number with thin spaces between thousands.

    >>> count(1234567).replace("\u2009", " ")
    '1 234 567'
    """
    return NONE if value is None else f"{value:,}".replace(",", "\u2009")


def extents(values: tuple[int, ...]) -> str:
    """Return sizes of dimensions.

    >>> extents((32, 8))
    '32×8'
    """
    return "×".join(str(v) for v in values) if values else NONE


def plural(number: int, noun: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "kernel"), plural(3, "kernel")
    ('1 kernel', '3 kernels')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
