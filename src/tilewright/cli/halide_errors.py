"""Reword errors of `tilewright.halide` to name command-line flags."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.errors import TilewrightError


@contextmanager
def with_flags() -> Iterator[None]:
    """Replace errors that name a Python argument by errors that name the flag.

    Raises:
        TilewrightError: The pipeline has no estimates, or is scheduled already.
    """
    from tilewright.halide import MissingEstimatesError, ScheduledError

    try:
        yield
    except MissingEstimatesError as error:
        flags, names = [], []
        for name, dims in error.missing.items():
            if dims:
                flags.append(f"--estimate '{name}={'x'.join(['1024'] * len(dims))}'")
                names.append(f"{name} ({', '.join(dims)})")
            else:
                flags.append(f"--set '{name}=1'")
                names.append(f"{name} (a value)")
        raise TilewrightError(
            f"the pipeline's sizes are unknown: estimates are missing for {'; '.join(names)}. "
            f"Set them in the pipeline, or give them, as in {' '.join(flags)}"
        ) from error
    except ScheduledError as error:
        raise TilewrightError(
            f"the pipeline has been scheduled already: {', '.join(error.funcs)}. Drop "
            "these schedules with --discard-schedule, leave these Funcs as they are with --keep, "
            "or (schedule) start from them with --improve"
        ) from error
