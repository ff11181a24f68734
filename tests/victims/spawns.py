"""Runs a command in a terminal of its own, and ends as it does."""

import os
import pty
import sys

sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))
