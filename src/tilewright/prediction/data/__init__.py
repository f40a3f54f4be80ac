"""Measured run times: collected, read, written."""
