"""Searches with measurements: the best few planned schedules, and tuning of their factors."""
