"""`python -m warmops`."""

import signal
import sys

from warmops.cli import main

# As for Ctrl-C: what a command has set up beside the stack is taken away before it ends.
signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
raise SystemExit(main())
