"""The command `ordo` of an installed package: runs the program in the folder of this file."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path


def main() -> None:
    """Replace this process by the program. Python ignores SIGPIPE, which the program would inherit."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execv(Path(__file__).with_name("ordo"), ["ordo", *sys.argv[1:]])
