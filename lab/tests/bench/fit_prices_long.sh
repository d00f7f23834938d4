#!/bin/bash
# lab/bench/fit_prices: constants that rows were made with, and the committed table.
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 exec python3 "$ORDO_SOURCE/lab/tests/bench/fit_prices.py" "$ORDO_BUILD/bin/ordo"
