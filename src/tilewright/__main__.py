"""``python -m tilewright`` and the ``tilewright`` command: the command line, quiet from the start.

Ctrl-C ends the process without a message while modules are imported and after the command ends.
"""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Run the command line and return its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tilewright import cli

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
