"""Schedules chosen by measuring: the best few, and the sizes in the best of them."""
