"""Candidates built, given inputs, verified and timed in worker processes."""
