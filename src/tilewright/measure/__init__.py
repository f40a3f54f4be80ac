"""Measures candidates: isolated workers, timing, verification.

A `Candidate` is plain data from which a worker process builds something to run. `measure_all`
measures many, `measure_one` a single one (on any executor), `finalists` compares a few in
interleaved rounds, and `command` makes a candidate of a command line. If a candidate crashes,
hangs, or prints or allocates without end, its `Measurement` says so and the others continue.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
