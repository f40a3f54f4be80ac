"""``python -m tilewright.cli``."""

import sys

from tilewright.cli import main

sys.exit(main())
