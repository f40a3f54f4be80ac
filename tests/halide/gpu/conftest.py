"""The pipelines of the folder above are at hand here too."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
