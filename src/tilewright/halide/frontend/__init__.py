"""From a pipeline (live, serialised, in a file) to an `Algorithm` with its estimates."""
