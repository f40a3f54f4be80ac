"""Searches by measuring: the best few schedules, and tuned factors of the best."""
