"""Pipelines after published operators that no scheduler was made for, by family.

``PROGRAMS`` has them by name. `held_out` says which ones are not looked at while improving the
schedules: only what crashes there is mended.
"""

from __future__ import annotations

import hashlib

from strangers import blas, imaging, networks, quantised, resize, transforms, unusual
from strangers.kit import Program

FAMILIES = {
    module.__name__.rpartition(".")[2]: module.PROGRAMS
    for module in (quantised, blas, resize, transforms, networks, imaging, unusual)
}
PROGRAMS: dict[str, Program] = {
    program.name: program for programs in FAMILIES.values() for program in programs
}


def family(name: str) -> str:
    """The family of a program."""
    return next(f for f, programs in FAMILIES.items() if any(p.name == name for p in programs))


def held_out(name: str) -> bool:
    """Whether a program took no part in any choice: half of them, by a hash of the name."""
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 0
