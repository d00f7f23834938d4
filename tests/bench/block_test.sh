#!/bin/bash
# bench/gpu/block_h200 without a GPU: groups, tables and rows, on a command that only pretends.
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 exec python3 "$ORDO_SOURCE/tests/bench/block.py"
