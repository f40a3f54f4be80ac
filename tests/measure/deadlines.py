"""Deadlines that come when something has happened, not when a machine has had time for it."""

PATIENCE = 600.0  # seconds left until then


class DeadlineAfter:
    """In place of a moment of `time.monotonic`: it is up once `happened` says so."""

    def __init__(self, happened):
        self.happened = happened

    def __sub__(self, now):
        return 0.0 if self.happened() else PATIENCE
