"""Whether schedules for CPUs are legal and give the right answer."""

from patience import PATIENT

from tilewright.halide.execution.session import Session, Variant
from tilewright.halide.legality.check import check
from tilewright.halide.schedulers.any_size import any_size
from tilewright.measure import Timing

ONCE = Timing(warmup=0, min_samples=1, max_samples=1, sample_seconds=0.0)


def assert_right(algorithm, schedule, guarded):
    """Check and run a schedule once; with `guarded`, the one for any size that is made from it."""
    if guarded:
        schedule = any_size(schedule, algorithm)
    assert check(schedule, algorithm) == []
    with Session(algorithm, limits=PATIENT, timing=ONCE) as session:
        (done,) = session.measure([Variant(schedule)])
    assert done.measurement.status == "ok", done.measurement.message
