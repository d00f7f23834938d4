#!/bin/bash
# bench/gpu/block_h200 without a GPU: groups, tables, rows and its budget of time on a command that
# only pretends, and small blocks on the CPU.
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 exec python3 "$ORDO_SOURCE/tests/bench/block.py" "$ORDO_BUILD/bin/ordo"
