"""Code generation from patterns: `views` and `generate` make loops, `printer` prints them."""
