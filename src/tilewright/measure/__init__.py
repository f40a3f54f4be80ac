"""What a candidate really costs: isolated workers, timing, verification.

A `Candidate` is plain data from which a worker process builds something to run. `measure_all`
measures many, `measure_one` a single one (on any executor), `finalists` compares a few in
interleaved rounds, and `command` makes a candidate of a command line. Whatever a candidate
does, crash, hang, print or allocate without end, its `Measurement` says so and the rest goes on.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
