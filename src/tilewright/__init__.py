"""Tilewright finds fast schedules for array programs: verified, measured, explained."""

__version__ = "0.1.0"
