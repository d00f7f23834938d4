# bench/gpu/run without a GPU: turns, budget, files, peers, refusals.
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
PYTHONDONTWRITEBYTECODE=1 exec python3 "$ORDO_SOURCE/tests/bench/driver.py"
