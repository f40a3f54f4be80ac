"""Algorithms, schedules and loop nests as immutable data, and their names and targets."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
