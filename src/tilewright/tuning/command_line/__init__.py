"""Problems given as a command: TOML files, their checks, and the protocol over pipes."""
