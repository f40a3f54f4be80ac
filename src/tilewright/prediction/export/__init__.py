"""Models as C and Python source."""
