# The grid of features on the emulator: the oracle's bounds, and every level of the promise. A wrong
# bit is found.
grid=$ORDO_BUILD/tests/cuda/grid_test
count=14
# sanitizers take a minute per combination
! grep -q '^ORDO_SANITIZE:STRING=.' "$ORDO_BUILD/CMakeCache.txt" || count=2
"$grid" --backend emulator --count $count --repeats 0 --longest 150 --work 1 --threads 2 || exit 1
if "$grid" --backend emulator --against emulator --count 4 --repeats 0 --work 0.3 --wrong oracle >/dev/null; then
    echo "--against emulator: a wrong bit was not found"
    exit 1
fi
exec "$grid" --backend emulator --against emulator --count $((count / 2)) --repeats 0 --work 0.3 --threads 2
