#!/bin/bash
# bench/gpu/run counters_h200 without a GPU: a recorded page of the profiler, the count beside the model.
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 exec python3 "$ORDO_SOURCE/lab/tests/bench/counters.py"
