"""Code generation from patterns: `views` and `generate` make loops, printers write the source."""
