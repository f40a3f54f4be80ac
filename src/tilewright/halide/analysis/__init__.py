"""Analyses of algorithms and schedules: bounds, inlining, loop nests."""
