"""Read a pipeline (live, serialised or in a file) into an `Algorithm` with its estimates."""
