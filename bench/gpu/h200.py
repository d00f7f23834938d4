"""What block_h200, counters_h200 and train_h200 share: building, the state of the GPU, tables."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from board import smi  # noqa: F401
from driver import ROOT, build, say  # noqa: F401
from show import over  # noqa: F401


def skip(why: object) -> None:
    print(f"{Path(sys.argv[0]).name}: skipped: {why}")
    sys.exit(77)


def save(path: str | None, made: dict) -> None:
    """Write what has been measured so far as JSON; a reader never sees half a file."""
    if path:
        Path(path + ".new").write_text(json.dumps(made, indent=1))
        os.replace(path + ".new", path)


def table(lines: list[list[str]], markdown: bool) -> str:
    """A table of text; the first line is its head, the first column the names of its rows."""
    if markdown:
        made = [f"| {' | '.join(line)} |" for line in lines]
        made.insert(1, "|---" * len(lines[0]) + "|")
        return "\n".join(made)
    wide = [max(len(line[x]) for line in lines) for x in range(len(lines[0]))]
    made = []
    for first, *rest in lines:
        cells = [cell.rjust(width) for cell, width in zip(rest, wide[1:])]
        made.append(" ".join([first.ljust(wide[0]), *cells]))
    return "\n".join(made)
