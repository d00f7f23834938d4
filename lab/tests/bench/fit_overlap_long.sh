#!/bin/bash
# lab/bench/fit_overlap on rows that the model made.
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 exec python3 "$ORDO_SOURCE/lab/tests/bench/fit_overlap.py" "$ORDO_BUILD/bin/ordo"
