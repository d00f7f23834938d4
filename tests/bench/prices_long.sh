#!/bin/bash
# bench/gpu/prices_h200 without a GPU: its rows, on passes that only pretend, feed the model's fit.
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 exec python3 "$ORDO_SOURCE/tests/bench/prices.py" "$ORDO_BUILD/bin/ordo"
