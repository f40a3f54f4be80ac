"""``python -m tilewright`` and the ``tilewright`` command: the command line, quiet from the start.

Ctrl-C ends the process without words while modules are imported, and again when all is done.
"""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Run the command line; returns its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tilewright import cli

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
