#!/bin/bash
# bench/gpu/orders_h200 without a GPU: ranks, table, picture, and a run on passes that only pretend.
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 exec python3 "$ORDO_SOURCE/tests/bench/orders_h200.py"
