"""Code from patterns: `views` and `generate` make loops, `printing` writes them down."""
