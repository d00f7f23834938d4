#!/bin/bash
# bench/gpu/features_h200 without a GPU: rows, bars, tables, and a run on passes that only pretend.
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 exec python3 "$ORDO_SOURCE/tests/bench/features.py"
