"""Reads a pipeline (live, serialised, in a file) into an `Algorithm` with its estimates."""
