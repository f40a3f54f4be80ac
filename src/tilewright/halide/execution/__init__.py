"""Builds, verifies and times candidates in worker processes."""
