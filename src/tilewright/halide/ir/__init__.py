"""Algorithms, schedules and loop nests as immutable data, and their names and targets."""
