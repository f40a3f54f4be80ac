"""The append-only database of measurements.

The room in the order in which data flows:

- ``location``: where records are kept by default.
- ``lock``: claims on the problems of a file, for processes that run at the same time.
- ``store``: `Records`, an SQLite file of `MeasurementRecord`.
- ``measured``: measures what has no record, and records it before continuing.
- ``maintenance``: export, merge and prune.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
