"""Explanations of schedules."""
