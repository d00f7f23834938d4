#!/bin/bash
# bench/gpu/block_h200 without a GPU: parts, tables, files and its budget of time, on blocks that only
# pretend. tests/python/test_block_bench.py runs small ones on the CPU.
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 exec python3 "$ORDO_SOURCE/tests/bench/block.py"
