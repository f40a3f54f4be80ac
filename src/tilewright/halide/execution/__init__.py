"""Build, verify and time schedules in worker processes."""
